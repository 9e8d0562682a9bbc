"""The table of errors of `strata validate`, its rows, and the pieces of the fit."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs_and_clusters import runs, weightless
from strata_analysis.cli import main
from strata_analysis.fit_transformer import (
    CENTRE,
    CONFIGURATION,
    DIVISIONS,
    FOLDS,
    NAMES,
    Costs,
    fold_of,
    judged_inside,
)
from strata_analysis.fitted_cluster import INTERVALS
from strata_analysis.held_out_intervals import interval_widths
from strata_analysis.validate import GROUPS, completed, predicted_runs, report, summary, to_csv, with_interval

ROOT = Path(__file__).parents[2]
ROWS = """quantity,line,num_gpus,hidden_size,attention_heads,layers,sequence_length,global_batch,micro_batch,\
tensor_parallelism,data_parallelism,pipeline_parallelism,recomputation,measured,predicted,basis
iteration_time_ms,2,8,64,4,8,128,16,1,8,1,1,none,100,110,formula
iteration_time_ms,3,8,64,4,8,128,16,2,8,1,1,none,100,98,measured
iteration_time_ms,4,8,64,4,8,128,16,2,8,1,1,none,200,184,measured
iteration_time_ms,5,8,64,4,8,128,16,4,8,1,1,none,400,400,formula
"""


@pytest.fixture
def rows():
    return pd.read_csv(io.StringIO(ROWS), keep_default_na=False)


def test_the_last_line_is_over_all_rows(rows):
    last = report(rows).splitlines()[-1]
    assert last == "mean 5.0 %  median 5.0 %  max 10.0 %  rows 4"
    assert summary(np.array([-0.042])) == "mean 4.2 %  median 4.2 %  max 4.2 %  rows 1"


def test_groups_are_what_differs_and_worst_rows_come_first(rows):
    lines = report(rows).splitlines()
    assert any(re.search(r"micro_batch +2 +2 +-5.0 % +5.0 % +5.0 % +8.0 %", line) for line in lines)
    assert any(re.search(r"basis +measured +2 ", line) for line in lines)
    assert not any("hidden_size" in line for line in lines)
    worst = lines.index("4 worst rows")
    assert [line.split()[0] for line in lines[worst + 2 : worst + 6]] == ["2", "4", "3", "5"]


@pytest.mark.parametrize(("option", "num_further"), [("--rows", 0), ("--sensitivities", len(NAMES))])
def test_rows_are_csv_whose_numbers_read_back_equal(capsys, option, num_further):
    table = ROOT / "experiments" / "validation" / "korthikanti_2022_table_5.csv"
    cluster = ROOT / "experiments" / "clusters" / "a100-vtrain.toml"
    assert main(["validate", "--cluster", str(cluster), option, "--", str(table)]) == 0
    header, first, *_ = csv.reader(io.StringIO(capsys.readouterr().out))
    row = dict(zip(header, first, strict=True))
    last = ["measured", "predicted", "basis", "layers_share", "at_least", "at_most"]
    assert header[-num_further - 6 : len(header) - num_further] == last
    assert header[len(header) - num_further :] == NAMES[:num_further]
    assert (row["line"], row["measured"], row["sequence_parallel"]) == ("5", "1420", "no")
    # What the closed form is when its terms are added up by hand, in scalars.
    assert float(row["predicted"]) == pytest.approx(1482.1145460510536, rel=1e-12)
    assert float(row["layers_share"]) == pytest.approx(0.9587125257370512, rel=1e-12)


def test_an_interval_is_as_wide_as_its_basis_and_its_nodes_say():
    rows = pd.DataFrame({"num_gpus": [8, 16, 8], "basis": ["measured", "extrapolated", "formula"], "predicted": 100.0})
    assert with_interval(rows, weightless()).columns.tolist() == rows.columns.tolist()
    widths = ({"cell": 0.1, "shape": 0.2, "formula": 0.3}, {"cell": 0.4, "shape": 0.5, "formula": 0.6})
    found = with_interval(rows, weightless(intervals=widths))
    np.testing.assert_allclose(found["at_most"], 100.0 * np.exp([0.1, 0.5, 0.3]))
    np.testing.assert_allclose(found["at_least"], 100.0 / np.exp([0.1, 0.5, 0.3]))
    lines = report(
        found.assign(quantity="x", line=[2, 3, 4], measured=[100.0, 100.0, 1e3], **dict.fromkeys(GROUPS[:-1], 1))
    )
    assert "2 of 3 rows lie in the interval that holds 90 % of rows not fitted to" in lines


def test_intervals_hold_nine_tenths_of_what_was_held_out():
    """Of 99 rows the 90th error, of one the largest there is; a basis without rows there has that of all there."""
    errors = np.random.default_rng(1).permutation(np.arange(1, 100)) / 1000
    rows = pd.DataFrame({"num_gpus": 8, "basis": "measured", "predicted": 1.0, "measured": np.exp(errors)})
    other = pd.DataFrame({"num_gpus": [16], "basis": ["interpolated"], "predicted": [1.0], "measured": [np.exp(-0.5)]})
    one, many = interval_widths(pd.concat([rows, other]), devices_per_node=8)
    assert one == pytest.approx({"cell": 0.09, "shape": 0.09, "formula": 0.09})
    assert many == pytest.approx({"cell": 0.5, "shape": 0.5, "formula": 0.5})


def test_what_a_table_does_not_say_comes_from_the_cluster():
    cluster = weightless(vocabulary_size=77, recomputation_on_one_node="selective", recomputation_on_many_nodes="full")
    table = runs({}, {"num_gpus": 8}, {"num_gpus": 9})
    found = completed(table.drop(columns=["vocabulary_size", "recomputation"]), cluster)
    assert found["vocabulary_size"].tolist() == [77] * 3
    assert found["recomputation"].tolist() == ["selective", "selective", "full"]
    pd.testing.assert_frame_equal(completed(table, cluster), table)


@pytest.mark.parametrize("quantity", ["activation_bytes_per_layer", "activation_bytes"])
def test_bytes_have_no_sensitivities(quantity):
    table = runs({}).assign(line=2, quantity=quantity, measured=1.0)
    rows = predicted_runs(table, weightless(), with_sensitivities=True)
    assert rows.columns[-1] == "basis"
    layers = 1 if quantity == "activation_bytes_per_layer" else 12
    assert to_csv(rows).endswith(f",1,{layers * 4 * 128 * (34 * 256 + 5 * 8 * 128)},formula\n")


def test_a_fold_depends_on_the_configuration_alone(rows):
    folds = fold_of(rows, CONFIGURATION)
    assert folds[1] == folds[2]  # the same run twice is never on both sides
    assert (fold_of(rows.iloc[::-1], CONFIGURATION) == folds[::-1]).all()
    many = pd.concat([rows.assign(layers=layers) for layers in range(200)])
    counts = np.bincount(fold_of(many, CONFIGURATION), minlength=FOLDS)
    assert counts.min() > 100


def test_forms_are_compared_without_the_first_fold():
    """Rows of the first fold neither count nor pull, however wrong they are."""
    num = 60
    table = pd.DataFrame({column: np.full(num, 8) for column in CONFIGURATION})
    table["layers"] = table["hidden_size"] = np.arange(1, num + 1)
    table["layers_share"] = 0.9
    table[NAMES] = np.eye(len(NAMES))[0]  # only the first parameter matters
    inside = fold_of(table, CONFIGURATION) != 0
    assert 0 < inside.sum() < num
    assert (fold_of(table, CONFIGURATION, "inside") != fold_of(table, CONFIGURATION)).any()

    def found(wrong):
        table["measured"] = np.where(inside, 110.0, wrong)

        def predict(costs):
            cells = zip(*(table[c] for c in CONFIGURATION[:5]), strict=True)
            ratios = np.array([np.exp(0.9 * costs.ratios.get(tuple(map(int, cell)), 0.0)) for cell in cells])
            return [table.assign(predicted=100.0 * np.exp(costs.parameters[0] - CENTRE[0]) * ratios)]

        return judged_inside(predict)

    right, wrong = found(110.0), found(1e5)
    assert len(right) == 3
    for (title, (errors,)), (_, (others,)) in zip(right, wrong, strict=True):
        assert len(errors) == len(DIVISIONS) * inside.sum(), title
        np.testing.assert_array_equal(errors, others)
        assert np.abs(errors).max() < 0.02, title


def test_writing_keeps_comments_and_replaces_ratios():
    text = "\n".join(["[transformer_costs]", *(f"{name} = 1.0  # why {name}" for name in NAMES)])
    text += "\nlayers = [\n  { old = 1 },\n]\n"
    parameters = np.log(np.arange(1, len(NAMES) + 1))
    written = Costs(parameters, {(64, 4, 128, 2, 8): np.log(1.5), (64, 4, 128, 1, 8): 0.0}).toml(text)
    for number, name in enumerate(NAMES, start=1):
        assert f"{name} = {number}  # why {name}\n" in written
    assert "old" not in written
    ratios = [line for line in written.splitlines() if "ratio" in line]
    assert ratios == [
        "  { hidden_size = 64, attention_heads = 4, sequence_length = 128, tensor_parallelism = 1, micro_batch = 8, "
        "ratio = 1 },  # fitted",
        "  { hidden_size = 64, attention_heads = 4, sequence_length = 128, tensor_parallelism = 2, micro_batch = 8, "
        "ratio = 1.5 },  # fitted",
    ]
    with pytest.raises(SystemExit, match="slot_seconds: 0 lines"):
        Costs(parameters, {}).toml(text.replace("slot_seconds", "other"))
    lines = "".join(f"{name} = {{ cell = 1, formula = 2 }}  # why\n" for name in INTERVALS)
    text = text.replace("layers = [", lines + "layers = [")
    assert "interval" not in Costs(parameters, {}).toml(text)
    written = Costs(parameters, {}, ({"cell": 0.5}, {"cell": 0.25})).toml(text)
    assert [line for line in written.splitlines() if line.startswith("interval")] == [
        "interval_on_one_node = { cell = 0.5 }  # why",
        "interval_on_many_nodes = { cell = 0.25 }  # why",
    ]

"""The table of errors of `strata validate`, and the pieces of the fit that need no binary."""

import io
import re
import sys

import numpy as np
import pandas as pd
import pytest
from strata_analysis.cli import main
from strata_analysis.fit_transformer import CENTRE, CONFIGURATION, FOLDS, NAMES, Costs, fold_of, judged_inside
from strata_analysis.validate import report, summary

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


def test_the_verb_reads_rows_from_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(ROWS))
    assert main(["validate"]) == 0
    assert capsys.readouterr().out.endswith("mean 5.0 %  median 5.0 %  max 10.0 %  rows 4\n")


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
        assert len(errors) == inside.sum(), title
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
    with pytest.raises(SystemExit, match="half_depth: 0 lines"):
        Costs(parameters, {}).toml(text.replace("half_depth", "other"))

"""`strata validate`: predictions of measured runs, the last line, bad tables, and a fit that finds what was planted."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "experiments" / "validation"
CLUSTER = ROOT / "experiments" / "clusters" / "a100-vtrain.toml"
LAST_LINE = re.compile(r"mean (\d+\.\d) %  median (\d+\.\d) %  max (\d+\.\d) %  rows (\d+)")


def rows_of(ended):
    assert ended.code == 0, ended.error
    return list(csv.DictReader(io.StringIO(ended.output)))


@pytest.mark.parametrize(
    ("table", "rows", "largest_mean"),
    [
        ("vtrain_a100_single_node", 720, 5.0),
        ("vtrain_a100_multi_node", 54, 4.0),
        ("korthikanti_2022_table_2", 24, 0.0),
        ("korthikanti_2022_figure_1", 8, 0.0),
        ("korthikanti_2022_table_5", 8, 3.0),  # another machine's: nothing was fitted to it
    ],
)
def test_published_tables(strata, table, rows, largest_mean):
    ended = strata(None, "validate", PUBLISHED / f"{table}.csv", "--cluster", "a100-vtrain")
    assert ended.code == 0, ended.error
    last = LAST_LINE.fullmatch(ended.output.splitlines()[-1])
    assert last, ended.output
    assert int(last[4]) == rows
    assert float(last[1]) <= largest_mean


def test_rows_say_where_a_prediction_comes_from(strata):
    rows = rows_of(
        strata(None, "validate", PUBLISHED / "vtrain_a100_single_node.csv", "--cluster", "a100-vtrain", "--rows")
    )
    assert len(rows) == 720
    assert {row["basis"] for row in rows} == {"measured"}
    assert {row["recomputation"] for row in rows} == {"none"}
    assert {row["vocabulary_size"] for row in rows} == {"51200"}
    elsewhere = rows_of(
        strata(None, "validate", PUBLISHED / "korthikanti_2022_table_5.csv", "--cluster", CLUSTER, "--rows")
    )
    assert "formula" in {row["basis"] for row in elsewhere}


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("hidden_size", "hiden_size", ["runs.csv:1", "hiden_size", "did you mean"]),
        ("8,32,4,", "9,32,4,", ["runs.csv:3", "num_gpus: 9"]),
        ("8,32,4,", "8,32,5,", ["runs.csv:3", "global_batch: 32 is no multiple of micro_batch"]),
        ("219.732754", "0", ["runs.csv:3", "iteration_time_ms"]),
    ],
)
def test_bad_tables(strata, tmp_path, old, new, parts):
    lines = (PUBLISHED / "vtrain_a100_single_node.csv").read_text().splitlines()[:3]
    assert old in "\n".join(lines)
    (tmp_path / "runs.csv").write_text("\n".join(lines).replace(old, new) + "\n")
    ended = strata(None, "validate", "runs.csv", "--cluster", "a100-vtrain")
    assert ended.code == 2
    assert len(ended.messages()) == 1
    for part in parts:
        assert part in ended.messages()[0]


@pytest.mark.parametrize("path", [".", "absent.csv"])
def test_what_cannot_be_read(strata, path):
    ended = strata(None, "validate", path, "--cluster", "a100-vtrain")
    assert ended.code == 2
    assert f"{path}: cannot be read" in ended.messages()[0]


def test_a_cluster_nobody_fitted_is_refused(strata):
    ended = strata(None, "validate", PUBLISHED / "korthikanti_2022_table_5.csv", "--cluster", "a800-ib")
    assert ended.code == 2
    assert "no section [transformer_costs]" in ended.messages()[0]


def test_the_fit_finds_planted_costs(strata, tmp_path):
    """Starting at the shipped file: a machine with half the launch time and 0.7 of the product rate."""
    text = CLUSTER.read_text()
    text = text[: text.index("\nlayers = [")] + "\nlayers = [  # fitted\n]\n"
    start = tmp_path / "start.toml"
    start.write_text(text)
    planted = tmp_path / "planted.toml"
    for name, factor in {"launch_seconds": 0.5, "product_share": 0.7}.items():
        value = float(re.search(rf"(?m)^{name} = (\S+)", text)[1])
        text = re.sub(rf"(?m)^{name} = \S+", f"{name} = {value * factor}", text)
    planted.write_text(text)
    table = PUBLISHED / "vtrain_a100_single_node.csv"
    header, *lines = table.read_text().splitlines()
    truth = rows_of(strata(None, "validate", table, "--cluster", planted, "--rows"))
    runs = tmp_path / "runs.csv"
    measured = [f"{line.rsplit(',', 1)[0]},{row['predicted']}" for line, row in zip(lines, truth, strict=True)]
    runs.write_text("\n".join([header, *measured[::6]]) + "\n")

    words = ["-m", "strata_analysis.fit_transformer", "--cluster", start, "--write", runs]
    fitted = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240)
    assert fitted.returncode == 0, fitted.stderr
    held_out = re.search(r"formula, rows held out \(\d+ folds\)\n +runs\.csv +(.*)", fitted.stdout)
    assert float(LAST_LINE.fullmatch(held_out[1])[1]) < 2.0, fitted.stdout
    # The other rows, by the file that was written.
    (tmp_path / "others.csv").write_text("\n".join([header, *measured[1::6]]) + "\n")
    ended = strata(None, "validate", tmp_path / "others.csv", "--cluster", start)
    assert float(LAST_LINE.fullmatch(ended.output.splitlines()[-1])[1]) < 2.0, ended.output

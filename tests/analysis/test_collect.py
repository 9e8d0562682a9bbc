"""collect: complete, idempotent, atomic."""

import h5py
import pandas as pd
import pytest
from strata_analysis.cli import main
from strata_analysis.collect import collect
from strata_analysis.load import load


def test_collected_tables_equal_those_of_the_attempts(sample):
    before = load(sample)
    collect(sample)
    after = load(sample / "collected.h5")
    pd.testing.assert_frame_equal(after.steps, before.steps, check_dtype=False)
    pd.testing.assert_frame_equal(after.events, before.events, check_dtype=False)
    pd.testing.assert_frame_equal(after.predictions, before.predictions, check_dtype=False)
    assert len(before.memory) > 0
    pd.testing.assert_frame_equal(after.memory, before.memory, check_dtype=False)
    pd.testing.assert_frame_equal(after.points, before.points.drop(columns="path"), check_dtype=False)


def test_collecting_twice_gives_the_same_bytes(sample):
    first = [file.read_bytes() for file in collect(sample)]
    second = [file.read_bytes() for file in collect(sample)]
    assert first == second


def test_csv_and_parquet_hold_every_point_with_its_reason(sample):
    collect(sample)
    for table in (pd.read_csv(sample / "collected.csv"), pd.read_parquet(sample / "collected.parquet")):
        assert len(table) == len(load(sample).points)
        assert list(table.columns[:3]) == ["experiment_name", "point", "attempt"]
        assert "oom" in set(table["status"])


def test_a_folder_of_experiments_is_collected_one_by_one(sample):
    other = sample.parent / "other"
    sample.rename(sample.parent / "renamed")
    (sample.parent / "renamed").rename(other)
    assert [file.parent.name for file in collect(sample.parent)] == ["other"] * 3


def test_a_failure_leaves_the_old_files_and_no_others(sample, monkeypatch):
    collect(sample)
    old = {file.name: file.read_bytes() for file in sample.iterdir() if file.is_file()}

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OSError, match="No space left"):
        collect(sample)
    assert {file.name: file.read_bytes() for file in sample.iterdir() if file.is_file()} == old


def test_the_command_line_names_what_is_missing(tmp_path, capsys):
    assert main(["collect", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such file or folder" in capsys.readouterr().err


def test_the_table_has_a_line_a_point_and_names_convention_and_peak(sample, capsys):
    assert main(["table", str(sample)]) == 0
    text = capsys.readouterr().out
    assert "MFU: megatron convention" in text
    assert "measured GEMM, n = 2048" in text
    assert "oom [1]" in text
    assert "[1] OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB" in text
    assert len([line for line in text.splitlines()[1:] if not line.startswith(("#", "["))]) == len(load(sample).last())


def test_tables_without_rows_are_kept(sample):
    for file_name in [*sample.glob("*/*.h5"), *sample.glob("*/*.h5.part")]:
        with h5py.File(file_name, "r+") as file:
            for column in file["events"].values():
                column.resize((0,))
    results = load(sample)
    collect(sample)
    after = load(sample / "collected.h5")
    assert len(after.events) == 0
    assert list(after.events.columns) == list(results.events.columns)
    assert len(after.steps) == len(results.steps)

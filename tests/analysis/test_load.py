"""The reader against files of the real writer."""

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from strata_analysis.derive import derive
from strata_analysis.load import INDEX, LoadError, load, mark_counted
from strata_analysis.schema import schema
from strata_analysis.versions import UnknownVersion


def killed_file(sample):
    points = load(sample).points
    return Path(points[points["status"] == "killed"].iloc[0]["path"])


def test_every_attempt_is_a_row_with_its_ending(sample):
    points = load(sample).points
    assert sorted(points["status"].unique()) == ["killed", "node_failure", "ok", "oom"]
    assert len(points) == len(list(sample.glob("*/*.jsonl")))
    oom = points[points["status"] == "oom"].iloc[0]
    assert "needs 4.51 GiB of 4.00 GiB" in oom["message"]


def test_columns_are_those_of_the_schema(sample):
    results = load(sample)
    for group, columns in schema().tables.items():
        assert set(columns) <= set(getattr(results, group).columns)
    assert set(schema().attributes) - {"point_id"} <= set(results.points.columns)
    assert set(schema().scalars) <= set(results.points.columns)


def test_values_equal_those_in_the_file(sample):
    results = load(sample)
    point = results.points[results.points["status"] == "ok"].iloc[0]
    steps = results.steps_of(point, phase=None)
    with h5py.File(point["path"]) as file:
        for name in ("step", "step_seconds_max", "loss", "all_reduce_sent_bytes"):
            np.testing.assert_array_equal(steps[name], file["steps"][name][:])
        assert point["num_parameters"] == file.attrs["num_parameters"]


def test_a_killed_attempt_loses_no_row_that_jsonl_has(sample):
    results = load(sample)
    killed = results.points[results.points["status"] == "killed"].iloc[0]
    assert killed["path"].endswith(".h5.part")
    assert len(results.steps_of(killed, phase=None)) == 10
    assert killed["message"] == "no ending after 10 steps"


def test_rows_lost_by_hdf5_come_from_jsonl_and_are_counted(sample):
    part = killed_file(sample)
    with h5py.File(part, "r+") as file:
        for dataset in file["steps"].values():
            dataset.resize((7,))
    results = load(part)
    assert results.points.iloc[0]["num_rows_from_jsonl"] == 3
    assert list(results.steps["step"]) == list(range(10))


def test_a_chunk_that_the_killed_writer_did_not_get_to_is_no_row_of_zeros(sample):
    part = killed_file(sample)
    with h5py.File(part, "r+") as file:
        loss = file["steps/loss"]
        stored, values = loss.chunks[0], loss[:]
        for dataset in file["steps"].values():
            dataset.resize((stored + 5,))  # the length is written, the next chunk is not
        assert loss[stored] == 0.0
        file["steps/step"][:] = np.arange(stored + 5)
    assert stored > len(values)
    assert len(load(part).steps) == stored


def test_an_unreadable_hdf5_file_is_replaced_by_jsonl(sample):
    part = killed_file(sample)
    part.write_bytes(b"not HDF5")
    assert len(load(part).steps) == 10


def test_steps_that_fill_and_drain_ranks_are_told_apart_and_in_no_statistic(sample):
    part = killed_file(sample)
    with h5py.File(part, "r+") as file:
        numbers = h5py.check_enum_dtype(file["steps/phase"].dtype)
        for step, phase in ((0, "fill"), (8, "drain"), (9, "fill")):
            file["steps/phase"][step] = numbers[phase]
        file["steps/step_seconds_max"][8:10] = 1e6
    results = load(part)
    point = results.points.iloc[0]
    counts = {phase: point[f"num_{phase}_steps"] for phase in ("fill", "warmup", "measured", "drain")}
    assert counts == {"fill": 2, "warmup": 2, "measured": 5, "drain": 1}
    assert list(results.steps_of(point)["step"]) == [3, 4, 5, 6, 7]
    assert point["median_step_seconds"] == results.steps_of(point)["step_seconds_max"].median()
    assert len(results.steps_of(point, phase=None)) == 10


def test_the_last_attempt_counts(sample):
    results = load(sample)
    twice = results.points[results.points["point"].map(results.points["point"].value_counts()) == 2]
    assert list(twice.sort_values("attempt")["status"]) == ["node_failure", "ok"]
    assert list(twice.sort_values("attempt")["counted"]) == [False, True]
    assert len(results.last()) == results.points["point"].nunique()


def test_of_good_attempts_the_last_counts_and_in_blocks_the_last_of_each():
    def counted(*attempts):
        names = ("status", "block_job", "block")
        rows = [dict(zip(names, attempt, strict=True)) | {"attempt": i + 1} for i, attempt in enumerate(attempts)]
        points = pd.DataFrame(rows).assign(experiment_name="sweep", point="abc")
        return [row["attempt"] for row, counts in zip(rows, mark_counted(points), strict=True) if counts]

    alone = ("", -1)
    assert counted(("ok", *alone), ("ok", *alone)) == [2]
    assert counted(("ok", *alone), ("ok", *alone), ("killed", *alone)) == [2], "no failure takes a number away"
    assert counted(("oom", *alone), ("killed", *alone)) == [2], "the last one says why there is none"
    assert counted(("ok", "7", 0), ("ok", "7", 1), ("ok", "7", 0), ("hang", "7", 1)) == [2, 3]
    assert counted(("ok", "7", 0), ("ok", "8", 0)) == [1, 2], "blocks of two jobs are runs of their own"
    assert counted(("ok", *alone), ("ok", "7", 0), ("ok", "7", 1)) == [2, 3]
    assert counted(("ok", "7", 0), ("ok", *alone)) == [2]


def test_a_newer_major_version_is_refused(sample):
    file_name = next(sample.glob("*/1.h5"))
    with h5py.File(file_name, "r+") as file:
        file.attrs["schema_version"] = "2.0"
    with pytest.raises(UnknownVersion, match=r"schema_version 2\.0, but this reader knows up to 1\.\d+"):
        load(file_name)


def test_a_newer_minor_version_is_read(sample):
    file_name = next(sample.glob("*/1.h5"))
    with h5py.File(file_name, "r+") as file:
        file.attrs["schema_version"] = "1.99"
        file.attrs["a_later_name"] = 7
    assert load(file_name).points.iloc[0]["a_later_name"] == 7


def test_an_older_minor_version_gets_the_defaults_of_later_names(sample):
    file_name = next(sample.glob("*/1.h5"))
    with h5py.File(file_name, "r+") as file:
        file.attrs["schema_version"] = "1.0"
        for name in ("block", "block_order", "block_seed", "block_job", "restarted_from", "first_step", "unmeasured"):
            del file.attrs[name]
        for name in ("reduce_sent_bytes", "energy_joules", "clock_event_reasons"):
            del file[f"steps/{name}"]
    results = load(file_name)
    assert set(results.steps["reduce_sent_bytes"]) == {0}
    assert results.steps["energy_joules"].isna().all()
    assert results.steps["clock_event_reasons"].isna().all()
    point = results.points.iloc[0]
    assert [point[name] for name in ("block", "block_order", "block_seed", "block_job")] == [-1, -1, -1, ""]
    assert [point[name] for name in ("restarted_from", "first_step", "unmeasured")] == ["", 0, []]


def test_energy_a_sample_is_that_of_all_measured_steps_or_unknown(sample):
    results = load(sample)
    assert derive(results)["joules_per_sample"].isna().all()  # no device of the sample has a counter
    steps = results.steps
    steps["energy_joules"] = 2.0 * steps["num_samples"]
    steps.loc[steps["phase"] == "warmup", "energy_joules"] = 1e9
    first = results.points.iloc[0]
    of_first = (steps[INDEX] == first[INDEX]).all(axis=1)
    steps.loc[steps.index[of_first & (steps["phase"] == "measured")][0], "energy_joules"] = math.nan
    points = derive(results)
    is_first = (points[INDEX] == first[INDEX]).all(axis=1)
    assert points.loc[is_first, "joules_per_sample"].isna().all()
    with_steps = points[~is_first & (points["num_measured_steps"] > 0)]
    assert len(with_steps) > 0 and set(with_steps["joules_per_sample"]) == {2.0}


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(LoadError, match="no attempts below"):
        load(tmp_path)
    with pytest.raises(LoadError, match="no such file or folder"):
        load(tmp_path / "missing")


def test_a_point_is_a_name_and_no_path(sample, capsys):
    """Files are named by it: traces would be written elsewhere."""
    attempt = load(sample).points.iloc[0]
    with h5py.File(attempt["path"], "r+") as file:
        file.attrs["point_id"] = "../../elsewhere"
    assert attempt["point"] not in set(load(sample).points["point"])
    assert "the point's id '../../elsewhere' is no name of a folder" in capsys.readouterr().err


def test_what_the_harness_knows_of_an_end_replaces_what_the_attempt_said(sample):
    """Of an attempt that was killed it may know why; one that says it ended well did."""
    before = load(sample).points
    endings = []
    for status in ("killed", "ok"):
        attempt = before[before["status"] == status].iloc[0]
        number = int(attempt["attempt"])
        endings.append({"point": attempt["point"], "attempt": number, "status": "node_failure", "message": "lost n3"})
    (sample / "submissions").mkdir(exist_ok=True)
    (sample / "submissions" / "endings.json").write_text(json.dumps(endings))
    after = load(sample).points
    changed = after[after["status"] != before["status"]]
    assert changed[["point", "attempt", "status", "message"]].to_dict("records") == endings[:1]

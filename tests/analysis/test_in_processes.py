"""A function of many things in processes, and that what is read and drawn does not depend on how many there are."""

import os
import time

import pandas as pd
import pytest
from strata_analysis import in_processes, load
from strata_analysis.figures import draw_all


@pytest.fixture(params=[1, 3])
def num_cores(request, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(request.param)))
    return request.param


def test_results_come_in_the_order_of_the_items(num_cores):
    def slow_at_first(number):
        time.sleep(0.05 if number < 4 else 0.0)
        return number * number, os.getpid()

    found = list(in_processes.each(slow_at_first, range(40), batch=3))
    assert [square for square, _ in found] == [number * number for number in range(40)]
    processes = {process for _, process in found}
    assert processes == {os.getpid()} if num_cores == 1 else os.getpid() not in processes and len(processes) > 1


def test_an_exception_ends_it_at_its_place(num_cores):
    def fails_at_five(number):
        if number == 5:
            raise ValueError("five")
        return number

    found = []
    with pytest.raises(ValueError, match="five"):
        for number in in_processes.each(fails_at_five, range(20)):
            found.append(number)
    assert found == [0, 1, 2, 3, 4]


def test_a_process_has_no_processes_of_its_own(num_cores):
    def of_inner(_number):
        return os.getpid(), {process for process in in_processes.each(lambda _inner: os.getpid(), range(4))}

    assert all(inner == {outer} for outer, inner in in_processes.each(of_inner, range(4)))


def test_few_results_wait_for_their_turn(num_cores, tmp_path):
    def leave_a_mark(number):
        (tmp_path / str(number)).touch()
        return number

    results = in_processes.each(leave_a_mark, range(100))
    next(results)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) <= 1 + (1 + in_processes.AHEAD) * num_cores
    results.close()


def test_sweeps_are_read_and_drawn_alike_by_any_number(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(load, "ATTEMPTS_AT_ONCE", 1)
    of_cores = {}
    for cores in (1, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _process, cores=cores: set(range(cores)))
        results = load.load(sample, held_bytes=1 << 20)
        drawn = draw_all(results, tmp_path / str(cores))
        rows = list(results.rows_of("steps", results.points, ["loss"]))
        of_cores[cores] = results, drawn, rows
    (one, one_drawn, one_rows), (three, three_drawn, three_rows) = of_cores.values()
    pd.testing.assert_frame_equal(one.points, three.points)
    assert [rows["loss"].tolist() for rows in one_rows] == [rows["loss"].tolist() for rows in three_rows]
    assert one_drawn.left_out == three_drawn.left_out
    assert [file.name for file in one_drawn.files] == [file.name for file in three_drawn.files] != []
    for ours, theirs in zip(one_drawn.files, three_drawn.files, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name


def test_a_damaged_attempt_is_left_out_by_any_number(sample, num_cores, monkeypatch, capsys):
    monkeypatch.setattr(load, "ATTEMPTS_AT_ONCE", 1)
    damaged = next(sample.rglob("1.h5"))
    damaged.write_bytes(b"no HDF5")
    results = load.load(sample)
    assert str(damaged) not in set(results.points["path"])
    assert str(damaged) in capsys.readouterr().err

"""What a verb loads, opens and holds: all of a sweep's rows at once would not fit."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from strata_analysis import collect as collecting
from strata_analysis import load as loading
from strata_analysis.cli import main
from strata_analysis.collect import collect
from strata_analysis.load import INDEX, TABLES, WORDS, AttemptTables, load

SLOW_TO_IMPORT = ("h5py", "jinja2", "matplotlib", "numpy", "pandas", "scipy")


def imported(code, *words):
    """Which of SLOW_TO_IMPORT a new process has when it is through with `code`."""
    code += f"; import sys; print('has', *(name for name in {SLOW_TO_IMPORT} if name in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split()[1:])


def test_help_imports_nothing_that_is_slow():
    assert imported("from strata_analysis import cli; cli._parser().format_help()") == set()


def test_only_verbs_that_draw_import_what_draws(sample):
    run = "import sys; from strata_analysis.cli import main; main(sys.argv[1:])"
    for words in (["table", sample], ["compare", sample, "--baseline", "ddp"], ["collect", sample]):
        assert imported(run, *map(str, words)) == {"h5py", "numpy", "pandas"}, words[0]


@pytest.fixture
def opened(monkeypatch):
    """How often each file was opened by name."""
    counts = Counter()
    original = h5py.File.__init__

    def counting(self, name, *arguments, **options):
        if isinstance(name, Path):
            counts[name.name, name.parent.name] += 1
        original(self, name, *arguments, **options)

    monkeypatch.setattr(h5py.File, "__init__", counting)
    return counts


@pytest.mark.parametrize(("held_bytes", "times"), [(0, 2), (collecting.HELD_BYTES, 1)])
def test_collect_opens_a_file_twice_or_once_where_rows_are_few(sample, opened, monkeypatch, held_bytes, times):
    """For what is said of it as a whole, and for its rows; not for each column."""
    monkeypatch.setattr(collecting, "HELD_BYTES", held_bytes)
    collect(sample)
    attempts = [count for (name, _), count in opened.items() if name[0].isdigit()]
    assert len(attempts) == len(load(sample).points)
    assert max(attempts) == times


def test_collected_rows_are_the_same_whether_held_or_not(sample, monkeypatch):
    collect(sample)
    held = (sample / "collected.h5").read_bytes()
    monkeypatch.setattr(collecting, "HELD_BYTES", 0)
    collect(sample)
    assert (sample / "collected.h5").read_bytes() == held


@pytest.mark.parametrize("words", [["collect"], ["table"], ["compare", "--baseline", "ddp"], ["report"]])
def test_no_verb_needs_all_steps_or_events_or_memory_in_memory(sample, words, monkeypatch, capsys):
    original = AttemptTables.table

    def small_tables_only(self, group):
        assert group not in ("steps", "events", "memory"), f"all of /{group} was read at once"
        return original(self, group)

    monkeypatch.setattr(AttemptTables, "table", small_tables_only)
    assert main([words[0], str(sample), *words[1:]]) in (0, 1, 4), capsys.readouterr().err


def test_rows_of_an_attempt_are_the_same_from_its_file_from_a_table_and_from_a_collected_file(sample):
    from_files, from_table = load(sample), load(sample)
    collect(sample)
    collected = load(sample / "collected.h5")
    for group in TABLES:
        assert len(getattr(from_table, group).columns) > len(INDEX)
        ways = zip(*(way.rows_of(group, from_files.points) for way in (from_files, from_table, collected)), strict=True)
        for rows, *others in ways:
            for other in others:
                assert rows.keys() == other.keys()
                for name, values in rows.items():
                    np.testing.assert_array_equal(values, other[name], err_msg=f"{group}/{name}")


def test_a_column_that_only_a_newer_file_has_is_collected(sample):
    file_name = sorted(sample.glob("*/1.h5"))[0]
    with h5py.File(file_name, "r+") as file:
        file["steps/a_later_column"] = np.arange(len(file["steps/step"]))
        file["events/a_later_text"] = np.array(["a word"] * len(file["events/event"]), dtype=h5py.string_dtype())
    before = load(sample)
    collect(sample)
    for results in (before, load(sample / "collected.h5")):
        own = results.steps["point"] == file_name.parent.name
        assert list(results.steps.loc[own, "a_later_column"]) == list(range(own.sum()))
        assert results.steps.loc[~own, "a_later_column"].isna().all()
        own = results.events["point"] == file_name.parent.name
        assert set(results.events.loc[own, "a_later_text"]) == {"a word"}


def test_columns_of_a_closed_file_that_differ_in_length_are_said(sample, capsys):
    file_name = sorted(sample.glob("*/1.h5"))[0]
    with h5py.File(file_name, "r+") as file:
        file["steps/loss"].resize((3,))
    assert main(["collect", str(sample)]) == 2
    assert f"{file_name}: column loss of /steps has 3 of 33 rows" in capsys.readouterr().err
    assert not (sample / "collected.h5").exists()


def test_an_older_collected_file_has_texts_where_a_newer_one_has_numbers(sample):
    collect(sample)
    before = load(sample / "collected.h5")
    before_steps = before.steps
    with h5py.File(sample / "collected.h5", "r+") as file:
        file.attrs["schema_name"] = loading.OLDER_COLLECTED_SCHEMA
        for group in TABLES:
            for name in [name for name in file[group] if name.endswith(WORDS)]:
                column = name.removesuffix(WORDS)
                texts = [file[group][name].asstr()[()][number] for number in file[group][column][()]]
                del file[group][name], file[group][column]
                file[group].create_dataset(column, data=texts, dtype=h5py.string_dtype())
    loaded = load(sample / "collected.h5")
    for name in ("point", "phase", "loss"):
        assert list(loaded.steps[name]) == list(before_steps[name])

"""Sweeps by the names of their experiments, below one folder of results."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pandas as pd

from strata_analysis.derive import by_point
from strata_analysis.load import LoadError, Results, attempt_stems, load


class NotRun(LookupError):  # noqa: N818 - reads as the condition it names
    """The folder has no attempts of an experiment; the text is its name."""


class Sweeps:
    """Each sweep is read when it is first asked for, and once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._read: dict[str, Results] = {}
        self._points: dict[str, pd.DataFrame] = {}

    @cached_property
    def names(self) -> list[str]:
        """Experiments that have attempts, in alphabetical order."""
        folders = (path for path in self._folder.iterdir() if path.is_dir()) if self._folder.is_dir() else ()
        return sorted(path.name for path in folders if _has_attempts(path))

    def has(self, experiment: str, file: str) -> bool:
        """There is such a file in the folder of the experiment."""
        return (self._folder / experiment / file).is_file()

    def results(self, experiment: str) -> Results:
        """@throws NotRun."""
        if experiment not in self.names:
            raise NotRun(experiment)
        if experiment not in self._read:
            self._read[experiment] = load(self._folder / experiment)
        return self._read[experiment]

    def points(self, *experiments: str) -> pd.DataFrame:
        """The rows of `by_point` of all of them. @throws NotRun naming the first that is missing."""
        for name in experiments:
            if name not in self._points:
                self._points[name] = by_point(self.results(name))
        return pd.concat([self._points[name] for name in experiments], ignore_index=True)

    def commits(self, *experiments: str) -> list[str]:
        """Of the strata that made these points, without repetitions."""
        return sorted({commit for name in experiments for commit in self.points(name)["git_commit"]})


def _has_attempts(folder: Path) -> bool:
    try:
        return bool(attempt_stems(folder))
    except LoadError:
        return False

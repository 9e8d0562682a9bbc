"""What papers print of their figures and tables, as data files beside this one, and our numbers beside theirs.

A file `<paper>.toml` holds lists of records named by the figure or table. In a record every list is as long as the
others and gives a row each; what is no list holds for all of its rows. Nothing in them was read off a picture.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent


class PublishedError(ValueError):
    """A data file that contradicts itself, or a name that it does not have."""


def published(paper: str, what: str, folder: Path = FOLDER) -> pd.DataFrame:
    """The rows of one figure or table; `where` says where the paper prints each."""
    content = _content(folder / f"{paper}.toml")
    if what not in content:
        raise PublishedError(f"{paper}.toml: no {what}; there are {', '.join(content)}")
    return pd.concat([_rows(record, f"{paper}.toml: {what}") for record in content[what]], ignore_index=True)


@cache
def _content(path: Path) -> dict:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: records for name, records in content.items() if isinstance(records, list)}


def _rows(record: dict, name: str) -> pd.DataFrame:
    lengths = {key: len(value) for key, value in record.items() if isinstance(value, list)}
    if len(set(lengths.values())) > 1:
        raise PublishedError(f"{name}: lists of different lengths: {lengths}")
    if "where" not in record:
        raise PublishedError(f"{name}: a record without `where`")
    return pd.DataFrame(record, index=None if lengths else [0])


def beside(printed: pd.DataFrame, simulated: pd.DataFrame, on: list[str], value: str) -> pd.DataFrame:
    """The rows of `printed` with columns paper, simulated (NaN: no such point) and error, simulated / paper - 1.

    @throws PublishedError where several simulated rows have one key: an average would hide which is meant.
    """
    ours = simulated[[*on, value]]
    if ours.duplicated(on).any():
        raise PublishedError(f"several simulated points for one of {', '.join(on)}")
    rows = printed.rename(columns={value: "paper"}).merge(
        ours.rename(columns={value: "simulated"}), on=on, how="left", validate="many_to_one"
    )
    rows["error"] = rows["simulated"] / rows["paper"] - 1.0
    return rows


def ended(point: pd.Series) -> str:
    """ "ok"; "OOM", what would run with more memory; or "N/A"."""
    if point["status"] == "ok":
        return "ok"
    return "OOM" if point["status"] == "oom" else "N/A"


def same_ranking(rows: pd.DataFrame) -> bool:
    """No two of `rows` stand the other way round in `simulated` than in `paper`; what the paper prints as equal may."""
    pairs = itertools.combinations(rows[["paper", "simulated"]].itertuples(index=False), 2)
    return all((a.paper - b.paper) * (a.simulated - b.simulated) > 0 for a, b in pairs if a.paper != b.paper)


def fits(row: pd.Series, chosen: dict) -> bool:
    """Whether the row has these values of columns."""
    return all(row[name] == value for name, value in chosen.items())


def roles(rows: pd.DataFrame, fitted_to: tuple[dict, ...]) -> list[str]:
    """By row "fitted", where a constant was fitted to its printed number, or "predicted"."""
    of_row = (any(fits(row, chosen) for chosen in fitted_to) for _, row in rows.iterrows())
    return ["fitted" if fitted else "predicted" for fitted in of_row]


def mean_absolute_error(rows: pd.DataFrame) -> float:
    return float(rows["error"].abs().mean())


def errors_in_words(rows: pd.DataFrame) -> str:
    """The median too: one row that is off by a factor of eight makes a mean say nothing of the others."""
    sizes = 100 * rows["error"].abs()
    return f"absolute error: mean {sizes.mean():.0f} %, median {sizes.median():.0f} %"


def markdown(rows: pd.DataFrame, digits: int = 2) -> str:
    """Rows of `beside` as a table; columns as they come, `where` left out."""
    columns = [name for name in rows if name != "where"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for _, row in rows.iterrows():
        lines.append("| " + " | ".join(_cell(row[name], name, digits) for name in columns) + " |")
    return "\n".join(lines)


def _cell(value: object, name: str, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    if pd.isna(value):
        return "-"
    return f"{100 * value:+.0f} %" if name == "error" else f"{value:.{digits}f}"


@dataclass
class Comparison:
    """Paper beside simulated: rows of `beside`, and what follows from them in words."""

    title: str
    rows: pd.DataFrame
    statements: list[str] = field(default_factory=list)
    digits: int = 2

    def markdown(self) -> str:
        return markdown(self.rows, self.digits)

    def text(self) -> str:
        return "\n".join([f"{self.title}:", "", self.markdown(), "", *self.statements])


def comparisons(
    of_experiments: dict[str, tuple[Callable[..., Comparison], ...]], points: pd.DataFrame, *tables: object
) -> list[Comparison]:
    """Everything printed that these points have a counterpart of, by the names of experiments.

    Each comparison is given `points`, and `tables` where points do not tell all that it needs.
    """
    present = set(points["experiment_name"])
    compared = [compare for name, all_of in of_experiments.items() if name in present for compare in all_of]
    return [compare(points, *tables) for compare in compared]

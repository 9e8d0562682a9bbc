"""Every number that the papers print, once, beside ours, with a verdict: the rows of a table.

A paper's module says in CLAIMS how the numbers of each list of its data file are computed from results, what was
fitted, and within which tolerance they count as reproduced; nothing of ours stands in a file. Verdicts:

  reproduced       within the tolerance of the printed number
  direction only   not so, but it stands as printed to the numbers beside it, or to one
  not reproduced   neither
  not comparable   one is not the other, however close: another quantity, an input, or a number that was fitted to
  not run          there is no result of ours yet
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from strata_analysis.published import beside, fits, published
from strata_analysis.published.sweeps import NotRun, Sweeps

VERDICTS = ("reproduced", "direction only", "not reproduced", "not comparable", "not run")
COLUMNS = (
    "paper",
    "table",
    "row",
    "quantity",
    "where",
    "printed",
    "ours",
    "error",
    "how",
    "experiments",
    "commit",
    "fitted",
    "tolerance",
)
SETTINGS = "settings"  # a list of every data file: numbers that experiments take from the paper

# Rows with columns paper and ours -> by row whether ours stands as the paper has it; None: there is nothing to tell by.
Direction = Callable[[pd.DataFrame], list[bool | None]]


@dataclass(frozen=True)
class Claim:
    """How the numbers of column `value` in the list `what` of a paper's data file are judged.

    ours: from sweeps, rows with the data file's other columns as keys and `value`; None: nothing computes it, and
          not_comparable says why. It may leave rows out, may raise NotRun, and may have a column `also`: text of
          further numbers of ours, which stands behind the reason.
    experiments: that ours is of.
    how:  run | simulated | counted | planner | input.
    without: columns of the data file that are neither keys nor this value.
    tolerance: relative; absolute where is_share, as for shares and differences.
    fitted: what of ours was fitted, and to which numbers. fitted_to: values of columns that pick out these numbers.
    notes: (values of columns that pick out rows, a sentence why they are what they are); the first that fits counts.
    """

    what: str
    value: str
    how: str
    ours: Callable[[Sweeps], pd.DataFrame] | None = None
    experiments: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tolerance: float = 0.10
    is_share: bool = False
    direction: Direction | None = None
    fitted: str = ""
    fitted_to: tuple[dict, ...] = ()
    not_comparable: str = ""
    notes: tuple[tuple[dict, str], ...] = ()


def same_side(of: float) -> Direction:
    """Ours is on the same side of `of` as the printed number, as a gain is of 1 and a saving of 0."""

    def stands(rows: pd.DataFrame) -> list[bool | None]:
        return [None if row.paper == of else (row.paper - of) * (row.ours - of) > 0 for row in rows.itertuples()]

    return stands


def ranks_as_printed(*group: str) -> Direction:
    """Of the rows with the same values in columns `group`, ours is above and below those that the printed number is
    above and below. What the paper prints as equal may stand either way.
    """

    def stands(rows: pd.DataFrame) -> list[bool | None]:
        found: list[bool | None] = []
        for place, row in rows.iterrows():
            others = rows.drop(index=place)
            for name in group:
                others = others[others[name] == row[name]]
            others = others[(others["paper"] != row["paper"]) & others["ours"].notna()]
            same = (row["paper"] - others["paper"]) * (row["ours"] - others["ours"]) > 0
            found.append(bool(same.all()) if len(others) else None)
        return found

    return stands


def rows_of(paper: str, claim: Claim, sweeps: Sweeps) -> pd.DataFrame:
    """One row a printed number: COLUMNS, verdict and why."""
    printed = published(paper, claim.what).drop(columns=list(claim.without))
    keys = [name for name in printed if name not in ("where", claim.value)]
    absent = [name for name in claim.experiments if name not in sweeps.names]
    missing = f"There are no results of {', '.join(absent)} here." if absent else "No such point ended well."
    commits = ", ".join(sweeps.commits(*(name for name in claim.experiments if name in sweeps.names)))
    rows = printed.rename(columns={claim.value: "paper"}).assign(ours=math.nan)
    rows["also"] = ""
    if claim.ours is not None:
        with contextlib.suppress(NotRun):
            ours = claim.ours(sweeps)
            rows = beside(printed, ours, keys, claim.value).rename(columns={"simulated": "ours"})
            rows["also"] = rows.merge(ours, on=keys, how="left")["also"].fillna("") if "also" in ours else ""
    stands = claim.direction(rows) if claim.direction else [None] * len(rows)
    table = []
    for (_, row), as_printed in zip(rows.iterrows(), stands, strict=True):
        verdict, why = judged(claim, row, as_printed, missing)
        cells = (
            paper,
            claim.what,
            ", ".join(f"{name} {row[name]}" for name in keys),
            claim.value,
            row["where"],
            number(row["paper"]),
            number(row["ours"]) if pd.notna(row["ours"]) else "input" if claim.how == "input" else "not run",
            difference(claim, row),
            claim.how,
            ", ".join(claim.experiments),
            commits,
            claim.fitted or "nothing",
            f"{claim.tolerance:g}" if claim.is_share else f"{100 * claim.tolerance:g} %",
        )
        table.append(
            dict(zip(COLUMNS, cells, strict=True)) | {"verdict": verdict, "why": f"{why} {row['also']}".strip()}
        )
    return pd.DataFrame(table)


def judged(claim: Claim, row: pd.Series, as_printed: bool | None, missing: str) -> tuple[str, str]:
    """The verdict on a row with columns paper and ours, and why in a sentence or two."""
    note = next((text for chosen, text in claim.notes if fits(row, chosen)), "")
    if claim.not_comparable:
        return "not comparable", claim.not_comparable
    if any(fits(row, chosen) for chosen in claim.fitted_to):
        return "not comparable", "Something was fitted to this very number."
    if pd.isna(row["ours"]):
        return "not run", f"{missing} {note}".strip()
    off = row["ours"] - row["paper"] if claim.is_share else row["ours"] / row["paper"] - 1.0
    if abs(off) <= claim.tolerance:
        return "reproduced", "Within the tolerance."
    if as_printed:
        return "direction only", f"It stands as printed to what it is compared with. {note}".strip()
    return "not reproduced", note or "Why is not known."


def difference(claim: Claim, row: pd.Series) -> str:
    if pd.isna(row["ours"]):
        return ""
    if claim.is_share:
        return f"{row['ours'] - row['paper']:+.3g}"
    return f"{100 * (row['ours'] / row['paper'] - 1.0):+.0f} %"


def number(value: float | str) -> str:
    """Four digits; a formula as it is printed."""
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.4e}" if value % 1 else f"{value:.0f}"


SETTING = Claim(
    SETTINGS,
    "value",
    "input",
    not_comparable="What the paper ran, which the experiments take as it is printed or say otherwise; no result.",
)


def table(papers: dict[str, tuple[Claim, ...]], sweeps: Sweeps) -> pd.DataFrame:
    """The rows of all claims of these papers, in their order."""
    rows = [rows_of(paper, claim, sweeps) for paper, claims in papers.items() for claim in claims]
    return pd.concat(rows, ignore_index=True)


def counts(rows: pd.DataFrame) -> pd.DataFrame:
    """How many numbers of each paper have each verdict."""
    by_paper = pd.crosstab(rows["paper"], rows["verdict"])
    return by_paper.reindex(columns=list(VERDICTS), fill_value=0).reindex(list(dict.fromkeys(rows["paper"])))

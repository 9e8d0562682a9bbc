r"""What each dimension of `auto` is worth where the others are there, from the CSV that every_experiment.py writes.

    PYTHONPATH=analysis .venv/bin/python experiments/auto/ablation.py experiments/auto/every_experiment.csv \
        --figure ablation.png

Prints two tables in Markdown: by experiment, how far auto is ahead of the best mode that plans alone; by dimension, how
much longer a step takes without it, over the points of which all of that is known. The figure shows every one of these
points. Everything is predicted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from every_experiment import DIMENSIONS
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from strata_analysis.figures import style

EQUAL = 1e-3  # auto stops where a round of decisions is worth less of a step
MATTERS = 1.01
TICKS = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200)
PAPERS = {"amsp": "AMSP", "autoddl": "AutoDDL", "cdp": "CDP", "oases": "Oases", "osdp": "OSDP"}
OTHERS = "no paper"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="that every_experiment.py wrote")
    parser.add_argument("--figure", type=Path, help="to draw, by its suffix")
    words = parser.parse_args()
    answers = by_point(pd.read_csv(words.csv, dtype={"words": str, "best": str}))
    print(markdown(against_others(answers)))
    worths = worth_by_dimension(answers)
    print(markdown(summarized(worths)))
    if words.figure:
        with style.applied():
            drawn(worths).savefig(words.figure)
    return 0


def by_point(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a point: best, best_seconds and gap of `full`, and the seconds of each of asks.

    Infinite where nothing fits; what was cut short, or was not asked, is missing.
    """
    was_answered = rows["seconds"].notna() | ~rows["words"].fillna("").str.startswith("no plan within")
    rows = rows[was_answered].assign(seconds=rows["seconds"].fillna(np.inf))
    seconds = rows.pivot(index=["file", "point"], columns="asks", values="seconds")
    for asks in ("full", "seedless", *(f"without {name}" for name in DIMENSIONS)):
        if asks not in seconds:
            seconds[asks] = np.nan
    of_full = rows[rows["asks"] == "full"].set_index(["file", "point"])
    return seconds.join(of_full[["model", "ranks", "best", "best_seconds", "gap"]], how="inner")


def against_others(answers: pd.DataFrame) -> pd.DataFrame:
    """A row an experiment: its points, those nothing fits, and ratios of the best other mode's step to auto's."""
    rows = []
    for file, points in answers.groupby(level="file"):
        fits = points[np.isfinite(points["full"])]
        ratios = (fits["best_seconds"] / fits["full"]).dropna()
        seedless = fits.dropna(subset=["seedless", "best_seconds"])
        alone = seedless["best_seconds"] / seedless["seedless"]
        rows.append(
            {
                "experiment": str(file).removesuffix(".toml"),
                "points": len(points),
                "nothing fits": len(points) - len(fits),
                "only auto fits": int((fits["best_seconds"].isna()).sum()),
                "least": ratios.min(),
                "median": ratios.median(),
                "most": ratios.max(),
                "asked without candidates": len(seedless),
                "behind the best mode then": int((alone < 1.0 - EQUAL).sum()),
                "least then": alone.min(),
                "candidates helped": int((seedless["seedless"] > seedless["full"] * (1.0 + EQUAL)).sum()),
                "median gap": fits["gap"].median(),
            }
        )
    return pd.DataFrame(rows)


def worth_by_dimension(answers: pd.DataFrame) -> pd.DataFrame:
    """A row a point of which all is known, a column a dimension: the step without it over the step with all."""
    without = [f"without {name}" for name in DIMENSIONS]
    known = answers[np.isfinite(answers["full"])].dropna(subset=without)
    return known[without].div(known["full"], axis=0).rename(columns=dict(zip(without, DIMENSIONS, strict=True)))


def summarized(worths: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for name in DIMENSIONS:
        finite = worths[name][np.isfinite(worths[name])]
        rows.append(
            {
                "without": name,
                "points": len(worths),
                "nothing fits": len(worths) - len(finite),
                "over 1 % longer": int((finite > MATTERS).sum()),
                "geometric mean": np.exp(np.log(finite).mean()),
                "90 % of points up to": finite.quantile(0.9),
                "most": finite.max(),
                "where": " ".join(map(str, finite.idxmax())) if finite.max() > MATTERS else "",
            }
        )
    return pd.DataFrame(rows)


def drawn(worths: pd.DataFrame) -> Figure:
    """A line a dimension, a mark a point, by paper in its own mode's colour; on the right edge where nothing fits."""
    figure = Figure(figsize=(style.PAGE_INCHES, style.HEIGHT_INCHES * 1.2))
    axes = figure.subplots()
    finite = worths.to_numpy()[np.isfinite(worths.to_numpy())]
    edge = max(finite.max(initial=1.0), MATTERS) * 2.0
    papers = worths.index.get_level_values("file").str.split("/").str[0].map(lambda name: PAPERS.get(name, OTHERS))
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(worths))  # so that equal ones can be told apart
    colours = {paper: style.STRATEGY_COLOURS.get(folder, style.OTHER_COLOUR) for folder, paper in PAPERS.items()}
    colours["CDP"] = style.STRATEGY_COLOURS["cdp-v2"]
    for paper, marker in zip((*PAPERS.values(), OTHERS), style.MARKERS, strict=False):
        of_paper = np.asarray(papers == paper)
        if not of_paper.any():
            continue
        ratios = worths[of_paper].to_numpy()
        lines = np.arange(len(DIMENSIONS))[None, :] + shift[of_paper][:, None]
        fits = np.isfinite(ratios)
        colour = colours.get(paper, style.OTHER_COLOUR)
        axes.plot(ratios[fits], lines[fits], marker, color=colour, alpha=0.6, label=paper, markersize=3)
        axes.plot(np.full((~fits).sum(), edge), lines[~fits], ">", color=colour, alpha=0.6, markersize=3)
    axes.set_xscale("log")
    axes.set_xlim(0.98, edge * 1.05)
    ticks = [tick for tick in TICKS if tick <= edge]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(DIMENSIONS)), [name.replace("_", " ") for name in DIMENSIONS])
    axes.invert_yaxis()
    axes.set_xlabel("simulated step without it over the step with all dimensions (right edge: nothing fits)")
    axes.legend(loc="lower right", ncols=2)
    return figure


def markdown(table: pd.DataFrame) -> str:
    def word(value: object) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.3f}"
        return str(value)

    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(word, row)) + " |" for row in table.itertuples(index=False)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

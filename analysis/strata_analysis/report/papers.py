"""What the papers print beside ours, as files below a folder of results: claims.csv, index.html, and a page a paper.

A page needs no other file and fetches nothing. It depends on the results alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from strata_analysis.atomic import replace_file
from strata_analysis.figures import figures_of_paper
from strata_analysis.published import claims
from strata_analysis.published.sweeps import Sweeps
from strata_analysis.report import PAGE, render
from strata_analysis.report.inline_svg import figure_in_page
from strata_analysis.table import PAPERS_BY_NAME

CSV = "claims.csv"
INDEX = "index.html"
# What a page shows without being moved sideways; the other columns follow.
FIRST = ("table", "row", "quantity", "printed", "ours", "error", "verdict", "why")
TITLES = {
    "amsp": "AMSP: Reducing Communication Overhead of ZeRO for Efficient LLM Training",
    "osdp": "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning",
    "oases": "Oases: Automated Tensor Model Parallelism with Overlapped Communication",
    "cdp": "CDP: Cyclic Data Parallelism for Efficient Parallelism of Deep Neural Networks",
    "autoddl": "AutoDDL: Automatic Distributed Deep Learning with Asymptotically Optimal Communication",
}


def write(results_folder: str | os.PathLike, papers: list[str]) -> tuple[list[Path], pd.DataFrame]:
    """Write CSV, `<paper>/report.html` and INDEX; return the files and how many numbers have which verdict."""
    folder = Path(results_folder)
    sweeps = Sweeps(folder)
    rows = claims.table({name: PAPERS_BY_NAME[name].CLAIMS for name in papers}, sweeps)
    counted = claims.counts(rows)
    texts = {Path(CSV): rows.to_csv(index=False)}
    sections = {name: section_of(name, rows[rows["paper"] == name], sweeps) for name in papers}
    for name, section in sections.items():
        figures = figures_in(name, sweeps)
        content = {"counts": counts_of(counted.loc[[name]]), "paper": section, "figures": figures, "up": "../"}
        texts[Path(name) / PAGE] = render(content, "paper.html.j2")
    index = {"counts": counts_of(counted), "papers": list(sections.values()), "csv": CSV, "up": ""}
    texts[Path(INDEX)] = render(index, "index.html.j2")
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(folder / name, lambda path, text=text: path.write_text(text, encoding="utf-8"))
    return [folder / name for name in texts], counted


def section_of(paper: str, rows: pd.DataFrame, sweeps: Sweeps) -> dict:
    """Title, claims and the pages of its experiments, as paths below the folder of results."""
    return {
        "name": paper,
        "title": TITLES[paper],
        "page": f"{paper}/{PAGE}",
        "rows": rows[[*FIRST, *(name for name in rows if name not in (*FIRST, "paper"))]].to_dict("records"),
        "experiments": [
            (name, f"{name}/{PAGE}" if sweeps.has(name, PAGE) else "") for name in experiments_of(paper, sweeps)
        ],
    }


def experiments_of(paper: str, sweeps: Sweeps) -> list[str]:
    return [name for name in sweeps.names if name.replace("-", "_").startswith(f"{paper}_")]


def figures_in(paper: str, sweeps: Sweeps) -> list[dict]:
    found = []
    for experiment in experiments_of(paper, sweeps):
        for _, figure in figures_of_paper(paper, sweeps.results(experiment)):
            if not isinstance(figure, str):
                found.append(figure_in_page(figure, str(len(found))))
    return found


def counts_of(counted: pd.DataFrame) -> list[dict[str, str]]:
    return [
        {"paper": name} | {verdict: str(count) for verdict, count in row.items()} | {"numbers": str(row.sum())}
        for name, row in counted.iterrows()
    ]

"""The page of a sweep: one HTML file that needs no other and fetches nothing.

Depends on the results alone: the same attempts give the same bytes. Written beside the attempts, with the recorded
timelines as Chrome traces in traces/, to which the page links.
"""

from __future__ import annotations

import os
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from strata_analysis.atomic import replace_file
from strata_analysis.collect import experiment_folders
from strata_analysis.load import load
from strata_analysis.report.content import content_of
from strata_analysis.traces import FOLDER, write_traces

PAGE = "report.html"


def report(results_folder: str | os.PathLike) -> list[Path]:
    """Write report.html into the folder of each experiment below `results_folder`, and return these files."""
    written = []
    for folder in experiment_folders(Path(results_folder)):
        results = load(folder)
        write_traces(results, folder / FOLDER)
        text = render(content_of(results, folder))
        file = folder / PAGE
        replace_file(file, lambda path, text=text: path.write_text(text, encoding="utf-8"))
        written.append(file)
    return written


def render(content: dict, template: str = "page.html.j2") -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(content)

"""A matplotlib figure as an SVG element that can stand in a page beside others."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from strata_analysis.figures import style


def figure_in_page(figure: Figure, name: str) -> dict:
    """What the page shows of it; `name` is unique in the page."""
    caption = title_of(figure)
    is_wide = figure.get_figwidth() > 1.3 * style.COLUMN_INCHES
    return {"svg": inline_svg(figure, f"figure-{name}"), "caption": caption, "is_wide": is_wide}


def inline_svg(figure: Figure, name: str) -> Markup:
    """The <svg> element, with a text for those who cannot see it. `name` is unique in the page and begins its ids.

    The title is left to the page's caption.
    """
    label = f'role="img" aria-label="{escape(alternative_text(figure))}"'
    if figure.get_suptitle():
        figure.suptitle("")
    else:
        figure.axes[0].set_title("")
    buffer = io.StringIO()
    with style.laid_out(figure):
        # What was laid out fills the figure and stands out of it by a hair; "tight" would look for how far.
        box = figure.bbox_inches.padded(matplotlib.rcParams["savefig.pad_inches"])
        figure.savefig(buffer, format="svg", metadata=style.metadata("svg"), bbox_inches=box)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Groups are named for tests only; what is referred to keeps its id, made unique in the page.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:)?href="#([^"]*)"', rf'href="#{name}-\2"', svg)
    svg = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", svg)
    return Markup(svg.replace("<svg ", f"<svg {label} ", 1))


def title_of(figure: Figure) -> str:
    return " ".join((figure.get_suptitle() or figure.axes[0].get_title()).split())


def alternative_text(figure: Figure) -> str:
    """Title, axes, series. The numbers stand in the page's tables."""
    words = [f"{title_of(figure)}."]
    y_label, x_label = (_first(getattr(axes, name)() for axes in figure.axes) for name in ("get_ylabel", "get_xlabel"))
    if y_label or x_label:
        words.append(f"{' over '.join(label for label in (y_label, x_label) if label)}.")
    labels = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    if labels:
        words.append(f"Shown: {'; '.join(dict.fromkeys(labels))}.")
    return " ".join(words)


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")

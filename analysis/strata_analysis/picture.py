"""One figure in one file that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strata_analysis.atomic import replace_file
from strata_analysis.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg", "pdf")


class PictureError(UserError):
    """The file's ending is none that is drawn."""


def kind_of(file: Path) -> str:
    kind = file.suffix.removeprefix(".")
    if kind not in KINDS:
        raise PictureError(f"{file}: accepted: {', '.join(f'.{known}' for known in KINDS)}")
    return kind


def write(figure: Figure, file: Path) -> None:
    """Write `figure` as the ending of `file` says, and close it."""
    from matplotlib import pyplot

    from strata_analysis.figures import style

    kind = kind_of(file)
    with style.applied(), style.laid_out(figure):
        replace_file(file, lambda path: figure.savefig(path, format=kind, metadata=style.metadata(kind)))
    pyplot.close(figure)

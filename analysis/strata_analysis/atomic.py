"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(file: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside `file`, then rename it into its place: a reader never sees half of one."""
    next_file = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(next_file)
        os.replace(next_file, file)
    finally:
        next_file.unlink(missing_ok=True)

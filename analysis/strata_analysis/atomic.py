"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(file: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside `file`, then rename it into its place when it is on the disk.

    A reader never sees half of one. Raises OSError where the disk does not take it all, with `file` as it was.
    """
    next_file = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(next_file)
        _sync(next_file)
        os.replace(next_file, file)
    except OSError as error:
        # HDF5's own words fill several lines and name a file that is gone.
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise OSError(error.errno, reason, str(file)) from error
    finally:
        next_file.unlink(missing_ok=True)


def _sync(file: Path) -> None:
    """Network file systems say only now that there was no place, whoever wrote."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


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


class FileWithOneError:
    """A new file that HDF5 may write. What the disk refuses is raised once, behind HDF5's own closing.

    On a disk that is full HDF5 cannot even close what it has open, and says so for each object. So it is not told: from
    the first error on nothing is written any more, and the end of the `with` raises that error.
    """

    def __init__(self, path: Path):
        self._file = open(path, "w+b", buffering=1 << 20)  # noqa: SIM115 - closed by __exit__
        self._error: OSError | None = None

    def __enter__(self) -> FileWithOneError:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unless_broken(None, self._file.close)
        if self._error:
            self._file.raw.close()  # what is buffered would fail again
            raise self._error from None

    def write(self, data: memoryview) -> int:
        return self._unless_broken(len(data), self._file.write, data)

    def read(self, size: int) -> bytes:
        return self._unless_broken(bytes(size), self._file.read, size)

    def readinto(self, data: memoryview) -> int:
        return self._unless_broken(len(data), self._file.readinto, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._unless_broken(offset, self._file.seek, offset, whence)

    def tell(self) -> int:
        return self._unless_broken(0, self._file.tell)

    def truncate(self, size: int) -> int:
        return self._unless_broken(size, self._file.truncate, size)

    def flush(self) -> None:
        self._unless_broken(None, self._file.flush)

    def _unless_broken(self, otherwise, call: Callable, *arguments):
        if self._error is None:
            try:
                return call(*arguments)
            except OSError as error:
                self._error = error
        return otherwise

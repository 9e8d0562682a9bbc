"""A new file that HDF5 writes through Python, on a disk that may be full.

On such a disk HDF5 cannot even close what it has open, and says so for each object, or crashes over what it reads back.
So it is not told: all that it may read again, which is small, is held in memory until it has closed. Large pieces of
columns, which it never reads, go to the disk at once; the first that does not fit is remembered and raised at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

PAGE_BYTES = 4096
LARGE_BYTES = 1 << 16  # what HDF5 does not buffer itself


class Hdf5Output:
    """What h5py.File takes in place of a name. The end of the `with` writes the rest, or raises OSError."""

    def __init__(self, path: Path):
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115 - closed by __exit__
        self._held: dict[int, bytearray] = {}  # page number -> bytes
        self._position = 0
        self._num_bytes = 0
        self._error: OSError | None = None

    def __enter__(self) -> Hdf5Output:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._file:
            if self._error:
                raise self._error
            if error is None:
                for begin, data in self._runs():
                    self._write_at(begin, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, num_bytes: int) -> int:
        self._num_bytes = num_bytes
        return num_bytes

    def flush(self) -> None:
        """Nothing: a file that is not closed is none."""

    def write(self, data: memoryview) -> int:
        begin, end = self._position, self._position + len(data)
        first, last = -(-begin // PAGE_BYTES), end // PAGE_BYTES  # of the whole pages
        if len(data) < LARGE_BYTES or not self._held.keys().isdisjoint(range(first, last)):
            self._hold(begin, data)
        else:
            whole = slice(first * PAGE_BYTES - begin, last * PAGE_BYTES - begin)
            self._hold(begin, data[: whole.start])
            self._hold(begin + whole.stop, data[whole.stop :])
            try:
                if self._error is None:
                    self._write_at(first * PAGE_BYTES, data[whole])
            except OSError as error:
                self._error = error
        self._position = end
        self._num_bytes = max(self._num_bytes, end)
        return len(data)

    def readinto(self, data: memoryview) -> int:
        done = 0
        for page, begin, count in _pieces(self._position, len(data)):
            content = self._held[page] if page in self._held else self._page_on_disk(page)
            data[done : done + count] = content[begin : begin + count]
            done += count
        self._position += done
        return done

    def read(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        self.readinto(memoryview(data))
        return bytes(data)

    def _hold(self, position: int, data: memoryview) -> None:
        done = 0
        for page, begin, count in _pieces(position, len(data)):
            if page not in self._held:
                self._held[page] = self._page_on_disk(page)
            self._held[page][begin : begin + count] = data[done : done + count]
            done += count

    def _page_on_disk(self, page: int) -> bytearray:
        """Zeros where nothing was written."""
        self._file.seek(page * PAGE_BYTES)
        return bytearray(self._file.read(PAGE_BYTES).ljust(PAGE_BYTES, b"\0"))

    def _runs(self) -> Iterator[tuple[int, memoryview]]:
        """(place in the file, bytes) of neighbouring pages that are held."""
        first, run = 0, bytearray()
        for page in sorted(self._held):
            if page * PAGE_BYTES != first + len(run):
                yield first, memoryview(run)
                first, run = page * PAGE_BYTES, bytearray()
            run += self._held[page]
        yield first, memoryview(run)[: self._num_bytes - first]

    def _write_at(self, position: int, data: memoryview) -> None:
        self._file.seek(position)
        while len(data):
            data = data[self._file.write(data) :]


def _pieces(position: int, num_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(page, first byte in it, bytes) of a part of the file."""
    end = position + num_bytes
    while position < end:
        page, begin = divmod(position, PAGE_BYTES)
        count = min(PAGE_BYTES - begin, end - position)
        yield page, begin, count
        position += count

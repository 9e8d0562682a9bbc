"""A server of metadata below a folder: what metadata_calls.cpp does in a program, told and read by a test.

server = MetadataServer(page, folder)
server.begin(wait_ms=2)                                         # of each call from now on; counts begin anew
subprocess.run(command, env=os.environ | server.environment)
server.counts, server.most_waiting
"""

import mmap
import os
import struct
from pathlib import Path

KINDS = ("open", "stat", "list", "make", "rename", "remove")
LAYOUT = struct.Struct(f"<3q{len(KINDS)}q")


class MetadataServer:
    def __init__(self, page: Path, folder: Path):
        """`page` is a file for what test and programs share."""
        build = Path(os.environ.get("STRATA_BUILD", Path(__file__).parents[2] / "build" / "cpu"))
        library = build / "tests" / "libmetadata_calls.so"
        assert library.exists(), f"{library}: build the target metadata_calls"
        page.write_bytes(bytes(LAYOUT.size))
        with open(page, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(library), "STRATA_METADATA_CALLS": f"{page}:{folder.resolve()}"}

    def begin(self, wait_ms: float = 0):
        self._page[:] = LAYOUT.pack(round(wait_ms * 1000), 0, 0, *([0] * len(KINDS)))

    @property
    def most_waiting(self) -> int:
        """Calls that waited at once; without a wait nobody looks."""
        return LAYOUT.unpack(self._page[:])[2]

    @property
    def counts(self) -> dict[str, int]:
        """Calls since begin(), by kind."""
        return dict(zip(KINDS, LAYOUT.unpack(self._page[:])[3:], strict=True))

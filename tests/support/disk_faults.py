"""A broken disk below a folder: what disk_faults.cpp does in a program, told and read by a test.

disk = BrokenDisk(page, folder)
subprocess.run(command, env=os.environ | disk.environment)    # counts calls
disk.break_at("fsync", 3, "EIO")                              # the third one fails from now on
"""

import errno
import mmap
import os
import signal
import struct
from pathlib import Path

KINDS = ("write", "close", "rename", "fsync", "flock")
LAYOUT = struct.Struct(f"<5q{len(KINDS)}q")

KILL = "SIGKILL"
# What a full disk or quota refuses it refuses again; a defect may be met once.
STAYING = ("ENOSPC", "EDQUOT", "ENOLCK")


class BrokenDisk:
    def __init__(self, page: Path, folder: Path):
        """`page` is a file for what test and programs share."""
        build = Path(os.environ.get("STRATA_BUILD", Path(__file__).parents[2] / "build" / "cpu"))
        library = build / "tests" / "libdisk_faults.so"
        assert library.exists(), f"{library}: build the target disk_faults"
        if not page.exists():
            page.write_bytes(bytes(LAYOUT.size))
        with open(page, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(library), "STRATA_DISK_FAULTS": f"{page}:{folder.resolve()}"}

    def mend(self):
        """No fault; counts begin anew."""
        self._page[:] = bytes(LAYOUT.size)

    def break_at(self, kind: str, number: int, error: str):
        """The call of this kind of that number, from 1, fails with `error`, or KILL."""
        code = 0 if error == KILL else getattr(errno, error)
        self._page[:] = LAYOUT.pack(KINDS.index(kind), number, code, int(error in STAYING), 0, *([0] * len(KINDS)))

    @property
    def hits(self) -> int:
        """Calls that have failed."""
        return LAYOUT.unpack(self._page[:])[4]

    @property
    def counts(self) -> dict[str, int]:
        """Calls since mend() or break_at(), by kind."""
        return dict(zip(KINDS, LAYOUT.unpack(self._page[:])[5:], strict=True))


def was_killed(code: int) -> bool:
    """Of Popen's or a shell's exit codes."""
    return code in (-signal.SIGKILL, 128 + signal.SIGKILL)

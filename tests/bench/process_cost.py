"""What a process takes from its start to its end: seconds by the clock and of processors, and memory."""

import dataclasses
import os
import subprocess
import time


@dataclasses.dataclass
class Cost:
    seconds: float
    user_seconds: float
    system_seconds: float
    mebibytes: float  # resident, at most, of the largest process; no less than this process has, as Linux counts
    exit_code: int

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds


def cost_of(command, *, environment=None) -> Cost:
    """Of a command, and of the processes that it waits for; its standard output is thrown away.
    @param environment variables that it has beside this process's."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(seconds, usage.ru_utime, usage.ru_stime, usage.ru_maxrss / 1024, process.returncode)


def checked_cost_of(command, **options) -> Cost:
    """@throws RuntimeError where it did not end well."""
    cost = cost_of(command, **options)
    if cost.exit_code != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: ended with {cost.exit_code}")
    return cost

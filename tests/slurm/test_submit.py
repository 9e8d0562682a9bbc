"""What users do with a sweep beside faults: have Slurm check it, watch it, compare head to head. The cluster's arrays
are short."""

import json
import os
import pty
import re
import select
import subprocess
import time

import h5py
import pytest
from conftest import SCRIPT, script, up, wait_until
from conftest import Testbed as Cluster

LONGEST_ARRAY = 7
BLOCKS = 3

COMMON = """
[model]
name = "mlp"
widths = [192, 64, 64, 64, 64, 10]

[data]
format = "synthetic"

[train]
global_batch = 48
steps = 20

[measure]
peak = "quick"
warmup_steps = 2
timeline_steps = 0
"""

# Ten points, of which the last is too large for its memory.
MANY = f"""
name = "many"
{COMMON}
[strategy]
name = "ddp"

[job]
time_limit_minutes = 2

[sweep]
zip = [ {{ "train.seed" = {list(range(10))}, "resources.memory_gib" = {[1.0] * 9 + [0.0001]} }} ]
"""

HEAD_TO_HEAD = f"""
name = "head-to-head"
{COMMON}
[resources]
ranks_per_node = 2

[job]
time_limit_minutes = 4
blocks = {BLOCKS}
block_seed = 3

[sweep]
product = {{ "strategy.name" = ["ddp", "gpipe"] }}
"""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("testbed") / "slurm"
    up("--nodes", 4, "--rate", "400mbit", "--folder", folder, "--set", f"MaxArraySize={LONGEST_ARRAY}")
    try:
        yield Cluster(folder, 4, 400, 0.0)
    finally:
        ended = script("down")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def run(testbed, strata, tmp_path):
    """strata's words, in an empty folder: standard output of what must end with a code."""

    def words(*words, code=0):
        ended = testbed.run(strata, *words, cwd=tmp_path, timeout=180)
        assert ended.returncode == code, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout if code in (0, 1) else ended.stderr

    return words


@pytest.fixture
def on_a_terminal(testbed, strata, tmp_path):
    """strata's words on a terminal -> its exit code, and every byte that it wrote."""

    def words(*words, environment=None, seconds=100):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [SCRIPT, "exec", strata, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, cwd=tmp_path,
            env=os.environ | testbed.environment | (environment or {}),
        )  # fmt: skip
        os.close(follower)
        heard = b""
        deadline = time.monotonic() + seconds
        try:
            while True:
                assert time.monotonic() < deadline, heard
                if not select.select([leader], [], [], 1)[0]:
                    continue
                try:
                    heard += os.read(leader, 65536)
                except OSError:  # the last writer has gone
                    return process.wait(10), heard.decode().replace("\r\n", "\n")
        finally:
            process.kill()
            process.wait()
            os.close(leader)

    return words


def queue(testbed):
    return testbed.check("squeue", "--noheader", "--format=%i").strip()


def test_slurm_checks_the_scripts(testbed, run, tmp_path):
    (tmp_path / "many.toml").write_text(MANY)
    output = run("submit", "many.toml", "--all", "--site", "testbed", "--test-only")
    assert len(re.findall(r"sbatch: Job \d+ to start at .* on nodes", output)) == 2, output
    assert not queue(testbed)
    assert len(list(tmp_path.glob("results/many/submissions/1/array-*.sh"))) == 2
    refused = run(
        "submit", "many.toml", "--all", "--site", "testbed", "--test-only", "--set", "job.partition=nowhere", code=2
    )
    assert "nowhere" in refused or "invalid partition" in refused.lower()
    assert "10 missing" in run("status", "results/many", code=0)


def test_a_long_array_is_cut_and_watched_until_it_is_over(testbed, run, on_a_terminal, tmp_path):
    (tmp_path / "many.toml").write_text(MANY)
    output = run("submit", "many.toml", "--all", "--site", "testbed")
    jobs = re.findall(r"^job (\d+):", output, re.MULTILINE)
    assert len(jobs) == 2
    arrays = [re.search(r"^#SBATCH --array=(.*)$", path.read_text(), re.MULTILINE)[1]
              for path in sorted(tmp_path.glob("results/many/submissions/1/array-*.sh"))]  # fmt: skip
    assert arrays == [f"0-{LONGEST_ARRAY - 1}", "0-2"]

    code, heard = on_a_terminal("status", "results/many", "--watch")
    assert code == 1
    first, *_, last = heard.split("\x1b[H\x1b[2J")[1:]
    assert re.search(r"10 points: .*(pending|running)", first), heard
    assert re.fullmatch(
        "many: 10 points: 9 ok, 1 oom\n\x1b\\[31moom\x1b\\[0m +1  .*needs.*, point [0-9a-f]{12}\n", last
    ), last
    assert not queue(testbed)


def test_colours_are_for_terminals_that_want_them(testbed, run, on_a_terminal, tmp_path):
    (tmp_path / "many.toml").write_text(MANY)
    run("submit", "many.toml", "--all", "--site", "testbed", "--emit")
    code, coloured = on_a_terminal("status", "results/many")
    assert "\x1b[31mmissing" in coloured
    plain_code, plain = on_a_terminal("status", "results/many", environment={"NO_COLOR": "1"})
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain == run("status", "results/many")
    assert code == plain_code == 0
    # Watching what nobody runs ends at once.
    code, watched = on_a_terminal("status", "results/many", "--watch", environment={"NO_COLOR": "1"}, seconds=20)
    assert (code, watched) == (0, "\x1b[H\x1b[2J" + plain)


@pytest.mark.parametrize("one_launch", [False, True], ids=["a launch each", "one launch a block"])
def test_head_to_head(testbed, run, strata, tmp_path, one_launch):
    (tmp_path / "duel.toml").write_text(HEAD_TO_HEAD)
    output = run("submit", "duel.toml", "--site", "testbed", "--set", f"job.one_launch={str(one_launch).lower()}")
    assert f"1 arrays, {2 * BLOCKS} launches" in output
    (job,) = re.findall(r"^job (\d+):", output, re.MULTILINE)
    wait_until(lambda: not queue(testbed), 240, "the queue is empty")
    assert run("status", "results/head-to-head") == f"head-to-head: 2 points, {2 * BLOCKS} launches: {2 * BLOCKS} ok\n"

    (record,) = (tmp_path / "results/head-to-head").glob("submissions/1/jobs/*.log")
    assert len(re.findall(r" launch ", record.read_text())) == (BLOCKS if one_launch else 2 * BLOCKS)

    # The order in each block is what was planned, and it is recorded.
    manifest = json.loads(next((tmp_path / "results/head-to-head").glob("submissions/1/array-*.json")).read_text())
    (task,) = manifest["tasks"]
    planned = {}
    for point, block, order in task["launches"]:
        assert len(planned.setdefault(block, [])) == order
        planned[block].append(point)
    run("collect", "results/head-to-head")
    with h5py.File(tmp_path / "results/head-to-head/collected.h5") as file:
        points = file["points"]
        rows = list(zip(*(points[name][()] for name in ("point", "block", "block_order", "block_seed")), strict=True))
        ran_in = {text.decode() for text in points["block_job"][()]}
    assert len(rows) == 2 * BLOCKS
    assert {seed for *_, seed in rows} == {task["block_seed"]}
    recorded = {block: [None, None] for block in range(BLOCKS)}
    for point, block, order, _ in rows:
        recorded[int(block)][int(order)] = point.decode()
    assert recorded == planned
    assert len({tuple(order) for order in recorded.values()}) == 2, "both orders occur"
    assert len(ran_in) == 1
    assert job in ran_in.pop()

    # Which of them is faster is not ours to say; that they are compared block by block is.
    ended = testbed.run(
        strata, "compare", "results/head-to-head", "--baseline", "ddp", "--candidate", "gpipe", "--json", cwd=tmp_path
    )
    assert ended.returncode in (0, 1), ended.stderr
    (pair,) = json.loads(ended.stdout)["pairs"]
    assert (pair["paired_by"], pair["num_pairs"], pair["num_ranks"]) == ("block", BLOCKS, 2)
    assert pair["verdict"] == ("worse" if ended.returncode == 1 else pair["verdict"]) != "incomparable"

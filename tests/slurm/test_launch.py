"""strata under srun: ranks of a node are those of a network namespace, and a wrong launch is refused in words."""

import json
import signal
import xml.etree.ElementTree as ElementTree

import h5py
import pytest
from conftest import ROOT, SITE

FIRST = ROOT / "experiments" / "testbed" / "first.toml"
WITHOUT_PMI = SITE["launcher"].replace("pmi2", "none")


def properties(report):
    """What the tests of a GoogleTest report recorded."""
    return {p.get("name"): p.get("value") for p in ElementTree.parse(report).getroot().iter("property")}


@pytest.mark.parametrize(
    "nodes, ranks, table, transport",
    [(1, 2, "n1", "shm"), (2, 2, "n1 n2", "mpi"), (2, 4, "n1 n2", "two_level(shm,mpi)")],
)
def test_a_node_is_a_namespace(testbed, build, tmp_path, nodes, ranks, table, transport):
    def gtest(tests):
        report = tmp_path / "report.xml"
        words = [build / "tests" / "mpi.comm", f"--gtest_filter={tests}", f"--gtest_output=xml:{report}"]
        ended = testbed.srun(nodes, ranks, *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return properties(report)

    assert gtest("World.RanksOfOneNamespaceAreANode:World.ControlPlane")["node_table"] == table
    assert gtest("*NodesAsTheyAre*")["transport"] == transport


def test_two_levels_are_recorded(testbed, strata, tmp_path):
    ended = testbed.srun(2, 4, strata, "run", FIRST, "--results", tmp_path, "--set", "measure.peak=quick")
    assert ended.returncode == 0, ended.stderr
    (file,) = tmp_path.glob("testbed-first/*/1.h5")
    with h5py.File(file) as results:
        facts = dict(results.attrs)
    assert facts["transport"] == "two_level(shm,mpi)"
    assert list(facts["host_names"]) == ["n1", "n1", "n2", "n2"]
    assert (facts["num_nodes"], facts["ranks_per_node"], facts["num_ranks"]) == (2, 2, 4)
    assert facts["launcher"] == "srun"


def recorded(results):
    """How the attempts ended."""
    return [json.loads(file.read_text())["status"] for file in results.rglob("*.status.json")]


def sentence(ended):
    """What strata said, and that it is one sentence.

    One task that refuses makes srun end those that still run, and their signal is what it returns then.
    """
    others_were_ended = ended.returncode == 128 + signal.SIGTERM and "Exited with exit code 2" in ended.stderr
    assert ended.returncode == 2 or others_were_ended, ended.stdout + ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("strata:")]
    return said


def test_mpi_none_is_refused(testbed, strata, tmp_path):
    for verb in (["run", FIRST, "--results", tmp_path], ["profile", FIRST, "--output", tmp_path / "profile.toml"]):
        said = sentence(testbed.srun(2, 4, strata, *verb, launcher=WITHOUT_PMI))
        assert "MPI started 1 rank but SLURM_STEP_NUM_TASKS is 4" in said
        assert "srun --mpi=pmi2" in said
    assert recorded(tmp_path) == ["launcher_mismatch"]


def test_no_launcher_in_a_job_is_refused(testbed, strata, tmp_path):
    log = tmp_path / "job.log"
    command = f"{strata} run {FIRST} --results {tmp_path}"
    ended = testbed.run("sbatch", "--wait", "--ntasks=4", "--output", log, "--wrap", command)
    assert ended.returncode == 2, ended.stderr
    assert "MPI started 1 rank but SLURM_NTASKS is 4" in log.read_text()


def test_a_wrong_task_count_is_refused(testbed, strata, tmp_path):
    said = sentence(testbed.srun(2, 3, strata, "run", FIRST, "--results", tmp_path))
    assert "no point for 3 ranks; the experiment has points for 4" in said
    said = sentence(testbed.srun(4, 4, strata, "run", FIRST, "--results", tmp_path))
    assert "the plan is for 2 nodes but the 4 ranks run on 4" in said
    said = sentence(
        testbed.srun(2, 4, "--overcommit", "--distribution=plane=3", strata, "run", FIRST, "--results", tmp_path)
    )
    assert "node n1 runs 3 ranks but the plan has 2" in said
    assert recorded(tmp_path) == ["launcher_mismatch"] * 3

"""Ranks on GPUs, where there are none: refused by name, never run on something else."""

import json
import os
import shutil
import subprocess

import pytest


def no_gpu():
    """nvidia-smi lists none."""
    if shutil.which("nvidia-smi") is None:
        return True
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0


without_gpu = pytest.mark.skipif(not no_gpu(), reason="a GPU is here: what is refused without one runs")


@without_gpu
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_is_refused_and_recorded_as_refused(strata, experiment, tmp_path, ranks):
    ended = strata(ranks, "run", experiment(ranks=ranks), "--set", "resources.device=cuda")
    assert ended.code == 3, ended.error
    (message,) = ended.messages()
    assert 'resources.device = "cuda"' in message
    assert "built without CUDA" in message or "no usable GPU" in message or "0 GPUs" in message
    (status,) = tmp_path.glob("results/e2e/*/*.status.json")
    assert json.loads(status.read_text())["status"] == "refused"


@without_gpu
def test_a_plan_for_this_machines_gpus_is_refused(strata, experiment):
    ended = strata(None, "plan", experiment(), "--set", "resources.device=cuda")
    assert ended.code == 3, ended.error
    assert 'resources.device = "cuda"' in ended.messages()[0]


def test_a_plan_for_a_described_clusters_gpus_needs_none(strata, experiment):
    ended = strata(None, "plan", experiment(), "--set", "resources.device=cuda", "--set", "cluster=h200-ib")
    assert ended.code == 0, ended.error


def test_the_transport_of_gpus_is_refused_on_processors(strata, experiment):
    ended = strata(None, "plan", experiment(), "--set", "communication.device_transport=nccl")
    assert ended.code == 2
    (message,) = ended.messages()
    assert "communication.device_transport" in message and 'resources.device is "cpu"' in message


def test_an_unknown_device(strata, experiment):
    ended = strata(None, "plan", experiment(), "--set", "resources.device=tpu")
    assert ended.code == 2
    assert "cpu | cuda" in ended.messages()[0]


@pytest.fixture
def emulated(request, monkeypatch):
    """strata() with GPUs that are emulated, one for every rank; built beside the tests of the cuda preset."""
    binary = os.environ.get("STRATA_EMULATED")
    if binary is None:
        pytest.skip("the CUDA executor is not built: its tests run this file too")
    monkeypatch.setenv("STRATA", binary)
    return request.getfixturevalue("strata")


NETWORK = [
    ('name = "gpt-nano"', 'name = "mlp-tiny"'),
    ('format = "text"', 'format = "synthetic"'),
    ("steps = 8", "steps = 4"),
]


@pytest.mark.parametrize(
    ("ranks", "transport", "recorded"),
    [(1, "auto", "none"), (2, "auto", "nccl"), (2, "nccl", "nccl"), (2, "host", "managed_memory over shm")],
)
def test_emulated_gpus_train_what_processors_train(emulated, experiment, tmp_path, ranks, transport, recorded):
    file = experiment(ranks=ranks, replace=NETWORK)
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("paths")))
    rows = {}
    for device in ("cpu", "cuda"):
        words = ["--set", f"resources.device={device}", "--results", device]
        if device == "cuda":
            words += ["--set", f"communication.device_transport={transport}"]
        ended = emulated(ranks, "run", file, *words)
        assert ended.code == 0, ended.error
        (lines,) = tmp_path.glob(f"{device}/e2e/*/1.jsonl")
        rows[device] = [json.loads(line) for line in lines.read_text().splitlines()]
    facts = rows["cuda"][0]
    assert facts["backend"] == "cuda"
    assert facts["transport"] == recorded
    assert len(facts["device_names"]) == ranks
    assert all("emulated" in name for name in facts["device_names"])
    names = {text.partition("=")[0] for text in facts["library_versions"]}
    assert ("nccl" in names) == (recorded == "nccl")
    losses = {device: [row["loss"] for row in kept if row["kind"] == "step"] for device, kept in rows.items()}
    assert len(losses["cuda"]) == 4
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-4)

"""Ranks on GPUs, where there are none: refused by name, never run on something else."""

import json
import os
import shutil
import subprocess
import tomllib

import h5py
import numpy as np
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
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_profile_is_refused(strata, experiment, tmp_path, ranks):
    file = experiment(ranks=ranks)
    ended = strata(ranks, "profile", file, "--set", "resources.device=cuda", "--output", tmp_path / "gpu.toml")
    assert ended.code == 3, ended.error
    (message,) = ended.messages()
    assert message.startswith('strata: refused: resources.device = "cuda"')
    assert not (tmp_path / "gpu.toml").exists()


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


def network(experiment, ranks):
    file = experiment(ranks=ranks, replace=NETWORK)
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("paths")))
    return file


@pytest.mark.parametrize(
    ("ranks", "transport", "recorded"),
    [(1, "auto", "none"), (2, "auto", "nccl"), (2, "nccl", "nccl"), (2, "host", "managed_memory over shm")],
)
def test_emulated_gpus_train_what_processors_train(emulated, experiment, tmp_path, ranks, transport, recorded):
    file = network(experiment, ranks)
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


ON_GPUS = ("--set", "resources.device=cuda")


@pytest.mark.parametrize("timing", [False, True])
def test_emulated_gpus_time_instructions_where_they_are_asked_to(emulated, experiment, tmp_path, timing):
    asked = (*ON_GPUS, "--set", f"cuda.timing={str(timing).lower()}")
    ended = emulated(1, "run", network(experiment, 1), *asked)
    assert ended.code == 0, ended.error
    (path,) = tmp_path.glob("results/e2e/*/*.h5")
    with h5py.File(path) as file:
        parts = [file[f"steps/{name}_seconds"][:] for name in ("compute", "communication", "other")]
        assert all(np.isnan(part).all() != timing for part in parts)
        assert (file["steps/step_seconds_max"][:] > 0).all()
        assert (file["steps/input_seconds"][:] > 0).all()
        assert (file["events/step"].size > 0) == timing
        metrics = {metric.decode() for metric in file["predictions/metric"][:]}
        assert "step_seconds_max" in metrics and ("compute_seconds" in metrics) == timing
        assert file.attrs["sustained_flops_per_second"] == 8e8
        assert np.isnan(file.attrs["nameplate_flops_per_second"])


BY_PROFILE = ("--set", "simulate.cost=measured", "--set", "simulate.profile=this.toml")
COLLECTIVES = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "send"}


def test_emulated_gpus_are_profiled(emulated, experiment, tmp_path):
    file = network(experiment, 1)
    ended = emulated(1, "profile", file, *ON_GPUS, "--output", "this.toml", timeout=300)
    assert ended.code == 0, ended.error
    profile = tomllib.loads((tmp_path / "this.toml").read_text())
    assert profile["machine"] == "emulated"
    assert {"cuda", "host", "graphs"} <= set(profile["provenance"])
    assert "nccl" not in profile["provenance"]
    (peak,) = profile["peaks"]
    assert (peak["dtype"], peak["ranks_on_node"], peak["flops_per_second"]) == ("f32", 1, 1e9)
    kinds = {kernel["kind"].split()[0] for kernel in profile["kernels"]}
    assert {"linear_forward", "linear_backward_weight"} <= kinds
    assert "collectives" not in profile
    assert "interference" not in profile
    assert set(profile["step_overhead_seconds"]) == {"1"}
    assert emulated(1, "run", file, *ON_GPUS, *BY_PROFILE).code == 0
    assert prediction_sources(tmp_path) == {"simulator, measured: profile of emulated with 1 ranks a node over none"}


def prediction_sources(folder):
    """Of the times that the only run predicted; the program's own account aside."""
    (path,) = folder.glob("results/e2e/*/*.h5")
    with h5py.File(path) as file:
        return {source.decode() for source in file["predictions/source"][:]} - {"program"}


@pytest.mark.parametrize(
    ("transport", "name"),
    [("auto", "nccl"), ("host", "managed_memory over shm")],
)
def test_emulated_gpus_are_predicted_by_their_profile(emulated, experiment, tmp_path, transport, name):
    file = network(experiment, 2)
    asked = (*ON_GPUS, "--set", f"communication.device_transport={transport}")
    ended = emulated(2, "profile", file, *asked, "--output", "this.toml", timeout=300)
    assert ended.code == 0, ended.error
    profile = tomllib.loads((tmp_path / "this.toml").read_text())
    assert ("nccl" in profile["provenance"]) == (name == "nccl")
    assert {(row["ranks_on_node"], row["transport"]) for row in profile["interference"]} == {(2, name)}
    for rows in (profile["collectives"], profile["lines"]):
        assert {(row["kind"], row["group"], row["transport"]) for row in rows} == {
            (kind, "2x1", name) for kind in COLLECTIVES
        }
    sizes = [row["bytes"] for row in profile["collectives"] if row["kind"] == "all_reduce"]
    assert sizes == [64 * 4**i for i in range(11)]
    source = f"simulator, measured: profile of emulated with 2 ranks a node over {name}"
    assert emulated(2, "run", file, *asked, *BY_PROFILE).code == 0
    assert prediction_sources(tmp_path) == {source}
    # Without ranks, auto is what the profile has.
    shutil.rmtree(tmp_path / "results")
    ended = emulated(None, "simulate", file, *asked, *BY_PROFILE)
    assert ended.code == 0, ended.error
    other, other_name = ("host", "managed_memory") if name == "nccl" else ("nccl", "nccl")
    ended = emulated(None, "simulate", file, *ON_GPUS, "--set", f"communication.device_transport={other}", *BY_PROFILE)
    assert ended.code == 2
    assert f"no time of all_reduce on 2x1 ranks over {other_name}" in ended.error


def test_emulated_gpus_have_profiles_of_their_own(emulated, experiment, tmp_path):
    file = network(experiment, 1)
    profile = tmp_path / "this.toml"
    words = {"cuda": ON_GPUS, "cpu": ()}
    for measured, other in (("cuda", "cpu"), ("cpu", "cuda")):
        profile.unlink(missing_ok=True)
        assert emulated(1, "profile", file, *words[measured], "--output", "this.toml").code == 0
        machine = tomllib.loads(profile.read_text())["machine"]
        for verb, ranks in (("run", 1), ("simulate", None)):
            ended = emulated(ranks, verb, file, *words[other], *BY_PROFILE)
            assert ended.code != 0
            assert f'measured on another machine: {machine}; with resources.device = "{other}"' in ended.error
        ended = emulated(1, "profile", file, *words[other], "--output", "this.toml")
        assert ended.code == 2
        assert "two machines" in ended.error
    ended = emulated(None, "simulate", file, *ON_GPUS, "--set", "cuda.tf32=true", *BY_PROFILE)
    assert "this one is emulated, tf32" in ended.error
    ended = emulated(None, "simulate", file, *ON_GPUS, "--set", "cuda.attention=strata", *BY_PROFILE)
    assert "this one is emulated, attention of strata" in ended.error
    both = file.read_text() + "\n[sweep]\nproduct = { 'resources.device' = ['cpu', 'cuda'] }\n"
    (tmp_path / "both.toml").write_text(both)
    ended = emulated(1, "profile", "both.toml", "--output", "both_devices.toml")
    assert ended.code == 2
    assert "a profile is of one device" in ended.error
    assert "--point" in ended.error


TRANSFORMER = [
    "train.dtype=bf16",
    "train.steps=4",
    "model.sequence_length=16",
    "model.layers=1",
    "data.format=synthetic",
]


@pytest.mark.parametrize(
    ("asked", "dropout", "recorded"),
    [("auto", 0, "cudnn"), ("cudnn", 0, "cudnn"), ("strata", 0, "strata"), ("auto", 0.1, "cudnn")],
)
def test_emulated_gpus_say_whose_attention_it_is(emulated, experiment, tmp_path, asked, dropout, recorded):
    file = experiment(ranks=1)
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("paths")))
    values = [*TRANSFORMER, f"model.dropout={dropout}", "resources.device=cuda", f"cuda.attention={asked}"]
    ended = emulated(1, "run", file, *[word for value in values for word in ("--set", value)])
    assert ended.code == 0, ended.error
    (lines,) = tmp_path.glob("*/e2e/*/1.jsonl")
    facts = json.loads(lines.read_text().splitlines()[0])
    assert f"attention={recorded}" in facts["device_choices"]
    assert "graphs=yes" in facts["device_choices"]
    assert "products=timed" in facts["device_choices"]

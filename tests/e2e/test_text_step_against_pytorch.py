"""A step of GPT and LLaMA against PyTorch, where it is installed: loss and every gradient, from the same weights and
text. What tests/bench/compare_pytorch.py times is then the same step."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

STRATA = os.environ.get("STRATA", str(ROOT / "build" / "cpu" / "strata"))
MPIEXEC = os.environ.get("MPIEXEC", "mpiexec")
TEXT = ROOT / "experiments" / "data" / "king_james_new_testament.txt"
BATCH = 2
BOUND = 1e-5  # strata in single precision, PyTorch in double: both models together are within 7e-7
# A learning rate and a momentum that change no weight: the momentum of the checkpoint is the gradient.
EXPERIMENT = f"""
name = "step"
[model]
name = "{{model}}"
[data]
format = "text"
paths = ["{TEXT}"]
shuffle = false
[resources]
ranks_per_node = 1
[train]
global_batch = {BATCH}
optimizer = "sgd"
momentum = 1e-30
learning_rate = 1e-30
steps = 1
[measure]
peak = "quick"
warmup_steps = 0
[checkpoint]
every = 1
[strategy]
name = "single"
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("model", ["gpt-nano", "llama-nano"])
def test_loss_and_every_gradient(model, tmp_path):
    import torch
    from pytorch_image_models import name_in_strata
    from pytorch_text_models import PRESETS

    file = tmp_path / "step.toml"
    file.write_text(EXPERIMENT.format(model=model))
    words = [MPIEXEC, "-n", "1", STRATA, "run", file, "--results", tmp_path, "--quiet"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (point,) = (tmp_path / "step").glob("????????????")
    rows = [json.loads(line) for line in (point / "1.jsonl").read_text().splitlines()]
    (loss,) = [row["loss"] for row in rows if row["kind"] == "step"]
    with h5py.File(point / "checkpoints" / "step_1.h5") as checkpoint:
        ours = {name: (group["value"][:], group["momentum"][:]) for name, group in checkpoint["parameters"].items()}

    network = PRESETS[model]().double()
    theirs = {name_in_strata(name): parameter for name, parameter in network.named_parameters()}
    assert theirs.keys() == ours.keys()
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(torch.from_numpy(ours[name][0]).view(parameter.shape))
    window = network.sequence_length + 1
    tokens = torch.tensor(list(TEXT.read_bytes()[: BATCH * window])).view(BATCH, window)
    logits = network(tokens[:, :-1]).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=BOUND)
    for name, parameter in theirs.items():
        gradient = parameter.grad.flatten()
        error = (torch.from_numpy(ours[name][1]).double() - gradient).abs().max() / gradient.abs().max()
        assert error <= BOUND, name

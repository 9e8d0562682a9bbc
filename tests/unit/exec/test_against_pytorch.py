"""Every operator's forward and gradients against PyTorch's autograd in float64, from the same stored inputs.

Runs where torch is importable (pip install torch into any environment that has pytest and numpy):

    STRATA_BUILD=build/cpu python -m pytest tests/unit/exec/test_against_pytorch.py
"""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
functional = torch.nn.functional

ROOT = Path(__file__).parents[3]
# One rounding to the stored type after sums in f32, in the norm: tests/unit/exec/dense_reference.hpp.
TOLERANCE = {"f32": 1e-6, "bf16": 2.5e-3}
# bf16 attention rounds probabilities and score gradients once more before they are multiplied, and reads its own
# rounded output in backward.
ATTENTION_TOLERANCE = {"f32": 2e-6, "bf16": 6e-3}


def to_nchw(x):
    return x.permute(0, 3, 1, 2)


def to_nhwc(x):
    return x.permute(0, 2, 3, 1)


def attention(t, options):
    q, k, v = (t[name].transpose(1, 2) for name in ("q", "k", "v"))
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=options["causal"]).transpose(1, 2)


def rotary(t, options):
    _, seq, _, head_dim = t["x"].shape
    half = head_dim // 2
    frequencies = options["theta"] ** (-2.0 * torch.arange(half, dtype=torch.float64) / head_dim)
    angles = torch.arange(seq, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
    first, second = t["x"][..., :half], t["x"][..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def embedding(t, _):
    tokens, positions = t["tokens"].long(), t["positions"]
    return functional.embedding(tokens, t["table"]) + positions.repeat(len(tokens) // len(positions), 1)


def class_token(t, _):
    token = t["token"].expand(t["x"].shape[0], 1, -1)
    return torch.cat([token, t["x"]], dim=1) + t["positions"]


def convolution(t, options):
    y = functional.conv2d(
        to_nchw(t["x"]), to_nchw(t["weight"]), t["bias"], stride=options["stride"], padding=options["padding"]
    )
    return to_nhwc(y)


def max_pool(t, options):
    return to_nhwc(functional.max_pool2d(to_nchw(t["x"]), options["kernel"], options["stride"], options["padding"]))


def swiglu(t, _):
    gate, up = t["x"].chunk(2, dim=-1)
    return functional.silu(gate) * up


# Forward of each operator from its named inputs; an input's gradient is compared with the tensor "d" + its name.
FORWARD = {
    "linear": lambda t, _: functional.linear(t["x"], t["weight"], t["bias"]),
    "layer_norm": lambda t, o: functional.layer_norm(t["x"], t["x"].shape[1:], t["weight"], t["bias"], o["epsilon"]),
    "rms_norm": lambda t, o: functional.rms_norm(t["x"], t["x"].shape[1:], t["weight"], o["epsilon"]),
    "batch_norm": lambda t, o: functional.batch_norm(
        t["x"], None, None, t["weight"], t["bias"], training=True, eps=o["epsilon"]
    ),
    "gelu": lambda t, _: functional.gelu(t["x"], approximate="tanh"),
    "gelu_erf": lambda t, _: functional.gelu(t["x"]),
    "relu": lambda t, _: functional.relu(t["x"]),
    "silu": lambda t, _: functional.silu(t["x"]),
    "swiglu": swiglu,
    "attention": attention,
    "rotary": rotary,
    "embedding": embedding,
    "cross_entropy": lambda t, _: functional.cross_entropy(t["logits"], t["targets"].long(), reduction="none"),
    "convolution": convolution,
    "max_pool": max_pool,
    "average_pool": lambda t, _: t["x"].mean(dim=1),
    "class_token": class_token,
    "first_row": lambda t, _: t["x"][:, 0],
    "residual": lambda t, _: t["x"] + t["branch"],
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """What strata's kernels computed: [(case, {name: float64 tensor})]."""
    build = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
    folder = tmp_path_factory.mktemp("operators")
    subprocess.run([build / "tests" / "write_operator_gradients", folder], check=True)
    values = numpy.fromfile(folder / "values.f32", dtype=numpy.float32).astype(numpy.float64)

    def tensor(entry):
        begin, shape = entry["offset"], entry["shape"]
        return torch.from_numpy(values[begin : begin + math.prod(shape)].reshape(shape))

    found = json.loads((folder / "cases.json").read_text())
    return [(case, {name: tensor(entry) for name, entry in case["tensors"].items()}) for case in found]


def relative_error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("operator", FORWARD)
def test_operator(cases, operator, dtype):
    chosen = [(case, tensors) for case, tensors in cases if (case["operator"], case["dtype"]) == (operator, dtype)]
    assert chosen
    tolerance = (ATTENTION_TOLERANCE if operator == "attention" else TOLERANCE)[dtype]
    for case, tensors in chosen:
        inputs = {name for name in tensors if f"d{name}" in tensors} - {"y"}
        given = {name: t.clone().requires_grad_(name in inputs) for name, t in tensors.items()}
        expected = FORWARD[operator](given, case["options"])
        if operator == "cross_entropy":
            assert relative_error(tensors["loss"], expected) < 1e-6
            expected.mean().backward()
        else:
            assert relative_error(tensors["y"], expected) < tolerance
            if inputs:
                expected.backward(tensors["dy"])
        assert inputs or operator == "residual", "an operator without gradients"
        for name in inputs:
            error = relative_error(tensors[f"d{name}"], given[name].grad)
            assert error < tolerance, f"{operator} {case['options']}: d{name} differs by {error:.2e}"


def test_every_case_is_compared(cases):
    assert {case["operator"] for case, _ in cases} == set(FORWARD)

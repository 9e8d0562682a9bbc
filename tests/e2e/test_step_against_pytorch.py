"""A step of the image models against PyTorch, where it is installed: loss, every gradient, an evaluation, from the same
weights."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from step_against_pytorch import errors_of_evaluation, errors_of_step, step_of_strata  # noqa: E402
from synthetic_images import batch  # noqa: E402

STRATA = os.environ.get("STRATA", str(ROOT / "build" / "cpu" / "strata"))
MPIEXEC = os.environ.get("MPIEXEC", "mpiexec")
BOUND = 1e-4


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize(
    ("model", "trained"),
    [
        ("resnet-nano", 0),
        ("resnet-nano", 3),
        ("resnet18-cifar", 0),
        ("resnet50-cifar", 0),
        ("vit-nano", 0),
        ("vit-tiny-cifar", 0),
    ],
)
def test_loss_and_every_gradient(model, trained):
    step = step_of_strata(STRATA, MPIEXEC, model, 4, 1, trained)
    errors, num_crossed = errors_of_step(step, model, 4)
    assert num_crossed < 50, "of ReLU's inputs within rounding of 0"
    evaluation = errors_of_evaluation(step, model, 4)
    assert len(evaluation) == 3 + 2 * len(step.running)
    too_large = {name: error for name, error in [*errors.items(), *evaluation.items()] if not error <= BOUND}
    assert not too_large


def test_the_step_moves_no_weight_and_has_gradients():
    parameters = step_of_strata(STRATA, MPIEXEC, "vit-nano", 4, 1).parameters
    assert numpy.array_equal(parameters["final_norm.weight"][0], numpy.ones(32, numpy.float32))
    assert all(gradient.any() for _, gradient in parameters.values())


def test_images_are_not_alike():
    images, labels = batch(8, 16, 10, seed=3)
    assert abs(images.mean()) < 0.1
    assert abs(images.std() - 1.0) < 0.05
    assert len(set(labels.tolist())) > 2

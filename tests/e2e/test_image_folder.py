"""Training on folders of JPEG and PNG files: the same on any number of ranks, and what is said of bad files."""

import json

import numpy as np
import pytest
from PIL import Image

EXPERIMENT = """
name = "e2e"

[model]
name = "vgg"
layers = 11
widths = [8, 8, 8, 8, 8]
image_size = 32
num_classes = 2
dropout = 0.0

[data]
format = "image_folder"
paths = ["train"]
resize = 36
augment = ["crop", "flip"]

[resources]
ranks_per_node = {ranks}

[train]
global_batch = 4
optimizer = "sgd"
learning_rate = 0.01
epochs = 2

[strategy]
name = "ddp"

[measure]
peak = "quick"
warmup_steps = 1
"""


@pytest.fixture
def images(tmp_path):
    """Two classes of five images; the folder of the second."""
    generator = np.random.default_rng(1)
    for name in ("left", "right"):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        for number in range(5):
            pixels = generator.integers(0, 255, (40 + number, 50, 3), dtype=np.uint8)
            pixels[:, slice(0, 25) if name == "left" else slice(25, 50)] //= 4
            Image.fromarray(pixels).save(folder / f"{number}.{'png' if number == 2 else 'JPEG'}")
    return tmp_path / "train" / "right"


def run(strata, tmp_path, ranks, *words):
    (tmp_path / "e2e.toml").write_text(EXPERIMENT.format(ranks=ranks))
    return strata(ranks, "run", tmp_path / "e2e.toml", "--results", tmp_path / f"results_{ranks}", *words)


def test_epochs_are_the_same_on_any_number_of_ranks(strata, images, tmp_path):
    losses = {}
    for ranks in (1, 2):
        ended = run(strata, tmp_path, ranks)
        assert ended.code == 0, ended.error
        (file,) = (tmp_path / f"results_{ranks}").glob("e2e/*/1.jsonl")
        rows = [row for row in map(json.loads, file.read_text().splitlines()) if row["kind"] == "step"]
        assert [row["step"] for row in rows] == list(range(5)), "two epochs of ten samples, four a step"
        assert all(0 < row["input_seconds"] < row["step_seconds_max"] for row in rows)
        losses[ranks] = [row["loss"] for row in rows]
    assert losses[2] == pytest.approx(losses[1], rel=1e-4)


def test_an_image_that_ends_early_is_named(strata, images, tmp_path):
    whole = (images / "3.JPEG").read_bytes()
    (images / "3.JPEG").write_bytes(whole[: len(whole) // 2])
    ended = run(strata, tmp_path, 2)
    assert ended.code == 2
    assert "train/right/3.JPEG cannot be read as JPEG: Premature end of JPEG file" in ended.error


def test_folders_that_do_not_fit_are_refused(strata, images, tmp_path):
    ended = run(strata, tmp_path, 1, "--set", "model.num_classes=3")
    assert ended.code == 2
    assert "train has 2 folders, from left to right, each a class, but model.num_classes = 3" in ended.error
    for file in images.iterdir():
        file.unlink()
    ended = run(strata, tmp_path, 1)
    assert ended.code == 2
    assert "class folder " in ended.error and "train/right has no image among its 0 files" in ended.error
    for kind, key, value in (("tokens", "augment", '["flip"]'), ("tokens", "mean", "[0, 0, 0]")):
        model = ("--set", "model.name=gpt-nano", "--set", "data.format=synthetic", "--set", "data.paths=[]")
        unset = [w for k in ("layers", "image_size", "num_classes", "dropout") for w in ("--set", f"model.{k}=unset")]
        plain = ("--set", "model.widths=[]", "--set", "data.augment=[]", "--set", "data.resize=0")
        ended = run(strata, tmp_path, 1, *model, *unset, *plain, "--set", f"data.{key}={value}")
        assert ended.code == 2
        assert f"data.{key}: " in ended.error and f"is of images, but model gpt-nano reads {kind}" in ended.error

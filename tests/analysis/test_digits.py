"""The digits as CIFAR-10 files: the bytes that the README promises, and what they are."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

DATA = Path(__file__).parents[2] / "experiments" / "data"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    written = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, DATA / "digits.py", written], check=True)
    return written


def test_checksums_are_those_of_the_readme(folder):
    promised = dict(re.findall(r"^([0-9a-f]{64})  data/(digits_\w+\.bin)$", (DATA / "README.md").read_text(), re.M))
    assert sorted(promised.values()) == ["digits_test.bin", "digits_train.bin"]
    for checksum, name in promised.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum, name


def test_every_digit_is_in_one_of_the_files(folder):
    digits = load_digits()
    expected = {(int(label), image.tobytes()) for image, label in zip(digits.images, digits.target, strict=True)}
    found = set()
    for name, count in (("digits_train.bin", 1437), ("digits_test.bin", 360)):
        records = np.frombuffer((folder / name).read_bytes(), np.uint8).reshape(-1, 3073)
        assert len(records) == count
        if name == "digits_test.bin":
            assert np.bincount(records[:, 0]).tolist() == [36] * 10
        planes = records[:, 1:].reshape(count, 3, 8, 4, 8, 4)
        assert (planes == planes[:, :1, :, :1, :, :1]).all(), "grey squares of 4 x 4"
        shades = np.rint(planes[:, 0, :, 0, :, 0] * (16 / 255))
        found |= {(int(label), image.tobytes()) for image, label in zip(shades, records[:, 0], strict=True)}
    assert found == expected

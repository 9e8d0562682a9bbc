#!/usr/bin/env python3
"""Write scikit-learn's handwritten digits as CIFAR-10 files: real images that come with a package.

    .venv/bin/python experiments/data/digits.py <folder>

writes digits_train.bin (1437 images) and digits_test.bin (360, 36 of each digit): 32 x 32 pixels, each of the
original's 8 x 8 a square of 4 x 4, its 17 shades of grey spread over a byte, in three equal channels. Which images are
for testing is decided by hashes of their numbers, so the files are the same bytes with every version of Python and its
packages; README.md beside this file has their checksums.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SEED = 1
TEST_IMAGES_OF_A_DIGIT = 36
SCALE = 4


def numbers_for_testing(labels):
    """Numbers of the images for testing: of each digit those whose hashes are least."""

    def place(number):
        return hashlib.sha256(f"digits {SEED} {number}".encode()).digest()

    chosen = set()
    for digit in range(10):
        of_digit = (number for number, label in enumerate(labels) if label == digit)
        chosen.update(sorted(of_digit, key=place)[:TEST_IMAGES_OF_A_DIGIT])
    return chosen


def record(image, label):
    """One label byte, then red, green and blue, row by row. image: [8, 8], 0 to 16."""
    grey = (image.astype(np.int64) * 255 + 8) // 16
    plane = np.kron(grey, np.ones((SCALE, SCALE), dtype=np.int64)).astype(np.uint8).tobytes()
    return bytes([label]) + 3 * plane


def write_digits(folder):
    digits = load_digits()
    testing = numbers_for_testing(digits.target)
    files = {"digits_train.bin": [], "digits_test.bin": []}
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        files["digits_test.bin" if number in testing else "digits_train.bin"].append(record(image, int(label)))
    for name, records in files.items():
        (folder / name).write_bytes(b"".join(records))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the two files go; it exists")
    write_digits(parser.parse_args().folder)

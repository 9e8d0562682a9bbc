"""The images that strata's `format = "synthetic"` trains on, made here again from their definition
(src/data/synthetic_images.cpp): what another program is given as the same batch."""

import math

import numpy as np

CELLS = 8  # a side of a class's pattern
AMPLITUDE = 0.5


def stream_of(name):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def philox(blocks, stream, key):
    """Philox4x32-10: four words for each of @p blocks, an array of shape [blocks, 4]."""
    blocks = np.asarray(blocks, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    counter = [blocks & low, blocks >> np.uint64(32)]
    counter += [np.full_like(blocks, stream & 0xFFFFFFFF), np.full_like(blocks, stream >> 32)]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            (second >> np.uint64(32)) ^ counter[1] ^ np.uint64(keys[0]),
            second & low,
            (first >> np.uint64(32)) ^ counter[3] ^ np.uint64(keys[1]),
            first & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack(counter, axis=1).astype(np.uint32)


def image(sample, image_size, num_classes, seed):
    """Pixels [height, width, 3] in float32, and the label."""
    key = seed ^ stream_of("data.synthetic.images")
    num_values = image_size * image_size * 3
    words = philox(np.arange(1 + -(-num_values // 4)), sample, key)
    label = int(words[0, 0]) * num_classes >> 32
    bytes_of_word = words[1:].reshape(-1)[:num_values].view(np.uint8).reshape(-1, 4)
    noise_scale = math.sqrt(1 - AMPLITUDE**2) / math.sqrt(4 * (256**2 - 1) / 12)
    noise = noise_scale * (bytes_of_word.sum(axis=1, dtype=np.int64) - 510.0)
    pattern = philox(np.arange(2), label, seed ^ stream_of("data.synthetic.patterns")).reshape(-1)[:6]
    bits = (pattern.reshape(3, 2)[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1  # [channel, word, bit]
    signs = np.where(bits.reshape(3, CELLS, CELLS) == 1, 1.0, -1.0)
    cell = np.arange(image_size) * CELLS // image_size
    values = noise.reshape(image_size, image_size, 3) + AMPLITUDE * signs[:, cell][:, :, cell].transpose(1, 2, 0)
    return values.astype(np.float32), label


def batch(size, image_size, num_classes, seed, first=0):
    """Samples from @p first on: [size, height, width, 3] and their labels."""
    images, labels = zip(*(image(i, image_size, num_classes, seed) for i in range(first, first + size)), strict=True)
    return np.stack(images), np.array(labels, dtype=np.int64)

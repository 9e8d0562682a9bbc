#!/usr/bin/env python3
"""One training step of strata against one of PyTorch (eager): same model, batch, dtype, threads and optimizer, in turn.

    python tests/bench/compare_pytorch.py [--strata build/cpu/strata] [--threads 1] [--steps 3] [--only gpt2-small/bf16]

Both train on random numbers; the step is forward, backward and AdamW. PyTorch runs bf16 as autocast over fp32 weights,
images channels last; each side's time is the median of its measured steps. Needs an importable torch; without it, says
so and exits with 0.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))

CASES = {
    "gpt2-small": {"batch": 4, "unit": "tokens", "per_sample": 1024},
    "vgg13": {"batch": 8, "unit": "images", "per_sample": 1},
    "resnet18-cifar": {"batch": 32, "unit": "images", "per_sample": 1},
    "resnet18": {"batch": 8, "unit": "images", "per_sample": 1},
    "resnet50": {"batch": 4, "unit": "images", "per_sample": 1},
    "vit-tiny-cifar": {"batch": 32, "unit": "images", "per_sample": 1},
    "vit-b16": {"batch": 4, "unit": "images", "per_sample": 1},
}

EXPERIMENT = """
name = "compare"
[model]
name = "{model}"
[data]
format = "synthetic"
[resources]
ranks_per_node = 1
threads_per_rank = {threads}
[train]
global_batch = {batch}
optimizer = "adamw"
weight_decay = 0.1
dtype = "{dtype}"
steps = {steps}
[measure]
warmup_steps = 1
[strategy]
name = "single"
"""


def strata_seconds(args, model, dtype):
    """Median measured step of `strata run`."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "compare.toml"
        file.write_text(
            EXPERIMENT.format(
                model=model, threads=args.threads, batch=CASES[model]["batch"], dtype=dtype, steps=args.steps + 1
            )
        )
        subprocess.run(
            [args.mpiexec, "-n", "1", args.strata, "run", file, "--results", folder, "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines = next(pathlib.Path(folder).glob("compare/*/1.jsonl")).read_text().splitlines()
    return json.loads(lines[-1])["median_step_seconds"]


def gpt2(torch):
    """GPT-2 small as its authors shape it: learned positions, pre-LN, fused qkv, tanh GELU, tied head."""
    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, layers, vocabulary, sequence = 768, 12, 12, 50257, 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = (t.view(b, s, heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, s, hidden))
            return x + self.fc2(functional.gelu(self.fc1(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(hidden)
            self.head = nn.Linear(hidden, vocabulary, bias=False)
            self.head.weight = self.tokens.weight
            nn.init.normal_(self.tokens.weight, std=0.02)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    def batch(size):
        shape = (size, sequence)
        return torch.randint(vocabulary, shape), torch.randint(vocabulary, shape)

    return Gpt(), batch


def vgg13(torch):
    """VGG-13 without batch norm at 224 pixels, 1000 classes."""
    nn = torch.nn
    layers, channels = [], 3
    for width in (64, 128, 256, 512, 512):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(4096, 1000)]

    def batch(size):
        images = torch.rand(size, 3, 224, 224).contiguous(memory_format=torch.channels_last)
        return images, torch.randint(1000, (size,))

    return nn.Sequential(*layers).to(memory_format=torch.channels_last), batch


def image_model(model):
    """Of tests/support/pytorch_image_models.py, channels last."""

    def make(torch):
        from pytorch_image_models import PRESETS

        network = PRESETS[model]().to(memory_format=torch.channels_last)

        def batch(size):
            images = torch.rand(size, 3, network.image_size, network.image_size)
            return images.contiguous(memory_format=torch.channels_last), torch.randint(network.num_classes, (size,))

        return network, batch

    return make


def pytorch_seconds(torch, args, model, dtype):
    """Median step of eager PyTorch after one warm-up step."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    network, make_batch = {"gpt2-small": gpt2, "vgg13": vgg13}.get(model, image_model(model))(torch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, weight_decay=0.1)
    inputs, targets = make_batch(CASES[model]["batch"])
    seconds = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            logits = network(inputs)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        assert math.isfinite(loss.item())
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of each side")
    parser.add_argument("--only", default="", help="MODEL/DTYPE,...: these cases alone")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"compare_pytorch: not run, torch cannot be imported: {error}")
        return 0
    print(f"torch {torch.__version__}, {args.threads} thread(s), {args.steps} steps each")
    print(f"{'model':14} {'dtype':5} {'strata':>14} {'PyTorch':>14}  ratio")
    for model, case in CASES.items():
        for dtype in ("fp32", "bf16"):
            if args.only and f"{model}/{dtype}" not in args.only.split(","):
                continue
            ours = strata_seconds(args, model, dtype)
            theirs = pytorch_seconds(torch, args, model, dtype)
            samples = case["batch"] * case["per_sample"]
            print(
                f"{model:14} {dtype:5} {samples / ours:8.1f} {case['unit']}/s"
                f" {samples / theirs:7.1f} {case['unit']}/s  {theirs / ours:.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

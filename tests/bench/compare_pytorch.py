#!/usr/bin/env python3
"""One training step of strata against PyTorch's, eager and compiled: same model, batch, dtype, threads and optimizer.

    python tests/bench/compare_pytorch.py --compile [--threads 1] [--rounds 3] [--steps 3] [--only gpt2-small/bf16,…]

A step is forward, backward and AdamW on random numbers, which both models make from as many parameters of the same
names. They go in turn, in each round so many steps behind one that warms up: a time is the median over the rounds of
the median of a round's steps, a ratio the median of the rounds' ratios. PyTorch runs bf16 as autocast over fp32
weights, images channels last, its optimizer fused; compiled is forward with the loss and its backward by torch.compile.
`of peak` is the share of the measured rate of matrix products that strata's step reaches: its MFU. Needs an importable
torch; without it, says so and exits with 0. --json FILE has every round.
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

import recorded_run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))

# Samples of a step by preset of strata.
BATCHES = {
    "gpt2-small": 4,
    "smollm-135m": 2,
    "vgg13": 8,
    "resnet18-cifar": 32,
    "resnet18": 8,
    "resnet50": 4,
    "vit-tiny-cifar": 32,
    "vit-b16": 4,
}
DTYPES = ("fp32", "bf16")


def median_ratio(theirs, ours):
    """Of values by round."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def share_of_peak(case):
    """MFU of strata's median step, of the best peak that any round measured."""
    seconds = statistics.median(case["strata_seconds"])
    return case["model_flops_per_step"] / seconds / case["peak_flops_per_second"]


def rate(case, whose):
    """Tokens or images a second; `whose`: strata, eager or compiled."""
    return case["samples_per_step"] / statistics.median(case[f"{whose}_seconds"])


class StrataStep:
    def __init__(self, args, model, dtype):
        self.args = args
        self.experiment = recorded_run.experiment(
            model, BATCHES[model], args.steps + 1, threads=args.threads, dtype=dtype, peak="thorough"
        )
        self.runs = []

    def round_seconds(self):
        self.runs.append(recorded_run.run(self.args.strata, self.args.mpiexec, self.experiment))
        return self.runs[-1].median_step_seconds

    def parameters(self):
        """Elements by name."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bench.toml"
            file.write_text(self.experiment)
            words = [self.args.strata, "program", file, "--rank", "0"]
            program = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        buffers = [line.split() for line in program.splitlines() if line.startswith("buffer ")]
        return {words[2]: int(words[3]) for words in buffers if words[5] == "parameter"}


class PytorchStep:
    """Of one network, which eager and compiled steps train in turn."""

    def __init__(self, torch, model, dtype):
        import pytorch_image_models
        import pytorch_text_models

        self.torch, self.dtype = torch, dtype
        torch.manual_seed(1)
        if model in pytorch_text_models.PRESETS:
            self.network = pytorch_text_models.PRESETS[model]()
            shape = (BATCHES[model], self.network.sequence_length)
            self.inputs, self.targets = (torch.randint(self.network.vocabulary, shape) for _ in range(2))
        else:
            self.network = pytorch_image_models.PRESETS[model]().to(memory_format=torch.channels_last)
            size = self.network.image_size
            self.inputs = torch.rand(BATCHES[model], 3, size, size).contiguous(memory_format=torch.channels_last)
            self.targets = torch.randint(self.network.num_classes, (BATCHES[model],))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        self.name_in_strata = pytorch_image_models.name_in_strata
        self.losses = {"eager": self.loss, "compiled": torch.compile(self.loss)}

    def loss(self):
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.dtype == "bf16"):
            logits = self.network(self.inputs)
            return self.torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), self.targets.flatten())

    def seconds(self, whose):
        begin = time.perf_counter()
        loss = self.losses[whose]()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        assert math.isfinite(loss.item())
        return time.perf_counter() - begin

    def round_seconds(self, whose, num_steps):
        self.seconds(whose)
        return statistics.median(self.seconds(whose) for _ in range(num_steps))

    def parameters(self):
        """Elements by strata's name."""
        return {self.name_in_strata(name): p.numel() for name, p in self.network.named_parameters()}


def measured(torch, args, model, dtype):
    """Of one case, seconds by round. @throws ValueError where the models' parameters differ."""
    ours, theirs = StrataStep(args, model, dtype), PytorchStep(torch, model, dtype)
    if ours.parameters() != theirs.parameters():
        different = sorted({name for name, _ in ours.parameters().items() ^ theirs.parameters().items()})
        raise ValueError(f"{model}: parameters of other names or sizes: {', '.join(different)}")
    peers = ("eager", "compiled") if args.compile else ("eager",)
    seconds = {f"{whose}_seconds": [] for whose in ("strata", *peers)}
    for whose in peers:
        theirs.seconds(whose)  # compiles
    for _ in range(args.rounds):
        seconds["strata_seconds"].append(ours.round_seconds())
        for whose in peers:
            seconds[f"{whose}_seconds"].append(theirs.round_seconds(whose, args.steps))
    facts = ours.runs[0].facts
    return {
        "model": model,
        "dtype": dtype,
        "batch": BATCHES[model],
        "sample_unit": facts["sample_unit"],
        "samples_per_step": facts["num_samples_per_step"],
        "num_parameters": facts["num_parameters"],
        "model_flops_per_step": ours.runs[0].model_flops_per_step,
        "peak_flops_per_second": max(run.facts["peak_flops_per_second"] for run in ours.runs),
        **seconds,
    }


def line_of(case):
    words = [
        f"{case['model']:14} {case['dtype']:5} {case['batch']:5} {case['num_parameters'] / 1e6:7.1f} M",
        f"{rate(case, 'strata'):8.1f} {case['sample_unit']}s/s {share_of_peak(case):7.1%}",
    ]
    for whose in ("eager", "compiled"):
        if f"{whose}_seconds" in case:
            ratio = median_ratio(case[f"{whose}_seconds"], case["strata_seconds"])
            words.append(f"{rate(case, whose):9.1f} {ratio:5.2f}")
    return "  ".join(words)


def cases_of(words):
    """(model, dtype) of `MODEL/DTYPE,MODEL,…`; all of them of nothing. @throws SystemExit for an unknown one."""
    every = [(model, dtype) for model in BATCHES for dtype in DTYPES]
    chosen = words.split(",") if words else list(BATCHES)
    for word in chosen:
        if word not in BATCHES and tuple(word.split("/")) not in every:
            raise SystemExit(
                f"compare_pytorch: no case {word}; there are {', '.join(BATCHES)}, /{' and /'.join(DTYPES)}"
            )
    return [case for case in every if case[0] in chosen or "/".join(case) in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="strata's turns, and PyTorch's")
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a turn")
    parser.add_argument("--compile", action="store_true", help="the compiled network beside the eager one")
    parser.add_argument("--only", default="", help="MODEL or MODEL/DTYPE,…: these cases alone")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    cases = cases_of(args.only)
    try:
        import torch
    except ImportError as error:
        print(f"compare_pytorch: not run, torch cannot be imported: {error}")
        return 0
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} thread(s), {args.rounds} rounds of {args.steps} steps each")
    print(
        f"{'model':14} dtype batch parameters  {'strata':>17} of peak      eager ratio"
        + ("   compiled ratio" if args.compile else "")
    )
    done = []
    for model, dtype in cases:
        torch.compiler.reset()
        done.append(measured(torch, args, model, dtype))
        print(line_of(done[-1]), flush=True)
    if args.json:
        args.json.write_text(
            json.dumps({"torch": torch.__version__, "threads": args.threads, "cases": done}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

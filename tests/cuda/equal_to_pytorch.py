#!/usr/bin/env python3
"""Strata beside PyTorch from equal weights on equal data: 20 losses, and loss and gradients of one step.

equal_to_pytorch.py make FOLDER [--tiny] [--device cuda|cpu]      token files and experiments, FOLDER/<case>.<part>.toml
strata run FOLDER/<case>.<part>.toml --results FOLDER/results     each of them
equal_to_pytorch.py compare FOLDER [--libraries FOLDER]           a line a case, equality.csv; 1 where one differs

Part `step` trains one step of SGD with a momentum and a learning rate that move nothing: its checkpoint has the weights
that it began with and, as momentum, their gradients. Part `train` begins with the same weights, which come of the seed,
and trains 20 steps of Adam in f32, `train_bf16` in bf16. PyTorch takes the weights from the checkpoint and computes in
double precision what they are held against, so that the error is strata's alone; beside it the losses in f32 without
TF32, which say how far rounding alone leads.

VGG's ReLU and pools let some gradients through or not by a rounding: a gradient is compared by its distance in relation
to its norm, not element by element, and after 20 steps PyTorch's own f32 is half a percent off its double precision.
Needs torch and numpy. Checkpoints are contiguous HDF5, whose layout libhdf5 tells, which is searched in --libraries
first.
"""

import argparse
import array
import csv
import ctypes
import dataclasses
import glob
import json
import math
import os
import random
import sys
from pathlib import Path

NUM_STEPS = 20
SEED = 3
STILL = 1e-30  # a learning rate, and a momentum, that changes nothing
# Relative: of the loss of `step`; of a gradient's distance to its norm, by model; of losses, which move apart, in f32
# twice as far as PyTorch's if that is more.
LOSS_BOUND = 1e-5
GRADIENT_BOUND = {"transformer": 1e-4, "vgg": 1e-2}
TRAIN_BOUND = {"train": 1e-3, "train_bf16": 3e-2}


@dataclasses.dataclass
class Case:
    kind: str  # gpt | llama | vgg
    model: dict  # of [model]
    batch: int

    @property
    def vocabulary(self):
        return self.model["vocabulary"]


def cases(tiny):
    if tiny:
        transformer = {"layers": 2, "hidden": 32, "heads": 2, "ffn_hidden": 64, "vocabulary": 61, "sequence_length": 16}
        return {
            "gpt": Case("gpt", {"name": "gpt2-small"} | transformer, 4),
            "llama": Case("llama", {"name": "llama-7b"} | transformer, 4),
            "vgg": Case("vgg", {"name": "vgg13", "image_size": 32, "hidden": 16, "num_classes": 10,
                                "widths": [8, 8, 16, 16, 16], "dropout": 0.0}, 4),
        }  # fmt: skip
    gpt = {"layers": 12, "hidden": 768, "heads": 12, "ffn_hidden": 3072, "vocabulary": 50257, "sequence_length": 1024}
    llama = {"layers": 2, "hidden": 2048, "heads": 16, "ffn_hidden": 5632, "vocabulary": 32000, "sequence_length": 1024}
    return {
        "gpt2-small": Case("gpt", {"name": "gpt2-small", "dropout": 0.0} | gpt, 2),
        "llama-2-layers": Case("llama", {"name": "llama-7b"} | llama, 2),
        "vgg13-64": Case("vgg", {"name": "vgg13", "image_size": 64, "hidden": 1024, "num_classes": 100, "widths":
                                 [64, 128, 256, 512, 512], "dropout": 0.0}, 16),
    }  # fmt: skip


EXPERIMENT = """name = "{name}"
[model]
{model}
[data]
{data}
shuffle = false
seed = {seed}
[resources]
device = "{device}"
[train]
global_batch = {batch}
seed = {seed}
{train}
[measure]
warmup_steps = 0
{measure}
[strategy]
name = "single"
"""
STEP = f'optimizer = "sgd"\nmomentum = {STILL}\nlearning_rate = {STILL}\nsteps = 1'
TRAIN = f'optimizer = "adam"\nlearning_rate = 1e-4\nweight_decay = 0.0\nsteps = {NUM_STEPS}'
PARTS = {"step": STEP, "train": TRAIN, "train_bf16": TRAIN + '\ndtype = "bf16"'}


def make(folder, tiny, device):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "made.json").write_text(json.dumps({"tiny": tiny}))
    for name, case in cases(tiny).items():
        if case.kind == "vgg":
            data = f'format = "synthetic"\nnum_samples = {case.batch * NUM_STEPS}'
        else:
            window = case.model["sequence_length"] + 1
            draw = random.Random(SEED)
            # Some tokens are frequent, as in text: there is something to learn.
            tokens = [min(draw.randrange(case.vocabulary), draw.randrange(case.vocabulary))
                      for _ in range(window * case.batch * NUM_STEPS)]  # fmt: skip
            (folder / f"{name}.tokens").write_bytes(array.array("I", tokens).tobytes())
            data = f'format = "raw_u32"\npaths = ["{name}.tokens"]'
        for part, train in PARTS.items():
            text = EXPERIMENT.format(
                name=f"{name}-{part}",
                model="\n".join(f"{key} = {json.dumps(value)}" for key, value in case.model.items()),
                data=data,
                seed=SEED,
                device=device,
                batch=case.batch,
                train=train,
                measure='peak = "quick"' if device == "cpu" else "",
            )
            if part == "step":
                text += "[checkpoint]\nevery = 1\n"
            (folder / f"{name}.{part}.toml").write_text(text)


# ---------------------------------------------------------------------------------------------------------- of strata
class Checkpoint:
    """A checkpoint's datasets, read from where libhdf5 says that they lie."""

    def __init__(self, path, library):
        self.path = path
        self.hdf5 = ctypes.CDLL(library)
        for function in ("H5Fopen", "H5Dopen2", "H5Dget_offset", "H5Dget_storage_size"):
            getattr(self.hdf5, function).restype = ctypes.c_int64
        self.hdf5.H5open()
        self.file = self.hdf5.H5Fopen(str(path).encode(), ctypes.c_uint(0), ctypes.c_int64(0))
        if self.file < 0:
            raise OSError(f"{path} is no HDF5 file")

    def read(self, parameter, state):
        """Flat f32 values, as numpy has them."""
        import numpy

        name = f"/parameters/{parameter}/{state}".encode()
        dataset = self.hdf5.H5Dopen2(ctypes.c_int64(self.file), name, ctypes.c_int64(0))
        if dataset < 0:
            raise OSError(f"{self.path} has no {name.decode()}")
        offset = self.hdf5.H5Dget_offset(ctypes.c_int64(dataset))
        size = self.hdf5.H5Dget_storage_size(ctypes.c_int64(dataset))
        return numpy.fromfile(self.path, dtype="<f4", count=size // 4, offset=offset)


def find_hdf5(libraries):
    for folder in [*libraries, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"]:
        for pattern in ("libhdf5.so*", "libhdf5_serial.so*", "libhdf5_mpich.so*"):
            if found := sorted(glob.glob(f"{folder}/{pattern}")):
                return found[0]
    raise SystemExit(f"no libhdf5 in {libraries} or among the system's libraries")


def rows_of(folder, name):
    """Lines of the newest attempt of an experiment. @return the folder of its point, and its losses by step."""
    files = sorted((folder / "results" / name).glob("*/*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise OSError(f"{name} has not run")
    rows = [json.loads(line) for line in files[-1].read_text(encoding="utf-8").splitlines()]
    return files[-1].parent, [row["loss"] for row in rows if row["kind"] == "step"]


# --------------------------------------------------------------------------------------------------------- of PyTorch
def network_of(case):
    """PyTorch's module, and strata's name of each of its parameters."""
    import bench_pytorch
    import torch
    from torch import nn

    m = case.model
    if case.kind == "gpt":
        network = bench_pytorch.Gpt(m["layers"], m["hidden"], m["heads"], m["vocabulary"], m["sequence_length"])
        for block in network.blocks if m["ffn_hidden"] != 4 * m["hidden"] else []:
            block.up = nn.Linear(m["hidden"], m["ffn_hidden"])
            block.down = nn.Linear(m["ffn_hidden"], m["hidden"])
    elif case.kind == "llama":
        network = bench_pytorch.Llama(
            m["layers"], m["hidden"], m["heads"], m["ffn_hidden"], m["vocabulary"], m["sequence_length"]
        )
        for module in network.modules():
            if isinstance(module, nn.RMSNorm):
                module.eps = 1e-6
        # Angles of late positions, which f32 rounds, are what strata has of them.
        dim = m["hidden"] // m["heads"]
        frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.outer(torch.arange(m["sequence_length"], dtype=torch.float64), frequencies).repeat(1, 2)
        network.cos, network.sin = angles.cos().float(), angles.sin().float()
    else:
        network = bench_pytorch.Vgg13(m["widths"], m["image_size"], m["num_classes"], m["hidden"])
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    return network, {name: strata_name(case, name) for name, _ in network.named_parameters()}


TRANSFORMER_NAMES = {"norm1": "attn.norm", "norm2": "mlp.norm", "qkv": "attn.qkv", "out": "attn.proj"}
FEED_FORWARD_NAMES = {
    "gpt": {"up": "mlp.fc1", "down": "mlp.fc2"},
    "llama": {"gate_up": "mlp.gate_up", "down": "mlp.down"},
}


def strata_name(case, name):
    words = name.split(".")
    if case.kind == "vgg":
        place = int(words[1])
        if words[0] == "classifier":
            return f"classifier.fc{1 + place // 3}.{words[2]}"
        # Two convolutions with a ReLU each, then a pool.
        return f"block[{place // 5}].conv[{place % 5 // 2}].{words[2]}"
    if words[0] == "blocks":
        return f"block[{words[1]}].{(TRANSFORMER_NAMES | FEED_FORWARD_NAMES[case.kind])[words[2]]}.{words[3]}"
    return {
        "tokens.weight": "embedding.table",
        "positions.weight": "embedding.positions",
        "norm.weight": "final_norm.weight",
        "norm.bias": "final_norm.bias",
        "head.weight": "head.weight",
    }[name]


def as_in_strata(case, name, tensor):
    """Convolutions' weights are [out, height, width, in] there, and what the first dense layer reads is in the order
    row, column, channel."""
    if tensor.dim() == 4:
        return tensor.permute(0, 2, 3, 1)
    if case.kind == "vgg" and name == "classifier.0.weight":
        side = case.model["image_size"] // 32
        return tensor.view(tensor.shape[0], -1, side, side).permute(0, 2, 3, 1)
    return tensor


def batch_of(case, folder, name, step, device):
    """Inputs and targets of a step."""
    import numpy
    import torch

    if case.kind == "vgg":
        from synthetic_images import batch

        m = case.model
        images, labels = batch(case.batch, m["image_size"], m["num_classes"], SEED, first=step * case.batch)
        return torch.from_numpy(images).permute(0, 3, 1, 2).to(device), torch.from_numpy(labels).to(device)
    window = case.model["sequence_length"] + 1
    tokens = numpy.fromfile(folder / f"{name}.tokens", dtype="<u4").astype(numpy.int64).reshape(-1, window)
    rows = torch.from_numpy(tokens[step * case.batch : (step + 1) * case.batch]).to(device)
    return rows[:, :-1], rows[:, 1:]


def load_weights(network, names, case, checkpoint):
    import torch

    with torch.no_grad():
        for name, parameter in network.named_parameters():
            there = as_in_strata(case, name, parameter)
            values = torch.from_numpy(checkpoint.read(names[name], "value"))
            there.copy_(values.view(there.shape).to(there.dtype))


def loss_of(case, network, inputs, targets):
    return network(inputs.to(next(network.parameters()).dtype) if case.kind == "vgg" else inputs, targets)


def compare_step(case, folder, name, checkpoint, loss, device):
    """Columns: loss and gradients of strata's step against double precision."""
    import torch

    network, names = network_of(case)
    network = network.to(device)
    load_weights(network, names, case, checkpoint)
    network = network.double()
    expected = loss_of(case, network, *batch_of(case, folder, name, 0, device))
    expected.backward()
    worst, worst_name, worst_norm, squares, our_squares = 0.0, "", 0.0, 0.0, 0.0
    for of_torch, parameter in network.named_parameters():
        theirs = as_in_strata(case, of_torch, parameter.grad).flatten()
        ours = torch.from_numpy(checkpoint.read(names[of_torch], "momentum")).to(device).double()
        norm = theirs.norm().item()
        distance = (ours - theirs).norm().item() / norm
        worst_norm = max(worst_norm, abs(ours.norm().item() - norm) / norm)
        if not distance <= worst:  # NaN is the worst
            worst, worst_name = distance, names[of_torch]
        squares += norm**2
        our_squares += ours.norm().item() ** 2
    return {
        "loss_difference": abs(loss - expected.item()) / expected.item(),
        "gradient_norm": math.sqrt(our_squares),
        "gradient_norm_of_pytorch": math.sqrt(squares),
        "worst_norm_difference": worst_norm,
        "worst_gradient_difference": worst,
        "worst_gradient": worst_name,
    }


def losses_of_pytorch(case, folder, name, checkpoint, device, dtype):
    import torch

    network, names = network_of(case)
    network = network.to(device)
    load_weights(network, names, case, checkpoint)
    network = network.to(dtype)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    losses = []
    for step in range(NUM_STEPS):
        loss = loss_of(case, network, *batch_of(case, folder, name, step, device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare_case(name, case, folder, library, device):
    """@return a row, and what of it is out of its bound."""
    import torch

    point, (loss,) = rows_of(folder, f"{name}-step")
    checkpoint = Checkpoint(point / "checkpoints" / "step_1.h5", library)
    row = {"case": name} | compare_step(case, folder, name, checkpoint, loss, device)
    bound = GRADIENT_BOUND["vgg" if case.kind == "vgg" else "transformer"]
    bounds = {"loss_difference": LOSS_BOUND, "worst_norm_difference": bound, "worst_gradient_difference": bound}
    expected = losses_of_pytorch(case, folder, name, checkpoint, device, torch.float64)

    def worst_difference(losses):
        errors = [abs(one - other) / other for one, other in zip(losses, expected, strict=True)]
        return max(errors, key=lambda error: math.inf if math.isnan(error) else error)

    of_f32 = worst_difference(losses_of_pytorch(case, folder, name, checkpoint, device, torch.float32))
    row["pytorch_f32_worst_loss_difference"] = of_f32
    for part in ("train", "train_bf16"):
        _, losses = rows_of(folder, f"{name}-{part}")
        if len(losses) != NUM_STEPS:
            raise OSError(f"{name}.{part} trained {len(losses)} steps of {NUM_STEPS}")
        row[f"{part}_first_loss"], row[f"{part}_last_loss"] = losses[0], losses[-1]
        row[f"{part}_worst_loss_difference"] = worst_difference(losses)
        bounds[f"{part}_worst_loss_difference"] = max(TRAIN_BOUND[part], 2 * of_f32 if part == "train" else 0.0)
    row["last_loss_of_pytorch"] = expected[-1]
    return row, [key for key, limit in bounds.items() if not row[key] <= limit]


def compare(folder, libraries):
    import torch

    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"PyTorch {torch.__version__} on {device}", flush=True)
    library = find_hdf5(libraries)
    rows, code = [], 0
    for name, case in cases(json.loads((folder / "made.json").read_text())["tiny"]).items():
        try:
            row, differ = compare_case(name, case, folder, library, device)
        except OSError as error:
            print(f"{name} refused: {error}")
            code = 1
            continue
        rows.append({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
        verdict = "Error, differs in " + ", ".join(differ) if differ else "equal"
        numbers = ", ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "case")
        print(f"{name} {verdict}: {numbers}", flush=True)
        code = 1 if differ else code
    if rows:
        with (folder / "equality.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["make", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="of strata's runs")
    parser.add_argument("--libraries", action="append", default=[], metavar="FOLDER", help="where libhdf5 may be")
    arguments = parser.parse_args()
    if arguments.verb == "make":
        make(arguments.folder, arguments.tiny, arguments.device)
        return 0
    return compare(arguments.folder, arguments.libraries)


if __name__ == "__main__":
    sys.exit(main())

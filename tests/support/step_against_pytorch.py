#!/usr/bin/env python3
"""One training step of strata's image models against PyTorch from the same weights and images, and an evaluation.

    python tests/support/step_against_pytorch.py [--models resnet18 resnet50 vit-b16] [--batch 2] [--trained 0]

`strata run` trains one step of SGD with momentum at a learning rate that moves no weight: its checkpoint holds the
weights that the step was made with and, as momentum, their gradients. With --trained as many steps of SGD come before
it that do move them: initial weights of a deep network make more of a rounding than trained ones. PyTorch loads those
weights and makes loss and gradients from the same images again. A gradient's error is max |ours - PyTorch's| over max
|PyTorch's|, the loss's that over PyTorch's. PyTorch computes in double precision, so that the errors are strata's
alone. Exits with 1 where one is above --bound.

The gradient of ReLU jumps at 0. Of some of millions of numbers so near to 0 that rounding puts them on the other side,
strata's step took the other gradient, and so does PyTorch's own in single precision: either differs by percents from
double precision then. Which side strata took shows in the gradient of the bias of the norm before: it is the sum of
what was let through. For numbers so near to 0, by what single precision moves PyTorch's, the comparison goes by that,
and says how often it had to; all other gradients are then compared as they are.

Behind the step both evaluate other images, with the running statistics of batch norms that one step has left.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

EXPERIMENT = """
name = "step"
[model]
name = "{model}"
[data]
format = "synthetic"
num_samples = {batch}
shuffle = false
seed = {seed}
[resources]
ranks_per_node = 1
threads_per_rank = {threads}
[train]
global_batch = {batch}
optimizer = "sgd"
momentum = {still}
learning_rate = {learning_rate}
{schedule}
steps = {steps}
[measure]
peak = "quick"
warmup_steps = 0
[checkpoint]
every = 1
[evaluate]
every = 1
num_samples = {evaluated}
[strategy]
name = "single"
"""
SEED = 3
STILL = 1e-30  # a learning rate, and a momentum, that changes nothing
TRAINED_RATE = 0.02  # of the steps before the one that is compared
EVALUATED = 5  # images, behind those of the step
ROUNDINGS = 5  # how far rounding reaches, in root mean squares of what it does to PyTorch's numbers
MOST_TRIED = 12  # numbers near zero of one channel of which all choices are tried


@dataclasses.dataclass
class Step:
    loss: float
    parameters: dict  # name: value and gradient, flat
    evaluated: dict = dataclasses.field(default_factory=dict)  # loss, top_1, top_5 of a row of /evaluations
    running: dict = dataclasses.field(default_factory=dict)  # a norm's weight: mean and variance
    running_before: dict = dataclasses.field(default_factory=dict)  # the same before the step; empty: its first one


def running_of(groups):
    """Mean and variance by a norm's weight, of a checkpoint's parameters."""
    return {
        name: (group["running_mean"][:], group["running_variance"][:])
        for name, group in groups.items()
        if "running_mean" in group
    }


def step_of_strata(strata, mpiexec, model, batch, threads, trained=0):
    """The step behind as many that were @p trained, and the evaluation behind it."""
    import h5py

    schedule = f'schedule = "step"\ndecay_steps = {trained}\ndecay_factor = {STILL}' if trained else ""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "step.toml"
        file.write_text(
            EXPERIMENT.format(
                model=model,
                batch=batch,
                threads=threads,
                seed=SEED,
                evaluated=EVALUATED,
                still=STILL,
                learning_rate=TRAINED_RATE if trained else STILL,
                schedule=schedule,
                steps=trained + 1,
            )
        )
        words = [mpiexec, "-n", "1", strata, "run", file, "--results", folder, "--quiet"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        (point,) = (pathlib.Path(folder) / "step").glob("????????????")
        rows = [json.loads(line) for line in (point / "1.jsonl").read_text().splitlines()]
        loss = [row["loss"] for row in rows if row["kind"] == "step"][trained]
        evaluated = [row for row in rows if row["kind"] == "evaluation"][-1]
        running_before = {}
        if trained:
            with h5py.File(point / "checkpoints" / f"step_{trained}.h5") as checkpoint:
                running_before = running_of(checkpoint["parameters"])
        with h5py.File(point / "checkpoints" / f"step_{trained + 1}.h5") as checkpoint:
            groups = checkpoint["parameters"]
            parameters = {name: (group["value"][:], group["momentum"][:]) for name, group in groups.items()}
            return Step(loss, parameters, evaluated, running_of(groups), running_before)


def decided_by(sums_let_through, rounded, num_crossed):
    """ReLU whose gradient near 0 is chosen by channel, so that what is let through has the sums that are given.
    @param rounded its input in single precision: how far rounding reaches.
    @param num_crossed a list, to which the number of those on the other side is added."""
    import torch

    class Decided(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            let_through = x > 0
            near = (x.abs() < ROUNDINGS * (x - rounded).square().mean().sqrt()) & (dy != 0)
            missing = sums_let_through - (dy * let_through).sum(dim=(0, 2, 3))
            for channel in near.any(dim=0).flatten(1).any(dim=1).nonzero().flatten().tolist():
                places = near[:, channel].nonzero().tolist()
                places = sorted(places, key=lambda p: abs(x[p[0], channel, p[1], p[2]].item()))[:MOST_TRIED]
                change = [
                    (-1.0 if let_through[i, channel, h, w] else 1.0) * dy[i, channel, h, w].item() for i, h, w in places
                ]
                step = max(map(abs, change))
                choices = (c for n in range(len(places) + 1) for c in itertools.combinations(range(len(places)), n))
                # The fewest that explain what is missing.
                crossed = min(
                    choices,
                    key=lambda chosen: (
                        abs(missing[channel].item() - sum(change[c] for c in chosen)) + 1e-3 * step * len(chosen)
                    ),
                )
                for c in crossed:
                    i, h, w = places[c]
                    let_through[i, channel, h, w] = ~let_through[i, channel, h, w]
                num_crossed.append(len(crossed))
            return dy * let_through

    return Decided.apply


def with_weights_of(parameters, model):
    """PyTorch's module of a preset with strata's weights, and its parameters by strata's names.
    @throws ValueError where the models' parameters differ."""
    import torch
    from pytorch_image_models import PRESETS, as_in_strata, name_in_strata

    network = PRESETS[model]()
    named = {name_in_strata(name): parameter for name, parameter in network.named_parameters()}
    if named.keys() != parameters.keys():
        raise ValueError(f"{model}: parameters {sorted(named.keys() ^ parameters.keys())} are in one program alone")
    with torch.no_grad():
        for name, parameter in named.items():
            there = as_in_strata(parameter)
            there.copy_(torch.from_numpy(parameters[name][0]).view(there.shape))
    return network, named


def batch_of(network, size, first=0):
    """Images, channels first, and labels."""
    import torch
    from synthetic_images import batch

    images, labels = batch(size, network.image_size, network.num_classes, SEED, first)
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)


def step_of_pytorch(parameters, model, batch):
    """As step_of_strata() from the same weights, by PyTorch in single precision."""
    import torch
    from pytorch_image_models import as_in_strata

    network, named = with_weights_of(parameters, model)
    inputs, labels = batch_of(network, batch)
    loss = torch.nn.functional.cross_entropy(network(inputs), labels)
    loss.backward()
    gradients = {name: as_in_strata(p.grad).contiguous().flatten().numpy() for name, p in named.items()}
    return Step(loss.item(), {name: (value, gradients[name]) for name, (value, _) in parameters.items()})


def errors_of_evaluation(step, model, batch):
    """{"loss", a norm's running mean or variance: relative error, "top_1", "top_5": difference of the numbers}, against
    PyTorch in double precision."""
    import torch
    from pytorch_image_models import name_in_strata

    network, _ = with_weights_of(step.parameters, model)
    network.double()
    norms = {
        name_in_strata(f"{name}.weight"): module
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
    }
    for norm, (mean, variance) in step.running_before.items():
        norms[norm].running_mean.copy_(torch.from_numpy(mean))
        norms[norm].running_var.copy_(torch.from_numpy(variance))
    errors = {}
    with torch.no_grad():
        network(batch_of(network, batch)[0].double())  # training: statistics of the batch go into the running ones
        for norm, module in norms.items():
            for what, ours, theirs in zip(
                ("mean", "variance"), step.running[norm], (module.running_mean, module.running_var), strict=True
            ):
                difference = (torch.from_numpy(ours).double() - theirs).abs().max()
                errors[f"running {what} of {norm}"] = (difference / theirs.abs().max()).item()
        network.eval()
        images, labels = batch_of(network, EVALUATED, first=batch)
        logits = network(images.double())
        loss = torch.nn.functional.cross_entropy(logits, labels).item()
        errors["loss"] = abs(step.evaluated["loss"] - loss) / loss
        for k in (1, 5):
            correct = (logits.topk(k).indices == labels[:, None]).sum().item()
            errors[f"top_{k}"] = abs(EVALUATED * step.evaluated[f"top_{k}"] - correct)
    return errors


def errors_of_step(step, model, batch):
    """({"loss" or a parameter: relative error}, numbers on the other side of 0).
    @param step of a preset, as step_of_strata() gives it. @throws ValueError where the models' parameters differ."""
    import torch
    from pytorch_image_models import Relu, as_in_strata, name_in_strata

    loss, parameters = step.loss, step.parameters
    network, named = with_weights_of(parameters, model)
    inputs, labels = batch_of(network, batch)
    cut = {name: module for name, module in network.named_modules() if isinstance(module, Relu)}
    rounded = {}
    hooks = [
        module.register_forward_hook(lambda _, given, __, name=name: rounded.update({name: given[0].detach()}))
        for name, module in cut.items()
    ]
    with torch.no_grad():
        network(inputs)
    for hook in hooks:
        hook.remove()
    network.double()
    num_crossed = []
    for name, module in cut.items():
        norm = name_in_strata(f"{name.rpartition('.')[0]}.{module.norm}.bias".lstrip("."))
        sums = torch.from_numpy(parameters[norm][1]).double()
        module.forward = decided_by(sums, rounded[name], num_crossed)
    expected = torch.nn.functional.cross_entropy(network(inputs.double()), labels)
    expected.backward()

    errors = {"loss": abs(loss - expected.item()) / abs(expected.item())}
    for name, parameter in named.items():
        gradient = as_in_strata(parameter.grad).flatten()
        ours = torch.from_numpy(parameters[name][1]).double()
        errors[name] = ((ours - gradient).abs().max() / gradient.abs().max()).item()
    return errors, sum(num_crossed)


def report(who, model, errors, num_crossed, bound):
    """@return whether all is within the bound."""
    loss = errors.pop("loss")
    worst = max(errors, key=errors.get)
    above = sum(error > bound for error in errors.values())
    print(
        f"{model:16} {who:8} loss {loss:.1e}, {len(errors)} gradients: at most {errors[worst]:.1e} ({worst}),"
        f" {above} above {bound:.0e}; {num_crossed} numbers on the other side of 0",
        flush=True,
    )
    return max(loss, errors[worst]) <= bound


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--mpiexec", default=os.environ.get("MPIEXEC", "mpiexec"))
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50", "vit-b16"], metavar="PRESET")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--trained", type=int, default=0, metavar="STEPS", help="on the same images, before the step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--pytorch", action="store_true", help="PyTorch's own step in single precision beside it")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"step_against_pytorch: not run, torch cannot be imported: {error}")
        return 0
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__} in float64, {args.batch} images, {args.trained} steps before", flush=True)
    is_within = True
    for model in args.models:
        step = step_of_strata(args.strata, args.mpiexec, model, args.batch, args.threads, args.trained)
        is_within = report("strata", model, *errors_of_step(step, model, args.batch), args.bound) and is_within
        evaluated = errors_of_evaluation(step, model, args.batch)
        worst = max(evaluated, key=evaluated.get)
        print(f"{model:16} strata   evaluation: {len(evaluated)} numbers, at most {evaluated[worst]:.1e} ({worst})")
        is_within = evaluated[worst] <= args.bound and is_within
        if args.pytorch:
            own = step_of_pytorch(step.parameters, model, args.batch)
            report("PyTorch", model, *errors_of_step(own, model, args.batch), args.bound)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())

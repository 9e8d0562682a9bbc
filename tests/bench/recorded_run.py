"""`strata run` of an experiment that is given as text, and what it recorded."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile

EXPERIMENT = """
name = "bench"
[model]
name = "{model}"
[data]
format = "synthetic"
[resources]
ranks_per_node = {ranks}
threads_per_rank = {threads}
[train]
global_batch = {batch}
optimizer = "adamw"
weight_decay = 0.1
dtype = "{dtype}"
steps = {steps}
[measure]
warmup_steps = {warmup_steps}
timeline_steps = 0
peak = "{peak}"
[strategy]
name = "{strategy}"
"""


@dataclasses.dataclass
class Recorded:
    """Of a results file: facts by name, rows of steps, summary."""

    facts: dict
    steps: list[dict]
    summary: dict

    @property
    def median_step_seconds(self) -> float:
        return self.summary["median_step_seconds"]

    @property
    def model_flops_per_step(self) -> float:
        """Forward and backward, over all ranks, by the convention of MFU."""
        return self.facts["flops_per_sample"] * self.facts["num_samples_per_step"]


def experiment(model, batch, steps, *, ranks=1, threads=1, dtype="fp32", warmup_steps=1, peak="quick"):
    """The text of an experiment: random data, AdamW, alone or `ddp`.
    @param batch samples of a step, over all ranks. @param steps those that warm up too."""
    return EXPERIMENT.format(**locals(), strategy="single" if ranks == 1 else "ddp")


def run(strata, mpiexec, text, ranks=1) -> Recorded:
    """One point, waited for."""
    return finished(started(strata, mpiexec, text, ranks))


def started(strata, mpiexec, text, ranks=1):
    """What finished() takes. Several may be under way."""
    folder = tempfile.TemporaryDirectory()
    file = pathlib.Path(folder.name) / "bench.toml"
    file.write_text(text)
    words = [mpiexec, "-n", str(ranks), strata, "run", file, "--results", folder.name, "--quiet"]
    return folder, subprocess.Popen(words, stdout=subprocess.DEVNULL)


def finished(under_way) -> Recorded:
    """@throws RuntimeError where the run did not end well."""
    folder, process = under_way
    with folder:
        if process.wait() != 0:
            raise RuntimeError(f"{' '.join(map(str, process.args))}: ended with {process.returncode}")
        (lines,) = pathlib.Path(folder.name).glob("bench/*/1.jsonl")
        return recorded(lines.read_text())


def recorded(text) -> Recorded:
    rows = [json.loads(line) for line in text.splitlines()]
    return Recorded(rows[0], [row for row in rows if row["kind"] == "step"], rows[-1])

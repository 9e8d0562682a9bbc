"""What a machine's software stack reached in measured training iterations of transformers: the section
[transformer_costs] of a cluster file, whose fitted numbers are the parameters of transformer_iteration.py. They are
effective numbers of whole iterations, not of single kernels or wires; those are the cluster's own fields.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from strata_analysis.load import LoadError
from strata_analysis.measured_runs import LARGEST_COUNT, RECOMPUTATIONS, did_you_mean, read_text

SECTION = "transformer_costs"
# The fitted numbers. One that ends in _share is of a nameplate: at most 1.
COSTS = (
    # Arithmetic and memory of a layer.
    "product_share",  # of the peak: matrix products in full waves of large tiles, and logits with tensor parallelism
    "small_tile_share",  # of that: small tiles
    "memory_share",  # of the memory bandwidth: everything elementwise
    # The host that launches a layer's kernels, forward and backward.
    "launch_seconds",  # without tensor parallelism
    "full_node_launch_factor",  # of that, where a tensor group fills a node
    "unfused_softmax_seconds",  # more, where the fused softmax does not apply
    "launch_overlap_exponent",  # q: device and host overlap as (device^q + host^q)^(1/q)
    # Tensor parallelism: each all-reduce of a layer.
    "tensor_latency_seconds",
    "tensor_bandwidth_bytes_per_second",  # bus bandwidth inside a node; sends to a stage and gradients there, too
    # Stages.
    "slot_seconds",  # one micro-batch through one stage, beside its layers
    # Between nodes.
    "node_bandwidth_bytes_per_second",  # out of a node, one direction, all its NICs; its ranks share it
    # Output layer and loss.
    "unsharded_head_share",  # of the peak: logits without tensor parallelism, whose vocabulary is not padded
    # Once a step.
    "step_seconds",
)
# A layer's shape, and with the micro-batch what a ratio is measured of.
SHAPE = ["hidden_size", "attention_heads", "sequence_length", "tensor_parallelism"]
CELL = [*SHAPE, "micro_batch"]
WORDS = {
    "recomputation_on_one_node": RECOMPUTATIONS,
    "recomputation_on_many_nodes": RECOMPUTATIONS,
    "dtype": ("bf16", "f16"),
}
INTERVAL_SHARE = 0.9
# What a prediction stands on, by IterationEstimate.basis: a ratio of its own cell, of other micro-batches, or none.
KNOWN_OF = {"measured": "cell", "interpolated": "shape", "extrapolated": "shape", "formula": "formula"}
INTERVALS = ("interval_on_one_node", "interval_on_many_nodes")
KEYS = (*COSTS, "vocabulary_size", *WORDS, "multiprocessors", *INTERVALS, "layers")


@dataclass(frozen=True)
class FittedCluster:
    """A cluster's fitted costs, and what of its own fields the closed form asks for."""

    costs: dict[str, float | np.ndarray]  # by COSTS: a number, or a column (sets, 1) of several sets at once
    devices_per_node: int
    memory_bandwidth_bytes_per_second: float
    peak_flops_per_second: float  # of the dtype, which the shares are of
    multiprocessors: int  # of a device: so many tiles of a product are computed at once
    # What tables of measurements do not say.
    vocabulary_size: int
    recomputation_on_one_node: str = "none"
    recomputation_on_many_nodes: str = "none"
    # How much longer a layer took, forward and backward, than the formula says: by CELL.
    ratios: dict[tuple[int, ...], float] = field(default_factory=dict)
    # Of |ln(measured / predicted)| of rows that a fit did not see: what a share INTERVAL_SHARE of them stays within, on
    # one node and on more, by the values of KNOWN_OF. Empty where the file has none.
    intervals: tuple[dict[str, float], ...] = ()


def read_fitted_cluster(file: str | Path) -> FittedCluster:
    """@param file a cluster's TOML; strata itself has checked its other fields.

    @raises LoadError with file, line, key and what is accepted."""
    text = read_text(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LoadError(f"{file}: not TOML: {error}") from None
    if SECTION not in content:
        raise LoadError(f"{file}: no section [{SECTION}] to predict iterations with")
    section = _Table(content[SECTION], SECTION, str(file), text)
    section.check_keys(KEYS, optional=("layers", *INTERVALS))
    costs = {name: section.real(name, is_share=name.endswith("_share")) for name in COSTS}
    words = {name: section.word(name, accepted) for name, accepted in WORDS.items()}
    dtype = words.pop("dtype")
    cluster = _Table(content, "", str(file), text)
    peaks = cluster.table("peak_flops_per_second")
    if dtype not in peaks.content:
        section.fail("dtype", f"{dtype} is not in peak_flops_per_second")
    return FittedCluster(
        costs=costs,
        devices_per_node=cluster.count("devices_per_node") if "devices_per_node" in content else 1,
        memory_bandwidth_bytes_per_second=cluster.real("memory_bandwidth_bytes_per_second"),
        peak_flops_per_second=peaks.real(dtype),
        multiprocessors=section.count("multiprocessors"),
        vocabulary_size=section.count("vocabulary_size"),
        **words,
        ratios=_ratios(section),
        intervals=_intervals(section),
    )


def _intervals(section: _Table) -> tuple[dict[str, float], ...]:
    """Both or none."""
    said = [key for key in INTERVALS if key in section.content]
    if len(said) == 1:
        section.fail(said[0], f"needs {' and '.join(INTERVALS)}")
    widths = []
    for key in said:
        table = _Table(section.content[key], f"{SECTION}.{key}", section.file, section.text, line=section.line_of(key))
        known = tuple(dict.fromkeys(KNOWN_OF.values()))
        table.check_keys(known)
        widths.append({name: table.real(name) for name in known})
    return tuple(widths)


def _ratios(section: _Table) -> dict[tuple[int, ...], float]:
    layers = section.content.get("layers", [])
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        section.fail("layers", "a list of tables is accepted")
    ratios: dict[tuple[int, ...], float] = {}
    last: tuple[int, ...] = ()
    for i, content in enumerate(layers):
        layer = _Table(content, f"{SECTION}.layers[{i}]", section.file, section.text, line=section.line_of("layers"))
        layer.check_keys((*CELL, "ratio"))
        cell = tuple(layer.count(name) for name in CELL)
        if cell <= last:
            section.fail(
                "layers", f"not after the one before it; accepted: ascending by {', '.join(CELL)}", path=layer.path
            )
        ratios[cell] = layer.real("ratio")
        last = cell
    return ratios


@dataclass(frozen=True)
class _Table:
    """A table of the file, and messages that point into it."""

    content: dict
    path: str
    file: str
    text: str
    line: int = 0  # of all messages; 0: that of the key in question

    def __post_init__(self) -> None:
        if not isinstance(self.content, dict):
            raise LoadError(f"{self.file}: {self.path}: a table is accepted")

    def fail(self, key: str, message: str, path: str = "") -> None:
        full = path or f"{self.path}.{key}".lstrip(".")
        raise LoadError(f"{self.file}:{self.line or self.line_of(key)}: {full}: {message}")

    def line_of(self, key: str) -> int:
        """Where the key stands behind its table's header; where it does not stand, the header's line, or the first."""
        header = re.search(rf"(?m)^\s*\[\s*{re.escape(self.path)}\s*\]", self.text) if self.path else None
        found = re.compile(rf"(?m)^\s*\[*[\"']?{re.escape(key)}[\"']?\s*[=.\]]").search(
            self.text, header.end() if header else 0
        )
        place = found or header
        return self.text.count("\n", 0, place.end()) + 1 if place else 1

    def check_keys(self, known: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
        for key in self.content:
            if key not in known:
                self.fail(key, f"unknown key{did_you_mean(key, known)}; accepted: {', '.join(known)}")
        for key in known:
            if key not in self.content and key not in optional:
                self.fail(key, "missing")

    def table(self, key: str) -> _Table:
        return _Table(self.content.get(key, {}), key, self.file, self.text)

    def real(self, key: str, is_share: bool = False) -> float:
        value = self.content.get(key, 0.0)
        accepted = "> 0 and <= 1" if is_share else "> 0"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(key, f"{value!r} where a number {accepted} is accepted")
        if not 0.0 < value < math.inf or (is_share and value > 1.0):
            self.fail(key, f"{value} is out of range; accepted: {accepted}")
        return float(value)

    def count(self, key: str) -> int:
        value = self.content[key]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{value!r} where an integer >= 1 is accepted")
        if not 1 <= value <= LARGEST_COUNT:
            self.fail(key, f"{value} is out of range; accepted: 1 to {LARGEST_COUNT}")
        return value

    def word(self, key: str, accepted: tuple[str, ...]) -> str:
        value = self.content[key]
        if value not in accepted:
            near = did_you_mean(value, accepted) if isinstance(value, str) else ""
            self.fail(key, f"unknown word {value!r}{near}; accepted: {' | '.join(accepted)}")
        return value

"""The only reader of tables of measured training runs: CSV with a line of column names, one run a line, and comments on
lines that begin with '#'. Columns are known by name, in any order; an unknown one is an error, so that nothing that
changes a run is ever ignored.
"""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path

import pandas as pd

from strata_analysis.load import LoadError

COUNTS = (
    "num_gpus",
    "global_batch",  # sequences a step, over all replicas
    "micro_batch",  # sequences of one micro-batch
    "hidden_size",
    "attention_heads",
    "layers",
    "sequence_length",
    "tensor_parallelism",  # ranks that share each layer
    "data_parallelism",  # replicas
    "pipeline_parallelism",  # stages
)
OPTIONAL_COUNTS = (
    "vocabulary_size",
    "virtual_stages",  # pieces of a stage that are interleaved (Narayanan et al. 2021, sec. 2.2)
)
# What the backward pass computes again: nothing, the attention core (scores, softmax, its dropout, their product with
# the values; Korthikanti et al., arXiv 2205.05198, sec. 5), or the whole layer from its input.
RECOMPUTATIONS = ("none", "selective", "full")
SEQUENCE_PARALLEL = ("yes", "no")  # whether what tensor parallelism leaves whole is split along the sequence
WORDS = {"recomputation": RECOMPUTATIONS, "sequence_parallel": SEQUENCE_PARALLEL}
REMARKS = ("parameters_billion", "name")
QUANTITIES = (
    "iteration_time_ms",
    "activation_bytes_per_layer",  # kept by one layer, of one micro-batch, on one rank
    "activation_bytes",  # kept by a rank of the first stage
)
COLUMNS = (*COUNTS, *OPTIONAL_COUNTS, *WORDS, *REMARKS, *QUANTITIES)
LARGEST_COUNT = 2_000_000  # of any count of a run, so that products of three do not overflow
INTEGER = re.compile(r"-?[0-9]{1,19}")
REAL = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|-?inf|nan", re.IGNORECASE)
BLANK = " \t\r"


def read_text(file: str | Path) -> str:
    """Of a file that a user named. @raises LoadError with the file and why it cannot be read."""
    try:
        return Path(file).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise LoadError(f"{file}: cannot be read: {error.strerror}") from None


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """What a message says of an unknown name; empty where no known one is near."""
    nearest = difflib.get_close_matches(name[:200], known, 1)
    return f'; did you mean "{nearest[0]}"?' if nearest else ""


def parse_measured_runs(text: str, file: str) -> pd.DataFrame:
    """One row a run: its `line` in the file, COUNTS, `virtual_stages` (1) and `sequence_parallel` ("no") also where the
    table has no such column, `vocabulary_size` and `recomputation` only where it has, `quantity` (one of QUANTITIES,
    the same in all rows) and `measured` in its unit, > 0.

    The table needs COUNTS and exactly one of QUANTITIES. @param file for messages.
    @raises LoadError "file:line: column: what is wrong; what is accepted"."""
    if "\0" in text:
        raise LoadError(f"{file}: not a text file; accepted: CSV")
    columns: list[str] = []
    rows = []
    for number, text_of_line in enumerate(text.split("\n"), start=1):
        line = text_of_line.strip(BLANK)
        if not line or line.startswith("#"):
            continue
        cells = [cell.strip(BLANK) for cell in line.split(",")]
        place = f"{file}:{number}"
        if not columns:
            columns = _columns(cells, place)
        elif len(cells) != len(columns):
            raise LoadError(f"{place}: {len(cells)} values under {len(columns)} columns")
        else:
            rows.append({"line": number} | _run(dict(zip(columns, cells, strict=True)), place))
    if not rows:
        raise LoadError(f"{file}: no rows; accepted: a line of column names, then one run a line")
    return pd.DataFrame(rows)


def _columns(names: list[str], place: str) -> list[str]:
    """The header's names, which are known, differ, and are enough."""
    for i, name in enumerate(names):
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise LoadError(f"{place}: {name}: unknown column{near}; accepted: {', '.join(COLUMNS)}")
        if name in names[:i]:
            raise LoadError(f"{place}: {name}: a column of this name stands before it")
    for name in COUNTS:
        if name not in names:
            raise LoadError(f"{place}: {name}: missing column")
    num_quantities = sum(name in QUANTITIES for name in names)
    if num_quantities != 1:
        accepted = f"accepted: one of {', '.join(QUANTITIES)}"
        raise LoadError(f"{place}: the measured quantity: {num_quantities} columns; {accepted}")
    return names


def _run(cells: dict[str, str], place: str) -> dict:
    run: dict = {"virtual_stages": 1, "sequence_parallel": "no"}
    for name, cell in cells.items():
        if name in COUNTS or name in OPTIONAL_COUNTS:
            run[name] = _count(cell, f"{place}: {name}")
        elif name in WORDS:
            if cell not in WORDS[name]:
                *first, last = WORDS[name]
                raise LoadError(f'{place}: {name}: "{cell}" where {", ".join(first)} or {last} is accepted')
            run[name] = cell
        elif name in QUANTITIES:
            run |= {"quantity": name, "measured": _quantity(cell, f"{place}: {name}")}
    _verify(run, place)
    return run


def _where_accepted(cell: str, accepted: str) -> str:
    return f'"{cell}" where {accepted} is accepted' if cell else f"empty; accepted: {accepted}"


def _count(cell: str, place: str) -> int:
    if not INTEGER.fullmatch(cell):
        raise LoadError(f"{place}: {_where_accepted(cell, 'an integer >= 1')}")
    if not 1 <= int(cell) <= LARGEST_COUNT:
        raise LoadError(f"{place}: {int(cell)} is out of range; accepted: 1 to {LARGEST_COUNT}")
    return int(cell)


def _quantity(cell: str, place: str) -> float:
    if not REAL.fullmatch(cell):
        raise LoadError(f"{place}: {_where_accepted(cell, 'a number > 0')}")
    if not 0.0 < float(cell) < math.inf:
        raise LoadError(f"{place}: {cell} is out of range; accepted: a finite number > 0")
    return float(cell)


def _verify(run: dict, place: str) -> None:
    """@raises LoadError naming the column and its numbers where they contradict each other."""
    tensor, data, pipeline = (run[f"{kind}_parallelism"] for kind in ("tensor", "data", "pipeline"))
    if run["num_gpus"] != tensor * data * pipeline:
        product = "tensor_parallelism x data_parallelism x pipeline_parallelism"
        raise LoadError(f"{place}: num_gpus: {run['num_gpus']}, but {product} = {tensor} x {data} x {pipeline}")
    for name, factors in (
        ("global_batch", ("micro_batch", "data_parallelism")),
        ("hidden_size", ("attention_heads",)),
        ("attention_heads", ("tensor_parallelism",)),
        ("layers", ("pipeline_parallelism", "virtual_stages")),
    ):
        numbers = [run[factor] for factor in factors]
        if run[name] % math.prod(numbers) != 0:
            product = f"{' x '.join(factors)} = {' x '.join(map(str, numbers))}"
            raise LoadError(f"{place}: {name}: {run[name]} is no multiple of {product}")
    if pipeline == 1 and run["virtual_stages"] > 1:
        stages = run["virtual_stages"]
        raise LoadError(f"{place}: virtual_stages: {stages} with one stage; they need pipeline_parallelism > 1")

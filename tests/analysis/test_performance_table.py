"""The README's performance table, from measurements that are made up: what it says, what it keeps, where it goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import compare_pytorch  # noqa: E402
import performance_table  # noqa: E402
import weak_scaling  # noqa: E402
from performance_sections import SECTIONS, Section, duration, number  # noqa: E402

FACTS = {
    "date": "2026-02-03",
    "commit": "0123456789ab",
    "busy_cores": 0.02,
    "processor": "EPYC (family 26 model 2)",
    "cores": 2,
    "instruction_set": "avx512_bf16",
    "libraries": ["GNU 12.2.0", "oneDNN 2.6.3", "MPICH 4.0.2"],
}
COST = {"seconds": 4.0, "user_seconds": 5.5, "system_seconds": 0.5, "mebibytes": 200.4, "exit_code": 0}
MEASURED = {
    "training": {
        "torch": "2.15.0+cu132",
        "threads": 2,
        "cases": [
            {
                "model": "gpt2-small",
                "dtype": "fp32",
                "batch": 4,
                "sample_unit": "token",
                "samples_per_step": 4096,
                "num_parameters": 124439808,
                "model_flops_per_step": 3.2e12,
                "peak_flops_per_second": 4e11,
                "strata_seconds": [10.0, 8.0, 16.0],
                "eager_seconds": [12.0, 16.0, 16.0],
                "compiled_seconds": [9.0, 8.8, 12.0],
            }
        ],
    },
    "scaling": [
        {
            "model": "vgg13",
            "dtype": "bf16",
            "batch": 8,
            "alone_seconds": [1.0, 2.0, 1.0],
            "beside_seconds": [1.0, 2.0, 1.25],
            "together_seconds": [1.25, 2.0, 1.25],
            "communication_share": [0.1, 0.1, 0.1],
            "exposed_share": [0.01, 0.02, 0.03],
        }
    ],
    "collectives": [
        {"ranks": 2, "bytes": 8, "seconds": 4e-6, "mpi_seconds": 1e-6, "bound_seconds": 1e-8},
        {"ranks": 2, "bytes": 64, "seconds": 4e-6, "mpi_seconds": 1e-6, "bound_seconds": 1e-8},
        {"ranks": 2, "bytes": 64 << 20, "seconds": 1e-2, "mpi_seconds": 4.5e-2, "bound_seconds": 8.5e-3},
    ],
    "recording": {
        "model": "gpt-micro",
        "ranks": 4,
        "cores": 2,
        "recording_seconds": [16e-6, 20e-6],
        "step_seconds": [1e-2, 1e-2],
    },
    "figure_11": {
        "num_points": 101,
        "num_figures": 16,
        "simulated": COST,
        "drawn": COST | {"seconds": 6.5},
    },
    "many_ranks": [
        ["llama-30b", "zero3", 1024, 0.1, 40.0],
        ["llama-30b", "amsp", 1024, 0.2, 30.0],
        ["llama-30b", "zero3", 16384, 2.5, 60.0],
        ["llama-30b", "zero3", 131072, 3.0, 600.0],
    ],
    "analysis": {
        "num_points": 100,
        "num_runs": 10,
        "num_steps": 1000,
        "costs": {"start": COST | {"seconds": 0.05}, "report": COST | {"mebibytes": 1100.0}},
    },
}
KEPT = {name: {"facts": FACTS, "measured": measured} for name, measured in MEASURED.items()}


def cells(kept):
    """Rows of the table by their first cell."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in performance_table.table_of(kept).split("\n")
    ]
    assert len({len(line) for line in lines}) == 1, "as many cells in every line"
    return {what: rest for what, *rest in lines[2:]}


def test_every_section_has_its_rows():
    assert list(MEASURED) == list(SECTIONS)
    table = cells(KEPT)
    assert table["train gpt2-small, fp32, batch 4, 2 threads"] == [
        "410 tokens/s",
        "PyTorch 2.15.0 eager 256, compiled 455",
        "1.20, 0.90",
        "products at 400 GFLOP/s: 80%",
        "≥ 2 of compiled, or 90% of products (missed)",
    ]
    assert table["weak scaling of vgg13, bf16, ddp, 8 samples a rank"] == [
        "2 ranks: 1.25 s, 2.0% exposed communication",
        "1 rank: 1 s",
        "0.800",
        "1; of two runs apart at once 1.000",
        "≥ 0.95 (missed)",
    ]
    assert table["all-reduce of 8 B, 2 ranks"] == ["4 µs", "MPI_Allreduce 1 µs", "0.25", "", "≥ 1 (missed)"]
    assert table["all-reduce of 64 MiB, 2 ranks"] == [
        "10 ms",
        "MPI_Allreduce 45 ms",
        "4.5",
        "memory 8.5 ms: 85%",
        "≥ 1",
    ]
    assert not any("64 B" in what for what in table), "the figure has the others"
    assert table["recording, a step of 4 ranks"] == [
        "18 µs of a core",
        "step of 10 ms on 2 cores",
        "0.09%",
        "",
        "< 0.1%",
    ]


def test_what_has_no_peer_is_held_to_its_aim():
    aims = {what: rest[-1] for what, rest in cells(KEPT).items()}
    assert [aims[what] for what in aims if "figure 11" in what] == ["< 15 s of processors"]
    assert [aims[what] for what in aims if "16 figures" in what] == ["< 6 s of processors (missed)"]
    ranks = [(what, aim) for what, aim in aims.items() if "a point of" in what]
    assert [aim for _, aim in ranks] == ["< 1 s, 500 MiB", "< 2 s, 500 MiB (missed)", "< 5 s, 500 MiB (missed)"]
    assert "the slowest of 2 (llama-30b, amsp)" in ranks[0][0]
    assert cells(KEPT)["`strata_analysis --help`"][0] == "0.05 s, 6.00 s of processors, 200 MiB"
    assert aims["`strata report`: 1,000 attempts of 1,000 steps"] == "< 10 s, 1024 MiB (missed)"


def test_the_caption_has_all_that_sections_were_measured_with():
    later = {"date": "2026-02-05", "busy_cores": 1.5, "commit": "fedcba987654"}
    kept = KEPT | {"recording": {"facts": FACTS | later, "measured": MEASURED["recording"]}}
    assert performance_table.caption_of(kept) == (
        "Measured 2026-02-03 to 2026-02-05 at commit 0123456789ab and fedcba987654 on 2 cores of EPYC (family 26 model "
        "2), instructions avx512_bf16; GNU 12.2.0, oneDNN 2.6.3, MPICH 4.0.2, PyTorch 2.15.0+cu132. Before a section "
        "other work kept 1.50 cores busy at most."
    )
    alone = performance_table.caption_of({"recording": KEPT["recording"]})
    assert alone.startswith("Measured 2026-02-03 at commit 0123456789ab on 2 cores")
    assert "PyTorch" not in alone


def test_the_table_replaces_what_stood_in_its_place():
    text = "before\n<!-- performance -->\nold\n<!-- end -->\nafter\n<!-- strata: amsp table_5 -->\nits\n<!-- end -->\n"
    new = performance_table.written(text, KEPT)
    assert new.startswith("before\n<!-- performance -->\n|")
    assert "old" not in new and new.count("<!-- end -->") == 2
    assert new.endswith("most.\n<!-- end -->\nafter\n<!-- strata: amsp table_5 -->\nits\n<!-- end -->\n")
    assert performance_table.written(new, KEPT) == new
    with pytest.raises(ValueError, match="performance"):
        performance_table.written("no place", KEPT)
    performance_table.written((ROOT / "README.md").read_text(encoding="utf-8"), KEPT)


def test_a_section_is_measured_again_alone_and_keeps_what_it_had_where_it_fails(tmp_path, monkeypatch):
    def fails(_):
        raise RuntimeError("no such machine")

    file = tmp_path / "build" / "performance.json"
    words = SimpleNamespace(measured=file)
    monkeypatch.setattr(performance_table, "facts_now", lambda _: FACTS)
    sections = {"one": Section(lambda _: [1], list), "two": Section(lambda _: [2], list)}
    monkeypatch.setattr(performance_table, "SECTIONS", sections)
    assert performance_table.measure(words, ["one", "two"]) == []
    sections["one"] = Section(fails, list)
    sections["two"] = Section(lambda _: [3], list)
    assert performance_table.measure(words, ["one", "two"]) == ["one"]
    kept = json.loads(file.read_text())
    assert {name: entry["measured"] for name, entry in kept.items()} == {"one": [1], "two": [3]}


def test_ratios_are_of_turns_that_were_measured_together():
    """The machine was half as fast in the second round: that is no ratio."""
    assert compare_pytorch.median_ratio([2.0, 4.0, 2.0], [1.0, 2.0, 1.0]) == 2.0
    assert weak_scaling.efficiency({"alone_seconds": [1.0, 2.0, 1.0], "together_seconds": [1.0, 2.0, 1.0]}) == 1.0


def test_cases_are_chosen_by_name():
    assert compare_pytorch.cases_of("vgg13,gpt2-small/bf16") == [
        ("gpt2-small", "bf16"),
        ("vgg13", "fp32"),
        ("vgg13", "bf16"),
    ]
    assert len(compare_pytorch.cases_of("")) == 2 * len(compare_pytorch.BATCHES)
    with pytest.raises(SystemExit, match="no case vgg31"):
        compare_pytorch.cases_of("vgg31")


def test_numbers_have_three_digits():
    assert [number(value) for value in (0.01234, 1.0, 23.45, 99.96, 123.4, 41234.5)] == [
        "0.0123", "1", "23.4", "100", "123", "41,234",
    ]  # fmt: skip
    assert [duration(value) for value in (2e-7, 5e-6, 0.02, 3.456, 250.0)] == [
        "0.2 µs", "5 µs", "20 ms", "3.46 s", "250 s",
    ]  # fmt: skip

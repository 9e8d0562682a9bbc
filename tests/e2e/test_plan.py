"""What is printed comes back: plans and programs."""

import json
import re
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
from solved_by_highs import solved


def summary(folder):
    return json.loads(next(folder.glob("results/e2e/*/*.jsonl")).read_text().splitlines()[-1])


def checksums(results):
    """Of all attempts, the last one of those that ran last."""
    ends = [json.loads(path.read_text().splitlines()[-1]) for path in sorted(results.glob("e2e/*/*.jsonl"))]
    return [end["parameter_checksum"] for end in ends]


def test_a_printed_plan_trains_what_the_planner_would(strata, experiment, tmp_path):
    file = experiment()
    plan = tmp_path / "plan.toml"
    plan.write_text(strata(None, "plan", file).output)
    assert strata(2, "run", file).code == 0
    planned = summary(tmp_path)
    assert strata(2, "run", file, "--plan", plan, "--results", tmp_path / "again").code == 0
    again = json.loads(next(tmp_path.glob("again/e2e/*/1.jsonl")).read_text().splitlines()[-1])
    assert planned["status"] == again["status"] == "ok"
    assert planned["parameter_checksum"] == again["parameter_checksum"]


def test_an_edited_plan_runs_as_edited(strata, experiment, tmp_path):
    file = experiment()
    text = strata(None, "plan", file).output
    assert 'recompute = "none"' in text
    plan = tmp_path / "plan.toml"
    plan.write_text(text.replace('recompute = "none"', 'recompute = "block"').replace("26214400", "4096"))
    program = strata(None, "program", file, "--plan", plan).output
    assert "recompute" in program
    assert program.count(" all_reduce ") > strata(None, "program", file).output.count(" all_reduce ")
    assert strata(2, "run", file, "--plan", plan).code == 0


def test_a_programs_costs_are_listed_and_summed(strata, experiment):
    words = ("program", experiment(), "--costs", "--set", "cluster=h200-ib", "--set", "train.dtype=bf16")
    ended = strata(None, *words)
    assert ended.code == 0, ended.error
    head, _, *lines = ended.output.splitlines()
    assert head == "# on H200 SXM 141 GB of cluster h200-ib, by nameplate: 4800 GB/s, 989 TFLOP/s in bf16"
    empty = lines.index("")
    rows = [line.split() for line in lines[:empty] if " link " not in line]
    sums = {line[:30].strip(): line[30:].split() for line in lines[empty + 2 :]}
    assert len(rows) > 50
    # index, phase, kernel, dtype, bytes, GFLOP, microseconds, bound, name
    everything = sums.pop("all kernels")
    assert sum(int(row[4]) for row in rows) == int(everything[1])
    assert sum(int(sums[kernel][1]) for kernel in sums if kernel != "collectives, sent") == int(everything[1])
    seconds = [float(sums[kernel][3]) for kernel in sums if kernel != "collectives, sent"]
    assert seconds == sorted(seconds, reverse=True) and int(everything[0]) == len(rows)
    assert int(sums["collectives, sent"][1]) > 0


def test_costs_on_a_gpu_say_whose_attention_it_is_and_what_its_masks_move(strata):
    words = ("program", ROOT / "experiments" / "gpu" / "gpt2_small.toml", "--costs", "--set", "cluster=h200-ib")
    note = strata(None, *words).output.splitlines()[-1]
    assert note == "# attention by cudnn"
    note = strata(None, *words, "--set", "model.dropout=0.1").output.splitlines()[-1]
    # Of 12 layers, forward and backward, each made and read: a bf16 mask of 8 sequences, 12 heads, 1024 x 1024 scores.
    mask = 8 * 12 * 1024 * 1024 * 2
    assert note == f"# attention by cudnn; its dropout masks move {12 * 4 * mask} bytes more, which are not among these"
    ours = strata(None, *words, "--set", "cuda.attention=strata", "--set", "model.dropout=0.1").output.splitlines()[-1]
    assert ours == "# attention by strata"


def test_costs_need_a_device_that_is_described_and_the_text_form(strata, experiment):
    ended = strata(None, "program", experiment(), "--costs")
    assert ended.code == 2
    assert "peak_flops_per_second.f32 is missing" in ended.messages()[0]
    ended = strata(None, "program", experiment(), "--costs", "--format", "goal")
    assert ended.code == 2 and "--format goal" in ended.messages()[0]


def test_a_plan_for_another_mesh_is_refused(strata, experiment, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(strata(None, "plan", experiment(ranks=4)).output)
    ended = strata(2, "run", experiment(ranks=2), "--plan", plan)
    assert ended.code == 2
    assert "4 ranks" in ended.messages()[0]


def test_a_plan_asking_for_what_cannot_be_lowered_is_refused_by_name(strata, experiment, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(strata(None, "plan", experiment()).output.replace('kind = "simultaneous"', 'kind = "cyclic"'))
    ended = strata(2, "run", experiment(), "--plan", plan)
    assert ended.code == 3
    assert "schedule.kind = cyclic" in ended.messages()[0]


def test_a_printed_plan_of_stages_comes_back(strata, experiment, tmp_path):
    file = experiment(replace=[('name = "ddp"', 'name = "gpipe"'), ("steps = 8", "steps = 8\nmicro_batches = 2")])
    plan = tmp_path / "plan.toml"
    plan.write_text(strata(None, "plan", file).output)
    assert 'kind = "gpipe"' in plan.read_text() and "stage = 2" in plan.read_text()
    planned = strata(None, "program", file, "--rank", "1").output
    assert strata(None, "program", file, "--plan", plan, "--rank", "1").output == planned
    plan.write_text(plan.read_text().replace('kind = "gpipe"', 'kind = "1f1b"'))
    assert strata(None, "program", file, "--plan", plan, "--rank", "1").output != planned
    assert strata(2, "run", file, "--plan", plan).code == 0


def test_more_stages_than_blocks_are_refused_with_numbers(strata, experiment):
    strategy = 'name = "1f1b"\nstages = 3'
    ended = strata(3, "run", experiment(ranks=3, replace=[('name = "ddp"', strategy)]))
    assert ended.code == 3
    assert ended.messages()[0].endswith("3 stages on 3 ranks, but gpt-nano has 2 blocks, and a stage has one or more")


def test_programs_differ_by_rank_in_their_data_alone(strata, experiment):
    file = experiment()
    first = strata(None, "program", file, "--rank", "0").output.splitlines()
    second = strata(None, "program", file, "--rank", "1").output.splitlines()
    assert len(first) == len(second)
    different = [a for a, b in zip(first, second, strict=True) if a != b]
    assert all("program rank" in line or "first_sample" in line or "first_element" in line for line in different)
    assert strata(None, "program", file, "--rank", "2").code == 2


def test_the_order_of_a_step_is_printed_and_drawn(strata, experiment, tmp_path):
    file = experiment(replace=[('name = "ddp"', 'name = "gpipe"'), ("steps = 8", "steps = 8\nmicro_batches = 2")])
    orders = strata(None, "order", file).output
    assert [line for line in orders.splitlines() if line.startswith("#")] == ["# ranks 0 of 2", "# ranks 1 of 2"]
    of_one = strata(None, "order", file, "--rank", "1").output
    assert of_one in orders and of_one.startswith("# ranks 1 of 2\norder micro_batches=2 ")
    passes = [line.split()[0] for line in of_one.splitlines() if "micro_batch=" in line]
    assert passes == ["forward", "forward", "backward", "backward"]
    picture = tmp_path / "order.png"
    drawn = strata(None, "order", file, "--picture", picture)
    assert drawn.code == 0 and drawn.output.strip() == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_plan_says_why_in_words_and_as_a_page(strata, experiment, tmp_path):
    file = experiment(replace=[('name = "ddp"', 'name = "auto"\npoints = 1\nbeam = 1')])
    described = ("--set", "cluster=a800-ib")
    page = tmp_path / "plan.html"
    ended = strata(None, "plan", file, *described, "--page", page)
    assert ended.code == 0, ended.messages()
    assert ended.output.startswith("auto on 1 nodes x 2 ranks, 12 samples a step\npredicted: ")
    for title in ("What it decides", "What the next choice of each decision costs", "What single modes plan here"):
        assert title in ended.output
    assert ended.output.strip().endswith(str(page)) and "<svg " in page.read_text()
    assert strata(None, "plan", file, *described, "--explain").output in ended.output
    refused = strata(None, "plan", file, "--format", "mps", "--explain")
    assert refused.code == 2 and "--explain is about what it finds" in refused.messages()[0]


def test_a_picture_of_another_kind_and_a_rank_too_many_are_refused(strata, experiment, tmp_path):
    ended = strata(None, "order", experiment(), "--picture", tmp_path / "order.gif")
    assert ended.code == 2 and "accepted: .png, .svg, .pdf" in ended.messages()[0]
    ended = strata(None, "order", experiment(), "--rank", "2")
    assert ended.code == 2 and "accepted: 0 … 1" in ended.messages()[0]


def test_degrees_of_published_models_cost_what_another_solver_finds(strata, tmp_path):
    """Oases' table 4: seven models on two clusters, through the linear programs that `plan` writes for any solver."""
    file = ROOT / "experiments" / "oases" / "table_2.toml"
    points = range(1, 28, 2)  # those of the mode, each behind its baseline
    costs = []
    for point in points:
        ended = strata(None, "plan", file, "--point", point, "--format", "mps")
        assert ended.code == 0, ended.error
        program = tmp_path / f"{point}.mps"
        program.write_text(ended.output)
        costs.append(float(re.search(r"strata's own search: ([\d.]+) s", ended.output)[1]))
        assert costs[-1] == pytest.approx(solved(program), rel=1e-9)
    assert len(set(costs)) > 7

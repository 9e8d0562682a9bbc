"""Cyclic data parallelism on one rank, a rank a stage, a rank a micro-batch, a pyramid, and parameters that walk."""

import json

import pytest

IMPLEMENTATIONS = {"multi": 2, "pipeline": 2, "single": 1, "model": 3, "zero": 2}  # ranks


@pytest.fixture
def cyclic(experiment):
    """Two micro-batches of a model whose head is its own: its stages have versions of their own."""
    untied = ('name = "gpt-nano"', 'name = "gpt-nano"\ntied_head = false')
    return experiment(replace=[untied, ("steps = 8", "steps = 8\nmicro_batches = 2\nclip_norm = 0.0")])


def records(results):
    """Of the last attempt."""
    (path,) = results.glob("e2e/*/1.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(strata, file, results, mode, implementation, **sets):
    ranks = IMPLEMENTATIONS[implementation]
    settings = {
        "strategy.name": mode,
        "strategy.implementation": implementation,
        "resources.ranks_per_node": ranks,
        **sets,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ended = strata(ranks, "run", file, "--results", results, *words)
    assert ended.code == 0, ended.error
    return records(results)


@pytest.mark.parametrize("warmup_steps", [0, 2])
def test_measured_memory_is_the_programs(strata, cyclic, tmp_path, warmup_steps):
    """Also where many steps were over before any was reported."""
    rows = train(strata, cyclic, tmp_path, "cdp-v1", "single", **{"measure.warmup_steps": warmup_steps})
    words = ("--set", "strategy.name=cdp-v1", "strategy.implementation=single", "resources.ranks_per_node=1")
    program = strata(None, "program", cyclic, *words).output
    arena_bytes = int(program.split(" arena=", 1)[1].split()[0])
    measured = [row["arena_peak_bytes"] for row in rows if row["kind"] == "step"]
    assert measured == [arena_bytes] * 8


# Which rule is trained decides nothing of what a checkpoint holds: each pair is gone through by one of them.
RESTARTS = {
    "cdp-v1": (("multi", "zero"), ("zero", "single"), ("single", "pipeline"), ("zero", "zero")),
    "cdp-v2": (("pipeline", "multi"), ("multi", "model"), ("model", "multi"), ("multi", "multi")),
}


@pytest.mark.parametrize("mode", ["cdp-v1", "cdp-v2"])
def test_all_implementations_are_one_training(strata, cyclic, tmp_path, mode):
    ends = {}
    for implementation in IMPLEMENTATIONS:
        rows = train(strata, cyclic, tmp_path / implementation, mode, implementation)
        losses = [row["loss"] for row in rows if row["kind"] == "step"]
        assert len(losses) == 8
        assert losses[-1] < losses[0]
        ends[implementation] = rows[-1]["parameter_checksum"]
    paced = {"strategy.shift": "paced"}
    ends["paced"] = train(strata, cyclic, tmp_path / "paced", mode, "multi", **paced)[-1]["parameter_checksum"]
    # A checkpoint in the middle of a body of two steps.
    saving = {"checkpoint.every": 5}
    ends["saved"] = train(strata, cyclic, tmp_path / "saved", mode, "multi", **saving)[-1]["parameter_checksum"]
    assert len(set(ends.values())) == 1, ends
    # Stopped behind an odd step, where versions that change places have done so, one goes on for another.
    for before, behind in RESTARTS[mode]:
        folder = tmp_path / f"{before}-{behind}"
        shift = paced if before == behind == "multi" else {}
        train(strata, cyclic, folder / "begun", mode, before, **{"train.steps": 3, "checkpoint.every": 3}, **shift)
        (saved,) = folder.glob("begun/e2e/*/checkpoints/step_3.h5")
        rows = train(strata, cyclic, folder / "ended", mode, behind, **{"checkpoint.restart_from": saved}, **shift)
        assert [row["step"] for row in rows if row["kind"] == "step"] == list(range(3, 8))
        assert rows[-1]["parameter_checksum"] == ends["single"], (before, behind)


def test_steps_that_fill_and_drain_ranks_are_marked_and_left_out(strata, cyclic, tmp_path):
    saving = {"checkpoint.every": 5, "measure.warmup_steps": 2, "measure.timeline_steps": 1}
    phases = {
        "single": "fill warmup measured measured drain fill measured drain",
        "multi": "fill fill measured measured drain fill fill drain",  # messages of a step are left to the next one
        "model": "fill fill measured measured drain fill fill drain",
    }
    for implementation, of_steps in phases.items():
        rows = train(strata, cyclic, tmp_path / implementation, "cdp-v2", implementation, **saving)
        steps = [row for row in rows if row["kind"] == "step"]
        assert [row["phase"] for row in steps] == of_steps.split(), implementation
        for phase in ("fill", "warmup", "measured", "drain"):
            assert rows[-1][f"num_{phase}_steps"] == of_steps.count(phase), implementation
        seconds = sorted(row["step_seconds_max"] for row in steps if row["phase"] == "measured")
        assert seconds[0] <= rows[-1]["median_step_seconds"] <= seconds[-1]
        assert {row["step"] for row in rows if row["kind"] == "event"} == {2}, "the first that is measured"
    rule = {"train.steps": 0, "measure.min_steps": 6, "measure.max_steps": 6}
    rows = train(strata, cyclic, tmp_path / "rule", "cdp-v2", "single", **rule)
    assert rows[-1]["num_measured_steps"] == 6
    assert [row["phase"] for row in rows if row["kind"] == "step"][-1] == "drain"


def test_clipped_gradients_are_those_of_all_stages(strata, cyclic, tmp_path):
    clipped = {"train.clip_norm": 0.5}
    ends = {}
    for implementation in ("multi", "single"):
        rows = train(strata, cyclic, tmp_path / implementation, "cdp-v1", implementation, **clipped)
        norms = [row["gradient_norm"] for row in rows if row["kind"] == "step"]
        assert max(norms) > 0.5, "something is clipped"
        ends[implementation] = (norms, rows[-1]["parameter_checksum"])
    assert ends["multi"] == ends["single"]


def test_v1_and_v2_differ(strata, cyclic, tmp_path):
    ends = {mode: train(strata, cyclic, tmp_path / mode, mode, "single")[-1] for mode in ("cdp-v1", "cdp-v2")}
    assert ends["cdp-v1"]["parameter_checksum"] != ends["cdp-v2"]["parameter_checksum"]


def test_what_ranks_are_not_is_refused_with_its_numbers(strata, cyclic):
    def refusal(ranks, *words):
        settings = ("strategy.name=cdp-v2", f"resources.ranks_per_node={ranks}", *words)
        ended = strata(None, "plan", cyclic, *(word for setting in settings for word in ("--set", setting)))
        assert ended.code == 3
        return ended.messages()[0]

    assert (
        "implementation = multi on 4 ranks takes as many micro-batches as ranks, train.micro_batches is 2; accepted: 4"
    ) in refusal(4)
    assert "implementation = single runs on one rank" in refusal(2, "strategy.implementation=single")
    assert "pipeline on 2 ranks takes as many stages as ranks, 1 were asked for" in refusal(
        2, "strategy.implementation=pipeline", "strategy.stages=1"
    )
    assert "zero on 2 ranks takes as many stages as ranks, 1 were asked for" in refusal(
        2, "strategy.implementation=zero", "strategy.stages=1"
    )
    assert "zero on 4 ranks takes as many micro-batches as ranks, train.micro_batches is 2; accepted: 4" in refusal(
        4, "strategy.implementation=zero"
    )
    assert "5 ranks a node are 5; accepted: 3 (N = 2), 6 (N = 3)" in refusal(5, "strategy.implementation=model")
    assert "model on 6 ranks takes 3 micro-batches, train.micro_batches is 2, whose pyramid takes 3 ranks" in refusal(
        6, "strategy.implementation=model"
    )
    assert "model on 3 ranks takes as many stages as micro-batches, 2; 1 were asked for" in refusal(
        3, "strategy.implementation=model", "strategy.stages=1"
    )
    assert "5 stages on 2 ranks, but gpt-nano has 2 blocks" in refusal(2, "strategy.stages=5")

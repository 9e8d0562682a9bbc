"""compare: pairing, verdicts, and how often they are wrong."""

import json

import numpy as np
import pandas as pd
import pytest
from strata_analysis import compare as module
from strata_analysis.cli import main
from strata_analysis.compare import CompareError, compare, compare_with_best, compare_with_most_shared
from strata_analysis.load import INDEX, Results, load

NUM_STEPS = 20


@pytest.fixture
def template(head_to_head):
    """One row of points for each strategy, from a real file."""
    points = load(head_to_head).points
    return {name: points[points["strategy_name"] == name].iloc[-1] for name in ("ddp", "zero1")}


def results_of(template, seconds, **changes):
    """Results of two strategies from {strategy: seconds of each step of each run, shape [num_blocks, num_steps]}.

    `changes`: attribute -> function of strategy and block.
    """
    points = []
    for place, (strategy, of_runs) in enumerate(seconds.items()):
        for block in range(len(of_runs)):
            row = {"attempt": block + 1, "block": block, "start_time": f"{block:04d}-{place}", "counted": True}
            row |= {name: value(strategy, block) for name, value in changes.items()}
            points.append(template[strategy].to_dict() | row)
    points = pd.DataFrame(points)
    return Results(points, steps_of(points, seconds), pd.DataFrame(), pd.DataFrame())


def steps_of(points, seconds):
    per_run = next(iter(seconds.values())).shape[1]
    index = {name: np.repeat(points[name].to_numpy(), per_run) for name in INDEX}
    return pd.DataFrame(
        index | {"phase": "measured", "step_seconds_max": np.concatenate([s.ravel() for s in seconds.values()])}
    )


def noisy(seed, num_blocks, slowdown):
    """What the acceptance of compare is stated for: steps vary by 3 % and 2 % of them take twice as long; runs vary by
    2 % beyond a drift of 10 % that the runs of a block share, and 2 % of runs are slower by 30 %."""
    generator = np.random.default_rng(seed)
    drift = generator.lognormal(0.0, 0.10, num_blocks)
    seconds = {}
    for strategy, factor in (("ddp", 1.0), ("zero1", 1.0 + slowdown)):
        run = drift * generator.lognormal(0.0, 0.02, num_blocks)
        run *= np.where(generator.random(num_blocks) < 0.02, 1.3, 1.0)
        shape = (num_blocks, NUM_STEPS)
        step = generator.lognormal(0.0, 0.03, shape) * np.where(generator.random(shape) < 0.02, 2.0, 1.0)
        seconds[strategy] = factor * run[:, None] * step
    return seconds


def verdicts_of_250_seeds(template, slowdown):
    results = results_of(template, noisy(0, 12, slowdown))
    for seed in range(250):
        results.steps = steps_of(results.points, noisy(seed, 12, slowdown))
        yield compare(results, None, "ddp").verdict


def test_a_strategy_against_itself_is_undecided_at_the_stated_rate(template):
    """95 % of 250 seeds are expected, 227 are three standard deviations below."""
    assert list(verdicts_of_250_seeds(template, 0.0)).count("undecided") >= 227


def test_a_slowdown_of_5_percent_is_found_with_12_blocks(template):
    verdicts = list(verdicts_of_250_seeds(template, 0.05))
    assert verdicts.count("worse") >= 225
    assert verdicts.count("better") == 0


def steady(num_blocks, **factors):
    """Seconds without noise: block b of a strategy takes factor * (1 + b)."""
    return {name: factor * np.arange(1.0, num_blocks + 1)[:, None] * np.ones(3) for name, factor in factors.items()}


def only_pair(comparison):
    (pair,) = comparison.pairs
    return pair


# ----------------------------------------------------------------------------------------------- what is paired


def test_runs_of_a_block_are_paired_whatever_their_order(template):
    """Blocks differ tenfold and the strategies by 1 %: only pairs by block can tell."""
    results = results_of(template, steady(10, ddp=1.0, zero1=1.01), start_time=lambda s, b: f"{(b * 7) % 10}-{s}")
    pair = only_pair(compare(results, None, "ddp", "zero1"))
    assert (pair.num_pairs, pair.paired_by, pair.verdict) == (10, "block", "worse")
    assert pair.ratio == pytest.approx(1.01)
    assert pair.ratio_low == pytest.approx(1.01)
    assert pair.effect_size == 1.0
    assert pair.p_value == pytest.approx(2 / 2**10)
    assert pair.baseline_seconds == pytest.approx(5.5)
    assert pair.baseline_samples_per_second == pytest.approx(4096 / 5.5)


def test_blocks_of_two_jobs_are_not_paired(template):
    jobs = {"ddp": "1", "zero1": "2"}
    results = results_of(template, steady(8, ddp=1.0, zero1=1.1), block_job=lambda strategy, _: jobs[strategy])
    assert only_pair(compare(results, None, "ddp")).paired_by == "run"


def test_a_block_that_was_tried_again_counts_once_and_a_missing_one_is_named(head_to_head):
    results = load(head_to_head)
    assert only_pair(compare(results, None, "ddp")).num_pairs == 8
    points = results.points
    is_retried = (points["strategy_name"] == "zero1") & (points["block"] == 3)
    assert list(points[is_retried]["status"]) == ["oom", "ok"]
    assert list(points[is_retried]["counted"]) == [False, True]
    results.points = points[~(is_retried & (points["status"] == "ok"))]
    pair = only_pair(compare(results, None, "ddp"))
    assert pair.num_pairs == 7
    assert pair.notes == ("1 blocks lack a good run of one side",)


def test_without_blocks_runs_are_paired_in_order(template):
    results = results_of(template, steady(8, ddp=1.0, zero1=0.9), block=lambda *_: -1)
    pair = only_pair(compare(results, None, "ddp"))
    assert (pair.num_pairs, pair.paired_by, pair.verdict) == (8, "run", "better")
    results.points = results.points[~((results.points["strategy_name"] == "zero1") & (results.points["attempt"] > 6))]
    pair = only_pair(compare(results, None, "ddp"))
    assert (pair.num_pairs, pair.notes) == (6, ("2 runs of one side have no partner",))


def test_older_runs_of_another_build_are_left_out(template):
    commits = {True: "old", False: "new"}
    changes = {"block": lambda *_: -1, "git_commit": lambda _, block: commits[block < 2]}
    pair = only_pair(compare(results_of(template, steady(8, ddp=1.0, zero1=0.9), **changes), None, "ddp"))
    assert pair.num_pairs == 6
    assert len(pair.notes) == 2
    assert "2 older runs of ddp have another provenance" in pair.notes[0]


def test_steps_of_one_run_decide_nothing(template):
    seconds = {"ddp": np.full((1, 1000), 1.0), "zero1": np.full((1, 1000), 2.0)}
    pair = only_pair(compare(results_of(template, seconds), None, "ddp"))
    assert pair.verdict == "undecided"
    assert pair.reason == "fewer than 6 pairs cannot decide"


def test_points_are_paired_over_equal_keys_and_the_rest_is_named(sample):
    comparison = compare(load(sample), None, "ddp", "zero3")
    assert [(pair.model, pair.num_ranks) for pair in comparison.pairs] == [("gpt2-small", r) for r in (1, 2, 4)]
    assert sum("vgg13" in words for words in comparison.alone) == 3


def test_failed_points_stay_visible_with_their_reason(sample):
    comparison = compare(load(sample), None, "ddp")
    failed = {pair.candidate: pair for pair in comparison.pairs if pair.verdict == "incomparable"}
    assert failed["zero3"].reason.endswith("oom: OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB")
    assert failed["zero3"].baseline_seconds > 0
    assert "killed" in failed["zero1"].reason
    assert comparison.verdict == "incomparable"


# ------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("name", module.PROVENANCE)
def test_every_provenance_must_be_equal_or_allowed(template, name):
    other = {"host_names": ["other"], "device_names": ["other"], "simulated": 1}.get(name, "other")
    if name in ("library_versions", "modules_loaded", "environment"):
        other = ["other"]
    own = template["ddp"][name]
    results = results_of(template, steady(8, ddp=1.0, zero1=1.1), **{name: lambda s, _: own if s == "ddp" else other})
    comparison = compare(results, None, "ddp")
    assert comparison.verdict == "incomparable"
    assert comparison.exit_code == 4
    assert f"{name} differs" in only_pair(comparison).reason
    assert np.isnan(only_pair(comparison).ratio)
    allowed = compare(results, None, "ddp", allow_different=(name,))
    assert (allowed.verdict, allowed.exit_code) == ("worse", 1)


def test_another_job_of_slurm_is_no_other_environment(template):
    jobs = {"ddp": "3", "zero1": "4"}
    environment = ["OMP_NUM_THREADS=1", "UCX_TLS=tcp,self"]
    in_jobs = {"environment": lambda strategy, _: [*environment, f"SLURM_JOB_ID={jobs[strategy]}"]}
    assert compare(results_of(template, steady(8, ddp=1.0, zero1=1.1), **in_jobs), None, "ddp").verdict == "worse"


def test_of_lists_only_what_differs_is_named(template):
    transports = {"ddp": "UCX_TLS=tcp,self", "zero1": "UCX_TLS=all"}
    environment = lambda strategy, _: ["OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=passive", transports[strategy]]  # noqa: E731
    results = results_of(template, steady(8, ddp=1.0, zero1=1.1), environment=environment)
    assert only_pair(compare(results, None, "ddp")).reason == "environment differs (UCX_TLS=tcp,self and UCX_TLS=all)"


def test_ranks_may_sit_elsewhere_on_the_same_nodes(template):
    hosts = {"ddp": ["a", "a", "b", "b"], "zero1": ["b", "b", "a", "a"]}
    results = results_of(template, steady(8, ddp=1.0, zero1=1.1), host_names=lambda strategy, _: hosts[strategy])
    assert compare(results, None, "ddp").verdict == "worse"


def test_measured_and_simulated_are_incomparable(sample, tmp_path):
    results = load(sample)
    simulated = results.points["simulated"] == 1
    parts = [Results(results.points[rows], results.steps, None, None) for rows in (~simulated, simulated)]
    comparison = compare(*parts)
    assert {pair.num_ranks for pair in comparison.pairs} == {2, 4}
    assert {pair.verdict for pair in comparison.pairs} == {"incomparable"}
    assert all("simulated differs (0 and 1)" in pair.reason for pair in comparison.pairs)


def test_the_simulator_without_noise_is_exact(template):
    keys = template["ddp"]["point_keys"]
    one_run = {"simulated": lambda *_: 1, "block": lambda *_: -1}
    results = results_of(template, steady(1, ddp=1.0, zero1=1.001), **one_run)
    pair = only_pair(compare(results, None, "ddp"))
    assert (pair.paired_by, pair.verdict, pair.ratio_low) == ("exact", "worse", pytest.approx(1.001))
    assert compare(results_of(template, steady(1, ddp=1.0, zero1=1.0), **one_run), None, "ddp").verdict == "undecided"
    one_run["point_keys"] = lambda *_: keys + "simulate.noise = 0.1\n"
    assert compare(results_of(template, steady(1, ddp=1.0, zero1=1.001), **one_run), None, "ddp").exit_code == 0


def test_a_claim_must_survive_the_number_of_points(template):
    """p = 2/64 for one point; of two points Holm asks 1/40 of the smaller one."""
    seconds = steady(6, ddp=1.0, zero1=1.1)
    one = results_of(template, seconds)
    assert compare(one, None, "ddp").verdict == "worse"
    two = Results(pd.concat([one.points, renamed(one.points)]), pd.concat([one.steps, renamed(one.steps)]), None, None)
    comparison = compare(two, None, "ddp")
    assert [pair.verdict for pair in comparison.pairs] == ["undecided"] * 2
    assert comparison.pairs[0].p_value_holm == pytest.approx(4 / 64)
    assert comparison.pairs[0].reason == "fewer than 7 pairs cannot decide"


def renamed(table):
    return table.assign(experiment_name="another")


@pytest.mark.parametrize(
    ("factors", "verdict", "exit_code"), [((0.9, 0.9), "better", 0), ((0.9, 1.1), "worse", 1), ((1, 1), "undecided", 0)]
)
def test_the_worst_point_decides_over_all(template, factors, verdict, exit_code):
    parts = [results_of(template, steady(8, ddp=1.0, zero1=factor)) for factor in factors]
    both = Results(
        pd.concat([parts[0].points, renamed(parts[1].points)]),
        pd.concat([parts[0].steps, renamed(parts[1].steps)]),
        None,
        None,
    )
    comparison = compare(both, None, "ddp")
    assert (comparison.verdict, comparison.exit_code) == (verdict, exit_code)


def test_the_best_of_each_place_is_the_baseline_of_the_others(template, sample):
    results = results_of(template, steady(8, ddp=1.0, zero1=0.8))
    pair = only_pair(compare_with_best(results))
    assert (pair.baseline, pair.candidate, pair.verdict) == ("zero1", "ddp", "worse")
    assert pair.ratio == pytest.approx(1.25)
    of_sample = compare_with_best(load(sample)).pairs
    assert {pair.num_ranks for pair in of_sample} == {1, 2, 4}
    assert all(pair.keys == {} for pair in of_sample), "what only places of one strategy vary separates nothing here"


def test_without_a_baseline_the_one_with_most_in_common_is_taken(sample):
    comparison = compare_with_most_shared(load(sample))
    assert {pair.baseline for pair in comparison.pairs} == {"ddp"}
    results = load(sample)
    results.points = results.points[results.points["strategy_name"] == "ddp"]
    assert compare_with_most_shared(results) is None


# ------------------------------------------------------------------------------------------- two sets; options


def test_two_sets_are_compared_point_by_point(template):
    before = results_of(template, steady(8, ddp=1.0, zero1=1.0), block_job=lambda *_: "1")
    after = results_of(template, steady(8, ddp=1.0, zero1=0.8), block_job=lambda *_: "2", git_commit=lambda *_: "next")
    assert compare(before, after).verdict == "incomparable"
    comparison = compare(before, after, allow_different=("git_commit",))
    assert [(pair.candidate, pair.verdict) for pair in comparison.pairs] == [("ddp", "undecided"), ("zero1", "better")]
    across = compare(before, after, "ddp", "zero1", allow_different=("git_commit",))
    assert [(pair.baseline, pair.candidate, pair.verdict) for pair in across.pairs] == [("ddp", "zero1", "better")]


def test_a_strategy_is_chosen_by_its_options(template):
    keys = template["zero1"]["point_keys"]
    of_stages = [
        results_of(
            template,
            {"zero1": steady(8, zero1=1.0 / stages)["zero1"]},
            point_keys=lambda *_, n=stages: keys + f"strategy.stages = {n}\n",
            point=lambda *_, n=stages: f"stages{n}",
        )
        for stages in (1, 2, 4)
    ]
    results = Results(
        pd.concat([part.points for part in of_stages]), pd.concat([part.steps for part in of_stages]), None, None
    )
    pair = only_pair(compare(results, None, "zero1,stages=1", "zero1,stages=4"))
    assert pair.ratio == pytest.approx(0.25)
    assert (pair.baseline, pair.candidate) == ("zero1, stages=1", "zero1, stages=4")
    with pytest.raises(CompareError, match=r"two baselines for one point.*choose by an option: zero1,stages="):
        compare(results, None, "zero1", "zero1,stages=4")


def test_a_key_that_differs_can_be_allowed(template):
    keys = {name: row["point_keys"] for name, row in template.items()}
    more = {"ddp": "", "zero1": "train.micro_batches = 4\n"}
    results = results_of(template, steady(8, ddp=1.0, zero1=0.9), point_keys=lambda s, _: keys[s] + more[s])
    with pytest.raises(CompareError, match=r"no two points.*differ in train.micro_batches \(default and 4\)"):
        compare(results, None, "ddp", "zero1")
    assert compare(results, None, "ddp", "zero1", allow_different=("train.micro_batches",)).verdict == "better"


def test_what_cannot_be_asked_is_said(template, head_to_head, capsys):
    results = results_of(template, steady(2, ddp=1.0, zero1=1.0))
    for words, match in (
        ({}, "name the one to compare with"),
        ({"baseline_strategy": "zero9"}, "no point of strategy 'zero9' with these options; there are ddp, zero1"),
        ({"baseline_strategy": "ddp,stages"}, "is no strategy"),
        ({"baseline_strategy": "ddp", "allow_different": ("weather",)}, "'weather' is neither a key nor one of"),
    ):
        with pytest.raises(CompareError, match=match):
            compare(results, None, **words)
    assert main(["compare", str(head_to_head)]) == 2
    assert "strata: one set of results" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["compare", str(head_to_head), "--baseline", "ddp", "--confidence", "95"])
    assert stopped.value.code == 2


def test_the_table_prints_the_base_in_absolute_terms_and_the_exit_code_follows(head_to_head, capsys):
    assert main(["compare", str(head_to_head), "--baseline", "ddp", "--candidate", "zero1"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("Against ddp on 2 ranks ddp is fastest, zero1 0.93 times as fast [")
    assert "tokens/s)" in text
    assert "8 by block" in text
    assert "verdict: worse (1 worse)" in text
    assert main(["compare", str(head_to_head), str(head_to_head)]) == 0


def test_json_says_the_same(head_to_head, capsys):
    assert main(["compare", str(head_to_head), "--baseline", "ddp", "--json"]) == 1
    words = json.loads(capsys.readouterr().out)
    assert (words["verdict"], words["exit_code"]) == ("worse", 1)
    assert words["answer"].startswith("Against ddp on 2 ranks ddp is fastest")
    assert words["pairs"][0]["ratio"] == pytest.approx(1.07, abs=0.005)
    assert words["pairs"][0]["ratio_low"] < words["pairs"][0]["ratio"] < words["pairs"][0]["ratio_high"]
    assert words["without_partner"] == []

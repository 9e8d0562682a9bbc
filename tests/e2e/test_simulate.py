"""simulate and profile as a user calls them: without MPI on a described cluster, and on this machine by its profile."""

import json
import tomllib

import h5py
import pytest


def attempts(folder):
    return sorted(folder.glob("results/e2e/*/*.h5"))


def attributes(path):
    with h5py.File(path) as file:
        return dict(file.attrs), {name: column[:] for name, column in file["steps"].items()}


@pytest.fixture
def on_a800(strata, experiment):
    def simulate(*words, nodes=2, append=""):
        swept = "resources.nodes" in append
        return strata(
            None,
            "simulate",
            experiment(append=append),
            "--set",
            "cluster=a800-ib",
            *([] if swept else ["--set", f"resources.nodes={nodes}"]),
            "--set",
            "resources.ranks_per_node=8",
            "--set",
            "train.global_batch=512",
            *words,
        )

    return simulate


@pytest.fixture(autouse=True)
def cluster_files(tmp_path):
    """Descriptions are found above the experiment's folder, as in a checkout."""
    from conftest import ROOT

    (tmp_path / "clusters").symlink_to(ROOT / "experiments" / "clusters")


def test_a_described_cluster_needs_no_mpi_and_says_simulated(on_a800, tmp_path):
    ended = on_a800(nodes=4)
    assert ended.code == 0, ended.error
    assert "simulated" in ended.output
    facts, steps = attributes(attempts(tmp_path)[0])
    assert facts["simulated"] == 1
    assert facts["backend"] == "simulated"
    assert facts["num_ranks"] == 32
    assert 0 < steps["compute_seconds"][0] < steps["step_seconds_max"][0]
    assert facts["peak_source"] == "cluster a800-ib"
    # What rates and FLOPs are counted in: tokens, of which a sequence of this model has 64.
    assert (facts["sample_unit"], facts["num_sequences_per_step"]) == ("token", 512)
    assert facts["num_samples_per_step"] == steps["num_samples"][0] == 512 * 64


def test_thousands_of_ranks_are_recorded_and_collected(strata, experiment, tmp_path):
    ranks = 4096  # a name each is more than an HDF5 object's header holds
    many = {"cluster": "daint-p100", "resources.nodes": ranks, "train.global_batch": ranks}
    words = [word for key, value in many.items() for word in ("--set", f"{key}={value}")]
    ended = strata(None, "simulate", experiment(ranks=1), *words)
    assert ended.code == 0, ended.error
    facts, steps = attributes(attempts(tmp_path)[0])
    assert facts["num_ranks"] == ranks
    assert list(facts["host_names"]) == ["simulated"] * ranks
    assert list(facts["device_names"]) == ["P100-PCIE-16GB"] * ranks
    assert steps["step_seconds_max"][0] > 0
    ended = strata(None, "collect", "results/e2e")
    assert ended.code == 0, ended.error
    with h5py.File(tmp_path / "results" / "e2e" / "collected.h5") as file:
        assert json.loads(file["points/host_names"][0]) == ["simulated"] * ranks


@pytest.mark.parametrize("mode", ["ddp", "gpipe", "1f1b", "interleaved", "2bw"])
def test_every_mode_is_simulated(on_a800, tmp_path, mode):
    of_modes = {"ddp": [], "interleaved": ["strategy.stages=4", "model.layers=4"]}
    stages = [word for setting in of_modes.get(mode, ["strategy.stages=2"]) for word in ("--set", setting)]
    ended = on_a800("--set", f'strategy.name="{mode}"', "--set", "train.micro_batches=4", *stages)
    assert ended.code == 0, ended.error
    facts, steps = attributes(attempts(tmp_path)[0])
    assert facts["strategy_name"] == mode
    assert (steps["send_sent_bytes"][0] > 0) == (mode != "ddp")


def test_a_trace_of_every_kind_of_rank_with_its_memory(on_a800, tmp_path):
    trace = tmp_path / "trace.json"
    words = ("--set", 'strategy.name="1f1b"', "--set", "strategy.stages=2", "--set", "train.micro_batches=4")
    assert on_a800(*words, "--trace", trace).code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 8}, "a rank of each stage"
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"simulated"}
    memory = [sum(event["args"].values()) for event in events if event["ph"] == "C" and event["pid"] == 0]
    steps = attributes(attempts(tmp_path)[0])[1]
    assert 0 < max(memory) <= steps["arena_peak_bytes"][0]


def test_noise_and_stragglers_slow_a_job_down_and_repeat(on_a800, tmp_path):
    seconds = []
    for words in (
        [],
        ["--set", "simulate.straggler_ranks=[3]", "--set", "simulate.straggler_slowdown=2"],
        ["--set", "simulate.noise=0.3"],
        ["--set", "simulate.noise=0.3"],
    ):
        before = set(attempts(tmp_path))
        # Beside the fixed cost that each step has on a800-ib, computing for twice as long would hardly show.
        assert on_a800("--set", "cluster=h100-ib", *words).code == 0
        (new,) = set(attempts(tmp_path)) - before
        seconds.append(attributes(new)[1]["step_seconds_max"][0])
    assert seconds[1] > 1.3 * seconds[0]
    assert seconds[2] > seconds[0]
    assert seconds[2] == seconds[3]


def test_too_many_ranks_for_the_cluster(on_a800):
    ended = on_a800(nodes=129)
    assert ended.code == 2
    assert "129 nodes" in ended.error
    assert "on cluster a800-ib, which has 128" in ended.error


def test_what_does_not_fit_a_device_is_recorded_as_out_of_memory(on_a800, tmp_path):
    ended = on_a800("--set", 'model.name="llama-30b"')
    assert ended.code == 3
    assert "of 70.624 GiB" in ended.error  # what a runtime leaves of 80
    with h5py.File(attempts(tmp_path)[0]) as file:
        assert file["summary/status"][()].item() == h5py.check_enum_dtype(file["summary/status"].dtype)["oom"]


def test_steps_told_from_few_micro_batches_are_the_whole_ones(on_a800, tmp_path):
    """With a timeline all micro-batches are simulated, without one few of them; the account of both is the same."""
    told = []
    for timeline_steps in (0, 1):
        before = set(attempts(tmp_path))
        words = ["train.micro_batches=16", "simulate.steps=2", f"measure.timeline_steps={timeline_steps}"]
        assert on_a800(*(part for word in words for part in ("--set", word))).code == 0
        (new,) = set(attempts(tmp_path)) - before
        told.append(attributes(new)[1])
    few, whole = told
    assert few.keys() == whole.keys()
    assert list(few["step"]) == [0, 1]
    for name, column in whole.items():
        if name != "unix_seconds" and column.dtype.kind in "iuf":
            assert few[name] == pytest.approx(column, rel=1e-9, abs=1e-9, nan_ok=True), name
    for name in ("arena_peak_bytes", "activation_bytes", "all_reduce_sent_bytes"):
        assert list(few[name]) == list(whole[name]) != [0, 0]


def test_what_does_not_fit_is_said_of_one_of_all_micro_batches(on_a800):
    said = []
    for timeline_steps in (0, 1):
        words = ["model.name=llama-30b", "train.micro_batches=16", f"measure.timeline_steps={timeline_steps}"]
        ended = on_a800(*(part for word in words for part in ("--set", word)))
        assert ended.code == 3
        said.append(ended.error)
    assert "OOM at input (forward, micro-batch 0): rank 0 needs" in said[0]
    assert said[0] == said[1]


def test_this_machine_is_known_by_its_profile_alone(strata, experiment):
    ended = strata(None, "simulate", experiment())
    assert ended.code == 2
    assert "strata profile" in ended.error


def test_a_profiled_machine_predicts_bytes_and_memory_exactly(strata, experiment, tmp_path):
    file = experiment()
    profile = tmp_path / "this.toml"
    ended = strata(2, "profile", file, "--output", profile)
    assert ended.code == 0, ended.error
    measured = ["--set", "simulate.cost=measured", "--set", "simulate.profile=this.toml"]
    assert strata(None, "simulate", file, *measured).code == 0
    assert strata(2, "run", file, *measured).code == 0
    simulated, run = sorted((attributes(path) for path in attempts(tmp_path)), key=lambda a: -a[0]["simulated"])
    for column in ("arena_peak_bytes", "all_reduce_sent_bytes", "parameter_bytes", "activation_bytes"):
        assert simulated[1][column][0] == run[1][column][-1], column
    assert simulated[1]["step_seconds_max"][0] > 0
    # The run used the same profile for the prediction beside it.
    with h5py.File(next(path for path in attempts(tmp_path) if not attributes(path)[0]["simulated"])) as file:
        sources = {source.decode() for source in file["predictions/source"][:]}
    assert any("measured: profile of" in source for source in sources)


def test_ranks_that_update_different_tensors_are_profiled_together(strata, experiment, tmp_path):
    file = experiment()
    dealt = [f"--set=strategy.{key}" for key in ("name=amsp", "p=1x1", "g=1x1", "os=2x1", "overlap=full")]
    ended = strata(2, "profile", file, *dealt, "--output", tmp_path / "this.toml")
    assert ended.code == 0, ended.error
    kernels = tomllib.loads((tmp_path / "this.toml").read_text())["kernels"]
    shapes = [(kernel["kind"], tuple(kernel["sizes"])) for kernel in kernels]
    assert len(shapes) == len(set(shapes))
    ended = strata(None, "simulate", file, *dealt, "--set=simulate.cost=measured", "--set=simulate.profile=this.toml")
    assert ended.code == 0, ended.error


def test_a_profile_of_another_machine_or_another_job_is_refused(strata, experiment, tmp_path):
    file = experiment()
    profile = tmp_path / "this.toml"
    assert strata(1, "profile", file, "--set", "resources.ranks_per_node=1", "--output", profile).code == 0
    measured = ["--set", "simulate.cost=measured", "--set", "simulate.profile=this.toml"]
    ended = strata(None, "simulate", file, *measured)
    assert ended.code == 2
    assert "no kernel was measured with 2 ranks on a node, only with 1" in ended.error
    text = profile.read_text()
    profile.write_text('machine = "an abacus"' + text[text.index("\n") :])
    ended = strata(None, "simulate", file, *measured)
    assert ended.code == 2
    assert "measured on another machine: an abacus" in ended.error
    ended = strata(1, "profile", file, "--set", "resources.ranks_per_node=1", "--output", profile)
    assert ended.code == 2
    assert "two machines" in ended.error
    ended = strata(None, "simulate", file, "--set", "simulate.cost=measured")
    assert ended.code == 2
    assert "simulate.profile" in ended.error


@pytest.mark.parametrize("convention", ["megatron", "sc21", "internevo", "palm", "torchtitan", "operators"])
def test_every_model_has_a_line_under_every_convention(strata, convention):
    """Where a convention says nothing about a model, its line says so."""
    ended = strata(None, "list", "models", "--flops", convention)
    assert ended.code == 0, ended.error
    lines = {line.split()[0]: line for line in ended.output.splitlines()}
    assert "GFLOP/token" in lines["llama-7b"]
    assert ("undefined" in lines["vgg13"]) == (convention != "operators")


def test_a_refused_point_is_recorded_with_its_reason(on_a800, tmp_path):
    ended = on_a800("--set", 'strategy.name="gpipe"', "--set", "strategy.stages=16")
    assert ended.code == 3
    (file,) = attempts(tmp_path)
    with h5py.File(file) as attempt:
        assert attempt.attrs["simulated"] == 1
        assert attempt.attrs["num_ranks"] == 16
        assert len(attempt["steps/step_seconds_max"]) == 0
        assert b"16 stages on 16 ranks" in attempt["summary/message"][()]
    assert json.loads(next(file.parent.glob("*.status.json")).read_text())["status"] == "refused"


@pytest.mark.parametrize("mode", ["ddp", "zero3", "amsp", "1f1b", "3d", "osdp", "megatron", "autoddl"])
def test_a_point_whose_batch_does_not_divide_is_refused_alone(on_a800, experiment, tmp_path, mode):
    sweep = "\n[[sweep.zip]]\n'resources.nodes' = [1, 3, 2]\n'train.micro_batches' = [1, 7, 1]\n"
    stages = ["--set", "strategy.stages=2"] if mode == "1f1b" else []
    ended = on_a800("--set", f'strategy.name="{mode}"', *stages, append=sweep)
    assert ended.code == 1, "a point of a sweep failed: " + ended.error
    facts = {}
    for path in attempts(tmp_path):
        with h5py.File(path) as file:
            status = h5py.check_enum_dtype(file["summary/status"].dtype)
            words = {number: word for word, number in status.items()}
            message = file["summary/message"][()].decode()
            facts[int(file.attrs["num_ranks"])] = (words[file["summary/status"][()].item()], message)
    assert {ranks: status for ranks, (status, _) in facts.items()} == {8: "ok", 16: "ok", 24: "refused"}
    assert "24 ranks" in facts[24][1]
    assert "divisible" in facts[24][1]
    assert len(ended.messages()) == 1
    assert ended.messages()[0].endswith("refused: " + facts[24][1])


def test_a_point_for_which_a_planner_finds_nothing_that_fits_is_oom(on_a800, tmp_path):
    ended = on_a800("--set", 'strategy.name="osdp"', "--set", "resources.memory_gib=0.001")
    assert ended.code == 3
    assert "oom: osdp on 16 ranks: nothing fits into a device memory of" in ended.error
    (file,) = attempts(tmp_path)
    assert json.loads(next(file.parent.glob("*.status.json")).read_text())["status"] == "oom"

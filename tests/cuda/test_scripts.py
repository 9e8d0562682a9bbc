"""pack.sh and run_on_gpu.sh without a GPU: programs that stand for ours succeed, fail, are skipped or hang as told."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PHASES = ["probe+bench", "correct", "app+pytorch", "equality", "sweep", "shared", "nccl"]
SCRIPTS = ["run_on_gpu.sh", "bench_pytorch.py", "equal_to_pytorch.py", "synthetic_images.py", "table_of_runs.py"]
TESTS = ["cuda.test_monitor", "cuda.test_operators", "cuda.test_real_shapes", "cuda.test_modes", "cuda.test_nccl"]


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


# ------------------------------------------------------------------------------------------------------------- pack.sh
@pytest.fixture
def build(tmp_path):
    """A build folder in which every program is one that does nothing."""
    folder = tmp_path / "build"
    (folder / "tests").mkdir(parents=True)
    names = ["strata", *(f"tests/{name}" for name in (*TESTS, "bench_cuda", "library_versions"))]
    names += ["tests/libfake_nvml.so", "tests/libfake_old_nvml.so"]
    for name in names:
        shutil.copy("/bin/true", folder / name)
    for name in ("mpiexec.hydra", "hydra_pmi_proxy"):
        (tmp_path / "path").mkdir(exist_ok=True)
        shutil.copy("/bin/true", tmp_path / "path" / name)
    (folder / "compile_commands.json").write_text('[{"command": "c++ -march=x86-64-v3 -c a.cpp"}]\n')
    (folder / "cmake_install.cmake").write_text(
        f'file(INSTALL DESTINATION "${{CMAKE_INSTALL_PREFIX}}/bin" TYPE EXECUTABLE FILES "{folder}/strata")\n'
        f'file(INSTALL DESTINATION "${{CMAKE_INSTALL_PREFIX}}/share/strata" TYPE DIRECTORY FILES '
        f'"{ROOT}/experiments/gpu")\n'
    )
    return folder


def pack(build, folder, **variables):
    path = f"{build.parent / 'path'}:{os.environ['PATH']}"
    return subprocess.run(
        [HERE / "pack.sh", folder],
        env=os.environ | {"BUILD": str(build), "PATH": path} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_pack_has_what_the_phases_run(build, tmp_path):
    ended = pack(build, tmp_path / "packed")
    assert ended.returncode == 0, ended.stderr
    assert "MiB in" in ended.stdout
    with tarfile.open(tmp_path / "packed.tar.xz") as archive:
        names = set(archive.getnames())
    programs = ["strata", *TESTS, "bench_cuda", "library_versions", "mpiexec.hydra", "hydra_pmi_proxy"]
    assert {f"packed/bin/{name}" for name in programs} <= names
    assert {f"packed/{name}" for name in SCRIPTS} <= names
    models = {Path(name) for name in names if name.startswith("packed/share/strata/gpu/")}
    assert {path.stem for path in models if path.suffix == ".toml"} == {"gpt2_small", "llama_7b_8_layers", "vgg13"}
    assert not any("/libc.so" in name for name in names), "the C library is the machine's own"


def test_a_build_for_the_processor_here_is_refused(build, tmp_path):
    (build / "compile_commands.json").write_text('{"command": "c++ -O3 -march=native -c a.cpp"}\n')
    ended = pack(build, tmp_path / "packed")
    assert ended.returncode == 2
    assert "1 sources of" in ended.stderr and "-march=native" in ended.stderr
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("missing", ["strata", "tests/cuda.test_nccl", "tests/library_versions"])
def test_what_is_not_built_is_named(build, tmp_path, missing):
    (build / missing).unlink()
    ended = pack(build, tmp_path / "packed")
    assert ended.returncode == 2
    assert f"no {build / missing}" in ended.stderr


def test_what_may_not_travel_is_said(build, tmp_path):
    ended = pack(build, tmp_path / "packed", MOST_MIB="0")
    assert ended.returncode == 1
    assert "more than 0 MiB" in ended.stderr


def test_nothing_is_overwritten(build, tmp_path):
    (tmp_path / "packed").mkdir()
    assert pack(build, tmp_path / "packed").returncode == 2
    assert not any((tmp_path / "packed").iterdir())


# ------------------------------------------------------------------------------------------------------- run_on_gpu.sh
GTEST = """case "$1" in
  --gtest_list_tests) printf 'Suite.\\n  One\\n  Two\\n  Three/0  # GetParam() = 4\\n'; exit 0 ;;
esac
echo "[ RUN      ] $1"; echo "[  PASSED  ] 1 test."
"""
ATTEMPT = {
    "kind": "attempt",
    "experiment_name": "gpu_gpt2_small",
    "model_name": "gpt2-small",
    "num_sequences_per_step": 8,
    "plan_text": 'schedule = { kind = "sequential", micro_batches = 2, sub_batches = 1 }',
    "num_samples_per_step": 8192,
    "flops_per_sample": 8e8,
    "num_ranks": 1,
    "peak_flops_per_second": 8e14,
    "sustained_flops_per_second": 6e14,
    "nameplate_flops_per_second": 989.5e12,
}


def step(number, phase, seconds, end):
    return {
        "kind": "step",
        "step": number,
        "phase": phase,
        "step_seconds_max": seconds,
        "unix_seconds": end,
        "input_seconds": 0.001,
        "sm_clock_hertz": 1.755e9,
        "power_watts": None,
        "clock_event_reasons": 4.0,
    }


ROWS = [
    ATTEMPT,
    step(0, "warmup", 9.0, 100.0),
    step(1, "measured", 0.02, 101.0),
    step(2, "measured", 0.02, 101.03),
    step(3, "measured", 0.03, 101.06),
    {"kind": "end", "status": "ok"},
]


class Machine:
    """A folder as pack.sh makes it, beside commands of a machine with GPUs."""

    def __init__(self, folder):
        self.folder = folder
        self.packed = folder / "packed"
        self.out = folder / "out"
        for name in TESTS:
            script(self.packed / "bin" / name, GTEST)
        script(self.packed / "bin" / "bench_cuda", 'echo "$1 1.0 TFLOP/s"')
        script(self.packed / "bin" / "library_versions", "echo libcudnn.so.9 91900")
        script(self.packed / "bin" / "mpiexec.hydra", f'echo "$@" >>{folder}/launches\nexec "${{@:7}}"')
        rows = "\n".join(json.dumps(row) for row in ROWS)
        script(
            self.packed / "bin" / "strata",
            f"""echo "strata finds ${{LD_LIBRARY_PATH-}}" >>{folder}/paths
[[ $1 == run ]] || exit 0
mkdir -p "$4/$(basename "$2" .toml)/0123"
cat >"$4/$(basename "$2" .toml)/0123/1.jsonl" <<'ROWS'
{rows}
ROWS
echo "step 3 loss 1.0 mfu 41.0 %" """,
        )
        for name in ("run_on_gpu.sh", "table_of_runs.py"):
            shutil.copy(HERE / name, self.packed)
        (self.packed / "lib").mkdir()
        (self.packed / "bench_pytorch.py").write_text(
            f"import os\nfile = open('{folder}/paths', 'a')\n"
            "file.write('pytorch finds ' + os.environ.get('LD_LIBRARY_PATH', '') + '\\n')\n"
            "print('PyTorch 2.11 on a GPU')\nprint('gpt2-small 0.01000 s a step, peak 3.0 GiB')\n"
        )
        (self.packed / "equal_to_pytorch.py").write_text(
            "import pathlib, sys\nfolder = pathlib.Path(sys.argv[2])\n"
            "if sys.argv[1] == 'make':\n    folder.mkdir()\n    (folder / 'gpt.step.toml').write_text('')\n"
            "else:\n    print('gpt equal: loss_difference 1e-07')\n"
            "    (folder / 'equality.csv').write_text('case\\ngpt\\n')\n"
        )
        (folder / "path").mkdir()
        (folder / "path" / "python3").symlink_to(sys.executable)
        (folder / "modules").mkdir()
        (folder / "modules" / "torch.py").write_text("")
        self.set_gpus(1)
        script(folder / "path" / "compute-sanitizer", 'exec "${@:3}"')

    def set_gpus(self, count):
        script(
            self.folder / "path" / "nvidia-smi",
            f"[[ $1 == -L ]] || {{ echo name; exit; }}\n"
            f'for ((i = 0; i < {count}; ++i)); do echo "GPU $i"; done\nexit $(({count} == 0))',
        )

    def program(self, name, text):
        script(self.packed / "bin" / name, text)

    def environment(self):
        return os.environ | {
            "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "modules"),
            "OUT": str(self.out),
            "CUDA_LIBRARIES": str(self.folder),
            "LD_LIBRARY_PATH": "/of/the/user",
        }

    def run(self, *words):
        return subprocess.run(
            [self.packed / "run_on_gpu.sh", *words], env=self.environment(), capture_output=True, text=True, timeout=60
        )

    def summary(self, phase):
        return (self.out / f"summary.{phase}.txt").read_text()

    def logs(self, phase):
        with tarfile.open(self.out / f"logs.{phase}.tgz") as archive:
            return {
                name.removeprefix(f"{phase}/"): archive.extractfile(name).read().decode()
                for name in archive.getnames()
                if archive.getmember(name).isfile()
            }


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_phases_are_listed_and_each_ends_within_nine_minutes(machine):
    ended = machine.run("--list")
    assert ended.returncode == 0
    rows = [line.split(None, 2) for line in ended.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == PHASES
    assert all(int(row[1]) <= 540 for row in rows)
    for words in ([], ["bench"], ["probe+bench "]):
        ended = machine.run(*words)
        assert ended.returncode == 2 and "usage" in ended.stderr


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "nccl"])
def test_a_phase_in_which_all_pass(machine, phase):
    ended = machine.run(phase)
    assert ended.returncode == 0, ended.stdout
    assert "failures: 0" in machine.summary(phase)
    assert machine.logs(phase), "one file of all logs"
    assert not (machine.out / phase).exists()


def test_several_phases_follow_each_other(machine):
    ended = machine.run("nccl", "shared", "correct")
    assert ended.returncode == 1, "NCCL has one GPU"
    assert "not run, NCCL" in machine.summary("nccl")
    for phase in ("shared", "correct"):
        assert "failures: 0" in machine.summary(phase)
        assert machine.logs(phase)
    assert machine.run("shared", "bench").returncode == 2


def test_nccl_takes_two_gpus_and_what_did_not_run_has_not_passed(machine):
    assert machine.run("nccl").returncode == 1
    assert "not run, NCCL takes a GPU for each rank, and 1 is here" in machine.summary("nccl")
    machine.set_gpus(2)
    assert machine.run("nccl").returncode == 0
    launches = (machine.folder / "launches").read_text()
    assert "-launcher fork -localhost localhost -n 2" in launches


def test_a_section_that_is_refused_ends_that_one(machine):
    machine.program(
        "bench_cuda",
        'if [[ $1 == attention ]]; then echo device; echo "attention refused: no engine"; exit 1; fi\necho "$1 7"',
    )
    assert machine.run("probe+bench").returncode == 1
    summary = machine.summary("probe+bench")
    assert "first failing line of bench.attention: 2:attention refused: no engine" in summary
    assert "vgg13 7" in summary, "what follows ran"
    assert "failures: 1" in summary


def test_the_first_failing_line_of_each_test_is_in_the_summary(machine):
    machine.program(
        "cuda.test_operators",
        GTEST.replace(
            'echo "[ RUN',
            'case "$1" in\n'
            '*Two) echo "test_operators.cpp:40: Failure"; echo "  Actual: 3"; exit 1 ;;\n'
            '*Three/0) echo "[  SKIPPED ] Suite.Three/0"; exit 0 ;;\nesac\necho "[ RUN',
            1,
        ),
    )
    assert machine.run("correct").returncode == 1
    summary = machine.summary("correct")
    assert "== operators: 1 of 3" in summary
    assert "Suite.Two: exit 1: 1:test_operators.cpp:40: Failure" in summary
    assert "Suite.Three/0: exit 0: 1:[  SKIPPED ]" in summary, "skipped is not passed"
    assert "Actual: 3" in machine.logs("correct")["operators/Suite.Two.log"]


def test_what_passes_in_one_process_is_not_run_again(machine):
    machine.program(
        "cuda.test_operators",
        GTEST.replace(
            'echo "[ RUN',
            'case "$1" in\n'
            f'"--gtest_filter=-*FusedAttention*") echo all >>{machine.folder}/alone\n'
            '  echo "[       OK ] Suite.Two (3 ms)"; exit 1 ;;\n'
            f'*) echo "$1" >>{machine.folder}/alone ;;\nesac\necho "[ RUN',
            1,
        ),
    )
    assert machine.run("correct").returncode == 0
    assert "== operators: 3 of 3" in machine.summary("correct")
    alone = (machine.folder / "alone").read_text().splitlines()
    assert alone[0] == "all"
    assert sorted(alone[1:3]) == ["--gtest_filter=Suite.One", "--gtest_filter=Suite.Three/0"]


def test_a_skipped_test_of_several_ranks_has_not_passed(machine):
    machine.program("cuda.test_modes", 'echo "[  SKIPPED ] Modes.X (0 ms)"; echo "[  PASSED  ] 3 tests."')
    assert machine.run("shared").returncode == 1
    assert "first failing line of modes.np2: 1:[  SKIPPED ] Modes.X" in machine.summary("shared")


def test_memory_is_checked_in_our_kernels_alone(machine):
    script(machine.folder / "path" / "compute-sanitizer", f'echo "$@" >{machine.folder}/checked')
    assert machine.run("correct").returncode == 0
    checked = (machine.folder / "checked").read_text()
    for name in ("Linear", "Convolution", "FusedAttention"):
        assert f"*{name}*" in checked.partition("--gtest_filter=-")[2]


def test_what_nvidias_libraries_lack_is_said_first(machine):
    machine.program("library_versions", 'echo "no libcudnn.so.9 in $LD_LIBRARY_PATH: cannot open"; exit 2')
    assert machine.run("shared").returncode == 2
    assert f"no libcudnn.so.9 in {machine.packed}/lib:{machine.folder}" in machine.summary("shared")


def test_without_a_gpu_nothing_runs(machine):
    machine.set_gpus(0)
    ended = machine.run("correct")
    assert ended.returncode == 2
    assert "no GPU here" in machine.summary("correct")


def test_pytorch_runs_with_its_own_libraries(machine):
    assert machine.run("app+pytorch").returncode == 0
    lines = (machine.folder / "paths").read_text().splitlines()
    assert "pytorch finds /of/the/user" in lines
    ours = [line for line in lines if line.startswith("strata finds")]
    assert ours and all(f"{machine.packed}/lib:" in line for line in ours)
    with (machine.out / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    row = rows[0]
    assert (row["model"], row["batch"], row["ended"], row["measured_steps"]) == ("gpt2-small", "8", "ok", "3")
    assert float(row["step_seconds"]) == 0.02
    assert float(row["wall_seconds_a_step"]) == pytest.approx(0.03)
    assert float(row["tflops"]) == pytest.approx(8192 * 8e8 / 0.02 * 1e-12)
    assert float(row["tflops_by_the_clock"]) == pytest.approx(8192 * 8e8 / 0.03 * 1e-12, rel=1e-5)
    assert float(row["percent_of_sustained"]) == pytest.approx(100 * 8192 * 8e8 / 0.02 / 6e14, rel=1e-5)
    assert float(row["percent_of_nameplate"]) == pytest.approx(100 * 8192 * 8e8 / 0.02 / 989.5e12, rel=1e-5)
    assert float(row["pytorch_over_strata"]) == pytest.approx(0.5)
    assert row["power_watts"] == "", "not known"
    assert row["clock_event_reasons"] == "0x4"


def test_timelines_come_back(machine):
    assert machine.run("app+pytorch").returncode == 0
    timed = {path.parts[-3] for path in (machine.out / "runs.timed").glob("*/*/1.jsonl")}
    assert timed == {"gpt2_small", "llama_7b_8_layers", "vgg13"}


def test_what_differs_from_pytorch_is_in_the_summary(machine):
    assert machine.run("equality").returncode == 0
    assert "gpt equal: loss_difference 1e-07" in machine.summary("equality")
    assert (machine.out / "equality.csv").read_text() == "case\ngpt\n"
    assert not (machine.out / "compared").exists(), "checkpoints are large"
    compare = machine.packed / "equal_to_pytorch.py"
    compare.write_text(compare.read_text() + "    print('vgg Error, differs in loss_difference')\n    sys.exit(1)\n")
    assert machine.run("equality").returncode == 1
    assert "first failing line of compare: 2:vgg Error, differs in loss_difference" in machine.summary("equality")


def test_a_sweep_is_one_table(machine):
    assert machine.run("sweep").returncode == 0
    with (machine.out / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["batch"], row["micro_batches"]) for row in rows} == {("8", "2")}


def test_without_pytorch_the_table_is_there_and_the_phase_has_not_passed(machine):
    (machine.folder / "modules" / "torch.py").write_text("raise ImportError")
    assert machine.run("app+pytorch").returncode == 1
    assert "pytorch: not run, python3 has no torch" in machine.summary("app+pytorch")
    with (machine.out / "table.csv").open() as file:
        assert [row["pytorch_over_strata"] for row in csv.DictReader(file)] == ["", "", ""]


def test_what_was_written_comes_back_when_a_phase_is_stopped(machine):
    machine.program("cuda.test_monitor", "echo before; sleep 50")
    running = subprocess.Popen(
        [machine.packed / "run_on_gpu.sh", "probe+bench"], env=machine.environment(), stdout=subprocess.DEVNULL
    )
    log = machine.out / "probe+bench" / "monitor.log"
    end = time.monotonic() + 20
    while not (log.exists() and log.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 1
    assert machine.logs("probe+bench")["monitor.log"] == "before\n"
    assert "stopped by a signal" in machine.summary("probe+bench")


# ---------------------------------------------------------------------------------------------------- equal_to_pytorch
def test_experiments_of_the_comparison_have_equal_data_and_weights(tmp_path):
    words = [sys.executable, HERE / "equal_to_pytorch.py", "make", tmp_path, "--tiny", "--device", "cpu"]
    subprocess.run(words, check=True, timeout=60)
    experiments = {path.stem: tomllib.loads(path.read_text()) for path in tmp_path.glob("*.toml")}
    assert len(experiments) == 9
    for case in ("gpt", "llama", "vgg"):
        parts = [experiments[f"{case}.{part}"] for part in ("step", "train", "train_bf16")]
        for section in ("model", "data"):
            assert parts[0][section] == parts[1][section] == parts[2][section]
        assert len({(part["train"]["seed"], part["train"]["global_batch"]) for part in parts}) == 1
        assert parts[0]["checkpoint"]["every"] == 1 and parts[1]["train"]["steps"] == 20
    # Windows of 16 tokens and the one that follows them, of 4 sequences and 20 steps.
    assert (tmp_path / "gpt.tokens").stat().st_size == 4 * 17 * 4 * 20


@pytest.mark.parametrize(
    ("case", "name", "in_strata"),
    [
        ("gpt", "blocks.11.norm2.bias", "block[11].mlp.norm.bias"),
        ("gpt", "blocks.0.up.weight", "block[0].mlp.fc1.weight"),
        ("gpt", "positions.weight", "embedding.positions"),
        ("llama", "blocks.1.gate_up.weight", "block[1].mlp.gate_up.weight"),
        ("llama", "norm.weight", "final_norm.weight"),
        ("vgg", "features.0.weight", "block[0].conv[0].weight"),
        ("vgg", "features.22.bias", "block[4].conv[1].bias"),
        ("vgg", "classifier.6.weight", "classifier.fc3.weight"),
    ],
)
def test_parameters_have_the_names_of_both_programs(case, name, in_strata):
    sys.path.insert(0, str(HERE))
    import equal_to_pytorch

    assert equal_to_pytorch.strata_name(equal_to_pytorch.cases(True)[case], name) == in_strata


# ---------------------------------------------------------------------------------------------------- library_versions
@pytest.fixture
def library_versions():
    program = os.environ.get("LIBRARY_VERSIONS")
    if program is None:
        pytest.skip("not built: ctest runs this file with it")
    return program


def test_the_toolkits_libraries_are_found_and_new_enough(library_versions):
    path = os.environ["CUDA_LIBRARIES"].replace(" ", ":")
    ended = subprocess.run([library_versions], env={"LD_LIBRARY_PATH": path}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    names = [line.split()[0] for line in ended.stdout.splitlines()]
    assert names == ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"]


def test_a_library_that_is_missing_or_too_old_is_named(library_versions, tmp_path):
    source = tmp_path / "old.c"
    source.write_text("#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 90100; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcudnn.so.9", source], check=True)
    ended = subprocess.run([library_versions], env={"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "cuDNN 9.1 is older than 9." in ended.stdout
    if "libnccl.so.2 " not in ended.stdout.replace("no libnccl.so.2", ""):  # else the loader's own folders have it
        assert f"no libnccl.so.2 in {tmp_path}: " in ended.stdout


def test_the_scripts_are_those_of_this_python():
    """They run where nothing is installed: the standard library alone."""
    ended = subprocess.run([sys.executable, "-I", HERE / "table_of_runs.py", "--help"], capture_output=True, text=True)
    assert ended.returncode == 0 and "library" in ended.stdout

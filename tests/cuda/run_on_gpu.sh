#!/usr/bin/env bash
# Tests, benchmarks and runs of the CUDA executor on a machine with a GPU, in phases that each end within nine minutes
# and need no network.
#
#   run_on_gpu.sh --list          the phases, what they do, and how many seconds they may take
#   run_on_gpu.sh <phase>…        one of them, or several, one after the other
#
# of a folder made by tests/cuda/pack.sh, which needs NVIDIA's libraries only (of the toolkit or of PyTorch's wheels), or
# of this tree once `cmake --preset cuda -DBUILD_TESTING=ON` and targets strata and tier_cuda are built.
#
# $OUT (default: ./gpu_results) gets summary.<phase>.txt, with the first failing line of each failure, logs.<phase>.tgz, of
# `app+pytorch` table.csv and runs.timed/ (its timelines become Chrome traces by `strata report`), of `equality` and
# `sweep` a table each. Exits 0 if all ran and passed, 1 if something failed or did not run, 2 where nothing can
# run.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
most_seconds=${MOST_SECONDS:-520}  # of a phase; with the end of what runs then it is nine minutes

list() {
  cat <<'LIST'
phase         seconds  what it does
probe+bench       520  versions of the GPU's libraries, its counters, and bench_cuda by sections
correct           520  operators one by one, modes and NCCL of one rank, compute-sanitizer without cuBLAS's and cuDNN's
app+pytorch       520  strata run and profile of three models, timelines, compiled PyTorch, table.csv
equality          520  kernels at real shapes against f64; 20 losses and a step's gradients of three models against PyTorch
sweep             520  three models over batches and micro-batches: sweep.csv
shared            520  two and four ranks on one GPU, collectives in managed memory last
nccl              520  two ranks on two GPUs: NCCL and every mode over it
LIST
}
if (($# > 1)); then  # each as if it were alone
  worst=0
  for phase; do
    "${BASH_SOURCE[0]}" "$phase"
    code=$?
    ((code <= worst)) || worst=$code
  done
  exit "$worst"
fi
case "${1-}" in
  --list) list; exit 0 ;;
  probe+bench | correct | app+pytorch | equality | sweep | shared | nccl) phase=$1 ;;
  *) { echo "usage: run_on_gpu.sh --list | <phase>…, of these:"; list; } >&2; exit 2 ;;
esac

results=${OUT:-gpu_results}
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 2
logs=$results/$phase
summary=$results/summary.$phase.txt
rm -rf "$logs" && mkdir -p "$logs" || exit 2
: >"$summary"
failures=0
begin=$SECONDS
jobs=$(($(nproc) / 2 > 0 ? $(nproc) / 2 : 1))
exec 3>&1  # what is said, also while a program's output goes to its log
say() { printf '%s\n' "$*" | tee -a "$summary" >&3; }
fail() { say "$@"; failures=$((failures + 1)); }
# Whatever ends this script: what was written so far comes back, in one file.
keep_logs() {
  tar -C "$results" -czf "$results/logs.$phase.tgz" "$phase" && rm -rf "$logs"
}
trap keep_logs EXIT
child=
trap 'fail "stopped by a signal at $((SECONDS - begin)) s"; [[ -z $child ]] || kill "$child" 2>/dev/null; exit 1' INT TERM HUP
# In the background, so that a signal is answered at once.
limited() {  # seconds, command…
  timeout -k 9 "$@" <&0 &
  child=$!
  wait "$child"
  local code=$?
  child=
  return $code
}

if [[ -d $here/bin ]]; then
  bin=$here/bin
  strata=$bin/strata
  experiments=$here/share/strata/experiments/gpu
  libraries=$here/lib
  launcher=("$bin/mpiexec.hydra" -launcher fork -localhost localhost)
else
  bin=$(cd "$here/../.." && pwd)/build/cuda/tests
  strata=$bin/../strata
  experiments=$(cd "$here/../.." && pwd)/experiments/gpu
  libraries=
  launcher=(mpiexec)
  [[ -x $bin/library_versions ]] ||
    { fail "no $bin/library_versions: cmake --preset cuda -DBUILD_TESTING=ON, then targets strata and tier_cuda"; exit 2; }
fi
# The toolkit's libraries, or those of PyTorch's wheels where there is no toolkit.
path_of_others=${LD_LIBRARY_PATH-}
searched=$(python3 -c 'import glob, site
print(*[folder for packages in site.getsitepackages() for folder in sorted(glob.glob(packages + "/nvidia/*/lib"))])' 2>/dev/null)
for root in ${CUDA_LIBRARIES:-/usr/local/cuda/lib64 /usr/local/cuda/lib} $searched; do
  [[ -d $root ]] && libraries+=${libraries:+:}$root
done
export LD_LIBRARY_PATH=$libraries${path_of_others:+:$path_of_others}
versions=$("$bin/library_versions" 2>&1)
code=$?
say "$versions"
((code == 0)) || { fail "NVIDIA's libraries: see above"; exit 2; }
nvidia-smi -L >/dev/null 2>&1 || { fail "no GPU here: nvidia-smi lists none"; exit 2; }
gpus=$(nvidia-smi -L | wc -l)
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks_event_reasons.active,power.limit \
  --format=csv | tee -a "$summary"
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1

# The first line of a log that tells of a failure: what comes behind it often follows from it.
first_failure() {
  grep -m 1 -nE '(: Failure$|^\[  FAILED  \]|[Rr]efused|[Ee]rror|what\(\)|^strata: |SKIPPED|Skipped|no GPU|Aborted|Segmentation|^Traceback)' "$1" ||
    tail -n 1 "$1"
}
seconds_left() { echo $((most_seconds - (SECONDS - begin))); }
# What ran is told from what did not: a test that was skipped has not passed.
run() {  # name, seconds, command…
  local name=$1 limit=$2 from=$SECONDS left code log=$logs/$1.log
  shift 2
  left=$(seconds_left)
  ((left > 0)) || { fail "== $name: not run, no time left"; return 1; }
  ((limit < left)) || limit=$left
  limited "$limit" stdbuf -oL -eL "$@" >"$log" 2>&1
  code=$?
  local skipped
  skipped=$(grep -cE '^\[  SKIPPED \]' "$log")
  say "== $name: exit $code in $((SECONDS - from)) s (at $((SECONDS - begin)) s)"
  ((code == 124 || code == 137)) && fail "   $name ran into its limit of $limit s"
  if ((code != 0 && code != 124 && code != 137)) || ((skipped > 0)); then
    fail "   first failing line of $name: $(first_failure "$log")"
  fi
  ((code == 0 && skipped == 0))
}
# Each test in a process of its own: after an illegal access a process's GPU answers nothing any more.
run_each() {  # name, seconds, gtest's filter, command…
  begin_tests "$1" "$3" "${@:4}" && run_rest "$1" "$2" "${@:4}"
}
# All in one process, which takes a GPU a fraction of the time, and each that has not passed by itself.
run_all() {  # name, seconds, gtest's filter, command…
  local name=$1 limit=$2 filter=$3 left
  shift 3
  begin_tests "$name" "$filter" "$@" || return
  left=$(seconds_left)
  ((limit < left)) || limit=$left
  limited "$limit" stdbuf -oL -eL "$@" "--gtest_filter=$filter" >"$logs/$name/all.log" 2>&1
  sed -n 's/^\[       OK \] \(.*\) ([0-9]* ms.*/passed \1/p' "$logs/$name/all.log" >"$logs/$name.log"
  run_rest "$name" "$limit" "$@"
}
begin_tests() {  # name, gtest's filter, command…: the tests are in $tests
  local name=$1 filter=$2
  shift 2
  from=$SECONDS
  (($(seconds_left) > 0)) || { fail "== $name: not run, no time left"; return 1; }
  mkdir -p "$logs/$name" && : >"$logs/$name.log"
  tests=$("$@" --gtest_list_tests "--gtest_filter=$filter" | awk '{sub(/ *#.*/, "")} /^[^ ]/{suite = $1} /^ /{print suite $1}')
  [[ -n $tests ]] || { fail "== $name: $* lists no tests"; return 1; }
}
run_rest() {  # name, seconds, command…: those of $tests that $logs/<name>.log does not say have passed
  local name=$1 limit=$2 left test code log passed count rest
  shift 2
  left=$(seconds_left)
  ((limit < left)) || limit=$left
  rest=$(grep -vxF "$(sed 's/^passed //' "$logs/$name.log")" <<<"$tests")
  if ((limit > 0)); then
    # shellcheck disable=SC2016  # the inner shell expands
    limited "$limit" xargs -r -P "$jobs" -I{} bash -c '
      test=$1 log=$2/${1//[^A-Za-z0-9_.]/_}.log
      shift 2
      timeout 100 stdbuf -oL -eL "$@" --gtest_filter="$test" >"$log" 2>&1
      code=$?
      if ((code == 0)) && [[ $(<"$log") == *"[  PASSED  ] 1 test"* ]]; then echo "passed $test"; else echo "$code $test $log"; fi' \
      _ {} "$logs/$name" "$@" <<<"$rest" >>"$logs/$name.log"
  fi
  count=$(wc -l <<<"$tests")
  passed=$(grep -c '^passed' "$logs/$name.log")
  say "== $name: $passed of $count in $((SECONDS - from)) s (at $((SECONDS - begin)) s)"
  while read -r code test log; do
    [[ $code == passed ]] || fail "   $test: exit $code: $(first_failure "$log")"
  done <"$logs/$name.log"
  ((passed == count)) || fail "   $((count - passed)) of $name failed or did not run"
}
modes() {  # ranks
  run "modes.np$1" 240 "${launcher[@]}" -n "$1" "$bin/cuda.test_modes" "--gtest_filter=${2:-*}"
}

with_pytorch() {  # name, seconds, script…
  local name=$1 limit=$2
  shift 2
  if LD_LIBRARY_PATH=$path_of_others python3 -c 'import torch' 2>/dev/null; then
    # With the libraries that its wheels were tested with, not with those that we found.
    run "$name" "$limit" env LD_LIBRARY_PATH="$path_of_others" python3 "$@"
  else
    fail "== $name: not run, python3 has no torch"
  fi
}

case $phase in
  probe+bench)
    run monitor 20 "$bin/cuda.test_monitor"
    # Each section by itself: one that is refused ends that one.
    for section in products memory attention shapes gpt2-small llama-7b-8-layers vgg13; do
      run "bench.$section" 100 "$bin/bench_cuda" "$section"
      cat "$logs/bench.$section.log" >>"$summary"
    done
    ;;
  correct)
    run_all operators 60 '-*FusedAttention*' "$bin/cuda.test_operators"
    # cuDNN compiles each plan for a second of a core.
    run_each attention 100 '*FusedAttention*' "$bin/cuda.test_operators"
    # Only what one rank can do: skipped tests are of several.
    run_each modes.np1 240 '-*Late*:*TransformersInParts*:*HostAreRefused*' \
      "${launcher[@]}" -n 1 "$bin/cuda.test_modes"
    # Of one rank too: NCCL's own kernels, without another way that one rank's modes would go.
    run nccl.np1 60 "${launcher[@]}" -n 1 "$bin/cuda.test_nccl"
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [[ -n $sanitizer ]]; then
      # The libraries' kernels read beyond what they use and are not ours to mend.
      run memcheck 200 "$sanitizer" --error-exitcode 9 "$bin/cuda.test_operators" \
        '--gtest_filter=-*Linear*:*Matmul*:*Convolution*:*FusedAttention*'
    else
      fail "== memcheck: not run, there is no compute-sanitizer"
    fi
    ;;
  app+pytorch)
    folder=$results/runs
    rm -rf "$folder"
    for model in gpt2_small llama_7b_8_layers vgg13; do
      run "run.$model" 50 "$strata" run "$experiments/$model.toml" --results "$folder"
      tail -n 1 "$logs/run.$model.log" | tee -a "$summary"
    done
    # Where the time goes, in runs of their own: events around each instruction cost some.
    for model in gpt2_small llama_7b_8_layers vgg13; do
      run "run.$model.timed" 40 "$strata" run "$experiments/$model.toml" --results "$folder.timed" \
        --set cuda.timing=true --set cuda.graphs=off --set measure.min_steps=5 --set measure.max_steps=5
    done
    run profile.gpt2_small 90 "$strata" profile "$experiments/gpt2_small.toml" --output "$results/profile.gpt2_small.toml"
    with_pytorch pytorch 200 "$here/bench_pytorch.py"
    grep -sE ' s a step|^PyTorch' "$logs/pytorch.log" >>"$summary"
    run table 20 python3 "$here/table_of_runs.py" "$folder" "$logs/pytorch.log" --output "$results/table.csv"
    tee -a "$summary" <"$logs/table.log"
    ;;
  equality)
    run_each real_shapes 150 '*' "$bin/cuda.test_real_shapes"
    folder=$results/compared
    rm -rf "$folder"
    run make 60 python3 "$here/equal_to_pytorch.py" make "$folder"
    for toml in "$folder"/*.toml; do
      run "strata.$(basename "$toml" .toml)" 60 "$strata" run "$toml" --results "$folder/results"
    done
    with_pytorch compare 300 "$here/equal_to_pytorch.py" compare "$folder" --libraries "$here/lib"
    [[ ! -f $logs/compare.log ]] || tee -a "$summary" <"$logs/compare.log"
    [[ ! -f $folder/equality.csv ]] || cp "$folder/equality.csv" "$results"
    rm -rf "$folder"  # checkpoints of gigabytes
    ;;
  sweep)
    folder=$results/swept
    rm -rf "$folder"
    # Batches that memory holds several times over, and what cutting one into micro-batches costs.
    for point in gpt2_small/8/1 gpt2_small/16/1 gpt2_small/32/1 gpt2_small/32/4 \
      llama_7b_8_layers/1/1 llama_7b_8_layers/4/4 llama_7b_8_layers/4/1 vgg13/64/1 vgg13/128/1 vgg13/256/1 vgg13/256/2; do
      IFS=/ read -r model batch micro_batches <<<"$point"
      run "run.$model.batch$batch.micro$micro_batches" 45 "$strata" run "$experiments/$model.toml" --results "$folder" \
        --set "train.global_batch=$batch" --set "train.micro_batches=$micro_batches" \
        --set measure.min_steps=10 --set measure.max_steps=15
    done
    run table 20 python3 "$here/table_of_runs.py" "$folder" --output "$results/sweep.csv"
    tee -a "$summary" <"$logs/table.log"
    ;;
  shared)
    # Ranks on one GPU take turns, and the driver moves managed memory between host and GPU: the slowest come last.
    run shared.nccl.np2 60 "${launcher[@]}" -n 2 "$bin/cuda.test_nccl" '--gtest_filter=*/host*:*Host*'
    for ranks in 2 4; do
      modes "$ranks" '-*GraphsReadTheStepsOwn*'
    done
    ;;
  nccl)
    if ((gpus < 2)); then
      fail "== nccl: not run, NCCL takes a GPU for each rank, and $gpus is here"
    else
      run nccl.np2 120 "${launcher[@]}" -n 2 "$bin/cuda.test_nccl"
      STRATA_TRANSPORT=nccl run modes.nccl.np2 380 "${launcher[@]}" -n 2 "$bin/cuda.test_modes" \
        '--gtest_filter=-*HostAreRefused*'
    fi
    ;;
esac
say "done in $((SECONDS - begin)) s, failures: $failures"
((failures == 0))

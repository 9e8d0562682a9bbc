#!/usr/bin/env bash
# Tests and benchmarks of the CUDA executor on a machine with a GPU; ends within nine minutes, needs no network.
#
#   tests/cuda/run_on_gpu.sh            builds first: needs what jobscripts/setup.sh installs, and the CUDA toolkit
#   <folder>/run_on_gpu.sh              of a folder made by tests/cuda/pack.sh: needs the CUDA libraries only
#
# Writes $OUT/summary.txt (default: ./gpu_results) and one log a program beside it; exits 1 if a test failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${OUT:-gpu_results}
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 1
summary=$results/summary.txt
: >"$summary"
begin=$SECONDS
say() { printf '%s\n' "$*" | tee -a "$summary"; }

nvidia-smi -L >/dev/null 2>&1 || { say "no GPU here: nvidia-smi lists none"; exit 2; }
if [[ -d $here/bin ]]; then
  bin=$here/bin
  launcher=("$bin/mpiexec.hydra" -launcher fork)
  libraries=$here/lib
else
  cd "$here/../.." || exit 1
  libraries=
  bin=$PWD/build/cuda/tests
  launcher=(mpiexec)
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  mkdir -p build
  { timeout 60 cmake --preset cuda -DBUILD_TESTING=ON -DCMAKE_CUDA_ARCHITECTURES="$architecture" &&
    timeout -k 9 240 cmake --build --preset cuda -j "$(nproc)" --target tier_cuda; } >"$results/build.log" 2>&1 ||
    { say "build failed:"; tail -n 20 "$results/build.log" | tee -a "$summary"; exit 1; }
  say "built in $((SECONDS - begin)) s"
fi
# The toolkit's libraries, or those of PyTorch's wheels where there is no toolkit.
for root in /usr/local/cuda/lib64 /usr/local/cuda/lib $(python3 -c 'import glob, site
for packages in site.getsitepackages(): print(*glob.glob(packages + "/nvidia/*/lib"))' 2>/dev/null); do
  [[ -d $root ]] && libraries+=${libraries:+:}$root
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for program in cuda.test_monitor cuda.test_operators cuda.test_modes cuda.test_nccl bench_cuda; do
  missing=$(ldd "$bin/$program" 2>&1 | grep -E 'not found' || true)
  [[ -z $missing ]] || { say "$program cannot start: $missing"; exit 1; }
done

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv | tee -a "$summary"
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
failed=0
run() {  # name, seconds, command…
  local name=$1 limit=$2 from=$SECONDS code
  shift 2
  local left=$((520 - (SECONDS - begin)))
  ((left > 0)) || { say "== $name: not run, no time left"; failed=1; return; }
  ((limit < left)) || limit=$left
  timeout -k 9 "$limit" "$@" >"$results/$name.log" 2>&1
  code=$?
  say "== $name: exit $code in $((SECONDS - from)) s (at $((SECONDS - begin)) s)"
  grep -E '^\[ +(PASSED|FAILED|SKIPPED) +\]' "$results/$name.log" | tail -n 40 >>"$summary"
  ((code == 0)) || failed=1
}
# Each test in a process of its own: after an illegal access a process's GPU answers nothing any more.
run_each() {  # name, seconds, program
  local name=$1 limit=$2 program=$3 from=$SECONDS tests left
  tests=$("$program" --gtest_list_tests | awk '/^[^ ]/{suite = $1} /^ /{print suite $1}')
  left=$((520 - (SECONDS - begin)))
  ((limit < left)) || limit=$left
  # shellcheck disable=SC2016  # the inner shell expands
  timeout -k 9 "$limit" xargs -P 4 -I{} bash -c \
    'timeout 60 "$1" --gtest_filter="$2" >"$3.$BASHPID.log" 2>&1 && grep -q "^\[  PASSED  \] 1 test" "$3.$BASHPID.log" &&
       echo "passed $2" || echo "FAILED or skipped: $2"' \
    _ "$program" {} "$results/$name" <<<"$tests" >"$results/$name.log"
  local passed
  passed=$(grep -c '^passed' "$results/$name.log")
  cat "$results/$name".*.log >"$results/$name.output.log" && rm "$results/$name".[0-9]*.log
  say "== $name: $passed of $(wc -l <<<"$tests") in $((SECONDS - from)) s (at $((SECONDS - begin)) s)"
  grep -v '^passed' "$results/$name.log" >>"$summary"
  ((passed == $(wc -l <<<"$tests"))) || failed=1
}
modes() {  # ranks
  run "modes.np$1" 90 "${launcher[@]}" -n "$1" "$bin/cuda.test_modes"
}
gpus=$(nvidia-smi -L | wc -l)
nccl() {  # ranks
  run "nccl.np$1" 60 "${launcher[@]}" -n "$1" "$bin/cuda.test_nccl"
  (($1 <= gpus)) || { say "== modes.nccl.np$1: not run, $gpus GPUs"; return; }
  STRATA_TRANSPORT=nccl run "modes.nccl.np$1" 60 "${launcher[@]}" -n "$1" "$bin/cuda.test_modes"
}
run monitor 20 "$bin/cuda.test_monitor"
run_each operators 120 "$bin/cuda.test_operators"
modes 1
nccl 1
run bench 120 "$bin/bench_cuda"
cat "$results/bench.log" >>"$summary"
if python3 -c 'import torch' 2>/dev/null; then
  run pytorch 150 python3 "$here/bench_pytorch.py"
  grep -E ' s a step|^PyTorch' "$results/pytorch.log" >>"$summary"
else
  say "== pytorch: not run, python3 has no torch"
fi
# Several ranks on one GPU take turns: the slowest come last.
for ranks in 2 4; do
  modes "$ranks"
  nccl "$ranks"
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [[ -n $sanitizer ]]; then
  run sanitizer 120 "$sanitizer" --error-exitcode 9 "$bin/cuda.test_operators"
else
  say "== sanitizer: not run, there is no compute-sanitizer"
fi
# Few files, where only few come back.
(cd "$results" && tar -czf logs.tgz --remove-files -- *.log)
say "done in $((SECONDS - begin)) s, failures: $failed"
exit $failed

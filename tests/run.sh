#!/usr/bin/env bash
# Set up and run the tests. Ends with ctest's and pytest's own summaries; exits non-zero if anything failed.
#
#   tests/run.sh            everything
#   tests/run.sh unit       seconds; also: mpi, e2e, slurm, analysis
#   tests/run.sh --deep     everything, and for hours what is swept through instead of sampled: more rank counts and pairs of layouts,
#                           all tests of unit and mpi held to each set of instructions, long loops of kills, every planted fault,
#                           ten minutes of fuzzing for each parser
#   PRESET=asan tests/run.sh unit mpi
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-cpu}
build=build/$preset
deep=0
tiers=()
for word in "$@"; do
  case $word in
    --deep) deep=1 ;;
    unit | mpi | e2e | slurm | analysis) tiers+=("$word") ;;
    *) echo "tests/run.sh: no tier '$word'; there are unit, mpi, e2e, slurm, analysis, and --deep" >&2; exit 2 ;;
  esac
done
targets=("${tiers[@]/#/tier_}")
((${#tiers[@]})) || { tiers=(unit mpi e2e slurm analysis); targets=(all); }
has() { [[ " ${tiers[*]} " == *" $1 "* ]]; }

setup_options=()
if has slurm; then setup_options+=(--slurm); fi
if ((deep)); then setup_options+=(--fuzz); fi
jobscripts/setup.sh "${setup_options[@]}"
# Ranks share the cores of one machine: OpenMP threads and MPI ranks sleep instead of spinning.
export OMP_WAIT_POLICY=passive
cores=$(nproc)
# The quickstart configures without tests, and a cache remembers.
mkdir -p build
cmake --preset "$preset" -DBUILD_TESTING=ON >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
begin=$SECONDS
echo "building $build"
cmake --build --preset "$preset" -j "$cores" --target "${targets[@]}" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
echo "built in $((SECONDS - begin)) s"

# What earlier runs left would be counted again by tests/lint/check_skipped.py.
rm -rf "$build/reports"
mkdir "$build/reports"
status=0
# run_ctest <name of the report> <regular expression of labels>
run_ctest() {
  # One more than there are cores: ranks wait for each other a third of the time, and tests on a cluster for longer. Unit
  # tests are many short processes that wait for their start, and the last long one is not to run alone.
  local jobs=$((cores + 1))
  [[ $2 != unit ]] || jobs=$((2 * cores))
  ctest --preset "$preset" -j "$jobs" -L "^($2)\$" --no-tests=error --output-junit "reports/$1.xml" || status=1
}
# Beside the others, on as many cores as these leave by waiting.
if has analysis; then
  STRATA_BUILD="$PWD/$build" .venv/bin/python -m pytest -q -n $(((cores + 1) / 2)) --dist loadfile --junitxml="$build/reports/analysis.xml" \
    tests/analysis >"$build/analysis.log" 2>&1 &
  analysis=$!
fi
labels=$(printf '%s\n' "${tiers[@]}" | grep -vx analysis | paste -sd '|' || true)
[[ -z "$labels" ]] || run_ctest ctest "$labels"
if has analysis; then
  wait "$analysis" || status=1
  cat "$build/analysis.log"
fi

if ((deep)); then
  { cmake --preset alone && cmake --build --preset alone -j "$cores" --target strata; } >build/alone.log 2>&1 ||
    { cat build/alone.log; status=1; }
  run_ctest ctest.deep deep
  for set in avx2 avx512 avx512_bf16; do
    STRATA_MAX_CPU_ISA=$set run_ctest "ctest.$set" 'unit|mpi'
  done
  STRATA_KILLS=200 ctest --preset "$preset" -R '^e2e.test_kill$' --timeout 7200 || status=1
  STRATA_DEEP=1 run_ctest ctest.unit unit
  tests/faults/run.py || status=1
  tests/fuzz/run.sh || status=1
fi
exit $status

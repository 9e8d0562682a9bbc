#!/usr/bin/env bash
# Set up and run the tests. Ends with ctest's and pytest's own summaries; exits non-zero if anything failed.
#
#   tests/run.sh            everything
#   tests/run.sh unit       seconds; also: mpi, e2e, slurm, analysis
#   PRESET=asan tests/run.sh unit mpi
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-cpu}
build=build/$preset
tiers=("$@")
((${#tiers[@]})) || tiers=(unit mpi e2e slurm analysis)
for tier in "${tiers[@]}"; do
  [[ $tier =~ ^(unit|mpi|e2e|slurm|analysis)$ ]] || { echo "tests/run.sh: no tier '$tier'; there are unit, mpi, e2e, slurm, analysis" >&2; exit 2; }
done

setup_options=()
[[ " ${tiers[*]} " == *" slurm "* ]] && setup_options+=(--slurm)
jobscripts/setup.sh "${setup_options[@]}"
# Ranks share the cores of one machine: OpenMP threads and MPI ranks sleep instead of spinning.
export OMP_WAIT_POLICY=passive
cores=$(nproc)
# The quickstart configures without tests, and a cache remembers.
mkdir -p build
cmake --preset "$preset" -DBUILD_TESTING=ON >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
echo "building $build"
targets=(all)
(($#)) && targets=("${tiers[@]/#/tier_}")
cmake --build --preset "$preset" -j "$cores" --target "${targets[@]}" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }

# What earlier runs left would be counted again by tests/lint/check_skipped.py.
rm -rf "$build/reports"
mkdir "$build/reports"
status=0
ctest_tiers=$(printf '%s\n' "${tiers[@]}" | grep -vx analysis | paste -sd '|' || true)
if [[ -n "$ctest_tiers" ]]; then
  ctest --preset "$preset" -j "$cores" -L "^($ctest_tiers)\$" --no-tests=error --output-junit reports/ctest.xml || status=1
fi
if [[ " ${tiers[*]} " == *" analysis "* ]]; then
  STRATA_BUILD="$PWD/$build" .venv/bin/python -m pytest -q --junitxml="$build/reports/analysis.xml" tests/analysis || status=1
fi
exit $status

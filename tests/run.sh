#!/usr/bin/env bash
# Set up and run the tests. Ends with ctest's and pytest's own summaries; exits non-zero if anything failed.
#
#   tests/run.sh            everything
#   tests/run.sh unit       seconds; also: mpi, e2e, analysis
#   PRESET=asan tests/run.sh unit mpi
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-cpu}
tiers=("$@")
((${#tiers[@]})) || tiers=(unit mpi e2e analysis)

jobscripts/setup.sh
# Ranks share the cores of one machine: OpenMP threads and MPI ranks sleep instead of spinning.
export OMP_WAIT_POLICY=passive
cores=$(nproc)
cmake --preset "$preset" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; exit 1; }
rm -f "build-$preset.log"
cmake --build --preset "$preset" -j "$cores" | tail -n 3

status=0
ctest_tiers=$(printf '%s\n' "${tiers[@]}" | grep -E '^(unit|mpi|e2e|slurm|lint)$' | paste -sd '|' || true)
if [[ -n "$ctest_tiers" ]]; then
  ctest --preset "$preset" -j "$cores" -L "^($ctest_tiers)\$" --no-tests=error --output-junit "ctest-$(tr '|' '-' <<<"$ctest_tiers").xml" || status=1
fi
if [[ " ${tiers[*]} " == *" analysis "* ]]; then
  STRATA_BUILD="$PWD/build/$preset" .venv/bin/python -m pytest -q tests/analysis || status=1
fi
exit $status

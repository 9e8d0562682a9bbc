#!/usr/bin/env bash
# Every check that reads the source without running it, and that compiles what no test runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tests/lint/check_layers.py src
tests/lint/check_names.py
mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh')
clang-format-14 --dry-run --Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
.venv/bin/ruff check --config analysis/pyproject.toml analysis experiments jobscripts tests
.venv/bin/ruff format --check --config analysis/pyproject.toml analysis experiments jobscripts tests
tests/faults/run.py --check

# clang-tidy reads what changed: against the main branch of the remote, or where that is this commit, against the one
# before; sixteen files at most. It is told how each source is compiled by itself, and needs the generated headers.
cmake --preset alone >/dev/null
cmake --build --preset alone --target strata_build_facts strata_chakra_schema >/dev/null
base=${LINT_BASE:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
if [[ -z "$base" || "$base" == "$(git rev-parse HEAD)" ]]; then
  base=$(git rev-parse --quiet --verify HEAD~1 || git hash-object -t tree /dev/null)
fi
# How it is compiled must be known of every one of them, but for CUDA's, which this build leaves out.
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' ':!src/exec/cuda' | head -n "${LINT_MOST:-16}")
for file in "${changed[@]}"; do
  grep -q "/$file\"" build/alone/compile_commands.json || { echo "clang-tidy: how $file is compiled is not known" >&2; exit 1; }
done
if ((${#changed[@]})); then
  # Clang does not know these options of GCC's, and without them reads the same source.
  mkdir -p build/lint
  sed -E 's/ -fno-gnu-unique| --param=ggc-[^ ]*//g' build/alone/compile_commands.json >build/lint/compile_commands.json
  printf '%s\n' "${changed[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy-19 -p build/lint --quiet \
    --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-invalid-feature-combination --warnings-as-errors='*' 2>/dev/null
  echo "clang-tidy: ${#changed[@]} files"
fi

cmake --preset cpu >/dev/null
cmake --build --preset cpu --target all_verify_interface_header_sets benchmarks -j "$(nproc)" | tail -n 1

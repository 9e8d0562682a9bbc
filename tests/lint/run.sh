#!/usr/bin/env bash
# Every check that reads the source without running it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tests/lint/check_layers.py src
tests/lint/check_names.py
mapfile -t sources < <(git ls-files '*.cpp' '*.hpp')
clang-format-14 --dry-run --Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
.venv/bin/ruff check --config analysis/pyproject.toml analysis tests
.venv/bin/ruff format --check --config analysis/pyproject.toml analysis tests

# clang-tidy reads what changed since the last release of main: the merge base, or the first commit of a new checkout's last day.
cmake --preset cpu >/dev/null
base=${LINT_BASE:-$(git rev-list -1 --before='12 hours ago' HEAD)}
if [[ -n "$base" ]]; then
  mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' | head -n "${LINT_MOST:-40}")
else
  mapfile -t changed < <(git ls-files 'src/*.cpp' | head -n "${LINT_MOST:-40}")
fi
if ((${#changed[@]})); then
  printf '%s\n' "${changed[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy-19 -p build/cpu --quiet --warnings-as-errors='*' 2>/dev/null
  echo "clang-tidy: ${#changed[@]} files"
fi

cmake --build --preset cpu --target all_verify_interface_header_sets -j "$(nproc)" | tail -n 1

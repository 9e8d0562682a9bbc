#!/usr/bin/env bash
# Fuzz what reads files of users: build the targets with libFuzzer and sanitizers, run each for a while from its seeds, and
# print what came of it. Exits non-zero where an input crashed, hung, or was refused without saying where.
#
#   tests/fuzz/run.sh                               every target, 10 minutes each
#   tests/fuzz/run.sh --seconds 60 plan cluster     two of them, a minute each
#
# Needs clang 19 with libFuzzer (Debian's clang-19 and libclang-rt-19-dev) and any llvm-symbolizer (llvm). Findings are left below build/fuzz/run/<target>/found;
# `build/fuzz/tests/fuzz_<target> <file>` shows one. Mended, it goes to tests/fuzz/corpus/<target>/found_<what>, which every build replays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=600
targets=()
while (($#)); do
  case $1 in
    --seconds) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: --seconds takes a number of seconds" >&2; exit 2; }
      seconds=$2; shift 2 ;;
    -*) echo "run.sh: no option $1; there is --seconds" >&2; exit 2 ;;
    *) [[ -f tests/fuzz/fuzz_$1.cpp ]] || { echo "run.sh: no target $1; there are $(cd tests/fuzz; ls fuzz_*.cpp | sed 's/fuzz_\(.*\)\.cpp/\1/' | paste -sd ' ')" >&2; exit 2; }
      targets+=("$1"); shift ;;
  esac
done
((${#targets[@]})) || mapfile -t targets < <(cd tests/fuzz; ls fuzz_*.cpp | sed 's/fuzz_\(.*\)\.cpp/\1/')

mkdir -p build
{ cmake --preset fuzz && cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz_}"; } >build/fuzz.log 2>&1 ||
  { cat build/fuzz.log; exit 1; }

# Of a checkpoint or an image file little is said in few bytes; of texts much.
longest() {
  case $1 in
    checkpoint) echo 20480 ;;
    cifar) echo 12292 ;;
    experiment | program) echo 32768 ;;
    *) echo 8192 ;;
  esac
}

# Nothing of libhdf5 is instrumented: seeds that differ look alike, and must be kept all the same. It also forgets some
# of its own memory where it gives up on a damaged file, and asks for impossible sizes, which malloc refuses and it hears.
of_hdf5() { [[ $1 == checkpoint ]] && echo 1 || echo 0; }

# Faults of libhdf5 in its global heap, see fuzz_checkpoint.cpp: they are nobody's but the library's to mend. Their
# place is known by its function's name, for which the sanitizer looks for a symbolizer of clang's own version alone.
is_known() {
  [[ $1 == checkpoint ]] || return 1
  { ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer) ASAN_OPTIONS=detect_leaks=0 build/fuzz/tests/fuzz_checkpoint -timeout=5 "$2" 2>&1 || true; } |
    grep -E '#[0-9]+ .* in H5HG_' >/dev/null
}

status=0
rows=()
for target in "${targets[@]}"; do
  folder=build/fuzz/run/$target
  rm -rf "$folder"
  mkdir -p "$folder/corpus" "$folder/found"
  seeds=(tests/fuzz/corpus/"$target")
  for file in $(sed -n "s/^$target //p" tests/fuzz/seeds.txt); do
    cp "$file" "$folder/corpus/${file//\//_}"
  done
  options=(-timeout=10 -rss_limit_mb=2048 -max_len="$(longest "$target")" -max_total_time="$seconds" -print_funcs=0
           -keep_seed="$(of_hdf5 "$target")" -len_control="$((100 * (1 - $(of_hdf5 "$target"))))" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -artifact_prefix="$folder/found/")
  [[ -f tests/fuzz/dictionaries/$target.txt ]] && options+=(-dict="tests/fuzz/dictionaries/$target.txt")
  echo "fuzzing $target for $seconds s"
  ASAN_OPTIONS=detect_leaks=$((1 - $(of_hdf5 "$target"))):allocator_may_return_null=$(of_hdf5 "$target") build/fuzz/tests/fuzz_"$target" "${options[@]}" "$folder/corpus" "${seeds[@]}" >"$folder/log" 2>&1 || true
  # The last line of a job that came back: "#12345: cov: 1 ft: 2 corp: 3 exec/s 4 …".
  last=$(grep -E '^#[0-9]+: cov:' "$folder/log" | tail -n 1 || true)
  executions=$(sed -n 's/^#\([0-9]*\):.*/\1/p' <<<"$last")
  corpus=$(sed -n 's/.*corp: \([0-9]*\).*/\1/p' <<<"$last")
  mkdir "$folder/known"
  while read -r file; do
    if is_known "$target" "$file"; then mv "$file" "$folder/known"; fi
  done < <(find "$folder/found" -type f)
  findings=$(find "$folder/found" -type f | wc -l)
  known=$(find "$folder/known" -type f | wc -l)
  if [[ -z $executions ]]; then
    executions=0
    findings=$((findings + 1))
    tail -n 20 "$folder/log"
  fi
  ((findings == 0)) || status=1
  rows+=("$(printf '%-14s %12s %12s %8s %9s %6s' "$target" "$executions" $((executions / seconds)) "${corpus:-0}" "$findings" "$known")")
done

printf '%-14s %12s %12s %8s %9s %6s\n' target executions executions/s corpus findings known
printf '%s\n' "${rows[@]}"
exit $status

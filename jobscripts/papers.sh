#!/usr/bin/env bash
# The five papers again: simulate, collect, draw, and say of every number that they print what became of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: jobscripts/papers.sh [--results DIR] [--jobs N] [--measure] [PAPER]...

Simulates the experiments of papers (amsp, osdp, oases, cdp, autoddl; default: all), and writes below DIR

  index.html             every printed number beside ours, with a verdict, and how many have which
  claims.csv             the same as a table
  PAPER/report.html      a paper's claims and figures
  EXPERIMENT/            collected.h5, .csv, .parquet, figures/, report.html

What else DIR holds, such as runs made elsewhere, is judged too: each experiment's file says how it is run.

  --results DIR   where results go (default: results)
  --jobs N        points at a time, then pages at a time (default: the machine's processors)
  --measure       also runs the papers' experiments on a testbed, one after the other: hours, on a quiet machine, as root,
                  with Slurm (jobscripts/setup.sh --slurm)

Needs build/cpu/strata and .venv: jobscripts/quickstart.sh makes both.
TEXT
}

results=results
jobs=$(nproc)
measures=false
papers=()
while (($#)); do
  case "$1" in
    --results) results=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --measure) measures=true; shift ;;
    --help | -h) usage; exit 0 ;;
    amsp | osdp | oases | cdp | autoddl) papers+=("$1"); shift ;;
    *) usage >&2; exit 2 ;;
  esac
done
((${#papers[@]})) || papers=(amsp osdp oases cdp autoddl)

# The larger ones come first, so that no processor waits for the last page.
experiments=(
  osdp/figure_6 oases/figure_5 osdp/figure_5 autoddl/table_3 autoddl/figure_9_transformer osdp/figure_9 amsp/table_4
  autoddl/figure_10_transformer oases/figure_4 oases/table_5 amsp/figure_11 amsp/figure_16 amsp/table_5 amsp/figure_18
  amsp/figure_2 amsp/figure_3 osdp/figure_5_equal_batch osdp/figure_5_one_sample osdp/figure_9_one_sample
  osdp/figure_6_equal_batch osdp/figure_9_equal_batch osdp/authors_script osdp/authors_profile osdp/figure_7_simulated
  oases/table_3 oases/table_2 oases/table_6 oases/figure_2 oases/figure_7 cdp/figure_1 cdp/figure_4 cdp/table_1
  autoddl/figure_3 autoddl/figure_4_daint autoddl/figure_4_gcp autoddl/figure_8 autoddl/figure_9_vgg13
  autoddl/figure_10_vgg13
)
# And what `testbed.py up` is told for those that are run.
measured=(
  "amsp/testbed_table_5 --rate 200mbit" "amsp/testbed_figure_11 --rate 200mbit" "osdp/testbed --rate 200mbit"
  "oases/testbed_table_3 --nodes 2 --rate 1gbit" "oases/testbed_figure_6 --nodes 2" "autoddl/testbed_transformer --rate 200mbit"
  "autoddl/testbed_vgg --rate 200mbit" "autoddl/testbed_figure_4 --rate 200mbit"
)
# of_papers <experiment...>: those of the chosen papers, a line each
of_papers() {
  local experiment paper
  for experiment in "$@"; do
    for paper in "${papers[@]}"; do
      [[ ${experiment%%/*} != "$paper" ]] || echo "$experiment"
    done
  done
}
mapfile -t chosen < <(of_papers "${experiments[@]}")

strata=build/cpu/strata
[[ -x $strata ]] || { echo "papers.sh: there is no $strata; jobscripts/quickstart.sh builds it" >&2; exit 2; }
mkdir -p "$results"

name_of() { sed -n 's/^name = "\(.*\)"/\1/p' "experiments/$1.toml" | head -n 1; }

# How it ended and after how many seconds; what it says goes to the log beside its results, of which a failure names the file.
# told <what> <experiment> <command...>
told() {
  local what=$1 experiment=$2 log began=$SECONDS
  shift 2
  log=$results/$(name_of "$experiment").log
  if "$@" >>"$log" 2>&1; then
    printf '%4d s  %s %s\n' $((SECONDS - began)) "$what" "$experiment"
  else
    printf 'failed  %s %s: see %s\n' "$what" "$experiment" "$log"
    return 1
  fi
}

page_of() {
  local folder
  folder=$results/$(name_of "$1")
  "$strata" collect "$folder" && "$strata" figures "$folder" && "$strata" report "$folder"
}

# on_testbed <experiment> <options of `up`...>: all of its points, until the queue is empty
on_testbed() {
  local ended=0
  jobscripts/testbed.py up "${@:2}" || return
  jobscripts/testbed.py exec "$strata" submit "experiments/$1.toml" --site testbed --results "$results" || ended=$?
  while ((ended == 0)) && [[ -n $(jobscripts/testbed.py exec squeue --noheader) ]]; do sleep 5; done
  jobscripts/testbed.py down || ended=$?
  return "$ended"
}
export -f name_of told page_of
export strata results OMP_NUM_THREADS=1

# Points of one experiment share the processors, so that none waits for a long one at the end. A failed experiment leaves its
# numbers "not run", and the others stand.
status=0
drawn=()
for experiment in "${chosen[@]}"; do
  : >"$results/$(name_of "$experiment").log"
  if told simulated "$experiment" "$strata" simulate "experiments/$experiment.toml" --jobs "$jobs" --results "$results"; then
    drawn+=("$experiment")
  else
    status=1
  fi
done
if $measures; then
  while read -r -u 3 experiment network; do
    : >"$results/$(name_of "$experiment").log"
    # shellcheck disable=SC2086  # options of `up`
    if told measured "$experiment" on_testbed "$experiment" $network; then drawn+=("$experiment"); else status=1; fi
  done 3< <(of_papers "${measured[@]}")
fi
((${#drawn[@]} == 0)) || printf '%s\n' "${drawn[@]}" | xargs -P "$jobs" -I {} bash -c 'told drawn {} page_of {}' || status=1

PYTHONPATH=analysis .venv/bin/python -m strata_analysis claims "$results" "${papers[@]}"
exit $status

# shellcheck shell=bash disable=SC2154  # the lines above set the variables
# From here on every script is the same: the launches of this task, one after the other.

# What happens to the job is noted for `strata status`; what happens to an attempt stands beside its results.
note() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >>"$record"; }
child=
stopped_by=
# A launcher that has just started may not listen yet.
keep_telling() {
  while kill -s "$2" "$1" 2>/dev/null; do sleep 5; done
}
on_signal() {
  note "signal $1"
  stopped_by=$1
  [[ -z $child ]] || keep_telling "$child" "$1" &
  # Which of the nodes are down is known now; when the job starts again they may be up.
  [[ $1 != TERM ]] || timeout 10 "$strata" launches "$manifest" --task "$task" --job-ends
}
trap 'on_signal USR1' USR1 # the time limit is near
trap 'on_signal TERM' TERM # preempted, or cancelled

launches=$("$strata" launches "$manifest" --task "$task" --job "$job" --nodes "${SLURM_JOB_NODELIST:-$(hostname)}") || exit $?
worst=0
while read -r -u 3 launch point options; do
  [[ -n $launch && -z $stopped_by ]] || continue
  note "launch $launch"
  # shellcheck disable=SC2086  # several words
  $launcher "$strata" run "$points/$point.toml" --paths-from "$experiment_file" --results "$results" \
    --launch "$launch" --job "$job" $options &
  child=$!
  [[ -z $stopped_by ]] || keep_telling "$child" "$stopped_by" &
  # A signal that is caught ends `wait` early.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=
  note "exit $launch $code"
  ((code > worst)) && worst=$code
done 3<<<"$launches"
note end
exit "$worst"

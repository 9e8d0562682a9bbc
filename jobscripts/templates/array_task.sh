# shellcheck shell=bash disable=SC2154  # the lines above set the variables
# From here on every script is the same: the launches of this task, one after the other.

# What happens to the job is noted for `strata status`; what happens to an attempt stands beside its results.
note() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >>"$record"; }
child=
stopped_by=
on_signal() {
  note "signal $1"
  stopped_by=$1
  [[ -z $child ]] || kill -s "$1" "$child" 2>/dev/null
}
trap 'on_signal USR1' USR1 # the time limit is near
trap 'on_signal TERM' TERM # preempted, or cancelled

launches=$("$strata" launches "$manifest" --task "$task" --job "$job" --nodes "${SLURM_JOB_NODELIST:-$(hostname)}") || exit $?
worst=0
while read -r -u 3 launch point options; do
  [[ -n $launch ]] || continue
  note "launch $launch"
  # shellcheck disable=SC2086  # several words
  $launcher "$strata" run "$folder/$point/point.toml" --paths-from "$experiment_file" --results "$results" \
    --launch "$launch" --job "$job" $options &
  child=$!
  # A signal that is caught ends `wait` early.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=
  note "exit $launch $code"
  ((code > worst)) && worst=$code
  [[ -z $stopped_by ]] || break
done 3<<<"$launches"
note end
exit "$worst"

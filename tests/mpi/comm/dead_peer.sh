#!/usr/bin/env bash
# dead_peer.sh MPIEXEC PROGRAM TRANSPORT PROGRESS: both survivors of three ranks must name the dead one within two seconds.
set -uo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Hydra kills the process groups that it started: each rank has a session of its own, out of its reach.
"$1" -n 3 setsid --fork --wait "$2" "$3" "$4" "$said"
for _ in $(seq 50); do
  (($(wc -l <"$said") == 2)) && break
  sleep 0.1
done
cat "$said"
(($(grep -cE 'rank [02] noticed in time: rank 1 on node .* is gone.*while this rank is in .#7 doomed' "$said") == 2))

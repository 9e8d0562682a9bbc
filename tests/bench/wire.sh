#!/usr/bin/env bash
# Run a two-rank program over a shaped wire: each rank in a network namespace of its own, a bridge between them.
# Needs root. The namespaces live as long as the command.
#
#   tests/bench/wire.sh [--rate 400mbit] PROGRAM ARGUMENTS...
#   tests/bench/wire.sh build/cpu/tests/bench_overlap tests/bench/overlap.toml --wire --set train.global_batch=56
set -euo pipefail

rate=400mbit
if [[ "${1:-}" == --rate ]]; then rate=$2; shift 2; fi
(($#)) || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }

nodes=$(dirname "${BASH_SOURCE[0]}")/../../jobscripts/shaped_nodes.sh
trap '"$nodes" down strata-wire' EXIT
"$nodes" down strata-wire
"$nodes" up strata-wire 2 "$rate" 10.77.0

# MPI would find out that both ranks share a host and leave the wire alone.
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 UCX_RNDV_THRESH=300k MPIR_CVAR_NOLOCAL=1
mpiexec -n 1 nsenter --net=/run/netns/strata-wire1 "$@" : -n 1 nsenter --net=/run/netns/strata-wire2 "$@"

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

bridge=strata-wire
nodes=(strata-wire-0 strata-wire-1)
take_down() {
  for node in "${nodes[@]}"; do ip netns delete "$node" 2>/dev/null || true; done
  # A namespace lets go of its devices some time after it is gone.
  for device in wire0 wire1 "$bridge"; do ip link delete "$device" 2>/dev/null || true; done
}
trap take_down EXIT
take_down

ip link add "$bridge" type bridge
ip link set "$bridge" up
for i in 0 1; do
  node=${nodes[i]}
  ip netns add "$node"
  ip link add "wire$i" type veth peer name eth0 netns "$node"
  ip link set "wire$i" master "$bridge" up
  ip -n "$node" address add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "$node" link set eth0 up
  ip -n "$node" link set lo up
  ip netns exec "$node" tc qdisc add dev eth0 root tbf rate "$rate" burst 512kb latency 50ms
done

# MPI would find out that both ranks share a host and leave the wire alone.
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 MPIR_CVAR_NOLOCAL=1
mpiexec -n 1 nsenter --net=/run/netns/"${nodes[0]}" "$@" : -n 1 nsenter --net=/run/netns/"${nodes[1]}" "$@"

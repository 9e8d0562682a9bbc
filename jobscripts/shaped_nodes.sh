#!/usr/bin/env bash
# Network namespaces that act as the nodes of a slow cluster: each has an eth0 on one bridge, and what enters and what leaves
# a node passes a token bucket of its own. Needs root. Latency cannot be added: few kernels come with netem.
#
#   jobscripts/shaped_nodes.sh up NAME COUNT RATE SUBNET   # e.g. up strata-n 4 400mbit 10.78.0
#   jobscripts/shaped_nodes.sh down NAME                   # also ends what still runs inside
#
# makes the namespaces NAME1, NAME2, ... at SUBNET.1, SUBNET.2, ... and the bridge NAME at SUBNET.254, by which this host reaches
# them. `nsenter --net=/run/netns/NAME1 COMMAND` runs there; `ip netns exec` would also hide mounts that slurmd needs.
set -euo pipefail

# Small, or whole messages would pass at full speed before the bucket is empty.
bucket=(burst 64kb latency 50ms)

shape() { tc "${@:3}" qdisc add dev "$1" root tbf rate "$2" "${bucket[@]}"; }

# Jumbo frames, as clusters have them: a token bucket takes a timer and an interrupt for each frame, and at 1500 bytes these
# cost a shared machine as much CPU as the training whose wire it is.
mtu=9000

up() {
  local name=$1 count=$2 rate=$3 subnet=$4
  ip link add "$name" type bridge
  ip address add "$subnet.254/24" dev "$name"
  ip link set "$name" up
  for ((i = 1; i <= count; i++)); do
    local node=$name$i
    ip netns add "$node"
    # The two ends of a cable: eth0 in the node, a port of the bridge out here.
    ip link add "$node" mtu "$mtu" type veth peer name eth0 mtu "$mtu" netns "$node"
    ip link set "$node" master "$name" up
    ip -n "$node" address add "$subnet.$i/24" dev eth0
    ip -n "$node" link set eth0 up
    ip -n "$node" link set lo up
    shape eth0 "$rate" -netns "$node"  # out of the node
    shape "$node" "$rate"              # into it
  done
}

down() {
  local name=$1 node
  for node in $(ip netns list | awk '{print $1}' | grep -E "^$name[0-9]+\$" || true); do
    # Somebody else may take them down at the same time: what counts is that they are gone.
    { ip netns pids "$node" | xargs -r kill -KILL; } 2>/dev/null || true
    ip netns delete "$node" 2>/dev/null || [[ ! -e /run/netns/$node ]]
    # A namespace lets go of its devices some time after it is gone.
    ip link delete "$node" 2>/dev/null || true
  done
  ip link delete "$name" 2>/dev/null || true
}

case "${1:-}:$#" in
  up:5) up "${@:2}" ;;
  down:2) down "$2" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

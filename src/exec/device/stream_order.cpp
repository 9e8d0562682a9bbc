#include "exec/device/stream_order.hpp"

#include <algorithm>
#include <tuple>

namespace strata {
namespace {

constexpr Instance no_instance{.instruction = -1, .repetition = 0};

void insert(std::vector<Instance>& sorted, Instance value) {
  const auto at = std::ranges::lower_bound(
      sorted, std::tuple(value.repetition, value.instruction), {},
      [](const Instance& instance) { return std::tuple(instance.repetition, instance.instruction); });
  if (at == sorted.end() || *at != value) sorted.insert(at, value);
}

std::vector<int> instructions_of(const std::vector<Instance>& instances) {
  std::vector<int> result;
  for (const Instance& instance : instances) result.push_back(instance.instruction);
  return result;
}

}  // namespace

StreamOrder::StreamOrder(const std::vector<Instruction>& section, int num_streams, CollectivesOn where)
    : section_(section),
      where_(where),
      last_(static_cast<std::size_t>(num_streams), no_instance),
      last_on_device_(no_instance) {}

IssueWaits StreamOrder::next(Instance instance, std::span<const Instance> waits) {
  const Instruction& in = instruction(instance);
  const bool host = on_host(instance);
  IssueWaits result;
  const auto follow = [&](Instance before) {
    const bool same_stream = instruction(before).stream == in.stream;
    if (on_host(before)) {
      // The engine keeps the order of its own streams.
      if (!host || !same_stream) insert(result.host_collectives, before);
    } else if (host) {
      insert(result.host_kernels, before);
    } else if (!same_stream) {
      insert(result.device_waits, before);
    }
  };
  for (const Instance& before : waits) follow(before);
  Instance& previous = last_.at(static_cast<std::size_t>(in.stream));
  if (previous != no_instance) follow(previous);  // order on the own stream is implied
  previous = instance;
  const bool is_message = in.collective == Collective::send || in.collective == Collective::recv;
  if (where_ == CollectivesOn::device && in.is_collective() && !is_message) {
    if (last_on_device_ != no_instance) follow(last_on_device_);
    last_on_device_ = instance;
  }
  return result;
}

std::vector<IssueOrder> stream_order(const std::vector<Instruction>& section, int num_streams, CollectivesOn where) {
  std::vector<IssueOrder> order(section.size());
  StreamOrder next_of(section, num_streams, where);
  std::vector<Instance> waits;
  for (int i = 0; i < static_cast<int>(section.size()); ++i) {
    waits.clear();
    for (const Wait& wait : section[static_cast<std::size_t>(i)].waits) {
      if (wait.lag == 0) waits.push_back({.instruction = wait.instruction, .repetition = 0});
    }
    const IssueWaits issue = next_of.next({.instruction = i, .repetition = 0}, waits);
    IssueOrder& ours = order[static_cast<std::size_t>(i)];
    ours.device_waits = instructions_of(issue.device_waits);
    ours.host_kernels = instructions_of(issue.host_kernels);
    ours.host_collectives = instructions_of(issue.host_collectives);
    for (const int before : ours.device_waits) order[static_cast<std::size_t>(before)].records = true;
    for (const int before : ours.host_kernels) order[static_cast<std::size_t>(before)].records = true;
  }
  return order;
}

}  // namespace strata

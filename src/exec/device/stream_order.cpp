#include "exec/device/stream_order.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.hpp"

namespace strata {
namespace {

void insert(std::vector<int>& sorted, int value) {
  const auto at = std::ranges::lower_bound(sorted, value);
  if (at == sorted.end() || *at != value) sorted.insert(at, value);
}

}  // namespace

std::vector<IssueOrder> stream_order(const std::vector<Instruction>& section, int num_streams, CollectivesOn where) {
  std::vector<IssueOrder> order(section.size());
  std::vector<int> last(static_cast<std::size_t>(num_streams), -1);  // by stream
  int last_on_device = -1;                                           // collective that is no message
  const auto on_host = [&](int i) {
    return where == CollectivesOn::host && section[static_cast<std::size_t>(i)].is_collective();
  };
  for (std::size_t i = 0; i < section.size(); ++i) {
    const Instruction& in = section[i];
    const bool host = on_host(static_cast<int>(i));
    const auto follow = [&](int before) {
      const Instruction& other = section[static_cast<std::size_t>(before)];
      IssueOrder& earlier = order[static_cast<std::size_t>(before)];
      if (on_host(before)) {
        // The engine keeps the order of its own streams.
        if (!host || other.stream != in.stream) insert(order[i].host_collectives, before);
      } else if (host) {
        insert(order[i].host_kernels, before);
        earlier.records = true;
      } else if (other.stream != in.stream) {
        insert(order[i].device_waits, before);
        earlier.records = true;
      }
    };
    for (const Wait& wait : in.waits) {
      if (wait.lag != 0) {
        throw Unsupported(
            fmt::format("#{} {}: a wait across steps; this executor ends every step before the next", i, in.name));
      }
      follow(wait.instruction);
    }
    int& previous = last.at(static_cast<std::size_t>(in.stream));
    if (previous >= 0) follow(previous);  // order on the own stream is implied
    previous = static_cast<int>(i);
    const bool is_message = in.collective == Collective::send || in.collective == Collective::recv;
    if (where == CollectivesOn::device && in.is_collective() && !is_message) {
      if (last_on_device >= 0) follow(last_on_device);
      last_on_device = static_cast<int>(i);
    }
  }
  return order;
}

}  // namespace strata

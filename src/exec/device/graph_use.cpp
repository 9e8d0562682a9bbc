#include "exec/device/graph_use.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace strata::cuda {

namespace {

/// Why the body cannot be recorded; empty where it can.
std::string obstacle(const Program& program, CollectivesOn where) {
  const auto count = [&](const auto& is) { return std::ranges::count_if(program.body, is); };
  if (where == CollectivesOn::host) {
    const auto on_host = count([](const Instruction& in) { return in.is_collective(); });
    if (on_host == 0) return "";
    return fmt::format("{} collectives of a step go through the host, which a graph cannot wait for", on_host);
  }
  const auto messages = count(
      [](const Instruction& in) { return in.collective == Collective::send || in.collective == Collective::recv; });
  if (messages == 0) return "";
  return fmt::format("a step has {} messages, and whether a graph carries out two of them at once is not defined",
                     messages);
}

}  // namespace

bool uses_graph(const Program& program, CollectivesOn where, GraphUse use) {
  if (use == GraphUse::off) return false;
  const std::string reason = obstacle(program, where);
  if (reason.empty()) return true;
  if (use == GraphUse::automatic) return false;
  throw Unsupported(fmt::format("cuda.graphs = \"on\": {}; accepted: \"auto\" | \"off\"", reason));
}

}  // namespace strata::cuda

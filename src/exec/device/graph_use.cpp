#include "exec/device/graph_use.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"

namespace strata::cuda {
namespace {

/// Why the body cannot be recorded; empty where it can.
std::string obstacle(const Program& program, CollectivesOn where) {
  if (!is_repeated_alone(program)) return "steps overlap, and a graph never overlaps itself";
  if (program.steps_per_body != 1) {
    return fmt::format("the body holds {} steps, any of which may be the last, and a graph is launched whole",
                       program.steps_per_body);
  }
  const auto count = [&](const auto& is) { return std::ranges::count_if(program.body, is); };
  if (where == CollectivesOn::host) {
    const auto on_host = count([](const Instruction& in) { return in.is_collective(); });
    if (on_host == 0) return "";
    return fmt::format(
        "the host carries collectives (communication.device_transport), which a graph cannot wait for: {} in a step",
        on_host);
  }
  const auto messages = count(
      [](const Instruction& in) { return in.collective == Collective::send || in.collective == Collective::recv; });
  if (messages == 0) return "";
  return fmt::format(
      "ranks send each other messages, which must run side by side, and CUDA does not promise that of a "
      "graph: {} in a step",
      messages);
}

std::string refusal(const std::string& reason) {
  return fmt::format("cuda.graphs = \"on\": {}; accepted: \"auto\" | \"off\"", reason);
}

}  // namespace

bool uses_graph(const Program& program, CollectivesOn where, GraphUse use) {
  if (use == GraphUse::off) return false;
  const std::string reason = obstacle(program, where);
  if (!reason.empty() && use == GraphUse::on) throw Unsupported(refusal(reason));
  return reason.empty();
}

bool uses_graph(const comm::World& world, const Program& program, CollectivesOn where, GraphUse use) {
  if (use == GraphUse::off) return false;
  const std::vector<std::string> reasons = world.all_gather(obstacle(program, where));
  const auto reason = std::ranges::find_if(reasons, [](const std::string& text) { return !text.empty(); });
  if (reason != reasons.end() && use == GraphUse::on) throw Unsupported(refusal(*reason));
  return reason == reasons.end();
}

}  // namespace strata::cuda

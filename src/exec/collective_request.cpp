#include "exec/collective_request.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace strata {

std::vector<int> create_groups(const Program& program, comm::Engine& engine) {
  std::vector<int> groups;
  for (const Group& group : program.groups) groups.push_back(engine.create_group(group.ranks));
  return groups;
}

std::string collective_label(const Program& program, const Instruction& in, std::size_t index) {
  return fmt::format("#{} {} {} in group {}", index, to_string(in.collective), in.name,
                     program.groups[static_cast<std::size_t>(in.group)].name);
}

comm::Request collective_request(const Program& program, const Instruction& in, const Arguments& arguments,
                                 std::span<const int> engine_groups, const std::string& label) {
  comm::Request request;
  request.kind = in.collective;
  request.reduction = in.reduction;
  if (!in.pieces.empty()) request.pieces = &in.pieces;
  request.input = arguments.input(0);
  request.output = arguments.output(0);
  for (const auto* operands : {&in.inputs, &in.outputs}) {
    for (const Operand& operand : *operands) {
      request.num_elements = std::max(request.num_elements, operand.num_elements);
      request.dtype = program.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
    }
  }
  request.group = engine_groups[static_cast<std::size_t>(in.group)];
  request.peer = in.root;
  request.stream = in.stream;
  request.label = label;
  return request;
}

}  // namespace strata

#include "exec/collective_request.hpp"

#include <fmt/core.h>

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

std::vector<comm::Request> collective_requests(const Program& program, const Instruction& in,
                                               const Arguments& arguments, std::span<const int> engine_groups,
                                               const std::string& label) {
  std::vector<comm::Request> requests;
  for (int tensor = 0; tensor < num_tensors(in); ++tensor) {
    const Operand& full = full_operand(in, tensor);
    comm::Request& request = requests.emplace_back();
    request.kind = in.collective;
    request.reduction = in.reduction;
    if (!in.pieces.empty()) request.pieces = &in.pieces;
    request.input = arguments.input(tensor);
    request.output = arguments.output(tensor);
    request.num_elements = full.num_elements;
    request.dtype = program.buffers[static_cast<std::size_t>(full.buffer)].dtype;
    request.group = engine_groups[static_cast<std::size_t>(in.group)];
    request.peer = root_of(in, tensor);
    request.stream = in.stream;
    request.label = label;
  }
  return requests;
}

}  // namespace strata

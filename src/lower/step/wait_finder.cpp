#include "lower/step/wait_finder.hpp"

#include <algorithm>

namespace strata {

WaitFinder::WaitFinder(int num_streams, std::size_t num_buffers)
    : order_(num_streams), num_streams_(num_streams), accesses_(num_buffers) {}

std::span<const int> WaitFinder::missing(const Instruction& instruction, std::span<const int> after,
                                         std::span<const Wait> waits) {
  // The latest conflicting instruction of each other stream is enough: streams are in order.
  needed_.assign(static_cast<std::size_t>(num_streams_), -1);
  const auto is_waited_for = [&](int before) {
    return std::ranges::any_of(
        waits, [&](const Wait& w) { return w.instruction == before || order_.ordered(before, w.instruction); });
  };
  const auto need = [&](int before) {
    const int stream = stream_[static_cast<std::size_t>(before)];
    if (stream == instruction.stream || order_.ordered_before_next(before, instruction.stream)) return;
    if (is_waited_for(before)) return;
    int& latest = needed_[static_cast<std::size_t>(stream)];
    latest = std::max(latest, before);
  };
  const auto visit = [&](const Operand& operand, bool write) {
    const std::int64_t end = operand.begin + operand.num_elements;
    for (const Access& before : accesses_[static_cast<std::size_t>(operand.buffer)]) {
      const bool conflict = (write || before.write) && operand.begin < before.end && before.begin < end;
      if (conflict) need(before.instruction);
    }
  };
  for (const Operand& operand : instruction.inputs) visit(operand, false);
  for (const Operand& operand : instruction.outputs) visit(operand, true);
  for (const int before : after) need(before);
  std::erase(needed_, -1);
  return needed_;
}

void WaitFinder::append(const Instruction& instruction, std::span<const Wait> waits) {
  const int index = static_cast<int>(stream_.size());
  stream_.push_back(instruction.stream);
  order_.append(instruction.stream, waits);
  const auto record = [&](const Operand& operand, bool write) {
    std::vector<Access>& list = accesses_[static_cast<std::size_t>(operand.buffer)];
    const Access access{operand.begin, operand.begin + operand.num_elements, index, write};
    // A later access of the same stream to the same elements stands for an earlier one, unless it is weaker.
    std::erase_if(list, [&](const Access& a) {
      return stream_[static_cast<std::size_t>(a.instruction)] == instruction.stream && access.begin <= a.begin &&
             a.end <= access.end && (access.write || !a.write);
    });
    list.push_back(access);
  };
  for (const Operand& operand : instruction.inputs) record(operand, false);
  for (const Operand& operand : instruction.outputs) record(operand, true);
}

}  // namespace strata

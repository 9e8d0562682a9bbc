#include "lower/step/builder.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace strata {

ProgramBuilder::ProgramBuilder(int rank, int num_ranks, std::vector<std::string> streams)
    : order_(static_cast<int>(streams.size())), last_(streams.size(), -1), held_(streams.size()) {
  program_.rank = rank;
  program_.num_ranks = num_ranks;
  program_.streams = std::move(streams);
}

int ProgramBuilder::add_buffer(Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  accesses_.emplace_back();
  return static_cast<int>(program_.buffers.size()) - 1;
}

int ProgramBuilder::add_group(Group group) {
  program_.groups.push_back(std::move(group));
  return static_cast<int>(program_.groups.size()) - 1;
}

std::vector<Instruction>& ProgramBuilder::section() {
  switch (current_) {
    case Section::prologue: return program_.prologue;
    case Section::body: return program_.body;
    case Section::epilogue: return program_.epilogue;
  }
  throw InternalError("no such section");
}

void ProgramBuilder::begin(Section next) {
  current_ = next;
  STRATA_INVARIANT(section().empty(), "a section is filled once");
  order_ = HappensBefore(static_cast<int>(program_.streams.size()));
  last_.assign(program_.streams.size(), -1);
  held_.assign(program_.streams.size(), {});
  for (auto& list : accesses_) {
    list.clear();
  }
}

void ProgramBuilder::find_waits(Instruction& instruction, std::span<const int> after) {
  const int index = static_cast<int>(section().size());
  // The latest conflicting instruction of each other stream is enough: streams are in order.
  std::vector<int> needed(program_.streams.size(), -1);
  const auto need = [&](int before) {
    const int stream = section()[static_cast<std::size_t>(before)].stream;
    if (stream != instruction.stream && !order_.ordered_before_next(before, instruction.stream)) {
      needed[static_cast<std::size_t>(stream)] = std::max(needed[static_cast<std::size_t>(stream)], before);
    }
  };
  const auto visit = [&](const Operand& operand, bool write) {
    auto& list = accesses_[static_cast<std::size_t>(operand.buffer)];
    const std::int64_t end = operand.begin + operand.num_elements;
    for (const Access& before : list) {
      const bool conflict = (write || before.write) && operand.begin < before.end && before.begin < end;
      if (conflict) need(before.instruction);
    }
  };
  for (const Operand& operand : instruction.inputs) visit(operand, false);
  for (const Operand& operand : instruction.outputs) visit(operand, true);
  for (const int before : after) need(before);
  for (const int before : std::exchange(held_[static_cast<std::size_t>(instruction.stream)], {})) need(before);
  for (const int wait : needed) {
    if (wait >= 0) instruction.waits.push_back({wait, 0});
  }
  const auto record = [&](const Operand& operand, bool write) {
    auto& list = accesses_[static_cast<std::size_t>(operand.buffer)];
    const Access access{operand.begin, operand.begin + operand.num_elements, index, write};
    // A later access of the same stream to the same elements stands for an earlier one, unless it is weaker.
    std::erase_if(list, [&](const Access& a) {
      return section()[static_cast<std::size_t>(a.instruction)].stream == instruction.stream &&
             access.begin <= a.begin && a.end <= access.end && (access.write || !a.write);
    });
    list.push_back(access);
  };
  // The list looks instructions up by index, so the new one must be there first: the caller appends before the next
  // call.
  section().push_back({});
  section().back().stream = instruction.stream;
  for (const Operand& operand : instruction.inputs) record(operand, false);
  for (const Operand& operand : instruction.outputs) record(operand, true);
  section().pop_back();
}

int ProgramBuilder::emit(Instruction instruction, std::span<const int> after) {
  STRATA_INVARIANT(instruction.waits.empty(), "waits are found here");
  find_waits(instruction, after);
  order_.append(instruction.stream, instruction.waits);
  instruction.allocs = std::exchange(reserved_, {});
  int& last = last_[static_cast<std::size_t>(instruction.stream)];
  section().push_back(std::move(instruction));
  return last = static_cast<int>(section().size()) - 1;
}

namespace {

/// Alloc at the first use, or where it was reserved before that; free at the last one, in program order.
void add_lifetimes(const std::vector<Buffer>& buffers, std::vector<Instruction>& section) {
  std::vector<int> last(buffers.size(), -1);
  std::vector<bool> seen(buffers.size(), false);
  for (std::size_t i = 0; i < section.size(); ++i) {
    Instruction& in = section[i];
    const auto lives = [&](int id) {
      const auto b = static_cast<std::size_t>(id);
      return buffers[b].persistent || seen[b];
    };
    std::erase_if(in.allocs, lives);
    for (const int id : in.allocs) seen[static_cast<std::size_t>(id)] = true;
    const auto visit = [&](int id) {
      const auto b = static_cast<std::size_t>(id);
      if (buffers[b].persistent) return;
      if (!seen[b]) in.allocs.push_back(id);
      seen[b] = true;
      last[b] = static_cast<int>(i);
    };
    // The workspace lies below the outputs: a kernel need not write all of it, so that only a top made of outputs shows
    // the arena's high-water mark to the byte.
    if (in.workspace >= 0) visit(in.workspace);
    for (const Operand& operand : in.outputs) visit(operand.buffer);
    for (const Operand& operand : in.inputs) visit(operand.buffer);
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (last[b] >= 0) section[static_cast<std::size_t>(last[b])].frees.push_back(static_cast<int>(b));
  }
}

}  // namespace

Program ProgramBuilder::finish(const WorkspaceBytes& workspace_bytes) && {
  for (auto* instructions : {&program_.prologue, &program_.body, &program_.epilogue}) {
    for (Instruction& in : *instructions) {
      const std::int64_t bytes = in.is_collective() ? 0 : workspace_bytes(program_, in);
      if (bytes > 0) {
        in.workspace = add_buffer({.name = in.name + "/workspace",
                                   .num_elements = bytes,
                                   .dtype = DType::u8,
                                   .category = Category::workspace});
      }
    }
    add_lifetimes(program_.buffers, *instructions);
  }
  assign_addresses(program_);
  verify(program_);
  return std::move(program_);
}

}  // namespace strata

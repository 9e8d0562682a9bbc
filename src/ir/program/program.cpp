/// @file
/// Folds over a Program: bytes by collective, arithmetic, live memory. Whatever is reported about a plan is counted
/// here.

#include "ir/program/program.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"

namespace strata {

std::string_view to_string(Category category) {
  switch (category) {
    case Category::parameter: return "parameter";
    case Category::gradient: return "gradient";
    case Category::optimizer: return "optimizer";
    case Category::activation: return "activation";
    case Category::workspace: return "workspace";
    case Category::communication: return "communication";
  }
  return "?";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::setup: return "setup";
    case Phase::forward: return "forward";
    case Phase::recompute: return "recompute";
    case Phase::backward: return "backward";
    case Phase::reduce: return "reduce";
    case Phase::update: return "update";
    case Phase::metrics: return "metrics";
  }
  return "?";
}

int num_tensors(const Instruction& collective) {
  return static_cast<int>(std::max(collective.inputs.size(), collective.outputs.size()));
}

int root_of(const Instruction& collective, int tensor) {
  return collective.roots.empty() ? collective.root : collective.roots[static_cast<std::size_t>(tensor)];
}

const Operand& full_operand(const Instruction& collective, int tensor) {
  STRATA_INVARIANT(collective.is_collective(), collective.name + " is no collective");
  const auto t = static_cast<std::size_t>(tensor);
  const Operand* full = nullptr;
  for (const auto* operands : {&collective.inputs, &collective.outputs}) {
    if (t >= operands->size()) continue;
    const Operand& operand = (*operands)[t];
    if (full == nullptr || operand.num_elements > full->num_elements) full = &operand;
  }
  STRATA_INVARIANT(full != nullptr, collective.name + " has no operand");
  return *full;
}

namespace {

DType dtype_of(const Program& program, const Operand& operand) {
  return program.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
}

}  // namespace

std::int64_t full_bytes(const Program& program, const Instruction& collective) {
  std::int64_t bytes = 0;
  for (int t = 0; t < num_tensors(collective); ++t) {
    const Operand& full = full_operand(collective, t);
    bytes += full.num_elements * size_of(dtype_of(program, full));
  }
  return bytes;
}

std::int64_t priced_bytes(const Program& program, const Instruction& collective) {
  if (collective.pieces.empty() || collective.collective != Collective::all_to_all) {
    return full_bytes(program, collective);
  }
  const Operand& full = full_operand(collective);
  return collective.pieces.longest * static_cast<std::int64_t>(collective.pieces.input.size() - 1) *
         size_of(dtype_of(program, full));
}

std::int64_t bytes_sent(const Program& program, const Instruction& instruction) {
  if (!instruction.is_collective()) {
    return 0;
  }
  const Group& group = program.groups[static_cast<std::size_t>(instruction.group)];
  const auto index = std::ranges::find(group.ranks, program.rank) - group.ranks.begin();
  if (!instruction.pieces.empty()) {
    return elements_sent(instruction.collective, instruction.pieces, static_cast<int>(index)) *
           size_of(dtype_of(program, full_operand(instruction)));
  }
  std::int64_t bytes = 0;
  for (int t = 0; t < num_tensors(instruction); ++t) {
    const Operand& full = full_operand(instruction, t);
    bytes += elements_sent(instruction.collective, full.num_elements, static_cast<int>(group.ranks.size()),
                           static_cast<int>(index), root_of(instruction, t)) *
             size_of(dtype_of(program, full));
  }
  return bytes;
}

std::vector<std::vector<int>> body_dependencies(const Program& program) {
  std::vector<std::vector<int>> result;
  std::vector<int> last_on_stream(program.streams.size(), -1);
  for (const Instruction& in : program.body) {
    std::vector<int> before;
    for (const Wait& wait : in.waits) {
      if (wait.lag == 0) before.push_back(wait.instruction);
    }
    int& last = last_on_stream[static_cast<std::size_t>(in.stream)];
    if (last >= 0) before.push_back(last);
    last = static_cast<int>(result.size());
    std::ranges::sort(before);
    before.erase(std::unique(before.begin(), before.end()), before.end());
    result.push_back(std::move(before));
  }
  return result;
}

std::int64_t BytesByCollective::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t value : bytes) {
    sum += value;
  }
  return sum;
}

BytesByCollective bytes_by_collective(const Program& program) {
  BytesByCollective result;
  for (const Instruction& in : program.body) {
    if (in.is_collective()) {
      result.bytes[static_cast<int>(in.collective)] += bytes_sent(program, in);
    }
  }
  for (std::int64_t& bytes : result.bytes) bytes /= program.steps_per_body;
  return result;
}

double flops_per_step(const Program& program) {
  double sum = 0.0;
  for (const Instruction& in : program.body) {
    sum += flops(in);
  }
  return sum / program.steps_per_body;
}

namespace {

/// As instructions follow each other in @p list; MemoryPeak::instruction counts in it.
MemoryPeak peak_of(const Program& program, const InstructionList& list) {
  MemoryPeak live;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent) {
      live.bytes[static_cast<int>(buffer.category)] += buffer.size_bytes();
      live.total_bytes += buffer.size_bytes();
    }
  }
  MemoryPeak peak = live;
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (const int id : list[i].allocs) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      live.bytes[static_cast<int>(buffer.category)] += buffer.size_bytes();
      live.total_bytes += buffer.size_bytes();
    }
    if (live.total_bytes > peak.total_bytes) {
      peak = live;
      peak.instruction = static_cast<int>(i);
    }
    for (const int id : list[i].frees) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      live.bytes[static_cast<int>(buffer.category)] -= buffer.size_bytes();
      live.total_bytes -= buffer.size_bytes();
    }
  }
  return peak;
}

}  // namespace

MemoryPeak memory_peak(const Program& program) {
  const InstructionList all = body_as_it_meets(program);
  MemoryPeak peak = peak_of(program, all);
  if (!all.is_section() && peak.instruction >= 0)
    peak.instruction = all.origin(static_cast<std::size_t>(peak.instruction)).instruction;
  return peak;
}

std::int64_t own_arena_bytes(const Program& program) {
  std::int64_t end = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.category == Category::workspace || buffer.size_bytes() == 0) continue;
    end = std::max(end, buffer.offset_bytes + buffer.size_bytes());
  }
  return end;
}

void check_capacity(const Program& program, std::int64_t capacity_bytes) {
  if (capacity_bytes == 0 || program.arena_bytes <= capacity_bytes) {
    return;
  }
  // The operator to name is the first whose allocation does not fit.
  std::string place = "the parameters and optimizer states";
  for (const Instruction& in : program.body) {
    const auto exceeds = [&](int id) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      return buffer.offset_bytes + buffer.size_bytes() > capacity_bytes;
    };
    if (std::ranges::any_of(in.allocs, exceeds)) {
      place = fmt::format("{} ({}, micro-batch {})", in.name, to_string(in.phase), in.micro_batch);
      break;
    }
  }
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  const MemoryPeak peak = memory_peak(program);
  std::string parts;
  for (int c = 0; c < num_categories; ++c) {
    parts += fmt::format("{}{} {:.3f}", c == 0 ? "" : ", ", to_string(static_cast<Category>(c)),
                         static_cast<double>(peak.bytes[c]) / gib);
  }
  throw OutOfMemory(
      fmt::format("OOM at {}: rank {} needs {:.3f} GiB of {:.3f} GiB ({} of {} bytes); live at the peak in GiB: {}",
                  place, program.rank, static_cast<double>(program.arena_bytes) / gib,
                  static_cast<double>(capacity_bytes) / gib, program.arena_bytes, capacity_bytes, parts));
}

}  // namespace strata

/// @file
/// Arena addresses: persistent buffers at the bottom, the others first fit in order of allocation. Streams run at their
/// own pace, so an address is handed on only to an instruction that starts after every access of its former owner has
/// completed.

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "ir/program/circle_addresses.hpp"
#include "ir/program/happens_before.hpp"
#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

std::int64_t align(std::int64_t bytes) {
  return (bytes + arena_alignment_bytes - 1) / arena_alignment_bytes * arena_alignment_bytes;
}

/// A buffer that holds its address until all `accesses` (the last one on each stream) have completed.
struct Occupant {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int buffer = -1;
};

class SectionAllocator {
 public:
  SectionAllocator(Program& program, std::span<const Instruction> section, std::int64_t base)
      : program_(program),
        section_(section),
        base_(base),
        order_(section, static_cast<int>(program.streams.size())),
        accesses_(program.buffers.size()),
        freed_(program.buffers.size(), false),
        occupants_(program.streams.size()) {
    const auto touch = [&](int buffer, int instruction) {
      auto& list = accesses_[static_cast<std::size_t>(buffer)];
      // Only the last access of each stream matters: streams are in order.
      std::erase_if(list, [&](int other) { return stream(other) == stream(instruction); });
      list.push_back(instruction);
    };
    for (std::size_t i = 0; i < section.size(); ++i) {
      const Instruction& in = section[i];
      const int index = static_cast<int>(i);
      for (const Operand& operand : in.inputs) touch(operand.buffer, index);
      for (const Operand& operand : in.outputs) touch(operand.buffer, index);
      if (in.workspace >= 0) touch(in.workspace, index);
      for (const int buffer : in.frees) touch(buffer, index);
    }
  }

  /// @return the end of the highest address used.
  std::int64_t run() {
    std::int64_t highest = base_;
    for (std::size_t i = 0; i < section_.size(); ++i) {
      const int index = static_cast<int>(i);
      for (const int buffer : section_[i].allocs) {
        Buffer& owner = program_.buffers[static_cast<std::size_t>(buffer)];
        owner.offset_bytes = place(owner.size_bytes(), index);
        for (std::vector<Occupant>& seen : occupants_) {
          const Occupant occupant{owner.offset_bytes, owner.offset_bytes + align(owner.size_bytes()), buffer};
          seen.insert(std::ranges::upper_bound(seen, occupant.begin, {}, &Occupant::begin), occupant);
        }
        // Nobody touches the place of what has no bytes.
        if (owner.size_bytes() > 0) highest = std::max(highest, owner.offset_bytes + owner.size_bytes());
      }
      for (const int buffer : section_[i].frees) freed_[static_cast<std::size_t>(buffer)] = true;
      forget(index);
    }
    return highest;
  }

 private:
  int stream(int instruction) const { return section_[static_cast<std::size_t>(instruction)].stream; }

  bool gone_before(const Occupant& occupant, int instruction) const {
    const auto& accesses = accesses_[static_cast<std::size_t>(occupant.buffer)];
    return freed_[static_cast<std::size_t>(occupant.buffer)] &&
           std::ranges::all_of(accesses, [&](int a) { return order_.ordered(a, instruction); });
  }

  /// What is gone for an instruction is gone for all later ones of its stream.
  void forget(int instruction) {
    std::erase_if(occupants_[static_cast<std::size_t>(stream(instruction))],
                  [&](const Occupant& o) { return gone_before(o, instruction); });
  }

  /// Lowest address where @p bytes fit between the occupants that may still be alive when @p instruction starts.
  std::int64_t place(std::int64_t bytes, int instruction) {
    forget(instruction);
    std::int64_t candidate = base_;
    for (const Occupant& o : occupants_[static_cast<std::size_t>(stream(instruction))]) {
      if (candidate < o.end && o.begin < candidate + align(bytes)) candidate = o.end;
    }
    return candidate;
  }

  Program& program_;
  std::span<const Instruction> section_;
  std::int64_t base_;
  HappensBefore order_;
  std::vector<std::vector<int>> accesses_;
  std::vector<bool> freed_;                       ///< by buffer, up to the instruction that is being placed
  std::vector<std::vector<Occupant>> occupants_;  ///< by stream, sorted by begin: not known to be gone for its next
};

}  // namespace

void assign_addresses(Program& program) {
  std::int64_t base = 0;
  std::int64_t highest = 0;
  for (Buffer& buffer : program.buffers) {
    if (buffer.persistent) {
      buffer.offset_bytes = base;
      if (buffer.size_bytes() > 0) highest = base + buffer.size_bytes();
      base += align(buffer.size_bytes());
    }
  }
  highest = std::max(highest, SectionAllocator(program, program.prologue, base).run());
  const std::int64_t end_of_body = is_repeated_alone(program) ? SectionAllocator(program, program.body, base).run()
                                                              : assign_circle_addresses(program, base);
  program.arena_bytes = std::max(highest, end_of_body);
}

}  // namespace strata

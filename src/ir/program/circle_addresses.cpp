#include "ir/program/circle_addresses.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "ir/program/happens_before.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

/// One life of a buffer, in numbers of the unrolled list.
struct Life {
  std::int64_t step = 0;  ///< the training step that it belongs to
  int alloc = -1;
  std::vector<int> accesses{};  ///< the last one on each stream that touches it
};

/// All lives of one buffer, one after the other.
struct Lives {
  int buffer = -1;
  std::vector<Life> lives{};
};

std::vector<Lives> lives_of(const Program& program, const Unrolled& all) {
  std::vector<Lives> result;
  std::map<int, std::size_t> of_buffer;
  const auto stream = [&](int i) { return all.instructions[static_cast<std::size_t>(i)].stream; };
  for (int i = 0; i < static_cast<int>(all.instructions.size()); ++i) {
    const Instruction& in = all.instructions[static_cast<std::size_t>(i)];
    const std::int64_t step = training_step(program, in, all.origin[static_cast<std::size_t>(i)].repetition);
    for (const int id : in.allocs) {
      const auto [found, is_new] = of_buffer.try_emplace(id, result.size());
      if (is_new) result.push_back({.buffer = id});
      result[found->second].lives.push_back({.step = step, .alloc = i});
    }
    const auto touch = [&](int id) {
      const auto found = of_buffer.find(id);
      // Persistent, or a mistake that verify() names; so below.
      if (found == of_buffer.end()) return;
      const auto life = std::ranges::find(result[found->second].lives, step, &Life::step);
      if (life == result[found->second].lives.end()) return;
      std::vector<int>& accesses = life->accesses;
      std::erase_if(accesses, [&](int other) { return stream(other) == stream(i); });
      accesses.push_back(i);
    };
    for (const Operand& operand : in.inputs) touch(operand.buffer);
    for (const Operand& operand : in.outputs) touch(operand.buffer);
    if (in.workspace >= 0) touch(in.workspace);
    for (const int id : in.frees) touch(id);
  }
  for (const Lives& one : result) {
    if (one.lives.size() < 2) continue;
    const Life& first = one.lives[0];
    const bool overlaps = std::ranges::any_of(first.accesses, [&](int a) { return a > one.lives[1].alloc; });
    if (overlaps) {
      throw InternalError(fmt::format("program of rank {}: {} lives longer than a repetition of the body", program.rank,
                                      program.buffers[static_cast<std::size_t>(one.buffer)].name));
    }
  }
  return result;
}

bool gone_before(const Life& life, int instruction, const HappensBefore& order) {
  return std::ranges::all_of(life.accesses, [&](int a) { return a < instruction && order.ordered(a, instruction); });
}

/// Of each pair of lives, one is over before the other begins.
bool may_share(const Lives& a, const Lives& b, const HappensBefore& order) {
  return std::ranges::all_of(a.lives, [&](const Life& x) {
    return std::ranges::all_of(
        b.lives, [&](const Life& y) { return gone_before(x, y.alloc, order) || gone_before(y, x.alloc, order); });
  });
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + arena_alignment_bytes - 1) / arena_alignment_bytes * arena_alignment_bytes;
}

}  // namespace

std::int64_t assign_circle_addresses(Program& program, std::int64_t base) {
  const Unrolled all = unrolled(program, steps_that_meet(program));
  const HappensBefore order(all.instructions, static_cast<int>(program.streams.size()));
  const std::vector<Lives> lives = lives_of(program, all);
  std::vector<const Lives*> placed;  // by address
  std::int64_t highest = base;
  const auto buffer_of = [&](const Lives& one) -> Buffer& {
    return program.buffers[static_cast<std::size_t>(one.buffer)];
  };
  for (const Lives& one : lives) {
    Buffer& buffer = buffer_of(one);
    std::int64_t candidate = base;
    for (const Lives* other : placed) {
      const Buffer& there = buffer_of(*other);
      const std::int64_t end = there.offset_bytes + aligned(there.size_bytes());
      const bool in_the_way =
          candidate < end && there.offset_bytes < candidate + std::max<std::int64_t>(aligned(buffer.size_bytes()), 1);
      if (in_the_way && !may_share(*other, one, order)) candidate = end;
    }
    buffer.offset_bytes = candidate;
    highest = std::max(highest, candidate + buffer.size_bytes());
    placed.insert(std::ranges::upper_bound(placed, candidate, {},
                                           [&](const Lives* other) { return buffer_of(*other).offset_bytes; }),
                  &one);
  }
  return highest;
}

}  // namespace strata

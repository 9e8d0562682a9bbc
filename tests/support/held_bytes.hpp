#pragma once

/// @file
/// What a Program's step really holds, by category: a buffer counts for an instruction unless all its accesses are
/// known to be over when that instruction starts. (Lifetimes alone end with the last access in the order of issue,
/// which a collective may still be busy with.)

#include <algorithm>
#include <vector>

#include "ir/program/happens_before.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// The most bytes of buffers of @p categories together at one instruction of the body that allocates some.
inline std::int64_t most_held(const Program& program, std::initializer_list<Category> categories) {
  const auto counts = [&](const Buffer& buffer) {
    return std::ranges::find(categories, buffer.category) != categories.end();
  };
  std::int64_t persistent = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && counts(buffer)) persistent += buffer.size_bytes();
  }
  std::vector<std::vector<int>> accesses(program.buffers.size());
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    for (const auto* operands : {&program.body[i].inputs, &program.body[i].outputs}) {
      for (const Operand& operand : *operands) {
        accesses[static_cast<std::size_t>(operand.buffer)].push_back(static_cast<int>(i));
      }
    }
    if (const int workspace = program.body[i].workspace; workspace >= 0) {
      accesses[static_cast<std::size_t>(workspace)].push_back(static_cast<int>(i));
    }
  }
  const HappensBefore order(program.body, static_cast<int>(program.streams.size()));
  std::vector<int> last(program.streams.size(), -1);
  std::vector<int> there;  // buffers that some stream may still need
  std::int64_t most = 0;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    for (const int id : program.body[i].allocs) {
      if (counts(program.buffers[static_cast<std::size_t>(id)])) there.push_back(id);
    }
    const bool allocates = std::ranges::any_of(
        program.body[i].allocs, [&](int id) { return counts(program.buffers[static_cast<std::size_t>(id)]); });
    std::int64_t held = persistent;
    const auto is_over = [&](int id, int at) {
      return std::ranges::all_of(accesses[static_cast<std::size_t>(id)],
                                 [&](int access) { return access < at && order.ordered(access, at); });
    };
    for (const int id : there) {
      if (!is_over(id, static_cast<int>(i))) held += program.buffers[static_cast<std::size_t>(id)].size_bytes();
    }
    if (allocates) most = std::max(most, held);
    last[static_cast<std::size_t>(program.body[i].stream)] = static_cast<int>(i);
    // What is over for an instruction is over for all later ones of its stream.
    std::erase_if(
        there, [&](int id) { return std::ranges::all_of(last, [&](int at) { return at >= 0 && is_over(id, at); }); });
  }
  return most;
}

}  // namespace strata

/// @file
/// The first race of random instructions is the one that looking at all pairs finds first.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/program/happens_before.hpp"
#include "ir/program/races.hpp"

namespace strata::test_races {
namespace {

struct Access {
  std::int64_t begin, end;
  bool writes;
};

std::vector<Access> accesses(const Program& program, const Instruction& in) {
  std::vector<Access> result;
  const auto add = [&](const Operand& operand, bool writes) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
    const std::int64_t begin = buffer.offset_bytes + operand.begin * size_of(buffer.dtype);
    result.push_back({begin, begin + operand.num_elements * size_of(buffer.dtype), writes});
  };
  for (const Operand& operand : in.inputs) add(operand, false);
  for (const Operand& operand : in.outputs) add(operand, true);
  if (in.workspace >= 0) {
    add({in.workspace, 0, program.buffers[static_cast<std::size_t>(in.workspace)].num_elements}, true);
  }
  return result;
}

bool conflict(const Program& program, const Instruction& earlier, const Instruction& later) {
  for (const Access& a : accesses(program, earlier)) {
    for (const Access& b : accesses(program, later)) {
      if ((a.writes || b.writes) && std::max(a.begin, b.begin) < std::min(a.end, b.end)) return true;
    }
  }
  return false;
}

/// The first instruction that is in a race with one before it, -1: none.
int first_racing(const Program& program) {
  const HappensBefore order(program.body, static_cast<int>(program.streams.size()));
  for (int later = 0; later < static_cast<int>(program.body.size()); ++later) {
    for (int earlier = 0; earlier < later; ++earlier) {
      if (!order.ordered(earlier, later) && conflict(program, program.body[static_cast<std::size_t>(earlier)],
                                                     program.body[static_cast<std::size_t>(later)])) {
        return later;
      }
    }
  }
  return -1;
}

TEST(Races, AreWhatAllPairsSay) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  int with_race = 0, without = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Program program;
    program.streams = {"compute", "a", "b"};
    // Buffers lie over one another, as those do that are not alive at once.
    for (int b = 0; b < 6; ++b) {
      program.buffers.push_back({.name = std::to_string(b),
                                 .num_elements = 1 + below(6),
                                 .dtype = b % 2 == 0 ? DType::f32 : DType::bf16,
                                 .offset_bytes = 4 * below(10)});
    }
    const auto operand = [&] {
      const int buffer = below(6);
      const auto elements = static_cast<int>(program.buffers[static_cast<std::size_t>(buffer)].num_elements);
      const int begin = below(elements);
      return Operand{buffer, begin, below(elements - begin + 1)};
    };
    const int length = 2 + below(14);
    for (int i = 0; i < length; ++i) {
      Instruction in;
      in.stream = below(3);
      for (int n = below(3); n > 0; --n) in.inputs.push_back(operand());
      for (int n = below(2); n > 0; --n) in.outputs.push_back(operand());
      if (below(8) == 0) in.workspace = below(6);
      for (int n = below(3); n > 0 && i > 0; --n) in.waits.push_back({.instruction = i - 1 - below(std::min(i, 3))});
      program.body.push_back(in);
    }
    const int expected = first_racing(program);
    const std::optional<Race> race = find_race(program, program.body);
    ASSERT_EQ(race ? race->later : -1, expected) << "trial " << trial;
    expected < 0 ? ++without : ++with_race;
    if (!race) continue;
    // What it names is a race.
    const HappensBefore order(program.body, 3);
    EXPECT_FALSE(order.ordered(race->earlier, race->later));
    EXPECT_TRUE(conflict(program, program.body[static_cast<std::size_t>(race->earlier)],
                         program.body[static_cast<std::size_t>(race->later)]));
  }
  EXPECT_GT(with_race, 500);
  EXPECT_GT(without, 500);
}

}  // namespace
}  // namespace strata::test_races

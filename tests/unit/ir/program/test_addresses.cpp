/// @file
/// Order between streams and the addresses that follow from it, against a transitive closure worked out pair by pair.

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "handmade_program.hpp"
#include "ir/program/happens_before.hpp"

namespace strata::test_addresses {
namespace {

using ::testing::HasSubstr;

/// closure[a][b]: a is complete when b starts.
using Closure = std::vector<std::vector<bool>>;

Closure closure_of(const std::vector<Instruction>& section) {
  const std::size_t n = section.size();
  Closure before(n, std::vector<bool>(n, false));
  for (std::size_t b = 0; b < n; ++b) {
    for (std::size_t a = 0; a < b; ++a) before[a][b] = section[a].stream == section[b].stream;
    for (const Wait& wait : section[b].waits) {
      if (wait.lag == 0) before[static_cast<std::size_t>(wait.instruction)][b] = true;
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        if (before[a][k] && before[k][b]) before[a][b] = true;
      }
    }
  }
  return before;
}

/// Kernels on three streams that read and write a handful of short-lived buffers. Whoever touches a buffer waits for
/// the one before, so that only the reuse of addresses is left to chance.
Program random_program(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Handmade draft;
  draft.program.streams = {"compute", "communication", "third"};
  draft.buffer("weight", 1 + below(50), true);
  std::vector<int> open;
  std::vector<int> toucher;
  const int num_instructions = 40;
  for (int i = 0; i < num_instructions; ++i) {
    const bool make = open.empty() || below(2) == 0;
    if (make) {
      open.push_back(draft.buffer(fmt::format("b{}", i), 1 + below(100)));
      toucher.push_back(-1);
    }
    const std::size_t which = make ? open.size() - 1 : static_cast<std::size_t>(below(static_cast<int>(open.size())));
    Instruction& in = draft.kernel(below(3), -1, open[which], fmt::format("i{}", i));
    if (make) in.allocs = {open[which]};
    if (toucher[which] >= 0) in.waits = {{toucher[which], 0}};
    if (i > 0 && below(4) == 0) in.waits.push_back({below(i), 0});
    if (below(8) == 0) in.waits.push_back({below(num_instructions), 1});
    toucher[which] = i;
    if (below(3) == 0) {
      in.frees = {open[which]};
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
      toucher.erase(toucher.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (std::size_t k = 0; k < open.size(); ++k) {
    draft.program.body[static_cast<std::size_t>(toucher[k])].frees.push_back(open[k]);
  }
  return draft.program;
}

TEST(HappensBefore, EqualsTheTransitiveClosure) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Program program = random_program(seed);
    const HappensBefore order(program.body, 3);
    const Closure expected = closure_of(program.body);
    for (int a = 0; a < static_cast<int>(program.body.size()); ++a) {
      for (int b = a + 1; b < static_cast<int>(program.body.size()); ++b) {
        ASSERT_EQ(order.ordered(a, b), expected[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)])
            << "#" << a << " before #" << b << ", seed " << seed;
      }
    }
  }
}

TEST(HappensBefore, OfTheNextInstructionWithoutWaits) {
  HappensBefore order(2);
  order.append(0, {});
  EXPECT_TRUE(order.ordered_before_next(0, 0));
  EXPECT_FALSE(order.ordered_before_next(0, 1));
  order.append(1, {});
  EXPECT_FALSE(order.ordered_before_next(0, 1));
  const Wait wait{0, 0};
  order.append(1, {&wait, 1});
  EXPECT_TRUE(order.ordered_before_next(0, 1));
  EXPECT_TRUE(order.ordered_before_next(2, 1));
  EXPECT_FALSE(order.ordered_before_next(2, 0));
}

TEST(HappensBefore, AWaitForAnEarlierStepOrdersNothingInThisOne) {
  HappensBefore order(2);
  order.append(0, {});
  const Wait wait{0, 1};
  order.append(1, {&wait, 1});
  EXPECT_FALSE(order.ordered(0, 1));
}

/// True if every access of buffer @p first is complete before any of @p second.
bool gone_before(const Program& program, const Closure& before, int first, int second) {
  const auto accesses = [&](int buffer) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      const Instruction& in = program.body[i];
      if (std::ranges::count(in.frees, buffer) != 0 || std::ranges::count(in.allocs, buffer) != 0 ||
          in.outputs[0].buffer == buffer) {
        list.push_back(i);
      }
    }
    return list;
  };
  const std::vector<std::size_t> later = accesses(second);
  return std::ranges::all_of(accesses(first), [&](std::size_t a) {
    return std::ranges::all_of(later, [&](std::size_t b) { return before[a][b]; });
  });
}

TEST(Addresses, ALifeOfTheNextRepetitionKeepsAwayFromWhatLivesOnFromThisOne) {
  Handmade draft;
  draft.program.join = false;
  const int early = draft.buffer("early", 10);
  const int late = draft.buffer("late", 10);
  const int kept = draft.buffer("kept", 10, true);
  draft.initialize(kept);
  draft.kernel(compute, -1, early, "write early").allocs = {early};
  Instruction& read = draft.kernel(compute, late, kept, "read what the step before left");
  read.step = -1;
  read.frees = {late};
  draft.kernel(compute, early, kept, "read early").frees = {early};
  draft.kernel(compute, -1, late, "write late").allocs = {late};
  // Early has gone when late is written first, and comes again while late is still to be read.
  assign_addresses(draft.program);
  EXPECT_EQ(complaint(draft.program), "");
  EXPECT_NE(draft.program.buffers[static_cast<std::size_t>(early)].offset_bytes,
            draft.program.buffers[static_cast<std::size_t>(late)].offset_bytes);
}

TEST(Addresses, BytesAreSharedOnlyByBuffersWhoseAccessesAreAllOrdered) {
  int shared = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Program program = random_program(seed);
    assign_addresses(program);
    ASSERT_EQ(complaint(program), "") << "seed " << seed;
    const Closure before = closure_of(program.body);
    std::int64_t highest = 0;
    for (std::size_t a = 0; a < program.buffers.size(); ++a) {
      const Buffer& x = program.buffers[a];
      EXPECT_EQ(x.offset_bytes % arena_alignment_bytes, 0);
      highest = std::max(highest, x.offset_bytes + x.size_bytes());
      for (std::size_t b = a + 1; b < program.buffers.size(); ++b) {
        const Buffer& y = program.buffers[b];
        if (x.offset_bytes >= y.offset_bytes + y.size_bytes() || y.offset_bytes >= x.offset_bytes + x.size_bytes()) {
          continue;
        }
        ++shared;
        ASSERT_FALSE(x.persistent || y.persistent) << "seed " << seed;
        ASSERT_TRUE(gone_before(program, before, static_cast<int>(a), static_cast<int>(b)) ||
                    gone_before(program, before, static_cast<int>(b), static_cast<int>(a)))
            << x.name << " and " << y.name << ", seed " << seed;
      }
    }
    EXPECT_EQ(program.arena_bytes, highest);
    EXPECT_GE(program.arena_bytes, memory_peak(program).total_bytes);
  }
  EXPECT_GT(shared, 200) << "addresses are used again";
}

/// `first` lives and dies on compute; `second` is made by a collective afterwards.
Program two_streams(bool waits) {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int first = draft.buffer("first", 64);
  const int second = draft.buffer("second", 64);
  Instruction& make = draft.kernel(compute, -1, first, "make");
  make.allocs = {first};
  make.frees = {first};
  Instruction& receive = draft.collective(Collective::recv, data, second, "receive", 1);
  receive.allocs = {second};
  receive.frees = {second};
  if (waits) receive.waits = {{0, 0}};
  assign_addresses(draft.program);
  return draft.program;
}

TEST(Addresses, AFreedAddressGoesToAnotherStreamOnlyBehindAWait) {
  const Program unordered = two_streams(false);
  EXPECT_EQ(unordered.buffers[0].offset_bytes, 0);
  EXPECT_EQ(unordered.buffers[1].offset_bytes, 256);
  EXPECT_EQ(unordered.arena_bytes, 512);
  const Program ordered = two_streams(true);
  EXPECT_EQ(ordered.buffers[1].offset_bytes, 0);
  EXPECT_EQ(ordered.arena_bytes, 256);
  // The same address without the wait is what verify finds.
  Program wrong = ordered;
  wrong.body[1].waits.clear();
  EXPECT_THAT(complaint(wrong), HasSubstr("body #1 recv of receive: not ordered after #0"));
}

TEST(Addresses, ABufferStaysUntilItsReadersOnOtherStreamsAreDone) {
  // Freed by compute in program order, but a message still reads it.
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int sent = draft.buffer("sent", 16);
  const int next = draft.buffer("next", 16);
  draft.kernel(compute, -1, sent, "make").allocs = {sent};
  Instruction& send = draft.collective(Collective::send, data, sent, "send", 1);
  send.waits = {{0, 0}};
  const int copy = draft.buffer("copy", 16, true);
  draft.kernel(compute, sent, copy, "read").frees = {sent};
  Instruction& after = draft.kernel(compute, -1, next, "after");
  after.allocs = {next};
  after.frees = {next};
  Program unordered = draft.program;
  assign_addresses(unordered);
  EXPECT_NE(unordered.buffers[1].offset_bytes, unordered.buffers[0].offset_bytes);
  Program ordered = draft.program;
  ordered.body[3].waits = {{1, 0}};
  assign_addresses(ordered);
  EXPECT_EQ(ordered.buffers[1].offset_bytes, ordered.buffers[0].offset_bytes);
}

TEST(Addresses, PersistentBuffersLieBelow) {
  Handmade draft;
  const int a = draft.buffer("a", 10, true);
  const int temporary = draft.buffer("temporary", 4);
  const int b = draft.buffer("b", 17, true, DType::bf16);
  Instruction& in = draft.kernel(compute, -1, temporary, "x");
  in.allocs = {temporary};
  in.frees = {temporary};
  assign_addresses(draft.program);
  const auto& buffers = draft.program.buffers;
  EXPECT_EQ(buffers[static_cast<std::size_t>(a)].offset_bytes, 0);
  EXPECT_GE(buffers[static_cast<std::size_t>(b)].offset_bytes, 40);
  EXPECT_GE(buffers[static_cast<std::size_t>(temporary)].offset_bytes,
            buffers[static_cast<std::size_t>(b)].offset_bytes + 34);
  EXPECT_EQ(complaint(draft.program), "");
  EXPECT_GE(draft.program.arena_bytes, memory_peak(draft.program).total_bytes);
}

TEST(Addresses, SectionsUseTheSameAddressesOneAfterTheOther) {
  Handmade draft;
  const int first = draft.buffer("first", 1000);
  const int second = draft.buffer("second", 500);
  draft.kernel(compute, -1, first, "x").allocs = {first};
  draft.program.body[0].frees = {first};
  std::swap(draft.program.body, draft.program.prologue);
  draft.kernel(compute, -1, second, "y").allocs = {second};
  draft.program.body[0].frees = {second};
  assign_addresses(draft.program);
  EXPECT_EQ(draft.program.buffers[0].offset_bytes, 0);
  EXPECT_EQ(draft.program.buffers[1].offset_bytes, 0);
  EXPECT_EQ(draft.program.arena_bytes, 4000);
}

TEST(Addresses, TheLowestGapThatIsWideEnough) {
  Handmade draft;
  constexpr std::int64_t unit = arena_alignment_bytes / size_of(DType::f32);
  const int a = draft.buffer("a", 2 * unit);                   // two alignments at 0
  const int b = draft.buffer("b", unit);                       // one at 2
  const int c = draft.buffer("c", unit);                       // one at 3
  const int wide = draft.buffer("wide", 3 * unit);             // over nothing but the end
  const int narrow = draft.buffer("narrow", unit + unit / 4);  // into a's gap
  draft.kernel(compute, -1, a, "a").allocs = {a};
  draft.kernel(compute, -1, b, "b").allocs = {b};
  draft.kernel(compute, -1, c, "c").allocs = {c};
  draft.program.body[2].frees = {a};
  draft.kernel(compute, -1, wide, "wide").allocs = {wide};
  draft.kernel(compute, -1, narrow, "narrow").allocs = {narrow};
  draft.program.body[4].frees = {b, c, wide, narrow};
  assign_addresses(draft.program);
  const auto at = [&](int id) { return draft.program.buffers[static_cast<std::size_t>(id)].offset_bytes; };
  EXPECT_EQ(at(b), 2 * arena_alignment_bytes);
  EXPECT_EQ(at(c), 3 * arena_alignment_bytes);
  EXPECT_EQ(at(wide), 4 * arena_alignment_bytes);
  EXPECT_EQ(at(narrow), 0);
  EXPECT_EQ(draft.program.arena_bytes, 7 * arena_alignment_bytes);
}

}  // namespace
}  // namespace strata::test_addresses

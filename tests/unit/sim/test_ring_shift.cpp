/// @file
/// What ranks of a micro-batch each do at the same time where they keep a distance: counted from simulated Programs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.hpp"
#include "ir/program/repetition.hpp"
#include "sim/simulate.hpp"
#include "unit/sim/ring_of_layers.hpp"

namespace strata::test_ring_shift {
namespace {

using test::layers;
using test::ring_plan;
using test::ring_programs;
using test::StageCosts;

constexpr std::int64_t nanoseconds_of_pass = 1000;

/// A forward or backward of a stage on a rank.
struct Pass {
  int rank = 0;
  int stage = 0;
  int number = 0;  ///< of all passes of the rank, over all training steps
  std::int64_t begin = 0, end = 0;
};

/// A message, without regard to how many parameters it has.
struct Message {
  int rank = 0;
  bool is_sent = false;
  std::string what;
  std::int64_t end = 0;
};

struct Timelines {
  std::vector<Pass> passes;
  std::vector<Message> messages;  ///< without tokens
  int num_tokens = 0;             ///< sent by rank 0
};

/// One clock for all ranks and training steps.
Timelines timelines_of(const Plan& plan, const StageCosts& costs, int num_steps) {
  const int num_stages = plan.stages.count;
  const std::vector<Program> programs = ring_programs(plan, layers(num_stages));
  const StepRange steps{0, num_steps - 1};
  std::vector<Program> whole;
  for (const Program& program : programs) whole.push_back(in_one_list(program, steps));
  const SimulationResult simulated = simulate(unfolded(whole, plan.mesh.num_ranks()), costs);
  Timelines result;
  for (const TimelineEvent& event : simulated.events) {
    const Program& program = programs[static_cast<std::size_t>(event.rank)];
    const Instance origin = unrolled(program, steps).origin(static_cast<std::size_t>(event.instruction));
    const Instruction& in = program.body[static_cast<std::size_t>(origin.instruction)];
    if (in.is_collective()) {
      const bool is_sent = in.collective == Collective::send;
      if (in.name == "pace") {
        result.num_tokens += is_sent && event.rank == 0 ? 1 : 0;
      } else {
        const std::string stage = in.name.substr(0, in.name.find('.'));
        result.messages.push_back(
            {event.rank, is_sent, fmt::format("{} {} {}", stage, in.group, in.root), event.end_ns});
      }
      continue;
    }
    for (int j = 0; j < num_stages; ++j) {
      if (!in.name.starts_with(fmt::format("block[{}].linear", j))) continue;
      const bool is_forward = in.kernel == Kernel::linear_forward;
      if (!is_forward && in.kernel != Kernel::linear_backward_weight) continue;
      const auto step = static_cast<int>(training_step(program, in, origin.repetition));
      const int number = 2 * num_stages * step + (is_forward ? j : 2 * num_stages - 1 - j);
      result.passes.push_back({event.rank, j, number, event.begin_ns, event.end_ns});
    }
  }
  return result;
}

/// Passes of one time step each, and nothing else takes any.
std::vector<StageSeconds> unit_stages(int num_stages) {
  const double seconds = 1e-9 * static_cast<double>(nanoseconds_of_pass);
  return std::vector<StageSeconds>(static_cast<std::size_t>(num_stages), {.forward = seconds, .backward = seconds});
}

/// Fig. 1 and sec. 3.2 of the paper: at every time step each stage is used by one rank, and N(N+1)/2 stages'
/// activations are kept, over all ranks; of a rank at most two messages go out and two come in between two time steps.
TEST(RingShift, PacedRanksUseEveryStageOnceAtEveryTimeStep) {
  constexpr int num_steps = 6;
  for (const int n : {2, 3, 4, 8}) {
    for (const char* fresh : {"none", "v2"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", n, fresh));
      Plan plan = ring_plan(n, n, fresh);
      plan.schedule.shift = "paced";
      plan.schedule.spare_stages = 0;  // what comes there goes on at any time
      const Timelines all = timelines_of(plan, StageCosts(unit_stages(n)), num_steps);
      EXPECT_EQ(all.num_tokens, 2 * n * num_steps);
      std::map<std::int64_t, std::multiset<int>> used;         // by time step: stages
      std::map<std::tuple<int, int, int>, std::int64_t> made;  // rank, stage, step -> when the forward began
      std::map<std::int64_t, int> kept;
      for (const Pass& pass : all.passes) {
        EXPECT_EQ(pass.begin, (pass.number + 2 * pass.rank) * nanoseconds_of_pass) << "rank " << pass.rank;
        used[pass.begin / nanoseconds_of_pass].insert(pass.stage);
        const bool is_forward = pass.number % (2 * n) < n;
        if (is_forward) made[{pass.rank, pass.stage, pass.number / (2 * n)}] = pass.begin;
      }
      for (const Pass& pass : all.passes) {
        if (pass.number % (2 * n) < n) continue;
        const std::int64_t begin = made.at({pass.rank, pass.stage, pass.number / (2 * n)});
        for (std::int64_t t = begin; t < pass.end; t += nanoseconds_of_pass) ++kept[t / nanoseconds_of_pass];
      }
      std::set<int> stages;
      for (int j = 0; j < n; ++j) stages.insert(j);
      std::map<std::tuple<int, bool, std::int64_t>, std::set<std::string>> messages;
      for (const Message& m : all.messages) messages[{m.rank, m.is_sent, m.end}].insert(m.what);
      std::size_t most = 0;
      for (std::int64_t t = 2 * n; t < 2 * n * num_steps; ++t) {  // all ranks are there, none has ended
        EXPECT_EQ(used[t], std::multiset<int>(stages.begin(), stages.end())) << "time step " << t;
        EXPECT_EQ(kept[t], n * (n + 1) / 2) << "time step " << t;
      }
      for (const auto& [where, what] : messages) {
        const std::int64_t t = std::get<2>(where) / nanoseconds_of_pass;
        if (t >= 4 * n && t < 2 * n * (num_steps - 1)) most = std::max(most, what.size());
      }
      EXPECT_LE(most, 2U);
      EXPECT_GE(most, n == 2 ? 1U : 2U);
    }
  }
}

/// Times of which none is another's multiple.
std::vector<StageSeconds> uneven_stages(int num_stages, std::uint64_t stream) {
  std::vector<StageSeconds> stages;
  const RandomStream random{.seed = 17, .stream = stream};
  std::uint64_t index = 0;
  const auto seconds = [&](double most) {
    return 1e-9 * static_cast<double>(1 + static_cast<int>(most * random.uniform(index++)));
  };
  for (int j = 0; j < num_stages; ++j) {
    stages.push_back({.forward = seconds(1000), .backward = seconds(2000), .update = seconds(50), .token = 7e-9});
    stages.back().sum = stages.back().parameters = seconds(60);
  }
  return stages;
}

/// By pass of a rank, over all training steps.
std::map<int, Pass> passes_of(const Timelines& all, int rank) {
  std::map<int, Pass> passes;
  for (const Pass& pass : all.passes) {
    if (pass.rank == rank) passes[pass.number] = pass;
  }
  return passes;
}

/// However long passes take, a pass waits for a pass of the rank before, the first rank for one of the training step
/// before: paced for the one that keeps two ranks of as many as stages from ever using the same stage, begun for the
/// one before that.
TEST(RingShift, APassWaitsForOneOfTheRankBefore) {
  constexpr int num_steps = 6;
  for (const auto& [n, k] : {std::pair{2, 2}, {3, 3}, {4, 4}, {2, 3}, {4, 2}}) {
    const int distance = 2 * k / n;
    for (const char* shift : {"free", "begun", "paced"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} stages, {}", n, k, shift));
      int num_ahead = 0;  // passes that begin before the one that a paced pass waits for is over
      for (std::uint64_t stream = 0; stream < 4; ++stream) {
        Plan plan = ring_plan(n, k, "v2");
        plan.schedule.shift = shift;
        const Timelines all = timelines_of(plan, StageCosts(uneven_stages(k, stream)), num_steps);
        for (int rank = 0; rank < n; ++rank) {
          const std::map<int, Pass> before = passes_of(all, (rank + n - 1) % n);
          for (const auto& [number, pass] : passes_of(all, rank)) {
            const int paced = number + distance - 1 - (rank == 0 ? 2 * k : 0);
            const auto ends_by_then = [&](int other) {
              return !before.contains(other) || before.at(other).end <= pass.begin;
            };
            if (std::string(shift) == "begun") {
              EXPECT_TRUE(ends_by_then(paced - 1)) << rank << ", pass " << number;
            }
            if (!ends_by_then(paced)) ++num_ahead;
          }
        }
      }
      if (std::string(shift) == "paced") {
        EXPECT_EQ(num_ahead, 0);
      } else {
        EXPECT_GT(num_ahead, 0);
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_ring_shift

/// @file
/// Ranks of a micro-batch each that update the stage that they read first, lowered: what they hold and send.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "partition/fresh_table.hpp"
#include "partition/replica_ring.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_first_users {
namespace {

using ::testing::HasSubstr;

Plan ring_plan(int n, const std::string& fresh) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.axes = {{"micro_batch", n}};
  plan.mesh.ranks_per_node = n;
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.schedule.updater = "first_user";
  plan.global_batch = 2 * n;
  plan.optimizer = {.kind = "adam"};
  return plan;
}

TEST(FirstUsers, OrdersAndProgramsVerify) {
  for (const int n : {2, 3, 4}) {
    const std::string all_fresh = n == 2 ? "11 11" : n == 3 ? "111 111 111" : "1111 1111 1111 1111";
    for (const std::string& fresh : {std::string("none"), std::string("v2"), all_fresh}) {
      for (const char* spread : {"relay", "direct"}) {
        for (const char* shift : {"free", "paced"}) {
          if (fresh == all_fresh && std::string(shift) == "paced") continue;  // refused
          Plan plan = ring_plan(n, fresh);
          plan.schedule.spread = spread;
          plan.schedule.shift = shift;
          plan.schedule.sum = fresh == "v2" ? "inside" : "after";
          SCOPED_TRACE(fmt::format("{} ranks, {}, {}, {}", n, fresh, spread, shift));
          ASSERT_NO_THROW(verify(step_orders(plan, equal_layers(n))));
          ASSERT_NO_THROW(verify(all_ranks(plan, equal_layers(n), no_workspace)));
        }
      }
    }
  }
}

/// Optimizer states of a stage stand on the rank that updates it, which is the first to read what it has updated.
TEST(FirstUsers, EachRankHasTheStatesOfItsStage) {
  for (const int n : {2, 3, 4}) {
    for (const char* fresh : {"none", "v2"}) {
      const Plan plan = ring_plan(n, fresh);
      for (int rank = 0; rank < n; ++rank) {
        const int stage = n - 1 - rank;
        EXPECT_EQ(updater_of_stage(plan.schedule, n, stage), rank);
        EXPECT_EQ(freshest(n, n)[static_cast<std::size_t>(rank)].find('1'), static_cast<std::size_t>(stage));
        const Program program = lower(plan, equal_layers(n), rank, no_workspace);
        std::int64_t states = 0, versions = 0;
        for (const Buffer& buffer : program.buffers) {
          if (buffer.category == Category::optimizer) {
            EXPECT_THAT(buffer.name, HasSubstr(fmt::format("block[{}].linear", stage)));
            states += buffer.size_bytes();
          }
          if (buffer.category == Category::parameter && buffer.name.starts_with(fmt::format("block[{}]", stage))) {
            ++versions;
          }
        }
        EXPECT_EQ(states, 2 * layer_bytes) << "two moments, 1/N of all";
        EXPECT_EQ(versions, std::string(fresh) == "v2" ? 1 : 2) << "what is updated is read before it is";
      }
    }
  }
}

/// Beside what the last rank would send and be sent as the one that updates, the whole sum of each stage but its own
/// goes from it to the rank that updates.
TEST(FirstUsers, WholeSumsGoToTheirRanks) {
  for (const int n : {2, 3, 4, 8}) {
    for (const char* fresh : {"none", "v2"}) {
      const std::vector<Program> programs = all_ranks(ring_plan(n, fresh), equal_layers(n), no_workspace);
      std::int64_t sent = 0;
      for (const Program& program : programs) {
        for (const Instruction& in : program.body) sent += bytes_sent(program, in);
      }
      sent /= programs.front().steps_per_body;
      EXPECT_EQ(sent, ((n - 1) * n + (n - 1) * n + (n - 1)) * layer_bytes) << "sums, parameters, whole sums";
      std::vector<int> owners;
      for (const Instruction& in : programs.back().body) {
        if (in.collective == Collective::send && in.is_collective() && in.phase == Phase::reduce)
          owners.push_back(in.root);
      }
      std::ranges::sort(owners);
      owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
      EXPECT_EQ(std::ssize(owners), n - 1);
    }
  }
}

TEST(FirstUsers, RefusesByName) {
  const auto refused = [&](const auto& ask) {
    Plan plan = ring_plan(3, "none");
    ask(plan);
    return lowering_refusal(plan, equal_layers(4));
  };
  EXPECT_THAT(refused([](Plan& p) { p.stages.count = 4; }),
              HasSubstr("schedule.optimizer = first_user with 4 stages on 3 ranks, of which each updates one,"));
  EXPECT_THAT(refused([](Plan& p) { p.optimizer.clip_norm = 2.0; }),
              HasSubstr("schedule.optimizer = first_user with optimizer.clip_norm = 2, the norm for which"));
  EXPECT_THAT(refused([](Plan& p) {
                p.mesh.axes = {};
                p.mesh.ranks_per_node = 1;
              }),
              HasSubstr("schedule.optimizer = first_user with mesh axis micro_batch = 1"));
}

}  // namespace
}  // namespace strata::test_first_users

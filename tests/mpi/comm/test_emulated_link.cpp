/// @file
/// The emulated link: right values, no earlier than its formulas, without using the CPU meanwhile. Upper bounds on time
/// are not asserted: the machine may be busy.

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "base/error.hpp"
#include "mpi/comm/payload.hpp"

namespace strata::comm::test_emulated_link {
namespace {

constexpr double kAlpha = 2e-3;
constexpr double kBeta = 1e-7;  // 10 MB/s

class Emulated : public testing::TestWithParam<ProgressMode> {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.progress = GetParam();
    options.emulated_link = EmulatedLink{kAlpha, kBeta};
    options.watchdog_seconds = 60;
    return options;
  }
};

TEST_P(Emulated, DeliversTheRightValues) {
  const World world;
  EngineOptions fast = options();
  fast.emulated_link = EmulatedLink{1e-5, 1e-10};
  Engine engine(world, fast);
  const int group = engine.create_group(all_ranks(world));
  EXPECT_EQ(engine.transport_name(group), "emulated_link(alpha=1e-05,beta=1e-10) over mpi");
  check_all_collectives(world, engine, group, all_ranks(world), {0, 1, 7, 1000, 65537, 300007});
}

TEST_P(Emulated, TakesAtLeastTheFormula) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  const int p = world.size();
  const std::int64_t elements = 24000;  // divisible by 2, 3 and 4: every step sends v/p
  const double v = static_cast<double>(elements) * 4;
  const auto seconds_of = [&](Collective kind) {
    Payload payload(world, all_ranks(world), kind, DType::f32, elements, false);
    world.barrier();
    const Ticket ticket = engine.post(payload.request(group));
    engine.wait(ticket);
    payload.expect_right();
    const CompletedTimes times = engine.times(ticket);
    return static_cast<double>(times.end_ns - times.begin_ns) * 1e-9;
  };
  const double phase = (p - 1) * (kAlpha + v / p * kBeta);
  EXPECT_GE(seconds_of(Collective::reduce_scatter), phase);
  EXPECT_GE(seconds_of(Collective::all_gather), phase);
  EXPECT_GE(seconds_of(Collective::all_to_all), phase);
  EXPECT_GE(seconds_of(Collective::all_reduce), 2 * phase);
  // From the first rank that begins a broadcast to the last that ends it: all of it and the latency.
  Payload payload(world, all_ranks(world), Collective::broadcast, DType::f32, elements, false);
  const Ticket ticket = engine.post(payload.request(group));
  engine.wait(ticket);
  const CompletedTimes times = engine.times(ticket);
  double begin = static_cast<double>(times.begin_ns) * 1e-9;
  double end = static_cast<double>(times.end_ns) * 1e-9;
  world.all_reduce_min(std::span(&begin, 1));
  world.all_reduce_max(std::span(&end, 1));
  EXPECT_GE(end - begin, v * kBeta + std::ceil(std::log2(p)) * kAlpha - 1e-6);  // of nanoseconds in a double
}

// From the first rank that begins to the last that ends. In the tree of one segment whoever has children sends when all
// of theirs has come; the chain's last rank has all of it to send before the others have the last of it.
TEST_P(Emulated, AReduceTakesAtLeastTheFormula) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  const int p = world.size();
  const auto seconds_of = [&](std::int64_t elements) {
    Payload payload(world, all_ranks(world), Collective::reduce, DType::f32, elements, false, p - 1);
    const Ticket ticket = engine.post(payload.request(group));
    engine.wait(ticket);
    payload.expect_right();
    const CompletedTimes times = engine.times(ticket);
    double begin = static_cast<double>(times.begin_ns) * 1e-9;
    double end = static_cast<double>(times.end_ns) * 1e-9;
    world.all_reduce_min(std::span(&begin, 1));
    world.all_reduce_max(std::span(&end, 1));
    return end - begin + 1e-6;  // of nanoseconds in a double
  };
  EXPECT_GE(seconds_of(24000), std::floor(std::log2(p)) * (kAlpha + 24000 * 4 * kBeta));
  EXPECT_GE(seconds_of(200000), (p - 1) * kAlpha + 200000 * 4 * kBeta);
}

TEST_P(Emulated, ConcurrentOperationsShareTheLink) {
  const World world;
  EngineOptions flat = options();
  flat.emulated_link = EmulatedLink{0.0, kBeta};
  Engine engine(world, flat);
  const int p = world.size();
  const std::int64_t elements = 24000;
  std::deque<Payload> payloads;
  const std::array<int, 2> groups{engine.create_group(all_ranks(world)), engine.create_group(all_ranks(world))};
  world.barrier();
  std::vector<Ticket> tickets;
  for (int i = 0; i < 2; ++i) {
    payloads.emplace_back(world, all_ranks(world), Collective::all_gather, DType::f32, elements, false, 0,
                          Reduction::sum, i);
    tickets.push_back(engine.post(payloads.back().request(groups[static_cast<std::size_t>(i)], i)));
  }
  engine.wait_all();
  payloads[0].expect_right();
  payloads[1].expect_right();
  const std::int64_t begin = std::min(engine.times(tickets[0]).begin_ns, engine.times(tickets[1]).begin_ns);
  const std::int64_t end = std::max(engine.times(tickets[0]).end_ns, engine.times(tickets[1]).end_ns);
  EXPECT_GE(static_cast<double>(end - begin) * 1e-9, 2 * (p - 1) * (static_cast<double>(elements) * 4 / p * kBeta));
}

TEST_P(Emulated, AReceiverWaitsForTheSendersLink) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  const std::int64_t elements = 50000;
  Ticket ticket;
  std::deque<Payload> payload;
  world.barrier();
  if (world.rank() == 0) {
    payload.emplace_back(world, all_ranks(world), Collective::send, DType::f32, elements, false, 1);
    ticket = engine.post(payload.back().request(group));
  } else if (world.rank() == 1) {
    payload.emplace_back(world, all_ranks(world), Collective::recv, DType::f32, elements, false, 0);
    ticket = engine.post(payload.back().request(group));
  }
  const std::clock_t before = std::clock();
  engine.wait(ticket);
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  // The machine's one clock: the sender's beginning and the receiver's end.
  std::array<double, 2> begin_end{0.0, 0.0};
  if (world.rank() < 2) {
    payload.back().expect_right();
    begin_end[static_cast<std::size_t>(world.rank())] =
        static_cast<double>(world.rank() == 0 ? engine.times(ticket).begin_ns : engine.times(ticket).end_ns) * 1e-9;
  }
  world.all_reduce_sum(begin_end);
  EXPECT_GE(begin_end[1] - begin_end[0], kAlpha + static_cast<double>(elements) * 4 * kBeta - 1e-6);
  EXPECT_LT(cpu_seconds, 0.01) << "the link's 22 ms pass asleep";
}

TEST_P(Emulated, RefusesNonsense) {
  const World world;
  EngineOptions negative = options();
  negative.emulated_link = EmulatedLink{-1.0, 0.0};
  EXPECT_THROW(Engine(world, negative), UserError);
  EngineOptions inside = options();
  inside.transport = "shm";
  EXPECT_THROW(Engine(world, inside), UserError);
}

INSTANTIATE_TEST_SUITE_P(Progress, Emulated, testing::Values(ProgressMode::thread, ProgressMode::polling),
                         [](const testing::TestParamInfo<ProgressMode>& entry) {
                           return entry.param == ProgressMode::thread ? "thread" : "polling";
                         });

}  // namespace
}  // namespace strata::comm::test_emulated_link

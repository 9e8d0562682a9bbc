/// @file
/// Streams, dependencies, groups, tickets, and what the engine refuses.

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <deque>
#include <thread>

#include "base/error.hpp"
#include "mpi/comm/payload.hpp"

namespace strata::comm::test_engine {
namespace {

struct Case {
  const char* transport;
  ProgressMode progress;
};

class EngineTest : public testing::TestWithParam<Case> {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.transport = GetParam().transport;
    options.progress = GetParam().progress;
    options.watchdog_seconds = 60;
    return options;
  }
};

TEST_P(EngineTest, ManyOperationsOnManyStreamsAndGroups) {
  const World world;
  Engine engine(world, options());
  std::vector<std::vector<int>> members{all_ranks(world)};
  std::vector<int> groups{engine.create_group(members[0])};
  std::vector<int> parity;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) {
    parity.push_back(rank);
  }
  members.push_back(parity);
  groups.push_back(engine.create_group(parity));
  std::vector<int> backwards(members[0].rbegin(), members[0].rend());
  members.push_back(backwards);
  groups.push_back(engine.create_group(backwards));

  constexpr Collective kKinds[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                   Collective::broadcast, Collective::reduce};
  std::deque<Payload> payloads;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 60; ++i) {
    const auto which = static_cast<std::size_t>(i % 3);
    payloads.emplace_back(world, members[which], kKinds[i % 5], i % 2 == 0 ? DType::f32 : DType::bf16,
                          1 + (i * 7919) % 50000, i % 7 == 0, 0, Reduction::sum, i);
    tickets.push_back(engine.post(payloads.back().request(groups[which], i % 4)));
    engine.progress();
  }
  engine.wait(tickets[17]);
  engine.wait_all();
  for (const Payload& payload : payloads) {
    payload.expect_right();
  }
  for (std::size_t i = 4; i < tickets.size(); ++i) {  // streams are in order
    EXPECT_TRUE(engine.done(tickets[i]));
    EXPECT_LE(engine.times(tickets[i - 4]).end_ns, engine.times(tickets[i]).begin_ns);
    EXPECT_LE(engine.times(tickets[i]).posted_ns, engine.times(tickets[i]).begin_ns);
    EXPECT_LE(engine.times(tickets[i]).begin_ns, engine.times(tickets[i]).end_ns);
  }
}

TEST_P(EngineTest, AfterOrdersStreams) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  constexpr std::int64_t kElements = 200001;
  // On three streams: reduce, then gather what was reduced, then reduce that again, all in one buffer.
  std::vector<float> values(kElements, 1.0F);
  Request request;
  request.num_elements = kElements;
  request.group = group;
  request.input = values.data();
  request.output = values.data();
  const Ticket first = engine.post(request);
  request.stream = 1;
  request.after = std::span(&first, 1);
  const Ticket second = engine.post(request);
  const std::array<Ticket, 2> both{first, second};
  request.stream = 2;
  request.after = both;
  const Ticket third = engine.post(request);
  engine.wait(third);
  const auto size = static_cast<float>(world.size());
  for (const float value : values) {
    ASSERT_EQ(value, size * size * size);
  }
  EXPECT_LE(engine.times(first).end_ns, engine.times(second).begin_ns);
  EXPECT_LE(engine.times(second).end_ns, engine.times(third).begin_ns);
}

// What comes next on a stream may begin while the last messages of what came before are on the wire, if it may.
TEST_P(EngineTest, OneStreamReadsWhatItWroteBefore) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  constexpr std::int64_t kElements = 1001;
  constexpr int kRounds = 20;
  const Chunk own = chunk_of(kElements, world.size(), world.rank());
  std::vector<float> chained(kElements, 1.0F);
  std::vector<float> apart(kElements, 1.0F);
  std::vector<Ticket> tickets;
  for (int round = 0; round < kRounds; ++round) {
    Request request;
    request.num_elements = kElements;
    request.group = group;
    // A reduce-scatter and an all-gather of what it leaves, in one buffer: their sum is an all-reduce.
    request.kind = Collective::reduce_scatter;
    request.input = chained.data();
    request.output = chained.data() + own.begin;
    request.reduction = round % 5 == 0 ? Reduction::sum : Reduction::max;
    tickets.push_back(engine.post(request));
    request.kind = Collective::all_gather;
    request.input = chained.data() + own.begin;
    request.output = chained.data();
    tickets.push_back(engine.post(request));
    // This one touches neither.
    request.kind = Collective::all_reduce;
    request.reduction = Reduction::max;
    request.input = apart.data();
    request.output = apart.data();
    tickets.push_back(engine.post(request));
  }
  for (std::size_t i = 0; i < tickets.size(); i += 7) {
    engine.wait(tickets[i]);
    for (std::size_t before = 0; before < i; ++before)
      EXPECT_TRUE(engine.done(tickets[before])) << before << " of " << i;
  }
  engine.wait_all();
  float expected = 1.0F;
  for (int round = 0; round < kRounds; round += 5) expected *= static_cast<float>(world.size());
  for (const float value : chained) ASSERT_EQ(value, expected);
  for (const float value : apart) ASSERT_EQ(value, 1.0F);
  for (std::size_t i = 1; i < tickets.size(); ++i) {
    EXPECT_LE(engine.times(tickets[i - 1]).end_ns, engine.times(tickets[i]).begin_ns);
  }
}

// Together an all-reduce, to and from one root after another.
TEST_P(EngineTest, AReduceAndABroadcastOfOneBuffer) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  const int size = world.size();
  for (const std::int64_t elements : {std::int64_t{1001}, std::int64_t{150001}}) {
    constexpr int kRounds = 12;
    std::vector<float> values(static_cast<std::size_t>(elements), 1.0F);
    Request request;
    request.num_elements = elements;
    request.group = group;
    request.input = values.data();
    request.output = values.data();
    for (int round = 0; round < kRounds; ++round) {
      request.kind = Collective::reduce;
      request.reduction = round % 4 == 0 ? Reduction::sum : Reduction::max;
      request.peer = round % size;
      engine.post(request);
      request.kind = Collective::broadcast;
      engine.post(request);
    }
    engine.wait_all();
    for (const float value : values) ASSERT_EQ(value, static_cast<float>(size * size * size)) << elements;
  }
}

TEST_P(EngineTest, MessagesAroundARing) {
  const World world;
  if (world.size() == 1) {
    GTEST_SKIP() << "nobody to send to";
  }
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  std::deque<Payload> sent;
  std::deque<Payload> received;
  for (int i = 0; i < 12; ++i) {  // messages of one direction keep their order
    const std::int64_t elements = i % 3 == 0 ? 300001 : i;
    sent.emplace_back(world, all_ranks(world), Collective::send, DType::f32, elements, false, next, Reduction::sum, i);
    received.emplace_back(world, all_ranks(world), Collective::recv, DType::f32, elements, false, previous,
                          Reduction::sum, i);
    engine.post(received.back().request(group, 1));
    engine.post(sent.back().request(group, 0));
  }
  engine.wait_all();
  for (const Payload& payload : received) {
    payload.expect_right();
  }
}

/// They have one ticket, and what comes on their stream afterwards finds all of them done.
TEST_P(EngineTest, OperationsThatArePostedTogether) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  std::vector<float> last(1000, 1.0F);
  Request behind;
  behind.num_elements = 1000;
  behind.group = group;
  behind.input = behind.output = last.data();
  behind.label = "behind";
  for (const int count : {1, 2, 5}) {
    for (const bool something_follows : {false, true}) {
      std::deque<Payload> payloads;
      std::vector<Request> requests;
      std::int64_t bytes_apart = 0;
      for (int i = 0; i < 2 * count; ++i) {  // every one apart, and then together with the others
        const int number = i / 2;
        Payload& payload = payloads.emplace_back(
            world, all_ranks(world), number % 2 == 0 ? Collective::broadcast : Collective::all_gather, DType::f32,
            1 + 30011 * (count - number), false, number % world.size(), Reduction::sum, number);
        if (i % 2 == 1) {
          requests.push_back(payload.request(group));
          continue;
        }
        const Ticket apart = engine.post(payload.request(group));
        engine.wait(apart);
        bytes_apart += engine.times(apart).bytes_sent;
      }
      const Ticket together = engine.post(requests);
      const Ticket next = something_follows ? engine.post(behind) : together;
      engine.wait(next);
      EXPECT_TRUE(engine.done(together));
      const CompletedTimes times = engine.times(together);
      EXPECT_EQ(times.bytes_sent, bytes_apart);
      EXPECT_LE(times.posted_ns, times.begin_ns);
      EXPECT_LE(times.begin_ns, times.end_ns);
      if (something_follows) {
        EXPECT_LE(times.end_ns, engine.times(next).begin_ns);
      }
      for (const Payload& payload : payloads) payload.expect_right();
    }
  }
  Request elsewhere[2];
  elsewhere[1].stream = 1;
  EXPECT_THROW(engine.post(elsewhere), InternalError);
  EXPECT_THROW(engine.post(std::span<const Request>{}), InternalError);
}

TEST_P(EngineTest, LateRanksAreWaitedForAsleep) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  Payload payload(world, all_ranks(world), Collective::all_reduce, DType::f32, 100000, true);
  world.barrier();
  if (world.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const std::clock_t before = std::clock();
  engine.wait(engine.post(payload.request(group)));
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  payload.expect_right();
  EXPECT_LT(cpu_seconds, 0.1) << "a spinning wait would have used 0.3 s";
}

TEST_P(EngineTest, SlotsAreReusedWithoutAllocation) {
  const World world;
  EngineOptions few = options();
  few.num_ticket_slots = 16;
  Engine engine(world, few);
  const int group = engine.create_group(all_ranks(world));
  std::vector<float> values(1000, 0.0F);
  Request request;
  request.num_elements = 1000;
  request.group = group;
  request.input = values.data();
  request.output = values.data();
  request.label = "reused";
  const auto post_some = [&](int count) {
    for (int i = 0; i < count; ++i) {  // more than there are slots: posting waits for the oldest
      request.stream = i % 2;
      engine.post(request);
    }
    engine.wait_all();
  };
  post_some(100);
  const std::int64_t memory_bytes = engine.memory_bytes();
  const std::size_t in_use_bytes = mallinfo2().uordblks;
  post_some(400);
  EXPECT_EQ(engine.memory_bytes(), memory_bytes);
  if (std::string(GetParam().transport) == "shm" || world.size() == 1) {  // MPI allocates as it likes
    EXPECT_LE(mallinfo2().uordblks, in_use_bytes);
  }
  const Ticket old = engine.post(request);
  post_some(16);
  EXPECT_TRUE(engine.done(old));
  EXPECT_THROW((void)engine.times(old), InternalError);
}

TEST_P(EngineTest, RefusesWhatItCannotDo) {
  const World world;
  Engine engine(world, options());
  const int group = engine.create_group(all_ranks(world));
  std::vector<int> values(static_cast<std::size_t>(world.size()) * 4);
  Request request;
  request.num_elements = world.size() * 4;
  request.group = group;
  request.dtype = DType::i32;
  request.input = values.data();
  request.output = values.data();
  EXPECT_THROW(engine.post(request), Unsupported);
  request.kind = Collective::reduce;
  EXPECT_THROW(engine.post(request), Unsupported);
  request.dtype = DType::f32;
  for (const Collective rooted : {Collective::broadcast, Collective::reduce}) {
    request.kind = rooted;
    for (const int nobody : {world.size(), -1}) {
      request.peer = nobody;
      EXPECT_THROW(engine.post(request), InternalError);
    }
  }
  request.peer = 0;
  request.group = 5;
  EXPECT_THROW(engine.post(request), InternalError);
  request.group = group;
  if (world.size() > 1) {
    request.kind = Collective::all_to_all;
    request.num_elements = world.size() * 2 + 1;
    EXPECT_THROW(engine.post(request), InternalError);
  }
  EXPECT_THROW(engine.create_group({world.rank(), world.rank()}), InternalError);
  EXPECT_THROW(engine.create_group({world.rank() + 1}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineTest,
                         testing::Values(Case{"shm", ProgressMode::thread}, Case{"shm", ProgressMode::polling},
                                         Case{"mpi", ProgressMode::thread}, Case{"mpi", ProgressMode::polling}),
                         [](const testing::TestParamInfo<Case>& entry) {
                           return std::string(entry.param.transport) +
                                  (entry.param.progress == ProgressMode::thread ? "_thread" : "_polling");
                         });

}  // namespace
}  // namespace strata::comm::test_engine

/// @file
/// A rank that never reaches a collective is named. Every test ends before the job is out of step: the missing rank
/// stays outside while the others report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "mpi/comm/payload.hpp"

namespace strata::comm::test_watchdog {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Case {
  const char* transport;
  ProgressMode progress;
};

EngineOptions watched(const Case& which) {
  EngineOptions options;
  options.transport = which.transport;
  options.progress = which.progress;
  options.watchdog_seconds = 0.5;
  return options;
}

/// Never in the collective that others wait in, until their watchdogs have barked; but its engine answers them.
void stay_alive(Engine& engine) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) {
    engine.progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Request sum_of(std::vector<float>& values, int group, const char* label) {
  Request request;
  request.num_elements = static_cast<std::int64_t>(values.size());
  request.input = values.data();
  request.output = values.data();
  request.group = group;
  request.label = label;
  return request;
}

class Watchdog : public testing::TestWithParam<Case> {};

/// Engines of failed operations are not destroyed: their pending requests would be freed under MPI's hands. One that
/// has not failed must be: its thread would go on calling MPI after the end.
class Abandoned {
 public:
  explicit Abandoned(const EngineOptions& options) : world_(new World), engine_(new Engine(*world_, options)) {}
  const World& world() const { return *world_; }
  Engine& engine() { return *engine_; }
  void end(bool failed) {
    World().barrier();
    if (failed) return;
    delete engine_;
    delete world_;
  }

 private:
  World* world_;
  Engine* engine_;
};

TEST_P(Watchdog, NamesTheMissingRank) {
  static std::vector<WatchdogReport> reports;
  reports.clear();
  EngineOptions options = watched(GetParam());
  options.on_watchdog = [](const WatchdogReport& report) { reports.push_back(report); };
  Abandoned job(options);
  const World& world = job.world();
  Engine& engine = job.engine();
  const int group = engine.create_group({0, 1, 2});
  Payload first(world, {0, 1, 2}, Collective::all_reduce, DType::f32, 1000, true);
  engine.wait(engine.post(first.request(group)));
  first.expect_right();
  static std::vector<float> values(1000);  // outlives the abandoned operation
  const Request request = sum_of(values, group, "#12 all_reduce %gradient.3");
  if (world.rank() == 2) {  // busy elsewhere, but its engine is alive
    stay_alive(engine);
  } else {
    std::string message;
    const auto begin = std::chrono::steady_clock::now();
    try {
      engine.wait(engine.post(request));
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_GE(seconds, 0.5);
    EXPECT_THAT(message, HasSubstr("\"#12 all_reduce %gradient.3\" (all_reduce number 2 of group 0,1,2, over " +
                                   std::string(GetParam().transport) + ")"));
    EXPECT_THAT(message, HasSubstr("missing: rank 2 (has posted 1)"));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].label, "#12 all_reduce %gradient.3");
    EXPECT_EQ(reports[0].message, message);
    EXPECT_THAT(reports[0].group_ranks, ElementsAre(0, 1, 2));
    EXPECT_THAT(reports[0].missing_ranks, ElementsAre(2));
    EXPECT_THROW(engine.post(request), CommunicationError) << "a failed engine stays failed";
  }
  job.end(world.rank() != 2);
}

/// Members are numbered from 0 in every group; people know ranks by their number in the job.
TEST_P(Watchdog, NamesRanksByTheirNumberInTheJob) {
  static std::vector<WatchdogReport> reports;
  reports.clear();
  EngineOptions options = watched(GetParam());
  options.on_watchdog = [](const WatchdogReport& report) { reports.push_back(report); };
  Abandoned job(options);
  const World& world = job.world();
  Engine& engine = job.engine();
  const int group = world.rank() == 1 ? -1 : engine.create_group({2, 0});
  static std::vector<float> values(1000);
  if (world.rank() == 0) {
    const Request request = sum_of(values, group, "all_reduce %gradient.3");
    EXPECT_THROW(engine.wait(engine.post(request)), CommunicationError);
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_THAT(reports[0].message, HasSubstr("missing: rank 2 (has posted 0)"));
    EXPECT_THAT(reports[0].group_ranks, ElementsAre(2, 0));
    EXPECT_THAT(reports[0].missing_ranks, ElementsAre(2));
  } else {
    stay_alive(engine);
  }
  job.end(world.rank() == 0);
}

TEST_P(Watchdog, NamesThePeerOfAMessage) {
  EngineOptions options = watched(GetParam());
  Abandoned job(options);
  const World& world = job.world();
  Engine& engine = job.engine();
  const int group = engine.create_group({0, 1, 2});
  static std::vector<float> values(1000);
  if (world.rank() == 1) {
    Request request;
    request.kind = Collective::recv;
    request.peer = 2;
    request.num_elements = 1000;
    request.output = values.data();
    request.group = group;
    request.label = "recv %activation";
    std::string message;
    try {
      engine.wait(engine.post(request));
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr("missing: rank 2 (has posted 0)"));
  } else {
    stay_alive(engine);
  }
  job.end(world.rank() == 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, Watchdog,
                         testing::Values(Case{"shm", ProgressMode::thread}, Case{"shm", ProgressMode::polling},
                                         Case{"mpi", ProgressMode::thread}, Case{"mpi", ProgressMode::polling}),
                         [](const testing::TestParamInfo<Case>& entry) {
                           return std::string(entry.param.transport) +
                                  (entry.param.progress == ProgressMode::thread ? "_thread" : "_polling");
                         });

}  // namespace
}  // namespace strata::comm::test_watchdog

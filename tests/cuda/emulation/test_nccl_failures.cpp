/// @file
/// What is said where collectives on devices go wrong, and which communicators the arena is registered with.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "cuda/emulation/nccl.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda_backend.hpp"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NoInputs final : public InputSource {
  void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                   std::span<std::int32_t>) override {}
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {}
  void load_targets(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>) override {}
};

/// All ranks sum a buffer; what stands before it in the arena is @p bytes_before long.
Program sum_over_all(const comm::World& world, std::int64_t bytes_before) {
  Program program{.rank = world.rank(), .num_ranks = world.size(), .streams = {"compute", "communication"}};
  program.groups = {{.name = "all"}};
  for (int r = 0; r < world.size(); ++r) program.groups.front().ranks.push_back(r);
  program.buffers = {{.name = "loss", .num_elements = 1, .persistent = true},
                     {.name = "before", .num_elements = bytes_before, .dtype = DType::u8, .persistent = true},
                     {.name = "x", .num_elements = 100, .persistent = true}};
  program.loss_buffer = 0;
  program.body = {{.group = 0,
                   .stream = 1,
                   .name = "weights",
                   .inputs = {{.buffer = 2, .num_elements = 100}},
                   .outputs = {{.buffer = 2, .num_elements = 100}}}};
  assign_addresses(program);
  return program;
}

class NcclFailures : public testing::Test {
 protected:
  std::unique_ptr<cuda::CudaExecutor> executor(const Program& program, double watchdog_seconds = 60.0) {
    // Asked for: ranks whose steps have failed are not asked whether they could record theirs.
    cuda::CudaOptions options{.graphs = cuda::GraphUse::on};
    options.nccl = {.world = &world, .watchdog_seconds = watchdog_seconds, .on_watchdog = [this](const auto& report) {
                      reports.push_back(report);
                    }};
    auto made = std::make_unique<cuda::CudaExecutor>(program, engine, inputs, 1, options);
    made->write(2, 0, std::vector<float>(100, 1.0F));
    return made;
  }
  template <typename Action>
  static std::string failure_of(const Action& action) {
    try {
      action();
    } catch (const CommunicationError& e) {
      return e.what();
    }
    return "";
  }
  /// In the step after @p steps_before.
  void miss_the_last_rank(const Program& program, int steps_before) {
    if (world.size() == 1) return;  // a rank alone waits for nobody
    const auto mine = executor(program, 0.2);
    for (int step = 0; step < steps_before; ++step) run_step(*mine, {.step = step});
    const int aborted_before = emulation::num_aborted();
    if (world.rank() != world.size() - 1) {
      EXPECT_THAT(
          failure_of([&] { run_step(*mine, {.step = steps_before}); }),
          AllOf(HasSubstr("#0 all_reduce weights in group all: not complete "), HasSubstr("its ranks are 0, 1")));
      EXPECT_EQ(emulation::num_aborted(), aborted_before + 1);
      ASSERT_EQ(reports.size(), 1u);
      EXPECT_EQ(reports.front().label, "#0 all_reduce weights in group all");
      EXPECT_EQ(reports.front().group_ranks, program.groups.front().ranks);
      EXPECT_GE(reports.front().waited_seconds, 0.2);
    }
    world.barrier();
    // What the others began is complete when this rank has come; what they did not begin it does not wait for.
    if (world.rank() == world.size() - 1) failure_of([&] { run_step(*mine, {.step = steps_before}); });
    world.barrier();
  }

  comm::World world;
  comm::Engine engine{world, {}};
  NoInputs inputs;
  std::vector<comm::WatchdogReport> reports;
};

TEST_F(NcclFailures, ARankThatDoesNotComeIsReportedByTheInstruction) { miss_the_last_rank(sum_over_all(world, 64), 0); }
/// The third step, of which the second was the first launch of a graph.
TEST_F(NcclFailures, ARankThatDoesNotComeToAGraphIsReportedToo) { miss_the_last_rank(sum_over_all(world, 64), 2); }
/// A GPU does not take them all before it has done some.
TEST_F(NcclFailures, ARankThatDoesNotComeIsReportedWhileCollectivesAreQueued) {
  Program program = sum_over_all(world, 64);
  program.body.resize(40, program.body.front());
  miss_the_last_rank(program, 0);
}

TEST_F(NcclFailures, AnAsynchronousErrorIsReportedByTheInstruction) {
  if (world.size() == 1) return;
  const Program program = sum_over_all(world, 64);
  const auto mine = executor(program);
  const int aborted_before = emulation::num_aborted();
  if (world.rank() == 0) {
    emulation::set_async_error(ncclRemoteError);
    EXPECT_THAT(failure_of([&] { run_step(*mine, {}); }),
                HasSubstr("#0 all_reduce weights in group all: NCCL: remote process exited"));
    emulation::set_async_error(ncclSuccess);
    EXPECT_EQ(emulation::num_aborted(), aborted_before + 1);
    EXPECT_TRUE(reports.empty());
  }
  world.barrier();
  if (world.rank() != 0) run_step(*mine, {});
  world.barrier();
}

TEST_F(NcclFailures, TheArenaIsRegisteredWhereOperandsLieAlike) {
  const int before = emulation::num_registered();
  executor(sum_over_all(world, 64));
  EXPECT_EQ(emulation::num_registered() - before, world.size() > 1 ? 1 : 0);
  executor(sum_over_all(world, arena_alignment_bytes * (1 + world.rank())));
  EXPECT_EQ(emulation::num_registered() - before, world.size() > 1 ? 1 : 0);
}

TEST_F(NcclFailures, EveryProcessOfTheEmulationHasAGpu) {
  const cuda::SelectedDevice selected = cuda::select_device(world, true);
  EXPECT_EQ(selected.sharing, "");
  EXPECT_THAT(selected.device.name, HasSubstr("emulated"));
}

TEST_F(NcclFailures, MoreThanTheMemoryIsRefusedOnAllRanks) {
  Program program = sum_over_all(world, 64);
  if (world.rank() == 0) program.arena_bytes = std::int64_t{1} << 60;
  std::string words;
  try {
    cuda::make_executor(program, world, engine, inputs, 1, {.transport = cuda::Transport::nccl});
  } catch (const OutOfMemory& e) {
    words = e.what();
  }
  EXPECT_THAT(words, AllOf(HasSubstr("rank 0: OOM on the GPU"), HasSubstr("1152921504606846976")));
}

/// Ranks in pairs; of an odd number of ranks the last one is in no group.
TEST_F(NcclFailures, EveryCollectiveIsTimedOnEveryGroup) {
  std::vector<int> pair;
  if (const int first = world.rank() / 2 * 2; first + 1 < world.size()) pair = {first, first + 1};
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  for (const std::vector<int>& ranks : {pair, all}) {
    const TimedCollectives collectives = cuda::nccl_collectives(world, ranks, 1024);
    for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                  Collective::all_to_all, Collective::broadcast, Collective::reduce}) {
      EXPECT_EQ(collectives(kind, 1024, 3) > 0.0, ranks.size() > 1) << to_string(kind);
    }
    const bool is_end = ranks.size() > 1 && (world.rank() == ranks[0] || world.rank() == ranks[1]);
    EXPECT_EQ(collectives(Collective::send, 16, 1) > 0.0, is_end);
    world.barrier();
  }
}

}  // namespace
}  // namespace strata

/// @file
/// Collectives of a Program on GPUs, by NCCL and through the host: every kind, counts that the ranks do not divide,
/// groups that overlap, in both dtypes. Inputs are small integers, so that sums are exact in any order.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/environment.hpp"

namespace strata {
namespace {

class NoInputs final : public InputSource {
  void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                   std::span<std::int32_t>) override {}
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {}
  void load_targets(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>) override {}
};

/// One collective, as a rank sees it.
struct Case {
  Collective kind;
  Reduction reduction;
  DType dtype;
  std::int64_t count;  ///< of the full tensor
  int group;
  int root;  ///< index in the group; messages: the peer's
  bool in_place;
  int number;  ///< equal on all members
};

/// The collectives of one rank, and what they read and write.
class Job {
 public:
  Job(int rank, int num_ranks) : rank_(rank) {
    program_.rank = rank;
    program_.num_ranks = num_ranks;
    program_.streams = {"compute", "communication", "other", "out", "in"};
    program_.loss_buffer = buffer(DType::f32, 1);
    add_groups(num_ranks);
    for (std::size_t g = 0; g < program_.groups.size(); ++g) add_collectives(static_cast<int>(g));
    assign_addresses(program_);
  }

  const Program& program() const { return program_; }

  void write_inputs(Executor& executor, int step) const {
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      if (inputs_[c] < 0) continue;
      std::vector<float> values = input(cases_[c], index(cases_[c]), step);
      if (values.empty()) continue;
      executor.write(inputs_[c], input_begin(cases_[c]), values);
    }
  }

  void check_outputs(const Executor& executor, int step) const {
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      if (outputs_[c] < 0) continue;
      const Case& k = cases_[c];
      const std::vector<float> expected = output(k, step);
      const std::span<const float> all = executor.read(outputs_[c]);
      const std::vector<float> actual(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(expected.size()));
      EXPECT_EQ(actual, expected) << to_string(k.kind) << " of " << k.count << " " << to_string(k.dtype) << " in "
                                  << program_.groups[static_cast<std::size_t>(k.group)].name << ", step " << step;
    }
  }

 private:
  const std::vector<int>& ranks(const Case& k) const {
    return program_.groups[static_cast<std::size_t>(k.group)].ranks;
  }
  int size(const Case& k) const { return static_cast<int>(ranks(k).size()); }
  int index(const Case& k) const { return static_cast<int>(std::ranges::find(ranks(k), rank_) - ranks(k).begin()); }
  Chunk own_chunk(const Case& k) const { return chunk_of(k.count, size(k), index(k)); }

  void add_groups(int num_ranks) {
    Group all{.name = "all"};
    Group backwards{.name = "backwards"};
    Group alike{.name = rank_ % 2 == 0 ? "even" : "odd"};
    for (int r = 0; r < num_ranks; ++r) {
      all.ranks.push_back(r);
      backwards.ranks.insert(backwards.ranks.begin(), r);
      if (r % 2 == rank_ % 2) alike.ranks.push_back(r);
    }
    program_.groups = {all, backwards, alike};
  }

  int buffer(DType dtype, std::int64_t count) {
    program_.buffers.push_back({.name = fmt::format("b{}", program_.buffers.size()),
                                .num_elements = std::max<std::int64_t>(count, 1),
                                .dtype = dtype,
                                .persistent = true});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void add_collectives(int group) {
    const int n = static_cast<int>(program_.groups[static_cast<std::size_t>(group)].ranks.size());
    int number = 100 * group;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t count : {1, 7, 12, 4099}) {
        for (const bool in_place : {false, true}) {
          for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                        Collective::broadcast, Collective::reduce}) {
            add({kind, in_place ? Reduction::max : Reduction::sum, dtype, count, group, number % n, in_place, number});
            ++number;
          }
        }
        add({Collective::all_to_all, Reduction::sum, dtype, count * n, group, 0, false, number++});
        if (n == 1) continue;
        // Around a ring: no order of these suits all ranks but that they run side by side.
        const int me = index({.group = group});
        add({Collective::send, Reduction::sum, dtype, count, group, (me + 1) % n, false, number});
        add({Collective::recv, Reduction::sum, dtype, count, group, (me + n - 1) % n, false, number++});
      }
    }
  }

  std::int64_t input_begin(const Case& k) const {
    return k.in_place && k.kind == Collective::all_gather ? own_chunk(k).begin : 0;
  }

  void add(const Case& k) {
    const bool sends = k.kind == Collective::send;
    const bool receives = k.kind == Collective::recv;
    const bool is_root = index(k) == k.root;
    const std::int64_t in = k.kind == Collective::all_gather ? own_chunk(k).size() : k.count;
    const std::int64_t out = k.kind == Collective::reduce_scatter ? own_chunk(k).size() : k.count;
    const bool writes = !sends && (k.kind != Collective::reduce || is_root);
    const int x = receives ? -1 : buffer(k.dtype, k.count);
    const int y = !writes ? -1 : k.in_place ? x : buffer(k.dtype, k.count);
    Instruction instruction{.collective = k.kind, .reduction = k.reduction, .group = k.group, .root = k.root};
    instruction.stream = sends ? 3 : receives ? 4 : 1 + k.number % 2;
    instruction.name = fmt::format("case{}", k.number);
    if (x >= 0) instruction.inputs = {{.buffer = x, .begin = input_begin(k), .num_elements = in}};
    const std::int64_t begin = k.in_place && k.kind == Collective::reduce_scatter ? own_chunk(k).begin : 0;
    if (y >= 0) instruction.outputs = {{.buffer = y, .begin = begin, .num_elements = out}};
    program_.body.push_back(instruction);
    cases_.push_back(k);
    inputs_.push_back(x);
    outputs_.push_back(y < 0 ? -1 : copied(y, begin, out));
  }

  /// A kernel that waits for the collective; results are read as f32.
  int copied(int from, std::int64_t begin, std::int64_t count) {
    const int to = buffer(DType::f32, count);
    if (count == 0) return to;
    Instruction copy{.kernel = Kernel::copy};
    copy.inputs = {{.buffer = from, .begin = begin, .num_elements = count}};
    copy.outputs = {{.buffer = to, .num_elements = count}};
    copy.attributes.set("elements", count);
    copy.waits = {{.instruction = static_cast<int>(program_.body.size()) - 1}};
    program_.body.push_back(copy);
    return to;
  }

  static float value(const Case& k, int member, std::int64_t i, int step) {
    return static_cast<float>((7 * i + 3 * member + k.number + step) % 11 - 5);
  }
  /// What member @p member reads.
  std::vector<float> input(const Case& k, int member, int step) const {
    std::int64_t first = 0;
    std::int64_t end = k.count;
    if (k.kind == Collective::all_gather) {
      const Chunk chunk = chunk_of(k.count, size(k), member);
      first = chunk.begin;
      end = chunk.end;
    }
    std::vector<float> values;
    for (std::int64_t i = first; i < end; ++i) values.push_back(value(k, member, i, step));
    return values;
  }

  float reduced(const Case& k, std::int64_t i, int step) const {
    float sum = 0.0F;
    float max = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < size(k); ++j) {
      sum += value(k, j, i, step);
      max = std::max(max, value(k, j, i, step));
    }
    return k.reduction == Reduction::sum ? sum : max;
  }

  std::vector<float> output(const Case& k, int step) const {
    std::vector<float> values;
    const Chunk own = own_chunk(k);
    const auto at = [&](std::int64_t i) {
      switch (k.kind) {
        case Collective::all_reduce:
        case Collective::reduce: return reduced(k, i, step);
        case Collective::reduce_scatter: return reduced(k, own.begin + i, step);
        case Collective::all_gather: {
          const std::int64_t length = (k.count + size(k) - 1) / size(k);
          return value(k, static_cast<int>(i / length), i, step);
        }
        case Collective::all_to_all: {
          const std::int64_t each = k.count / size(k);
          return value(k, static_cast<int>(i / each), index(k) * each + i % each, step);
        }
        default: return value(k, k.root, i, step);
      }
    };
    const std::int64_t n = k.kind == Collective::reduce_scatter ? own.size() : k.count;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(at(i));
    return values;
  }

  int rank_;
  Program program_;
  std::vector<Case> cases_;
  std::vector<int> inputs_;   ///< buffer by case, -1: none
  std::vector<int> outputs_;  ///< copy by case, -1: none
};

class Collectives : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    cuda::set_environment(world.size());
    if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
    cuda::check(cudaSetDevice(world.local_rank() % cuda::num_devices()), "cudaSetDevice");
    if (GetParam() && shared_devices()) GTEST_SKIP() << "no GPU for every rank";
  }
  bool shared_devices() const {
    std::vector<std::string> devices = world.all_gather(cuda::device_identity());
    std::ranges::sort(devices);
    return std::ranges::adjacent_find(devices) != devices.end();
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  NoInputs inputs;
};

INSTANTIATE_TEST_SUITE_P(Transports, Collectives, testing::Bool(),
                         [](const auto& test) { return test.param ? "nccl" : "host"; });

TEST_P(Collectives, GiveEveryMemberItsPart) {
  const Job job(world.rank(), world.size());
  cuda::CudaOptions options;
  if (GetParam()) options.nccl = {.world = &world, .watchdog_seconds = 60};
  cuda::CudaExecutor executor(job.program(), engine, inputs, 1, options);
  executor.initialize();
  for (int step = 0; step < 2; ++step) {
    job.write_inputs(executor, step);
    const StepMeasurement measured = run_step(executor, {.step = step});
    job.check_outputs(executor, step);
    const BytesByCollective predicted = bytes_by_collective(job.program());
    for (int k = 0; k < num_collectives; ++k) {
      EXPECT_EQ(measured.bytes_sent[static_cast<std::size_t>(k)], predicted.bytes[k])
          << to_string(static_cast<Collective>(k));
    }
  }
  world.barrier();
}

}  // namespace
}  // namespace strata

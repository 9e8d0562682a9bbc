/// @file
/// What the host reads for a step is on the device behind its load.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/check.hpp"
#include "exec/cuda/event.hpp"
#include "exec/cuda/input_load.hpp"

namespace strata {
namespace {

/// Tokens that tell their step; a step that cannot be read once.
class Tokens final : public InputSource {
 public:
  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) override {
    reads.push_back(step);
    std::ranges::fill(tokens, static_cast<std::int32_t>(step));  // half done, as a failure leaves it
    if (step == fails) {
      fails = -1;
      throw UserError("a file ends early");
    }
    for (auto& token : tokens) token = static_cast<std::int32_t>(100 * step + first_sample);
    for (auto& target : targets) target = static_cast<std::int32_t>(step);
  }
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {}
  void load_targets(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>) override {}

  std::vector<std::int64_t> reads;
  std::int64_t fails = -1;
};

class InputLoads : public testing::Test {
 protected:
  InputLoads() {
    program_.streams = {"compute"};
    program_.buffers = {{.name = "tokens", .num_elements = 4, .dtype = DType::i32, .persistent = true},
                        {.name = "targets", .num_elements = 4, .dtype = DType::i32, .persistent = true}};
    program_.body = {{.kernel = Kernel::load_tokens,
                      .name = "load",
                      .outputs = {{.buffer = 0, .num_elements = 4}, {.buffer = 1, .num_elements = 4}},
                      .attributes = {{"first_sample", std::int64_t{7}}, {"samples", std::int64_t{1}}}}};
    assign_addresses(program_);
    arena_ = std::make_unique<cuda::DeviceArena>(program_.arena_bytes, cuda::ArenaMemory::device);
    load_ = std::make_unique<cuda::InputLoad>(Arguments(program_, program_.body.front(), arena_->data()), tokens_);
  }
  /// What stands in the buffer after the load of @p step.
  std::int32_t loaded(std::int64_t step) {
    const cuda::Stream stream;
    load_->prepare(step);
    load_->queue(stream.get());
    stream.synchronize();
    std::int32_t value = 0;
    cuda::check(cudaMemcpy(&value, arena_->data() + program_.buffers[0].offset_bytes, sizeof value, cudaMemcpyDefault),
                "a token");
    return value;
  }
  Program program_;
  Tokens tokens_;
  std::unique_ptr<cuda::DeviceArena> arena_;
  std::unique_ptr<cuda::InputLoad> load_;
};

TEST_F(InputLoads, EachStepsSamplesArriveInTheBuffer) {
  EXPECT_EQ(loaded(0), 7);
  EXPECT_EQ(loaded(1), 107);
  EXPECT_EQ(loaded(5), 507);
  EXPECT_THAT(tokens_.reads, testing::ElementsAre(0, 1, 5));
}

TEST_F(InputLoads, WhatCannotBeReadIsAFailureOfItsOwnStep) {
  tokens_.fails = 2;
  EXPECT_THROW(load_->prepare(2), UserError);
  EXPECT_EQ(loaded(3), 307);
}

}  // namespace
}  // namespace strata

/// @file
/// What the host reads for a step is on the device behind its load, whichever thread has read it, and when.

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

/// Tokens and pixels that tell their step; a step that cannot be read once.
class Inputs final : public InputSource {
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
  void load_images(std::int64_t step, std::int64_t, std::int64_t, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = pixel(step, i);
    std::ranges::fill(labels, static_cast<std::int32_t>(step));
  }
  void load_targets(std::int64_t step, std::int64_t, std::int64_t, std::span<std::int32_t> targets) override {
    std::ranges::fill(targets, static_cast<std::int32_t>(-step));
  }
  /// Of more bits than bf16 has.
  static float pixel(std::int64_t step, std::size_t i) {
    return 1.0F / (3.0F + static_cast<float>(step)) - 0.01F * static_cast<float>(i);
  }

  std::vector<std::int64_t> reads;
  std::int64_t fails = -1;
};

/// A load by itself, of a Program whose body holds @p steps_per_body steps.
class OneLoad {
 public:
  OneLoad(Kernel kernel, DType dtype, std::int64_t num_values, bool has_targets, Inputs& inputs,
          std::int64_t steps_per_body = 1)
      : num_values_(num_values), values_(1, 1) {
    program_.streams = {"compute"};
    program_.buffers = {{.name = "values", .num_elements = num_values, .dtype = dtype, .persistent = true},
                        {.name = "targets", .num_elements = 4, .dtype = DType::i32, .persistent = true}};
    program_.body = {{.kernel = kernel,
                      .name = "load",
                      .outputs = {{.buffer = 0, .num_elements = num_values}},
                      .attributes = {{"first_sample", std::int64_t{7}}, {"samples", std::int64_t{1}}}}};
    if (has_targets) program_.body.front().outputs.push_back({.buffer = 1, .num_elements = 4});
    assign_addresses(program_);
    arena_ = std::make_unique<cuda::DeviceArena>(program_.arena_bytes, cuda::ArenaMemory::device);
    load_ = std::make_unique<cuda::InputLoad>(Arguments(program_, program_.body.front(), arena_->data()), inputs,
                                              steps_per_body, values_);
  }
  cuda::InputLoad& load() { return *load_; }
  /// The load of @p step, as the executor does it.
  void run(std::int64_t step) {
    const StepContext context{.step = step};
    values_.prepare(0, 1, [&](int) { return &context; });
    values_.copy(0, stream_.get());
    load_->prepare(step);
    load_->queue(stream_.get());
    stream_.synchronize();
  }
  template <typename T>
  std::vector<T> values() const {
    return read<T>(0, num_values_);
  }
  std::vector<std::int32_t> targets() const { return read<std::int32_t>(1, 4); }

 private:
  template <typename T>
  std::vector<T> read(std::size_t buffer, std::int64_t count) const {
    std::vector<T> all(static_cast<std::size_t>(count));
    cuda::check(cudaMemcpy(all.data(), arena_->data() + program_.buffers[buffer].offset_bytes, all.size() * sizeof(T),
                           cudaMemcpyDefault),
                "what was loaded");
    return all;
  }
  std::int64_t num_values_;
  Program program_;
  std::unique_ptr<cuda::DeviceArena> arena_;
  cuda::StepValues values_;
  cuda::Stream stream_;
  std::unique_ptr<cuda::InputLoad> load_;
};

TEST(InputLoads, EachStepsSamplesArriveInTheBuffer) {
  Inputs inputs;
  OneLoad one(Kernel::load_tokens, DType::i32, 4, true, inputs);
  for (const std::int64_t step : {0, 1, 5}) {
    one.run(step);
    EXPECT_THAT(one.values<std::int32_t>(), testing::Each(100 * step + 7));
    EXPECT_THAT(one.targets(), testing::Each(step));
  }
  EXPECT_THAT(inputs.reads, testing::ElementsAre(0, 1, 5));
}

TEST(InputLoads, TargetsAloneArriveToo) {
  Inputs inputs;
  OneLoad one(Kernel::load_targets, DType::i32, 4, false, inputs);
  one.run(3);
  EXPECT_THAT(one.values<std::int32_t>(), testing::Each(-3));
}

/// 37 pixels: whole packs and a rest.
TEST(InputLoads, PixelsAreRoundedOnTheDeviceAsOnTheHost) {
  Inputs inputs;
  OneLoad rounded(Kernel::load_images, DType::bf16, 37, true, inputs);
  OneLoad exact(Kernel::load_images, DType::f32, 37, true, inputs);
  for (const std::int64_t step : {0, 1, 2}) {
    rounded.run(step);
    exact.run(step);
    const std::vector<bf16> ours = rounded.values<bf16>();
    const std::vector<float> floats = exact.values<float>();
    for (std::size_t i = 0; i < 37; ++i) {
      EXPECT_EQ(floats[i], Inputs::pixel(step, i)) << i;
      EXPECT_EQ(static_cast<float>(ours[i]), static_cast<float>(bf16(Inputs::pixel(step, i)))) << i;
    }
    EXPECT_THAT(rounded.targets(), testing::Each(step));
  }
}

TEST(InputLoads, WhatCannotBeReadIsAFailureOfItsOwnStep) {
  Inputs inputs;
  OneLoad one(Kernel::load_tokens, DType::i32, 4, true, inputs);
  inputs.fails = 2;
  EXPECT_THROW(one.load().prepare(2), UserError);
  one.run(3);
  EXPECT_THAT(one.values<std::int32_t>(), testing::Each(307));
}

/// The next step is read while this one's samples are still to be fetched, and not again.
TEST(InputLoads, TheNextStepIsReadAheadIntoTheOtherPlace) {
  for (const std::int64_t steps_per_body : {1, 2}) {
    Inputs inputs;
    OneLoad one(Kernel::load_tokens, DType::i32, 4, true, inputs, steps_per_body);
    cuda::InputThread thread;
    for (std::int64_t step = 0; step < 6; step += steps_per_body) {
      one.load().prepare(step);
      one.load().prepare_ahead(step + steps_per_body, thread);
      one.load().prepare(step + steps_per_body);  // waits for it
      one.run(step);
      EXPECT_THAT(one.values<std::int32_t>(), testing::Each(100 * step + 7)) << steps_per_body;
    }
    std::vector<std::int64_t> once;
    for (std::int64_t step = 0; step <= 6; step += steps_per_body) once.push_back(step);
    EXPECT_EQ(inputs.reads, once);
  }
}

TEST(InputLoads, WhatCannotBeReadAheadIsReadAgainWhenItIsDue) {
  Inputs inputs;
  OneLoad one(Kernel::load_tokens, DType::i32, 4, true, inputs);
  cuda::InputThread thread;
  inputs.fails = 1;
  one.run(0);
  one.load().prepare_ahead(1, thread);
  one.run(1);
  EXPECT_THAT(one.values<std::int32_t>(), testing::Each(107));
  EXPECT_THAT(inputs.reads, testing::ElementsAre(0, 1, 1));
}

}  // namespace
}  // namespace strata

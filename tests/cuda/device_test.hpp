#pragma once

/// @file
/// One instruction on the CPU and on the GPU, on the same bytes. Without a GPU a test reports that it did not run.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/environment.hpp"
#include "exec/cuda/event.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/device/workspace.hpp"

namespace strata {

/// A Program of one instruction. Operands are buffers of their own, in the order they are added.
class OneKernel {
 public:
  OneKernel(Kernel kernel, const Attributes& attributes, std::string name = "operator") {
    instruction_.kernel = kernel;
    instruction_.attributes = attributes;
    instruction_.name = std::move(name);
    program_.streams = {"compute"};
  }

  /// @param range of uniform values around 0. @param offset elements by which the operand begins inside its buffer.
  OneKernel& input(DType dtype, std::int64_t n, double range = 1.0, std::int64_t offset = 0) {
    instruction_.inputs.push_back({.buffer = add(dtype, n + offset, range), .begin = offset, .num_elements = n});
    return *this;
  }
  /// Indices in [0, end), in dtype i32 or u8.
  OneKernel& indices(DType dtype, std::int64_t n, int end) {
    instruction_.inputs.push_back({.buffer = add(dtype, n, 0.0, end), .begin = 0, .num_elements = n});
    return *this;
  }
  /// These values, of T as @p dtype is stored.
  template <typename T>
  OneKernel& given(DType dtype, const std::vector<T>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    indices(dtype, n, 0);
    fills_.back().given.resize(values.size() * sizeof(T));
    std::memcpy(fills_.back().given.data(), values.data(), values.size() * sizeof(T));
    return *this;
  }
  /// Statistics and such, which are positive.
  OneKernel& positive(std::int64_t n) {
    input(DType::f32, n);
    fills_.back().positive = true;
    return *this;
  }
  /// What it holds before is random too: it may be added to.
  OneKernel& output(DType dtype, std::int64_t n, std::int64_t offset = 0) {
    instruction_.outputs.push_back({.buffer = add(dtype, n + offset, 1.0), .begin = offset, .num_elements = n});
    return *this;
  }
  OneKernel& positive_output(std::int64_t n) {
    output(DType::f32, n);
    fills_.back().positive = true;
    return *this;
  }
  /// The output is input number @p i.
  OneKernel& output_is_input(int i) {
    instruction_.outputs.push_back(instruction_.inputs[static_cast<std::size_t>(i)]);
    return *this;
  }

  /// Values of every output, as f32.
  using Outputs = std::vector<std::vector<float>>;
  struct Both {
    Outputs cpu, cuda;
    std::vector<DType> dtypes;
  };
  Both run(const StepContext& context = {.step = 3, .learning_rate = 0.01}, const cuda::Numerics& numerics = {}) {
    Both both;
    for (const Operand& out : instruction_.outputs) {
      both.dtypes.push_back(program_.buffers[static_cast<std::size_t>(out.buffer)].dtype);
    }
    both.cpu = on_cpu(context);
    both.cuda = on_gpu(context, numerics);
    return both;
  }
  /// On the GPU alone, where the CPU would take minutes.
  Outputs run_on_gpu() { return on_gpu({.step = 3, .learning_rate = 0.01}, {}); }
  /// What input @p i holds, as f32.
  std::vector<float> input_values(int i) const {
    const std::vector<std::byte> bytes = initial();
    return values(instruction_.inputs[static_cast<std::size_t>(i)], bytes.data());
  }

 private:
  struct Fill {
    double range = 1.0;
    int end = 0;
    bool positive = false;
    std::vector<std::byte> given{};  ///< instead of random values
  };
  struct NoInputs final : InputSource {
    void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                     std::span<std::int32_t>) override {}
    void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {}
    void load_targets(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>) override {}
  };

  int add(DType dtype, std::int64_t n, double range, int end = 0) {
    program_.buffers.push_back({.name = "b" + std::to_string(program_.buffers.size()),
                                .num_elements = n,
                                .dtype = dtype,
                                .offset_bytes = end_bytes_});
    end_bytes_ += (n * size_of(dtype) + 255) / 256 * 256;
    fills_.push_back({range, end});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  /// The operands' bytes, then @p workspace_bytes.
  std::pair<Program, Instruction> with_workspace(std::int64_t workspace_bytes) const {
    Program program = program_;
    Instruction in = instruction_;
    program.buffers.push_back(
        {.name = "workspace", .num_elements = workspace_bytes, .dtype = DType::u8, .offset_bytes = end_bytes_});
    program.arena_bytes = end_bytes_ + workspace_bytes;
    in.workspace = static_cast<int>(program.buffers.size()) - 1;
    return {std::move(program), std::move(in)};
  }

  std::vector<std::byte> initial() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(end_bytes_));
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (!fills_[b].given.empty()) {
        std::ranges::copy(fills_[b].given, bytes.begin() + buffer.offset_bytes);
        continue;
      }
      const RandomStream random{.seed = 11, .stream = b};
      for (std::int64_t i = 0; i < buffer.num_elements; ++i) {
        const double u = static_cast<double>(random.uniform(static_cast<std::uint64_t>(i)));
        std::byte* const at = bytes.data() + buffer.offset_bytes + i * size_of(buffer.dtype);
        const auto value = static_cast<float>(fills_[b].positive ? 0.5 + u : fills_[b].range * (2.0 * u - 1.0));
        const auto index = static_cast<std::int32_t>(u * fills_[b].end);
        const bf16 rounded(value);
        const auto small = static_cast<std::uint8_t>(index);
        switch (buffer.dtype) {
          case DType::f32: std::memcpy(at, &value, sizeof value); break;
          case DType::bf16: std::memcpy(at, &rounded, sizeof rounded); break;
          case DType::i32: std::memcpy(at, &index, sizeof index); break;
          case DType::u8: std::memcpy(at, &small, sizeof small); break;
        }
      }
    }
    return bytes;
  }

  std::vector<float> values(const Operand& operand, const std::byte* arena) const {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(operand.buffer)];
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(operand.num_elements));
    for (std::int64_t i = operand.begin; i < operand.begin + operand.num_elements; ++i) {
      const std::byte* const at = arena + buffer.offset_bytes + i * size_of(buffer.dtype);
      float value = 0.0F;
      bf16 half;
      switch (buffer.dtype) {
        case DType::f32: std::memcpy(&value, at, sizeof value); break;
        case DType::bf16:
          std::memcpy(&half, at, sizeof half);
          value = static_cast<float>(half);
          break;
        case DType::u8: value = static_cast<float>(std::to_integer<int>(*at)); break;
        case DType::i32: ADD_FAILURE() << "no kernel writes integers but the loaders"; break;
      }
      all.push_back(value);
    }
    return all;
  }
  Outputs outputs(const std::byte* arena) const {
    Outputs all;
    for (const Operand& out : instruction_.outputs) all.push_back(values(out, arena));
    return all;
  }

  Outputs on_cpu(const StepContext& context) {
    const auto [program, in] = with_workspace(cpu::workspaces_of({})(program_, instruction_));
    const std::size_t bytes = static_cast<std::size_t>(program.arena_bytes);
    const auto free_it = [](std::byte* p) { ::operator delete (p, std::align_val_t{256}); };
    const std::unique_ptr<std::byte, decltype(free_it)> arena(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256})), free_it);
    const std::vector<std::byte> start = initial();
    std::memcpy(arena.get(), start.data(), start.size());
    cpu::kernel_library().bind_kernel(program, Arguments(program, in, arena.get()), inputs_, seed, {})(context);
    return outputs(arena.get());
  }

  Outputs on_gpu(const StepContext& context, const cuda::Numerics& numerics) {
    const auto [program, in] = with_workspace(cuda::workspace_bytes(program_, instruction_, numerics));
    const cuda::DeviceArena arena(program.arena_bytes, cuda::ArenaMemory::device);
    std::vector<std::byte> bytes = initial();
    cuda::check(cudaMemcpy(arena.data(), bytes.data(), bytes.size(), cudaMemcpyDefault), "operands");
    cuda::check(cudaDeviceSynchronize(), "operands");
    cuda::Libraries libraries(numerics);
    const cuda::PinnedMemory out_of_range(sizeof(cuda::OutOfRange));
    *out_of_range.as<cuda::OutOfRange>() = 0;
    cuda::StepValues step_values(/*max_values=*/1, /*num_sets=*/1);
    const cuda::Stream stream;
    const cuda::BoundKernel kernel = cuda::bind_kernel(program, Arguments(program, in, arena.data()),
                                                       {.libraries = libraries,
                                                        .inputs = inputs_,
                                                        .step_values = step_values,
                                                        .seed = seed,
                                                        .out_of_range = out_of_range.as<cuda::OutOfRange>()});
    step_values.prepare(/*set=*/0, /*run_number=*/1, [&](int) { return &context; });
    step_values.copy(/*set=*/0, stream.get());
    kernel.prepare(context.step);
    kernel.queue(stream.get());
    stream.synchronize();
    EXPECT_EQ(*out_of_range.as<cuda::OutOfRange>(), 0);
    cuda::check(cudaMemcpy(bytes.data(), arena.data(), bytes.size(), cudaMemcpyDefault), "results");
    return outputs(bytes.data());
  }

  static constexpr std::uint64_t seed = 5;
  Program program_;
  Instruction instruction_;
  std::int64_t end_bytes_ = 0;
  std::vector<Fill> fills_;
  NoInputs inputs_;
};

/// ‖cuda - cpu‖₂ / ‖cpu‖₂ of each output at most @p f32 or @p bf16 by its dtype (u8: equal), and no element is off by
/// more than ten times that of the largest.
inline void expect_close(const OneKernel::Both& both, double f32, double bf16_bound) {
  ASSERT_EQ(both.cpu.size(), both.cuda.size());
  for (std::size_t o = 0; o < both.cpu.size(); ++o) {
    const auto& expected = both.cpu[o];
    const auto& actual = both.cuda[o];
    ASSERT_EQ(expected.size(), actual.size());
    if (both.dtypes[o] == DType::u8) {
      EXPECT_EQ(actual, expected) << "output " << o;
      continue;
    }
    const double bound = both.dtypes[o] == DType::f32 ? f32 : bf16_bound;
    double difference = 0.0;
    double size = 0.0;
    double largest = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
      ASSERT_TRUE(std::isfinite(d)) << "output " << o << " element " << i << ": " << actual[i] << " and "
                                    << expected[i];
      difference += d * d;
      size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
      worst = std::max(worst, std::abs(d));
    }
    EXPECT_LE(std::sqrt(difference), bound * std::sqrt(size) + 1e-30) << "output " << o;
    EXPECT_LE(worst, 10.0 * bound * largest + 1e-30) << "output " << o;
  }
}

inline void expect_equal(const OneKernel::Both& both) {
  for (std::size_t o = 0; o < both.cpu.size(); ++o) EXPECT_EQ(both.cuda[o], both.cpu[o]) << "output " << o;
}

/// By the dtype of activations.
class DeviceTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    cuda::set_environment(/*num_nccl_ranks=*/1);
    if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace strata

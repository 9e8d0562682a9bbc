/// @file
/// Speeds of one GPU, each against a limit measured in the same run: matrix products, memory-bound kernels against a
/// copy, steps of training against the products. Lines of "name value unit".
///
///   bench_cuda [section…]      all of them where none is named

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quantization.hpp"
#include "comm/engine.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"
#include "cost/kernel_work.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/environment.hpp"
#include "exec/cuda/fused_attention.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/cuda/kernels/attention.hpp"
#include "exec/cuda/kernels/elementwise.hpp"
#include "exec/cuda/kernels/norm.hpp"
#include "exec/cuda/kernels/permute.hpp"
#include "exec/cuda/kernels/quantize.hpp"
#include "exec/cuda/kernels/split_rows.hpp"
#include "exec/cuda/kernels/token.hpp"
#include "exec/cuda/matmul.hpp"
#include "exec/device/attention_choice.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "mpi/exec/training.hpp"

namespace strata {
namespace {

/// Median seconds of one of ten calls, after two.
double seconds_of(const std::function<void(cudaStream_t)>& call) {
  const cuda::Stream stream;
  cuda::Event begin(cuda::Event::Kind::timing);
  cuda::Event end(cuda::Event::Kind::timing);
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    begin.record(stream.get());
    call(stream.get());
    end.record(stream.get());
    stream.synchronize();
    if (i >= 2) seconds.push_back(static_cast<double>(end.ns_since(begin)) * 1e-9);
  }
  std::ranges::nth_element(seconds, seconds.begin() + 5);
  return seconds[5];
}

/// bf16 normals: zeros would be multiplied faster.
class Operand {
 public:
  Operand(std::int64_t n, std::uint64_t stream_number) : arena_(n * 2, cuda::ArenaMemory::device) {
    const cuda::Stream stream;
    cuda::initialize_normal(
        {.dtype = DType::bf16, .y = arena_.data(), .n = n, .random = {.seed = 1, .stream = stream_number}}, 0.0F, 1.0F,
        stream.get());
    stream.synchronize();
  }
  std::byte* data() const { return arena_.data(); }

 private:
  cuda::DeviceArena arena_;
};

/// Operations a second of the largest of a few products of bf16.
double matmul_rate(cuda::Libraries& libraries) {
  double best = 0.0;
  for (const std::int64_t n : {4096, 8192}) {
    const Operand a(n * n, 1);
    const Operand b(n * n, 2);
    const Operand d(n * n, 3);
    const cuda::DeviceArena workspace(cuda::matmul_workspace_bytes, cuda::ArenaMemory::device);
    const LinearDims dims{.tokens = n, .in = n, .out = n, .dtype = DType::bf16};
    const cuda::Matmul product(libraries,
                               {.layout = linear_forward_layout(dims),
                                .dtype = DType::bf16,
                                .out_dtype = DType::bf16,
                                .a = a.data(),
                                .b = b.data(),
                                .d = d.data()},
                               {workspace.data(), static_cast<std::size_t>(cuda::matmul_workspace_bytes)});
    const double rate =
        2.0 * static_cast<double>(n * n * n) / seconds_of([&](cudaStream_t stream) { product.run(stream); });
    fmt::print("matmul_bf16_{} {:.1f} TFLOP/s\n", n, rate * 1e-12);
    best = std::max(best, rate);
  }
  return best;
}

/// Bytes a second, read and written, of kernels that do little else.
void memory_rates() {
  const std::int64_t n = std::int64_t{1} << 28;
  const Operand x(n, 1);
  const Operand y(n, 2);
  const Operand z(n, 3);
  const auto bytes = 2.0 * static_cast<double>(n);
  const double copy = 2.0 * bytes / seconds_of([&](cudaStream_t stream) {
                        cuda::check(cudaMemcpyAsync(y.data(), x.data(), static_cast<std::size_t>(2 * n),
                                                    cudaMemcpyDeviceToDevice, stream),
                                    "copy");
                      });
  fmt::print("copy {:.1f} GB/s\n", copy * 1e-9);
  const auto report = [&](const char* name, double moved, const std::function<void(cudaStream_t)>& call) {
    const double rate = moved / seconds_of(call);
    fmt::print("{} {:.1f} GB/s, {:.3f} of the copy\n", name, rate * 1e-9, rate / copy);
  };
  report("add", 3.0 * bytes, [&](cudaStream_t s) { cuda::add(DType::bf16, x.data(), y.data(), z.data(), n, s); });
  report("gelu", 2.0 * bytes, [&](cudaStream_t s) { cuda::gelu_forward(DType::bf16, x.data(), y.data(), n, s); });
  report("swiglu", 1.5 * bytes,
         [&](cudaStream_t s) { cuda::swiglu_forward(DType::bf16, x.data(), y.data(), n / 8192, 4096, s); });
  const cuda::DeviceArena statistics(n / 4096 * 8, cuda::ArenaMemory::device);
  auto* floats = reinterpret_cast<float*>(statistics.data());
  report("rms_norm", 2.0 * bytes, [&](cudaStream_t s) {
    cuda::rms_norm_forward({.rows = n / 4096, .width = 4096, .dtype = DType::bf16}, x.data(), z.data(), y.data(),
                           floats, s);
  });
  report("layer_norm", 2.0 * bytes, [&](cudaStream_t s) {
    cuda::layer_norm_forward({.rows = n / 4096, .width = 4096, .dtype = DType::bf16}, x.data(), z.data(),
                             z.data() + 8192, y.data(), floats, s);
  });
  const cuda::Dropout tenth{.probability = 0.1F,
                            .random = reinterpret_cast<const RandomStream*>(z.data())};  // whatever stands there
  report("dropout", 2.0 * bytes, [&](cudaStream_t s) { cuda::dropout(DType::bf16, x.data(), y.data(), n, tenth, s); });
  // Quarters of rows, one after the other.
  const PermuteDims quarters{.elements = n,
                             .run = 1024,
                             .num_levels = 2,
                             .sizes = {4, n / 4096},
                             .strides = {1024, 4096},
                             .dtype = DType::bf16};
  report("permute", 2.0 * bytes, [&](cudaStream_t s) { cuda::permute(quarters, x.data(), y.data(), s); });
  report("dropout_of_runs", 2.0 * bytes,
         [&](cudaStream_t s) { cuda::dropout_of_runs(quarters, x.data(), y.data(), tenth, s); });
  for (const int bits : {8, 4}) {
    const QuantizedDims d{.elements = n, .chunk = n, .block = 256, .bits = bits, .dtype = DType::bf16};
    auto* const codes = reinterpret_cast<std::uint8_t*>(y.data());
    const double moved = bytes + static_cast<double>(quantized_bytes(n, bits, d.block));
    report(bits == 8 ? "quantize_8" : "quantize_4", moved,
           [&](cudaStream_t s) { cuda::quantize(d, 1, x.data(), codes, s); });
    report(bits == 8 ? "dequantize_8" : "dequantize_4", moved,
           [&](cudaStream_t s) { cuda::dequantize(d, 1, codes, z.data(), false, s); });
  }
  const SplitNormDims rows{.rows = n / 4096, .width = 4096, .parts = 1, .dtype = DType::bf16};
  report("norm_partial", bytes, [&](cudaStream_t s) { cuda::norm_partial(rows, x.data(), floats, s); });
  report("norm_apply", 2.0 * bytes, [&](cudaStream_t s) {
    cuda::norm_apply(rows,
                     {.x = x.data(),
                      .all = floats,
                      .weight = z.data(),
                      .bias = z.data() + 8192,
                      .y = y.data(),
                      .statistics = floats},
                     s);
  });
}

/// Attention of one layer of LLaMA-7B: cuDNN's against ours, and the products that causality leaves against @p peak.
void attention_rates(cuda::Libraries& libraries, double peak) {
  const AttentionDims d{.batch = 1,
                        .seq = 4096,
                        .num_heads = 32,
                        .num_kv_heads = 32,
                        .head_dim = 128,
                        .dtype = DType::bf16,
                        .causal = true};
  const std::int64_t n = d.batch * d.seq * d.num_heads * d.head_dim;
  const Operand qkv(3 * n, 1);
  const Operand dy(n, 2);
  const Operand y(n, 3);
  const Operand dqkv(3 * n, 4);
  const cuda::DeviceArena statistics(d.batch * d.num_heads * d.seq * size_of(DType::f32), cuda::ArenaMemory::device);
  auto* const log_sum_exp = reinterpret_cast<float*>(statistics.data());
  const std::int64_t workspace_bytes =
      std::max(cuda::cudnn_forward_workspace_bytes,
               cuda::cudnn_backward_workspace(d, libraries.numerics().deterministic).total());
  const cuda::DeviceArena workspace(workspace_bytes, cuda::ArenaMemory::device);
  const double product = static_cast<double>(d.batch * d.num_heads * d.seq * d.seq * d.head_dim);
  const auto report = [&](const char* name, double products, const std::function<void(cudaStream_t)>& cudnn,
                          const std::function<void(cudaStream_t)>& ours) {
    const double cudnn_seconds = seconds_of(cudnn);
    const double our_seconds = seconds_of(ours);
    fmt::print("{} cudnn {:.5f} s, {:.3f} of the products; strata {:.5f} s, {:.3f}; ratio {:.2f}\n", name,
               cudnn_seconds, products * product / cudnn_seconds / peak, our_seconds,
               products * product / our_seconds / peak, our_seconds / cudnn_seconds);
  };
  const auto fused = [&](cuda::AttentionPass pass) {
    return std::make_shared<const cuda::FusedAttention>(
        libraries, pass, d,
        cuda::AttentionAddresses{
            .qkv = qkv.data(), .y = y.data(), .log_sum_exp = log_sum_exp, .dy = dy.data(), .dqkv = dqkv.data()},
        std::span(workspace.data(), static_cast<std::size_t>(workspace_bytes)));
  };
  report(
      "attention_forward", 2.0,
      [call = fused(cuda::AttentionPass::forward)](cudaStream_t stream) { call->run(stream); },
      [&](cudaStream_t stream) { cuda::attention_forward(d, qkv.data(), y.data(), log_sum_exp, nullptr, stream); });
  report(
      "attention_backward", 5.0,
      [call = fused(cuda::AttentionPass::backward)](cudaStream_t stream) { call->run(stream); },
      [&](cudaStream_t stream) {
        cuda::attention_backward(
            d, {.dy = dy.data(), .qkv = qkv.data(), .y = y.data(), .log_sum_exp = log_sum_exp, .dqkv = dqkv.data()},
            nullptr, reinterpret_cast<float*>(workspace.data()), stream);
      });
}

/// A model's training on one GPU, in bf16.
class Step {
 public:
  Step(const ModelOptions& model, std::int64_t global_batch, comm::Engine& engine)
      : training_{.graph = build_model(model), .plan = {}}, engine_(engine) {
    training_.plan.global_batch = global_batch;
    training_.plan.dtypes = {DType::bf16, DType::bf16};
    training_.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1};
    plan_ = plan_of(training_, "single", 1);
    program_ = lower(plan_, training_.graph, 0, {cuda::workspaces_of({}), cuda::fusions});
  }
  const Program& program() const { return program_; }

  /// Median of five steps after three. @param events of the last one, where the options ask for timing.
  double seconds(const cuda::CudaOptions& options, std::vector<TimelineEvent>* events = nullptr) const {
    CountedInputs inputs(training_.vocabulary, training_.classes);
    cuda::CudaExecutor executor(program_, engine_, inputs, plan_.seed, options);
    executor.initialize();
    std::vector<double> seconds;
    for (int step = 0; step < 8; ++step) {
      const StepMeasurement m = run_step(executor, {.step = step, .learning_rate = 1e-4});
      if (step >= 3) seconds.push_back(m.step_seconds);
    }
    if (events != nullptr) events->assign(executor.events().begin(), executor.events().end());
    std::ranges::nth_element(seconds, seconds.begin() + 2);
    return seconds[2];
  }

 private:
  Training training_;
  Plan plan_;
  Program program_;
  comm::Engine& engine_;
};

/// As runs choose kernels.
constexpr cuda::Numerics numerics{.time_products = true};

/// The share of @p peak that a step's operations (as the Program counts them) are, what a graph gains, and where the
/// time went.
void training_rate(const std::string& name, const ModelOptions& model, std::int64_t global_batch, double peak,
                   comm::Engine& engine) {
  const Step step(model, global_batch, engine);
  std::vector<TimelineEvent> events;
  const double seconds = step.seconds({.numerics = numerics, .timing = false});  // as runs do
  const double timed = step.seconds({.numerics = numerics, .timing = true}, &events);
  const double kernels = step.seconds({.numerics = numerics, .timing = false, .graphs = cuda::GraphUse::off});
  const double named = step.seconds({.timing = false});
  const double rate = flops_per_step(step.program()) / seconds;
  fmt::print("{} {:.5f} s a step, batch {}, {:.1f} TFLOP/s, {:.3f} of the products, arena {:.1f} GiB\n", name, seconds,
             global_batch, rate * 1e-12, rate / peak, static_cast<double>(step.program().arena_bytes) / (1 << 30));
  fmt::print(
      "{} with kernels that are timed {:.3f} of that time, without a graph {:.3f}, and with the products' kernels that "
      "cuBLASLt names first {:.3f}\n",
      name, timed / seconds, kernels / seconds, named / seconds);
  std::map<std::string_view, double> by_kernel;
  for (const TimelineEvent& e : events) {
    by_kernel[kernel_signature(step.program().body[static_cast<std::size_t>(e.instruction)].kernel).name] +=
        static_cast<double>(e.end_ns - e.begin_ns) * 1e-9;
  }
  for (const auto& [kernel, spent] : by_kernel) fmt::print("{} {} {:.5f} s\n", name, kernel, spent);
}

/// An instruction by itself, on operands of its own.
class OneInstruction {
 public:
  OneInstruction(const Program& from, const Instruction& in, cuda::Libraries& libraries) {
    program_.streams = {"compute"};
    instruction_ = in;
    instruction_.stream = 0;
    instruction_.waits.clear();
    instruction_.allocs.clear();
    instruction_.frees.clear();
    std::map<std::pair<int, std::int64_t>, int> known;  // an output may be an input
    for (auto* operands : {&instruction_.inputs, &instruction_.outputs}) {
      for (strata::Operand& operand : *operands) {
        const auto [place, is_new] =
            known.try_emplace({operand.buffer, operand.begin}, static_cast<int>(program_.buffers.size()));
        if (is_new) add(operand.num_elements, from.buffers[static_cast<std::size_t>(operand.buffer)].dtype);
        operand.buffer = place->second;
        operand.begin = 0;
      }
    }
    const std::int64_t scratch = cuda::workspace_bytes(program_, instruction_, libraries.numerics());
    instruction_.workspace = static_cast<int>(program_.buffers.size());
    add(scratch, DType::u8);
    values_.emplace(end_bytes_ / 2, 1);
    kernel_ = cuda::bind_kernel(program_, Arguments(program_, instruction_, values_->data()),
                                {.libraries = libraries,
                                 .inputs = inputs_,
                                 .step_values = step_values_,
                                 .seed = 1,
                                 .out_of_range = out_of_range_.as<cuda::OutOfRange>()});
  }
  void queue(cudaStream_t stream) const { kernel_.queue(stream); }

 private:
  void add(std::int64_t n, DType dtype) {
    program_.buffers.push_back({.name = "operand", .num_elements = n, .dtype = dtype, .offset_bytes = end_bytes_});
    end_bytes_ += (n * size_of(dtype) + 255) / 256 * 256;
  }
  Program program_;
  Instruction instruction_;
  std::int64_t end_bytes_ = 0;
  CountedInputs inputs_{2, 2};
  cuda::StepValues step_values_{/*max_values=*/1, /*num_sets=*/1};
  cuda::PinnedMemory out_of_range_{sizeof(cuda::OutOfRange)};
  std::optional<Operand> values_;
  cuda::BoundKernel kernel_;
};

/// Products, convolutions and attention of a step, each shape once.
void rates_by_shape(const std::string& name, const ModelOptions& model, std::int64_t global_batch, double peak,
                    cuda::Libraries& libraries, comm::Engine& engine) {
  const Step step(model, global_batch, engine);
  std::map<std::string, std::pair<const Instruction*, int>> shapes;
  for (const Instruction& in : step.program().body) {
    if (in.is_collective() || flops(in) == 0.0) continue;
    const KernelShape shape = kernel_shape(step.program(), in);
    ++shapes.try_emplace(fmt::format("{} {}", shape.kind, fmt::join(shape.sizes, "x")), &in, 0).first->second.second;
  }
  for (const auto& [shape, use] : shapes) {
    const auto& [in, count] = use;
    try {
      const OneInstruction one(step.program(), *in, libraries);
      const double seconds = seconds_of([&](cudaStream_t stream) { one.queue(stream); });
      const double rate = flops(*in) / seconds;
      fmt::print("{} {}: {:.6f} s, {} a step, {:.1f} TFLOP/s, {:.3f} of the products\n", name, shape, seconds, count,
                 rate * 1e-12, rate / peak);
    } catch (const std::exception& e) {
      throw Unsupported(fmt::format("{} {}: {}", name, shape, e.what()));
    }
  }
}

struct Section {
  std::string name;
  std::function<void(cuda::Libraries&, comm::Engine&)> measure;
};

std::vector<Section> sections() {
  const auto step = [](const std::string& name, const ModelOptions& model, std::int64_t global_batch) {
    return Section{name, [=](cuda::Libraries& libraries, comm::Engine& engine) {
                     training_rate(name, model, global_batch, matmul_rate(libraries), engine);
                   }};
  };
  const auto shapes = [](cuda::Libraries& libraries, comm::Engine& engine) {
    const double peak = matmul_rate(libraries);
    rates_by_shape("gpt2-small", {.name = "gpt2-small", .dropout = 0.0}, 8, peak, libraries, engine);
    rates_by_shape("llama-7b", {.name = "llama-7b", .layers = 1}, 1, peak, libraries, engine);
    rates_by_shape("vgg13", {.name = "vgg13"}, 128, peak, libraries, engine);
  };
  return {{"products", [](cuda::Libraries& libraries, comm::Engine&) { matmul_rate(libraries); }},
          {"memory", [](cuda::Libraries&, comm::Engine&) { memory_rates(); }},
          {"attention",
           [](cuda::Libraries& libraries, comm::Engine&) { attention_rates(libraries, matmul_rate(libraries)); }},
          {"shapes", shapes},
          step("gpt2-small", {.name = "gpt2-small", .dropout = 0.0}, 8),
          step("llama-7b-8-layers", {.name = "llama-7b", .layers = 8}, 1),
          step("vgg13", {.name = "vgg13"}, 128)};
}

/// @param asked names of sections; none: all. @return the exit code: 1 where a section was refused, which ends that
/// one.
int run(const comm::World& world, std::span<char* const> asked) {
  const std::vector<Section> all = sections();
  for (const std::string_view name : asked) {
    if (std::ranges::any_of(all, [&](const Section& section) { return section.name == name; })) continue;
    fmt::print("no section {}; there are:", name);
    for (const Section& section : all) fmt::print(" {}", section.name);
    fmt::print("\n");
    return 2;
  }
  cuda::set_environment(/*num_nccl_ranks=*/1);
  if (cuda::num_devices() == 0) {
    fmt::print("no GPU\n");
    return 77;
  }
  fmt::print("device {}\nlibraries {}\n", cuda::device_name(), cuda::library_versions());
  cuda::Libraries libraries(numerics);
  comm::Engine engine(world, {});
  int code = 0;
  for (const Section& section : all) {
    const auto is_this = [&](const std::string_view name) { return section.name == name; };
    if (!asked.empty() && std::ranges::none_of(asked, is_this)) continue;
    try {
      section.measure(libraries, engine);
    } catch (const std::exception& e) {
      fmt::print("{} refused: {}\n", section.name, e.what());
      code = 1;
    }
  }
  return code;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  try {
    const strata::comm::Session session(argc, argv);
    const strata::comm::World world;
    return strata::run(world, std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (const std::exception& e) {
    strata::comm::abort_all(1, e.what());
  }
}

/// @file
/// ZeRO++'s quantised gathers and reductions as Programs: bytes against their formulas, what is there at a time, what
/// runs under what, and what is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "base/quantization.hpp"
#include "sim/simulate.hpp"
#include "support/refusal.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_sharding_quantized {
namespace {

using testing::HasSubstr;

constexpr int block = 32;

Plan on(int ranks_per_node, int nodes, int micro_batches) {
  Plan plan;
  plan.mesh = {.nodes = nodes, .ranks_per_node = ranks_per_node, .axes = {}};
  plan.global_batch = std::int64_t{8} * micro_batches * ranks_per_node * nodes;
  plan.schedule.micro_batches = micro_batches;
  plan.dtypes = {DType::bf16, DType::bf16};
  return plan;
}

Plan quantized(const ModelGraph& graph, const Plan& base, const char* weights, const char* gradients,
               const char* overlap = "full") {
  return planned(find_planner("zeropp"), graph, base,
                 {{"quantized_weights", std::string(weights)},
                  {"quantized_gradients", std::string(gradients)},
                  {"quantization_block", std::int64_t{block}},
                  {"overlap", std::string(overlap)}});
}

/// Σ q(⌈n/N⌉) over the tensors of the model.
std::int64_t packed_shards(const ModelGraph& graph, int ranks, int bits) {
  std::int64_t sum = 0;
  for (const Parameter& p : graph.parameters) {
    sum += quantized_bytes((p.num_elements() + ranks - 1) / ranks, bits, block);
  }
  return sum;
}

/// The same over what one forward gathers: a tied table for each of its operators.
std::int64_t packed_gathers(const ModelGraph& graph, int ranks) {
  std::int64_t sum = 0;
  for (const Operator& op : graph.operators) {
    for (const int p : op.parameters) {
      const std::int64_t n = graph.parameters[static_cast<std::size_t>(p)].num_elements();
      sum += quantized_bytes((n + ranks - 1) / ranks, 8, block);
    }
  }
  return sum;
}

/// Bytes that gathers out of second shards send.
std::int64_t sent_by_second_shards(const Program& program) {
  std::int64_t sum = 0;
  for (const Instruction& in : program.body) {
    if (in.is_collective() && in.collective == Collective::all_gather &&
        program.buffers[static_cast<std::size_t>(in.inputs[0].buffer)].dtype != DType::u8) {
      sum += bytes_sent(program, in);
    }
  }
  return sum;
}

TEST(QuantizedBytes, EqualTheFormulas) {
  for (const char* model : {"gpt-nano", "mlp-tiny"}) {
    const ModelGraph graph = build_model({.name = model});  // gpt's tensors divide by nothing much
    for (const auto& [ranks_per_node, nodes] : {std::pair{4, 2}, {3, 3}, {4, 1}, {1, 3}}) {
      for (const int m : {1, 3}) {
        for (const auto& [word, bits] : {std::pair{"int8", 8}, {"int4", 4}}) {
          const int n = ranks_per_node * nodes;
          const Plan plan = quantized(graph, on(ranks_per_node, nodes, m), "int8", word);
          const Program program = lower(plan, graph, n - 1, no_workspace);
          const BytesByCollective sent = bytes_by_collective(program);
          const std::string what =
              fmt::format("{} on {}x{}, {}, {} micro-batches", model, ranks_per_node, nodes, word, m);
          EXPECT_EQ(sent[Collective::all_gather] - sent_by_second_shards(program),
                    m * (n - 1) * packed_gathers(graph, n))
              << what;
          const int hops = (ranks_per_node - 1) * nodes + nodes - 1;
          EXPECT_EQ(sent[Collective::all_to_all], m * hops * packed_shards(graph, n, bits)) << what;
          EXPECT_EQ(sent[Collective::reduce_scatter], 0) << what;
        }
      }
    }
  }
}

/// Sec. 1 and table 1: forward moves about a half, the reduction about a quarter of 16-bit ZeRO-3's bytes, and only
/// K - 1 of R K - 1 chunks of them cross nodes.
TEST(QuantizedBytes, AreAHalfAndAQuarter) {
  const ModelGraph graph = build_model({.name = "gpt2-small"});
  const Plan base = on(4, 2, 1);
  const Program plain = lower(quantized(graph, base, "none", "none"), graph, 0, no_workspace);
  const Program small = lower(quantized(graph, base, "int8", "int4"), graph, 0, no_workspace);
  const auto forward = [](const Program& program) {
    return static_cast<double>(bytes_by_collective(program)[Collective::all_gather] - sent_by_second_shards(program));
  };
  const auto all_gathers = static_cast<double>(bytes_by_collective(plain)[Collective::all_gather]);
  const double second = static_cast<double>(sent_by_second_shards(small));
  EXPECT_NEAR(forward(small) / (all_gathers - second), 0.5 * (1 + 4.0 / block), 0.01);
  const auto reduced = static_cast<double>(bytes_by_collective(plain)[Collective::reduce_scatter]);
  // Two hops of 7 chunks' worth: 3 · 2 in the node and 1 across.
  EXPECT_NEAR(static_cast<double>(bytes_by_collective(small)[Collective::all_to_all]) / reduced,
              0.25 * (1 + 8.0 / block), 0.01);
}

TEST(QuantizedBytes, ProgramsOfAllRanksMeet) {
  for (const char* overlap : {"full", "none", "deepspeed"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const ModelGraph graph = build_model({.name = "gpt-nano"});
      Plan base = on(2, 2, 2);
      base.recompute = recompute;
      base.optimizer.clip_norm = 1.0;
      EXPECT_NO_THROW(verify(all_ranks(quantized(graph, base, "int8", "int4", overlap), graph, no_workspace)));
    }
  }
}

TEST(QuantizedBytes, BothAreOffByDefault) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const Program program = lower(planned(find_planner("zeropp"), graph, on(2, 2, 1)), graph, 0, no_workspace);
  for (const Instruction& in : program.body) {
    EXPECT_TRUE(in.kernel != Kernel::quantize && in.kernel != Kernel::dequantize) << in.name;
    EXPECT_FALSE(in.is_collective() && in.collective == Collective::all_to_all) << in.name;
  }
}

/// Buffers of packed bytes that belong to @p parameter, by what follows its name.
std::multimap<std::string, std::int64_t> packed_buffers(const Program& program, const std::string& parameter) {
  std::multimap<std::string, std::int64_t> found;
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.name.starts_with(parameter + "/")) continue;
    const std::string rest = buffer.name.substr(parameter.size());
    if (buffer.dtype == DType::u8 || rest == "/gradient_of_node") found.emplace(rest, buffer.size_bytes());
  }
  return found;
}

TEST(QuantizedMemory, BuffersAreThoseOfTheFormula) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const Program program = lower(quantized(graph, on(4, 2, 1), "int8", "int4"), graph, 0, no_workspace);
  for (const Parameter& parameter : graph.parameters) {
    const std::int64_t chunk = (parameter.num_elements() + 7) / 8;
    const std::int64_t weights = 8 * quantized_bytes(chunk, 8, block);
    const std::int64_t gradients = quantized_bytes(chunk, 4, block);
    using Sizes = std::multimap<std::string, std::int64_t>;
    EXPECT_EQ(packed_buffers(program, parameter.name), (Sizes{{"/gradient_of_node", 4 * 2 * chunk},
                                                              {"/gradient_quantized", 8 * gradients},
                                                              {"/gradient_quantized", 2 * gradients},
                                                              {"/gradient_received", 8 * gradients},
                                                              {"/gradient_received", 2 * gradients},
                                                              {"/quantized", weights}}))
        << parameter.name;
  }
}

/// What is gathered ahead is packed; it is put together when its operator runs.
TEST(QuantizedOverlap, ATransferIsUnpackedWhenItIsRead) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 8}});
  const Program program = lower(quantized(graph, on(2, 2, 1), "int8", "none"), graph, 0, no_workspace);
  std::map<std::string, std::size_t> gathered, unpacked, read;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (in.phase != Phase::forward) continue;
    if (in.is_collective()) gathered.emplace(in.name, i);
    if (in.kernel == Kernel::dequantize) unpacked.emplace(in.name, i);
    if (in.kernel == Kernel::linear_forward) read.emplace(in.name, i);
  }
  ASSERT_EQ(read.size(), 3U);
  const std::vector<std::string> layers = {"block[0].linear", "block[1].linear", "head"};
  std::string before;
  for (const auto& [name, at] : read) {
    const std::string weight = name + ".weight";
    ASSERT_TRUE(unpacked.contains(weight)) << weight;
    EXPECT_LT(unpacked.at(weight), at);
    if (!before.empty()) {
      EXPECT_LT(gathered.at(weight), read.at(before)) << "ahead";
      EXPECT_GT(unpacked.at(weight), read.at(before)) << "not before it is wanted";
    }
    before = name;
  }
}

/// A kernel that waits for a gradient's exchange comes behind the next operator that has gradients.
TEST(QuantizedOverlap, GradientsTravelUnderTheBackwardOfOthers) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 8}});
  for (const bool overlaps : {true, false}) {
    const Program program =
        lower(quantized(graph, on(2, 2, 1), "none", "int4", overlaps ? "full" : "none"), graph, 0, no_workspace);
    int between = 0;  // kernels of other operators between an exchange and the sum of what it brought
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      const Instruction& in = program.body[i];
      if (!in.is_collective() || in.collective != Collective::all_to_all) continue;
      for (std::size_t k = i + 1; k < program.body.size(); ++k) {
        if (program.body[k].kernel == Kernel::dequantize && program.body[k].inputs[0].buffer == in.outputs[0].buffer)
          break;
        between += program.body[k].phase == Phase::backward && !program.body[k].is_collective() ? 1 : 0;
      }
    }
    EXPECT_EQ(between > 0, overlaps);
  }
}

/// On a wire that is slow between nodes, fewer bytes are less time.
TEST(QuantizedOverlap, SimulatedStepsAreShorterOnASlowWire) {
  Cluster cluster;
  cluster.name = "slow";
  cluster.nodes = 2;
  cluster.devices_per_node = 2;
  cluster.peak_flops_per_second = {{"bf16", 100e12}, {"f32", 20e12}};
  cluster.memory_bandwidth_bytes_per_second = 1e12;
  cluster.intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 100e9};
  cluster.inter_node = {.latency_seconds = 1e-5, .bandwidth_bytes_per_second = 2e7};
  const std::unique_ptr<CostModel> costs = analytic_costs(cluster);
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const auto seconds = [&](const char* weights, const char* gradients) {
    const std::vector<Program> programs =
        all_ranks(quantized(graph, on(2, 2, 1), weights, gradients), graph, no_workspace);
    return simulate(unfolded(programs, 2), *costs, {.num_steps = 2}).steps[1][0].step_seconds;
  };
  const double plain = seconds("none", "none");
  const double weights = seconds("int8", "none");
  EXPECT_LT(weights, plain);
  EXPECT_LT(seconds("int8", "int4"), weights);
}

TEST(QuantizedRefusals, NameWhatWouldNotBeQuantized) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Plan all = quantized(graph, on(4, 2, 1), "int8", "int4");
  Plan plan = all;
  const Factor node{4, 1};
  plan.operators = {{.match = "*", .state = StateFactors{.p = node, .g = node, .os = node}}};
  EXPECT_THAT(
      lowering_refusal(plan, graph),
      HasSubstr("embedding: quantization.gradients = int4 with state p = 4x1 on 4x2, whose sum over the 2 ranks "
                "with the same shard is not quantised, cannot be lowered"));
  plan.quantization.gradients = "none";  // weights are gathered over any p
  EXPECT_EQ(lowering_refusal(plan, graph), "");
  plan = all;
  plan.operators.push_back({.match = "block[1].mlp.fc1", .state = StateFactors{}});
  EXPECT_THAT(lowering_refusal(plan, graph),
              HasSubstr("block[1].mlp.fc1: quantization = { weights = int8, gradients = int4 } "
                        "with state p = 1x1, of which nothing is gathered,"));
  // One replicated slice is enough, wherever it stands.
  for (const std::vector<std::string>& slices : {std::vector<std::string>{"zdp", "dp"}, {"dp", "zdp"}}) {
    plan = all;
    plan.operators.push_back({.match = "block[1].mlp.fc1", .slices = 2, .slice_state = slices});
    EXPECT_THAT(lowering_refusal(plan, graph), HasSubstr("with state p = 1x1, of which nothing is gathered,"))
        << slices[0];
  }
}

TEST(QuantizedRefusals, OneRankHasNothingThatTravels) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  EXPECT_THAT(refusal([&] { quantized(graph, on(1, 1, 1), "int8", "none"); }),
              HasSubstr("zeropp on 1 rank: quantized_weights = int8, quantized_gradients = none"));
  EXPECT_THAT(words_of<UserError>([&] {
                planned(find_planner("zeropp"), graph, on(2, 1, 1), {{"quantization_block", std::int64_t{24}}});
              }),
              HasSubstr("strategy.quantization_block = 24: accepted: multiples of 16, from 16"));
}

}  // namespace
}  // namespace strata::test_sharding_quantized

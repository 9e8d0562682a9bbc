/// @file
/// Operator splitting in Programs: bytes and memory to the byte, the order of slices, arithmetic, every rank.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "unit/lower/planned.hpp"

namespace strata::test_operator_splitting {
namespace {

constexpr int num_ranks = 4;
const Factor all{num_ranks, 1};
const StateFactors zdp{.p = all, .g = all, .os = all};

/// The second layer is a linear whose input has a gradient; every slice of 2, 3, 4, 6 and 8 divides by the ranks.
ModelGraph even_model() { return build_model({.name = "mlp", .widths = {16, 48, 96, 8}}); }
constexpr std::int64_t weight_bytes = 48 * 96 * 4;

/// A bucket a parameter, so that a collective is about one.
Plan plan_of(std::vector<OperatorRule> rules) {
  Plan plan = asked(num_ranks, num_ranks);
  plan.strategy = "osdp";
  plan.mesh.axes = {{"data", num_ranks}};
  plan.operators = std::move(rules);
  plan.overlap.bucket_bytes = 0;
  return plan;
}

/// Of the collectives named after @p parameter: its gathers and reduce-scatters, but no bucket.
std::int64_t sent_for(const Program& program, std::string_view parameter) {
  std::int64_t sum = 0;
  for (const Instruction& in : program.body) {
    if (in.is_collective() && in.name.starts_with(parameter)) sum += bytes_sent(program, in);
  }
  return sum;
}

TEST(OperatorSplitting, ZdpMovesHalfAsMuchAgainAsDpAndTwiceWithRecomputation) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const std::string name = "block[1].mlp.fc1.weight";  // recomputed: gelu reads its output again
  constexpr std::int64_t bytes = 64 * 256 * 4;
  constexpr std::int64_t dp = 2 * bytes * (num_ranks - 1) / num_ranks;
  for (const int slices : {0, 2, 3, 4, 6, 8}) {
    Plan plan = plan_of({{.match = "block[1].mlp.fc1", .state = zdp, .slices = slices}});
    EXPECT_EQ(2 * sent_for(lower(plan, graph, 0, no_workspace), name), 3 * dp) << slices;
    plan.recompute = Recompute::block;
    plan.gathered_after_recompute = "regather";
    EXPECT_EQ(sent_for(lower(plan, graph, 0, no_workspace), name), 2 * dp) << slices;
    plan.gathered_after_recompute = "keep";
    EXPECT_EQ(2 * sent_for(lower(plan, graph, 0, no_workspace), name), 3 * dp) << slices;
  }
  for (const std::vector<std::string>& modes : std::vector<std::vector<std::string>>{{"dp", "zdp"}, {"zdp", "dp"}}) {
    const Plan plan = plan_of({{.match = "block[1].mlp.fc1", .slices = 2, .slice_state = modes}});
    EXPECT_EQ(4 * sent_for(lower(plan, graph, 0, no_workspace), name), 3 * dp) << "one slice of two";
  }
}

/// The most that is gathered of the parameter at once.
std::int64_t gather_surge(const Program& program, std::string_view parameter) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  const auto change = [&](const std::vector<int>& ids, int sign) {
    for (const int id : ids) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      if (buffer.name.starts_with(parameter) && buffer.name.ends_with("/gathered")) live += sign * buffer.size_bytes();
    }
  };
  for (const Instruction& in : program.body) {
    change(in.allocs, 1);
    most = std::max(most, live);
    change(in.frees, -1);
  }
  return most;
}

TEST(OperatorSplitting, TheGatherSurgeIsOneSlice) {
  const ModelGraph graph = even_model();
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const int slices : {1, 2, 3, 4, 6, 8}) {
      Plan plan = plan_of({{.match = "block[1].linear", .state = zdp, .slices = slices}});
      plan.recompute = recompute;
      plan.gathered_after_recompute = "regather";
      EXPECT_EQ(gather_surge(lower(plan, graph, 0, no_workspace), "block[1].linear.weight"), weight_bytes / slices);
      // Ahead of time: the next slice under this one, and no more.
      plan.overlap.gather = "next_layer";
      plan.overlap.gather_backward = "next_module";
      EXPECT_EQ(gather_surge(lower(plan, graph, 0, no_workspace), "block[1].linear.weight"),
                weight_bytes / slices * std::min(2, slices))
          << slices;
    }
  }
}

TEST(OperatorSplitting, ThePeakFallsByWhatIsNotGathered) {
  // One operator dominates: its weight, gathered, and its gradient stand at the peak.
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 960, 960, 4}});
  const auto peak = [&](int slices) {
    return memory_peak(
        lower(plan_of({{.match = "block[1].linear", .state = zdp, .slices = slices}}), graph, 0, no_workspace));
  };
  const std::int64_t whole = 960 * 960 * 4;
  const MemoryPeak unsplit = peak(0);
  for (const int slices : {2, 4, 6, 8, 16}) {
    const MemoryPeak split = peak(slices);
    // The gradient of the input is there too, of the slices before; undivided, it comes after that of the weight.
    EXPECT_EQ(split.total_bytes, unsplit.total_bytes - 2 * (whole - whole / slices) + 960 * 4) << slices;
  }
}

TEST(OperatorSplitting, SlicesAreGatheredMultipliedAndReleasedOneAfterAnother) {
  const ModelGraph graph = even_model();
  const Program program =
      lower(plan_of({{.match = "block[1].linear", .slices = 4, .slice_state = {"zdp", "dp", "zdp", "sdp"}}}), graph, 0,
            no_workspace);
  std::vector<std::string> order;
  for (const Instruction& in : program.body) {
    if (in.phase != Phase::forward || !in.name.starts_with("block[1].linear")) continue;
    order.push_back(fmt::format("{} {} +{}", in.is_collective() ? "all_gather" : kernel_signature(in.kernel).name,
                                in.name.substr(in.name.rfind('/') + 1), in.attributes.integer_or("accumulate", 0)));
    if (in.kernel != Kernel::linear_forward) continue;
    const bool gathered = in.name.ends_with("[0]") || in.name.ends_with("[2]");
    EXPECT_EQ(std::ranges::count_if(in.frees,
                                    [&](int id) {
                                      return program.buffers[static_cast<std::size_t>(id)].name.ends_with(
                                          "weight/" + in.name.substr(in.name.rfind('/') + 1) + "/gathered");
                                    }),
              gathered ? 1 : 0)
        << in.name;
    EXPECT_EQ(in.inputs.size(), in.name.ends_with("[0]") ? 3U : 2U) << "the bias is added once";
  }
  EXPECT_THAT(order, testing::ElementsAre("all_gather slice[0] +0", "linear_forward slice[0] +0",
                                          "linear_forward slice[1] +1", "all_gather slice[2] +0",
                                          "linear_forward slice[2] +1", "linear_forward slice[3] +1"));
}

/// Mixed modes of every linear and of tied tables, in every schedule: what verifies, and computes no more.
TEST(OperatorSplitting, EveryModelVerifiesOnAllRanks) {
  for (const char* name : {"gpt-nano", "llama-nano", "mlp-tiny", "vgg-nano", "vit-nano"}) {
    const ModelGraph graph = build_model({.name = name});
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      for (const bool ahead : {false, true}) {
        Plan plan = plan_of({{.match = "*", .state = zdp}});
        for (const Operator& op : graph.operators) {
          if (op.kind != OperatorKind::linear && op.kind != OperatorKind::embedding) continue;
          plan.operators.push_back({.match = op.name, .slices = 3, .slice_state = {"dp", "zdp", "sdp"}});
        }
        plan.global_batch = 2 * num_ranks;
        plan.schedule.micro_batches = 2;
        plan.optimizer.clip_norm = 1.0;
        plan.recompute = recompute;
        plan.gathered_after_recompute = "regather";
        plan.overlap.gather = ahead ? "next_layer" : "none";
        plan.overlap.gather_backward = ahead ? "next_module" : "none";
        const std::vector<Program> split = all_ranks(plan, graph, some_workspace);
        verify(split);
        EXPECT_EQ(parse_program(to_text(split[1])), split[1]) << name;
        Plan whole = plan;
        std::erase_if(whole.operators, [](const OperatorRule& rule) { return rule.slices.has_value(); });
        EXPECT_DOUBLE_EQ(flops_per_step(split[0]), flops_per_step(lower(whole, graph, 0, some_workspace))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_operator_splitting

/// @file
/// What the modes that plan layouts say of a plan, against the Programs that are made of it: they lower, they meet, and
/// they move the elements that were counted.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "lower/lower.hpp"
#include "planners/layouts/layout_planning.hpp"
#include "sharded.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_layouts_as_lowered {
namespace {

using Options = std::map<std::string, OptionValue>;

/// Elements that a rank sends in a step, on average: in gathers, scatters and exchanges of activations and their
/// gradients, as panels and as blocks on a ring. Statistics of norms and losses are named after their operators alone.
double moved_by_products(const std::vector<Program>& programs) {
  std::int64_t bytes = 0;
  for (const Program& program : programs) {
    for (const Instruction& in : program.body) {
      if (in.is_collective() && in.name.find('/') != std::string::npos) bytes += bytes_sent(program, in);
    }
  }
  return static_cast<double>(bytes) / static_cast<double>(size_of(DType::f32)) / static_cast<double>(programs.size());
}

struct Case {
  const char* name;
  ModelGraph graph;
};

std::vector<Case> cases() {
  const auto transformer = [](const char* family, std::int64_t vocabulary, bool tied) {
    return build_model({.name = family,
                        .layers = 2,
                        .hidden = 64,
                        .heads = 8,
                        .ffn_hidden = 128,
                        .vocabulary = vocabulary,
                        .sequence_length = 6,
                        .tied_head = tied});
  };
  std::vector<Case> all;
  all.push_back({"gpt", transformer("gpt", 128, false)});
  all.push_back({"gpt with a tied head", transformer("gpt", 128, true)});
  // Its vocabulary is not split: embedding and head have another p0 than what stands between them.
  all.push_back({"gpt with 131 tokens", transformer("gpt", 131, false)});
  all.push_back({"llama", transformer("llama", 128, false)});
  all.push_back({"mlp", build_model({.name = "mlp", .widths = {64, 128, 64, 32, 16}})});
  all.push_back({"vgg", build_model({.name = "vgg-nano", .hidden = 64, .num_classes = 16})});
  all.push_back({"vit", build_model({.name = "vit-nano", .hidden = 64, .heads = 8, .num_classes = 16})});
  all.push_back({"resnet", build_model({.name = "resnet-nano", .num_classes = 16})});
  return all;
}

std::vector<std::pair<const char*, PartialSums>> ways() {
  return {{"autoddl", PartialSums::scatter},
          {"megatron", PartialSums::scatter},
          {"decomposed", PartialSums::scatter},
          {"summa", PartialSums::scatter},
          {"megatron", PartialSums::all_reduce}};
}

TEST(LayoutsAsLowered, MoveTheElementsThatWereCounted) {
  Cluster cluster = a800_ib();
  int lowered = 0;
  for (const Case& c : cases()) {
    for (const Factor grid : {Factor{4, 1}, Factor{2, 2}, Factor{4, 2}}) {
      for (const auto& [mode, sum] : ways()) {
        for (const std::int64_t max_p0 : {0, 2}) {
          Plan base = asked_on(grid, 1);
          base.dtypes = {DType::f32, DType::f32};
          base.global_batch = 32;
          Options options{{"cost", std::string("volume")}};
          if (std::string_view(mode) == "autoddl") options.emplace("max_p0", max_p0);
          if (std::string_view(mode) != "autoddl" && max_p0 > 0) continue;
          if (sum == PartialSums::all_reduce) options.emplace("sum", std::string(to_string(sum)));
          const MatmulAlgorithm products = std::string_view(mode) == "summa"        ? MatmulAlgorithm::summa
                                           : std::string_view(mode) == "decomposed" ? MatmulAlgorithm::ring
                                                                                    : MatmulAlgorithm::local;
          const std::string what = fmt::format("{}, {} with sum = {} on {}, at most {} copies", c.name, mode,
                                               to_string(sum), to_string(grid), max_p0);
          Plan plan;
          try {
            plan = planned(mode, c.graph, base, options, cluster);
          } catch (const Unsupported&) {
            continue;  // convolutions, or a vocabulary that is not split, have more copies than may be
          }
          std::vector<Program> programs;
          for (int rank = 0; rank < grid.total(); ++rank) programs.push_back(lower(plan, c.graph, rank, no_workspace));
          EXPECT_NO_THROW(verify(programs)) << what;
          base.strategy = mode;
          const PlanRequest request{.graph = c.graph,
                                    .cluster = cluster,
                                    .base = base,
                                    .options = {{"cost", std::string("volume")},
                                                {"zero", std::string("none")},
                                                {"stages", std::int64_t{1}},
                                                {"schedule", std::string("1f1b")}}};
          const LayoutPlanning planning(request, {}, products, sum);
          const std::vector<OperatorDecision> decisions = resolve(plan, c.graph);
          std::vector<Layout> layouts;
          for (const Layer& layer : planning.chain().layers) {
            layouts.push_back(decisions[static_cast<std::size_t>(layer.op)].layout.value());
          }
          const StepVolume volume = planning.costs().volume(planning.chain(), layouts);
          const double counted = volume.forward.total() + volume.backward.total();
          EXPECT_NEAR(moved_by_products(programs), counted, 1e-9 * counted) << what;
          ++lowered;
        }
      }
    }
  }
  EXPECT_GE(lowered, 96);
}

}  // namespace
}  // namespace strata::test_layouts_as_lowered

/// @file
/// Pipelines whose stages are laid out train what one rank trains: every pair of layouts of two stages on exact inputs
/// with ==, transformers within rounding, tied heads, accumulation, recomputation, clipping, bf16 and sharded states;
/// with a stage a place and with several.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "mpi/exec/staged_networks.hpp"
#include "planners/layouts/candidates.hpp"

namespace strata::test_staged_layouts {
namespace {

class StagedLayouts : public LaidOut {
 protected:
  /// Two stages, each of whole nodes or half of the only one.
  Mesh two_stages(int nodes) const {
    return {.nodes = nodes, .ranks_per_node = size() / nodes, .axes = {{"stage", 2}}};
  }
  static Plan in_two_stages(const Training& training, const Mesh& mesh, ScheduleKind schedule,
                            std::vector<OperatorRule> rules) {
    Plan plan = training.plan;
    plan.strategy = "laid out in stages";
    plan.mesh = mesh;
    plan.stages.count = 2;
    plan.schedule.kind = schedule;
    plan.operators = std::move(rules);
    return plan;
  }
};

constexpr std::array schedules = {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward};

TEST_F(StagedLayouts, EveryPairOfLayoutsIsEqualToOneRank) {
  const bool is_exact = 8 % size() == 0;
  for (const int nodes : {1, 2}) {
    const Mesh mesh = two_stages(nodes);
    const std::vector<Layout> layouts = all_layouts(whole_grid(mesh_of_stage(mesh)));
    for (const int micro_batches : {1, 4}) {
      const Training training = is_exact ? exact_for_layouts(micro_batches) : rounded_for_layouts(micro_batches);
      const Trained reference = alone(training);
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        for (std::size_t j = 0; j < layouts.size(); ++j) {
          if ((nodes > 1 || micro_batches > 1 || layouts.size() > 6) && (i + j) % 4 != 0) continue;
          const Layout& last = layouts[(i + 3 * j) % layouts.size()];
          // On the way products by panels, on either side of the cut.
          const MatmulAlgorithm by_panels = (i + j) / 4 % 3 == 1 ? MatmulAlgorithm::summa : MatmulAlgorithm::local;
          const Plan plan = in_two_stages(training, mesh, schedules[(i + j) / 4 % 2],
                                          {{.match = "block[0].linear", .layout = layouts[i], .algorithm = by_panels},
                                           {.match = "block[1].linear", .layout = layouts[j], .algorithm = by_panels},
                                           {.match = "head", .layout = last}});
          const Trained ours = train_plan(training, plan, world, engine);
          const std::string what = fmt::format("({}) | ({}), ({}), M = {}, {} nodes", to_string(layouts[i]),
                                               to_string(layouts[j]), to_string(last), micro_batches, nodes);
          if (!is_exact) {
            expect_same(ours, reference, what);
          } else {
            for (const auto& [parameter, values] : ours.parameters) {
              EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
            }
            EXPECT_NEAR(ours.losses.front(), reference.losses.front(), 1e-6F * reference.losses.front()) << what;
          }
          if (HasFailure()) return;
        }
      }
    }
  }
}

/// Four stages and six at two places; two layouts in turn, so that what goes around the ranks changes its layout too.
TEST_F(StagedLayouts, InterleavedStagesAreEqualToOneRank) {
  for (const int nodes : {1, 2}) {
    const Mesh mesh = two_stages(nodes);
    const std::vector<Layout> layouts = all_layouts(whole_grid(mesh_of_stage(mesh)));
    for (const int micro_batches : {2, 4}) {
      const Training training = exact_mlp(micro_batches, 6);
      const Trained reference = alone(training);
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        const Layout& other = layouts[(2 * i + 1) % layouts.size()];
        const int chunks = i % 2 == 0 ? 2 : 3;
        Plan plan = in_two_stages(training, mesh, ScheduleKind::interleaved, {{.match = "*", .layout = layouts[i]}});
        for (const char* odd : {"block[1].linear", "block[3].linear", "block[5].linear"}) {
          plan.operators.push_back({.match = odd, .layout = other});
        }
        plan.stages.count = 2 * chunks;
        const std::string what = fmt::format("({}), ({}), {} stages a place, M = {}, {} nodes", to_string(layouts[i]),
                                             to_string(other), chunks, micro_batches, nodes);
        const Trained ours = train_plan(training, plan, world, engine);
        for (const auto& [parameter, values] : ours.parameters) {
          EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
        }
        EXPECT_NEAR(ours.losses.front(), reference.losses.front(), 1e-6F * reference.losses.front()) << what;
        if (HasFailure()) return;
      }
    }
  }
}

/// What their planners make of it, with the bytes that the Program says.
TEST_F(StagedLayouts, ModesWithInterleavedStagesAreEqualToOneRank) {
  using Options = std::map<std::string, OptionValue>;
  const std::string all = fmt::format("{}x1", size() / 2);
  const std::vector<std::pair<std::string, Options>> modes = {
      {"megatron", {{"tensor", all}}},
      {"megatron",
       {{"tensor", std::string("2x1")}, {"sum", std::string("all_reduce")}, {"zero", std::string("zero1")}}},
      {"oases", {{"tensor", std::string("2x1")}}},
      {"autoddl", {{"layout", "1x1,1x1," + all}}},
      {"summa", {{"rows", std::string("2x1")}}},
  };
  RealModel model = transformer("gpt");
  model.options.layers = 4;
  Training training = real(model, 24);
  training.vocabulary = 120;
  training.steps = 2;
  training.plan.schedule.micro_batches = 2;
  const Trained reference = alone(training);
  for (const auto& [mode, options] : modes) {
    training.options = options;
    training.options["stages"] = std::int64_t{4};
    training.options["schedule"] = std::string("interleaved");
    const Plan plan = plan_of(training, mode, size());
    EXPECT_EQ(plan.schedule.kind, ScheduleKind::interleaved);
    EXPECT_EQ(axis_size(plan.mesh, "stage"), 2);
    const Trained ours = train_plan(training, plan, world, engine);
    expect_same(ours, reference, mode);
    const BytesByCollective predicted = bytes_by_collective(ours.program);
    for (int kind = 0; kind < num_collectives; ++kind) {
      EXPECT_EQ(ours.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
          << mode << ": " << to_string(static_cast<Collective>(kind));
    }
  }
}

/// Tensor ranks in stages, beside replicas where there are ranks enough: of a stage a place and of two, however they
/// sum; pairs of ranks that share weights are in one node.
TEST_F(StagedLayouts, DegreesOfAllKindsAreEqualToOneRank) {
  struct Asked {
    std::int64_t stages, chunks, tensor;
    const char* sum;
  };
  for (const bool is_tied : {false, true}) {
    RealModel model = transformer("gpt");
    model.options.layers = 4;
    model.options.tied_head = is_tied;
    Training training = real(model, 24);
    training.vocabulary = 120;
    training.steps = 2;
    training.nodes = 2;
    training.plan.schedule.micro_batches = 2;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = alone(training);
    for (const Asked& asked : {Asked{2, 1, 2, "scatter"},
                               {2, 1, 2, "all_reduce"},
                               {4, 2, 2, "scatter"},
                               {4, 2, 2, "all_reduce"},
                               {1, 1, 2, "all_reduce"},
                               {4, 2, 1, "scatter"}}) {
      training.options = {{"stages", asked.stages},
                          {"chunks", asked.chunks},
                          {"tensor", asked.tensor},
                          {"sum", std::string(asked.sum)}};
      training.plan.recompute = asked.chunks == 2 ? Recompute::block : Recompute::none;
      const Plan plan = plan_of(training, "3d", size());
      const std::string what = fmt::format("{}{}", is_tied ? "tied, " : "", plan.why.binding);
      EXPECT_EQ(plan.stages.count, asked.stages) << what;
      EXPECT_EQ(axis_size(plan.mesh, "stage"), asked.stages / asked.chunks) << what;
      const Trained ours = train_plan(training, plan, world, engine);
      expect_same(ours, reference, what);
      const BytesByCollective predicted = bytes_by_collective(ours.program);
      for (int kind = 0; kind < num_collectives; ++kind) {
        EXPECT_EQ(ours.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
            << what << ": " << to_string(static_cast<Collective>(kind));
      }
    }
  }
}

/// Degrees of Megatron, and degrees that change from layer to layer; states sharded or not; a stage a place, or two.
TEST_F(StagedLayouts, TransformersWithWhatElseAPlanDecides) {
  const Mesh mesh = two_stages(size() == 4 ? 1 : 2);
  const Mesh stage = mesh_of_stage(mesh);
  const AtomicAxes axes(stage);
  const int p = stage.num_ranks(), p0 = p / 2;
  const std::vector<TransformerDegrees> all_degrees = {{p0, 1, 2, 1, 2, 1, 2}, {1, p, p, 1, 2, p0, p}};
  for (const auto& [is_tied, chunks] : {std::pair{false, 1}, {true, 1}, {false, 2}, {true, 2}}) {
    RealModel model = transformer("gpt");
    model.options.tied_head = is_tied;
    model.options.layers = 2 * chunks;
    Training training = real(model, 24);
    training.vocabulary = 120;
    training.steps = 2;
    training.plan.schedule.micro_batches = 2;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = alone(training);
    for (std::size_t d = 0; d < all_degrees.size(); ++d) {
      std::vector<OperatorRule> rules = rules_of(axes, all_degrees[d], "gpt");
      if (is_tied) {  // the same part of the table: outputs of the head are inputs of the embedding
        const Layout& table = *rules.front().layout;
        rules.back().layout = Layout{.p0 = table.p0, .p1 = table.p2, .p2 = table.p1};
      }
      for (const bool shards : {false, true}) {
        for (OperatorRule& rule : rules) {
          if (shards && rule.match != "*") rule.state = StateFactors{.p = {}, .g = {}, .os = rule.layout->p0};
        }
        if (shards && is_tied) rules.front().state = rules.back().state;
        Plan plan = in_two_stages(training, mesh, chunks == 2 ? ScheduleKind::interleaved : schedules[d], rules);
        plan.stages.count = 2 * chunks;
        plan.recompute = shards ? Recompute::block : Recompute::none;
        if (shards) plan.optimizer.spread = "all_gather";
        const std::string what = fmt::format("{}degrees {}, {} stages a place, {}", is_tied ? "tied, " : "", d, chunks,
                                             shards ? "sharded and recomputed" : "plain");
        const Trained ours = train_plan(training, plan, world, engine);
        expect_same(ours, reference, what);
        for (std::size_t i = 0; i < reference.norms.size(); ++i) {
          EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << what;
        }
      }
    }
  }
}

TEST_F(StagedLayouts, Bf16StaysNearOneRank) {
  const Mesh mesh = two_stages(1);
  const AtomicAxes axes(mesh_of_stage(mesh));
  const int p0 = size() / 4;
  Training training = real(transformer("llama"), 24);
  training.vocabulary = 120;
  training.steps = 2;
  training.plan.schedule.micro_batches = 2;
  training.plan.dtypes = {DType::bf16, DType::bf16};
  const Trained reference = alone(training);
  const Trained ours = train_plan(training,
                                  in_two_stages(training, mesh, ScheduleKind::one_forward_one_backward,
                                                rules_of(axes, {p0, 1, 2, 1, 2, 1, 2}, "llama")),
                                  world, engine);
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(ours.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace strata::test_staged_layouts

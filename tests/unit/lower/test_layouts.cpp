/// @file
/// Tensor layouts in Programs: elements by collective against the paper's formulas for every pair of degrees, Programs
/// of all ranks that meet, classes of ranks, and refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "lower/rank_classes.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/candidates.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_layouts {
namespace {

using testing::HasSubstr;

constexpr std::int64_t batch = 24, k = 48, n = 96, num_classes = 24;

Plan plan_of(Mesh mesh, std::vector<OperatorRule> rules) {
  Plan plan;
  plan.strategy = "autoddl";
  plan.mesh = std::move(mesh);
  plan.global_batch = batch;
  plan.operators = std::move(rules);
  return plan;
}

/// Over how many ranks an exchange goes that changes p0: axes that both have keep what they do.
std::int64_t exchanging(const Factor& from, const Factor& to) {
  const auto ratio = [](int a, int b) { return a / std::gcd(a, b) * (b / std::gcd(a, b)); };
  return ratio(from.in_node, to.in_node) * ratio(from.nodes, to.nodes);
}

/// Sec. 4.4 and strategies.md: what a rank sends for the second of two linears, forward and backward, and for the
/// gradients of its weight.
TEST(Layouts, MoveWhatTheFormulasSay) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, k, n, k, num_classes}});
  for (const Mesh& mesh :
       {Mesh{.nodes = 2, .ranks_per_node = 4, .axes = {}}, Mesh{.nodes = 3, .ranks_per_node = 4, .axes = {}}}) {
    const std::int64_t p = mesh.num_ranks();
    const Layout data{{mesh.ranks_per_node, mesh.nodes}, {}, {}};
    const std::vector<Layout> layouts = all_layouts(whole_grid(mesh));
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      for (std::size_t j = 0; j < layouts.size(); ++j) {
        const Layout &first = layouts[i], &second = layouts[j];
        const Layout& before = layouts[(7 * i + 3 * j) % layouts.size()];
        const Plan plan = plan_of(mesh, {{.match = "*", .layout = data},
                                         {.match = "block[0].linear", .layout = before},
                                         {.match = "block[1].linear", .layout = first},
                                         {.match = "block[2].linear", .layout = second}});
        const Program program = lower(plan, graph, 0, no_workspace);
        std::map<Collective, std::int64_t> sent;  // between the two linears
        for (const Instruction& in : program.body) {
          if (!in.is_collective()) continue;
          if (in.name.starts_with("block[1].relu/") || in.name.starts_with("block[1].linear/")) {
            sent[in.collective] += bytes_sent(program, in) / 4;
          }
        }
        const std::int64_t p0 = first.p0.total(), p1 = first.p1.total(), p2 = first.p2.total();
        const std::int64_t q0 = second.p0.total(), q1 = second.p1.total(), q2 = second.p2.total();
        const std::int64_t reduced = batch * n / (p0 * p1) * (p2 - 1) / p2;
        const std::int64_t gathered = batch * n / (q0 * q2) * (q1 - 1) / q1;
        const bool is_spared = first.p0 == second.p0 || first.p1 == second.p2;
        const std::int64_t q = exchanging(first.p0, second.p0);
        const std::string what = fmt::format("{} ranks, ({}), ({})", p, to_string(first), to_string(second));
        // Backward turns gathers into scatters.
        EXPECT_EQ(sent[Collective::reduce_scatter], reduced + gathered) << what;
        EXPECT_EQ(sent[Collective::all_gather], reduced + gathered) << what;
        EXPECT_EQ(sent[Collective::all_to_all], is_spared ? 0 : 2 * (q - 1) * batch * n / p / q) << what;
      }
    }
  }
}

/// What is carried past a block is where the block leaves its output: an embedding with a p0 of its own costs an
/// exchange for the first norm's reader and one for the first addition, however many blocks there are.
TEST(Layouts, AdditionsAreWhereTheLaterOfTheTwoIs) {
  const Mesh mesh{.nodes = 1, .ranks_per_node = 4, .axes = {}};
  for (const std::int64_t layers : {1, 3}) {
    const ModelGraph graph = build_model({.name = "gpt",
                                          .layers = layers,
                                          .hidden = 32,
                                          .heads = 4,
                                          .vocabulary = 64,
                                          .sequence_length = 8,
                                          .tied_head = false});
    const Plan plan = plan_of(mesh, {{.match = "*", .layout = Layout{{4, 1}, {}, {}}},
                                     {.match = "embedding", .layout = Layout{{}, {4, 1}, {}}}});
    std::int64_t sent = 0;
    const Program program = lower(plan, graph, 0, no_workspace);
    for (const Instruction& in : program.body) {
      if (in.is_collective() && in.collective == Collective::all_to_all) sent += bytes_sent(program, in) / 4;
    }
    EXPECT_EQ(sent, 2 * 2 * 3 * batch * 8 * 32 / 4 / 4) << layers << " blocks";  // forward and backward, (q-1)/q · mk/p
  }
}

/// 2 (p0 - 1) / p0 · kn / (p1 p2) elements a weight, and nothing where p0 = 1.
TEST(Layouts, SumWeightGradientsOverTheRanksWithTheSamePart) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, k, num_classes}});
  const std::vector<std::int64_t> widths = {k, n, k, num_classes};
  const Mesh mesh{.nodes = 2, .ranks_per_node = 4, .axes = {}};
  for (const Layout& layout : all_layouts(whole_grid(mesh))) {
    Plan plan = plan_of(mesh, {{.match = "*", .layout = layout}});
    plan.overlap.bucket_bytes = 0;  // a bucket a parameter
    const Program program = lower(plan, graph, 0, no_workspace);
    const int p0 = layout.p0.total(), p1 = layout.p1.total(), p2 = layout.p2.total();
    std::int64_t expected = 0;
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      expected += elements_sent(Collective::all_reduce, widths[l] * widths[l + 1] / (p1 * p2), p0, 0);
      expected += elements_sent(Collective::all_reduce, widths[l + 1] / p1, p0, 0);  // the bias
    }
    EXPECT_EQ(bytes_by_collective(program)[Collective::all_reduce], 4 * expected) << to_string(layout);
    EXPECT_EQ(memory_peak(program).bytes[static_cast<int>(Category::parameter)] % 4, 0);
  }
}

TEST(Layouts, ProgramsOfAllRanksMeet) {
  const ModelGraph graph = build_model(
      {.name = "gpt", .layers = 2, .hidden = 48, .heads = 12, .vocabulary = 120, .sequence_length = 6, .dropout = 0.1});
  const Mesh mesh{.nodes = 2, .ranks_per_node = 2, .axes = {}};
  for (const Layout& attention : all_layouts(whole_grid(mesh))) {
    for (const Layout& mlp : all_layouts(whole_grid(mesh))) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Plan plan = plan_of(mesh, {{.match = "*", .layout = attention}, {.match = "*mlp*", .layout = mlp}});
        plan.recompute = recompute;
        plan.schedule.micro_batches = 2;
        const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
        EXPECT_NO_THROW(verify(programs));
        // Ranks of one class have Programs of equal length and bytes.
        const RankClasses classes = rank_classes(plan, graph);
        for (std::size_t r = 0; r < programs.size(); ++r) {
          const int c = classes.class_of_rank[r];
          const Program& other =
              programs[static_cast<std::size_t>(classes.representatives[static_cast<std::size_t>(c)])];
          EXPECT_EQ(programs[r].body.size(), other.body.size());
          EXPECT_EQ(programs[r].arena_bytes, other.arena_bytes);
          // Chunks of what the ranks do not divide, a bias say, differ by an element.
          EXPECT_NEAR(static_cast<double>(bytes_by_collective(programs[r]).total()),
                      static_cast<double>(bytes_by_collective(other).total()), 64.0);
        }
      }
    }
  }
}

/// Equal factors are other ranks' where parameters have copies on others: groups have names of their own.
TEST(Layouts, StatesAreSharedByPairsOfDifferentCopies) {
  const ModelGraph graph =
      build_model({.name = "gpt", .layers = 2, .hidden = 48, .heads = 12, .vocabulary = 120, .sequence_length = 6});
  const Mesh mesh{.nodes = 2, .ranks_per_node = 4, .axes = {}};
  const StateFactors by_pairs{.p = {}, .g = {}, .os = {2, 1}};
  int num_plans = 0;
  for (const Layout& attention : all_layouts(whole_grid(mesh))) {
    for (const Layout& mlp : all_layouts(whole_grid(mesh))) {
      if (attention.p0.in_node % 2 != 0 || mlp.p0.in_node % 2 != 0 || attention == mlp) continue;
      const Plan plan =
          plan_of(mesh, {{.match = "*", .state = by_pairs, .layout = attention}, {.match = "*mlp*", .layout = mlp}});
      std::vector<Program> programs;
      EXPECT_NO_THROW(programs = all_ranks(plan, graph, no_workspace)) << to_string(attention) << to_string(mlp);
      EXPECT_NO_THROW(verify(programs)) << to_string(attention) << ", " << to_string(mlp);
      ++num_plans;
    }
  }
  EXPECT_GT(num_plans, 20);
}

/// 7 features over two ranks are 4 and 3, and of 3 biases two ranks update 2 and 1.
TEST(Layouts, RanksThatUpdateUnequalShardsOfUnequalPartsAreToldApart) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 7, 4}});
  constexpr Factor one{}, two{2, 1};
  const Plan plan =
      plan_of({.nodes = 1, .ranks_per_node = 4, .axes = {}},
              {{.match = "*", .state = StateFactors{.p = one, .g = one, .os = two}, .layout = Layout{two, two, one}},
               {.match = "head", .layout = Layout{two, one, two}}});
  const auto updated = [](const Program& program) {
    std::vector<std::int64_t> elements;
    for (const Instruction& in : program.body) {
      if (in.phase == Phase::update && !in.is_collective()) elements.push_back(in.outputs.front().num_elements);
    }
    return elements;
  };
  const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
  const RankClasses classes = rank_classes(plan, graph);
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const int first = classes.representatives[static_cast<std::size_t>(classes.class_of_rank[r])];
    EXPECT_EQ(updated(programs[r]), updated(programs[static_cast<std::size_t>(first)])) << "rank " << r;
  }
  EXPECT_EQ(classes.representatives.size(), 4U);
}

TEST(Layouts, ProgramsOfAllStagesMeet) {
  for (const bool is_tied : {false, true}) {
    const ModelGraph graph = build_model({.name = "gpt",
                                          .layers = 6,
                                          .hidden = 48,
                                          .heads = 12,
                                          .vocabulary = 120,
                                          .sequence_length = 6,
                                          .dropout = 0.1,
                                          .tied_head = is_tied});
    // Stages of whole nodes, and of parts of one.
    for (const auto& [nodes, stages] : {std::pair{4, 2}, {2, 2}, {1, 2}, {1, 3}}) {
      const Mesh mesh{.nodes = nodes, .ranks_per_node = nodes == 1 ? 12 : 2, .axes = {{"stage", stages}}};
      const Mesh stage = mesh_of_stage(mesh);
      EXPECT_EQ(stage.num_ranks() * stages, mesh.num_ranks());
      for (const Layout& layout : all_layouts(whole_grid(stage))) {
        const Layout turned{.p0 = layout.p0, .p1 = layout.p2, .p2 = layout.p1};
        for (const ScheduleKind schedule :
             {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved}) {
          Plan plan = plan_of(mesh, {{.match = "*", .layout = layout}, {.match = "head", .layout = turned}});
          plan.stages.count = schedule == ScheduleKind::interleaved ? 2 * stages : stages;
          plan.schedule = {.kind = schedule, .micro_batches = stages};
          EXPECT_NO_THROW(verify(all_ranks(plan, graph, no_workspace))) << to_string(layout);
          // What tells ranks apart is their stage.
          const RankClasses classes = rank_classes(plan, graph);
          EXPECT_EQ(classes.representatives.size(), static_cast<std::size_t>(stages)) << to_string(layout);
          if (layout.p0.total() != 2) continue;
          // Nor do states tell them apart of which two ranks hold half each.
          for (OperatorRule& rule : plan.operators) rule.state = StateFactors{.p = {}, .g = {}, .os = layout.p0};
          EXPECT_EQ(rank_classes(plan, graph).representatives.size(), static_cast<std::size_t>(stages))
              << to_string(layout);
        }
      }
    }
  }
}

/// Of 121 words two ranks hold 61 and 60, and every layer has two copies that share their states.
TEST(Layouts, RanksOfSeveralStagesAreAsManyClassesAsThoseOfOne) {
  const ModelGraph graph =
      build_model({.name = "gpt", .layers = 6, .hidden = 48, .heads = 12, .vocabulary = 121, .sequence_length = 6});
  constexpr Factor one{}, copies{2, 1}, parts{1, 2};
  const StateFactors shared{.p = one, .g = one, .os = copies};
  const auto classes_of = [&](ScheduleKind schedule, int num_stages) {
    Plan plan = plan_of({.nodes = 4, .ranks_per_node = 2, .axes = {{"stage", 2}}},
                        {{.match = "*", .state = shared, .layout = Layout{copies, parts, one}},
                         {.match = "embedding", .layout = Layout{copies, one, parts}}});
    plan.stages.count = num_stages;
    plan.schedule = {.kind = schedule, .micro_batches = 2};
    return rank_classes(plan, graph).representatives.size();
  };
  const std::size_t of_one = classes_of(ScheduleKind::one_forward_one_backward, 2);
  EXPECT_EQ(of_one, 4U) << "by stage, ranks with more words and ranks with fewer";
  EXPECT_EQ(classes_of(ScheduleKind::interleaved, 4), of_one);
}

/// What a rank sends in a step, but for collectives whose ranks do not divide the tensor and have no pieces of it said:
/// whose chunk is shorter than others there is not told by classes.
std::int64_t bytes_in_equal_chunks(const Program& program) {
  std::int64_t bytes = 0;
  for (const Instruction& in : program.body) {
    if (!in.is_collective()) continue;
    const auto num_ranks = std::ssize(program.groups[static_cast<std::size_t>(in.group)].ranks);
    if (in.pieces.empty() && full_operand(in).num_elements % num_ranks != 0) continue;
    bytes += bytes_sent(program, in);
  }
  return bytes;
}

std::vector<std::int64_t> all_priced_bytes(const Program& program) {
  std::vector<std::int64_t> bytes;
  for (const Instruction& in : program.body) {
    if (in.is_collective()) bytes.push_back(priced_bytes(program, in));
  }
  return bytes;
}

/// Nothing divides: 5 heads, 31 words, 45 and 50 features, 7 samples.
TEST(Layouts, ProgramsOfUnequalPartsMeet) {
  for (const bool is_tied : {false, true}) {
    const ModelGraph graph = build_model({.name = "gpt",
                                          .layers = 2,
                                          .hidden = 45,
                                          .heads = 5,
                                          .ffn_hidden = 50,
                                          .vocabulary = 31,
                                          .sequence_length = 6,
                                          .dropout = 0.1,
                                          .tied_head = is_tied});
    for (const auto& [nodes, ranks_per_node] : {std::pair{1, 2}, {1, 3}, {2, 2}, {2, 3}, {2, 4}}) {
      const Mesh mesh{.nodes = nodes, .ranks_per_node = ranks_per_node, .axes = {}};
      for (const Layout& layout : all_layouts(whole_grid(mesh))) {
        const Layout turned{.p0 = layout.p0, .p1 = layout.p2, .p2 = layout.p1};
        Plan plan = plan_of(mesh, {{.match = "*", .layout = layout}, {.match = "head", .layout = turned}});
        plan.global_batch = 7;
        const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
        EXPECT_NO_THROW(verify(programs)) << to_string(layout);
        for (const Program& program : programs) EXPECT_EQ(parse_program(to_text(program)), program);
        // Ranks of a class do the same.
        const RankClasses classes = rank_classes(plan, graph);
        for (std::size_t r = 0; r < programs.size(); ++r) {
          const auto first =
              static_cast<std::size_t>(classes.representatives[static_cast<std::size_t>(classes.class_of_rank[r])]);
          EXPECT_EQ(programs[r].body.size(), programs[first].body.size()) << to_string(layout);
          EXPECT_EQ(programs[r].arena_bytes, programs[first].arena_bytes) << to_string(layout);
          EXPECT_EQ(bytes_in_equal_chunks(programs[r]), bytes_in_equal_chunks(programs[first])) << to_string(layout);
          EXPECT_EQ(all_priced_bytes(programs[r]), all_priced_bytes(programs[first])) << to_string(layout);
        }
        std::int64_t of_fullest = 0;
        for (const int rank : fullest_ranks(plan, graph)) {
          of_fullest = std::max(of_fullest, programs[static_cast<std::size_t>(rank)].arena_bytes);
        }
        EXPECT_EQ(of_fullest, std::ranges::max(programs, {}, &Program::arena_bytes).arena_bytes) << to_string(layout);
      }
    }
  }
}

TEST(LayoutRefusals, NameTheOperatorAndTheNumbers) {
  const Mesh mesh{.nodes = 1, .ranks_per_node = 4, .axes = {}};
  const Layout columns{{}, {4, 1}, {}};
  Plan plan = plan_of(mesh, {{.match = "*", .layout = columns}});
  EXPECT_THAT(lowering_refusal(plan, build_model({.name = "vgg-nano"})),
              HasSubstr("of a convolution, which is data parallel,"));
  const ModelGraph tied = build_model({.name = "gpt",
                                       .layers = 1,
                                       .hidden = 16,
                                       .heads = 4,
                                       .vocabulary = 32,
                                       .sequence_length = 4,
                                       .tied_head = true});
  EXPECT_THAT(lowering_refusal(plan, tied),
              HasSubstr("head: layout p0 = 1x1, p1 = 4x1, p2 = 1x1 beside embedding, which has "
                        "another part of the same weight (it takes p0 = 1x1, p1 = 1x1, p2 = 4x1)"));
  plan.operators.push_back({.match = "head", .layout = Layout{{}, {}, {4, 1}}});
  EXPECT_EQ(lowering_refusal(plan, tied), "");
  plan.quantization = {.weights = "int8"};
  EXPECT_THAT(lowering_refusal(plan, tied), HasSubstr("quantization with tensor layouts cannot be lowered"));
}

}  // namespace
}  // namespace strata::test_layouts

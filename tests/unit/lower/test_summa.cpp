/// @file
/// SUMMA in Programs: how many panels there are, what they move and how many of them are held at once, on every grid;
/// Programs of all ranks that meet; refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "lower/rank_classes.hpp"
#include "planners/layouts/candidates.hpp"
#include "planners/layouts/volume.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_summa {
namespace {

using testing::HasSubstr;

constexpr std::int64_t batch = 48, k = 96, n = 144, num_classes = 48;

std::vector<Mesh> meshes() {
  return {{.nodes = 2, .ranks_per_node = 4, .axes = {}}, {.nodes = 3, .ranks_per_node = 4, .axes = {}}};
}

/// Rows p0 × replicas p1 × columns p2, for every linear.
Plan summa_plan(const Mesh& mesh, const Layout& grid) {
  Plan plan;
  plan.strategy = "summa";
  plan.mesh = mesh;
  plan.global_batch = batch;
  plan.overlap.bucket_bytes = 0;  // a bucket a parameter
  plan.operators = {{.match = "*", .layout = grid, .algorithm = MatmulAlgorithm::summa}};
  return plan;
}

struct Grid {
  Mesh mesh;
  Layout layout;
  int rows = 1, replicas = 1, columns = 1;
  std::string in_words;
};
std::vector<Grid> all_grids() {
  std::vector<Grid> all;
  for (const Mesh& mesh : meshes()) {
    for (const Layout& layout : all_layouts({mesh.ranks_per_node, mesh.nodes})) {
      all.push_back({mesh, layout, layout.p0.total(), layout.p1.total(), layout.p2.total(),
                     fmt::format("{} ranks, rows {} replicas {} columns {}", mesh.num_ranks(), to_string(layout.p0),
                                 to_string(layout.p1), to_string(layout.p2))});
    }
  }
  return all;
}

TEST(Summa, CutsTheSummedDimIntoLeastCommonMultiplePanels) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, num_classes}});
  for (const Grid& grid : all_grids()) {
    const Program program = lower(summa_plan(grid.mesh, grid.layout), graph, 0, no_workspace);
    const int panels = std::lcm(grid.rows, grid.columns);
    std::map<Kernel, int> kernels;
    for (const Instruction& in : program.body) {
      if (in.name != "block[0].linear" || in.is_collective()) continue;
      ++kernels[in.kernel];
      if (in.kernel == Kernel::linear_forward) {
        EXPECT_EQ(in.attributes.integer("in"), k / panels) << grid.in_words;
        EXPECT_EQ(in.attributes.integer("out"), n / grid.columns) << grid.in_words;
        EXPECT_EQ(in.attributes.integer("rows"), batch / (grid.rows * grid.replicas)) << grid.in_words;
      }
    }
    EXPECT_EQ(kernels[Kernel::linear_forward], panels) << grid.in_words;
    EXPECT_EQ(kernels[Kernel::linear_backward_weight], panels) << grid.in_words;
    EXPECT_EQ(kernels[Kernel::linear_backward_input], 0) << grid.in_words;  // it reads data
  }
}

/// What all ranks send for the head: forward each part of inputs goes to the other columns and each of weights to the
/// other rows; backward both again, and their gradients the other way.
TEST(Summa, MovesWhatTheFormulasSay) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, num_classes}});
  for (const Grid& grid : all_grids()) {
    std::map<std::string, std::int64_t> sent;  // elements, over all ranks
    for (const Program& program : all_ranks(summa_plan(grid.mesh, grid.layout), graph, no_workspace)) {
      for (const Instruction& in : program.body) {
        if (in.is_collective() && in.name.starts_with("head")) {
          sent[fmt::format("{} {}", to_string(in.collective), in.name)] += bytes_sent(program, in) / 4;
        }
      }
    }
    const std::int64_t inputs = batch * n * (grid.columns - 1);
    const std::int64_t weights = n * num_classes * (grid.rows - 1) * grid.replicas;
    EXPECT_EQ(sent["broadcast head/inputs"], 2 * inputs) << grid.in_words;
    EXPECT_EQ(sent["broadcast head/weights"], 2 * weights) << grid.in_words;
    EXPECT_EQ(sent["reduce head/input_gradient"], inputs) << grid.in_words;
    EXPECT_EQ(sent["reduce head/weight_gradient"], weights) << grid.in_words;
  }
}

/// Elements of the buffers of @p name in @p program that live at once, at most.
std::int64_t most_alive(const Program& program, std::string_view name) {
  std::int64_t alive = 0, most = 0;
  const auto elements = [&](int id) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    const bool is_sent = buffer.category == Category::communication && buffer.name.starts_with(name);
    return is_sent ? buffer.num_elements : 0;
  };
  for (const Instruction& in : program.body) {
    for (const int id : in.allocs) alive += elements(id);
    most = std::max(most, alive);
    for (const int id : in.frees) alive -= elements(id);
  }
  return most;
}

/// Of matrices nothing is held twice but by replicas. Of what others hold two panels; packed copies where one rank
/// sends several, and gradients beside their places there or where they are added to.
TEST(Summa, HoldsItsPartAndTwoPanels) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, num_classes}});
  for (const Grid& grid : all_grids()) {
    for (const int micro_batches : {1, 2}) {
      Plan plan = summa_plan(grid.mesh, grid.layout);
      plan.global_batch = batch * micro_batches;
      plan.schedule.micro_batches = micro_batches;
      const Program program = lower(plan, graph, 0, no_workspace);
      std::int64_t held = 0;
      for (const Buffer& buffer : program.buffers) {
        if (buffer.category == Category::parameter) held += buffer.num_elements;
      }
      const std::int64_t matrices = (k * n + n * num_classes) / (grid.rows * grid.columns);
      EXPECT_EQ(held, matrices + (n + num_classes) / grid.columns) << grid.in_words;

      // Two of an operand and two of its gradient; of few panels in all some are gone before the last has come.
      const std::int64_t panels = std::lcm(grid.rows, grid.columns);
      const std::int64_t of_inputs = std::min<std::int64_t>(4, panels + 1),
                         of_weights = std::min<std::int64_t>(4, panels);
      const std::int64_t inputs = batch / (grid.rows * grid.replicas) * n, weights = n * num_classes / grid.columns;
      std::int64_t expected = 0;
      if (grid.columns > 1) expected += of_inputs * inputs / panels;
      if (grid.rows > 1) expected += of_weights * weights / panels;
      if (panels > grid.columns) expected += 2 * inputs / grid.columns;
      if (panels > grid.rows) {
        expected += 2 * weights / grid.rows;
      } else if (micro_batches > 1) {
        expected += weights / grid.rows;
      }
      EXPECT_EQ(most_alive(program, "head/"), expected) << grid.in_words << ", M = " << micro_batches;
    }
  }
}

/// Of matrices over the replicas, of biases over all that hold them.
TEST(Summa, SumsWeightGradientsOverReplicas) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, num_classes}});
  for (const Grid& grid : all_grids()) {
    const Program program = lower(summa_plan(grid.mesh, grid.layout), graph, 0, no_workspace);
    const int holders = grid.rows * grid.replicas;
    std::int64_t expected = 0;
    for (const auto& [in, out] : {std::pair{k, n}, {n, num_classes}}) {
      const std::int64_t matrix = in * out / (grid.rows * grid.columns);
      expected += elements_sent(Collective::all_reduce, matrix, grid.replicas, 0);
      expected += elements_sent(Collective::all_reduce, out / grid.columns, holders, 0);
    }
    EXPECT_EQ(bytes_by_collective(program)[Collective::all_reduce], 4 * expected) << grid.in_words;
    const SummaGradientVolume counted = summa_gradient_volume(
        {.m = batch, .k = k, .n = n, .weights = static_cast<double>(k * n + n), .matrix = static_cast<double>(k * n)},
        grid.layout);
    EXPECT_DOUBLE_EQ(counted.matrix, 2.0 * (grid.replicas - 1) / grid.replicas * k * n / (grid.rows * grid.columns));
    EXPECT_DOUBLE_EQ(counted.others, 2.0 * (holders - 1) / holders * n / grid.columns);
  }
}

TEST(Summa, ProgramsOfAllRanksMeetAndAreOneClass) {
  for (const bool is_tied : {false, true}) {
    const ModelGraph graph = build_model({.name = "gpt",
                                          .layers = 2,
                                          .hidden = 48,
                                          .heads = 12,
                                          .vocabulary = 120,
                                          .sequence_length = 6,
                                          .dropout = 0.1,
                                          .tied_head = is_tied});
    for (const Grid& grid : all_grids()) {
      if (12 % grid.columns != 0) continue;  // heads
      Plan plan = summa_plan(grid.mesh, grid.layout);
      const Layout& g = grid.layout;
      plan.operators.insert(plan.operators.begin() + 1,
                            {.match = "embedding",
                             .layout = is_tied ? Layout{g.p1, g.p0, g.p2} : Layout{g.p1, g.p2, g.p0},
                             .algorithm = MatmulAlgorithm::local});
      plan.schedule.micro_batches = 2;
      plan.recompute = Recompute::block;
      const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
      EXPECT_NO_THROW(verify(programs)) << grid.in_words;
      EXPECT_EQ(rank_classes(plan, graph).representatives.size(), 1U) << grid.in_words;
      for (const Program& program : programs) {
        EXPECT_EQ(program.body.size(), programs.front().body.size()) << grid.in_words;
        EXPECT_EQ(program.arena_bytes, programs.front().arena_bytes) << grid.in_words;
        EXPECT_NEAR(static_cast<double>(bytes_by_collective(program).total()),
                    static_cast<double>(bytes_by_collective(programs.front()).total()), 64.0)
            << grid.in_words;
      }
    }
  }
}

/// Of instruction @p from, whether it waits for @p to, at once or through what it waits for on other streams and what
/// stands before that on the same one.
bool comes_behind(const Program& program, int from, int to) {
  std::vector<int> open = {from};
  std::vector<bool> seen(program.body.size());
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    if (i == to) return true;
    if (i < to || seen[static_cast<std::size_t>(i)]) continue;
    seen[static_cast<std::size_t>(i)] = true;
    const Instruction& in = program.body[static_cast<std::size_t>(i)];
    for (const Wait& wait : in.waits) {
      if (wait.lag == 0) open.push_back(wait.instruction);
    }
    for (int before = i - 1; before >= 0; --before) {
      if (program.body[static_cast<std::size_t>(before)].stream != in.stream) continue;
      open.push_back(before);
      break;
    }
  }
  return false;
}

/// Pairs of a kernel of the head and a message of its panels of which neither waits for the other.
int pairs_at_once(const Program& program) {
  int pairs = 0;
  for (int a = 0; a < static_cast<int>(program.body.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(program.body.size()); ++b) {
      const Instruction &first = program.body[static_cast<std::size_t>(a)],
                        &second = program.body[static_cast<std::size_t>(b)];
      const Instruction& message = first.is_collective() ? first : second;
      const Instruction& kernel = first.is_collective() ? second : first;
      if (kernel.is_collective() || kernel.name != "head" || !message.name.starts_with("head/")) continue;
      pairs += comes_behind(program, b, a) ? 0 : 1;
    }
  }
  return pairs;
}

TEST(Summa, ComputesOrCommunicatesWherePanelsAreNotAhead) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {k, n, num_classes}});
  for (const Grid& grid : all_grids()) {
    if (grid.rows * grid.columns == 1) continue;
    Plan plan = summa_plan(grid.mesh, grid.layout);
    const Program ahead = lower(plan, graph, 0, no_workspace);
    plan.overlap.panels = "none";
    const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
    EXPECT_NO_THROW(verify(programs)) << grid.in_words;
    const Program& blocking = programs.front();
    EXPECT_EQ(blocking.body.size(), ahead.body.size()) << grid.in_words;
    EXPECT_EQ(bytes_by_collective(blocking).total(), bytes_by_collective(ahead).total()) << grid.in_words;
    EXPECT_GT(pairs_at_once(ahead), 0) << grid.in_words;
    EXPECT_EQ(pairs_at_once(blocking), 0) << grid.in_words;
  }
}

TEST(SummaRefusals, NameTheOperatorAndTheNumbers) {
  const Mesh mesh{.nodes = 1, .ranks_per_node = 4, .axes = {}};
  const Layout square{{2, 1}, {}, {2, 1}};
  const ModelGraph mlp = build_model({.name = "mlp", .widths = {8, 10, 5}});
  EXPECT_THAT(lowering_refusal(summa_plan(mesh, square), build_model({.name = "gpt-nano"})),
              HasSubstr("embedding: algorithm = summa of an operator of kind embedding cannot be lowered"));
  Plan plan = summa_plan(mesh, square);
  plan.operators = {{.match = "*", .algorithm = MatmulAlgorithm::summa}};
  plan.mesh.axes = {{"data", 4}};
  EXPECT_THAT(lowering_refusal(plan, mlp), HasSubstr("algorithm = summa on a mesh with axes"));
}

}  // namespace
}  // namespace strata::test_summa

/// @file
/// Products by blocks on a ring in Programs: how many steps there are, what goes round and how much of it is held at
/// once, whatever the ring; Programs of all ranks that meet; what is hidden; refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "cost/cost_model.hpp"
#include "lower/rank_classes.hpp"
#include "sim/simulate.hpp"
#include "support/deep.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_ring_products {
namespace {

using testing::HasSubstr;

constexpr std::int64_t batch = 48, pixels = 24, k = 96, n = 144, num_classes = 48;

struct Ring {
  Mesh mesh;
  Factor tensor;
  int directions = 1;
  int ranks() const { return tensor.total(); }
  /// Of two ranks each is on both sides of the other: one direction is all that there is.
  int ways() const { return ranks() > 2 ? directions : 1; }
  std::string in_words() const {
    return fmt::format("{} of {} x {} ranks, directions = {}", to_string(tensor), mesh.ranks_per_node, mesh.nodes,
                       directions);
  }
};

std::vector<Ring> all_rings() {
  const Mesh one{.nodes = 1, .ranks_per_node = 4, .axes = {}}, two{.nodes = 2, .ranks_per_node = 4, .axes = {}},
      three{.nodes = 3, .ranks_per_node = 4, .axes = {}};
  std::vector<Ring> rings;
  for (const int directions : {1, 2}) {
    for (const auto& [mesh, tensor] : std::vector<std::pair<Mesh, Factor>>{{one, {2, 1}},
                                                                           {one, {4, 1}},
                                                                           {two, {4, 1}},
                                                                           {two, {4, 2}},
                                                                           {two, {1, 2}},
                                                                           {two, {2, 2}},
                                                                           {three, {1, 3}},
                                                                           {three, {4, 3}},
                                                                           {three, {2, 3}}}) {
      rings.push_back({mesh, tensor, directions});
    }
  }
  return rings;
}

Factor beside(const Ring& ring) {
  return {ring.mesh.ranks_per_node / ring.tensor.in_node, ring.mesh.nodes / ring.tensor.nodes};
}

/// Layers of an mlp: the first reads data, the second is cut by columns, the head by rows.
Plan plan_of(const Ring& ring, MatmulAlgorithm algorithm = MatmulAlgorithm::ring) {
  Plan plan;
  plan.strategy = "decomposed";
  plan.mesh = ring.mesh;
  plan.global_batch = batch;
  plan.operators = {
      {.match = "*", .layout = Layout{.p0 = beside(ring), .p1 = ring.tensor, .p2 = {}}, .algorithm = algorithm},
      {.match = "head", .layout = Layout{.p0 = beside(ring), .p1 = {}, .p2 = ring.tensor}}};
  if (algorithm == MatmulAlgorithm::ring) plan.operators.front().directions = ring.directions;
  return plan;
}
ModelGraph mlp() { return build_model({.name = "mlp", .widths = {pixels, k, n, num_classes}}); }

std::string key(const Instruction& in) {
  return fmt::format("{} {}", in.is_collective() ? to_string(in.collective) : kernel_signature(in.kernel).name,
                     in.name);
}

TEST(RingProducts, TakeOneBlockAStep) {
  const ModelGraph graph = mlp();
  for (const Ring& ring : all_rings()) {
    const Program program = lower(plan_of(ring), graph, 0, no_workspace);
    const int t = ring.ranks();
    const std::int64_t rows = batch / beside(ring).total();
    std::map<std::string, int> count;
    for (const Instruction& in : program.body) {
      ++count[key(in)];
      const bool is_product = in.name == "block[1].linear" || in.name == "head";
      if (in.is_collective() || !is_product || !in.attributes.has("in")) continue;
      EXPECT_EQ(in.attributes.integer("rows"), rows) << ring.in_words();
      EXPECT_EQ(in.attributes.integer("in"), (in.name == "head" ? n : k) / t) << ring.in_words();
      EXPECT_EQ(in.attributes.integer("out"), (in.name == "head" ? num_classes : n) / t) << ring.in_words();
    }
    for (const char* kernel : {"linear_forward", "linear_backward_input", "linear_backward_weight"}) {
      EXPECT_EQ(count[fmt::format("{} block[1].linear", kernel)], t) << ring.in_words();
      EXPECT_EQ(count[fmt::format("{} head", kernel)], t) << ring.in_words();
      // It reads data: nothing goes round.
      EXPECT_EQ(count[fmt::format("{} block[0].linear", kernel)],
                kernel == std::string("linear_backward_input") ? 0 : 1);
    }
    for (const char* message : {"send", "recv"}) {
      EXPECT_EQ(count[fmt::format("{} block[1].linear/inputs", message)], 2 * (t - 1)) << ring.in_words();
      EXPECT_EQ(count[fmt::format("{} block[1].linear/input_gradient", message)], t - 1) << ring.in_words();
      EXPECT_EQ(count[fmt::format("{} head/outputs", message)], t - 1) << ring.in_words();
      EXPECT_EQ(count[fmt::format("{} head/output_gradient", message)], t - 1) << ring.in_words();
    }
  }
}

/// Bytes that all ranks send in messages or collectives by the name of what they are of.
std::map<std::string, std::int64_t> sent_of(const Plan& plan, const ModelGraph& graph, bool of_rank_0_alone) {
  std::map<std::string, std::int64_t> sent;
  for (const Program& program : all_ranks(plan, graph, no_workspace)) {
    if (of_rank_0_alone && program.rank > 0) continue;
    for (const Instruction& in : program.body) {
      if (in.is_collective()) sent[fmt::format("{} {}", to_string(in.phase), in.name)] += bytes_sent(program, in);
    }
  }
  return sent;
}

/// A rank sends as much as in the gather or scatter that is taken apart, and of what does not divide all ranks together
/// do.
TEST(RingProducts, SendWhatTheCollectiveSends) {
  for (const bool is_even : {true, false}) {
    const ModelGraph graph = is_even ? mlp() : build_model({.name = "mlp", .widths = {7, 13, 11, 5}});
    for (const Ring& ring : all_rings()) {
      const auto ours = sent_of(plan_of(ring), graph, is_even);
      const auto local = sent_of(plan_of(ring, MatmulAlgorithm::local), graph, is_even);
      std::int64_t gathered = -1, scattered_gradient = -1, scattered = -1, gathered_gradient = -1;
      for (const auto& [name, bytes] : local) {  // of redistributions, named after tensors
        if (name.starts_with("forward block[0]")) gathered = bytes;
        if (name.starts_with("backward block[0]")) scattered_gradient = bytes;
        if (name.starts_with("forward head")) scattered = bytes;
        if (name.starts_with("backward head")) gathered_gradient = bytes;
      }
      ASSERT_GT(gathered, 0) << ring.in_words();
      EXPECT_EQ(ours.at("forward block[1].linear/inputs"), gathered) << ring.in_words();
      EXPECT_EQ(ours.at("backward block[1].linear/inputs"), gathered) << ring.in_words();
      EXPECT_EQ(ours.at("backward block[1].linear/input_gradient"), scattered_gradient) << ring.in_words();
      EXPECT_EQ(ours.at("forward head/outputs"), scattered) << ring.in_words();
      EXPECT_EQ(ours.at("backward head/output_gradient"), gathered_gradient) << ring.in_words();
      const int t = ring.ranks();
      if (is_even) {
        EXPECT_EQ(gathered, 4 * (batch / beside(ring).total()) * k / t * (t - 1)) << ring.in_words();
      }
    }
  }
}

/// Elements of the buffers of @p name in @p program that live at once, at most.
std::int64_t most_alive(const Program& program, std::string_view name) {
  std::int64_t alive = 0, most = 0;
  const auto elements = [&](int id) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    const bool goes_round = buffer.category == Category::communication && buffer.name.starts_with(name);
    return goes_round ? buffer.num_elements : 0;
  };
  for (const Instruction& instruction : program.body) {
    for (const int id : instruction.allocs) alive += elements(id);
    most = std::max(most, alive);
    for (const int id : instruction.frees) alive -= elements(id);
  }
  return most;
}

TEST(RingProducts, HoldTwoBlocksADirectionAndKeepTheirOwn) {
  const ModelGraph graph = mlp();
  for (const Ring& ring : all_rings()) {
    const Program program = lower(plan_of(ring), graph, 0, no_workspace);
    const std::int64_t t = ring.ranks(), rows = batch / beside(ring).total();
    // Blocks that come by take two turns a direction, of as many as there are. So do sums, and a product is added to
    // them; in a small ring of two directions one has left before the next is made.
    const std::int64_t gathered = std::min<std::int64_t>(2 * ring.ways(), t - 1);
    const std::int64_t sums = t == 2 ? 1 : ring.ways() == 1 ? 3 : std::min<std::int64_t>(5, 2 * t - 4);
    EXPECT_EQ(most_alive(program, "block[1].linear/inputs"), gathered * rows * k / t) << ring.in_words();
    EXPECT_EQ(most_alive(program, "head/output_gradient"), gathered * rows * num_classes / t) << ring.in_words();
    EXPECT_EQ(most_alive(program, "block[1].linear/input_gradient"), sums * rows * k / t) << ring.in_words();
    EXPECT_EQ(most_alive(program, "head/outputs"), sums * rows * num_classes / t) << ring.in_words();
    // No activation of the layer is there whole.
    for (const Buffer& buffer : program.buffers) {
      if (buffer.category != Category::activation || buffer.name == "image") continue;
      EXPECT_LE(buffer.num_elements, rows * std::max(n, k) / t) << buffer.name << ", " << ring.in_words();
    }
  }
}

ModelGraph gpt(std::int64_t hidden, std::int64_t vocabulary, bool is_tied) {
  return build_model({.name = "gpt",
                      .layers = 2,
                      .hidden = hidden,
                      .heads = 24,
                      .vocabulary = vocabulary,
                      .sequence_length = 6,
                      .dropout = 0.1,
                      .tied_head = is_tied});
}

/// The mode's plan for @p ring.
Plan asked_of_mode(const Ring& ring, const ModelGraph& graph, std::map<std::string, OptionValue> options = {}) {
  Plan base;
  base.mesh = ring.mesh;
  base.global_batch = batch;
  base.schedule.micro_batches = 2;
  base.recompute = Recompute::block;
  options.emplace("tensor", to_string(ring.tensor));
  options.emplace("directions", std::int64_t{ring.directions});
  options.emplace("cost", std::string("volume"));
  return planned(find_planner("decomposed"), graph, base, std::move(options));
}

TEST(RingProducts, ProgramsOfAllRanksMeet) {
  for (const bool is_tied : {false, true}) {
    for (const std::int64_t vocabulary : {120, 131}) {
      if (!is_tied && vocabulary == 131 && !is_deep()) continue;
      const ModelGraph graph = gpt(48, vocabulary, is_tied);
      for (const Ring& ring : all_rings()) {
        for (const int sub_batches : {1, 2}) {
          Plan plan = asked_of_mode(ring, graph);
          plan.schedule.sub_batches = sub_batches;
          const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
          EXPECT_NO_THROW(verify(programs)) << ring.in_words();
          if (vocabulary == 131) continue;
          for (const Program& program : programs) {
            EXPECT_EQ(program.body.size(), programs.front().body.size()) << ring.in_words();
            EXPECT_EQ(program.arena_bytes, programs.front().arena_bytes) << ring.in_words();
          }
        }
      }
    }
  }
}

/// What came in one micro-batch leaves its place to what comes in the next ones.
TEST(RingProducts, NeedNoMoreMemoryForMoreMicroBatches) {
  const ModelGraph graph = gpt(48, 120, true);
  for (const Ring& ring : all_rings()) {
    for (const Recompute recompute : {Recompute::none, Recompute::whole_block}) {
      const auto arena_bytes = [&](int micro_batches) {
        Plan plan = asked_of_mode(ring, graph);
        plan.recompute = recompute;
        plan.global_batch = batch * micro_batches;
        plan.schedule.micro_batches = micro_batches;
        return lower(plan, graph, 0, no_workspace).arena_bytes;
      };
      EXPECT_EQ(arena_bytes(8), arena_bytes(3)) << ring.in_words() << ", " << to_string(recompute);
    }
  }
}

TEST(RingProducts, ProgramsOfStagesMeet) {
  const ModelGraph graph = gpt(48, 120, false);
  const Mesh two{.nodes = 2, .ranks_per_node = 4, .axes = {}};
  for (const Ring& ring : {Ring{two, {4, 1}}, Ring{two, {2, 1}}, Ring{two, {4, 1}, 2}}) {
    const Plan plan = asked_of_mode(ring, graph, {{"stages", std::int64_t{2}}});
    EXPECT_NO_THROW(verify(all_ranks(plan, graph, no_workspace))) << ring.in_words();
    EXPECT_EQ(rank_classes(plan, graph).representatives.size(), 2U) << ring.in_words();
  }
}

/// A message goes from one class to one class: ranks of a ring are alike while its links and its blocks are.
TEST(RingProducts, RanksAreOneClassWhereTheirRingsAreAlike) {
  const ModelGraph graph = gpt(48, 120, false), uneven = gpt(48, 131, false);
  for (const Ring& ring : all_rings()) {
    const bool has_one_kind = ring.tensor.nodes == 1 || ring.tensor.in_node == 1;
    const std::size_t expected = has_one_kind ? 1U : static_cast<std::size_t>(ring.ranks());
    EXPECT_EQ(rank_classes(asked_of_mode(ring, graph), graph).representatives.size(), expected) << ring.in_words();
    EXPECT_EQ(rank_classes(asked_of_mode(ring, uneven), uneven).representatives.size(),
              static_cast<std::size_t>(ring.ranks()))
        << ring.in_words();
  }
}

/// Where the message of a block takes as long as its product, most of what is sent runs under products, and nothing of
/// what is gathered or scattered at once.
TEST(RingProducts, MessagesRunUnderProducts) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {2048, 2048, 2048, 2048, 2048}});
  const Ring ring{{.nodes = 1, .ranks_per_node = 4, .axes = {}}, {4, 1}};
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.peak_flops_per_second = {{"f32", 1e13}};
  cluster.memory_bandwidth_bytes_per_second = 1e13;
  cluster.intra_node = {.latency_seconds = 1e-7, .bandwidth_bytes_per_second = 1.0};
  const auto programs_of = [&](MatmulAlgorithm algorithm) {
    Plan plan = plan_of(ring, algorithm);
    plan.global_batch = 4096;
    return all_ranks(plan, graph, no_workspace);
  };
  const std::vector<Program> by_blocks = programs_of(MatmulAlgorithm::ring);
  const std::vector<Instruction>& body = by_blocks.front().body;
  const auto product = std::ranges::find(body, "linear_forward block[1].linear", key);
  ASSERT_NE(product, body.end());
  cluster.intra_node.bandwidth_bytes_per_second =
      4.0 * 4096 * 2048 / 4 / analytic_costs(cluster)->kernel(by_blocks.front(), *product).seconds;
  const auto step_of = [&](const std::vector<Program>& programs) {
    return simulate(unfolded(programs, 4), *analytic_costs(cluster)).steps[0][0];
  };
  const SimulatedStep blocks = step_of(by_blocks), whole = step_of(programs_of(MatmulAlgorithm::local));
  EXPECT_LT(blocks.exposed_seconds, 0.4 * blocks.communication_seconds);
  EXPECT_GT(whole.exposed_seconds, 0.9 * whole.communication_seconds);
  EXPECT_LT(blocks.step_seconds, whole.step_seconds);
}

/// Half of the blocks, and of the sums, go to the rank before: each block comes from at most half the ring away.
TEST(RingProducts, TwoDirectionsSendHalfOfTheBlocksEachWay) {
  const ModelGraph graph = mlp();
  for (const Ring& ring : all_rings()) {
    const int t = ring.ranks();
    if (ring.ways() == 1) continue;
    for (const Program& program : all_ranks(plan_of(ring), graph, no_workspace)) {
      const auto messages = [&](std::string_view name, int hops) {
        return std::ranges::count_if(program.body, [&](const Instruction& in) {
          if (in.collective != Collective::send || in.name != name || in.phase != Phase::forward) return false;
          const std::vector<int>& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
          const auto own = std::ranges::find(ranks, program.rank) - ranks.begin();
          return in.root == (own + hops + t) % t;
        });
      };
      // Of an odd number the gather has one more to the next rank, the scatter to the one before.
      EXPECT_EQ(messages("block[1].linear/inputs", 1), t / 2) << ring.in_words();
      EXPECT_EQ(messages("block[1].linear/inputs", -1), (t - 1) / 2) << ring.in_words();
      EXPECT_EQ(messages("head/outputs", -1), t / 2) << ring.in_words();
      EXPECT_EQ(messages("head/outputs", 1), (t - 1) / 2) << ring.in_words();
    }
  }
}

/// Where messages are all that takes time, those of the longer way follow each other, instead of all.
TEST(RingProducts, TwoDirectionsTakeHalfTheTimeOfOne) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {420, 420, 420, 420}});
  for (const int t : {3, 4, 5, 7}) {
    const Mesh mesh{.nodes = 1, .ranks_per_node = t, .axes = {}};
    Cluster cluster;
    cluster.devices_per_node = t;
    cluster.peak_flops_per_second = {{"f32", 1e18}};
    cluster.memory_bandwidth_bytes_per_second = 1e18;
    cluster.intra_node = {.latency_seconds = 0.0, .bandwidth_bytes_per_second = 1e9};
    const auto step_seconds = [&](int directions) {
      Plan plan = plan_of({mesh, {t, 1}, directions});
      plan.global_batch = 64 * batch;
      const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
      return simulate(unfolded(programs, t), *analytic_costs(cluster)).steps[0][0].step_seconds;
    };
    // Inputs, outputs and the output's gradient go round alone; inputs and their gradient at once, of which one has the
    // longer way where the other has the shorter one. Besides there are the statistics of the loss.
    EXPECT_NEAR(step_seconds(2) / step_seconds(1), (3.0 * (t / 2) + t - 1) / (5.0 * (t - 1)), 0.02) << t;
  }
}

TEST(RingRefusals, NameTheOperatorAndTheNumbers) {
  const Ring ring{{.nodes = 1, .ranks_per_node = 4, .axes = {}}, {4, 1}};
  const ModelGraph graph = mlp();
  EXPECT_THAT(lowering_refusal(plan_of(ring), build_model({.name = "gpt-nano"})),
              HasSubstr("embedding: algorithm = ring of an operator of kind embedding cannot be lowered"));
  Plan plan = plan_of(ring);
  plan.operators = {{.match = "*", .algorithm = MatmulAlgorithm::ring}};
  plan.mesh.axes = {{"data", 4}};
  EXPECT_THAT(lowering_refusal(plan, graph),
              HasSubstr("algorithm = ring on a mesh with axes, where no layout says which ranks are its ring,"));
  plan = plan_of(ring);
  plan.operators.push_back({.match = "block[1].linear", .layout = Layout{.p0 = {}, .p1 = {2, 1}, .p2 = {2, 1}}});
  EXPECT_THAT(lowering_refusal(plan, graph),
              HasSubstr("block[1].linear: algorithm = ring with layout p1 = 2x1 and p2 = 2x1, which gathers and"));
  plan = plan_of(ring);
  plan.operators.back().sum = PartialSums::all_reduce;
  EXPECT_THAT(lowering_refusal(plan, graph),
              HasSubstr("head: sum = all_reduce with algorithm = ring, whose blocks of a sum are one rank's each,"));
}

}  // namespace
}  // namespace strata::test_ring_products

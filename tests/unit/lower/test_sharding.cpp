/// @file
/// Bytes and memory of sharded states against their closed formulas, to the byte, for every nested triple of factors.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "ir/program/program.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "partition/shards.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_sharding {
namespace {

constexpr Factor grid{4, 2};
constexpr int num_ranks = 8;

/// Every tensor divides by 8; 2 hidden layers and the head.
ModelGraph even_model() { return build_model({.name = "mlp", .widths = {16, 32, 48, 8}}); }

std::vector<StateFactors> all_states() {
  std::vector<StateFactors> states;
  std::vector<Factor> factors;
  for (const int in_node : {1, 2, 4}) {
    for (const int nodes : {1, 2}) factors.push_back({in_node, nodes});
  }
  for (const Factor& p : factors) {
    for (const Factor& os : factors) {
      if (!divides(p, os)) continue;
      states.push_back({.p = p, .g = p, .os = os});
      if (p != os) states.push_back({.p = p, .g = os, .os = os});
    }
  }
  return states;
}

Plan sharded(const StateFactors& state, int micro_batches) {
  Plan plan;
  plan.strategy = "sharded";
  plan.mesh = {.nodes = grid.nodes, .ranks_per_node = grid.in_node, .axes = {{"data", num_ranks}}};
  plan.global_batch = 8 * micro_batches;
  plan.schedule.micro_batches = micro_batches;
  plan.dtypes = {DType::bf16, DType::bf16};
  plan.operators = {{.match = "*", .state = state}};
  return plan;
}

std::string name(const Plan& plan) {
  const StateFactors& s = *plan.operators[0].state;
  return fmt::format("p {} g {} os {}, {} micro-batches, {}, {}", to_string(s.p), to_string(s.g), to_string(s.os),
                     plan.schedule.micro_batches, plan.optimizer.sharding, plan.optimizer.gradients);
}

/// Elements of weights that backward reads: all but the first layer's.
std::int64_t read_by_backward(const ModelGraph& graph) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : graph.parameters) {
    if (parameter.shape.size() == 2 && parameter.name.find("block[0]") == std::string::npos) {
      sum += parameter.num_elements();
    }
  }
  return sum;
}

/// 2 (n-1)/n v, in the rank's own share: n divides v.
std::int64_t all_reduced(std::int64_t bytes, int n) { return 2 * (n - 1) * bytes / n; }

TEST(ShardedBytes, EqualTheFormulasOfAmsp) {
  const ModelGraph graph = even_model();
  const std::int64_t bytes = 2 * graph.num_parameters();
  const std::int64_t read = 2 * read_by_backward(graph);
  for (const int m : {1, 3}) {
    for (const StateFactors& state : all_states()) {
      const int p = state.p.total();
      const int q = state.os.total() / p;
      const int replicas = num_ranks / p;
      Plan plan = sharded(state, m);
      const BytesByCollective sent = bytes_by_collective(lower(plan, graph, 0, no_workspace));
      const std::int64_t gathers = m * (p - 1) * (bytes + read) / p;
      EXPECT_EQ(sent[Collective::reduce_scatter], m * (p - 1) * bytes / p) << name(plan);
      EXPECT_EQ(sent[Collective::all_gather], gathers + (q - 1) * bytes / (p * q)) << name(plan);
      const std::int64_t early = state.g == state.p ? 0 : (m - 1) * all_reduced(bytes / p, q);
      EXPECT_EQ(sent[Collective::all_reduce], early + all_reduced(bytes / p, replicas)) << name(plan);
      EXPECT_EQ(sent[Collective::broadcast], 0) << name(plan);

      plan.optimizer.gradients = "reduce_scatter";
      const BytesByCollective scattered = bytes_by_collective(lower(plan, graph, 0, no_workspace));
      const int times = state.g == state.p ? 1 : m;
      const std::int64_t own = (q - 1) * (bytes / p) / q;
      EXPECT_EQ(scattered[Collective::reduce_scatter], m * (p - 1) * bytes / p + times * own) << name(plan);
      EXPECT_EQ(scattered[Collective::all_reduce], all_reduced(bytes / (p * q), replicas / q)) << name(plan);
    }
  }
}

TEST(ShardedBytes, WholeTensorsAreBroadcastByTheirOwners) {
  const ModelGraph graph = even_model();
  for (const StateFactors& state : all_states()) {
    Plan plan = sharded(state, 1);
    plan.optimizer.sharding = "inter_tensor";
    plan.optimizer.spread = "broadcast";
    const int p = state.p.total();
    const int q = state.os.total() / p;
    std::int64_t sum = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      sum += bytes_by_collective(lower(plan, graph, rank, no_workspace))[Collective::broadcast];
    }
    // Each p shard from its owner to the q - 1 others, in every group of q.
    EXPECT_EQ(sum, num_ranks / q * (q - 1) * 2 * graph.num_parameters() / p) << name(plan);
  }
}

TEST(ShardedBytes, Zero3MovesHalfAsMuchAgainAsDdp) {
  const ModelGraph graph = build_model({.name = "llama-nano"});  // its head is not tied: a table gathered twice
  const auto total = [&](const StateFactors& state) {
    return static_cast<double>(bytes_by_collective(lower(sharded(state, 1), graph, 0, no_workspace)).total());
  };
  // Exactly 1.5 if backward gathered every parameter; the table of the embedding it does not read.
  const double ratio = total({.p = grid, .g = grid, .os = grid}) / total({});
  EXPECT_GT(ratio, 1.4);
  EXPECT_LE(ratio, 1.5);
}

std::int64_t persistent(const Program& program, Category category) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && buffer.category == category) sum += buffer.size_bytes();
  }
  return sum;
}

/// Bytes of gradients that are alive when the first update begins.
std::int64_t gradients_at_update(const Program& program) {
  std::int64_t live = 0;
  for (const Instruction& in : program.body) {
    if (in.phase == Phase::update) return live;
    for (const auto& [ids, sign] : {std::pair{&in.allocs, 1}, {&in.frees, -1}}) {
      for (const int id : *ids) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
        if (buffer.category == Category::gradient) live += sign * buffer.size_bytes();
      }
    }
  }
  return -1;
}

TEST(ShardedMemory, StatesAreDividedByTheirFactors) {
  const ModelGraph graph = even_model();
  const std::int64_t n = graph.num_parameters();
  for (const int m : {1, 3}) {
    for (const StateFactors& state : all_states()) {
      const Plan plan = sharded(state, m);
      const Program program = lower(plan, graph, 3, no_workspace);
      EXPECT_EQ(persistent(program, Category::parameter), 2 * n / state.p.total()) << name(plan);
      EXPECT_EQ(persistent(program, Category::optimizer), 12 * n / state.os.total()) << name(plan);
      EXPECT_EQ(gradients_at_update(program), 2 * n / state.g.total()) << name(plan);
    }
  }
}

TEST(ShardedMemory, UnevenTensorsAreRoundedUpOneByOne) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Program program = lower(sharded({.p = {2, 1}, .g = {4, 2}, .os = {4, 2}}, 1), graph, 0, no_workspace);
  std::int64_t parameters = 0;
  std::int64_t updated = 0;
  for (const Parameter& parameter : graph.parameters) {
    const std::int64_t held = (parameter.num_elements() + 1) / 2;
    parameters += held;
    updated += (held + 3) / 4;
  }
  EXPECT_EQ(persistent(program, Category::parameter), 2 * parameters);
  EXPECT_EQ(persistent(program, Category::optimizer), 12 * updated);
}

TEST(ShardedMemory, WholeTensorsGoToTheEmptiestRank) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  Plan plan = sharded({.p = {}, .g = grid, .os = grid}, 1);
  plan.optimizer.sharding = "inter_tensor";
  plan.optimizer.spread = "broadcast";
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : graph.parameters) sizes.push_back(parameter.num_elements());
  std::ranges::sort(sizes, std::ranges::greater{});
  std::vector<std::int64_t> loads(num_ranks, 0);
  for (const std::int64_t size : sizes) *std::ranges::min_element(loads) += size;
  for (int rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(persistent(lower(plan, graph, rank, no_workspace), Category::optimizer),
              12 * loads[static_cast<std::size_t>(rank)]);
  }
}

Plan overlapped(const StateFactors& state, int micro_batches, const char* gradients) {
  Plan plan = sharded(state, micro_batches);
  plan.overlap = {.bucket_bytes = 100,
                  .all_reduce = "backward",
                  .gather = "next_layer",
                  .gather_backward = "next_module",
                  .reduce_scatter = "grad_input"};
  plan.optimizer.gradients = gradients;
  return plan;
}

TEST(ShardedOverlap, NoKernelWaitsForTheTransferJustIssued) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 24, 40, 8}});
  constexpr Factor half{4, 1};
  for (const StateFactors& state : {StateFactors{.p = grid, .g = grid, .os = grid},
                                    StateFactors{.p = half, .g = half, .os = grid},
                                    {.g = grid, .os = grid},
                                    {.p = half, .g = grid, .os = grid},
                                    {.os = grid}}) {
    for (const char* gradients : {"all_reduce", "reduce_scatter"}) {
      for (const int m : {1, 3}) {
        const Plan plan = overlapped(state, m, gradients);
        const Program program = lower(plan, graph, 0, no_workspace);
        int num_checked = 0;
        for (std::size_t i = 0; i < program.body.size(); ++i) {
          const Instruction& transfer = program.body[i];
          if (!transfer.is_collective() || transfer.phase != Phase::reduce) continue;
          const auto kernels_after =
              std::ranges::subrange(program.body.begin() + static_cast<std::ptrdiff_t>(i), program.body.end());
          const auto next =
              std::ranges::find_if(kernels_after, [](const Instruction& in) { return !in.is_collective(); });
          // Behind the last operator's backward there is nothing that could hide it.
          if (next->phase == Phase::update || next->phase == Phase::forward) continue;
          const auto later = std::ranges::find_if(
              kernels_after, [](const Instruction& in) { return !in.is_collective() && in.phase != Phase::reduce; });
          if (later->phase != Phase::backward) continue;
          for (const Wait& wait : next->waits) EXPECT_LT(wait.instruction, static_cast<int>(i)) << name(plan);
          ++num_checked;
        }
        EXPECT_GT(num_checked, 0) << name(plan);
      }
    }
  }
}

/// Whoever shares a parameter communicates on one stream, its replicas on the other; what is done stays the same.
TEST(ShardedOverlap, SumsOverReplicasMayHaveAStreamOfTheirOwn) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 24, 40, 8}});
  const Factor node{2, 1};
  for (const char* gradients : {"all_reduce", "reduce_scatter"}) {
    for (const StateFactors& state : {StateFactors{.p = node, .g = node, .os = grid}, StateFactors{.os = grid}}) {
      Plan plan = overlapped(state, 2, gradients);
      const Program shared = lower(plan, graph, 0, no_workspace);
      plan.overlap.replica_stream = "own";
      const Program own = lower(plan, graph, 0, no_workspace);
      EXPECT_EQ(own.streams.size(), shared.streams.size() + 1);
      ASSERT_EQ(own.streams.back(), "replicas");
      ASSERT_EQ(own.body.size(), shared.body.size());
      int num_moved = 0;
      for (std::size_t i = 0; i < own.body.size(); ++i) {
        Instruction here = own.body[i];
        const bool is_moved = here.stream + 1 == static_cast<int>(own.streams.size());
        if (here.is_collective()) {
          const std::vector<int>& ranks = own.groups[static_cast<std::size_t>(here.group)].ranks;
          const bool shares_parameters = state.p == node && ranks == std::vector{0, 1};
          EXPECT_EQ(is_moved, !shares_parameters) << i << " " << here.name;
        }
        num_moved += is_moved ? 1 : 0;
        here.stream = shared.body[i].stream;
        here.waits = shared.body[i].waits;
        EXPECT_EQ(here, shared.body[i]) << i;
      }
      EXPECT_GT(num_moved, 0);
    }
  }
}

/// Messages hold whole parameters in order, no more than fill them; all of what is sent one by one is in one of them.
TEST(ShardedOverlap, UpdatedParametersComeBackInMessages) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 24, 40, 8}});
  for (const bool whole_tensors : {false, true}) {
    for (const char* under : {"none", "next_forward"}) {
      Plan plan = sharded({.os = grid}, 1);
      plan.overlap.broadcast = under;
      if (whole_tensors) {
        plan.optimizer.sharding = "inter_tensor";
        plan.optimizer.spread = "broadcast";
      }
      const auto tensors_of = [&](std::int64_t bytes, int rank) {
        plan.overlap.spread_bytes = bytes;
        std::vector<std::vector<std::int64_t>> messages;  // sizes of full tensors
        const Program program = lower(plan, graph, rank, no_workspace);
        for (const Instruction& in : program.body) {
          if (!in.is_collective() || in.phase != Phase::update) continue;
          messages.emplace_back();
          for (int t = 0; t < num_tensors(in); ++t) messages.back().push_back(full_operand(in, t).num_elements);
        }
        return messages;
      };
      for (const int rank : {0, 3}) {
        const auto alone = tensors_of(0, rank);
        EXPECT_EQ(alone.size(), graph.parameters.size());
        const auto all = tensors_of(1 << 30, rank);
        ASSERT_EQ(all.size(), 1U);
        for (const std::int64_t bytes : {100, 6000}) {
          std::vector<std::int64_t> in_order;
          const auto messages = tensors_of(bytes, rank);
          for (const std::vector<std::int64_t>& message : messages) {
            std::int64_t elements = 0;
            for (std::size_t t = 0; t < message.size(); ++t) {
              EXPECT_TRUE(t == 0 || elements * size_of(plan.dtypes.compute) < bytes) << "full before its last";
              elements += message[t];
              in_order.push_back(message[t]);
            }
            EXPECT_TRUE(elements * size_of(plan.dtypes.compute) >= bytes || &message == &messages.back());
          }
          EXPECT_EQ(in_order, all.front());
        }
      }
    }
  }
}

TEST(ShardedOverlap, NothingRunsUnderAGatherThatIsUnderNothing) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 32, 48, 24, 40, 8}});
  for (const bool ahead : {false, true}) {
    Plan plan = overlapped({.p = grid, .g = grid, .os = grid}, 2, "reduce_scatter");
    if (!ahead) plan.overlap.gather = plan.overlap.gather_backward = "none";
    const Program program = lower(plan, graph, 0, no_workspace);
    int num_hidden = 0, num_gathers = 0;
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      const Instruction& gather = program.body[i];
      if (gather.collective != Collective::all_gather || !gather.is_collective() || gather.phase == Phase::update) {
        continue;
      }
      const auto next = std::find_if(program.body.begin() + static_cast<std::ptrdiff_t>(i), program.body.end(),
                                     [](const Instruction& in) { return !in.is_collective(); });
      ASSERT_NE(next, program.body.end());
      const bool waits = std::ranges::any_of(next->waits, [&](const Wait& wait) {
        return wait.lag == 0 && wait.instruction >= static_cast<int>(i) &&
               program.body[static_cast<std::size_t>(wait.instruction)].stream == gather.stream;
      });
      num_hidden += waits ? 0 : 1;
      ++num_gathers;
    }
    EXPECT_GT(num_gathers, 10);
    if (ahead) {
      EXPECT_GT(num_hidden, 0);
    } else {
      EXPECT_EQ(num_hidden, 0) << "the gradient of a weight runs under the gather of the weight";
    }
  }
}

TEST(ShardedOverlap, GradientsTravelWithoutACopy) {
  // Scattered where they are to stay, or, beside an earlier micro-batch's, where they were.
  const Program program =
      lower(overlapped({.p = grid, .g = grid, .os = grid}, 2, "all_reduce"), even_model(), 0, no_workspace);
  int in_place = 0, at_its_place = 0;
  for (const Instruction& in : program.body) {
    if (in.collective != Collective::reduce_scatter || !in.is_collective()) continue;
    (in.outputs[0].buffer == in.inputs[0].buffer ? in_place : at_its_place) += 1;
  }
  EXPECT_EQ(in_place, 6);
  EXPECT_EQ(at_its_place, 6);
  for (const Instruction& in : program.body) EXPECT_NE(in.kernel, Kernel::copy);
}

TEST(Shards, RanksOfACellAndOfACopy) {
  const Mesh mesh{.nodes = 2, .ranks_per_node = 4, .axes = {{"data", 8}}};
  EXPECT_THAT(ranks_between(mesh, {2, 1}, {}, 7), testing::ElementsAre(6, 7));
  EXPECT_THAT(ranks_between(mesh, {4, 2}, {2, 1}, 3), testing::ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(ranks_between(mesh, {2, 2}, {}, 6), testing::ElementsAre(2, 3, 6, 7));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<int> ranks = ranks_between(mesh, {4, 2}, {2, 1}, rank);
    EXPECT_EQ(ranks[static_cast<std::size_t>(index_between(mesh, {4, 2}, {2, 1}, rank))], rank);
  }
}

TEST(Shards, OfAStageAreOverItsDataRanks) {
  struct Case {
    int nodes, in_node, stages;
    Factor expected;
  };
  for (const Case& c : {Case{1, 4, 1, {4, 1}},
                        {2, 4, 1, {4, 2}},
                        {1, 4, 2, {2, 1}},
                        {1, 4, 4, {1, 1}},
                        {2, 4, 2, {4, 1}},
                        {2, 4, 4, {2, 1}},
                        {4, 2, 2, {2, 2}},
                        {3, 1, 3, {1, 1}}}) {
    const int data = c.nodes * c.in_node / c.stages;
    const Mesh mesh{.nodes = c.nodes, .ranks_per_node = c.in_node, .axes = {{"stage", c.stages}, {"data", data}}};
    EXPECT_EQ(data_grid(mesh), c.expected);
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      EXPECT_EQ(ranks_between(mesh, c.expected, {}, rank), group_along(mesh, "data", rank)) << rank;
    }
  }
  EXPECT_EQ(data_grid({.nodes = 2, .ranks_per_node = 4}), whole_grid({.nodes = 2, .ranks_per_node = 4}));
}

TEST(Shards, DataRanksThatAreNoCellOfTheGridAreRefused) {
  const auto refusal = [](const Mesh& mesh) -> std::string {
    try {
      data_grid(mesh);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.nodes = 2, .ranks_per_node = 3, .axes = {{"stage", 3}, {"data", 2}}}),
            "states over 2 data ranks cannot be sharded: they are no whole nodes, nor an even part of one, of 2 × 3 "
            "ranks");
  EXPECT_EQ(refusal({.nodes = 1, .ranks_per_node = 4, .axes = {{"data", 2}, {"stage", 2}}}),
            "states over 2 data ranks of 1 × 4, which are not neighbours, cannot be sharded");
}

}  // namespace
}  // namespace strata::test_sharding

/// @file
/// ZeRO++'s second shard: whose it is kept of, its bytes, and what backward gathers out of it.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "unit/lower/planned.hpp"

namespace strata::test_sharding_zeropp {
namespace {

/// Every tensor divides by 8; 2 hidden layers and the head.
ModelGraph even_model() { return build_model({.name = "mlp", .widths = {16, 32, 48, 8}}); }

Plan on_4x2(std::int64_t micro_batches, DType dtype) {
  Plan plan;
  plan.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {}};
  plan.global_batch = 8 * micro_batches;
  plan.schedule.micro_batches = static_cast<int>(micro_batches);
  plan.dtypes = {dtype, dtype};
  return plan;
}

Plan zeropp(const ModelGraph& graph, const Plan& base, const std::string& secondary) {
  return planned(find_planner("zeropp"), graph, base, {{"secondary", secondary}});
}

/// Names of the parameters of which a second shard is kept.
std::set<std::string> kept(const Program& program) {
  constexpr std::string_view suffix = "/secondary";
  std::set<std::string> names;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.ends_with(suffix)) names.insert(buffer.name.substr(0, buffer.name.size() - suffix.size()));
  }
  return names;
}

std::int64_t second_shard_bytes(const Program& program) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.ends_with("/secondary")) sum += buffer.size_bytes();
  }
  return sum;
}

/// Elements of the parameters named.
std::int64_t elements_of(const ModelGraph& graph, const std::set<std::string>& names) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : graph.parameters) {
    sum += names.contains(parameter.name) ? parameter.num_elements() : 0;
  }
  return sum;
}

/// Every second shard that is written is read by a gather, or by a kernel where it is the whole.
void expect_all_read(const Program& program) {
  std::set<int> read;
  for (const Instruction& in : program.body) {
    for (const Operand& operand : in.inputs) read.insert(operand.buffer);
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].name.ends_with("/secondary")) {
      EXPECT_TRUE(read.contains(static_cast<int>(b))) << program.buffers[b].name;
    }
  }
}

TEST(SecondShard, IsKeptOfWhatBackwardReads) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const std::set<std::string> names =
      kept(lower(zeropp(graph, on_4x2(1, DType::bf16), "node"), graph, 0, no_workspace));
  for (const Parameter& parameter : graph.parameters) {
    const bool is_table = parameter.name.starts_with("embedding");
    const bool is_bias = parameter.name.ends_with("bias");
    // The head is tied to the table of tokens, whose other operator reads it.
    const bool is_read = !is_bias && (!is_table || parameter.name == "embedding.table");
    EXPECT_EQ(names.contains(parameter.name), is_read) << parameter.name;
  }
}

TEST(SecondShard, BytesAreThoseOfTheFormula) {
  const ModelGraph graph = even_model();
  for (const std::string model : {"mlp", "gpt-nano", "llama-nano"}) {
    const ModelGraph model_graph = model == "mlp" ? graph : build_model({.name = model});
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      for (const int micro_batches : {1, 3}) {
        for (const auto& [word, ranks] : {std::pair{"1x1", 1}, {"2x1", 2}, {"node", 4}, {"4x2", 8}}) {
          Plan base = on_4x2(micro_batches, DType::bf16);
          base.recompute = recompute;
          const Program program = lower(zeropp(model_graph, base, word), model_graph, 0, no_workspace);
          std::int64_t expected = 0;  // c B/S, rounded up a tensor
          for (const Parameter& parameter : model_graph.parameters) {
            if (kept(program).contains(parameter.name))
              expected += 2 * ((parameter.num_elements() + ranks - 1) / ranks);
          }
          EXPECT_EQ(second_shard_bytes(program), expected) << model << " " << word;
          EXPECT_GT(expected, 0) << model << " " << word;
          expect_all_read(program);
        }
      }
    }
  }
}

/// M ((N-1)/N cP + (S-1)/S cB).
TEST(SecondShard, GathersOfBackwardStayInItsGroup) {
  const ModelGraph graph = even_model();
  const std::int64_t all = 2 * graph.num_parameters();
  for (const int m : {1, 3}) {
    for (const auto& [word, ranks] : {std::pair{"1x1", 1}, {"2x1", 2}, {"node", 4}, {"4x2", 8}}) {
      const Program program = lower(zeropp(graph, on_4x2(m, DType::bf16), word), graph, 0, no_workspace);
      const std::int64_t read = 2 * elements_of(graph, kept(program));
      EXPECT_EQ(read, 2 * (32 * 48 + 48 * 8)) << word;  // no bias, and not the first layer's weight
      EXPECT_EQ(bytes_by_collective(program)[Collective::all_gather], m * (7 * all / 8 + (ranks - 1) * read / ranks))
          << word;
    }
  }
}

/// A recomputed operator reads its bias again.
TEST(SecondShard, IsKeptOfBiasesThatARecomputationReads) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  Plan base = on_4x2(1, DType::bf16);
  const std::set<std::string> plain = kept(lower(zeropp(graph, base, "node"), graph, 0, no_workspace));
  base.recompute = Recompute::block;
  const std::set<std::string> recomputed = kept(lower(zeropp(graph, base, "node"), graph, 0, no_workspace));
  EXPECT_FALSE(plain.contains("block[0].mlp.fc1.bias"));
  EXPECT_TRUE(recomputed.contains("block[0].mlp.fc1.bias"));
  EXPECT_FALSE(
      recomputed.contains("block[0].mlp.fc2.bias"));  // its output is not read by backward: it never runs again
  EXPECT_FALSE(recomputed.contains("head.bias"));
}

/// The copy that keeps a shard waits for its gather; issued with the gather, it would stop the layer under which the
/// gather runs.
TEST(SecondShard, IsKeptWhenItsOperatorRuns) {
  const ModelGraph graph = even_model();
  const Program program = lower(zeropp(graph, on_4x2(1, DType::bf16), "node"), graph, 0, no_workspace);
  for (std::size_t i = 0; i + 1 < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (in.kernel != Kernel::copy || in.phase != Phase::forward) continue;
    std::size_t next = i + 1;
    while (program.body[next].kernel == Kernel::copy) ++next;
    EXPECT_EQ(program.body[next].kernel, Kernel::linear_forward) << in.name;
    EXPECT_TRUE(in.name.starts_with(program.body[next].name)) << in.name << " before " << program.body[next].name;
  }
}

}  // namespace
}  // namespace strata::test_sharding_zeropp

/// @file
/// Logits whose rows are a whole number of vectors apart: which buffers grow, what reads and writes them, and that
/// memory and bytes count what stands between rows. What they train, tests/mpi/exec/test_executor says.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>

#include "cost/kernel_work.hpp"
#include "lower/evaluation.hpp"
#include "unit/lower/planned.hpp"
#include "unit/lower/tensor_parallel.hpp"

namespace strata::test_logit_rows {
namespace {

using testing::ElementsAre;
using testing::Pair;

const Fusions in_vectors = {.logit_rows_in_vectors = true};

ModelGraph with_vocabulary(std::int64_t vocabulary) {
  return build_model({.name = "gpt-nano", .vocabulary = vocabulary, .sequence_length = 33});
}

Plan of_one_rank(const ModelGraph& graph) {
  Plan base = asked(8, 1);
  base.schedule.micro_batches = 2;
  return planned(find_planner("single"), graph, base);
}

/// Kernels with rows apart, by how far.
std::map<std::string, std::map<std::int64_t, int>> rows_apart(const Program& program) {
  std::map<std::string, std::map<std::int64_t, int>> found;
  for (const Instruction& in : program.body) {
    if (in.attributes.has("ld")) ++found[std::string(kernel_signature(in.kernel).name)][in.attributes.integer("ld")];
  }
  return found;
}

TEST(LogitRows, AreRoundedUpToVectorsWhereverTheyAreReadAndWritten) {
  const ModelGraph graph = with_vocabulary(101);
  const Plan plan = of_one_rank(graph);
  const Program plain = lower(plan, graph, 0, no_workspace);
  const Program apart = lower(plan, graph, 0, {no_workspace, in_vectors});
  const auto two = ElementsAre(Pair(104, 2));  // of two micro-batches
  EXPECT_THAT(rows_apart(apart), ElementsAre(Pair("cross_entropy", two), Pair("linear_backward_input", two),
                                             Pair("linear_backward_weight", two), Pair("linear_forward", two)));
  const std::int64_t between = (4 * 33 - 1) * 3;  // elements of a micro-batch
  std::int64_t grown = 0;
  ASSERT_EQ(apart.buffers.size(), plain.buffers.size());
  for (std::size_t b = 0; b < apart.buffers.size(); ++b) {
    const std::int64_t more = apart.buffers[b].num_elements - plain.buffers[b].num_elements;
    if (more == 0) continue;
    EXPECT_EQ(more, between) << apart.buffers[b].name;
    ++grown;
  }
  EXPECT_EQ(grown, 2);
  ASSERT_EQ(apart.body.size(), plain.body.size());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < apart.body.size(); ++i) {
    bytes += bytes_touched(apart, apart.body[i]) - bytes_touched(plain, plain.body[i]);
    EXPECT_EQ(flops(apart.body[i]), flops(plain.body[i]));
  }
  // Written by the head, read and written by the loss, read by both gradients of the head.
  EXPECT_EQ(bytes, 2 * 5 * between * size_of(plan.dtypes.compute));
}

TEST(LogitRows, ThatAreVectorsStay) {
  const ModelGraph graph = with_vocabulary(104);
  const Plan plan = of_one_rank(graph);
  EXPECT_EQ(lower(plan, graph, 0, {no_workspace, in_vectors}), lower(plan, graph, 0, no_workspace));
}

TEST(LogitRows, WithABiasStay) {
  // Sums over rows, which a bias has in backward, take them as they stand.
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 16, 5}});
  const Plan plan = of_one_rank(graph);
  EXPECT_EQ(lower(plan, graph, 0, {no_workspace, in_vectors}), lower(plan, graph, 0, no_workspace));
}

TEST(LogitRows, AreRoundedUpInEvaluationToo) {
  const ModelGraph graph = with_vocabulary(101);
  const ModelGraph evaluated = evaluation_graph(graph);
  const Plan plan = evaluation_plan(of_one_rank(graph), 4);
  EXPECT_THAT(rows_apart(lower_evaluation(plan, evaluated, 0, {no_workspace, in_vectors})),
              ElementsAre(Pair("linear_forward", ElementsAre(Pair(104, 1))), Pair("top_k", ElementsAre(Pair(104, 1)))));
}

TEST(LogitRows, OfAVocabularyThatRanksSplitStay) {
  ModelOptions options{.name = "gpt", .layers = num_layers, .hidden = 32, .heads = 8, .ffn_hidden = 64};
  options.vocabulary = 66;  // 33 on each of two ranks
  options.sequence_length = 4;
  const ModelGraph graph = build_model(options);
  const Plan plan = plan_of({2, 2, 2});
  const Program program = lower(plan, graph, 0, {no_workspace, in_vectors});
  EXPECT_GT(std::ranges::count(program.body, Kernel::cross_entropy_partial, &Instruction::kernel), 0);
  EXPECT_THAT(rows_apart(program), testing::IsEmpty());
}

}  // namespace
}  // namespace strata::test_logit_rows

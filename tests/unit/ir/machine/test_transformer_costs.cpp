/// @file
/// The section [transformer_costs]: read back equal, every number asked for, contradictions named; runs that contradict
/// themselves.

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "ir/machine/transformer_costs.hpp"
#include "unit/cost/sample_transformer_costs.hpp"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// Every field differs from its default and from every other.
Cluster full_cluster() {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  double value = 0.01;
  for (const TransformerCostField& field : transformer_cost_fields()) costs.*field.value = value += 0.01;
  costs.recomputation_on_one_node = Recomputation::selective;
  costs.recomputation_on_many_nodes = Recomputation::full;
  costs.multiprocessors = 108;
  costs.layers = {{256, 8, 128, 1, 2, 0.5}, {256, 8, 128, 2, 1, 1.0 / 3.0}};
  return cluster;
}

TEST(TransformerCosts, ReadBackEqual) {
  const Cluster cluster = full_cluster();
  EXPECT_NO_THROW(verify(cluster));
  EXPECT_EQ(parse_cluster(to_text(cluster), "a.toml"), cluster);
}

TEST(TransformerCosts, EveryNumberIsAskedFor) {
  const std::string text = to_text(full_cluster());
  std::vector<std::string> keys = {"vocabulary_size", "recomputation_on_one_node", "recomputation_on_many_nodes",
                                   "dtype", "multiprocessors"};
  for (const TransformerCostField& field : transformer_cost_fields()) keys.emplace_back(field.key);
  for (const std::string& key : keys) {
    std::string without = text;
    const std::size_t at = without.find("\n" + key + " = ");
    ASSERT_NE(at, std::string::npos) << key;
    without.erase(at, without.find('\n', at + 1) - at);
    EXPECT_THAT(error_of([&] { parse_cluster(without, "a.toml"); }), AllOf(HasSubstr("a.toml"), HasSubstr(key)));
  }
}

TEST(TransformerCosts, ContradictionsAreNamed) {
  const auto message = [](auto change) {
    Cluster cluster = full_cluster();
    change(cluster, *cluster.transformer_costs);
    return error_of([&] { verify(cluster); });
  };
  EXPECT_THAT(message([](Cluster&, TransformerCosts& c) { c.product_share = 1.5; }),
              HasSubstr("product_share: 1.5 is out of range; accepted: > 0 and <= 1"));
  EXPECT_THAT(message([](Cluster&, TransformerCosts& c) { c.half_depth = 0.0; }), HasSubstr("half_depth: 0"));
  EXPECT_THAT(message([](Cluster&, TransformerCosts& c) { c.layers[1].ratio = 0.0; }), HasSubstr("layers[1].ratio"));
  EXPECT_THAT(message([](Cluster&, TransformerCosts& c) { std::swap(c.layers[0], c.layers[1]); }),
              HasSubstr("layers[1]: not after the one before it"));
  EXPECT_THAT(message([](Cluster&, TransformerCosts& c) { c.layers[1] = c.layers[0]; }), HasSubstr("layers[1]"));
  EXPECT_THAT(message([](Cluster& cluster, TransformerCosts&) {
                cluster.peak_flops_per_second = {{"f32", 1e12}};
              }),
              AllOf(HasSubstr("weightless"), HasSubstr("f16 is not in peak_flops_per_second")));
}

TEST(TransformerRun, ContradictionsAreNamed) {
  EXPECT_NO_THROW(verify(small_run()));
  const auto message = [](auto change) {
    TransformerRun run = small_run();
    change(run);
    return error_of([&] { verify(run); });
  };
  EXPECT_THAT(message([](TransformerRun& r) { r.layers = 0; }), HasSubstr("layers: 0"));
  EXPECT_THAT(message([](TransformerRun& r) { r.data = largest_run_count + 1; }), HasSubstr("data_parallelism"));
  EXPECT_THAT(message([](TransformerRun& r) { r.data = 3; }),
              HasSubstr("global_batch: 64 is no multiple of micro_batch x data_parallelism = 4 x 3"));
  EXPECT_THAT(message([](TransformerRun& r) { r.hidden_size = 257; }), HasSubstr("hidden_size: 257"));
  EXPECT_THAT(message([](TransformerRun& r) { r.tensor = 3; }), HasSubstr("attention_heads: 8"));
  EXPECT_THAT(message([](TransformerRun& r) { r.pipeline = 5; }), HasSubstr("layers: 12"));
  EXPECT_THAT(message([](TransformerRun& r) { r.virtual_stages = 2; }), HasSubstr("virtual_stages: 2 with one stage"));
}

}  // namespace
}  // namespace strata

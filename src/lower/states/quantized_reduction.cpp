#include "lower/states/quantized_reduction.hpp"

#include <algorithm>

#include "base/ceil_div.hpp"
#include "base/quantization.hpp"

namespace strata {
namespace {

/// Inside nodes first, then between them.
std::vector<QuantizedReduction::Hop> hops_of(const Factor& factor, const ShardGroups::Set& groups) {
  if (groups.on_node < 0) {
    return {{groups.across_nodes, factor.total(), factor.nodes, factor.nodes, 1}};
  }
  if (groups.across_nodes < 0) {
    return {{groups.on_node, factor.total(), factor.nodes, factor.in_node, 1}};
  }
  return {{groups.on_node, factor.total(), factor.nodes, factor.in_node, factor.nodes},
          {groups.across_nodes, factor.nodes, 1, factor.nodes, 1}};
}

int add_communicated(const std::string& name, std::int64_t num_elements, DType dtype, GradientSums& sums) {
  sums.buffers.push_back(
      {.name = name, .num_elements = num_elements, .dtype = dtype, .category = Category::communication});
  return static_cast<int>(sums.buffers.size()) - 1;
}

/// An operator in an item of the order, the first of whose reductions is number `first`.
struct Beginning {
  int item = -1;
  int op = -1;
  int first = 0;
};

/// By item: the next update that stands within backward, -1: none.
std::vector<int> next_updates(const StepOrder& order) {
  std::vector<int> next(order.items.size(), -1);
  int update = -1;
  for (int i = behind_last_pass(order); i-- > 0;) {
    next[static_cast<std::size_t>(i)] = update;
    if (order.items[static_cast<std::size_t>(i)].pass == Pass::update) update = i;
  }
  return next;
}

}  // namespace

QuantizedReductions quantized_reductions(const StepOrder& order, std::span<const GradientContribution> contributions,
                                         const Plan& plan, const ModelGraph& graph,
                                         std::span<const ParameterShard> shards, const ShardGroups& groups) {
  QuantizedReductions reductions;
  if (plan.quantization.gradients == "none") return reductions;
  std::vector<Beginning> beginnings;
  for (const GradientContribution& c : contributions) {
    if (!c.last_of_micro_batch || groups.of(c.parameter).parameter < 0) continue;
    const auto number = static_cast<int>(reductions.all.size());
    if (beginnings.empty() || beginnings.back().item != c.item || beginnings.back().op != c.op) {
      beginnings.push_back({c.item, c.op, number});
    }
    const auto p = static_cast<std::size_t>(c.parameter);
    const Factor& factor = shards[p].factors.p;
    reductions.beginning[{c.item, c.parameter}] = number;
    reductions.all.push_back({.parameter = c.parameter,
                              .name = graph.parameters[p].name,
                              .chunk = ceil_div(graph.parameters[p].num_elements(), factor.total()),
                              .hops = hops_of(factor, groups.of(c.parameter))});
  }
  if (plan.overlap.reduce_scatter == "none") return reductions;

  // A hop is added up one beginning behind the one before it. Where an update comes first, or the end of backward, all
  // that is left is added up there, in the same order.
  constexpr std::size_t most_hops = 2;
  const std::vector<int> updates = next_updates(order);
  const std::size_t num = beginnings.size();
  for (std::size_t at = 1; at < num + most_hops; ++at) {
    for (std::size_t from = at - std::min(at, most_hops); from < std::min(at, num); ++from) {
      const int update = updates[static_cast<std::size_t>(beginnings[from].item)];
      const bool is_in_time = at < num && (update < 0 || beginnings[at].item < update);
      std::vector<QuantizedReductions::Sum>& place =
          is_in_time    ? reductions.behind_operator[{beginnings[at].item, beginnings[at].op}]
          : update >= 0 ? reductions.before_item[update]
                        : reductions.behind_backward;
      const int end = from + 1 < num ? beginnings[from + 1].first : static_cast<int>(reductions.all.size());
      const auto hop = static_cast<int>(at - from) - 1;
      for (int r = beginnings[from].first; r < end; ++r) {
        if (hop < std::ssize(reductions.all[static_cast<std::size_t>(r)].hops)) place.push_back({r, hop});
      }
    }
  }
  return reductions;
}

int exchange(const QuantizedReduction& reduction, int hop, const Operand& x, const Quantization& quantization,
             GradientSums& sums) {
  const QuantizedReduction::Hop& of = reduction.hops[static_cast<std::size_t>(hop)];
  const int bits = quantization.gradients == "int4" ? 4 : 8;
  const std::int64_t bytes = of.num_packed * quantized_bytes(reduction.chunk, bits, quantization.block);
  const int packed = add_communicated(reduction.name + "/gradient_quantized", bytes, DType::u8, sums);
  const int received = add_communicated(reduction.name + "/gradient_received", bytes, DType::u8, sums);
  sums.actions.push_back({.kind = GradientAction::Kind::quantize,
                          .parameter = reduction.parameter,
                          .from = x,
                          .to = sums.whole(packed),
                          .chunks = {.size = reduction.chunk, .number = of.num_packed, .nodes = of.nodes}});
  sums.actions.push_back({.kind = GradientAction::Kind::all_to_all,
                          .parameter = reduction.parameter,
                          .from = sums.whole(packed),
                          .to = sums.whole(received),
                          .group = of.group});
  return received;
}

int add_up(const QuantizedReduction& reduction, int hop, int received, const Operand& own, bool accumulate,
           const Quantization& quantization, GradientSums& sums) {
  const QuantizedReduction::Hop& of = reduction.hops[static_cast<std::size_t>(hop)];
  const bool is_last = hop + 1 == std::ssize(reduction.hops);
  const Operand sum = is_last ? own
                              : sums.whole(add_communicated(reduction.name + "/gradient_of_node",
                                                            of.num_summed * reduction.chunk, DType::f32, sums));
  if (sum.num_elements == 0) return -1;  // nothing of it is this rank's
  sums.actions.push_back({.kind = GradientAction::Kind::dequantize,
                          .parameter = reduction.parameter,
                          .from = sums.whole(received),
                          .to = sum,
                          .chunks = {.size = reduction.chunk,
                                     .number = of.num_summed,
                                     .pieces = of.pieces,
                                     .accumulate = is_last && accumulate}});
  return is_last ? -1 : exchange(reduction, hop + 1, sum, quantization, sums);
}

}  // namespace strata

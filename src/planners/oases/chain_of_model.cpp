#include "planners/oases/chain_of_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/ceil_div.hpp"
#include "base/collective.hpp"
#include "base/error.hpp"
#include "planners/layouts/megatron_layouts.hpp"
#include "planners/search/few_blocks.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Of the layers whose output is a sum over tensor ranks.
std::vector<bool> are_summed(const LayerChain& layers, const Factor& grid) {
  std::vector<bool> summed;
  for (const Layout& layout : megatron_layouts(layers, grid, grid)) summed.push_back(layout.p2.total() > 1);
  return summed;
}

/// What one operator does in a step of one sub-batch, alone.
struct OperatorPrices {
  double forward = 0.0, backward = 0.0;          ///< kernels; backward: recomputation too
  double forward_sum = 0.0, backward_sum = 0.0;  ///< collectives; backward: recomputation's too
};

using PricesByName = std::map<std::string, OperatorPrices, std::less<>>;

/// The whole model's request for a part of it, of one micro-batch.
PlanRequest request_of_part(const PlanRequest& request, const ModelGraph& part) {
  PlanRequest of_part{.graph = part,
                      .cluster = request.cluster,
                      .base = request.base,
                      .options = request.options,
                      .leaf_of_node = request.leaf_of_node,
                      .evaluate = request.evaluate,
                      .measured_costs = request.measured_costs,
                      .measured_links = request.measured_links};
  of_part.base.global_batch /= of_part.base.schedule.micro_batches;
  of_part.base.schedule.micro_batches = 1;
  return of_part;
}

/// What a Program has that no pass of one micro-batch has.
struct StepShare {
  std::int64_t live_bytes = 0;
  double seconds = 0.0;  ///< sums of gradients and updates
};

/// One degree for all of the model, in Programs of few blocks.
struct PricedDegree {
  PricesByName prices;
  StepShare of_part;                  ///< of two blocks a run
  std::vector<StepShare> of_block{};  ///< by run: what one more adds; nothing of a run that is whole in the part
};

StepShare share_of(const PricedStep& step) {
  StepShare share{.live_bytes = step.live_bytes};
  for (const PricedInstruction& in : step.instructions) {
    if (in.phase == Phase::reduce || in.phase == Phase::update) share.seconds += in.seconds;
  }
  return share;
}

class Pricing {
 public:
  Pricing(const PlanRequest& request, const LayoutPlanning& planning, const ChainNodes& nodes, int sub_batches,
          ChainCosts costs, const PlanOfPart& plan_of)
      : request_(request),
        planning_(planning),
        nodes_(nodes),
        blocks_(request.graph),
        sub_batches_(sub_batches),
        costs_(costs),
        plan_of_(plan_of) {}

  PricedDegree degree(const NodeChoice& option) const {
    PricedDegree priced;
    const PricedStep few = step(option, -1);
    priced.of_part = share_of(few);
    for (std::size_t r = 0; r < blocks_.runs().size(); ++r) {
      const int run = static_cast<int>(r);
      StepShare& added = priced.of_block.emplace_back();
      if (!blocks_.has_third(run)) continue;
      added = share_of(step(option, run));
      added.live_bytes -= priced.of_part.live_bytes;
      added.seconds -= priced.of_part.seconds;
    }
    for (const PricedInstruction& in : few.instructions) add(in, option.tensor, priced.prices);
    return priced;
  }

  /// @p degree by node. The step's own bytes, which no node has, are the last one's.
  std::vector<ChainChoice> choices(const PricedDegree& degree, const Factor& tensor) const {
    std::vector<ChainChoice> choices(nodes_.size());
    for (std::size_t o = 0; o < request_.graph.operators.size(); ++o) {
      const auto found = degree.prices.find(blocks_.stands_for(static_cast<int>(o)).name);
      if (found == degree.prices.end()) continue;
      ChainChoice& own = choices[index(nodes_.of_operator[o])];
      own.forward.compute += found->second.forward;
      own.forward.communication += found->second.forward_sum;
      own.backward.communication += found->second.backward_sum;
      choices[index(nodes_.of_operator_backward[o])].backward.compute += found->second.backward;
    }
    costs_ == ChainCosts::authors ? authors_bytes(tensor, choices) : deal_out(degree, tensor, choices);
    return choices;
  }

  /// Between a node of degree @p from and the next of degree @p to.
  GatherSeconds gather(std::size_t node, const Factor& from, const Factor& to, const ChainChoice& before,
                       const ChainChoice& after) const {
    if (from == to) return {};
    const bool rises = to.total() > from.total();
    const Factor &larger = rises ? to : from, &smaller = rises ? from : to;
    const double ratio = static_cast<double>(larger.total()) / smaller.total();
    double seconds = 0.0;
    if (costs_ == ChainCosts::authors) {
      seconds = 0.5 * ratio * (rises ? before.forward.communication : after.backward.communication);
    } else {
      const double samples = static_cast<double>(ceil_div(planning_.limits().samples, std::int64_t{sub_batches_}));
      const double gathered = samples * static_cast<double>(nodes_.behind[node].elements) * larger.total() /
                              planning_.grid().total() * static_cast<double>(size_of(request_.base.dtypes.compute));
      const Factor group = quotient(larger, smaller);
      std::vector<int> devices;
      for (int member = 0; member < group.in_node; ++member) devices.push_back(member * smaller.in_node);
      seconds =
          planning_.costs().links().seconds(Collective::all_gather, gathered * (ratio - 1.0) / ratio, group, devices);
    }
    return rises ? GatherSeconds{.forward = seconds} : GatherSeconds{.backward = seconds};
  }

 private:
  PricedStep step(const NodeChoice& option, int larger_run) const {
    const ModelGraph part = blocks_.part(larger_run);
    const PlanRequest of_part = request_of_part(request_, part);
    const LayoutPlanning planning(of_part, {}, MatmulAlgorithm::local, PartialSums::all_reduce);
    const NodePlan uniform{.layouts = megatron_layouts(planning.chain(), planning.grid(), option.tensor),
                           .keeps = std::vector<bool>(part.operators.size(), option.keeps)};
    const Plan plan = plan_of_(of_part, planning, uniform, sub_batches_);
    PricedStep priced = request_.evaluate->price(plan, part);
    if (!priced.missing.empty()) throw Unsupported(priced.missing);
    return priced;
  }

  void add(const PricedInstruction& in, const Factor& tensor, PricesByName& prices) const {
    const bool is_forward = in.phase == Phase::forward;
    const bool is_pass = is_forward || in.phase == Phase::recompute || in.phase == Phase::backward;
    if (!is_pass || in.micro_batch != 0) return;
    OperatorPrices& of = prices[in.name.substr(0, in.name.find('/'))];
    if (!in.is_collective) {
      (is_forward ? of.forward : of.backward) += in.seconds;
      return;
    }
    double& sums = is_forward ? of.forward_sum : of.backward_sum;
    const LinkCosts& links = planning_.costs().links();
    const auto sent = static_cast<double>(in.bytes_sent);
    if (costs_ == ChainCosts::authors && in.place.shape.total() == tensor.total()) {
      // The authors profile a sum over all ranks, of as many bytes.
      const auto share = [](const Factor& ranks) { return 1.0 - 1.0 / ranks.total(); };
      const Factor& all = planning_.grid();
      sums += links.seconds(in.collective, sent * share(all) / share(in.place.shape), all);
    } else {
      sums += links.seconds(in.collective, sent, in.place.shape, in.place.devices);
    }
  }

  /// What lasts of a node's layers, to share by.
  std::vector<std::int64_t> lasting_bytes(const Factor& tensor) const {
    const LayerChain& layers = planning_.chain();
    const std::vector<Layout> layouts = megatron_layouts(layers, planning_.grid(), tensor);
    std::vector<std::int64_t> bytes(nodes_.size());
    for (std::size_t l = 0; l < layers.layers.size(); ++l) {
      bytes[index(nodes_.of_layer[l])] += planning_.lasting_bytes().of(layers.layers[l], layouts[l]);
    }
    return bytes;
  }

  /// Bytes, and seconds of a step, to nodes: what a block more adds is shared by its nodes as what lasts of them is;
  /// the rest is the last node's.
  void deal_out(const PricedDegree& degree, const Factor& tensor, std::vector<ChainChoice>& choices) const {
    const std::vector<std::int64_t> lasting = lasting_bytes(tensor);
    std::map<int, std::int64_t> of_block;
    for (std::size_t i = 0; i < choices.size(); ++i) of_block[nodes_.block[i]] += lasting[i];
    const auto micro_batches = static_cast<double>(request_.base.schedule.micro_batches);
    StepShare rest = degree.of_part;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const int run = nodes_.block[i] < 0 ? -1 : blocks_.run_of_block(nodes_.block[i]);
      const bool is_added = run >= 0 && blocks_.has_third(run);
      StepShare own{.live_bytes = lasting[i]};
      if (is_added) {
        const StepShare& added = degree.of_block[index(run)];
        const double part = static_cast<double>(lasting[i]) / static_cast<double>(of_block[nodes_.block[i]]);
        own = {.live_bytes = static_cast<std::int64_t>(part * static_cast<double>(added.live_bytes)),
               .seconds = std::max(0.0, part * added.seconds)};
      }
      choices[i].resident_bytes = own.live_bytes;
      choices[i].step_seconds = own.seconds / micro_batches;
      if (run >= 0 && !blocks_.is_in_part(nodes_.block[i])) continue;
      rest.live_bytes -= own.live_bytes;
      rest.seconds -= own.seconds;
    }
    for (ChainChoice& choice : choices) choice.runtime_bytes = std::max<std::int64_t>(0, rest.live_bytes);
    choices.back().step_seconds += std::max(0.0, rest.seconds) / micro_batches;
  }

  /// Twenty bytes a parameter, of which matrices are cut, and twelve a saved element of a micro-batch.
  void authors_bytes(const Factor& tensor, std::vector<ChainChoice>& choices) const {
    const LayerChain& layers = planning_.chain();
    for (std::size_t l = 0; l < layers.layers.size(); ++l) {
      const Layer& layer = layers.layers[l];
      choices[index(nodes_.of_layer[l])].resident_bytes +=
          20 * (layer.matrix_elements() / tensor.total() + layer.parameters - layer.matrix_elements());
    }
    for (std::size_t i = 0; i + 1 < choices.size(); ++i) {
      choices[i].resident_bytes +=
          12 * nodes_.behind[i].elements * planning_.limits().samples * tensor.total() / planning_.grid().total();
    }
  }

  const PlanRequest& request_;
  const LayoutPlanning& planning_;
  const ChainNodes& nodes_;
  FewBlocks blocks_;
  int sub_batches_;
  ChainCosts costs_;
  const PlanOfPart& plan_of_;
};

/// What stands outside of blocks has the degree of the block beside it, unless it is a head that has the table's.
bool may_differ(const ChainNodes& nodes, std::size_t node) {
  if (nodes.ends_share_a_weight && node + 2 == nodes.size()) return true;
  return nodes.block[node] >= 0 && nodes.block[node + 1] >= 0;
}

}  // namespace

ChainNodes chain_nodes(const ModelGraph& graph, const LayerChain& layers, const Factor& grid) {
  const std::vector<bool> summed = are_summed(layers, grid);
  ChainNodes nodes;
  std::vector<int> ends;  // operators
  for (std::size_t l = 0; l < summed.size(); ++l) {
    if (!summed[l]) continue;
    const Layer& layer = layers.layers[l];
    ends.push_back(layer.op);
    nodes.names.push_back(layer.name);
    nodes.block.push_back(layer.block);
    nodes.behind.push_back({.elements = layer.rows * layer.out});
  }
  if (ends.empty()) throw Unsupported(fmt::format("{} has no product whose sum tensor ranks share", graph.name));
  const int last = static_cast<int>(graph.operators.size()) - 1;
  if (ends.back() != last) {
    ends.push_back(last);
    nodes.names.push_back(graph.operators.back().name);
    nodes.block.push_back(graph.operators.back().block);
  } else {
    nodes.behind.pop_back();
  }
  std::vector<bool> is_layer(graph.operators.size());
  for (const Layer& layer : layers.layers) is_layer[index(layer.op)] = true;
  int node = 0;
  bool is_behind_product = false;
  for (int op = 0; op <= last; ++op) {
    is_behind_product = is_behind_product || is_layer[index(op)];
    nodes.of_operator.push_back(node);
    nodes.of_operator_backward.push_back(is_behind_product ? node : std::max(0, node - 1));
    if (op == ends[index(node)]) ++node, is_behind_product = false;
  }
  for (const Layer& layer : layers.layers) nodes.of_layer.push_back(nodes.of_operator[index(layer.op)]);
  nodes.ends_share_a_weight = layers.layers.back().tied_weight >= 0 && nodes.block.back() < 0;
  return nodes;
}

NodePlan node_plan(const LayoutPlanning& planning, const ChainNodes& nodes, std::span<const NodeChoice> options,
                   std::span<const int> choices) {
  const auto option_of = [&](int node) -> const NodeChoice& { return options[index(choices[index(node)])]; };
  std::vector<Factor> of_layers;
  for (const int node : nodes.of_layer) of_layers.push_back(option_of(node).tensor);
  NodePlan plan{.layouts = megatron_layouts(planning.chain(), planning.grid(), of_layers)};
  const std::vector<Operator>& operators = planning.request().graph.operators;
  for (std::size_t o = 0; o < operators.size(); ++o) {
    // The addition behind a block's last sum begins the next node's compute, and is still the block's.
    const int node = nodes.of_operator[o], block = operators[o].block;
    const bool is_of_node_before =
        node > 0 && block >= 0 && nodes.block[index(node)] != block && nodes.block[index(node - 1)] == block;
    plan.keeps.push_back(option_of(is_of_node_before ? node - 1 : node).keeps);
  }
  return plan;
}

Chain chain_of_model(const PlanRequest& request, const LayoutPlanning& planning, const ChainNodes& nodes,
                     std::span<const NodeChoice> options, int sub_batches, ChainCosts costs,
                     const PlanOfPart& plan_of) {
  const Pricing pricing(request, planning, nodes, sub_batches, costs, plan_of);
  Chain chain{.sub_batches = sub_batches, .ends_agree = nodes.ends_share_a_weight};
  chain.nodes.resize(nodes.size());
  for (const NodeChoice& option : options) {
    const std::vector<ChainChoice> choices = pricing.choices(pricing.degree(option), option.tensor);
    for (std::size_t i = 0; i < nodes.size(); ++i) chain.nodes[i].push_back(choices[i]);
  }
  chain.gathers.resize(nodes.size() - 1);
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    for (std::size_t a = 0; a < options.size(); ++a) {
      for (std::size_t b = 0; b < options.size(); ++b) {
        chain.gathers[i].push_back(
            options[a].tensor != options[b].tensor && !may_differ(nodes, i)
                ? GatherSeconds{impossible_seconds, impossible_seconds}
                : pricing.gather(i, options[a].tensor, options[b].tensor, chain.nodes[i][a], chain.nodes[i + 1][b]));
      }
    }
  }
  return chain;
}

}  // namespace strata

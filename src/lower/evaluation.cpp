#include "lower/evaluation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace strata {
namespace {

/// Goes through a model operator by operator.
class Rewriting {
 public:
  explicit Rewriting(const ModelGraph& graph) : from_(graph), place_(graph.tensors.size(), -1) {}

  ModelGraph run() && {
    to_.name = from_.name;
    to_.parameters = from_.parameters;
    to_.positions_per_sample = from_.positions_per_sample;
    to_.blocks = from_.blocks;
    for (Block& block : to_.blocks) block.num_operators = 0;
    for (const Operator& op : from_.operators) add(op);
    verify(to_);
    return std::move(to_);
  }

 private:
  /// Of a tensor of the model that is there.
  int tensor(int t) {
    int& place = place_[static_cast<std::size_t>(t)];
    if (place < 0) place = new_tensor(from_.tensors[static_cast<std::size_t>(t)]);
    return place;
  }
  int new_tensor(Tensor description) {
    to_.tensors.push_back(std::move(description));
    return static_cast<int>(to_.tensors.size()) - 1;
  }

  void add(Operator op) {
    if (op.kind == OperatorKind::dropout) {
      place_[static_cast<std::size_t>(op.outputs.front())] = tensor(op.inputs.front());
      return;
    }
    if (op.kind == OperatorKind::attention) op.attributes.set("dropout", 0.0);
    if (op.kind == OperatorKind::batch_norm) op.outputs.pop_back();  // statistics of the batch
    for (int& t : op.inputs) t = tensor(t);
    for (int& t : op.outputs) t = tensor(t);
    if (op.kind == OperatorKind::batch_norm) normalise_by_what_is_kept(op);
    if (op.kind == OperatorKind::cross_entropy) {
      const Tensor loss = to_.tensors[static_cast<std::size_t>(op.outputs.front())];
      op.kind = OperatorKind::top_k;
      for (const char* name : {".top_1", ".top_5"}) {
        Tensor rows = loss;
        rows.name = op.name + name;
        op.outputs.push_back(new_tensor(std::move(rows)));
      }
    }
    if (op.block >= 0) {
      Block& block = to_.blocks[static_cast<std::size_t>(op.block)];
      if (block.num_operators++ == 0) block.first_operator = static_cast<int>(to_.operators.size());
    }
    to_.operators.push_back(std::move(op));
  }

  void normalise_by_what_is_kept(Operator& op) {
    op.kind = OperatorKind::batch_norm_inference;
    op.attributes = {{"channels", op.attributes.integer("channels")}, {"epsilon", op.attributes.real("epsilon")}};
    for (const char* name : {".running_mean", ".running_variance"}) {
      op.parameters.push_back(static_cast<int>(to_.parameters.size()));
      to_.parameters.push_back(
          {.name = op.name + name, .shape = {op.attributes.integer("channels")}, .initializer = {}});
    }
  }

  const ModelGraph& from_;
  ModelGraph to_;
  std::vector<int> place_;  ///< by tensor of the model: which it is in evaluation, -1: none yet
};

}  // namespace

ModelGraph evaluation_graph(const ModelGraph& graph) { return Rewriting(graph).run(); }

Plan evaluation_plan(const Plan& training, std::int64_t samples) {
  Plan plan;
  plan.strategy = "evaluation";
  plan.mesh = {.nodes = training.mesh.nodes,
               .ranks_per_node = training.mesh.ranks_per_node,
               .axes = {{"data", training.mesh.num_ranks()}}};
  plan.global_batch = samples;
  plan.seed = training.seed;
  plan.optimizer.kind = "sgd";
  plan.optimizer.momentum = 0.0;
  const Factor all{training.mesh.ranks_per_node, training.mesh.nodes};
  plan.operators = {{.match = "*", .state = StateFactors{.p = all, .g = all, .os = all}}};
  return plan;
}

Program lower_evaluation(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels) {
  const OrderGenerator training = order_generator_of(plan);
  return lower(plan, graph, rank, kernels, [&](const StepShape& shape, const StepPart& part) {
    StepOrder order = training(shape, part);
    std::erase_if(order.items, [](const OrderItem& item) { return item.pass != Pass::forward; });
    return order;
  });
}

}  // namespace strata

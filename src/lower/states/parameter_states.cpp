#include "lower/states/parameter_states.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/collective.hpp"
#include "base/error.hpp"
#include "lower/states/replica_sums.hpp"
#include "lower/step/streams.hpp"

namespace strata {

namespace {

RingOfSums sums_on(const RingLinks& links, const StepShape& shape) {
  const ReplicaRing& ring = links.ring;
  const auto peer_from = [&](int rank) {
    return rank < 0 ? RingOfSums::Peer{} : RingOfSums::Peer{rank, links.stream_of_sums(rank, ring.replica)};
  };
  const auto peer_to = [&](int rank) {
    return rank < 0 ? RingOfSums::Peer{} : RingOfSums::Peer{rank, links.stream_of_sums(ring.replica, rank)};
  };
  RingOfSums sums{.group = links.sums_group, .from = peer_from(ring.sums_from()), .to = peer_to(ring.sums_to())};
  for (int j = 0; j < shape.num_stages(); ++j) {
    for (const int p : parameters_of_stage(shape, j)) {
      if (const int from = ring.whole_sum_from(j); from >= 0) sums.whole_from[p] = peer_from(from);
      if (const int to = ring.whole_sum_to(j); to >= 0) sums.whole_to[p] = peer_to(to);
      // Of three backwards one after the other one sum comes, one is added to and one goes on.
      if (ring.parameters_walk) sums.slots[p] = (shape.num_stages() - 1 - j) % 3;
    }
  }
  return sums;
}

GradientSums sums_of_order(const StepOrder& order, int step, const Plan& plan, const ModelGraph& graph,
                           std::span<const ParameterShard> shards, const ShardGroups& groups,
                           const std::map<int, Copies>& copies, const RingLinks* ring, const ReplicaLinks* replicas) {
  const std::vector<GradientContribution> contributions = gradient_contributions(order, graph);
  const GradientBuckets buckets = gradient_buckets(plan, order, contributions, shards, groups, copies);
  if (replicas != nullptr) return replica_sums(order, step, contributions, buckets, plan, shards, *replicas);
  std::optional<RingOfSums> sums;
  if (ring != nullptr) sums = sums_on(*ring, order.shape);
  return gradient_sums(order, contributions, buckets, plan, graph, shards, groups, copies, sums ? &*sums : nullptr);
}

}  // namespace

ParameterStates::ParameterStates(const Plan& plan, const ModelGraph& graph, const StepOrder& order, int step,
                                 std::span<const SegmentRecomputation> recomputation, const HeldParameters& held,
                                 const ParameterGroups& groups, const RingLinks* ring, const ReplicaLinks* replicas,
                                 ProgramBuilder& builder)
    : plan_(plan),
      graph_(graph),
      step_(step),
      held_(held),
      groups_(groups),
      builder_(builder),
      gathers_(plan, graph, order, step, parameter_gathers(order, recomputation, plan, graph, held.groups), held,
               builder),
      gradients_(plan, graph,
                 sums_of_order(order, step, plan, graph, held.shards, held.groups, groups.copies, ring, replicas),
                 builder),
      has_sums_(ring == nullptr || ring->ring.is_last()) {}

/// @return the buffer of the factor that clips.
int ParameterStates::gradient_norm(const Place& here) {
  const auto scalar = [&](const char* name, bool persistent) {
    return builder_.add_buffer(
        {.name = name, .num_elements = 1, .category = Category::workspace, .persistent = persistent});
  };
  const int sum = scalar("gradient_norm/sum_of_squares", false);
  const int factor = scalar("gradient_norm/factor", false);
  const int norm = builder_.norm() >= 0 ? builder_.norm() : scalar("gradient_norm", true);
  if (groups_.num_copies.empty()) {
    sum_over_groups(here, sum);
  } else {
    sum_over_everybody(here, sum);
  }
  here.emit({.kernel = Kernel::clip_factor,
             .phase = Phase::update,
             .name = "gradient_norm",
             .inputs = {builder_.whole(sum)},
             .outputs = {builder_.whole(factor), builder_.whole(norm)},
             .attributes = {{"clip_norm", plan_.optimizer.clip_norm}}});
  builder_.set_norm(norm);
  return factor;
}

void ParameterStates::sum_over_groups(const Place& here, int sum) {
  const std::vector<GradientSums::Counted> counted = gradients_.counted();
  // What every rank has in full comes first; then one sum a way of sharding, over the ranks that share it.
  std::vector<int> sharded_over;
  for (const auto& part : counted) {
    if (part.group >= 0 && std::ranges::find(sharded_over, part.group) == sharded_over.end()) {
      sharded_over.push_back(part.group);
    }
  }
  add_squares(here, counted, -1, sum);
  for (const int group : sharded_over) {
    const int shared =
        builder_.add_buffer({.name = "gradient_norm/sharded", .num_elements = 1, .category = Category::workspace});
    add_squares(here, counted, group, shared);
    all_reduce_norm(here, shared, group);
    here.emit({.kernel = Kernel::accumulate,
               .phase = Phase::update,
               .name = "gradient_norm",
               .inputs = {builder_.whole(shared)},
               .outputs = {builder_.whole(sum)},
               .attributes = {{"elements", std::int64_t{1}}}});
  }
  if (groups_.stages >= 0) all_reduce_norm(here, sum, groups_.stages);
}

/// Every rank counts what it has, each part by its share: all of them together count it once.
void ParameterStates::sum_over_everybody(const Place& here, int sum) {
  std::map<std::int64_t, std::vector<GradientSums::Counted>> by_copies;
  for (const int p : gradients_.parameters()) {
    const std::int64_t copies = groups_.num_copies[static_cast<std::size_t>(p)] / shard(p).factors.os.total();
    by_copies[copies].push_back({gradients_.reduced(p), -1, graph_.parameters[static_cast<std::size_t>(p)].name});
  }
  bool accumulate = false;
  for (const auto& [copies, parts] : by_copies) {
    const int copied =
        builder_.add_buffer({.name = "gradient_norm/copied", .num_elements = 1, .category = Category::workspace});
    add_squares(here, parts, -1, copied);
    here.emit({.kernel = Kernel::sum_loss,  // a sum with a factor
               .phase = Phase::update,
               .name = "gradient_norm",
               .inputs = {builder_.whole(copied)},
               .outputs = {builder_.whole(sum)},
               .attributes = {{"elements", std::int64_t{1}},
                              {"scale", 1.0 / static_cast<double>(copies)},
                              {"accumulate", std::int64_t{accumulate ? 1 : 0}}}});
    accumulate = true;
  }
  all_reduce_norm(here, sum, groups_.everybody);
}

/// The sum of squares of the parts that @p group shares; 0 where there are none.
void ParameterStates::add_squares(const Place& here, std::span<const GradientSums::Counted> parts, int group, int sum) {
  bool accumulate = false;
  for (const auto& part : parts) {
    if (part.group != group || part.operand.num_elements == 0) continue;
    here.emit(
        {.kernel = Kernel::sum_of_squares,
         .phase = Phase::update,
         .name = part.name,
         .inputs = {part.operand},
         .outputs = {builder_.whole(sum)},
         .attributes = {{"elements", part.operand.num_elements}, {"accumulate", std::int64_t{accumulate ? 1 : 0}}}});
    accumulate = true;
  }
  if (accumulate) return;
  here.emit({.kernel = Kernel::fill,
             .phase = Phase::update,
             .name = "gradient_norm",
             .outputs = {builder_.whole(sum)},
             .attributes = {{"elements", std::int64_t{1}}, {"value", 0.0}}});
}

void ParameterStates::all_reduce_norm(const Place& here, int sum, int group) {
  here.emit({.kernel = Kernel::none,
             .collective = Collective::all_reduce,
             .group = group,
             .stream = communication_stream,
             .phase = Phase::update,
             .name = "gradient_norm",
             .inputs = {builder_.whole(sum)},
             .outputs = {builder_.whole(sum)}});
}

void ParameterStates::update(const Place& here, std::span<const int> parameters) {
  const int factor = plan_.optimizer.clip_norm > 0.0 && has_sums_ ? gradient_norm(here) : -1;
  std::vector<int> updated;
  for (const int p : gradients_.parameters()) {
    if (std::ranges::find(parameters, p) != parameters.end()) updated.push_back(p);
  }
  for (const std::vector<int>& message : gathers_.messages_of(updated)) {
    for (const int p : message) emit_update(here, p, factor);
    if (!spreads_late()) gathers_.spread(here, message, 0);
  }
}

void ParameterStates::emit_update(const Place& here, int parameter, int factor_buffer) {
  const ParameterBuffers::Owned& owned = held_.buffers.of(parameter);
  const Operand before = held_.buffers.master(parameter, step_);
  const Operand master = held_.buffers.master(parameter, step_ + 1);
  const Piece& updated = shard(parameter).updated;
  if (updated.size == 0) return;
  const Parameter& description = graph_.parameters[static_cast<std::size_t>(parameter)];
  const OptimizerPlan& optimizer = plan_.optimizer;
  if (before != master) {  // it is updated in place, and its last version is still read
    here.emit({.kernel = Kernel::copy,
               .phase = Phase::update,
               .name = description.name,
               .inputs = {before},
               .outputs = {master},
               .attributes = {{"elements", updated.size}}});
  }
  Instruction in{.phase = Phase::update, .name = description.name};
  in.inputs = {gradients_.reduced(parameter)};
  if (factor_buffer >= 0) {
    in.inputs.push_back(builder_.whole(factor_buffer));
  }
  in.outputs = {master};
  for (const int state : owned.states) {
    in.outputs.push_back(builder_.whole(state));
  }
  if (held_.buffers.mixed()) {
    in.outputs.push_back({held_.buffers.weight(parameter, step_ + 1), updated.begin, updated.size});
  }
  in.attributes = {{"elements", updated.size},
                   {"weight_decay", description.weight_decay ? optimizer.weight_decay : 0.0}};
  if (optimizer.kind == "sgd") {
    in.kernel = owned.states.empty() ? Kernel::sgd : Kernel::sgd_momentum;
    if (!owned.states.empty()) {
      in.attributes.set("momentum", optimizer.momentum);
    }
  } else {
    in.kernel = Kernel::adam;
    in.attributes.set("beta1", optimizer.beta1);
    in.attributes.set("beta2", optimizer.beta2);
    in.attributes.set("epsilon", optimizer.epsilon);
    in.attributes.set("decoupled", optimizer.kind == "adamw" ? 1 : 0);
  }
  here.emit(std::move(in));
}

}  // namespace strata

#include "lower/unsupported.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "lower/layouts/layout_axes.hpp"
#include "lower/order/cyclic.hpp"
#include "lower/order/order_writer.hpp"
#include "lower/order/pyramid.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"
#include "partition/stages_of_places.hpp"
#include "partition/walking_parameters.hpp"

namespace strata {
namespace {

/// What cannot be combined with tensor layouts yet.
void refuse_beside_layouts(const Plan& plan, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} with tensor layouts cannot be lowered", plan.strategy, what));
  };
  if (plan.quantization.any()) refuse("quantization");
  if (plan.mesh.placement != "block") refuse(fmt::format("mesh.placement = {}", plan.mesh.placement));
  if (plan.stages.count > 1 && plan.stages.cut_at != "block") {
    refuse(fmt::format("stages.cut_at = {} of {} stages", plan.stages.cut_at, plan.stages.count));
  }
  for (const OperatorDecision& d : decisions) {
    if (!d.slice_state.empty() || d.slices > 1) refuse(fmt::format("slices = {}", d.slices));
  }
}

/// What ranks of whole replicas do, and neither those of a pyramid nor those between which parameters walk.
void refuse_without_whole_replicas(const Plan& plan) {
  if (plan.mesh.placement != "pyramid" && plan.mesh.placement != "zero-ring") return;
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: schedule.kind = cyclic with mesh.placement = {} and {} cannot be lowered",
                                  plan.strategy, plan.mesh.placement, what));
  };
  const Schedule& schedule = plan.schedule;
  if (plan.optimizer.clip_norm > 0.0) {
    refuse(
        fmt::format("optimizer.clip_norm = {}: stages are updated one after the other, before all gradients are "
                    "there,",
                    plan.optimizer.clip_norm));
  }
  if (schedule.shift != "free") {
    refuse(fmt::format("schedule.shift = {}, which is a distance of whole replicas,", schedule.shift));
  }
  if (schedule.updater != "last") {
    refuse(fmt::format("schedule.optimizer = {}, where it is settled who updates a stage,", schedule.updater));
  }
}

/// Ranks that keep a distance (schedule.shift) do so in a ring, over whose passes they stand evenly.
void refuse_shifts_without_a_ring(const Plan& plan, int replicas) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: schedule.shift = {} with {} cannot be lowered", plan.strategy,
                                  plan.schedule.shift, what));
  };
  if (plan.schedule.shift == "free") return;
  if (replicas == 1) refuse("mesh axis micro_batch = 1, which leaves no rank to keep behind,");
  if (2 * plan.stages.count % replicas != 0) {
    refuse(fmt::format("{} stages and {} micro-batches, each 2·{}/{} passes behind the one before, no whole number,",
                       plan.stages.count, replicas, plan.stages.count, replicas));
  }
}

/// Ranks that each update one stage, of whose parameters they are the first readers.
void refuse_other_first_users(const Plan& plan, int replicas) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.optimizer = first_user with {} cannot be lowered", plan.strategy, what));
  };
  if (plan.schedule.updater == "last") return;
  if (replicas == 1) refuse("mesh axis micro_batch = 1, which leaves no other rank to update,");
  if (plan.stages.count != replicas) {
    refuse(fmt::format("{} stages on {} ranks, of which each updates one,", plan.stages.count, replicas));
  }
  if (plan.optimizer.clip_norm > 0.0) {
    refuse(fmt::format("optimizer.clip_norm = {}, the norm for which the last rank alone knows,",
                       plan.optimizer.clip_norm));
  }
}

/// Where gradients are clipped, all of a step's have been made before any stage is updated.
void refuse_fresh_before_norm(const Plan& plan, const FreshTable& fresh) {
  if (plan.optimizer.clip_norm == 0.0) return;
  const FreshTable most = freshest_behind_norm(plan.schedule.micro_batches, plan.stages.count);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    for (std::size_t j = 0; j < fresh[i].size(); ++j) {
      if (fresh[i][j] <= most[i][j]) continue;
      throw Unsupported(fmt::format(
          "plan `{}`: schedule.kind = cyclic with optimizer.clip_norm = {} and micro-batch {} of {} at stage {} of {} "
          "reading its own step's parameters, which is before the last micro-batch has made the gradients "
          "of stage 0, and so before the norm is known, cannot be lowered",
          plan.strategy, plan.optimizer.clip_norm, i, fresh.size(), j, fresh[i].size()));
    }
  }
}

/// What cyclic steps, which overlap, cannot be combined with yet, or cannot be at all.
void refuse_in_cycles(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: schedule.kind = cyclic with {} cannot be lowered", plan.strategy, what));
  };
  const auto is_cut = [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); };
  if (has_layouts(plan.mesh)) {
    refuse(fmt::format("tensor layouts inside stages, {} ranks for {} of them,", plan.mesh.num_ranks(),
                       axis_size(plan.mesh, "stage")));
  }
  if (const int replicas = axis_size(plan.mesh, "data"); replicas > 1)
    refuse(fmt::format("mesh axis data = {}", replicas));
  const int rings = axis_size(plan.mesh, "micro_batch");
  if (rings > 1 && rings != plan.schedule.micro_batches) {
    refuse(fmt::format("mesh axis micro_batch = {} and {} micro-batches, not one a rank,", rings,
                       plan.schedule.micro_batches));
  }
  if (const int places = axis_size(plan.mesh, "stage"); rings > 1 && places > 1)
    refuse(fmt::format("mesh axes micro_batch = {} and stage = {}", rings, places));
  if (rings > 1 && plan.overlap.all_reduce == "none") refuse("overlap.all_reduce = none on a ring");
  if (std::ranges::any_of(decisions, is_cut)) refuse("sharded states");
  if (plan.overlap.update == "backward") refuse("overlap.update = backward, which its order does by itself,");
  refuse_without_whole_replicas(plan);
  refuse_shifts_without_a_ring(plan, rings);
  refuse_other_first_users(plan, rings);
  const bool waits_for_data = rings > 1 && plan.schedule.shift == "free" && !parameters_walk(plan);
  const bool is_paced = plan.schedule.shift != "free";
  const FreshTable fresh = fresh_table(plan.schedule, plan.stages.count);
  const FreshTable most = freshest(plan.schedule.micro_batches, plan.stages.count);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    for (std::size_t j = 0; j < fresh[i].size(); ++j) {
      if (waits_for_data || fresh[i][j] <= most[i][j]) continue;
      refuse(
          fmt::format("{}micro-batch {} of {} at stage {} of {} reading its own step's parameters, which are not there "
                      "before it begins,",
                      is_paced ? fmt::format("schedule.shift = {} and ", plan.schedule.shift) : "", i, fresh.size(), j,
                      fresh[i].size()));
    }
  }
  refuse_fresh_before_norm(plan, fresh);
  const auto users = stages_of_parameters(graph, cut_into_stages(graph, plan.stages));
  for (std::size_t p = 0; p < users.size(); ++p) {
    if (users[p].size() < 2) continue;
    refuse(fmt::format("{} in stages {} and {}, whose versions differ,", graph.parameters[p].name, users[p].front(),
                       users[p].back()));
  }
}

/// What a pipeline without a flush cannot be combined with yet.
void refuse_without_flush(const Plan& plan, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: schedule.kind = 2bw with {} cannot be lowered", plan.strategy, what));
  };
  const auto is_cut = [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); };
  if (plan.schedule.micro_batches < plan.stages.count) {
    refuse(fmt::format("{} micro-batches and {} stages, of which the first is {} ahead of its backwards,",
                       plan.schedule.micro_batches, plan.stages.count, plan.stages.count - 1));
  }
  if (has_layouts(plan.mesh)) refuse("tensor layouts");
  if (std::ranges::any_of(decisions, is_cut)) refuse("sharded states");
  if (plan.overlap.update == "backward") refuse("overlap.update = backward, which its order does by itself,");
  if (plan.optimizer.clip_norm > 0.0) {
    refuse(fmt::format("optimizer.clip_norm = {}: a stage is updated before the stages before it have all gradients,",
                       plan.optimizer.clip_norm));
  }
}

/// Where parameters walk, all of them do, on a ring of as many ranks as micro-batches and stages.
void refuse_to_walk(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} cannot be lowered", plan.strategy, what));
  };
  const bool on_ring = plan.mesh.placement == "zero-ring";
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (graph.operators[o].parameters.empty() || decisions[o].state.walks == on_ring) continue;
    refuse(fmt::format("{}: state {} with mesh.placement = {}", graph.operators[o].name,
                       on_ring ? "that stays" : "walks", plan.mesh.placement));
  }
  if (!on_ring) return;
  const int n = plan.mesh.num_ranks();
  if (plan.schedule.kind != ScheduleKind::cyclic || axis_size(plan.mesh, "micro_batch") != n) {
    refuse(fmt::format("mesh.placement = zero-ring with schedule.kind = {} and mesh axis micro_batch = {} of {} ranks",
                       to_string(plan.schedule.kind), axis_size(plan.mesh, "micro_batch"), n));
  }
  if (plan.schedule.micro_batches != n || plan.stages.count != n) {
    refuse(
        fmt::format("mesh.placement = zero-ring with {} micro-batches and {} stages on {} ranks, not one of each a "
                    "rank,",
                    plan.schedule.micro_batches, plan.stages.count, n));
  }
}

void refuse_on_pyramids(const Plan& plan) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} cannot be lowered", plan.strategy, what));
  };
  const auto pyramid = pyramid_of(plan.mesh);
  if (!pyramid) return;
  const Schedule& schedule = plan.schedule;
  const int n = pyramid->num_stages;
  if (schedule.kind != ScheduleKind::cyclic) {
    refuse(fmt::format("mesh.placement = pyramid with schedule.kind = {}", to_string(schedule.kind)));
  }
  if (schedule.micro_batches != n || plan.stages.count != n) {
    refuse(
        fmt::format("mesh.placement = pyramid with {} micro-batches and {} stages, where it stands on {} ranks for "
                    "{} of each,",
                    schedule.micro_batches, plan.stages.count, pyramid->num_ranks(), n));
  }
  if (schedule.spread == "direct") {
    refuse("mesh.placement = pyramid with schedule.spread = direct, where no parameters are sent,");
  }
  if (plan.overlap.all_reduce == "none") refuse("mesh.placement = pyramid with overlap.all_reduce = none");
  if (pyramid->steps_to_return(most_steps_of_a_pyramid) > most_steps_of_a_pyramid) {
    refuse(
        fmt::format("mesh.placement = pyramid of {} stages, whose replicas take the same micro-batches again after "
                    "more than {} training steps,",
                    n, most_steps_of_a_pyramid));
  }
}

/// Interleaved stages take as many micro-batches as ranks through one of a rank's stages before they turn to the next.
void refuse_uneven_rounds(const Plan& plan, int ranks) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.kind = interleaved with {} cannot be lowered", plan.strategy, what));
  };
  if (plan.schedule.micro_batches % ranks != 0) {
    refuse(fmt::format("{} micro-batches on {} ranks a pipeline, which take {} at once,", plan.schedule.micro_batches,
                       ranks, ranks));
  }
  if (ranks == 1 && plan.stages.count > 1) {
    refuse(fmt::format("{} stages on one rank, between which nothing is sent,", plan.stages.count));
  }
}

void refuse_passes_that_do_not_cross(const Plan& plan, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.cross_pass = true with {} cannot be lowered", plan.strategy, what));
  };
  if (plan.schedule.sub_batches == 1)
    refuse("schedule.sub_batches = 1, of which none computes under another's collective,");
  const auto is_again = [](const OperatorDecision& d) { return d.recompute != Recompute::none; };
  if (std::ranges::none_of(decisions, is_again)) refuse("recompute = none, so that there is one pass alone,");
}

}  // namespace

void refuse_what_is_missing(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} cannot be lowered", plan.strategy, what));
  };
  const bool is_laid_out = has_layouts(plan.mesh);
  const bool has_whole_tensors = plan.mesh.num_ranks() > 1 && !is_laid_out;
  if (is_laid_out) refuse_beside_layouts(plan, decisions);
  for (const MeshAxis& axis : plan.mesh.axes) {
    const bool takes_micro_batches = axis.name == "micro_batch" && plan.schedule.kind == ScheduleKind::cyclic;
    if (axis.name != "data" && axis.name != "stage" && !takes_micro_batches && axis.size > 1) {
      refuse(fmt::format("mesh axis {} = {}", axis.name, axis.size));
    }
  }
  if (plan.schedule.kind == ScheduleKind::simultaneous && plan.stages.count != 1) {
    refuse(fmt::format("stages.count = {} with schedule.kind = {}", plan.stages.count, to_string(plan.schedule.kind)));
  }
  // A sub-batch would be normalised by statistics of its own: another function of the micro-batch.
  if (const auto norm = std::ranges::find(graph.operators, OperatorKind::batch_norm, &Operator::kind);
      plan.schedule.sub_batches > 1 && norm != graph.operators.end()) {
    refuse(fmt::format("schedule.sub_batches = {} with {} ({}), whose statistics are of a micro-batch,",
                       plan.schedule.sub_batches, norm->name, to_string(norm->kind)));
  }
  const bool cyclic = plan.schedule.kind == ScheduleKind::cyclic;
  refuse_on_pyramids(plan);
  if (cyclic) refuse_in_cycles(plan, graph, decisions);
  if (plan.schedule.kind == ScheduleKind::two_buffered_weights) refuse_without_flush(plan, decisions);
  const int ranks = axis_size(plan.mesh, "stage");
  if (plan.schedule.kind == ScheduleKind::interleaved) {
    refuse_uneven_rounds(plan, ranks);
  } else if (const bool on_one_rank = cyclic && ranks == 1; plan.stages.count != ranks && !on_one_rank) {
    refuse(fmt::format("stages.count = {} over mesh axis stage = {}", plan.stages.count, ranks));
  }
  if (plan.schedule.cross_pass) refuse_passes_that_do_not_cross(plan, decisions);
  const bool has_shards =
      std::ranges::any_of(decisions, [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); });
  const OptimizerPlan& optimizer = plan.optimizer;
  const bool whole_tensors = optimizer.sharding == "inter_tensor";
  if (has_shards && (whole_tensors != (optimizer.spread == "broadcast"))) {
    refuse(fmt::format("optimizer.sharding = {} with spread = {}", optimizer.sharding, optimizer.spread));
  }
  if (has_shards && whole_tensors && optimizer.gradients == "reduce_scatter") {
    refuse("optimizer.sharding = inter_tensor with gradients = reduce_scatter");
  }
  if (has_shards && plan.stages.count > 1) {
    if (whole_tensors) refuse(fmt::format("optimizer.sharding = inter_tensor in {} stages", plan.stages.count));
    if (plan.quantization.any()) refuse(fmt::format("quantization in {} stages", plan.stages.count));
    if (plan.stages.cut_at != "block") {
      refuse(fmt::format("stages.cut_at = {} with sharded states in {} stages", plan.stages.cut_at, plan.stages.count));
    }
  }
  refuse_to_walk(plan, graph, decisions);
  const bool leaf_first = plan.mesh.placement == "leaf-first";
  if (leaf_first && plan.stages.count > 1) {
    refuse(fmt::format("mesh.placement = leaf-first in {} stages", plan.stages.count));
  }
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const OperatorDecision& d = decisions[o];
    const std::string& name = graph.operators[o].name;
    if (plan.stages.count > 1 && d.state.p_backward) {
      refuse(fmt::format("{}: state p_backward = {} in {} stages", name, to_string(*d.state.p_backward),
                         plan.stages.count));
    }
    if (d.layout && has_whole_tensors) {
      refuse(fmt::format("{}: a layout on a mesh with axes, which say how ranks are used,", name));
    }
    if (d.algorithm != MatmulAlgorithm::local && !graph.operators[o].parameters.empty()) {
      const OperatorKind kind = graph.operators[o].kind;
      const bool is_ring = d.algorithm == MatmulAlgorithm::ring;
      if (kind == OperatorKind::embedding || kind == OperatorKind::convolution) {
        refuse(
            fmt::format("{}: algorithm = {} of an operator of kind {}", name, to_string(d.algorithm), to_string(kind)));
      }
      if (has_whole_tensors) {
        refuse(fmt::format("{}: algorithm = {} on a mesh with axes, where no layout says which ranks are its {},", name,
                           to_string(d.algorithm), is_ring ? "ring" : "rows and columns"));
      }
      if (is_ring && kind == OperatorKind::linear && d.layout && d.layout->p1.total() > 1 && d.layout->p2.total() > 1) {
        refuse(
            fmt::format("{}: algorithm = ring with layout p1 = {} and p2 = {}, which gathers and scatters in one "
                        "product,",
                        name, to_string(d.layout->p1), to_string(d.layout->p2)));
      }
    }
    if (plan.overlap.layout != "none" && d.sum == PartialSums::scatter && is_product(graph.operators[o]) &&
        plan.mesh.num_ranks() > 1) {
      refuse(fmt::format("{}: sum = scatter with overlap.layout = {}, which is for sums that all ranks have,", name,
                         plan.overlap.layout));
    }
    if (d.sum == PartialSums::all_reduce && is_product(graph.operators[o])) {
      if (d.algorithm == MatmulAlgorithm::summa) {
        refuse(fmt::format("{}: sum = all_reduce with algorithm = summa, whose panels leave no partial sums,", name));
      }
      if (d.algorithm == MatmulAlgorithm::ring) {
        refuse(fmt::format("{}: sum = all_reduce with algorithm = ring, whose blocks of a sum are one rank's each,",
                           name));
      }
      if (has_whole_tensors) {
        refuse(fmt::format("{}: sum = all_reduce on a mesh with axes, where no product leaves partial sums,", name));
      }
    }
    if (d.recompute == Recompute::after_communication && has_whole_tensors) {
      refuse(
          fmt::format("{}: recompute = after_communication on a mesh with axes, where no layout changes behind an "
                      "operator,",
                      name));
    }
  }
}

void refuse_what_is_not_quantized(const Plan& plan, const ModelGraph& graph,
                                  const std::vector<OperatorDecision>& decisions) {
  const Quantization& q = plan.quantization;
  if (!q.any()) return;
  const Factor grid = data_grid(plan.mesh);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    // A slice's weight may be held otherwise than its bias.
    const auto& parameters = graph.operators[o].parameters;
    const auto held = [&](int i) {
      return state_of(plan.mesh, decisions[o], graph.parameters[static_cast<std::size_t>(i)]).p;
    };
    const auto bare = std::ranges::find_if(parameters, [&](int i) {
      const Factor p = held(i);
      return p.total() == 1 || (p != grid && q.gradients != "none");
    });
    if (bare == parameters.end()) continue;
    const Factor p = held(*bare);
    const auto refuse = [&](const std::string& what) {
      throw Unsupported(
          fmt::format("plan `{}`: {}: {} cannot be lowered", plan.strategy, graph.operators[o].name, what));
    };
    if (p.total() == 1) {
      refuse(
          fmt::format("quantization = {{ weights = {}, gradients = {} }} with state p = 1x1, of which nothing is "
                      "gathered,",
                      q.weights, q.gradients));
    }
    refuse(
        fmt::format("quantization.gradients = {} with state p = {} on {}, whose sum over the {} ranks with the same "
                    "shard is not quantised,",
                    q.gradients, to_string(p), to_string(grid), grid.total() / p.total()));
  }
}

void refuse_orders_without_whole_passes(const Plan& plan, const StepOrder& order, int place) {
  const StagesOfPlace held = StagePlaces(plan).of(place);
  std::vector<int> stages;
  for (int stage = held.first; stage < held.end; stage += held.apart) stages.push_back(stage);
  OrderWriter expected(order.shape, stages);
  for (const Run& run : runs_of(order)) {
    const int segment = order.items[static_cast<std::size_t>(run.first)].segment;
    const int stage = order.shape.segments[static_cast<std::size_t>(segment)].stage;
    if (run.backward) {
      expected.backward(stage, run.micro_batch);
    } else {
      expected.forward(stage, run.micro_batch);
    }
  }
  // Evaluation has neither.
  if (std::ranges::find(order.items, Pass::backward, &OrderItem::pass) != order.items.end()) expected.update();
  if (std::move(expected).take() != order) {
    throw Unsupported(fmt::format(
        "plan `{}`: schedule.kind = {}: stage {} of {}: an order of a step that is not made of whole passes "
        "of a stage, with updates behind them, cannot be lowered",
        plan.strategy, to_string(plan.schedule.kind), held.first, order.shape.num_stages()));
  }
}

}  // namespace strata

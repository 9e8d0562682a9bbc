/// @file
/// What makes a plan well formed.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/toml_value.hpp"
#include "ir/model/batch_limit.hpp"
#include "ir/plan/plan.hpp"
#include "ir/plan/plan_words.hpp"
#include "ir/plan/stage_pyramid.hpp"

namespace strata {
namespace {

[[noreturn]] void fail(std::string_view key, const std::string& message) {
  throw UserError(fmt::format("plan: {}: {}", key, message));
}

void check_word(std::string_view key, std::string_view word, std::string_view accepted) {
  const std::vector<std::string> words = split_words(accepted);
  if (std::find(words.begin(), words.end(), word) == words.end()) {
    fail(key, fmt::format("unknown word \"{}\"{}; accepted: {}", word, did_you_mean(word, words), accepted));
  }
}

void check_at_least(std::string_view key, std::int64_t value, std::int64_t minimum) {
  if (value < minimum) {
    fail(key, fmt::format("{} is out of range; accepted: >= {}", value, minimum));
  }
}

void check_real(std::string_view key, double value, double minimum, double below) {
  if (!(value >= minimum && value < below)) {
    fail(key, fmt::format("{} is out of range; accepted: >= {} and < {}", value, minimum, below));
  }
}

/// Ranks of a job, and whatever they are the product of.
constexpr std::int64_t most_ranks = std::int64_t{1} << 30;
constexpr std::int64_t most_parts = std::int64_t{1} << 60;

/// @p a times @p b, both >= 1; @p limit where that is more.
std::int64_t product_up_to(std::int64_t limit, std::int64_t a, std::int64_t b) { return a > limit / b ? limit : a * b; }

void check_node_order(const Mesh& mesh) {
  const bool is_ordered = mesh.placement == "leaf-first";
  if (!is_ordered && mesh.node_order.empty()) return;
  if (!is_ordered) {
    fail("mesh.node_order", fmt::format("needs mesh.placement \"leaf-first\", which is \"{}\"", mesh.placement));
  }
  std::vector<int> sorted = mesh.node_order;
  std::sort(sorted.begin(), sorted.end());
  for (int node = 0; node < mesh.nodes; ++node) {
    if (static_cast<int>(sorted.size()) != mesh.nodes || sorted[static_cast<std::size_t>(node)] != node) {
      fail("mesh.node_order",
           fmt::format("[{}] is no permutation of the {} nodes 0 … {}, which placement \"leaf-first\" "
                       "needs",
                       fmt::join(mesh.node_order, ", "), mesh.nodes, mesh.nodes - 1));
    }
  }
}

void check_pyramid(const Mesh& mesh) {
  std::vector<std::string> others;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name != "stage") others.push_back(fmt::format("{} {}", axis.name, axis.size));
  }
  if (!others.empty()) {
    fail("mesh.axes",
         fmt::format("{} beside mesh.placement \"pyramid\"; accepted: stage alone", fmt::join(others, ", ")));
  }
  const StagePyramid pyramid{axis_size(mesh, "stage")};
  constexpr int most_stages = 1 << 14;  // of so many ranks as a mesh may have
  if (pyramid.num_stages > most_stages || pyramid.num_ranks() != mesh.num_ranks()) {
    fail("mesh.axes.stage",
         fmt::format("{0} stages in a pyramid take {0} x {1} / 2 ranks, but {2} nodes x {3} ranks = {4}",
                     pyramid.num_stages, pyramid.num_stages + 1, mesh.nodes, mesh.ranks_per_node, mesh.num_ranks()));
  }
}

void check_mesh(const Mesh& mesh) {
  check_at_least("mesh.nodes", mesh.nodes, 1);
  check_at_least("mesh.ranks_per_node", mesh.ranks_per_node, 1);
  if (mesh.ranks_per_node > most_ranks / mesh.nodes) {
    fail("mesh.nodes",
         fmt::format("{} nodes x {} ranks; accepted: {} ranks at most", mesh.nodes, mesh.ranks_per_node, most_ranks));
  }
  check_word("mesh.placement", mesh.placement, plan_words::placement);
  check_node_order(mesh);
  std::int64_t product = 1;
  std::vector<std::string> degrees, names;
  for (const MeshAxis& axis : mesh.axes) {
    const std::string key = fmt::format("mesh.axes.{}", axis.name);
    check_word(key, axis.name, plan_words::axes);
    check_at_least(key, axis.size, 1);
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) {
      fail(key, "the axis is named twice");
    }
    names.push_back(axis.name);
    product = product_up_to(2 * most_ranks, product, axis.size);
    degrees.push_back(fmt::format("{} {}", axis.name, axis.size));
  }
  // Without axes of its own ranks the layouts of the operators say how a stage uses them; check_decisions asks for
  // them.
  if (product > most_ranks) {
    fail("mesh.axes", fmt::format("{} are more than {} nodes x {} ranks = {}", fmt::join(degrees, " x "), mesh.nodes,
                                  mesh.ranks_per_node, mesh.num_ranks()));
  }
  if (mesh.placement == "pyramid") {
    check_pyramid(mesh);
  } else if (has_layouts(mesh)) {
    mesh_of_stage(mesh);
  } else if (product != mesh.num_ranks()) {
    fail("mesh.axes", fmt::format("{} = {}, but {} nodes x {} ranks = {}", fmt::join(degrees, " x "), product,
                                  mesh.nodes, mesh.ranks_per_node, mesh.num_ranks()));
  }
}

void check_batch(const Plan& plan, const ModelGraph& graph) {
  check_at_least("batch.global", plan.global_batch, 1);
  check_at_least("schedule.micro_batches", plan.schedule.micro_batches, 1);
  check_at_least("schedule.sub_batches", plan.schedule.sub_batches, 1);
  // Ranks need not divide what they share of a micro-batch: partition/sample_parts.
  if (plan.global_batch % plan.schedule.micro_batches != 0) {
    fail("batch.global", fmt::format("{} samples are not divisible by {} micro-batches", plan.global_batch,
                                     plan.schedule.micro_batches));
  }
  const auto [elements_per_sample, most_samples] = batch_limit(graph);
  if (static_cast<double>(plan.global_batch) > most_samples) {
    fail("batch.global",
         fmt::format("{} samples of {:.3g} elements of activations; accepted: {:.0f} of this model at most",
                     plan.global_batch, elements_per_sample, most_samples));
  }
}

void check_fresh(const Plan& plan) {
  const std::string& fresh = plan.schedule.fresh;
  const auto words = split_words(plan_words::fresh);
  if (std::ranges::find(words, fresh) != words.end()) return;
  std::istringstream text(fresh);
  const std::vector<std::string> rows{std::istream_iterator<std::string>(text), {}};
  const auto is_row = [&](const std::string& row) {
    return row.find_first_not_of("01") == std::string::npos && std::ssize(row) == plan.stages.count;
  };
  if (std::ssize(rows) != plan.schedule.micro_batches || !std::ranges::all_of(rows, is_row)) {
    fail("schedule.fresh",
         fmt::format("\"{}\"; accepted: {}, or a table of {} rows, one a micro-batch, of {} digits 0 or 1, one a stage",
                     fresh, plan_words::fresh, plan.schedule.micro_batches, plan.stages.count));
  }
}

void check_stages(const Plan& plan, const ModelGraph& graph) {
  const Stages& stages = plan.stages;
  check_at_least("stages.count", stages.count, 1);
  check_word("stages.cut_by", stages.cut_by, plan_words::cut_by);
  check_word("stages.cut_at", stages.cut_at, plan_words::cut_at);
  const int stage_ranks = axis_size(plan.mesh, "stage");
  if (stages.count % stage_ranks != 0) {
    fail("stages.count", fmt::format("{} stages are not divisible by mesh.axes.stage = {}", stages.count, stage_ranks));
  }
  if (static_cast<std::size_t>(stages.count) > graph.operators.size()) {
    fail("stages.count",
         fmt::format("{} stages, but the model has {} operators", stages.count, graph.operators.size()));
  }
  if (stages.begins.empty()) return;
  if (std::ssize(stages.begins) != stages.count - 1) {
    fail("stages.begins", fmt::format("{} operators; accepted: {}, one for each of the {} stages but the first, or "
                                      "none, where stages.cut_by says it",
                                      stages.begins.size(), stages.count - 1, stages.count));
  }
  auto from = graph.operators.begin() + 1;
  for (const std::string& name : stages.begins) {
    const auto is_it = [&](const Operator& op) { return op.name == name; };
    const auto found = std::find_if(from, graph.operators.end(), is_it);
    if (found == graph.operators.end()) {
      fail("stages.begins", fmt::format("\"{}\" is no operator of {} behind {}", name, graph.name, (from - 1)->name));
    }
    from = found + 1;
  }
}

void check_schedule(const Plan& plan, const ModelGraph& graph) {
  check_fresh(plan);
  check_word("schedule.sum", plan.schedule.sum, plan_words::gradient_sum);
  check_word("schedule.spread", plan.schedule.spread, plan_words::parameter_spread);
  check_at_least("schedule.spare_stages", plan.schedule.spare_stages, 0);
  check_word("schedule.shift", plan.schedule.shift, plan_words::ring_shift);
  check_word("schedule.optimizer", plan.schedule.updater, plan_words::ring_updater);
  const Schedule plain;
  if (plan.schedule.kind != ScheduleKind::cyclic) {
    const auto is_plain = [&](std::string_view key, const std::string& value, const std::string& of_others) {
      if (value == of_others) return;
      fail(key,
           fmt::format("\"{}\" needs schedule.kind \"cyclic\", which is \"{}\"", value, to_string(plan.schedule.kind)));
    };
    is_plain("schedule.fresh", plan.schedule.fresh, plain.fresh);
    is_plain("schedule.sum", plan.schedule.sum, plain.sum);
    is_plain("schedule.spread", plan.schedule.spread, plain.spread);
    is_plain("schedule.shift", plan.schedule.shift, plain.shift);
    is_plain("schedule.optimizer", plan.schedule.updater, plain.updater);
    is_plain("schedule.spare_stages", fmt::format("{}", plan.schedule.spare_stages),
             fmt::format("{}", plain.spare_stages));
  }
  const int replicas = axis_size(plan.mesh, "micro_batch");
  if (plan.schedule.micro_batches % replicas != 0) {
    fail("schedule.micro_batches", fmt::format("{} micro-batches are not divisible by mesh.axes.micro_batch = {}",
                                               plan.schedule.micro_batches, replicas));
  }
  check_stages(plan, graph);
}

void check_factor(const Plan& plan, const std::string& key, const Factor& factor, int degree, std::string_view of) {
  check_at_least(key, factor.in_node, 1);
  check_at_least(key, factor.nodes, 1);
  if (factor.nodes > most_ranks / factor.in_node) {
    fail(key, fmt::format("{}; accepted: {} ranks at most", to_string(factor), most_ranks));
  }
  if (degree % factor.total() != 0) {
    fail(key,
         fmt::format("{} = {} ranks do not divide the {} {} ranks", to_string(factor), factor.total(), degree, of));
  }
  if (plan.mesh.ranks_per_node % factor.in_node != 0) {
    fail(key, fmt::format("{}: {} ranks in a node do not divide ranks_per_node = {}", to_string(factor), factor.in_node,
                          plan.mesh.ranks_per_node));
  }
  if (plan.mesh.nodes % factor.nodes != 0) {
    fail(key, fmt::format("{}: {} nodes do not divide nodes = {}", to_string(factor), factor.nodes, plan.mesh.nodes));
  }
}

void check_rule(const Plan& plan, const OperatorRule& rule, std::size_t index) {
  const std::string path = fmt::format("operators[{}]", index);
  if (rule.state) {
    // With layouts states are cut over the copies that the layout says; check_decisions asks for one.
    const int data = has_layouts(plan.mesh) ? mesh_of_stage(plan.mesh).num_ranks() : axis_size(plan.mesh, "data");
    check_factor(plan, path + ".state.p", rule.state->p, data, "data");
    check_factor(plan, path + ".state.g", rule.state->g, data, "data");
    check_factor(plan, path + ".state.os", rule.state->os, data, "data");
    if (rule.state->p_backward) {
      check_factor(plan, path + ".state.p_backward", *rule.state->p_backward, data, "data");
    }
  }
  if (rule.layout) {
    const int ranks = plan.mesh.num_ranks() / axis_size(plan.mesh, "stage");
    const Layout& layout = *rule.layout;
    check_factor(plan, path + ".layout.p0", layout.p0, ranks, "stage's");
    check_factor(plan, path + ".layout.p1", layout.p1, ranks, "stage's");
    check_factor(plan, path + ".layout.p2", layout.p2, ranks, "stage's");
    // Each is at most most_ranks, so that two of them and a limited product have room in 64 bits.
    const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
      return product_up_to(most_parts, a * b, c);
    };
    const std::int64_t total = product(layout.p0.total(), layout.p1.total(), layout.p2.total());
    const std::int64_t in_node = product(layout.p0.in_node, layout.p1.in_node, layout.p2.in_node);
    if (has_layouts(plan.mesh) && in_node != mesh_of_stage(plan.mesh).ranks_per_node) {
      fail(path + ".layout",
           fmt::format("p0 {} x p1 {} x p2 {} use {} ranks of a node, of which a stage has {}", to_string(layout.p0),
                       to_string(layout.p1), to_string(layout.p2), in_node, mesh_of_stage(plan.mesh).ranks_per_node));
    }
    if (total != ranks) {
      fail(path + ".layout", fmt::format("p0 {} x p1 {} x p2 {} = {}, but a stage has {} ranks", to_string(layout.p0),
                                         to_string(layout.p1), to_string(layout.p2), total, ranks));
    }
  }
  if (rule.directions && (*rule.directions < 1 || *rule.directions > 2)) {
    fail(path + ".directions", fmt::format("{}; accepted: 1 or 2", *rule.directions));
  }
  if (rule.slices) {
    check_at_least(path + ".slices", *rule.slices, 0);
  }
  for (const std::string& word : rule.slice_state) {
    check_word(path + ".slice_state", word, plan_words::slice_state);
  }
}

/// States are shared by the ranks that hold the same part of a weight. What has no matrix of its own, as a norm, is
/// held by more.
void check_states_of_layout(const Operator& op, const OperatorDecision& decision) {
  const StateFactors& state = decision.state;
  const Factor& copies = copies_of_weight(*decision.layout, decision.algorithm);
  for (const Factor& factor : {state.p, state.g, state.os, state.p_backward.value_or(Factor{})}) {
    if (copies.in_node % factor.in_node == 0 && copies.nodes % factor.nodes == 0) continue;
    fail("operators",
         fmt::format("{}: a state factor {} does not divide its layout's {} = {}", op.name, to_string(factor),
                     decision.algorithm == MatmulAlgorithm::summa ? "p1" : "p0", to_string(copies)));
  }
}

/// A rank has a sample of each sub-batch, where samples are cut most.
void check_sub_batches(const Plan& plan, std::span<const OperatorDecision> decisions) {
  const Schedule& schedule = plan.schedule;
  const std::int64_t samples = plan.global_batch / schedule.micro_batches;
  const int ranks = most_data_ranks(plan, decisions);
  const std::int64_t of_group = (samples + ranks - 1) / ranks;
  if (schedule.sub_batches > of_group) {
    fail(
        "schedule.sub_batches",
        fmt::format("{} of a micro-batch of {} samples, of which {} groups of ranks have {} each; accepted: {} at most",
                    schedule.sub_batches, samples, ranks, of_group, of_group));
  }
}

/// What only shows once all rules are joined: a mode for every slice, one decision a tied weight.
void check_decisions(const Plan& plan, const ModelGraph& graph) {
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  check_sub_batches(plan, decisions);
  std::map<int, std::size_t> decided;  // parameter -> the first operator that holds it
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    const OperatorDecision& decision = decisions[i];
    if (!decision.slice_state.empty() && static_cast<int>(decision.slice_state.size()) != decision.slices) {
      fail("operators", fmt::format("{}: slice_state has {} entries for {} slices", op.name,
                                    decision.slice_state.size(), decision.slices));
    }
    if (decision.directions > 1 && decision.algorithm != MatmulAlgorithm::ring && !op.parameters.empty()) {
      fail("operators", fmt::format("{}: directions = {} with algorithm = {}; accepted: with algorithm = ring", op.name,
                                    decision.directions, to_string(decision.algorithm)));
    }
    const bool is_product = op.kind == OperatorKind::linear || op.kind == OperatorKind::embedding;
    if (has_layouts(plan.mesh) && is_product && !decision.layout) {
      fail("mesh.axes", fmt::format("no axes for {} ranks, and no rule gives a layout to {}",
                                    mesh_of_stage(plan.mesh).num_ranks(), op.name));
    }
    if (has_layouts(plan.mesh) && decision.layout) check_states_of_layout(op, decision);
    for (const int parameter : op.parameters) {
      const auto emplaced = decided.emplace(parameter, i);
      if (emplaced.second) continue;
      const std::size_t first = emplaced.first->second;
      const OperatorDecision& other = decisions[first];
      const auto refuse = [&](const char* what) {
        fail("operators", fmt::format("{} is shared by {} and {}, whose rules give it different {}",
                                      graph.parameters[static_cast<std::size_t>(parameter)].name,
                                      graph.operators[first].name, op.name, what));
      };
      if (other.state != decision.state) refuse("states");
      if (other.slices != decision.slices || other.slice_state != decision.slice_state) refuse("slices");
    }
  }
}

}  // namespace

void verify(const Plan& plan, const ModelGraph& graph) {
  check_mesh(plan.mesh);
  check_batch(plan, graph);
  check_schedule(plan, graph);
  for (std::size_t i = 0; i < plan.operators.size(); ++i) {
    check_rule(plan, plan.operators[i], i);
  }
  check_decisions(plan, graph);

  check_at_least("overlap.bucket_bytes", plan.overlap.bucket_bytes, 0);
  check_at_least("overlap.spread_bytes", plan.overlap.spread_bytes, 0);
  check_word("overlap.all_reduce", plan.overlap.all_reduce, plan_words::all_reduce);
  check_word("overlap.gather", plan.overlap.gather, plan_words::gather);
  check_word("overlap.gather_backward", plan.overlap.gather_backward, plan_words::gather_backward);
  check_word("overlap.reduce_scatter", plan.overlap.reduce_scatter, plan_words::reduce_scatter);
  check_word("overlap.broadcast", plan.overlap.broadcast, plan_words::broadcast);
  check_word("overlap.update", plan.overlap.update, plan_words::update);
  check_word("overlap.layout", plan.overlap.layout, plan_words::overlapped_layout);
  check_word("overlap.panels", plan.overlap.panels, plan_words::overlapped_panels);
  check_word("overlap.replica_stream", plan.overlap.replica_stream, plan_words::replica_stream);

  check_word("optimizer.kind", plan.optimizer.kind, plan_words::optimizer_kind);
  check_word("optimizer.sharding", plan.optimizer.sharding, plan_words::optimizer_sharding);
  check_word("optimizer.spread", plan.optimizer.spread, plan_words::optimizer_spread);
  check_word("optimizer.gradients", plan.optimizer.gradients, plan_words::optimizer_gradients);
  check_word("gathered_after_recompute", plan.gathered_after_recompute, plan_words::gathered_after_recompute);
  check_real("optimizer.momentum", plan.optimizer.momentum, 0.0, 1.0);
  check_real("optimizer.beta1", plan.optimizer.beta1, 0.0, 1.0);
  check_real("optimizer.beta2", plan.optimizer.beta2, 0.0, 1.0);
  check_real("optimizer.epsilon", plan.optimizer.epsilon, 0.0, HUGE_VAL);
  check_real("optimizer.weight_decay", plan.optimizer.weight_decay, 0.0, HUGE_VAL);
  check_real("optimizer.clip_norm", plan.optimizer.clip_norm, 0.0, HUGE_VAL);
  if (plan.overlap.update == "backward" && plan.optimizer.clip_norm > 0.0) {
    fail("overlap.update",
         fmt::format("backward with optimizer.clip_norm = {}: the norm of all gradients is known behind "
                     "the last backward only; accepted: none, or clip_norm = 0",
                     plan.optimizer.clip_norm));
  }
  check_word("dtypes.compute", to_string(plan.dtypes.compute), plan_words::compute_dtype);
  check_word("dtypes.gradient", to_string(plan.dtypes.gradient), plan_words::compute_dtype);
  check_word("quantization.weights", plan.quantization.weights, plan_words::quantized_weights);
  check_word("quantization.gradients", plan.quantization.gradients, plan_words::quantized_gradients);
  if (plan.quantization.block < 16 || plan.quantization.block % 16 != 0) {
    fail("quantization.block",
         fmt::format("{} is out of range; accepted: multiples of 16, from 16 on", plan.quantization.block));
  }
  check_at_least("device_capacity_bytes", plan.device_capacity_bytes, 0);
  if (plan.seed > INT64_MAX) {
    fail("seed", fmt::format("{} is out of range; accepted: < 2^63", plan.seed));  // TOML's integers are signed
  }
}

}  // namespace strata

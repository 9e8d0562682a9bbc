/// @file
/// One step of one rank: the items of its order one after the other, then the remaining reductions, the optimizer and
/// the metrics.

#include "lower/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "ir/operator_splitting.hpp"
#include "ir/recomputation.hpp"
#include "ir/shards.hpp"
#include "ir/stages.hpp"
#include "lower/activations.hpp"
#include "lower/axis_groups.hpp"
#include "lower/builder.hpp"
#include "lower/gathering.hpp"
#include "lower/laid_out_graph.hpp"
#include "lower/operator_kernels.hpp"
#include "lower/order/schedules.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/parameter_states.hpp"
#include "lower/stage_messages.hpp"
#include "lower/unsupported.hpp"

namespace strata {
namespace {

/// Where a rank stands in the mesh, and what of the model is there.
struct Place {
  Place(const Plan& plan, const LaidOutGraph& model, int rank)
      : data_size(axis_size(plan.mesh, "data")),
        num_stages(plan.stages.count),
        stage_index(coordinate(plan.mesh, "stage", rank)),
        stages(model.stages),
        stage(stages[static_cast<std::size_t>(stage_index)]) {}

  int data_size;
  int num_stages;
  int stage_index;
  std::vector<Stage> stages;
  Stage stage;  ///< this rank's
};

std::vector<std::string> streams_of(const Place& place) {
  std::vector<std::string> streams = {"compute", "communication"};
  std::ranges::copy(link_streams(place.num_stages, place.stage_index), std::back_inserter(streams));
  return streams;
}
constexpr int first_link_stream = communication_stream + 1;

/// The model of a rank of a plan without layouts: every rank has all of it, and its samples.
LaidOutGraph replicated(const Plan& plan, SplitModel split, int rank) {
  const int data_size = axis_size(plan.mesh, "data");
  const std::int64_t samples = plan.global_batch / (data_size * plan.schedule.micro_batches);
  const std::size_t num_tensors = split.graph.tensors.size();
  const Digit data{data_size, coordinate(plan.mesh, "data", rank)};
  std::vector<Stage> stages = cut_into_stages(split.graph, plan.stages);
  return {.graph = std::move(split.graph),
          .decisions = std::move(split.decisions),
          .layouts = {},
          .num_samples = std::vector<std::int64_t>(num_tensors, samples),
          .samples = std::vector<StridedBlock>(num_tensors, block_of(std::vector<Digit>{data, {samples, -1}})),
          .replicas = {},
          .stages = std::move(stages),
          .steps = {}};
}

/// The groups of one rank. All ranks make them in the order axes or data, stage, copies, all.
struct Groups {
  ParameterGroups parameters;
  std::optional<AxisGroups> axes;  ///< where operators are laid out
  int everybody = -1;              ///< who shares the loss; -1: this rank is alone

  Groups(const Plan& plan, const LaidOutGraph& model, const Place& place, int rank, ProgramBuilder& builder) {
    int data = -1;
    if (has_layouts(plan.mesh)) {
      axes.emplace(AtomicAxes(plan.mesh), model, rank, builder);
      parameters.num_copies = model.num_copies;
      for (const AxisSet set : sets_of_replicas(model)) parameters.data.push_back(axes->of(set));
      if (place.num_stages == 1) everybody = axes->everybody();
    } else {
      if (place.data_size > 1) data = builder.add_group({"data", group_along(plan.mesh, "data", rank)});
      parameters.data = {data};
    }
    const std::vector<int> column = group_along(plan.mesh, "stage", rank);
    if (place.num_stages > 1) parameters.stages = builder.add_group({"stage", column});
    std::map<std::vector<int>, int> group_of_stages;
    const auto users = stages_of_parameters(model.graph, place.stages);
    for (std::size_t p = 0; p < users.size(); ++p) {
      const std::vector<int>& stages = users[p];
      if (axes) parameters.num_copies[p] *= static_cast<std::int64_t>(stages.size());
      if (stages.size() < 2 || std::ranges::find(stages, place.stage_index) == stages.end()) continue;
      const auto [group, is_new] = group_of_stages.try_emplace(stages, parameters.stages);
      if (is_new && stages.size() < column.size()) {
        std::vector<int> ranks;
        for (const int s : stages) ranks.push_back(column[static_cast<std::size_t>(s)]);
        group->second = builder.add_group({fmt::format("stages[{}]", fmt::join(stages, ",")), std::move(ranks)});
      }
      parameters.copies[static_cast<int>(p)] = {group->second, place.stage_index == stages.front()};
    }
    const bool stages_have_several = plan.mesh.num_ranks() > place.num_stages;
    if (everybody < 0) everybody = std::max(data, parameters.stages);
    if (stages_have_several && parameters.stages >= 0) {
      std::vector<int> ranks(static_cast<std::size_t>(plan.mesh.num_ranks()));
      std::iota(ranks.begin(), ranks.end(), 0);
      everybody = builder.add_group({"all", std::move(ranks)});
    }
    parameters.everybody = everybody;
  }
};

/// The orders of a step, by stage.
class Orders {
 public:
  Orders(const Plan& plan, const LaidOutGraph& model, const OrderGenerator& generator)
      : shape_(step_shape(plan, model.graph, model.decisions, model.stages)), generator_(generator) {}
  int num_stages() const { return shape_.num_stages(); }
  StepOrder of(int stage) const { return generator_(shape_, stage); }

 private:
  StepShape shape_;
  const OrderGenerator& generator_;
};

StageMessages messages_of(const Orders& orders, const StepOrder& order, int stage) {
  std::optional<StepOrder> before, behind;
  if (stage > 0) before = orders.of(stage - 1);
  if (stage + 1 < orders.num_stages()) behind = orders.of(stage + 1);
  return {order, stage, before ? &*before : nullptr, behind ? &*behind : nullptr};
}

/// By parameter: the place of its update among the items; -1: it has none.
std::vector<int> update_of_parameters(const StepOrder& order, std::size_t num_parameters) {
  std::vector<int> update_of(num_parameters, -1);
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    for (const int p : order.items[i].parameters) update_of[static_cast<std::size_t>(p)] = static_cast<int>(i);
  }
  return update_of;
}

int behind_backward(const StepOrder& order) {
  std::size_t end = order.items.size();
  while (end > 0 && order.items[end - 1].pass == Pass::update) --end;
  return static_cast<int>(end);
}

class StepLowering {
 public:
  StepLowering(const Plan& plan, const LaidOutGraph& model, int rank, const Orders& orders)
      : plan_(plan),
        model_(model),
        graph_(model.graph),
        decisions_(model.decisions),
        place_(plan, model, rank),
        order_(orders.of(place_.stage_index)),
        messages_(messages_of(orders, order_, place_.stage_index)),
        builder_(rank, plan.mesh.num_ranks(), streams_of(place_)),
        groups_(plan, model, place_, rank, builder_),
        grids_(grids_of(plan, model, rank)),
        parameters_(plan, graph_, operators_of(graph_, place_.stage), shards_of(plan, graph_, decisions_, grids_),
                    grids_, update_of_parameters(order_, graph_.parameters.size()), builder_, groups_.parameters),
        behind_backward_(behind_backward(order_)),
        uses_(graph_),
        gathering_(plan, graph_, order_.shape, place_.stage_index, uses_, parameters_),
        from_before_(crossing(place_.stage_index)),
        to_behind_(crossing(place_.stage_index + 1)),
        loss_(builder_.add_buffer(
            {.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true})),
        sent_(order_.items.size(), -1) {
    refuse_orders_without_whole_passes(plan, order_, place_.stage_index);
    builder_.set_loss(loss_);
  }

  Program run(const WorkspaceBytes& workspace_bytes) && {
    builder_.begin(ProgramBuilder::Section::prologue);
    parameters_.initialize();
    builder_.begin(ProgramBuilder::Section::body);
    parameters_.spread_last_updates();
    if (!computes_loss()) clear_loss();
    for (std::size_t i = 0; i < order_.items.size(); ++i) {
      if (static_cast<int>(i) == behind_backward_) reduce_loss();
      lower_item(static_cast<int>(i));
    }
    if (behind_backward_ == std::ssize(order_.items)) reduce_loss();
    builder_.begin(ProgramBuilder::Section::epilogue);
    parameters_.spread_remaining();
    return std::move(builder_).finish(workspace_bytes);
  }

 private:
  const Segment& segment_of(const OrderItem& item) const {
    return order_.shape.segments[static_cast<std::size_t>(item.segment)];
  }
  bool begins_stage(const OrderItem& item) const {
    return segment_of(item).first_operator == place_.stage.first_operator;
  }
  bool computes_loss() const { return place_.stage_index + 1 == place_.num_stages; }
  /// Of ranks that hold the same rows of the loss one counts.
  bool counts(int loss_tensor) const {
    if (!has_layouts(plan_.mesh)) return true;
    const AtomicAxes axes(plan_.mesh);
    const AxisSet copies = axes.all() & ~model_.layouts[static_cast<std::size_t>(loss_tensor)].samples;
    return axes.index(copies, builder_.rank()) == 0;
  }

  /// Of a micro-batch that is between its first item and its last one on this rank.
  Activations& activations_of(int micro_batch) {
    return activations_
        .try_emplace(micro_batch, graph_, uses_, plan_.dtypes.compute, model_.num_samples, micro_batch, builder_)
        .first->second;
  }
  OperatorLowering operators_of_item(const OrderItem& item, bool completes_sums) {
    return {.plan = plan_,
            .model = model_,
            .groups = groups_.axes ? &*groups_.axes : nullptr,
            .builder = builder_,
            .activations = activations_of(item.micro_batch),
            .parameters = parameters_,
            .first_sample_of_all = first_sample_of(item.micro_batch),
            .last_micro_batch = completes_sums};
  }

  void lower_item(int index) {
    for (const StageMessages::Receive& receive : messages_.before(index)) post(receive);
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    switch (item.pass) {
      case Pass::forward: forward(item); break;
      case Pass::recompute: recompute(item); break;
      case Pass::backward: backward(index); break;
      case Pass::update: update(index); break;
    }
    if (messages_.after(index).peer >= 0) send(index);
    // Nothing of a micro-batch is needed behind the last backward of this rank.
    if (item.pass == Pass::backward && begins_stage(item)) activations_.erase(item.micro_batch);
  }

  void forward(const OrderItem& item) {
    const Segment& segment = segment_of(item);
    Activations& activations = activations_of(item.micro_batch);
    if (begins_stage(item)) load_inputs(activations);
    OperatorLowering operators = operators_of_item(item, false);
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
      gathering_.before_forward(o, item);
      operators.forward(op, Phase::forward);
      gathering_.after_forward(o);
      if (op.kind == OperatorKind::cross_entropy) accumulate_loss(op, activations);
    }
    if (!segment.recomputed) return;
    for (const int t : internal_tensors(graph_, block_of_segment(segment))) activations.drop(t);
  }

  const Block& block_of_segment(const Segment& segment) const {
    const Operator& first = graph_.operators[static_cast<std::size_t>(segment.first_operator)];
    return graph_.blocks[static_cast<std::size_t>(first.block)];
  }

  std::vector<int> recomputed_operators(const Segment& segment, const Activations& activations) const {
    return operators_to_recompute(graph_, block_of_segment(segment), [&](int t) { return activations.has(t); });
  }

  void recompute(const OrderItem& item) {
    OperatorLowering operators = operators_of_item(item, false);
    for (const int o : recomputed_operators(segment_of(item), activations_of(item.micro_batch))) {
      gathering_.before_recompute(o, item.micro_batch);
      operators.forward(graph_.operators[static_cast<std::size_t>(o)], Phase::recompute);
      gathering_.after_recompute(o);
    }
  }

  /// True where no later item adds to the gradients of the segment of item @p index.
  bool completes_sums(int index) const {
    const auto later = order_.items.begin() + index + 1;
    return std::none_of(later, order_.items.end(), [&](const OrderItem& item) {
      return item.pass == Pass::backward && item.segment == order_.items[static_cast<std::size_t>(index)].segment;
    });
  }

  void backward(int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const Segment& segment = segment_of(item);
    OperatorLowering operators = operators_of_item(item, completes_sums(index));
    // What the next item makes again is gathered under this one.
    const OrderItem* next = static_cast<std::size_t>(index) + 1 < order_.items.size() ? &item + 1 : nullptr;
    if (next != nullptr && next->pass == Pass::recompute) {
      gathering_.before_backward_of_block(recomputed_operators(segment_of(*next), activations_of(next->micro_batch)),
                                          next->micro_batch);
    }
    for (int o = segment.end(); o-- > segment.first_operator;) {
      gathering_.before_backward(o, item.micro_batch);
      operators.backward(graph_.operators[static_cast<std::size_t>(o)]);
      parameters_.gradients().after_operator();
      gathering_.after_backward(o);
    }
  }

  void update(int index) {
    const std::vector<int>& parameters = order_.items[static_cast<std::size_t>(index)].parameters;
    if (index < behind_backward_) {
      parameters_.gradients().complete(parameters);
    } else if (index == behind_backward_) {
      parameters_.gradients().reduce_remaining();
    }
    parameters_.update(parameters);
  }

  /// Tensors that cross the cut before stage @p stage; none where that is no cut.
  std::vector<int> crossing(int stage) const {
    if (stage == 0 || stage == place_.num_stages) return {};
    return tensors_across(graph_, place_.stages[static_cast<std::size_t>(stage)].first_operator);
  }
  const std::vector<int>& tensors_between(int peer) const {
    return peer < place_.stage_index ? from_before_ : to_behind_;
  }
  Instruction message(Collective kind, const OrderItem& item, int peer, int stream, int tensor) const {
    const bool backward = item.pass != Pass::forward;
    return {.kernel = Kernel::none,
            .collective = kind,
            .group = groups_.parameters.stages,
            .root = peer,
            .stream = first_link_stream + stream,
            .phase = backward ? Phase::backward : Phase::forward,
            .micro_batch = item.micro_batch,
            .name = graph_.tensors[static_cast<std::size_t>(tensor)].name + (backward ? "/gradient" : "")};
  }

  void post(const StageMessages::Receive& receive) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(receive.item)];
    const bool backward = item.pass != Pass::forward;
    Activations& activations = activations_of(item.micro_batch);
    // The memory of what ended on the compute stream so far, and of messages that the neighbour must have taken before
    // it could send this one, is free for this one and for what follows it.
    std::vector<int> complete;
    if (const int last = builder_.last_on(compute_stream); last >= 0) complete.push_back(last);
    if (receive.taken >= 0) complete.push_back(sent_[static_cast<std::size_t>(receive.taken)]);
    for (const int t : tensors_between(receive.peer)) {
      if (backward && !activations.needs_gradient(t)) continue;
      Instruction in = message(Collective::recv, item, receive.peer, receive.stream, t);
      in.outputs = {backward ? activations.gradient_destination(t, true).operand : activations.produce(t)};
      builder_.emit(std::move(in), complete);
    }
  }

  /// What item @p index has made for a neighbour.
  void send(int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const StageMessages::Send& to = messages_.after(index);
    const bool backward = item.pass != Pass::forward;
    Activations& activations = activations_of(item.micro_batch);
    for (const int t : tensors_between(to.peer)) {
      if (backward && !activations.needs_gradient(t)) continue;
      Instruction in = message(Collective::send, item, to.peer, to.stream, t);
      in.inputs = {backward ? activations.take_gradient(t).operand : activations.value(t)};
      sent_[static_cast<std::size_t>(index)] = builder_.emit(std::move(in));
    }
  }

  /// The input of the model that operators of this stage read, of the roles for which @p is_it holds.
  template <typename Predicate>
  std::optional<int> input_read_here(const Predicate& is_it) const {
    for (const Operator& op : operators_of(graph_, place_.stage)) {
      for (const int t : op.inputs) {
        if (is_it(graph_.tensors[static_cast<std::size_t>(t)].role)) return t;
      }
    }
    return std::nullopt;
  }

  /// Inputs of the model come from the data set, by position in the global batch; a stage loads what it reads.
  void load_inputs(Activations& activations) {
    const auto data =
        input_read_here([](TensorRole role) { return role == TensorRole::tokens || role == TensorRole::image; });
    const auto targets = input_read_here([](TensorRole role) { return role == TensorRole::targets; });
    if (!data && !targets) return;
    const auto samples = [&](int t) -> const StridedBlock& { return model_.samples[static_cast<std::size_t>(t)]; };
    if (data && targets && (samples(*data) != samples(*targets) || !samples(*data).levels.empty())) {
      load(activations, data, std::nullopt);
      load(activations, std::nullopt, targets);
    } else {
      load(activations, data, targets);
    }
  }

  /// Samples that are neighbours in the data set by one instruction.
  void load(Activations& activations, std::optional<int> data, std::optional<int> targets) {
    const auto t = static_cast<std::size_t>(data ? *data : *targets);
    const std::int64_t num_samples = model_.num_samples[t];
    const Tensor& input = graph_.tensors[t];
    std::vector<Operand> all;
    if (data) all.push_back(activations.produce(*data));
    if (targets) all.push_back(activations.produce(*targets));
    model_.samples[t].for_runs(0, num_samples, [&](std::int64_t sample, std::int64_t at, std::int64_t count) {
      Instruction in{.kernel = Kernel::load_targets,
                     .phase = Phase::forward,
                     .micro_batch = activations.micro_batch(),
                     .name = "input"};
      in.attributes = {{"samples", count}, {"first_sample", first_sample_of(activations.micro_batch()) + sample}};
      if (data) {
        in.kernel = input.role == TensorRole::tokens ? Kernel::load_tokens : Kernel::load_images;
        if (input.role == TensorRole::tokens) in.attributes.set("sequence", input.elements_per_sample());
      }
      for (const Operand& whole : all) {
        const std::int64_t elements = whole.num_elements / num_samples;
        in.outputs.push_back({whole.buffer, whole.begin + at * elements, count * elements, 0});
      }
      builder_.emit(std::move(in));
    });
  }

  /// Of a micro-batch, in the step's global batch.
  std::int64_t first_sample_of(int micro_batch) const {
    return plan_.global_batch / plan_.schedule.micro_batches * micro_batch;
  }

  void accumulate_loss(const Operator& op, const Activations& activations) {
    const int m = activations.micro_batch();
    const Operand rows = activations.value(op.outputs.front());
    const std::int64_t rows_per_sample = rows.num_elements / activations.num_samples(op.outputs.front());
    const auto num_rows = static_cast<double>(plan_.global_batch * rows_per_sample);
    const double scale = counts(op.outputs.front()) ? 1.0 / num_rows : 0.0;
    builder_.emit(
        {.kernel = Kernel::sum_loss,
         .phase = Phase::metrics,
         .micro_batch = m,
         .name = "loss",
         .inputs = {rows},
         .outputs = {builder_.whole(loss_)},
         .attributes = {
             {"elements", rows.num_elements}, {"scale", scale}, {"accumulate", std::int64_t{m > 0 ? 1 : 0}}}});
  }

  /// A stage without the loss adds nothing to the sum over all ranks.
  void clear_loss() {
    builder_.emit({.kernel = Kernel::fill,
                   .phase = Phase::metrics,
                   .name = "loss",
                   .outputs = {builder_.whole(loss_)},
                   .attributes = {{"elements", std::int64_t{1}}, {"value", 0.0}}});
  }

  void reduce_loss() {
    if (groups_.everybody < 0) return;
    builder_.emit({.kernel = Kernel::none,
                   .collective = Collective::all_reduce,
                   .group = groups_.everybody,
                   .stream = communication_stream,
                   .phase = Phase::metrics,
                   .name = "loss",
                   .inputs = {builder_.whole(loss_)},
                   .outputs = {builder_.whole(loss_)}});
  }

  const Plan& plan_;
  const LaidOutGraph& model_;
  const ModelGraph& graph_;
  std::span<const OperatorDecision> decisions_;
  Place place_;
  StepOrder order_;
  StageMessages messages_;
  ProgramBuilder builder_;
  Groups groups_;
  ReplicaGrids grids_;
  ParameterStates parameters_;
  int behind_backward_;  ///< the first item behind the last pass
  TensorUses uses_;
  std::map<int, Activations> activations_;  ///< by micro-batch
  Gathering gathering_;
  std::vector<int> from_before_, to_behind_;  ///< tensors that cross the cuts
  int loss_;
  std::vector<int> sent_;  ///< by item: the last of its messages
};

LaidOutGraph model_of(const Plan& plan, const ModelGraph& graph, int rank) {
  verify(plan, graph);
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  if (has_layouts(plan.mesh)) {
    refuse_what_is_missing(plan, graph, decisions);
    return lay_out(plan, graph, decisions, rank);
  }
  SplitModel split = split_operators(plan, graph, decisions);
  refuse_what_is_missing(plan, split.graph, split.decisions);
  refuse_what_is_not_quantized(plan, split.graph, split.decisions);
  return replicated(plan, std::move(split), rank);
}

/// Of the plan's schedule.
OrderGenerator order_generator_of(const Plan& plan) {
  OrderGenerator generator = order_generator(plan.schedule.kind);
  if (!generator) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.kind = {} cannot be lowered", plan.strategy, to_string(plan.schedule.kind)));
  }
  return generator;
}

}  // namespace

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes) {
  return lower(plan, graph, rank, workspace_bytes, order_generator_of(plan));
}

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes,
              const OrderGenerator& generator) {
  const LaidOutGraph model = model_of(plan, graph, rank);
  return StepLowering(plan, model, rank, Orders(plan, model, generator)).run(workspace_bytes);
}

std::vector<StepOrder> step_orders(const Plan& plan, const ModelGraph& graph) {
  const OrderGenerator generator = order_generator_of(plan);
  const LaidOutGraph model = model_of(plan, graph, 0);
  const Orders orders(plan, model, generator);
  std::vector<StepOrder> result;
  for (int stage = 0; stage < orders.num_stages(); ++stage) result.push_back(orders.of(stage));
  return result;
}

}  // namespace strata

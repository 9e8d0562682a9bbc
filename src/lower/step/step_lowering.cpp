#include "lower/step/step_lowering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/pace_tokens.hpp"
#include "lower/states/parameter_relay.hpp"
#include "lower/states/parameter_states.hpp"
#include "lower/states/walk_messages.hpp"
#include "lower/step/activations.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/empty_work.hpp"
#include "lower/step/operator_kernels.hpp"
#include "lower/step/rank_frame.hpp"
#include "lower/step/stage_messages.hpp"
#include "lower/step/streams.hpp"
#include "lower/unsupported.hpp"
#include "partition/sample_parts.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// The items of training step @p step of a body, one after the other as they run.
StepOrder order_of_step(const StepOrder& body, int step) {
  StepOrder order{.shape = body.shape};
  for (const int i : items_of_step(body, step)) {
    order.items.push_back(body.items[static_cast<std::size_t>(i)]);
    order.items.back().step = 0;
  }
  return order;
}

/// Messages of a training step @p order of a rank.
StageMessages messages_of(const OrdersOfPlaces& orders, const StepOrder& order, const RankPlace& here, int step,
                          bool has_replicas) {
  if (has_replicas) return StageMessages::of_replica(order, here.pipeline, here.in_pipeline);
  std::optional<StepOrder> before, behind;
  if (const auto place = orders.along_stages(here.index, -1)) before = order_of_step(orders.of(*place), step);
  if (const auto place = orders.along_stages(here.index, 1)) behind = order_of_step(orders.of(*place), step);
  return {order, here.pipeline, here.in_pipeline, before ? &*before : nullptr, behind ? &*behind : nullptr};
}

/// Streams between stages follow those of layouts, where there are any, and of rings.
int first_link_stream_of(const LaidOutGraph& model) {
  if (!model.is_laid_out()) return communication_stream + 1;
  return layout_stream + 1 + num_ring_streams(model);
}

/// Of a body: its operators have a kernel or two each, and some a collective.
std::size_t expected_instructions(const StepOrder& order) {
  std::size_t num_operators = 0;
  for (const OrderItem& item : order.items) {
    if (item.pass == Pass::update) continue;
    num_operators +=
        static_cast<std::size_t>(order.shape.segments[static_cast<std::size_t>(item.segment)].num_operators);
  }
  return 2 * num_operators;
}

/// Lowers one training step of a body.
class StepLowering {
 public:
  StepLowering(RankFrame& frame, int step)
      : plan_(frame.plan),
        model_(frame.model),
        graph_(frame.graph),
        place_(frame.place),
        body_items_(items_of_step(frame.order, step)),
        body_(frame.order),
        order_(order_of_step(frame.order, step)),
        step_(step),
        replicas_(frame.replicas ? &*frame.replicas : nullptr),
        messages_(messages_of(frame.orders, order_, place_, step, replicas_ != nullptr)),
        recomputation_(frame.recomputation),
        first_link_stream_(first_link_stream_of(model_.any())),
        builder_(frame.builder),
        groups_(frame.groups),
        parameters_(plan_, graph_, order_, step, recomputation_, frame.held, groups_.parameters,
                    frame.ring ? &*frame.ring : nullptr, replicas_, builder_),
        statistics_(frame.statistics),
        uses_(frame.uses),
        gradients_(frame.gradients),
        crossing_(crossing_before_stages()),
        loss_(frame.loss),
        correct_(frame.correct),
        sent_(order_.items.size(), -1) {
    if (frame.walk) {
      walk_.emplace(*frame.walk, graph_, order_, step, frame.held, builder_);
    } else if (frame.ring) {
      relay_.emplace(*frame.ring, graph_, order_, step, frame.held, builder_);
    }
    if (frame.tokens) tokens_.emplace(*frame.ring, order_, *frame.tokens);
  }

  void run() {
    const int end = behind_last_pass(order_);
    if (walk_) walk_->at_beginning(beginning_of_repetition());
    parameters_.gathers().at_beginning(place_of(0));
    if (relay_) relay_->at_beginning(place_of(0));
    for (int i = 0; i < end; ++i) lower_item(place_of(i), i);
    const bool has_update = end < std::ssize(order_.items);
    if (has_update && replicas_ != nullptr) parameters_.gradients().ahead_of_update(before_pass_ahead_of(end));
    const Place last = place_of(has_update ? end : end - 1);
    parameters_.gradients().behind_backward(last);
    // A stage without parameters has no update, and its part in the norm all the same.
    parameters_.update(last, has_update ? order_.items.back().parameters : std::vector<int>{});
    if (relay_ && has_update) relay_->behind_update(last, end);
  }

 private:
  /// Before the pass that precedes the update @p item, which may be of another training step: what comes for the update
  /// is posted there.
  Place before_pass_ahead_of(int item) const {
    const int in_body = body_items_[static_cast<std::size_t>(item)];
    int pass = in_body;
    for (const Run& run : runs_of(body_)) {
      if (run.first < in_body) pass = run.first;
    }
    return builder_.before_item(step_, pass, body_.items[static_cast<std::size_t>(in_body)].step);
  }
  /// Of item @p index of this step.
  Place place_of(int index) const {
    const int in_body = body_items_[static_cast<std::size_t>(index)];
    return builder_.item(step_, in_body, body_.items[static_cast<std::size_t>(in_body)].step);
  }
  /// The first item that the body has while this step is its newest.
  Place beginning_of_repetition() const {
    const int items_of_one = static_cast<int>(body_.items.size()) / body_.steps_per_body;
    return builder_.item(step_, step_ * items_of_one, step_);
  }
  const Segment& segment_of(const OrderItem& item) const {
    return order_.shape.segments[static_cast<std::size_t>(item.segment)];
  }
  /// All that the rank does of the item's sub-batch without a gap begins with it, and its backward ends with it.
  bool begins_part(const OrderItem& item) const { return place_.begins_part(segment_of(item)); }
  /// Of ranks that hold the same rows of the loss one counts.
  bool counts(int loss_tensor) const {
    if (!model_.any().is_laid_out()) return true;
    const AtomicAxes axes(plan_.mesh);
    const AxisSet copies = axes.all() & ~model_.any().layouts[static_cast<std::size_t>(loss_tensor)].samples;
    return axes.index(copies, builder_.rank()) == 0;
  }

  const LaidOutGraph& model_of(const OrderItem& item) const { return model_.of(item.sub_batch); }
  /// Among all sub-batches of the step.
  int number_of(const OrderItem& item) const { return item.micro_batch * plan_.schedule.sub_batches + item.sub_batch; }
  /// Of interleaved stages each has tensors of its own, even those that cross it: they are sent from rank to rank.
  std::pair<int, int> place_of_activations(const OrderItem& item) const {
    return {place_.part_of(segment_of(item)), number_of(item)};
  }
  /// Of a sub-batch that is between its first item and its last one on this rank.
  Activations& activations_of(const OrderItem& item) {
    const LaidOutGraph& model = model_of(item);
    return activations_
        .try_emplace(place_of_activations(item), model.graph, uses_,
                     gradients_[static_cast<std::size_t>(place_.part_of(segment_of(item)))], plan_.dtypes.compute,
                     model.num_samples, number_of(item), builder_)
        .first->second;
  }
  /// Of the segment's forwards in this step.
  bool is_first_forward(int index) const {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const auto first = std::ranges::find_if(order_.items, [&](const OrderItem& other) {
      return other.pass == Pass::forward && other.segment == item.segment;
    });
    return first - order_.items.begin() == index;
  }
  OperatorLowering operators_of_item(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    return {.plan = plan_,
            .model = model_of(item),
            .groups = groups_.axes ? &*groups_.axes : nullptr,
            .rings = groups_.rings ? &*groups_.rings : nullptr,
            .builder = builder_,
            .here = here,
            .activations = activations_of(item),
            .parameters = parameters_,
            .first_sample_of_all = first_sample_of(item),
            .item = index};
  }

  void lower_item(const Place& here, int index) {
    if (walk_) walk_->before_item(here, index);
    if (relay_) relay_->before_item(here, index);
    if (tokens_) tokens_->before_item(here, index);
    for (const StageMessages::Receive& receive : messages_.before(index)) post(here, receive);
    parameters_.gradients().before_item(here, index);
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    if (item.barrier && model_.any().is_laid_out()) await_layouts(here);
    switch (item.pass) {
      case Pass::forward: forward(here, index); break;
      case Pass::recompute: recompute(here, index); break;
      case Pass::backward: backward(here, index); break;
      case Pass::update: update_in_backward(here, index); break;
    }
    if (tokens_) tokens_->behind_item(here, index);
    if (messages_.after(index).peer >= 0) send(here, index);
    if (relay_) relay_->behind_item(here, index);
    if (walk_) walk_->behind_item(here, index);
    // Nothing of a sub-batch is looked up behind the last backward of this rank, or of one of its stages.
    if (item.pass == Pass::backward && begins_part(item)) activations_.erase(place_of_activations(item));
  }

  void await_layouts(const Place& here) const {
    for (int stream = layout_stream; stream < first_link_stream_; ++stream) {
      if (const int last = here.last_on(stream); last >= 0) here.hold(compute_stream, last);
    }
  }

  void forward(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const Segment& segment = segment_of(item);
    Activations& activations = activations_of(item);
    if (begins_part(item)) load_inputs(here, item);
    OperatorLowering operators = operators_of_item(here, index);
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      const Operator& op = model_of(item).graph.operators[static_cast<std::size_t>(o)];
      parameters_.gathers().before_operator(here, index, o);
      operators.forward(op, Phase::forward);
      if (op.kind == OperatorKind::cross_entropy || op.kind == OperatorKind::top_k) {
        accumulate_loss(here, op, activations);
      }
      if (op.kind == OperatorKind::batch_norm) keep_statistics(here, index, o, activations);
      if (op.kind == OperatorKind::top_k) count_correct(here, op, activations);
    }
  }

  const SegmentRecomputation& recomputation_of(const OrderItem& item) const {
    return recomputation_[static_cast<std::size_t>(item.segment)];
  }

  void recompute(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    OperatorLowering operators = operators_of_item(here, index);
    for (const int o : recomputation_of(item).runs_again) {
      parameters_.gathers().before_operator(here, index, o);
      operators.forward(model_of(item).graph.operators[static_cast<std::size_t>(o)], Phase::recompute);
    }
  }

  void backward(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const Segment& segment = segment_of(item);
    OperatorLowering operators = operators_of_item(here, index);
    for (int o = segment.end(); o-- > segment.first_operator;) {
      parameters_.gathers().before_operator(here, index, o);
      operators.backward(model_of(item).graph.operators[static_cast<std::size_t>(o)]);
      parameters_.gradients().behind_operator(here, index, o);
    }
  }

  void update_in_backward(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    parameters_.update(here, item.parameters);
    if (relay_) relay_->behind_update(here, index);
  }

  /// By stage: the tensors that cross the cut before it.
  std::vector<std::vector<int>> crossing_before_stages() const {
    std::vector<std::vector<int>> crossing(1);
    for (const Stage& stage : std::span(model_.any().stages).subspan(1)) {
      crossing.push_back(tensors_across(graph_, stage.first_operator));
    }
    return crossing;
  }
  const std::vector<int>& tensors_across_cut(int cut) const { return crossing_[static_cast<std::size_t>(cut)]; }
  /// Who takes the micro-batch of @p item at @p stage of a pipeline of ranks, in the group of stages.
  int member_of_stage(int stage, const OrderItem& item) const {
    if (replicas_ == nullptr) return stage;
    const StagePyramid& pyramid = replicas_->pyramid;
    return pyramid.rank_of(stage, pyramid.replica_taking(stage, step_, item.micro_batch));
  }
  /// To or from rank @p peer of the pipeline, of what crosses the cut before stage @p cut.
  Instruction message(Collective kind, const OrderItem& item, int peer, int cut, int stream, int tensor) const {
    const bool backward = item.pass != Pass::forward;
    const bool goes_around = place_.pipeline.is_ring() && place_.pipeline.place_of(cut) == 0;
    return {.kernel = Kernel::none,
            .collective = kind,
            .group = goes_around ? groups_.around : groups_.parameters.stages,
            .root = member_of_stage(peer, item),
            .stream = first_link_stream_ + stream,
            .phase = backward ? Phase::backward : Phase::forward,
            .micro_batch = number_of(item),
            .name = graph_.tensors[static_cast<std::size_t>(tensor)].name + (backward ? "/gradient" : "")};
  }

  void post(const Place& here, const StageMessages::Receive& receive) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(receive.item)];
    const bool backward = item.pass != Pass::forward;
    Activations& activations = activations_of(item);
    // The memory of what ends on the compute stream before this message is posted, and of messages that the neighbour
    // must have taken before it could send this one, is free for this one and for what follows it.
    std::vector<int> complete;
    if (const int last = here.last_on(compute_stream); last >= 0) complete.push_back(last);
    if (receive.taken >= 0) complete.push_back(sent_[static_cast<std::size_t>(receive.taken)]);
    for (const int t : tensors_across_cut(receive.cut)) {
      if (backward && !activations.needs_gradient(t)) continue;
      Instruction in = message(Collective::recv, item, receive.peer, receive.cut, receive.stream, t);
      in.outputs = {backward ? activations.received_gradient(t) : activations.produce(t)};
      here.emit(std::move(in), complete);
    }
  }

  /// What item @p index has made for a neighbour.
  void send(const Place& here, int index) {
    const OrderItem& item = order_.items[static_cast<std::size_t>(index)];
    const StageMessages::Send& to = messages_.after(index);
    const bool backward = item.pass != Pass::forward;
    Activations& activations = activations_of(item);
    for (const int t : tensors_across_cut(to.cut)) {
      if (backward && !activations.needs_gradient(t)) continue;
      Instruction in = message(Collective::send, item, to.peer, to.cut, to.stream, t);
      in.inputs = {backward ? activations.sent_gradient(t) : activations.value(t)};
      sent_[static_cast<std::size_t>(index)] = here.emit(std::move(in));
    }
  }

  /// The input of the model that operators of @p part read, of the roles for which @p is_it holds.
  template <typename Predicate>
  std::optional<int> input_read_by(const Stage& part, const Predicate& is_it) const {
    for (const Operator& op : operators_of(graph_, part)) {
      for (const int t : op.inputs) {
        if (is_it(graph_.tensors[static_cast<std::size_t>(t)].role)) return t;
      }
    }
    return std::nullopt;
  }

  /// Inputs of the model come from the data set, by position in the global batch; a stage loads what it reads.
  void load_inputs(const Place& here, const OrderItem& item) {
    const Stage& part = place_.parts[static_cast<std::size_t>(place_.part_of(segment_of(item)))];
    const auto data =
        input_read_by(part, [](TensorRole role) { return role == TensorRole::tokens || role == TensorRole::image; });
    const auto targets = input_read_by(part, [](TensorRole role) { return role == TensorRole::targets; });
    if (!data && !targets) return;
    const auto samples = [&](int t) -> const StridedBlock& {
      return model_of(item).samples[static_cast<std::size_t>(t)];
    };
    if (data && targets && (samples(*data) != samples(*targets) || !samples(*data).levels.empty())) {
      load(here, item, data, std::nullopt);
      load(here, item, std::nullopt, targets);
    } else {
      load(here, item, data, targets);
    }
  }

  /// Samples that are neighbours in the data set by one instruction.
  void load(const Place& here, const OrderItem& item, std::optional<int> data, std::optional<int> targets) {
    Activations& activations = activations_of(item);
    const auto t = static_cast<std::size_t>(data ? *data : *targets);
    const std::int64_t num_samples = model_of(item).num_samples[t];
    const Tensor& input = graph_.tensors[t];
    std::vector<Operand> all;
    if (data) all.push_back(activations.produce(*data));
    if (targets) all.push_back(activations.produce(*targets));
    const auto load_run = [&](std::int64_t sample, std::int64_t at, std::int64_t count) {
      Instruction in{.kernel = Kernel::load_targets,
                     .phase = Phase::forward,
                     .micro_batch = activations.micro_batch(),
                     .name = "input"};
      in.attributes = {{"samples", count}, {"first_sample", first_sample_of(item) + sample}};
      if (data) {
        in.kernel = input.role == TensorRole::tokens ? Kernel::load_tokens : Kernel::load_images;
        if (input.role == TensorRole::tokens) in.attributes.set("sequence", input.elements_per_sample());
      }
      for (const Operand& whole : all) {
        const std::int64_t elements = num_samples == 0 ? 0 : whole.num_elements / num_samples;
        in.outputs.push_back({whole.buffer, whole.begin + at * elements, count * elements});
      }
      emit_what_is_left(here, std::move(in));
    };
    // A rank without samples loads none of them, and has its tensors all the same.
    if (num_samples == 0) {
      load_run(0, 0, 0);
    } else {
      model_of(item).samples[t].for_runs(0, num_samples, load_run);
    }
  }

  /// Of a sub-batch, in the step's global batch.
  std::int64_t first_sample_of(const OrderItem& item) const {
    return samples_of_micro_batch(plan_) * item.micro_batch +
           model_.sub_batches[static_cast<std::size_t>(item.sub_batch)].first_sample;
  }

  void accumulate_loss(const Place& here, const Operator& op, const Activations& activations) {
    const int m = activations.micro_batch();
    const Operand rows = activations.value(op.outputs.front());
    const std::int64_t rows_per_sample =
        graph_.tensors[static_cast<std::size_t>(op.outputs.front())].elements_per_sample();
    const auto num_rows = static_cast<double>(plan_.global_batch * rows_per_sample);
    const double scale = counts(op.outputs.front()) ? 1.0 / num_rows : 0.0;
    sum_rows(here, rows, builder_.whole(loss_), scale, m);
  }

  /// Of the batch norm @p o, behind its kernel in item @p index.
  void keep_statistics(const Place& here, int index, int o, const Activations& activations) const {
    const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
    const int x = op.inputs.front();
    const std::int64_t elements =
        activations.num_samples(x) * graph_.tensors[static_cast<std::size_t>(x)].elements_per_sample();
    statistics_.behind_forward(here, o, activations.micro_batch(), is_first_forward(index),
                               elements / op.attributes.integer("channels"), activations.value(op.outputs[1]));
  }

  /// Of the one micro-batch that evaluation has.
  void count_correct(const Place& here, const Operator& op, const Activations& activations) {
    for (const int k : {0, 1}) {
      const int rows = op.outputs[static_cast<std::size_t>(k) + 1];
      sum_rows(here, activations.value(rows), {correct_, k, 1}, counts(rows) ? 1.0 : 0.0, activations.micro_batch());
    }
  }

  void sum_rows(const Place& here, const Operand& rows, const Operand& sum, double scale, int micro_batch) const {
    const int first = place_.first_micro_batch * plan_.schedule.sub_batches;
    Instruction in{.kernel = Kernel::sum_loss,
                   .phase = Phase::metrics,
                   .micro_batch = micro_batch,
                   .name = builder_.buffer(sum.buffer).name,
                   .inputs = {rows},
                   .outputs = {sum}};
    in.attributes = {
        {"elements", rows.num_elements}, {"scale", scale}, {"accumulate", std::int64_t{micro_batch > first ? 1 : 0}}};
    here.emit(std::move(in));
  }

  const Plan& plan_;
  const RankModel& model_;
  const ModelGraph& graph_;
  const RankPlace& place_;
  std::vector<int> body_items_;  ///< by item of the step: its place in the body
  const StepOrder& body_;
  StepOrder order_;
  int step_;                      ///< training step of the body
  const ReplicaLinks* replicas_;  ///< null: the stage has none
  StageMessages messages_;
  std::span<const SegmentRecomputation> recomputation_;  ///< by segment
  int first_link_stream_;
  ProgramBuilder& builder_;
  const RankGroups& groups_;
  ParameterStates parameters_;
  const NormStatistics& statistics_;
  std::optional<ParameterRelay> relay_;
  std::optional<WalkMessages> walk_;
  std::optional<PaceTokens> tokens_;
  const TensorUses& uses_;
  std::span<const ActivationGradients> gradients_;          ///< by part of the rank
  std::map<std::pair<int, int>, Activations> activations_;  ///< by part of the rank and sub-batch of the step
  std::vector<std::vector<int>> crossing_;                  ///< by stage: tensors that cross the cut before it
  int loss_;                                                ///< buffer, -1: another stage computes it
  int correct_;                                             ///< buffer, -1: nothing is evaluated
  std::vector<int> sent_;                                   ///< by item: the last of its messages
};

}  // namespace

Program lower_step(const Plan& plan, const RankModel& model, int rank, const OrdersOfPlaces& orders,
                   const KernelTraits& kernels) {
  RankFrame frame(plan, model, rank, orders);
  const StepOrder& order = frame.order;
  const bool overlaps = has_steps_that_overlap(plan.schedule.kind);
  if (!overlaps) refuse_orders_without_whole_passes(plan, order, frame.place.in_pipeline);
  frame.builder.set_steps_per_body(order.steps_per_body);
  if (overlaps || plan.overlap.broadcast == "next_forward") frame.builder.let_steps_overlap();
  frame.builder.make_room(expected_instructions(order));
  frame.held.buffers.initialize(frame.builder.prologue());
  frame.statistics.initialize(frame.builder.prologue());
  if (frame.tokens) frame.tokens->initialize(frame.builder.prologue());
  for (int step = 0; step < order.steps_per_body; ++step) StepLowering(frame, step).run();
  if (frame.replicas) {
    std::vector<int> passes;
    for (const Run& run : runs_of(order)) passes.push_back(run.first);
    frame.builder.keep_messages_close(std::move(passes));
  }
  return std::move(frame.builder).finish(kernels);
}

}  // namespace strata

/// @file
/// One step of one rank, in the order in which it is issued: the passes of its stage's micro-batches, then the
/// remaining reductions, the optimizer and the metrics.

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
#include "lower/parameter_states.hpp"
#include "lower/schedule.hpp"
#include "lower/stage_links.hpp"

namespace strata {
namespace {

/// What cannot be combined with tensor layouts yet.
void refuse_beside_layouts(const Plan& plan, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} with tensor layouts cannot be lowered", plan.strategy, what));
  };
  if (plan.quantization.any()) refuse("quantization");
  if (plan.mesh.placement != "block") refuse(fmt::format("mesh.placement = {}", plan.mesh.placement));
  for (const OperatorDecision& d : decisions) {
    if (!d.slice_state.empty() || d.slices > 1) refuse(fmt::format("slices = {}", d.slices));
  }
}

/// What a plan may ask for and this lowering cannot do yet, each by name.
void refuse_what_is_missing(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} cannot be lowered", plan.strategy, what));
  };
  if (has_layouts(plan.mesh)) refuse_beside_layouts(plan, decisions);
  for (const MeshAxis& axis : plan.mesh.axes) {
    if (axis.name != "data" && axis.name != "stage" && axis.size > 1) {
      refuse(fmt::format("mesh axis {} = {}", axis.name, axis.size));
    }
  }
  const bool in_passes =
      plan.schedule.kind == ScheduleKind::gpipe || plan.schedule.kind == ScheduleKind::one_forward_one_backward;
  if (!in_passes && plan.schedule.kind != ScheduleKind::simultaneous)
    refuse(fmt::format("schedule.kind = {}", to_string(plan.schedule.kind)));
  if (!in_passes && plan.stages.count != 1) {
    refuse(fmt::format("stages.count = {} with schedule.kind = {}", plan.stages.count, to_string(plan.schedule.kind)));
  }
  if (const int ranks = axis_size(plan.mesh, "stage"); plan.stages.count != ranks) {
    refuse(fmt::format("stages.count = {} over mesh axis stage = {}", plan.stages.count, ranks));
  }
  if (plan.schedule.sub_batches != 1) refuse(fmt::format("schedule.sub_batches = {}", plan.schedule.sub_batches));
  if (plan.schedule.cross_pass) refuse("schedule.cross_pass = true");
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
  }
  const bool leaf_first = plan.mesh.placement == "leaf-first";
  if (!leaf_first && plan.mesh.placement != "block") refuse(fmt::format("mesh.placement = {}", plan.mesh.placement));
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
    if (d.state.walks) refuse(name + ": state walks");
    if (d.layout && plan.mesh.num_ranks() > 1 && !has_layouts(plan.mesh)) {
      refuse(fmt::format("{}: a layout on a mesh with axes, which say how ranks are used,", name));
    }
    if (d.algorithm == MatmulAlgorithm::ring) refuse(fmt::format("{}: algorithm = {}", name, to_string(d.algorithm)));
    if (d.algorithm == MatmulAlgorithm::summa && !graph.operators[o].parameters.empty()) {
      const OperatorKind kind = graph.operators[o].kind;
      if (kind == OperatorKind::embedding || kind == OperatorKind::convolution) {
        refuse(fmt::format("{}: algorithm = summa of an operator of kind {}", name, to_string(kind)));
      }
      if (plan.mesh.num_ranks() > 1 && !has_layouts(plan.mesh)) {
        refuse(
            fmt::format("{}: algorithm = summa on a mesh with axes, where no layout says which ranks are its rows and "
                        "columns,",
                        name));
      }
    }
    if (d.recompute == Recompute::after_communication) refuse(name + ": recompute = after_communication");
  }
  // A block is recomputed as a whole: a rule for a part of it would otherwise do nothing, or more than it says.
  for (const Block& block : graph.blocks) {
    const auto at = [&](int o) -> const OperatorDecision& { return decisions[static_cast<std::size_t>(o)]; };
    for (int o = block.first_operator; o < block.first_operator + block.num_operators; ++o) {
      if (at(o).recompute != at(block.first_operator).recompute) {
        const auto named = [&](int p) {
          return fmt::format("{}: recompute = {}", graph.operators[static_cast<std::size_t>(p)].name,
                             to_string(at(p).recompute));
        };
        refuse(fmt::format("{} beside {} in block {}", named(o), named(block.first_operator), block.name));
      }
    }
  }
}

/// Everything that travels between the ranks that share a parameter is quantised, or the plan is not lowered: its name
/// would promise more than it does.
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

class StepLowering {
 public:
  StepLowering(const Plan& plan, const LaidOutGraph& model, int rank)
      : plan_(plan),
        model_(model),
        graph_(model.graph),
        decisions_(model.decisions),
        place_(plan, model, rank),
        builder_(rank, plan.mesh.num_ranks(), streams_of(place_)),
        groups_(plan, model, place_, rank, builder_),
        grids_(grids_of(plan, model, rank)),
        parameters_(plan, graph_, operators_of(graph_, place_.stage), shards_of(plan, graph_, decisions_, grids_),
                    grids_, builder_, groups_.parameters),
        activations_(graph_, plan.dtypes.compute, model.num_samples, builder_),
        operators_{plan, model, groups_.axes ? &*groups_.axes : nullptr, builder_, activations_, parameters_},
        gathering_(plan, graph_, place_.stage, decisions_, activations_, parameters_),
        links_(plan, graph_, place_.stages, place_.stage_index, groups_.parameters.stages, first_link_stream, builder_,
               activations_),
        loss_(builder_.add_buffer(
            {.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true})) {
    builder_.set_loss(loss_);
    internal_.resize(graph_.blocks.size());
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) {
      const int first = graph_.blocks[b].first_operator;
      const bool here = first >= place_.stage.first_operator && first < place_.stage.end();
      if (here && recomputes(graph_.blocks[b])) internal_[b] = internal_tensors(graph_, graph_.blocks[b]);
    }
  }

  Program run(const WorkspaceBytes& workspace_bytes) && {
    builder_.begin(ProgramBuilder::Section::prologue);
    parameters_.initialize();
    builder_.begin(ProgramBuilder::Section::body);
    parameters_.spread_last_updates();
    if (!computes_loss()) clear_loss();
    passes();
    reduce_loss();
    parameters_.gradients().reduce_remaining();
    parameters_.update();
    builder_.begin(ProgramBuilder::Section::epilogue);
    parameters_.spread_remaining();
    return std::move(builder_).finish(workspace_bytes);
  }

 private:
  bool recomputes(const Block& block) const {
    return decisions_[static_cast<std::size_t>(block.first_operator)].recompute == Recompute::block;
  }
  /// The block of which operator @p o is the last one.
  const Block* block_ending_at(int o) const {
    const int index = graph_.operators[static_cast<std::size_t>(o)].block;
    if (index < 0) return nullptr;
    const Block& block = graph_.blocks[static_cast<std::size_t>(index)];
    return o + 1 == block.first_operator + block.num_operators ? &block : nullptr;
  }
  /// Where the backward of a block, or of what stands behind the last one, begins with operator @p o: the block before
  /// it, if that is recomputed.
  const Block* recomputed_after(int o) const {
    const auto at = [&](int i) -> const Operator& { return graph_.operators[static_cast<std::size_t>(i)]; };
    if (o + 1 < place_.stage.end() && at(o + 1).block == at(o).block) return nullptr;
    int before = o;
    while (before >= place_.stage.first_operator && at(before).block == at(o).block) --before;
    if (before < place_.stage.first_operator || at(before).block < 0) return nullptr;
    const Block& block = graph_.blocks[static_cast<std::size_t>(at(before).block)];
    return recomputes(block) ? &block : nullptr;
  }
  bool computes_loss() const { return place_.stage_index + 1 == place_.num_stages; }
  /// Of ranks that hold the same rows of the loss one counts.
  bool counts(int loss_tensor) const {
    if (!has_layouts(plan_.mesh)) return true;
    const AtomicAxes axes(plan_.mesh);
    const AxisSet copies = axes.all() & ~model_.layouts[static_cast<std::size_t>(loss_tensor)].samples;
    return axes.index(copies, builder_.rank()) == 0;
  }

  void passes() {
    const std::vector<StagePass> order =
        pass_order(plan_.schedule.kind, place_.num_stages, place_.stage_index, plan_.schedule.micro_batches);
    const int last_backward = order.back().micro_batch;
    links_.receive(order.front());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const StagePass& pass = order[i];
      // Messages are awaited one pass ahead, under that pass's kernels. Not so the activations behind a backward: until
      // it is through, 1F1B's stage is full.
      const bool is_last = i + 1 == order.size();
      const bool ahead = !is_last && (order[i + 1].backward || !pass.backward);
      if (ahead) links_.receive(order[i + 1]);
      activations_.select(pass.micro_batch);
      operators_.first_sample_of_all = first_sample_of(pass.micro_batch);
      operators_.last_micro_batch = pass.micro_batch == last_backward;
      if (pass.backward) {
        backward();
      } else {
        forward();
      }
      links_.send(pass);
      if (pass.backward) activations_.finish();
      if (!is_last && !ahead) links_.receive(order[i + 1]);
    }
  }

  void forward() {
    load_inputs();
    for (int o = place_.stage.first_operator; o < place_.stage.end(); ++o) {
      const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
      gathering_.before_forward(o, activations_.micro_batch());
      operators_.forward(op, Phase::forward);
      gathering_.after_forward(o);
      if (op.kind == OperatorKind::cross_entropy) accumulate_loss(op);
      if (block_ending_at(o) != nullptr) {
        for (const int t : internal_[static_cast<std::size_t>(op.block)]) activations_.drop(t);
      }
    }
  }

  void backward() {
    for (int o = place_.stage.end(); o-- > place_.stage.first_operator;) {
      const Block* block = block_ending_at(o);
      if (block != nullptr && recomputes(*block)) {
        for (const int again : operators_to_recompute(graph_, *block, [&](int t) { return activations_.has(t); })) {
          gathering_.before_recompute(again, activations_.micro_batch());
          operators_.forward(graph_.operators[static_cast<std::size_t>(again)], Phase::recompute);
          gathering_.after_recompute(again);
        }
      }
      if (const Block* next = recomputed_after(o))
        gathering_.before_backward_of_block(*next, activations_.micro_batch());
      gathering_.before_backward(o, activations_.micro_batch());
      operators_.backward(graph_.operators[static_cast<std::size_t>(o)]);
      parameters_.gradients().after_operator();
      gathering_.after_backward(o);
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
  void load_inputs() {
    const auto data =
        input_read_here([](TensorRole role) { return role == TensorRole::tokens || role == TensorRole::image; });
    const auto targets = input_read_here([](TensorRole role) { return role == TensorRole::targets; });
    if (!data && !targets) return;
    const auto samples = [&](int t) -> const StridedBlock& { return model_.samples[static_cast<std::size_t>(t)]; };
    if (data && targets && (samples(*data) != samples(*targets) || !samples(*data).levels.empty())) {
      load(data, std::nullopt);
      load(std::nullopt, targets);
    } else {
      load(data, targets);
    }
  }

  /// Samples that are neighbours in the data set by one instruction.
  void load(std::optional<int> data, std::optional<int> targets) {
    const auto t = static_cast<std::size_t>(data ? *data : *targets);
    const std::int64_t num_samples = model_.num_samples[t];
    const Tensor& input = graph_.tensors[t];
    std::vector<Operand> all;
    if (data) all.push_back(activations_.produce(*data));
    if (targets) all.push_back(activations_.produce(*targets));
    model_.samples[t].for_runs(0, num_samples, [&](std::int64_t sample, std::int64_t at, std::int64_t count) {
      Instruction in{.kernel = Kernel::load_targets,
                     .phase = Phase::forward,
                     .micro_batch = activations_.micro_batch(),
                     .name = "input"};
      in.attributes = {{"samples", count}, {"first_sample", first_sample_of(activations_.micro_batch()) + sample}};
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

  void accumulate_loss(const Operator& op) {
    const int m = activations_.micro_batch();
    const Operand rows = activations_.value(op.outputs.front());
    const std::int64_t rows_per_sample = rows.num_elements / activations_.num_samples(op.outputs.front());
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
  ProgramBuilder builder_;
  Groups groups_;
  ReplicaGrids grids_;
  ParameterStates parameters_;
  Activations activations_;
  OperatorLowering operators_;
  Gathering gathering_;
  StageLinks links_;
  int loss_;
  std::vector<std::vector<int>> internal_;  ///< by block: what its forward pass here forgets
};

}  // namespace

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes) {
  verify(plan, graph);
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  if (has_layouts(plan.mesh)) {
    refuse_what_is_missing(plan, graph, decisions);
    return StepLowering(plan, lay_out(plan, graph, decisions, rank), rank).run(workspace_bytes);
  }
  SplitModel split = split_operators(plan, graph, decisions);
  refuse_what_is_missing(plan, split.graph, split.decisions);
  refuse_what_is_not_quantized(plan, split.graph, split.decisions);
  return StepLowering(plan, replicated(plan, std::move(split), rank), rank).run(workspace_bytes);
}

}  // namespace strata

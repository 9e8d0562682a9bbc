/// @file
/// One step, in the order in which it is issued: for each micro-batch forward and backward, then the remaining
/// reductions, the optimizer and the metrics.

#include "lower/lower.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/error.hpp"
#include "lower/activations.hpp"
#include "lower/builder.hpp"
#include "lower/operator_kernels.hpp"
#include "lower/parameter_states.hpp"
#include "lower/recomputation.hpp"

namespace strata {
namespace {

/// What a plan may ask for and this lowering cannot do yet, each by name.
void refuse_what_is_missing(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {} cannot be lowered", plan.strategy, what));
  };
  for (const MeshAxis& axis : plan.mesh.axes) {
    if (axis.name != "data" && axis.size > 1) refuse(fmt::format("mesh axis {} = {}", axis.name, axis.size));
  }
  if (plan.schedule.kind != ScheduleKind::simultaneous)
    refuse(fmt::format("schedule.kind = {}", to_string(plan.schedule.kind)));
  if (plan.schedule.sub_batches != 1) refuse(fmt::format("schedule.sub_batches = {}", plan.schedule.sub_batches));
  if (plan.schedule.cross_pass) refuse("schedule.cross_pass = true");
  if (plan.stages.count != 1) refuse(fmt::format("stages.count = {}", plan.stages.count));
  if (plan.mesh.placement != "block") refuse(fmt::format("mesh.placement = {}", plan.mesh.placement));
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const OperatorDecision& d = decisions[o];
    const std::string& name = graph.operators[o].name;
    const auto sharded = [&](const char* what, const Factor& f) {
      if (f.total() != 1) refuse(fmt::format("{}: state {} = {}", name, what, to_string(f)));
    };
    sharded("p", d.state.p);
    sharded("g", d.state.g);
    sharded("os", d.state.os);
    if (d.state.p_backward) sharded("p_backward", *d.state.p_backward);
    if (d.state.walks) refuse(name + ": state walks");
    if (d.layout) refuse(name + ": a layout");
    if (d.algorithm != MatmulAlgorithm::local) refuse(fmt::format("{}: algorithm = {}", name, to_string(d.algorithm)));
    if (d.slices > 1) refuse(fmt::format("{}: slices = {}", name, d.slices));
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

class StepLowering {
 public:
  StepLowering(const Plan& plan, const ModelGraph& graph, std::vector<OperatorDecision> decisions, int rank)
      : plan_(plan),
        graph_(graph),
        decisions_(std::move(decisions)),
        data_size_(axis_size(plan.mesh, "data")),
        data_index_(data_size_ > 1 ? coordinate(plan.mesh, "data", rank) : 0),
        builder_(rank, plan.mesh.num_ranks(), {"compute", "communication"}),
        data_group_(data_size_ > 1 ? builder_.add_group({"data", group_along(plan.mesh, "data", rank)}) : -1),
        parameters_(plan, graph, builder_, data_group_),
        samples_(plan.global_batch / (data_size_ * plan.schedule.micro_batches)),
        activations_(graph, plan.dtypes.compute, samples_, builder_),
        operators_{plan, graph, builder_, activations_, parameters_},
        loss_(builder_.add_buffer(
            {.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true})) {
    builder_.set_loss(loss_);
  }

  Program run(const WorkspaceBytes& workspace_bytes) && {
    builder_.begin(ProgramBuilder::Section::prologue);
    parameters_.initialize();
    builder_.begin(ProgramBuilder::Section::body);
    for (int m = 0; m < plan_.schedule.micro_batches; ++m) {
      micro_batch(m);
    }
    reduce_loss();
    parameters_.reduce_remaining();
    parameters_.update();
    return std::move(builder_).finish(workspace_bytes);
  }

 private:
  bool recomputes(const Block& block) const {
    return decisions_[static_cast<std::size_t>(block.first_operator)].recompute == Recompute::block;
  }

  void micro_batch(int m) {
    activations_.begin(m);
    operators_.first_sample = (std::int64_t{m} * data_size_ + data_index_) * samples_;
    operators_.last_micro_batch = m + 1 == plan_.schedule.micro_batches;
    load_inputs(m);
    const int num_operators = static_cast<int>(graph_.operators.size());
    for (int o = 0; o < num_operators; ++o) {
      const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
      operators_.forward(op, Phase::forward);
      if (op.kind == OperatorKind::cross_entropy) accumulate_loss(op, m);
      if (op.block >= 0) {
        const Block& block = graph_.blocks[static_cast<std::size_t>(op.block)];
        if (o + 1 == block.first_operator + block.num_operators && recomputes(block)) {
          for (const int t : internal_tensors(graph_, block)) activations_.drop(t);
        }
      }
    }
    for (int o = num_operators; o-- > 0;) {
      const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
      if (op.block >= 0) {
        const Block& block = graph_.blocks[static_cast<std::size_t>(op.block)];
        if (o + 1 == block.first_operator + block.num_operators && recomputes(block)) {
          for (const int again : operators_to_recompute(graph_, block, activations_)) {
            operators_.forward(graph_.operators[static_cast<std::size_t>(again)], Phase::recompute);
          }
        }
      }
      operators_.backward(op);
    }
  }

  /// Inputs of the model come from the data set, by position in the global batch.
  void load_inputs(int m) {
    Instruction in{.phase = Phase::forward, .micro_batch = m, .name = "input"};
    in.attributes = {{"samples", samples_}, {"first_sample", operators_.first_sample}};
    int data = -1;
    int targets = -1;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorRole role = graph_.tensors[t].role;
      if (role == TensorRole::tokens || role == TensorRole::image) data = static_cast<int>(t);
      if (role == TensorRole::targets) targets = static_cast<int>(t);
    }
    STRATA_INVARIANT(data >= 0 && targets >= 0, "a model has one input and one target");
    const Tensor& input = graph_.tensors[static_cast<std::size_t>(data)];
    in.kernel = input.role == TensorRole::tokens ? Kernel::load_tokens : Kernel::load_images;
    if (input.role == TensorRole::tokens) in.attributes.set("sequence", input.elements_per_sample());
    in.outputs = {activations_.produce(data), activations_.produce(targets)};
    builder_.emit(std::move(in));
  }

  void accumulate_loss(const Operator& op, int m) {
    const Operand rows = activations_.value(op.outputs.front());
    const std::int64_t rows_per_sample = rows.num_elements / samples_;
    const auto num_rows = static_cast<double>(plan_.global_batch * rows_per_sample);
    builder_.emit(
        {.kernel = Kernel::sum_loss,
         .phase = Phase::metrics,
         .micro_batch = m,
         .name = "loss",
         .inputs = {rows},
         .outputs = {builder_.whole(loss_)},
         .attributes = {
             {"elements", rows.num_elements}, {"scale", 1.0 / num_rows}, {"accumulate", std::int64_t{m > 0 ? 1 : 0}}}});
  }

  void reduce_loss() {
    if (data_group_ < 0) return;
    builder_.emit({.kernel = Kernel::none,
                   .collective = Collective::all_reduce,
                   .group = data_group_,
                   .stream = communication_stream,
                   .phase = Phase::metrics,
                   .name = "loss",
                   .inputs = {builder_.whole(loss_)},
                   .outputs = {builder_.whole(loss_)}});
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  std::vector<OperatorDecision> decisions_;
  int data_size_;
  int data_index_;
  ProgramBuilder builder_;
  int data_group_;
  ParameterStates parameters_;
  std::int64_t samples_;
  Activations activations_;
  OperatorLowering operators_;
  int loss_;
};

}  // namespace

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes) {
  verify(plan, graph);
  std::vector<OperatorDecision> decisions = resolve(plan, graph);
  refuse_what_is_missing(plan, graph, decisions);
  return StepLowering(plan, graph, std::move(decisions), rank).run(workspace_bytes);
}

}  // namespace strata

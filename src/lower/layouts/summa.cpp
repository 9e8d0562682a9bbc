/// @file
/// Products by panels (lower/summa_panels): the broadcasts of a panel run under the product of the one before, through
/// two buffers each, so that no rank holds more of the others' parts than two panels. All ranks emit the same
/// instructions but for the roots: who broadcasts receives, too.

#include <array>
#include <optional>
#include <utility>

#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {

/// The panels of X or W on one rank, as they come.
class OperatorLowering::PanelStream {
 public:
  /// @param name of what travels. @param pieces what this rank holds, in @p num_pieces. @param group -1: all panels are
  /// this rank's.
  PanelStream(OperatorLowering& lowering, std::string name, const Operand& pieces, int num_pieces, int group,
              Phase phase)
      : lowering_(lowering),
        name_(std::move(name)),
        pieces_(pieces),
        piece_elements_(pieces.num_elements / num_pieces),
        group_(group),
        phase_(phase) {}

  /// Panel number @p index, which @p root broadcasts. It is there until two panels later.
  Operand fetch(std::size_t index, int root, int piece) {
    const Operand own = piece_of(pieces_, piece_elements_, piece);
    if (group_ < 0) return own;
    Operand& panel = buffers_[index % buffers_.size()];
    if (index < buffers_.size()) {
      panel = lowering_.panel_buffer(name_, piece_elements_, lowering_.builder.buffer(pieces_.buffer).dtype);
    }
    lowering_.builder.emit({.kernel = Kernel::none,
                            .collective = Collective::broadcast,
                            .group = group_,
                            .root = root,
                            .stream = communication_stream,
                            .phase = phase_,
                            .micro_batch = lowering_.activations.micro_batch(),
                            .name = name_,
                            .inputs = {own},
                            .outputs = {panel}});
    return panel;
  }

  static Operand piece_of(const Operand& pieces, std::int64_t piece_elements, int piece) {
    return {pieces.buffer, pieces.begin + piece * piece_elements, piece_elements};
  }

 private:
  OperatorLowering& lowering_;
  std::string name_;
  Operand pieces_;
  std::int64_t piece_elements_;
  int group_;
  Phase phase_;
  std::array<Operand, 2> buffers_{};
};

/// The panels of a gradient on their way to who keeps them: each rank's part of the sum is written into what product()
/// gives, then summed into the root's piece.
class OperatorLowering::PanelSums {
 public:
  PanelSums(OperatorLowering& lowering, std::string name, const Operand& pieces, int num_pieces, int group)
      : lowering_(lowering),
        name_(std::move(name)),
        pieces_(pieces),
        piece_elements_(pieces.num_elements / num_pieces),
        group_(group) {}

  Operand product(std::size_t index, int piece) {
    if (group_ < 0) return PanelStream::piece_of(pieces_, piece_elements_, piece);
    Operand& panel = buffers_[index % buffers_.size()];
    if (index < buffers_.size()) {
      panel = lowering_.panel_buffer(name_, piece_elements_, lowering_.builder.buffer(pieces_.buffer).dtype);
    }
    return panel;
  }

  void sum(std::size_t index, int root, int piece) {
    if (group_ < 0) return;
    const bool is_root =
        lowering_.builder.group(group_).ranks[static_cast<std::size_t>(root)] == lowering_.builder.rank();
    std::vector<Operand> outputs;
    if (is_root) outputs.push_back(PanelStream::piece_of(pieces_, piece_elements_, piece));
    last_ = lowering_.builder.emit({.kernel = Kernel::none,
                                    .collective = Collective::reduce,
                                    .group = group_,
                                    .root = root,
                                    .stream = communication_stream,
                                    .phase = Phase::backward,
                                    .micro_batch = lowering_.activations.micro_batch(),
                                    .name = name_,
                                    .inputs = {buffers_[index % buffers_.size()]},
                                    .outputs = std::move(outputs)});
  }

  /// Compute goes on when all sums have come, not only this rank's: so that all ranks' memory is free again at the same
  /// time. Some rank has to wait for the last one, and the others meet it in the next collective.
  void finish() {
    if (last_ >= 0) lowering_.builder.hold(compute_stream, last_);
  }

 private:
  OperatorLowering& lowering_;
  std::string name_;
  Operand pieces_;
  std::int64_t piece_elements_;
  int group_;
  int last_ = -1;  ///< sum
  std::array<Operand, 2> buffers_{};
};

Operand OperatorLowering::panel_buffer(const std::string& name, std::int64_t num_elements, DType dtype) {
  return builder.whole(builder.add_buffer(
      {.name = name, .num_elements = num_elements, .dtype = dtype, .category = Category::communication}));
}

const SummaPanels& OperatorLowering::panels_of(const Operator& op) const {
  return model.panels[static_cast<std::size_t>(op.attributes.integer("summa"))];
}

/// The kernel of one panel.
Instruction OperatorLowering::panel_kernel(Kernel kind, const Operator& op, Phase phase) const {
  Instruction in = kernel(kind, op, phase);
  in.attributes.set("in", panels_of(op).width);
  return in;
}

void OperatorLowering::summa_forward(const Operator& op, Phase phase) {
  const SummaPanels& s = panels_of(op);
  const Operand x = permuted(op, activations.value(op.inputs.front()), s.input_pack, nullptr, phase);
  const Operand w = permuted(op, parameters.weight(op.parameters.front()), s.weight_pack, nullptr, phase);
  PanelStream inputs(*this, op.name + "/inputs", x, s.num_input_pieces, groups->of(s.columns), phase);
  PanelStream weights(*this, op.name + "/weights", w, s.num_weight_pieces, groups->of(s.rows), phase);
  const auto fetch = [&](std::size_t l) {
    const SummaPanels::Panel& panel = s.panels[l];
    return std::pair{inputs.fetch(l, panel.input_root, panel.input_piece),
                     weights.fetch(l, panel.weight_root, panel.weight_piece)};
  };
  const Operand y = output(op, 0, {});
  auto next = fetch(0);
  for (std::size_t l = 0; l < s.panels.size(); ++l) {
    const auto [input, weight] = next;
    if (l + 1 < s.panels.size()) next = fetch(l + 1);
    Instruction in = panel_kernel(Kernel::linear_forward, op, phase);
    in.inputs = {input, weight};
    if (l == 0 && op.parameters.size() > 1) in.inputs.push_back(parameters.weight(op.parameters[1]));
    in.outputs = {y};
    if (l > 0) in.attributes.set("accumulate", 1);
    builder.emit(std::move(in));
  }
}

void OperatorLowering::summa_backward(const Operator& op) {
  const SummaPanels& s = panels_of(op);
  const Activations::Taken dy = activations.take_gradient(op.outputs.front());
  const int tensor = op.inputs.front(), parameter = op.parameters.front();
  const int row = groups->of(s.columns), column = groups->of(s.rows);
  const bool needs_dx = activations.needs_gradient(tensor);
  const Operand x = permuted(op, activations.value(tensor), s.input_pack, nullptr, Phase::backward);
  PanelStream inputs(*this, op.name + "/inputs", x, s.num_input_pieces, row, Phase::backward);

  // Sums come piece by piece: into their places at once, or beside them where places are not in that order.
  const auto beside = [&](const Permutation& pack, const Operand& place, bool adds) {
    return pack.is_identity() && !adds
               ? place
               : panel_buffer(op.name + "/pieces", place.num_elements, builder.buffer(place.buffer).dtype);
  };
  const GradientBuckets::Destination dw = parameters.gradients().destination(parameter);
  const Operand dw_pieces = beside(s.weight_pack, dw.operand, dw.accumulate);
  builder.reserve(dw_pieces.buffer);
  PanelSums weight_sums(*this, op.name + "/weight_gradient", dw_pieces, s.num_weight_pieces, column);

  std::optional<PanelStream> weights;
  std::optional<PanelSums> input_sums;
  Activations::Destination dx;
  Operand dx_pieces;
  if (needs_dx) {
    const Operand w = permuted(op, parameters.weight(parameter), s.weight_pack, nullptr, Phase::backward);
    weights.emplace(*this, op.name + "/weights", w, s.num_weight_pieces, column, Phase::backward);
    dx = activations.gradient_destination(tensor, false);
    dx_pieces = beside(s.input_pack, dx.operand, false);
    builder.reserve(dx_pieces.buffer);
    input_sums.emplace(*this, op.name + "/input_gradient", dx_pieces, s.num_input_pieces, row);
  }

  struct Fetched {
    Operand input, weight;
  };
  const auto fetch = [&](std::size_t l) {
    const SummaPanels::Panel& panel = s.panels[l];
    Fetched fetched;
    if (weights) fetched.weight = weights->fetch(l, panel.weight_root, panel.weight_piece);
    fetched.input = inputs.fetch(l, panel.input_root, panel.input_piece);
    return fetched;
  };
  Fetched next = fetch(0);
  for (std::size_t l = 0; l < s.panels.size(); ++l) {
    const SummaPanels::Panel& panel = s.panels[l];
    const Fetched now = next;
    if (l + 1 < s.panels.size()) next = fetch(l + 1);
    if (input_sums) {
      Instruction in = panel_kernel(Kernel::linear_backward_input, op, Phase::backward);
      in.inputs = {dy.operand, now.weight};
      in.outputs = {input_sums->product(l, panel.input_piece)};
      in.attributes.set("accumulate", 0);
      builder.emit(std::move(in));
      input_sums->sum(l, panel.input_root, panel.input_piece);
    }
    Instruction in = panel_kernel(Kernel::linear_backward_weight, op, Phase::backward);
    in.inputs = {now.input, dy.operand};
    in.outputs = {weight_sums.product(l, panel.weight_piece)};
    std::int64_t accumulate = 0;
    if (l == 0 && op.parameters.size() > 1) {
      const GradientBuckets::Destination bias = parameters.gradients().destination(op.parameters[1]);
      in.outputs.push_back(bias.operand);
      accumulate = bias.accumulate ? 2 : 0;
    }
    in.attributes.set("accumulate", accumulate);
    builder.emit(std::move(in));
    weight_sums.sum(l, panel.weight_root, panel.weight_piece);
  }

  if (input_sums) input_sums->finish();
  // Nothing reads the weight's gradient before the update, but where it is put into its place.
  if (dw.accumulate || !s.weight_pack.is_identity()) weight_sums.finish();
  if (needs_dx) {
    if (!s.input_pack.is_identity()) permuted(op, dx_pieces, s.input_pack.inverse(), &dx.operand, Phase::backward);
    activations.merge(tensor, dx, op.name);
  }
  if (dw.accumulate) {
    const Operand sum = permuted(op, dw_pieces, s.weight_pack.inverse(), nullptr, Phase::backward);
    builder.emit({.kernel = Kernel::accumulate,
                  .phase = Phase::backward,
                  .micro_batch = activations.micro_batch(),
                  .name = op.name,
                  .inputs = {sum},
                  .outputs = {dw.operand},
                  .attributes = {{"elements", sum.num_elements}}});
  } else if (!s.weight_pack.is_identity()) {
    permuted(op, dw_pieces, s.weight_pack.inverse(), &dw.operand, Phase::backward);
  }
  for (const int p : op.parameters) parameters.gradients().contributed(p, last_micro_batch);
}

}  // namespace strata

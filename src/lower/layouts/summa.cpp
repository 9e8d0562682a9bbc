/// @file
/// Products by panels (lower/summa_panels): the broadcasts of a panel run under the product of the one before, through
/// two buffers each, so that no rank holds more of the others' parts than two panels; or, with overlap.panels = none,
/// behind it. All ranks emit the same instructions but for the roots: who broadcasts receives, too.

#include <array>
#include <optional>
#include <utility>

#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {

/// X or W of one rank as panels: its own pieces, packed, and who else needs them.
struct OperatorLowering::OwnPanels {
  Operand pieces;
  const std::vector<std::int64_t>& begins;  ///< of pieces, and the end
  /// Of the largest panel among those that take turns in a buffer: the first, the third, …, and the others.
  std::array<std::int64_t, 2> elements{};
  bool is_even = true;  ///< all panels have as many
  int group = -1;       ///< of those who need them; -1: all panels are this rank's

  Operand piece(int index) const {
    const auto i = static_cast<std::size_t>(index);
    return {pieces.buffer, pieces.begin + begins[i], begins[i + 1] - begins[i]};
  }
  bool is_root(const OperatorLowering& lowering, int root) const {
    return lowering.builder.group(group).ranks[static_cast<std::size_t>(root)] == lowering.builder.rank();
  }
};

/// The panels of X or W on one rank, as they come.
class OperatorLowering::PanelStream {
 public:
  /// @param name of what travels.
  PanelStream(OperatorLowering& lowering, std::string name, const OwnPanels& own, Phase phase)
      : lowering_(lowering), name_(std::move(name)), own_(own), phase_(phase) {}

  /// Panel number @p index of @p elements, which @p root broadcasts. It is there until two panels later.
  Operand fetch(std::size_t index, int root, int piece, std::int64_t elements) {
    if (own_.group < 0) return own_.piece(piece);
    if (lowering_.panels_block()) lowering_.wait_for_computation();
    Operand& buffer = buffers_[index % buffers_.size()];
    if (index < buffers_.size()) {
      buffer = lowering_.panel_buffer(name_, own_.elements[index], lowering_.builder.buffer(own_.pieces.buffer).dtype);
    }
    const Operand panel{buffer.buffer, buffer.begin, elements};
    std::vector<Operand> inputs;
    // Pieces of one size are named by all; of unequal ones a rank need not have one like the root's.
    if (own_.is_even || own_.is_root(lowering_, root)) inputs.push_back(own_.piece(piece));
    lowering_.here.emit({.kernel = Kernel::none,
                         .collective = Collective::broadcast,
                         .group = own_.group,
                         .root = root,
                         .stream = layout_stream,
                         .phase = phase_,
                         .micro_batch = lowering_.activations.micro_batch(),
                         .name = name_,
                         .inputs = std::move(inputs),
                         .outputs = {panel}});
    return panel;
  }

 private:
  OperatorLowering& lowering_;
  std::string name_;
  OwnPanels own_;
  Phase phase_;
  std::array<Operand, 2> buffers_{};
};

/// Panels of a gradient on their way to who keeps them: each rank's part of the sum is written into what product()
/// gives, then summed into the root's piece.
class OperatorLowering::PanelSums {
 public:
  PanelSums(OperatorLowering& lowering, std::string name, const OwnPanels& own)
      : lowering_(lowering), name_(std::move(name)), own_(own) {}

  Operand product(std::size_t index, int piece, std::int64_t elements) {
    if (own_.group < 0) return own_.piece(piece);
    Operand& buffer = buffers_[index % buffers_.size()];
    if (index < buffers_.size()) {
      buffer = lowering_.panel_buffer(name_, own_.elements[index], lowering_.builder.buffer(own_.pieces.buffer).dtype);
    }
    return {buffer.buffer, buffer.begin, elements};
  }

  /// @param product of product(): what this rank has of the sum.
  void sum(int root, int piece, const Operand& product) {
    if (own_.group < 0) return;
    std::vector<Operand> outputs;
    if (own_.is_root(lowering_, root)) outputs.push_back(own_.piece(piece));
    sums_.push_back(lowering_.here.emit({.kernel = Kernel::none,
                                         .collective = Collective::reduce,
                                         .group = own_.group,
                                         .root = root,
                                         .stream = layout_stream,
                                         .phase = Phase::backward,
                                         .micro_batch = lowering_.activations.micro_batch(),
                                         .name = name_,
                                         .inputs = {product},
                                         .outputs = std::move(outputs)}));
    if (lowering_.panels_block()) lowering_.here.hold(compute_stream, sums_.back());
  }

  /// Compute goes on when all sums have come, not only this rank's: so that all ranks' memory is free again at the same
  /// time. Some rank has to wait for the last one, and the others meet it in the next collective.
  void finish() {
    if (!sums_.empty()) lowering_.here.hold(compute_stream, sums_.back());
  }

 private:
  OperatorLowering& lowering_;
  std::string name_;
  OwnPanels own_;
  std::vector<int> sums_;  ///< instructions
  std::array<Operand, 2> buffers_{};
};

Operand OperatorLowering::panel_buffer(const std::string& name, std::int64_t num_elements, DType dtype) {
  return builder.whole(builder.add_buffer(
      {.name = name, .num_elements = num_elements, .dtype = dtype, .category = Category::communication}));
}

bool OperatorLowering::panels_block() const { return plan.overlap.panels == "none"; }

void OperatorLowering::wait_for_computation() {
  if (const int last = here.last_on(compute_stream); last >= 0) here.hold(layout_stream, last);
}

void OperatorLowering::wait_for_panels() {
  if (const int last = here.last_on(layout_stream); last >= 0) here.hold(compute_stream, last);
}

const SummaPanels& OperatorLowering::panels_of(const Operator& op) const {
  return model.panels[static_cast<std::size_t>(op.attributes.integer("summa"))];
}

OperatorLowering::OwnPanels OperatorLowering::inputs_of(const SummaPanels& s, const Operand& pieces) const {
  return {.pieces = pieces,
          .begins = s.input_begins,
          .elements = {s.widest[0] * s.num_rows, s.widest[1] * s.num_rows},
          .is_even = s.is_even,
          .group = groups->of(s.columns)};
}

OperatorLowering::OwnPanels OperatorLowering::weights_of(const SummaPanels& s, const Operand& pieces) const {
  return {.pieces = pieces,
          .begins = s.weight_begins,
          .elements = {s.widest[0] * s.num_outputs, s.widest[1] * s.num_outputs},
          .is_even = s.is_even,
          .group = groups->of(s.rows)};
}

/// The kernel of one panel.
Instruction OperatorLowering::panel_kernel(Kernel kind, const Operator& op, std::int64_t width, Phase phase) const {
  Instruction in = kernel(kind, op, phase);
  in.attributes.set("in", width);
  return in;
}

void OperatorLowering::put_weight_gradient(const Operator& op, const Operand& parts, const Packing& packing,
                                           const GradientEmission::Destination& to) {
  if (!to.accumulate) {
    unpack(op, parts, packing, to.operand, Phase::backward);
    return;
  }
  Operand sum = parts;
  if (!packing.is_in_place()) {
    sum = packed_buffer(op, "/packed", parts);
    unpack(op, parts, packing, sum, Phase::backward);
  }
  Instruction add = kernel(Kernel::accumulate, op, Phase::backward);
  add.inputs = {sum};
  add.outputs = {to.operand};
  add.attributes = {{"elements", sum.num_elements}};
  emit(std::move(add));
}

void OperatorLowering::summa_forward(const Operator& op, Phase phase) {
  const SummaPanels& s = panels_of(op);
  const Operand x = packed(op, activations.value(op.inputs.front()), s.inputs, nullptr, phase);
  const Operand w = packed(op, weight_of(op, op.parameters.front()), s.weights, nullptr, phase);
  PanelStream inputs(*this, op.name + "/inputs", inputs_of(s, x), phase);
  PanelStream weights(*this, op.name + "/weights", weights_of(s, w), phase);
  const auto fetch = [&](std::size_t l) {
    const SummaPanels::Panel& panel = s.panels[l];
    return std::pair{inputs.fetch(l, panel.input_root, panel.input_piece, panel.width * s.num_rows),
                     weights.fetch(l, panel.weight_root, panel.weight_piece, panel.width * s.num_outputs)};
  };
  const Operand y = output(op, 0, {});
  auto next = fetch(0);
  for (std::size_t l = 0; l < s.panels.size(); ++l) {
    if (l > 0 && panels_block()) next = fetch(l);
    const auto [input, weight] = next;
    if (l + 1 < s.panels.size() && !panels_block()) next = fetch(l + 1);
    Instruction in = panel_kernel(Kernel::linear_forward, op, s.panels[l].width, phase);
    in.inputs = {input, weight};
    if (l == 0 && op.parameters.size() > 1) in.inputs.push_back(weight_of(op, op.parameters[1]));
    in.outputs = {y};
    if (l > 0) in.attributes.set("accumulate", 1);
    emit(std::move(in));
  }
}

void OperatorLowering::summa_backward(const Operator& op) {
  const SummaPanels& s = panels_of(op);
  const Operand dy = output_gradient(op);
  const int tensor = op.inputs.front(), parameter = op.parameters.front();
  const ActivationGradients::Contribution& to_dx = gradients_of(op).inputs.front();
  const bool needs_dx = to_dx.place >= 0;
  const Operand x = packed(op, activations.value(tensor), s.inputs, nullptr, Phase::backward);
  PanelStream inputs(*this, op.name + "/inputs", inputs_of(s, x), Phase::backward);

  // Sums come piece by piece: into their places at once, or beside them where places are not in that order.
  const auto beside = [&](const Packing& packing, const Operand& place, bool adds) {
    return place.num_elements == 0 || (packing.is_in_place() && !adds)
               ? place
               : panel_buffer(op.name + "/pieces", place.num_elements, builder.buffer(place.buffer).dtype);
  };
  const GradientEmission::Destination dw = parameters.gradients().destination(here, item, index_of(op), 0);
  // No panel writes what has no elements.
  if (dw.operand.num_elements == 0) clear(op, dw.operand, Phase::backward);
  const Operand dw_pieces = beside(s.weights, dw.operand, dw.accumulate);
  if (dw_pieces.num_elements > 0) here.reserve(dw_pieces.buffer);
  PanelSums weight_sums(*this, op.name + "/weight_gradient", weights_of(s, dw_pieces));

  std::optional<PanelStream> weights;
  std::optional<PanelSums> input_sums;
  Operand dx, dx_pieces;
  if (needs_dx) {
    const Operand w = packed(op, weight_of(op, parameter), s.weights, nullptr, Phase::backward);
    weights.emplace(*this, op.name + "/weights", weights_of(s, w), Phase::backward);
    dx = activations.written(here, to_dx);
    if (dx.num_elements == 0) clear(op, dx, Phase::backward);
    dx_pieces = beside(s.inputs, dx, false);
    if (dx_pieces.num_elements > 0) here.reserve(dx_pieces.buffer);
    input_sums.emplace(*this, op.name + "/input_gradient", inputs_of(s, dx_pieces));
  }

  struct Fetched {
    Operand input, weight;
  };
  const auto fetch = [&](std::size_t l) {
    const SummaPanels::Panel& panel = s.panels[l];
    Fetched fetched;
    if (weights) {
      fetched.weight = weights->fetch(l, panel.weight_root, panel.weight_piece, panel.width * s.num_outputs);
    }
    fetched.input = inputs.fetch(l, panel.input_root, panel.input_piece, panel.width * s.num_rows);
    if (panels_block()) wait_for_panels();  // the first product has no use for the input
    return fetched;
  };
  Fetched next = fetch(0);
  for (std::size_t l = 0; l < s.panels.size(); ++l) {
    const SummaPanels::Panel& panel = s.panels[l];
    if (l > 0 && panels_block()) next = fetch(l);
    const Fetched now = next;
    if (l + 1 < s.panels.size() && !panels_block()) next = fetch(l + 1);
    if (input_sums) {
      Instruction in = panel_kernel(Kernel::linear_backward_input, op, panel.width, Phase::backward);
      in.inputs = {dy, now.weight};
      const Operand product = input_sums->product(l, panel.input_piece, panel.width * s.num_rows);
      in.outputs = {product};
      in.attributes.set("accumulate", 0);
      emit(std::move(in));
      input_sums->sum(panel.input_root, panel.input_piece, product);
    }
    Instruction in = panel_kernel(Kernel::linear_backward_weight, op, panel.width, Phase::backward);
    in.inputs = {now.input, dy};
    const Operand product = weight_sums.product(l, panel.weight_piece, panel.width * s.num_outputs);
    in.outputs = {product};
    std::int64_t accumulate = 0;
    if (l == 0 && op.parameters.size() > 1) {
      const GradientEmission::Destination bias = parameters.gradients().destination(here, item, index_of(op), 1);
      in.outputs.push_back(bias.operand);
      accumulate = bias.accumulate ? 2 : 0;
    }
    in.attributes.set("accumulate", accumulate);
    emit(std::move(in));
    weight_sums.sum(panel.weight_root, panel.weight_piece, product);
  }

  if (input_sums) input_sums->finish();
  // Nothing reads the weight's gradient before the update, but where it is put into its place.
  if (dw.accumulate || !s.weights.is_in_place()) weight_sums.finish();
  if (needs_dx) {
    if (!s.inputs.is_in_place()) unpack(op, dx_pieces, s.inputs, dx, Phase::backward);
    activations.merge(here, to_dx, op.name);
  }
  if (dw.accumulate || !s.weights.is_in_place()) put_weight_gradient(op, dw_pieces, s.weights, dw);
  parameters.gradients().behind_contributions(here, item, index_of(op));
}

}  // namespace strata

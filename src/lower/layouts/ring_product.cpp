/// @file
/// Products whose gathers and scatters are taken apart (Wang et al., "Overlap Communication with Dependent Computation
/// via Decomposition in Large Deep Learning Models", ASPLOS 2023). The t ranks of a ring each hold one block of a
/// tensor that a local product would gather before it or scatter behind it. In t steps a rank takes the blocks one by
/// one: while it computes with one, that goes on to the next rank, and another comes from the rank before.
///
///   gathered (the input of a weight that is cut by columns; the output's gradient of one that is cut by rows): in step
///   k rank r has the block of rank r - k.
///   scattered (the output of a weight that is cut by rows; the input's gradient of one that is cut by columns): in
///   step k rank r makes its part of the block of rank r - 1 - k, adds what came, and passes the sum on; in the last
///   step the block is its own.
///
/// With two directions every other step is one the other way round: blocks come from both neighbours in turn, each from
/// at most half the ring away, and of a sum one neighbour brings what the ranks on its side have, the other the rest.
/// As many bytes are sent, half of them to each neighbour, and each message has two products to travel under.
///
/// What is kept for backward is the rank's own block of the input: the gradient of a weight that is cut by columns
/// gathers the others again, in the steps in which the sums of the input's gradient go round. Beside its own, a rank
/// holds of each direction two blocks of a gathered tensor at most; of a scattered one two sums, and the product that
/// is added next. A weight whose blocks are no neighbours is packed, as for SUMMA. Where a dim does not divide, the
/// last blocks are short; those without features are neither computed nor sent.

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lower/layouts/axis_rings.hpp"
#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {

/// The blocks of one tensor on their way round.
struct OperatorLowering::BlocksOnRing {
  OperatorLowering& lowering;
  const AxisRing& ring;
  int directions = 1;
  std::string name;
  std::vector<std::int64_t> elements;  ///< by block, which is by rank of the ring
  DType dtype = DType::f32;
  Phase phase = Phase::forward;
  std::array<int, 2> last_sent{-1, -1};  ///< of products before, by direction

  std::int64_t size(int block) const { return elements[static_cast<std::size_t>(block)]; }
  /// For blocks that take turns in it, of @p most elements; none where they have none.
  Operand new_buffer(const char* suffix, std::int64_t most) const {
    return most > 0 ? lowering.panel_buffer(name + suffix, most, dtype) : Operand{};
  }
  Operand in(const Operand& buffer, int block) const { return {buffer.buffer, 0, size(block)}; }
  void send(int direction, const Operand& block) const {
    message(Collective::send, direction, ring.behind(direction, 1), ring.sends(direction), block);
  }
  /// Behind the kernels so far, under the next one, and behind what went before this product: else nobody would know
  /// when what the neighbour sends may come, and its memory would be used once in a step.
  void receive(int direction, const Operand& block) const {
    std::vector<int> after;
    for (const int instruction :
         {lowering.here.last_on(compute_stream), last_sent[static_cast<std::size_t>(direction)]}) {
      if (instruction >= 0) after.push_back(instruction);
    }
    message(Collective::recv, direction, ring.before(direction, 1), ring.receives(direction), block, after);
  }

 private:
  void message(Collective kind, int direction, int peer, int stream, const Operand& block,
               std::span<const int> after = {}) const {
    if (block.num_elements == 0) return;
    Instruction in{.kernel = Kernel::none,
                   .collective = kind,
                   .group = ring.group(direction),
                   .root = peer,
                   .stream = stream,
                   .phase = phase,
                   .micro_batch = lowering.activations.micro_batch(),
                   .name = name};
    (kind == Collective::send ? in.inputs : in.outputs) = {block};
    lowering.here.emit(std::move(in), after);
  }
};

/// Of each direction two buffers, in which the blocks that come by turn about, each as large as its largest block.
class OperatorLowering::TurnsOfBlocks {
 public:
  void needs(int direction, int turn, std::int64_t elements) {
    std::int64_t& most = most_[at(direction)][at(turn % 2)];
    most = std::max(most, elements);
  }
  void make(const BlocksOnRing& blocks) {
    for (std::size_t d = 0; d < buffers_.size(); ++d) {
      for (std::size_t b = 0; b < buffers_[d].size(); ++b) buffers_[d][b] = blocks.new_buffer("", most_[d][b]);
    }
  }
  const Operand& of(int direction, int turn) const { return buffers_[at(direction)][at(turn % 2)]; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::array<std::array<std::int64_t, 2>, 2> most_{};
  std::array<std::array<Operand, 2>, 2> buffers_{};
};

/// Blocks that come by.
class OperatorLowering::GatheredBlocks {
 public:
  GatheredBlocks(BlocksOnRing blocks, const Operand& own) : blocks_(std::move(blocks)), now_({own, own}) {
    for (int step = 1; step < blocks_.ring.size; ++step) {
      turns_.needs(direction(step), hops(step), blocks_.size(block(step)));
    }
    turns_.make(blocks_);
  }

  /// Whose block is here in step @p step.
  int block(int step) const {
    return step == 0 ? blocks_.ring.index : blocks_.ring.before(direction(step), hops(step));
  }

  /// The block of step @p step, which goes on from here. Steps are taken one after the other; what one has is there
  /// until the step after the next of its direction begins.
  Operand take(int step) {
    if (step > 0) return pass_on(direction(step), step);
    const Operand own = now_.front();
    for (int direction = 0; direction < blocks_.directions; ++direction) pass_on(direction, step);
    return own;
  }

 private:
  /// In which the block of step @p step > 0 comes, and from how far.
  int direction(int step) const { return (step - 1) % blocks_.directions; }
  int hops(int step) const { return (step - 1) / blocks_.directions + 1; }

  /// What is here in step @p step, on its way in @p direction; what follows it comes meanwhile.
  Operand pass_on(int direction, int step) {
    Operand& now = now_[static_cast<std::size_t>(direction)];
    const Operand taken = now;
    const int next = step == 0 ? 1 + direction : step + blocks_.directions;
    if (next >= blocks_.ring.size) return taken;
    blocks_.send(direction, taken);
    now = blocks_.in(turns_.of(direction, hops(next)), block(next));
    blocks_.receive(direction, now);
    return taken;
  }

  BlocksOnRing blocks_;
  std::array<Operand, 2> now_;  ///< by direction
  TurnsOfBlocks turns_;
};

/// Sums on their way to who keeps them. Each step is the product, pass_on(). Of two directions the second begins, which
/// has the more steps of an odd number, as the first has the more of blocks that come by.
class OperatorLowering::ScatteredSums {
 public:
  /// @param own where the sum of the rank's block is kept.
  ScatteredSums(BlocksOnRing blocks, const Operand& own) : blocks_(std::move(blocks)), own_(own) {
    std::int64_t most_of_products = 0;
    for (int step = 0; !is_last(step); ++step) {
      turns_.needs(direction(step), turn(step), blocks_.size(block(step)));
      if (!is_first(step)) most_of_products = std::max(most_of_products, blocks_.size(block(step)));
    }
    for (int d = 0; d < blocks_.directions; ++d) turns_.needs(d, turn_of_own(d), own.num_elements);
    turns_.make(blocks_);
    product_ = blocks_.new_buffer("/partial", most_of_products);
  }

  /// Whose block is made in step @p step, and whether that is nothing.
  int block(int step) const {
    if (is_last(step)) return blocks_.ring.index;
    return blocks_.ring.behind(direction(step), (blocks_.ring.size - 2 - step) / blocks_.directions + 1);
  }
  bool is_empty(int step) const { return blocks_.size(block(step)) == 0; }

  /// Where the product is written.
  Operand product(int step) const {
    if (is_last(step)) return own_;
    return is_first(step) ? sum(step) : blocks_.in(product_, block(step));
  }
  /// What the rank before has of the next sum of this direction comes under what is computed next.
  void pass_on(int step) const {
    if (is_last(step)) {
      for (int d = 0; d < blocks_.directions; ++d) add(sum_of_own(d), own_);
      return;
    }
    if (!is_first(step)) add(product(step), sum(step));
    const int next = step + blocks_.directions;
    blocks_.send(direction(step), sum(step));
    blocks_.receive(direction(step), next + 1 < blocks_.ring.size ? sum(next) : sum_of_own(direction(step)));
  }

 private:
  bool is_last(int step) const { return step + 1 == blocks_.ring.size; }
  /// Of its direction.
  bool is_first(int step) const { return step < blocks_.directions; }
  int direction(int step) const { return (step + 1) % blocks_.directions; }
  int turn(int step) const { return step / blocks_.directions; }
  /// Behind the last step of @p direction: the last but the rank's own, or the one before that.
  int turn_of_own(int direction) const {
    const int last = blocks_.ring.size - 2;
    return turn(this->direction(last) == direction ? last : last - 1) + 1;
  }
  Operand sum(int step) const { return blocks_.in(turns_.of(direction(step), turn(step)), block(step)); }
  Operand sum_of_own(int direction) const {
    return blocks_.in(turns_.of(direction, turn_of_own(direction)), blocks_.ring.index);
  }
  void add(const Operand& summand, const Operand& sum) const {
    if (sum.num_elements == 0) return;
    blocks_.lowering.here.emit({.kernel = Kernel::accumulate,
                                .phase = blocks_.phase,
                                .micro_batch = blocks_.lowering.activations.micro_batch(),
                                .name = blocks_.name,
                                .inputs = {summand},
                                .outputs = {sum},
                                .attributes = {{"elements", sum.num_elements}}});
  }

  BlocksOnRing blocks_;
  Operand own_, product_;
  TurnsOfBlocks turns_;
};

OperatorLowering::BlocksOnRing OperatorLowering::blocks_on_ring(const Operator& op, const char* name,
                                                                const Operand& own, Phase phase) {
  const RingBlocks& blocks = ring_of(op);
  const std::int64_t num_rows = rows(op.inputs.front(), op.attributes.integer("in"));
  std::vector<std::int64_t> elements;
  for (const std::int64_t width : blocks.widths) elements.push_back(num_rows * width);
  const AxisRing& ring = rings->of(blocks.axes);
  BlocksOnRing result{.lowering = *this,
                      .ring = ring,
                      .directions = blocks.directions,
                      .name = op.name + name,
                      .elements = std::move(elements),
                      .dtype = builder.buffer(own.buffer).dtype,
                      .phase = phase};
  for (int d = 0; d < blocks.directions; ++d) {
    result.last_sent[static_cast<std::size_t>(d)] = here.last_on(ring.sends(d));
  }
  return result;
}

const RingBlocks& OperatorLowering::ring_of(const Operator& op) const {
  return model.rings[static_cast<std::size_t>(op.attributes.integer("ring"))];
}

/// The kernel of one block.
Instruction OperatorLowering::block_kernel(Kernel kind, const Operator& op, int block, Phase phase) const {
  const RingBlocks& blocks = ring_of(op);
  Instruction in = kernel(kind, op, phase);
  in.attributes.set(blocks.is_of_inputs ? "in" : "out", blocks.width(block));
  return in;
}

void OperatorLowering::ring_forward(const Operator& op, Phase phase) {
  const RingBlocks& r = ring_of(op);
  const int num_steps = static_cast<int>(r.widths.size());
  const Operand x = activations.value(op.inputs.front());
  // Blocks that are gathered leave before the weight is packed.
  std::optional<GatheredBlocks> inputs;
  Operand now;
  if (r.is_of_inputs) now = inputs.emplace(blocks_on_ring(op, "/inputs", x, phase), x).take(0);
  const Operand w = packed(op, weight_of(op, op.parameters.front()), r.weights, nullptr, phase);
  const Operand y = output(op, 0, {});
  const auto product = [&](int block, const Operand& of, const Operand& to) {
    Instruction in = block_kernel(Kernel::linear_forward, op, block, phase);
    in.inputs = {of, r.weights.part_of(w, block)};
    in.outputs = {to};
    return in;
  };
  std::optional<Operand> bias;
  if (op.parameters.size() > 1 && op.attributes.integer_or("adds", 1) != 0) bias = weight_of(op, op.parameters[1]);
  if (inputs) {
    bool is_first = true;
    for (int step = 0; step < num_steps; ++step) {
      const int block = inputs->block(step);
      if (step > 0) now = inputs->take(step);
      if (r.width(block) == 0) continue;
      Instruction in = product(block, now, y);
      if (is_first && bias) in.inputs.push_back(*bias);
      if (!is_first) in.attributes.set("accumulate", 1);
      emit(std::move(in));
      is_first = false;
    }
    return;
  }
  if (bias) bias = packed(op, *bias, r.biases, nullptr, phase);
  ScatteredSums outputs(blocks_on_ring(op, "/outputs", y, phase), y);
  for (int step = 0; step < num_steps; ++step) {
    if (!outputs.is_empty(step)) {
      const int block = outputs.block(step);
      Instruction in = product(block, x, outputs.product(step));
      if (bias) in.inputs.push_back(r.biases.part_of(*bias, block));
      emit(std::move(in));
    }
    outputs.pass_on(step);
  }
  if (y.num_elements == 0) clear(op, y, phase);
}

void OperatorLowering::ring_backward(const Operator& op) {
  const RingBlocks& r = ring_of(op);
  const int num_steps = static_cast<int>(r.widths.size());
  const Operand dy = output_gradient(op), x = activations.value(op.inputs.front());
  const ActivationGradients::Contribution& to_dx = gradients_of(op).inputs.front();
  const bool needs_dx = to_dx.place >= 0;
  GatheredBlocks gathered = r.is_of_inputs
                                ? GatheredBlocks(blocks_on_ring(op, "/inputs", x, Phase::backward), x)
                                : GatheredBlocks(blocks_on_ring(op, "/output_gradient", dy, Phase::backward), dy);
  Operand now = gathered.take(0);
  Operand w, dx;
  if (needs_dx) {
    w = packed(op, weight_of(op, op.parameters.front()), r.weights, nullptr, Phase::backward);
    dx = activations.written(here, to_dx);
  }
  const auto input_gradient = [&](int block, const Operand& of, const Operand& to, bool adds) {
    Instruction in = block_kernel(Kernel::linear_backward_input, op, block, Phase::backward);
    in.inputs = {of, r.weights.part_of(w, block)};
    in.outputs = {to};
    in.attributes.set("accumulate", adds ? 1 : 0);
    emit(std::move(in));
  };

  // Of a gradient, where blocks of it are written: into their places, where these are neighbours, or beside them.
  struct Written {
    GradientEmission::Destination to;
    Operand blocks;
    bool lands = true;
    std::int64_t accumulates() const { return lands && to.accumulate ? 1 : 0; }
  };
  const auto written = [&](int parameter, const Packing& packing, const char* name) {
    const GradientEmission::Destination to = parameters.gradients().destination(here, item, index_of(op), parameter);
    const bool lands = packing.is_in_place();
    return Written{to, lands ? to.operand : packed_buffer(op, name, to.operand), lands};
  };
  const Written dw = written(0, r.weights, "/weight_gradient");
  std::optional<Written> bias;
  if (op.parameters.size() > 1) bias = written(1, r.biases, "/bias_gradient");
  const auto weight_gradient = [&](int block, const Operand& inputs, const Operand& outputs,
                                   const std::optional<Operand>& of_bias) {
    Instruction in = block_kernel(Kernel::linear_backward_weight, op, block, Phase::backward);
    in.inputs = {inputs, outputs};
    in.outputs = {r.weights.part_of(dw.blocks, block)};
    if (of_bias) in.outputs.push_back(*of_bias);
    in.attributes.set("accumulate", dw.accumulates() | (of_bias ? bias->accumulates() << 1 : 0));
    emit(std::move(in));
  };

  if (r.is_of_inputs) {
    std::optional<ScatteredSums> sums;
    if (needs_dx) sums.emplace(blocks_on_ring(op, "/input_gradient", dx, Phase::backward), dx);
    bool is_first = true;
    for (int step = 0; step < num_steps; ++step) {
      // Both go round over one pair of streams: whoever sends receives what its neighbour sends in the same place.
      if (step > 0) now = gathered.take(step);
      if (sums) {
        if (!sums->is_empty(step)) input_gradient(sums->block(step), dy, sums->product(step), false);
        sums->pass_on(step);
      }
      const int block = gathered.block(step);
      if (r.width(block) == 0) continue;
      std::optional<Operand> of_bias;
      if (is_first && bias) of_bias = bias->to.operand;
      weight_gradient(block, now, dy, of_bias);
      is_first = false;
    }
    if (needs_dx && dx.num_elements == 0) clear(op, dx, Phase::backward);
  } else {
    bool is_first = true;
    for (int step = 0; step < num_steps; ++step) {
      const int block = gathered.block(step);
      if (step > 0) now = gathered.take(step);
      if (r.width(block) == 0) continue;
      if (needs_dx) input_gradient(block, now, dx, !is_first);
      std::optional<Operand> of_bias;
      if (bias) of_bias = r.biases.part_of(bias->blocks, block);
      weight_gradient(block, x, now, of_bias);
      is_first = false;
    }
  }
  if (needs_dx) activations.merge(here, to_dx, op.name);
  if (!dw.lands) put_weight_gradient(op, dw.blocks, r.weights, dw.to);
  if (bias && !bias->lands) put_weight_gradient(op, bias->blocks, r.biases, bias->to);
  parameters.gradients().behind_contributions(here, item, index_of(op));
}

}  // namespace strata

#pragma once

/// @file
/// What one rank computes in one repetition of a step's body, in order: a value between Plan and Program.
///
/// The model is cut into segments; an item is one segment's forward, recompute or backward pass of one micro-batch, or
/// an update. Ranks that hold the same stages have equal orders. Buffers, collectives and streams are not in it: rules
/// of the lowering find them by looking things up here. So a schedule can be read, drawn and compared with its paper
/// before anything is lowered.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// Operators [first_operator, end()) of the graph, which a step takes as a whole.
struct Segment {
  int stage = 0;
  int first_operator = 0;
  int num_operators = 0;
  bool recomputed = false;  ///< forward forgets what stands inside, a recompute item makes it again
  /// It is computed again behind the segment before it, as one recomputation: before the backward of the last of them.
  bool recomputed_with_previous = false;
  // The last of what the pass does is a collective that changes a layout, under which another sub-batch computes.
  bool communicates_forward = false;
  bool communicates_recompute = false;
  bool communicates_backward = false;
  std::vector<int> parameters{};  ///< that its operators read, ascending
  bool operator==(const Segment&) const = default;
  int end() const { return first_operator + num_operators; }
};

/// What schedules are made for; equal on all ranks.
struct StepShape {
  int micro_batches = 1;
  int sub_batches = 1;  ///< of each micro-batch
  /// Recomputation and backward of all sub-batches are one sequence; else backward waits for the recomputation of all.
  bool cross_pass = false;
  /// Parameters are to be updated as soon as their gradients are summed, not behind the last backward.
  bool updates_in_backward = false;
  std::vector<Segment> segments{};  ///< in the order of the graph, so stages ascend
  bool operator==(const StepShape&) const = default;
  int num_stages() const { return segments.empty() ? 0 : segments.back().stage + 1; }
};

/// Segments [first, end) of @p stage. @throws InternalError if it has none.
struct SegmentRange {
  int first = 0;
  int end = 0;
};
SegmentRange segments_of_stage(const StepShape& shape, int stage);

/// Parameters that segments of @p stage read, ascending, each once.
std::vector<int> parameters_of_stage(const StepShape& shape, int stage);

enum class Pass : std::uint8_t { forward, recompute, backward, update };
std::string_view to_string(Pass pass);

struct OrderItem {
  Pass pass = Pass::forward;
  int segment = -1;  ///< index into StepShape::segments; update: -1
  int micro_batch = 0;
  int sub_batch = 0;
  int step = 0;          ///< training step, relative to the first of the repetition: 0, or -1 for the one before
  int version = 0;       ///< of the parameters that are read at training step t: 0 = θ_t, 1 = θ_{t-1}
  bool barrier = false;  ///< it waits for every layout's collective before it, needed or not
  std::vector<int> parameters{};  ///< update: which
  bool operator==(const OrderItem&) const = default;
};

struct StepOrder {
  StepShape shape;
  int steps_per_body = 1;  ///< training steps that one repetition of the body takes
  std::vector<OrderItem> items{};
  bool operator==(const StepOrder&) const = default;
};

/// Stable text, adjacent segments of a pass on one line; parse_step_order(to_text(o)) == o.
std::string to_text(const StepOrder& order);
/// @throws UserError with the line and what is accepted.
StepOrder parse_step_order(std::string_view text);

/// Check the orders of ranks that together hold the model once, such as one rank of each stage. In every training step
/// - forward and backward of every segment, micro-batch and sub-batch happen once, on one rank; between them a
///   recompute where the segment is recomputed, and nowhere else; backward and recompute read the version that their
///   forward read;
/// - every rank updates each parameter that it reads once, after all its gradients, those of other ranks too; or a rank
///   that computes the same segment for other micro-batches does so for it;
/// - whoever reads a version comes after the update that makes it. If the oldest version that is read is k steps old,
///   k + 1 are kept, and an update overwrites the oldest: whoever reads that stands before one of the update's
///   gradients, and needs no check of its own.
///   Where others update for a rank, what it receives of a parameter comes behind the last of its items that read the
///   version which that overwrites.
/// Items wait for what other ranks make, with messages that nobody buffers: ranks that wait for each other are found.
/// @throws InternalError naming rank, by its place in @p orders, and item.
void verify(std::span<const StepOrder> orders);

/// Neighbouring items of one micro-batch in one direction, of all its sub-batches, with their recomputations; updates
/// between them count for nothing.
struct Run {
  int first = 0;  ///< item
  bool backward = false;
  int micro_batch = 0;
};
std::vector<Run> runs_of(const StepOrder& order);

/// The same training, with @p num repetitions of the body as one.
StepOrder unrolled(const StepOrder& order, int num);

/// Items of the training step @p step of [0, steps_per_body), in the order in which they run: those that belong to an
/// earlier repetition's step stand before its own in the body, and run behind them, in the next repetition.
std::vector<int> items_of_step(const StepOrder& order, int step);

/// The first item behind the last pass: the update of what is not updated in backward, if there is any.
int behind_last_pass(const StepOrder& order);

/// "0..3,7": what the text form writes of numbers that rise by one.
std::string ranges(std::span<const int> numbers);

/// One line: "backward of segment 3, micro-batch 1".
std::string describe(const OrderItem& item);

}  // namespace strata

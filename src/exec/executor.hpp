#pragma once

/// @file
/// What an executor is: something that takes one rank's Program and runs it, step by step, on real data. It knows
/// instructions, never strategies. Which of them belong to a step says ir/program/repetition.hpp; where steps overlap,
/// one is submitted before the one before it is complete.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "ir/program/program.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata {

/// What changes from step to step.
struct StepContext {
  std::int64_t step = 0;  ///< from 0; indexes data, dropout and Adam's bias correction
  double learning_rate = 0.0;
};

/// Where a model's inputs come from: samples [first_sample, first_sample + num_samples) of the step's global batch. An
/// empty span of targets or labels is not asked for: another stage reads it.
class InputSource {
 public:
  virtual ~InputSource() = default;
  /// @p tokens and @p targets: [num_samples, sequence].
  virtual void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                           std::span<std::int32_t> tokens, std::span<std::int32_t> targets) = 0;
  /// @p pixels: [num_samples, height, width, channels]; @p labels: [num_samples].
  virtual void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                           std::span<float> pixels, std::span<std::int32_t> labels) = 0;
  /// The targets of load_tokens or the labels of load_images alone.
  virtual void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                            std::span<std::int32_t> targets) = 0;
  /// True where a step may be asked for that never comes, and loads of one step by several threads at a time.
  virtual bool may_be_read_ahead() const { return false; }
};

/// Of one step, on this rank.
struct StepMeasurement {
  /// From its beginning, or from the end of the step before where that was later, to its end.
  double step_seconds = 0.0;
  // NaN where instructions are not timed:
  double compute_seconds = 0.0;                            ///< inside kernels
  double communication_seconds = 0.0;                      ///< some collective in progress
  double exposed_seconds = 0.0;                            ///< the compute stream waited for a collective
  std::array<std::int64_t, num_collectives> bytes_sent{};  ///< by Collective, counted by the transport
  double input_seconds =
      0.0;            ///< the host waited for samples and had them written where the device or kernels read them
  float loss = 0.0F;  ///< this rank's part: the mean over the global batch is the sum over all ranks
  float gradient_norm = 0.0F;  ///< NaN where the Program computes none
};

/// High-water marks of a rank's arena.
struct TouchedMemory {
  /// One past the highest byte written, of those below own_arena_bytes(): exactly that, once a step has run.
  std::int64_t own_bytes = 0;
  /// One past the highest byte written anywhere. Workspaces count whole: a library asks for more than it writes, by an
  /// amount that depends on the processor's instructions.
  std::int64_t total_bytes = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  /// Run the prologue: initial values.
  virtual void initialize() = 0;
  /// Queue one repetition of the body: the training steps @p steps that it holds, which follow those before. Fewer than
  /// Program::steps_per_body only before drain() or as the first after it. May return before anything has run.
  /// @throws CommunicationError if a peer is gone.
  virtual void submit(std::span<const StepContext> steps) = 0;
  /// Wait for a step whose instructions have all been queued: depth() repetitions after its own, or by drain(). Each
  /// once, in order. Does not wait for other ranks more than its instructions do.
  virtual StepMeasurement complete(std::int64_t step) = 0;
  /// Queue what the steps submitted so far leave to later repetitions. What is submitted next begins anew.
  virtual void drain() = 0;
  /// Persistent parameters and states from elsewhere: elements [begin, begin + values.size()) of a persistent f32 or
  /// bf16 buffer, rounded to nearest even where it is bf16. Only while no step is under way.
  virtual void write(int buffer, std::int64_t begin, std::span<const float> values) = 0;
  /// When each instruction of the step completed last began and ended on this rank, since the step's beginning.
  virtual std::span<const TimelineEvent> events() const = 0;
  /// The current content of a persistent f32 or bf16 buffer, until it is read again. Only while no step is under way.
  virtual std::span<const float> read(int buffer) const = 0;
  /// Another rank has failed and will not come: nothing may wait for it any more, nor follow but the destructor.
  virtual void abandon() noexcept {}
  /// What of the arena the run has touched. After the first step.
  virtual TouchedMemory touched_memory() const = 0;
};

/// One training step by itself: nothing of it is left when this returns. For Programs of one step a body.
StepMeasurement run_step(Executor& executor, const StepContext& context);

}  // namespace strata

#pragma once

/// @file
/// Training steps of one rank: queued a repetition of the body at a time, awaited when nothing of them is left to later
/// repetitions, and measured.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "comm/engine.hpp"
#include "config/experiment.hpp"
#include "exec/executor.hpp"
#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"
#include "ir/timeline/memory_over_time.hpp"
#include "predict/training_length.hpp"
#include "run/device_meter.hpp"
#include "run/step_exchange.hpp"

namespace strata::run {

class TrainingSteps {
 public:
  struct Machinery {
    Executor& executor;
    const comm::Engine& engine;
    DeviceMeter& meter;
  };
  /// The most of all ranks, which measure steps at the same times, so that they can exchange them.
  struct Overlap {
    int depth = 0;  ///< how many repetitions of the body later a step ends
    FillAndDrain ends{};
  };
  /// @param first_step where training begins: 0, or the step of a checkpoint.
  TrainingSteps(const Program& program, const Experiment& experiment, const predict::TrainingLength& length,
                std::int64_t first_step, const Overlap& overlap, const Machinery& machinery);

  /// Queues the next repetition of the body, of its training steps those before @p end. Waits for steps of earlier
  /// repetitions.
  void submit(std::int64_t end);
  /// Waits for all that has been submitted. What is submitted next begins anew.
  void drain();

  /// Training steps so far, those before first_step too.
  std::int64_t num_submitted() const { return num_submitted_; }
  /// Those that have ended since the last call. Devices' counters are read once for all of them, and once more where
  /// measuring begins among them or steps were drained.
  std::vector<RankStep> take();
  /// The first measured steps, behind those that fill, as many as the experiment asks for the timelines of; none where
  /// instructions are not timed.
  StepRange timeline_steps() const;
  /// These, and those beside them that may have something in the arena at the same time.
  const std::vector<RecordedStep>& recorded() const { return recorded_; }
  /// High-water mark of the arena. It is looked at after the first steps only.
  std::int64_t touched_bytes();

 private:
  void complete();
  void open_window();
  void close_window();
  bool is_recorded(std::int64_t step) const;
  std::int64_t num_measured_before(std::int64_t step) const;

  const Program& program_;
  const Experiment& experiment_;
  const predict::TrainingLength& length_;
  std::int64_t first_step_;
  Overlap overlap_;
  Machinery with_;
  std::int64_t num_submitted_;
  std::int64_t begun_at_;           ///< the first step since nothing was under way
  std::deque<RankStep> under_way_;  ///< submitted and not complete
  std::vector<RankStep> ended_;
  bool window_is_open_ = false;  ///< of the meter
  std::size_t num_closed_ = 0;   ///< of ended_: their device readings are there
  std::vector<RecordedStep> recorded_;
  std::int64_t touched_bytes_ = 0;
};

}  // namespace strata::run

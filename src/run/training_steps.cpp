#include "run/training_steps.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "predict/prepared_point.hpp"
#include "results/status.hpp"
#include "run/allocation_account.hpp"
#include "run/learning_rate.hpp"

namespace strata::run {

TrainingSteps::TrainingSteps(const Program& program, const Experiment& experiment,
                             const predict::TrainingLength& length, std::int64_t first_step, const Overlap& overlap,
                             const Machinery& machinery)
    : program_(program),
      experiment_(experiment),
      length_(length),
      first_step_(first_step),
      overlap_(overlap),
      with_(machinery),
      num_submitted_(first_step),
      begun_at_(first_step) {}

void TrainingSteps::submit(std::int64_t end) {
  const std::int64_t repetition = repetition_of(program_, num_submitted_);
  const std::int64_t begin = num_submitted_;
  num_submitted_ = std::min(end, (repetition + 1) * program_.steps_per_body);
  std::vector<StepContext> contexts;
  for (std::int64_t step = begin; step < num_submitted_; ++step) {
    contexts.push_back({.step = step, .learning_rate = learning_rate(experiment_.train, length_, step)});
  }
  if (!window_is_open_) open_window();
  const WatchAllocations watch;
  const auto begin_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
  with_.executor.submit(contexts);
  const std::int64_t outside_arena_bytes = watch.peak_bytes() + with_.engine.memory_bytes();
  for (const StepContext& context : contexts) {
    RankStep& step = under_way_.emplace_back();
    step.step = context.step;
    step.begin_ns = begin_ns.count();
    step.learning_rate = context.learning_rate;
    step.outside_arena_bytes = outside_arena_bytes;
  }
  while (!under_way_.empty() && repetition_of(program_, under_way_.front().step) + overlap_.depth <= repetition)
    complete();
}

void TrainingSteps::drain() {
  with_.executor.drain();  // also where all is complete: what is submitted next may be of the same repetition
  while (!under_way_.empty()) complete();
  begun_at_ = num_submitted_;
  close_window();
}

void TrainingSteps::complete() {
  RankStep& step = under_way_.front();
  {
    const WatchAllocations watch;
    step.measured = with_.executor.complete(step.step);
    step.outside_arena_bytes = std::max(step.outside_arena_bytes, watch.peak_bytes() + with_.engine.memory_bytes());
  }
  step.num_sharers = with_.meter.num_sharers();
  step.fills = step.step < begun_at_ + overlap_.ends.fill;
  step.drains = step.step + overlap_.ends.drain >= num_submitted_;
  step.unix_seconds = results::unix_seconds_now();
  if (is_recorded(step.step)) {
    const std::span<const TimelineEvent> events = with_.executor.events();
    recorded_.push_back({.step = step.step, .begin_ns = step.begin_ns, .events = {events.begin(), events.end()}});
  }
  const bool is_last_warmup = num_measured_before(step.step + 1) == 0;
  ended_.push_back(step);
  under_way_.pop_front();
  if (is_last_warmup) close_window();
}

void TrainingSteps::open_window() {
  with_.meter.begin_window();
  window_is_open_ = true;
}

/// What the steps that have ended since it was opened have taken. The next one begins at once where steps are under
/// way.
void TrainingSteps::close_window() {
  const std::span<RankStep> steps = std::span(ended_).subspan(num_closed_);
  if (steps.empty()) {
    // Nothing of what passed until the next step is a step's.
    if (under_way_.empty()) window_is_open_ = false;
    return;
  }
  const DeviceReading mean = with_.meter.end_window(static_cast<std::int64_t>(steps.size()));
  for (RankStep& step : steps) step.device = mean;
  num_closed_ = ended_.size();
  window_is_open_ = false;
  if (!under_way_.empty()) open_window();
}

std::int64_t TrainingSteps::num_measured_before(std::int64_t step) const {
  return step - first_step_ - experiment_.measure.warmup_steps;
}

StepRange TrainingSteps::timeline_steps() const {
  const std::int64_t first = first_step_ + std::max(experiment_.measure.warmup_steps, overlap_.ends.fill);
  const bool is_timed = !predict::is_on_gpus(experiment_) || experiment_.cuda.timing;
  return {first, first + (is_timed ? experiment_.measure.timeline_steps : 0) - 1};
}

bool TrainingSteps::is_recorded(std::int64_t step) const {
  const StepRange asked = timeline_steps();
  const std::int64_t beside = steps_beside(program_);
  return asked.first <= asked.last && asked.first - beside <= step && step <= asked.last + beside;
}

std::vector<RankStep> TrainingSteps::take() {
  close_window();
  num_closed_ = 0;
  return std::exchange(ended_, {});
}

std::int64_t TrainingSteps::touched_bytes() {
  // Scanning the arena from its end is cheap once the top has been written; it is still done for a few steps only, but
  // once in any case, however many were over before anybody asked.
  const std::int64_t num_over = num_submitted_ - std::ssize(under_way_);
  if (touched_bytes_ == 0 || num_measured_before(num_over) <= 1 + overlap_.ends.fill) {
    touched_bytes_ = with_.executor.touched_memory().total_bytes;
  }
  return touched_bytes_;
}

}  // namespace strata::run

#pragma once

/// @file
/// The training steps that an executor has begun and not completed: which instructions run in a repetition, what is
/// kept of each step, and when a step ended.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "exec/executor.hpp"
#include "ir/program/repetition.hpp"

namespace strata {

/// @tparam Kept by an executor of each step; reused for later ones.
template <typename Kept>
class StepsUnderWay {
 public:
  explicit StepsUnderWay(const Program& program)
      : program_(program),
        depth_(depth(program)),
        slots_(static_cast<std::size_t>((depth_ + 2) * program.steps_per_body)) {}

  /// Of a step that has been submitted and not completed.
  Kept& kept(std::int64_t step) {
    STRATA_INVARIANT(is_under_way(step), "a step is asked for that is not under way");
    return slot(step).kept;
  }
  const StepContext& context(std::int64_t step) { return slot(step).context; }

  /// @p steps begin at @p now_ns. @return the repetition that holds them.
  /// @throws InternalError where steps are missing between these and those before, or too many are under way.
  std::int64_t submit(std::span<const StepContext> steps, std::int64_t now_ns) {
    STRATA_INVARIANT(!steps.empty(), "steps are submitted");
    const std::int64_t first = steps.front().step;
    if (is_drained_) {
      STRATA_INVARIANT(num_under_way() == 0 || first == submitted_.last + 1, "steps follow each other");
      if (num_under_way() == 0) next_ = first;
      submitted_ = {first, first - 1};
      is_drained_ = false;
    }
    STRATA_INVARIANT(first == submitted_.last + 1, "steps follow each other");
    const std::int64_t repetition = repetition_of(program_, first);
    STRATA_INVARIANT(repetition_of(program_, steps.back().step) == repetition, "steps of one repetition");
    for (const StepContext& context : steps) {
      STRATA_INVARIANT(context.step == submitted_.last + 1, "steps follow each other");
      submitted_.last = context.step;
      STRATA_INVARIANT(num_under_way() <= static_cast<std::int64_t>(slots_.size()), "too many steps are under way");
      Slot& begun = slot(context.step);
      begun.context = context;
      begun.begin_ns = now_ns;
    }
    return repetition;
  }

  /// Calls @p run(repetition) for those that are left of what was submitted.
  template <typename Run>
  void drain(const Run& run) {
    if (is_drained_) return;
    const std::int64_t last = repetition_of(program_, submitted_.last);
    for (std::int64_t r = last + 1; r <= last + depth_; ++r) run(r);
    is_drained_ = true;
  }

  /// True if an instruction of training step @p step runs.
  bool runs(std::int64_t step) const { return submitted_.contains(step); }
  /// True of a step whose instructions may still be waited for.
  bool is_under_way(std::int64_t step) const { return next_ <= step && step <= submitted_.last; }

  /// Steps under way, the first one first.
  StepRange under_way() const { return {next_, submitted_.last}; }

  /// @param end_ns when the step's last instruction ended. @return its seconds, see StepMeasurement.
  double complete(std::int64_t step, std::int64_t end_ns) {
    STRATA_INVARIANT(step == next_ && num_under_way() > 0, "steps are completed in order");
    STRATA_INVARIANT(is_drained_ || repetition_of(program_, step) + depth_ <= repetition_of(program_, submitted_.last),
                     "a step is completed when all of it has been submitted");
    const std::int64_t begin_ns = std::max(slot(step).begin_ns, ended_ns_);
    ended_ns_ = std::max(ended_ns_, end_ns);
    ++next_;
    return static_cast<double>(ended_ns_ - begin_ns) * 1e-9;
  }
  std::int64_t begin_ns(std::int64_t step) { return slot(step).begin_ns; }

 private:
  struct Slot {
    StepContext context;
    std::int64_t begin_ns = 0;
    Kept kept;
  };
  Slot& slot(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }
  std::int64_t num_under_way() const { return submitted_.last - next_ + 1; }

  const Program& program_;
  int depth_;
  std::vector<Slot> slots_;                                           ///< by step, in turn
  StepRange submitted_;                                               ///< since the beginning or the last drain
  std::int64_t next_ = 0;                                             ///< the step that is completed next
  std::int64_t ended_ns_ = std::numeric_limits<std::int64_t>::min();  ///< when the one before it ended
  bool is_drained_ = true;
};

/// The instructions of the body behind which the elements of @p buffer are those of a training step: one for each step
/// that a body holds, none where nothing writes it.
std::vector<int> last_writers(const Program& program, int buffer);

}  // namespace strata

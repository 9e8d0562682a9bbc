#include "planners/pipelines/passes_in_turn.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "partition/pipeline_passes.hpp"

namespace strata {

bool takes_passes_in_turn(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  if (schedule.sub_batches > 1 || schedule.cross_pass) return false;
  if (schedule.kind == ScheduleKind::interleaved) return schedule.micro_batches % axis_size(plan.mesh, "stage") == 0;
  return schedule.kind == ScheduleKind::one_forward_one_backward;
}

double seconds_of_passes_in_turn(const Plan& plan, std::span<const StagePrice> stages, std::span<const double> messages,
                                 bool has_one_stream, bool sends_behind_kernels) {
  const auto num_stages = static_cast<int>(stages.size()), micro_batches = plan.schedule.micro_batches;
  const int num_places = axis_size(plan.mesh, "stage");
  constexpr double not_yet = -1.0;
  // When the neighbour has what a stage needs of a micro-batch, forward and backward: [stage * M + micro-batch].
  std::vector<double> input(stages.size() * static_cast<std::size_t>(micro_batches), not_yet);
  std::vector<double> gradient = input;
  const auto at = [&](int stage, int m) {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches) + static_cast<std::size_t>(m);
  };
  for (int m = 0; m < micro_batches; ++m) input[at(0, m)] = gradient[at(num_stages - 1, m)] = 0.0;
  struct Place {
    std::vector<PipelinePass> passes;
    std::size_t next = 0;
    double free = 0.0;         ///< when its kernels have ended
    double free_before = 0.0;  ///< when those before its last pass have
    double sent = 0.0;         ///< when its collectives have ended
  };
  std::vector<Place> places;
  for (int place = 0; place < num_places; ++place) {
    places.push_back({.passes = pipeline_passes(place_in_pipeline(plan, place))});
  }
  /// When the message that @p pass reads has come, which is made at @p made. Its receive is posted as
  /// lower/step/stage_messages has it: before the pass ahead of it, or, a forward's behind a backward, behind that one.
  const auto comes = [&](const Place& place, const PipelinePass& pass, int stage, double made) {
    if (stage == (pass.is_forward ? 0 : num_stages - 1)) return 0.0;
    const bool is_posted_behind = pass.is_forward && place.next > 0 && !place.passes[place.next - 1].is_forward;
    return std::max(made, is_posted_behind ? place.free : place.free_before) +
           messages[static_cast<std::size_t>(pass.is_forward ? stage : stage + 1)];
  };
  const auto take = [&](Place& place, const PipelinePass& pass, int stage) {
    const PassPrices& of_stage = stages[static_cast<std::size_t>(stage)].passes;
    const std::size_t which = pass.micro_batch == 0 ? 0 : 1;
    const double made = (pass.is_forward ? input : gradient)[at(stage, pass.micro_batch)];
    if (made == not_yet) return false;
    const double there = comes(place, pass, stage, made);
    const PassPrice& seconds = (pass.is_forward ? of_stage.forward : of_stage.backward)[which];
    place.free_before = place.free;
    // What runs again may do so before the gradient comes.
    if (!pass.is_forward) place.free += of_stage.again[which].occupied();
    double left = there + seconds.collectives;
    if (seconds.has_kernels) {
      const bool is_sent_first = seconds.ahead > 0.0;
      const double sent_first = (has_one_stream ? std::max(place.sent, there) : there) + seconds.ahead;
      place.free = std::max(place.free, is_sent_first ? sent_first : there) + seconds.occupied();
      left = place.free + seconds.behind;
      if (is_sent_first) place.sent = sent_first;
      const bool sends_behind_a_kernel = seconds.last_kernels < seconds.kernels;
      if (sends_behind_a_kernel) place.sent = left - seconds.last_kernels;
    }
    if (pass.is_forward && stage + 1 < num_stages) {
      input[at(stage + 1, pass.micro_batch)] = left;
    } else if (!pass.is_forward && stage > 0) {
      gradient[at(stage - 1, pass.micro_batch)] = sends_behind_kernels ? left : there;
    }
    return true;
  };
  for (bool is_going_on = true; is_going_on;) {
    is_going_on = false;
    for (int p = 0; p < num_places; ++p) {
      Place& place = places[static_cast<std::size_t>(p)];
      for (; place.next < place.passes.size(); ++place.next) {
        const PipelinePass& pass = place.passes[place.next];
        if (!take(place, pass, pass.turn * num_places + p)) break;
        is_going_on = true;
      }
    }
  }
  STRATA_INVARIANT(places.front().next == places.front().passes.size(), "passes that wait for each other");
  return places.front().free;
}

}  // namespace strata

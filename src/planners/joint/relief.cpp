#include "planners/joint/relief.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planners/joint/moves.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

struct Change {
  std::string words;
  std::int64_t peak_bytes = 0;
};

/// The best of @p moves, if it needs less than @p most_bytes. @param note behind its words.
void add_best(const PlanRequest& request, const std::vector<Move>& moves, std::string_view note,
              std::int64_t most_bytes, std::vector<Change>& changes) {
  Change best{.words = "", .peak_bytes = most_bytes};
  for (const Move& move : moves) {
    try {
      verify(move.plan, request.graph);
      const std::int64_t bytes = request.evaluate->memory(move.plan).peak_bytes;
      if (bytes > 0 && bytes < best.peak_bytes) best = {fmt::format("{}{}", move.words, note), bytes};
    } catch (const UserError&) {
      continue;  // It cannot be had; of what cannot be lowered the peak is 0.
    }
  }
  if (best.peak_bytes < most_bytes) changes.push_back(std::move(best));
}

/// Twice as many micro-batches, each of half as many samples.
Move smaller_micro_batches(const Plan& plan) {
  Move move{.words = fmt::format("train.micro_batches = {}", 2 * plan.schedule.micro_batches), .plan = plan};
  move.plan.schedule.micro_batches *= 2;
  return move;
}

/// Half of the batch in as many micro-batches.
Move smaller_batch(const Plan& plan) {
  Move move{.words = fmt::format("train.global_batch = {}", plan.global_batch / 2), .plan = plan};
  move.plan.global_batch /= 2;
  return move;
}

}  // namespace

std::string relief_in_words(const PlanRequest& request, const Dimensions& dimensions,
                            std::span<const ParallelDegrees> all, const KnownPlan& least) {
  const std::int64_t needed = least.found.peak_bytes;
  const Plan& plan = least.plan;
  std::vector<Change> changes;
  add_best(request, {smaller_micro_batches(plan)}, "", needed, changes);
  if (plan.global_batch % 2 == 0) add_best(request, {smaller_batch(plan)}, "", needed, changes);
  for (const Dimension dimension : all_dimensions) {
    if (dimensions.has(dimension)) continue;
    add_best(request, moves_of(dimension, request, plan, all), fmt::format(" (left out: {})", to_string(dimension)),
             needed, changes);
  }
  std::ranges::stable_sort(changes, {}, &Change::peak_bytes);
  std::vector<std::string> words;
  for (const Change& change : changes) {
    const bool fits = change.peak_bytes <= request.base.device_capacity_bytes;
    words.push_back(
        fmt::format("{} would free {}{}", change.words, gib(needed - change.peak_bytes), fits ? ", and it fits" : ""));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace strata

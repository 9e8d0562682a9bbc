#pragma once

/// @file
/// Which stages the ranks at one place of a pipeline hold: of K stages at S places K/S consecutive ones, or,
/// interleaved, every S-th, so that stage s + 1 is always at the next place, and the one behind the last place's at the
/// first.
///
/// Source of interleaved stages: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
/// Megatron-LM, SC 2021, sec. 2.2.2.

#include <algorithm>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// Stages first, first + apart, ... below end.
struct StagesOfPlace {
  int first = 0;
  int end = 0;
  int apart = 1;
  bool operator==(const StagesOfPlace&) const = default;
};

class StagePlaces {
 public:
  explicit StagePlaces(const Plan& plan)
      : num_stages_(plan.stages.count),
        num_places_(axis_size(plan.mesh, "stage")),
        is_interleaved_(plan.schedule.kind == ScheduleKind::interleaved) {}

  int num_places() const { return num_places_; }
  StagesOfPlace of(int place) const {
    const int each = num_stages_ / num_places_;
    if (is_interleaved_ && num_places_ > 1) return {place, num_stages_, num_places_};
    return {place * each, (place + 1) * each, 1};
  }
  int place_of(int stage) const { return is_interleaved_ ? stage % num_places_ : stage / (num_stages_ / num_places_); }
  /// The last place's activations go on to the first one.
  bool is_ring() const { return is_interleaved_ && num_places_ > 1 && num_stages_ > num_places_; }
  /// Places of @p stages, ascending, each once.
  std::vector<int> places_of(const std::vector<int>& stages) const {
    std::vector<int> places;
    for (const int stage : stages) places.push_back(place_of(stage));
    std::ranges::sort(places);
    const auto [again, end] = std::ranges::unique(places);
    places.erase(again, end);
    return places;
  }

 private:
  int num_stages_;
  int num_places_;
  bool is_interleaved_;
};

}  // namespace strata

#include "lower/schedule.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace strata {
namespace {

std::vector<StagePass> fill_and_drain(int num_micro_batches) {
  std::vector<StagePass> order;
  for (int m = 0; m < num_micro_batches; ++m) order.push_back({false, m});
  for (int m = num_micro_batches; m-- > 0;) order.push_back({true, m});
  return order;
}

/// @param num_ahead forwards before the first backward's own turn.
std::vector<StagePass> in_turn(int num_ahead, int num_micro_batches) {
  std::vector<StagePass> order;
  for (int m = 0; m < num_ahead; ++m) order.push_back({false, m});
  for (int m = num_ahead; m < num_micro_batches; ++m) {
    order.push_back({false, m});
    order.push_back({true, m - num_ahead});
  }
  for (int m = num_micro_batches - num_ahead; m < num_micro_batches; ++m) order.push_back({true, m});
  return order;
}

}  // namespace

std::vector<StagePass> pass_order(ScheduleKind kind, int num_stages, int stage, int num_micro_batches) {
  switch (kind) {
    case ScheduleKind::simultaneous: return in_turn(0, num_micro_batches);
    case ScheduleKind::gpipe: return fill_and_drain(num_micro_batches);
    case ScheduleKind::one_forward_one_backward:
      return in_turn(std::min(num_micro_batches, num_stages - stage - 1), num_micro_batches);
    case ScheduleKind::cyclic:
    case ScheduleKind::two_buffered_weights: break;
  }
  throw InternalError("no order of passes for schedule " + std::string(to_string(kind)));
}

}  // namespace strata

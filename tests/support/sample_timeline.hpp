#pragma once

/// @file
/// A timeline whose names have all that a format must escape: two ranks, two streams, two steps, an instruction without
/// a name and one that takes no time.

#include "ir/timeline/timeline.hpp"

namespace strata::test {

inline Timeline sample_timeline() {
  Timeline timeline;
  timeline.streams = {"compute", "data \"reduce\""};
  timeline.instructions = {"linear_forward block[0].fc1", "", "all_reduce bucket\\0"};
  timeline.events = {
      {0, 4, 0, 0, 0, 1500, 0}, {0, 4, 1, 2, 1000, 2001, 4096}, {0, 4, 0, 1, 1500, 1500, 0},
      {0, 5, 0, 0, 10, 20, 0},  {3, 4, 0, 0, 0, 3000, 0},
  };
  return timeline;
}

}  // namespace strata::test

#pragma once

/// @file
/// Tags of the engine's control communicator. Internal to src/comm.

namespace strata::comm {

constexpr int kGroupTag = 1;    ///< agreement on a new group
constexpr int kSegmentTag = 2;  ///< where its shared memory is
constexpr int kQueryTag = 3;
constexpr int kAnswerTag = 4;

}  // namespace strata::comm

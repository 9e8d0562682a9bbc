#pragma once

/// @file
/// Which instructions are known to be complete when another one starts: vector clocks over the streams of one section,
/// grown one instruction at a time so that lowering can ask while it emits.

#include <span>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {

class HappensBefore {
 public:
  explicit HappensBefore(int num_streams);
  /// All of @p list.
  HappensBefore(const InstructionList& list, int num_streams);

  /// The next instruction, on @p stream. Of waits with a lag nothing is known here: where repetitions meet, they are
  /// looked at as one list (repetition.hpp), which has none.
  void append(int stream, std::span<const Wait> waits);

  /// True if instruction @p earlier has completed whenever @p later starts.
  bool ordered(int earlier, int later) const {
    return started_[static_cast<std::size_t>(later) * static_cast<std::size_t>(num_streams_) +
                    static_cast<std::size_t>(stream_[static_cast<std::size_t>(earlier)])] >= earlier;
  }
  /// As above for an instruction that would be appended next to @p stream without any waits.
  bool ordered_before_next(int earlier, int stream) const;

 private:
  void join(std::size_t into, int completed);

  int num_streams_;
  std::vector<int> stream_;   ///< of each instruction
  std::vector<int> last_;     ///< latest instruction on each stream, -1: none
  std::vector<int> started_;  ///< [instruction][stream]: the last instruction of that stream known complete, -1: none
};

}  // namespace strata

#pragma once

/// @file
/// What an instruction must wait for: those before it on other streams that touch the same elements, unless the order
/// that is there already says so.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/program/happens_before.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// Goes along a list of instructions as it grows. They are numbered as they are appended.
class WaitFinder {
 public:
  /// Of a Program that has so many.
  WaitFinder(int num_streams, std::size_t num_buffers);

  /// Instructions that @p instruction, which is the next one, has to wait for, in the order of their streams. They
  /// stand until the next call.
  /// @param after others that must be complete before it, although no element says so.
  /// @param waits that it has already.
  std::span<const int> missing(const Instruction& instruction, std::span<const int> after,
                               std::span<const Wait> waits = {});

  /// @param waits of the instruction, numbers of this list.
  void append(const Instruction& instruction, std::span<const Wait> waits);

 private:
  struct Access {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    int instruction = 0;
    bool write = false;
  };

  HappensBefore order_;
  std::vector<int> stream_;  ///< by instruction
  int num_streams_;
  std::vector<std::vector<Access>> accesses_;  ///< by buffer
  std::vector<int> needed_;                    ///< what missing() has found
};

}  // namespace strata

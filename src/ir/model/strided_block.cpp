#include "ir/model/strided_block.hpp"

namespace strata {

StridedBlock block_of(std::span<const Digit> digits) {
  StridedBlock block;
  std::int64_t stride = 1;
  bool is_cut = false;
  std::vector<StridedBlock::Level> levels;  // of what is held, innermost first
  for (std::size_t d = digits.size(); d-- > 0;) {
    const Digit& digit = digits[d];
    if (digit.index >= 0) {
      block.first += digit.index * stride;
      is_cut = is_cut || digit.size > 1;
    } else if (digit.size > 1) {
      const bool joins = !levels.empty() && levels.back().stride * levels.back().count == stride;
      if (joins) {
        levels.back().count *= digit.size;
      } else {
        levels.push_back({digit.size, stride});
      }
    }
    stride *= digit.size;
  }
  if (!is_cut) return {};
  const bool begins_with_neighbours = !levels.empty() && levels.front().stride == 1;
  block.run = begins_with_neighbours ? levels.front().count : 1;
  block.levels.assign(levels.begin() + (begins_with_neighbours ? 1 : 0), levels.end());
  return block;
}

}  // namespace strata

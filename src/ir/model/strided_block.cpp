#include "ir/model/strided_block.hpp"

#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

/// Of the first @p existing elements of what @p digits span, those that are held.
std::int64_t num_held(std::span<const Digit> digits, std::int64_t existing) {
  if (digits.empty()) return existing;
  std::int64_t span = 1;  // of one index of the outermost digit
  for (const Digit& digit : digits.subspan(1)) span *= digit.size;
  const auto inside = digits.subspan(1);
  if (digits.front().index >= 0) {
    return num_held(inside, std::clamp<std::int64_t>(existing - digits.front().index * span, 0, span));
  }
  const std::int64_t full = std::min(existing / span, digits.front().size);
  const std::int64_t rest = full < digits.front().size ? existing - full * span : 0;
  return (full > 0 ? full * num_held(inside, span) : 0) + num_held(inside, rest);
}

using Level = StridedBlock::Level;

/// As levels with their periods, the innermost first: what is held of one dim, whose neighbours stand @p stride
/// elements of the whole and @p period elements of the block apart.
std::vector<Level> levels_of(const DimPart& dim, std::int64_t stride, std::int64_t period) {
  std::vector<Level> levels;
  const auto add = [&](const Level& level) {
    const bool joins = !levels.empty() && levels.back().stride * levels.back().count == level.stride &&
                       levels.back().period * levels.back().count == level.period;
    if (joins) {
      levels.back().count *= level.count;
    } else {
      levels.push_back(level);
    }
  };
  for (std::size_t d = dim.digits.size(); d-- > 0;) {
    const Digit& digit = dim.digits[d];
    if (digit.index < 0 && digit.size > 1) {
      add({digit.size, stride, period});
      period *= digit.size;
    }
    stride *= digit.size;
  }
  if (levels.size() == 1) levels.front().count = dim.count;  // its end may be the dim's
  if (levels.size() == 1 && dim.count == 1) levels.clear();
  return levels;
}

/// Element of the dim at which what is held begins.
std::int64_t first_of(const DimPart& dim) {
  std::int64_t first = 0, stride = 1;
  for (std::size_t d = dim.digits.size(); d-- > 0; stride *= dim.digits[d].size) {
    if (dim.digits[d].index >= 0) first += dim.digits[d].index * stride;
  }
  return first;
}

}  // namespace

DimPart part_of(std::vector<Digit> digits, std::int64_t size) {
  std::int64_t span = 1;
  for (const Digit& digit : digits) span *= digit.size;
  STRATA_INVARIANT(size <= span, "a dim of more elements than its digits have");
  const std::int64_t count = num_held(digits, size);
  return {std::move(digits), size, count};
}

StridedBlock block_of(std::span<const DimPart> dims) {
  StridedBlock block;
  std::int64_t stride = 1, period = 1;
  bool is_cut = false;
  std::vector<Level> levels;  // of what is held, innermost first
  for (std::size_t d = dims.size(); d-- > 0;) {
    const DimPart& dim = dims[d];
    if (dim.count == 0) return {.first = 0, .run = 1};
    if (dim.count < dim.size) {
      is_cut = true;
      block.first += first_of(dim) * stride;
    }
    const std::vector<Level> own =
        dim.count < dim.size ? levels_of(dim, stride, period) : levels_of(all_of(dim.size), stride, period);
    for (const Level& level : own) {
      const bool joins = &level == &own.front() && !levels.empty() &&
                         levels.back().stride * levels.back().count == level.stride &&
                         levels.back().period * levels.back().count == level.period;
      if (joins) {
        levels.back().count *= level.count;
      } else {
        levels.push_back(level);
      }
    }
    stride *= dim.size;
    period *= dim.count;
  }
  if (!is_cut) return {};
  const bool begins_with_neighbours = !levels.empty() && levels.front().stride == 1;
  block.run = begins_with_neighbours ? levels.front().count : 1;
  block.levels.assign(levels.begin() + (begins_with_neighbours ? 1 : 0), levels.end());
  // A period that follows from what is inside is not said.
  std::int64_t inside = block.run;
  for (Level& level : block.levels) {
    const std::int64_t elements = level.period * level.count;
    if (level.period == inside) level.period = 0;
    inside = elements;
  }
  return block;
}

StridedBlock block_of(std::span<const Digit> digits) {
  std::int64_t size = 1;
  for (const Digit& digit : digits) size *= digit.size;
  const std::vector<DimPart> dims = {part_of({digits.begin(), digits.end()}, size)};
  return block_of(dims);
}

}  // namespace strata

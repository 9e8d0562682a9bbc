#include "lower/layouts/cut_tensor.hpp"

#include <utility>

#include "base/error.hpp"

namespace strata {

DimPart shared_part(const AtomicAxes& axes, const DimCut& cut, AxisSet held, int rank, AxisSet other_held, int other) {
  std::vector<Digit> digits;  // those that are left of what is held
  for (const int a : cut.axes) {
    const bool is_theirs = has(other_held, a);
    if (has(held, a)) {
      STRATA_INVARIANT(!is_theirs || axes.coordinate(a, rank) == axes.coordinate(a, other),
                       "two ranks have nothing of a tensor in common");
      continue;
    }
    digits.push_back({axes.size(a), is_theirs ? axes.coordinate(a, other) : -1});
  }
  digits.push_back({part_size(axes, cut), -1});
  return part_of(std::move(digits), part_of(axes, cut, held, rank).count);
}

std::vector<DimPart> shared_part(const AtomicAxes& axes, const CutTensor& tensor, const HeldPart& mine,
                                 const HeldPart& other) {
  return {shared_part(axes, tensor.samples, mine.layout.samples, mine.rank, other.layout.samples, other.rank),
          all_of(tensor.positions), all_of(tensor.sections),
          shared_part(axes, tensor.features, mine.layout.features, mine.rank, other.layout.features, other.rank)};
}

Packing parts_of(const AtomicAxes& axes, const CutTensor& tensor, const HeldPart& mine, const TensorLayout& layout,
                 const std::vector<int>& group) {
  Packing packing;
  for (const int member : group) {
    const std::vector<DimPart> dims = shared_part(axes, tensor, mine, {layout, member});
    packing.add(block_of(dims), num_elements(dims));
  }
  return packing;
}

std::int64_t longest_part(const AtomicAxes& axes, const CutTensor& tensor, const TensorLayout& from,
                          const TensorLayout& to, const std::vector<int>& group) {
  // Of a dim that does not divide the last parts are short or empty: the lower the coordinates of both, the more there
  // is, and the first member's are the lowest.
  return num_elements(shared_part(axes, tensor, {from, group.front()}, {to, group.front()}));
}

}  // namespace strata

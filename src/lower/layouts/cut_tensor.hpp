#pragma once

/// @file
/// A tensor between operators as layouts cut it, and what of one rank's part of it another rank wants or has.

#include <cstdint>
#include <vector>

#include "lower/layouts/packing.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// Samples × positions × sections × features of a section.
struct CutTensor {
  DimCut samples;
  std::int64_t positions = 1;
  std::int64_t sections = 1;
  DimCut features;
  bool operator==(const CutTensor&) const = default;
};

/// What a rank holds of a tensor.
struct HeldPart {
  TensorLayout layout;
  int rank = 0;
};

/// Of @p cut, in what @p rank holds of it by @p held, the elements that are @p other's, too, by @p other_held. Where
/// both hold an axis they stand at the same coordinate.
DimPart shared_part(const AtomicAxes& axes, const DimCut& cut, AxisSet held, int rank, AxisSet other_held, int other);

/// The same of a tensor: a part of what @p mine holds.
std::vector<DimPart> shared_part(const AtomicAxes& axes, const CutTensor& tensor, const HeldPart& mine,
                                 const HeldPart& other);

/// What @p mine holds as parts, one a rank of @p group that holds it as @p layout.
Packing parts_of(const AtomicAxes& axes, const CutTensor& tensor, const HeldPart& mine, const TensorLayout& layout,
                 const std::vector<int>& group);

/// The most elements that a member of @p group, holding it as @p from, has of what one holds as @p to. Of group(),
/// whose first member is at coordinate 0 of every axis along which they differ.
std::int64_t longest_part(const AtomicAxes& axes, const CutTensor& tensor, const TensorLayout& from,
                          const TensorLayout& to, const std::vector<int>& group);

}  // namespace strata

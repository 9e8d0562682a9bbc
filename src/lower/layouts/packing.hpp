#pragma once

/// @file
/// A rank's tensor as parts that stand one after the other: what it sends to, or has received from, each member of a
/// group, or the panels of a product that are its own.

#include <cstdint>
#include <vector>

#include "ir/model/strided_block.hpp"
#include "ir/program/program.hpp"
#include "lower/layouts/permutation.hpp"

namespace strata {

/// Where all parts are equal they are the outermost dims of one permutation. Where they are not, each has its block.
struct Packing {
  Permutation permutation{};           ///< tensor → parts; empty: as it is
  std::vector<StridedBlock> blocks{};  ///< of the tensor, by part
  std::vector<std::int64_t> begins{};  ///< of the parts, elements, and the end; of blocks alone

  bool is_in_place() const;
  std::int64_t size_of_part(std::size_t part) const { return begins[part + 1] - begins[part]; }
  /// Of @p parts, as they stand one after the other. Of blocks alone.
  Operand part_of(const Operand& parts, int part) const {
    const auto p = static_cast<std::size_t>(part);
    return {parts.buffer, parts.begin + begins[p], size_of_part(p)};
  }
  void add(const StridedBlock& block, std::int64_t elements);
};

/// Of @p dims, the outermost first, of which a part is held.
std::int64_t num_elements(const std::vector<DimPart>& dims);

}  // namespace strata

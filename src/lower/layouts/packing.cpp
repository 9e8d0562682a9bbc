#include "lower/layouts/packing.hpp"

namespace strata {

bool Packing::is_in_place() const {
  if (begins.empty()) return permutation.is_identity();
  for (std::size_t p = 0; p < blocks.size(); ++p) {
    const StridedBlock& block = blocks[p];
    if (size_of_part(p) > 0 && (!block.levels.empty() || block.first != begins[p])) return false;
  }
  return true;
}

void Packing::add(const StridedBlock& block, std::int64_t elements) {
  if (begins.empty()) begins.push_back(0);
  blocks.push_back(block);
  begins.push_back(begins.back() + elements);
}

std::int64_t num_elements(const std::vector<DimPart>& dims) {
  std::int64_t elements = 1;
  for (const DimPart& dim : dims) elements *= dim.count;
  return elements;
}

}  // namespace strata

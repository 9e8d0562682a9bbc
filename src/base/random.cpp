/// @file
/// One normal at a time: the reference of every vector loop over normal_pair.

#include "base/random.hpp"

namespace strata {

float RandomStream::normal(std::uint64_t index) const {
  const NormalPair pair = normal_pair(word(index & ~std::uint64_t{1}), word(index | 1U));
  return index % 2 == 0 ? pair.cosine : pair.sine;
}

}  // namespace strata

#include "base/random.hpp"

#include <cmath>
#include <numbers>

namespace strata {

float RandomStream::normal(std::uint64_t index) const {
  // 1 - u keeps the logarithm's argument in (0, 1].
  const double u = 1.0 - static_cast<double>(word(2 * index)) * 0x1.0p-32;
  const double v = static_cast<double>(word(2 * index + 1)) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace strata

#pragma once

/// @file
/// What data sheets say that a device does at most.

#include <string_view>

#include "base/dtype.hpp"

namespace strata::profile {

/// FLOP/s of dense matrix products by NVIDIA's data sheets. @param device the driver's name of it. @param tf32 f32
/// products may round their operands. @return NaN where the device is not in our list.
double nameplate_flops_per_second(std::string_view device, DType dtype, bool tf32);

}  // namespace strata::profile

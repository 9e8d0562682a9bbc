#include "profile/nameplate.hpp"

#include <limits>

namespace strata::profile {
namespace {

struct Nameplate {
  std::string_view part_of_name;
  double bf16, tf32, f32;  ///< tensor cores without sparsity; the last without tensor cores
};

/// The first that is part of the device's name: variants of one GPU stand before the GPU.
constexpr Nameplate nameplates[] = {{"B200", 2250e12, 1125e12, 75e12},    {"H200 NVL", 835.5e12, 417.5e12, 60e12},
                                    {"H200", 989.5e12, 494.7e12, 67e12},  {"H100 NVL", 835.5e12, 417.5e12, 60e12},
                                    {"H100 PCIe", 756e12, 378e12, 51e12}, {"H100", 989.5e12, 494.7e12, 67e12},
                                    {"A100", 312e12, 156e12, 19.5e12}};

}  // namespace

double nameplate_flops_per_second(std::string_view device, DType dtype, bool tf32) {
  for (const Nameplate& plate : nameplates) {
    if (device.find(plate.part_of_name) == std::string_view::npos) continue;
    if (dtype == DType::bf16) return plate.bf16;
    if (dtype == DType::f32) return tf32 ? plate.tf32 : plate.f32;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace strata::profile

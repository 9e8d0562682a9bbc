#pragma once

/// @file
/// What `auto` decides, as dimensions of which every paper searches a few, and how one is left out.

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/plan/plan.hpp"

namespace strata {

enum class Dimension : std::uint8_t {
  stages,       ///< of a pipeline, and how many a rank: PipeDream, Megatron-LM
  tensor,       ///< layouts of products, and how their sums come together: Megatron-LM, AutoDDL, Oases
  states,       ///< over how many ranks parameters, gradients and optimizer states are held: ZeRO, OSDP, AMSP
  slices,       ///< of an operator, of which some are sharded: OSDP
  recompute,    ///< what runs again before its backward: GPipe, Oases
  sub_batches,  ///< that take turns, within a pass or across two: Merak, Oases
  overlap,      ///< what communication runs under: AMSP, Oases
  placement,    ///< which nodes share a group: AMSP
};

inline constexpr std::array all_dimensions = {Dimension::stages,  Dimension::tensor,    Dimension::states,
                                              Dimension::slices,  Dimension::recompute, Dimension::sub_batches,
                                              Dimension::overlap, Dimension::placement};
std::string_view to_string(Dimension dimension);

class Dimensions {
 public:
  /// All but those that @p without names, with commas between them; "none": all.
  /// @throws UserError naming strategy.without and the accepted names.
  explicit Dimensions(std::string_view without);
  bool has(Dimension dimension) const { return !left_out_.test(static_cast<std::size_t>(dimension)); }

  /// @p plan with what is left out as @p base has it, which is what the experiment asks for; nothing where degrees that
  /// are left out make another plan of it. Quantization, which changes what is computed, is in no dimension.
  std::optional<Plan> within(Plan plan, const Plan& base) const;

 private:
  std::bitset<all_dimensions.size()> left_out_;
};

}  // namespace strata

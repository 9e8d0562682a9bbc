#include "cost/cost_model.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr std::array<std::string_view, 3> source_names = {"paper", "analytic", "measured"};
constexpr std::array<std::string_view, 4> basis_names = {"measured", "interpolated", "formula", "extrapolated"};

}  // namespace

std::string_view to_string(CostSource source) { return source_names.at(static_cast<std::size_t>(source)); }

CostSource parse_cost_source(std::string_view text) {
  for (std::size_t i = 0; i < source_names.size(); ++i) {
    if (source_names[i] == text) return static_cast<CostSource>(i);
  }
  throw UserError(fmt::format("unknown cost source `{}`; accepted: {}", text, fmt::join(source_names, ", ")));
}

std::string_view to_string(Basis basis) { return basis_names.at(static_cast<std::size_t>(basis)); }

}  // namespace strata

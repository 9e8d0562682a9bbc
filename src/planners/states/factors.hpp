#pragma once

/// @file
/// Which factors parameters, gradients and optimizer states may have together on R ranks a node × N nodes, and how an
/// option says one. Pure arithmetic.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// Every factor one state may have on @p grid, from 1x1 to the grid itself: its ranks in a node divide R, and only
/// where it takes whole nodes does it take several, as many as divide N. Each divides the next where R and N are powers
/// of one prime.
/// Source: AMSP sec. V-B, equations 5-7.
std::vector<Factor> legal_factors(const Factor& grid);

/// Every (p, g, os) on @p grid with p | g | os in both dimensions and g one of p and os: 121 on 8x128.
/// Source: AMSP sec. IV-B, IV-C3 and V-B.
std::vector<StateFactors> legal_states(const Factor& grid);

/// The first rule of the above that @p state breaks, with its numbers; empty: it is legal.
std::string broken_rule(const StateFactors& state, const Factor& grid);

/// @p outer / @p inner: the shape of the group that holds the parts of an inner shard.
Factor quotient(const Factor& outer, const Factor& inner);
Factor product(const Factor& a, const Factor& b);
/// Every factor that divides @p grid in both dimensions, 1x1 first, ranks in a node growing before nodes.
std::vector<Factor> divisors(const Factor& grid);

/// The value of option `strategy.<name>`: a factor, or @p word (then nothing), if there is one. @throws UserError.
std::optional<Factor> factor_option(std::string_view name, const std::string& value, std::string_view word);

/// "p 4x1, g 4x1, os 8x1".
std::string to_string(const StateFactors& state);

}  // namespace strata

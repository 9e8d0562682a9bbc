#pragma once

/// @file
/// Chains of Oases' planner with made-up numbers.

#include <algorithm>
#include <cstdint>
#include <random>

#include "planners/oases/chain.hpp"

namespace strata {

/// Of @p num_nodes nodes with @p num_choices choices each: the larger a degree the less compute and bytes and the more
/// communication, about as degrees of tensor parallelism have it. Capacities lie between what needs least and what
/// needs most, with luck at the edge of one plan to the byte; now and then nothing is limited, or nothing fits.
inline Chain random_chain(std::mt19937& generator, int num_nodes, int num_choices) {
  const auto real = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(generator); };
  const auto whole = [&](int low, int high) { return std::uniform_int_distribution<>(low, high)(generator); };
  Chain chain{.sub_batches = whole(1, 3),
              .reshard = whole(0, 1) == 0 ? Reshard::blocking : Reshard::pipelined,
              .ends_agree = num_nodes > 1 && whole(0, 2) == 0};
  std::int64_t least = 0, most = 0;
  for (int i = 0; i < num_nodes; ++i) {
    auto& node = chain.nodes.emplace_back();
    const double size = real(0.5, 2.0);
    for (int a = 0; a < num_choices; ++a) {
      const double communication = a == 0 ? 0.0 : size * real(0.2, 1.0) * a;
      node.push_back({.forward = {size * real(0.9, 1.1), communication},
                      .backward = {2.0 * size * real(0.9, 1.1), communication * real(0.5, 1.5)},
                      .resident_bytes = whole(50, 150) * (num_choices - a),
                      .runtime_bytes = whole(0, 100)});
    }
    const auto by_bytes = [](const ChainChoice& a, const ChainChoice& b) {
      return a.resident_bytes < b.resident_bytes;
    };
    least += std::ranges::min_element(node, by_bytes)->resident_bytes;
    most += std::ranges::max_element(node, by_bytes)->resident_bytes + 100;
  }
  for (int i = 0; i + 1 < num_nodes; ++i) {
    auto& edge = chain.gathers.emplace_back();
    for (int a = 0; a < num_choices; ++a) {
      for (int b = 0; b < num_choices; ++b) {
        const double seconds = a == b ? 0.0 : real(0.0, 0.5);
        edge.push_back(a < b ? GatherSeconds{.forward = seconds} : GatherSeconds{.backward = seconds});
      }
    }
  }
  if (whole(0, 9) > 0) chain.capacity_bytes = std::uniform_int_distribution<std::int64_t>(least, most)(generator);
  return chain;
}

}  // namespace strata

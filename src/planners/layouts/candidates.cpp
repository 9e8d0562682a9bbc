#include "planners/layouts/candidates.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "planners/layouts/volume.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

/// Every ordered split of @p n into three factors, the first falling, then the second.
std::vector<std::array<int, 3>> triples(int n) {
  std::vector<std::array<int, 3>> all;
  for (int a = n; a >= 1; --a) {
    if (n % a != 0) continue;
    for (int b = n / a; b >= 1; --b) {
      if (n / a % b == 0) all.push_back({a, b, n / a / b});
    }
  }
  return all;
}

std::string breaks(std::int64_t size, std::int64_t degree, std::string_view what, std::string_view by) {
  return fmt::format("{} {} are not divisible by {} = {}", size, what, by, degree);
}

std::string limit_broken_by_panels(const Layer& layer, const Layout& layout, const LayoutLimits& limits) {
  const std::int64_t samples = layout.p0.total() * layout.p1.total(), columns = layout.p2.total();
  if (limits.samples % samples != 0) return breaks(limits.samples, samples, "samples of a micro-batch", "p0·p1");
  const int panels = num_panels(layout, layer.shares_weight);
  if (layer.in % panels != 0) {
    return breaks(layer.in, panels, "input features", layer.shares_weight ? "p0·p2" : "lcm(p0, p2)");
  }
  if (layer.out % columns != 0) return breaks(layer.out, columns, "output features", "p2");
  // What works at the home is cut as the input of the next product.
  const int cut = columns == 1 ? 1 : num_panels(layout, false);
  for (const Divisible& each : layer.of_home) {
    if (each.size % cut != 0) return breaks(each.size, cut, each.what, "lcm(p0, p2)");
  }
  return "";
}

}  // namespace

std::vector<Layout> all_layouts(const Factor& grid) {
  std::vector<Layout> layouts;
  const auto across = triples(grid.nodes);
  for (const auto& in : triples(grid.in_node)) {
    for (const auto& out : across) {
      layouts.push_back({.p0 = {in[0], out[0]}, .p1 = {in[1], out[1]}, .p2 = {in[2], out[2]}});
    }
  }
  return layouts;
}

Layout replicated_layout(const Factor& grid) { return {.p0 = grid, .p1 = {}, .p2 = {}}; }

Layout home_layout(const Layout& layout, const Factor& grid) {
  return {.p0 = layout.p0, .p1 = quotient(grid, layout.p0), .p2 = {}};
}

std::string broken_limit(const Layer& layer, const Layout& layout, const LayoutLimits& limits) {
  if (layer.algorithm == MatmulAlgorithm::summa) return limit_broken_by_panels(layer, layout, limits);
  const std::int64_t p0 = layout.p0.total(), p2 = layout.p2.total(), split = layout.p1.total() * p2;
  if (limits.samples % p0 != 0) return breaks(limits.samples, p0, "samples of a micro-batch", "p0");
  // Whole samples and weights leave nothing else to divide.
  if (!layer.is_searched) return "";
  if (limits.max_p0 > 0 && p0 > limits.max_p0) return fmt::format("p0 = {} is over max_p0 = {}", p0, limits.max_p0);
  const auto is_cut = [&](std::int64_t size, std::int64_t degree) {
    return limits.uneven_features ? size >= degree : size % degree == 0;
  };
  if (layer.is_embedding) {
    if (!is_cut(layer.in, p2)) return breaks(layer.in, p2, "words of the vocabulary", "p2");
  } else if (const std::int64_t degree = layer.reads_data ? p2 : split; !is_cut(layer.in, degree)) {
    return breaks(layer.in, degree, "input features", layer.reads_data ? "p2" : "p1·p2");
  }
  if (!is_cut(layer.out, split)) return breaks(layer.out, split, "output features", "p1·p2");
  for (const Divisible& each : layer.of_home) {
    if (each.size % split != 0) return breaks(each.size, split, each.what, "p1·p2");
  }
  return "";
}

std::vector<Layout> candidates(const Layer& layer, const std::vector<Layout>& all, const LayoutLimits& limits) {
  std::vector<Layout> left;
  std::string broken;
  for (const Layout& layout : all) {
    const bool is_replicated = layout.p1 == Factor{} && layout.p2 == Factor{};
    if (!layer.is_searched && !is_replicated) continue;
    std::string broke = broken_limit(layer, layout, limits);
    if (broke.empty()) {
      left.push_back(layout);
    } else {
      broken = fmt::format("{}: {}", to_string(layout), broke);
    }
  }
  if (left.empty()) {
    throw Unsupported(
        fmt::format("{}: none of {} layouts is possible; {}", layer.name, layer.is_searched ? all.size() : 1, broken));
  }
  return left;
}

std::string to_string(const Layout& layout) {
  return fmt::format("p0 {}, p1 {}, p2 {}", to_string(layout.p0), to_string(layout.p1), to_string(layout.p2));
}

}  // namespace strata

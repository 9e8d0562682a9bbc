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

/// The limit that cutting @p size things into @p degree parts breaks; empty: each part has one or more, on average.
std::string too_few(std::int64_t size, std::int64_t degree, std::string_view what, std::string_view by) {
  return size >= degree ? "" : fmt::format("{} {} are fewer than {} = {}", size, what, by, degree);
}

std::string limit_broken_by_panels(const Layer& layer, const Layout& layout, const LayoutLimits& limits) {
  const std::int64_t columns = layout.p2.total();
  std::string broken =
      too_few(limits.samples, layout.p0.total() * layout.p1.total(), "samples of a micro-batch", "p0·p1");
  if (!broken.empty()) return broken;
  broken = too_few(layer.in, num_panels(layout, layer.shares_weight), "input features",
                   layer.shares_weight ? "p0·p2" : "lcm(p0, p2)");
  if (!broken.empty()) return broken;
  broken = too_few(layer.out, columns, "output features", "p2");
  for (std::size_t i = 0; i < layer.of_home.size() && broken.empty(); ++i) {
    broken = too_few(layer.of_home[i].size, columns, layer.of_home[i].what, "p2");
  }
  return broken;
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
  // Whole weights leave nothing to cut but samples, which data parallel ranks may have none of.
  if (!layer.is_searched) return "";
  const std::int64_t p0 = layout.p0.total(), p2 = layout.p2.total(), split = layout.p1.total() * p2;
  if (limits.max_p0 > 0 && p0 > limits.max_p0) return fmt::format("p0 = {} is over max_p0 = {}", p0, limits.max_p0);
  std::string broken = too_few(limits.samples, p0, "samples of a micro-batch", "p0");
  if (!broken.empty()) return broken;
  broken = layer.is_embedding
               ? too_few(layer.in, p2, "words of the vocabulary", "p2")
               : too_few(layer.in, layer.reads_data ? p2 : split, "input features", layer.reads_data ? "p2" : "p1·p2");
  if (!broken.empty()) return broken;
  broken = too_few(layer.out, split, "output features", "p1·p2");
  for (std::size_t i = 0; i < layer.of_home.size() && broken.empty(); ++i) {
    broken = too_few(layer.of_home[i].size, split, layer.of_home[i].what, "p1·p2");
  }
  return broken;
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

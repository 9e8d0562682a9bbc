#include "planners/search/pareto_front.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace strata {
namespace {

bool comes_before(const FrontPoint& a, const FrontPoint& b) {
  return a.resident_bytes != b.resident_bytes ? a.resident_bytes < b.resident_bytes : a.seconds < b.seconds;
}

void append(ParetoFront& front, const FrontPoint& point) {
  if (front.empty() || point.seconds < front.back().seconds) front.push_back(point);
}

ParetoFront merged(const ParetoFront& a, const ParetoFront& b) {
  ParetoFront result;
  result.reserve(a.size() + b.size());
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool from_a = j == b.size() || (i < a.size() && !comes_before(b[j], a[i]));
    append(result, from_a ? a[i++] : b[j++]);
  }
  return result;
}

/// Points [begin, end) of @p a with all of @p b.
ParetoFront sum_of_range(const ParetoFront& a, std::size_t begin, std::size_t end, const ParetoFront& b) {
  if (end - begin > 1) {
    const std::size_t middle = begin + (end - begin) / 2;
    return merged(sum_of_range(a, begin, middle, b), sum_of_range(a, middle, end, b));
  }
  ParetoFront shifted;
  shifted.reserve(b.size());
  for (std::size_t j = 0; j < b.size(); ++j) {
    // Sums of equal rounded seconds may stop falling.
    append(shifted, {a[begin].resident_bytes + b[j].resident_bytes, a[begin].seconds + b[j].seconds,
                     static_cast<int>(begin), static_cast<int>(j)});
  }
  return shifted;
}

}  // namespace

ParetoFront front_of(std::vector<FrontPoint> points) {
  std::ranges::stable_sort(points, comes_before);
  ParetoFront front;
  for (const FrontPoint& point : points) append(front, point);
  return front;
}

ParetoFront sum_of(const ParetoFront& a, const ParetoFront& b) {
  if (a.empty() || b.empty()) return {};
  if (a.size() <= b.size()) return sum_of_range(a, 0, a.size(), b);
  ParetoFront swapped = sum_of_range(b, 0, b.size(), a);
  for (FrontPoint& point : swapped) std::swap(point.first, point.second);
  return swapped;
}

bool coarsen(ParetoFront& front, std::size_t max_points) {
  if (front.size() <= max_points) return false;
  const std::int64_t least = front.front().resident_bytes, most = front.back().resident_bytes;
  const std::int64_t step = (most - least) / static_cast<std::int64_t>(max_points) + 1;
  ParetoFront grid;
  // Of the points that round up to the same bytes the last one is the fastest. What dominates nothing any more is
  // dropped by the next sum.
  for (std::size_t i = 0; i < front.size(); ++i) {
    FrontPoint point = front[i];
    point.resident_bytes = least + (point.resident_bytes - least + step - 1) / step * step;
    if (!grid.empty() && grid.back().resident_bytes == point.resident_bytes) grid.pop_back();
    grid.push_back(point);
  }
  front = std::move(grid);
  return true;
}

}  // namespace strata

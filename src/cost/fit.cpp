#include "cost/fit.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "cost/collective_formulas.hpp"

namespace strata {

Line fit_alpha_beta(std::span<const TransferTime> times) {
  STRATA_INVARIANT(times.size() >= 2, "a line needs two points");
  // Weighted normal equations, weight 1/seconds².
  double wss = 0.0;
  double wsx = 0.0;
  double wxx = 0.0;
  double wsy = 0.0;
  double wxy = 0.0;
  for (const TransferTime& t : times) {
    const double weight = 1.0 / (t.seconds * t.seconds);
    wss += weight * t.steps * t.steps;
    wsx += weight * t.steps * t.sent_bytes;
    wxx += weight * t.sent_bytes * t.sent_bytes;
    wsy += weight * t.steps * t.seconds;
    wxy += weight * t.sent_bytes * t.seconds;
  }
  const double determinant = wss * wxx - wsx * wsx;
  STRATA_INVARIANT(determinant > 0.0, "a line needs two sizes");
  Line line{(wsy * wxx - wsx * wxy) / determinant, (wss * wxy - wsx * wsy) / determinant, 0.0};
  if (line.alpha_seconds < 0.0) line = {0.0, wxy / wxx, 0.0};
  if (line.beta_seconds_per_byte < 0.0) line = {wsy / wss, 0.0, 0.0};
  for (const TransferTime& t : times) {
    const double predicted = line.alpha_seconds * t.steps + line.beta_seconds_per_byte * t.sent_bytes;
    line.mean_relative_error += std::abs(predicted - t.seconds) / t.seconds / static_cast<double>(times.size());
  }
  return line;
}

LinkLines fit_links(std::span<const CollectiveTime> times) {
  std::vector<TransferTime> inside, across;
  for (const CollectiveTime& row : times) {
    const bool is_of_table_2 = row.kind == Collective::all_reduce || row.kind == Collective::all_gather ||
                               row.kind == Collective::reduce_scatter || row.kind == Collective::all_to_all;
    const int p = row.group.total();
    if (!is_of_table_2 || p == 1 || row.seconds <= 0.0) continue;
    const int steps = ring_steps(row.kind, p);
    (row.group.nodes == 1 ? inside : across)
        .push_back({static_cast<double>(row.bytes) / p * steps, row.seconds, static_cast<double>(steps)});
  }
  LinkLines lines{.inside = {}, .across = {}};
  lines.num_inside = static_cast<int>(inside.size());
  lines.num_across = static_cast<int>(across.size());
  if (!inside.empty()) lines.inside = fit_alpha_beta(inside);
  if (!across.empty()) lines.across = fit_alpha_beta(across);
  return lines;
}

}  // namespace strata

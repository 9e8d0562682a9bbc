#include "planners/search/exact_choices.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/infinity.hpp"
#include "planners/search/pareto_front.hpp"

namespace strata {
namespace {

/// The ways to deal a class's operators to choices, as a front; operator by operator, so that counts can be read back.
struct ClassFront {
  ParetoFront choices;             ///< `first` is the choice's index in the class
  std::vector<ParetoFront> steps;  ///< [n]: n + 1 operators; `first` into choices, `second` into steps[n - 1]
  bool coarse = false;
  const ParetoFront& all() const { return steps.back(); }
};

/// A convex hull's greedy: how seconds fall as bytes are spent where they save most.
struct Relaxation {
  std::vector<std::int64_t> resident_bytes;  ///< at the breakpoints, rising
  std::vector<double> seconds;               ///< falling

  /// Least seconds of any fractional plan with at most @p bytes; infinity below the least.
  double at(std::int64_t bytes) const {
    if (bytes < resident_bytes.front()) return infinity;
    const auto above = std::ranges::upper_bound(resident_bytes, bytes) - resident_bytes.begin();
    const auto last = static_cast<std::size_t>(above) - 1;
    if (last + 1 == resident_bytes.size()) return seconds.back();
    const double share = static_cast<double>(bytes - resident_bytes[last]) /
                         static_cast<double>(resident_bytes[last + 1] - resident_bytes[last]);
    return seconds[last] + share * (seconds[last + 1] - seconds[last]);
  }
};

/// What is allowed where no workspace is larger than `workspace_bytes`.
struct Level {
  std::int64_t workspace_bytes = 0;
  std::vector<ParetoFront> choices;  ///< by class
  Relaxation relaxation;
};

ParetoFront allowed_choices(const OperatorClass& c, std::int64_t workspace_bytes) {
  std::vector<FrontPoint> points;
  for (std::size_t k = 0; k < c.choices.size(); ++k) {
    const Choice& choice = c.choices[k];
    if (choice.workspace_bytes <= workspace_bytes)
      points.push_back({choice.resident_bytes, choice.seconds, static_cast<int>(k), -1});
  }
  return front_of(std::move(points));
}

/// Points of @p front on its lower convex hull.
ParetoFront hull_of(const ParetoFront& front) {
  ParetoFront hull;
  const auto saving = [](const FrontPoint& a, const FrontPoint& b) {
    return (a.seconds - b.seconds) / static_cast<double>(b.resident_bytes - a.resident_bytes);
  };
  for (const FrontPoint& point : front) {
    while (hull.size() > 1 && saving(hull[hull.size() - 2], hull.back()) <= saving(hull.back(), point)) hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

Relaxation relaxation_of(const ChoiceProblem& problem, const std::vector<ParetoFront>& choices) {
  struct Segment {
    std::int64_t bytes;
    double saved;
  };
  std::vector<Segment> segments;
  std::int64_t resident = 0;
  double seconds = 0.0;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const ParetoFront hull = hull_of(choices[c]);
    const int count = problem.classes[c].count;
    resident += count * hull.front().resident_bytes;
    seconds += count * hull.front().seconds;
    for (std::size_t i = 1; i < hull.size(); ++i) {
      segments.push_back({count * (hull[i].resident_bytes - hull[i - 1].resident_bytes),
                          count * (hull[i - 1].seconds - hull[i].seconds)});
    }
  }
  std::ranges::stable_sort(segments, [](const Segment& a, const Segment& b) {
    return a.saved * static_cast<double>(b.bytes) > b.saved * static_cast<double>(a.bytes);
  });
  Relaxation relaxation{{resident}, {seconds}};
  for (const Segment& s : segments) {
    relaxation.resident_bytes.push_back(resident += s.bytes);
    relaxation.seconds.push_back(seconds -= s.saved);
  }
  return relaxation;
}

bool equal_choices(const std::vector<ParetoFront>& a, const std::vector<ParetoFront>& b) {
  return std::ranges::equal(a, b, [](const ParetoFront& x, const ParetoFront& y) {
    return std::ranges::equal(x, y, {}, &FrontPoint::first, &FrontPoint::first);
  });
}

/// In rising order of workspace; a level that allows nothing new and useful is left out.
std::vector<Level> levels_of(const ChoiceProblem& problem) {
  std::vector<std::int64_t> thresholds;
  for (const OperatorClass& c : problem.classes) {
    for (const Choice& choice : c.choices) thresholds.push_back(choice.workspace_bytes);
  }
  std::ranges::sort(thresholds);
  thresholds.erase(std::ranges::unique(thresholds).begin(), thresholds.end());
  std::vector<Level> levels;
  for (const std::int64_t threshold : thresholds) {
    Level level{.workspace_bytes = threshold, .choices = {}, .relaxation = {}};
    for (const OperatorClass& c : problem.classes) level.choices.push_back(allowed_choices(c, threshold));
    if (std::ranges::any_of(level.choices, &ParetoFront::empty)) continue;
    if (!levels.empty() && equal_choices(levels.back().choices, level.choices)) continue;
    level.relaxation = relaxation_of(problem, level.choices);
    levels.push_back(std::move(level));
  }
  return levels;
}

/// The most resident bytes that fit beside @p level's workspace; nothing: not even the least do.
std::optional<std::int64_t> resident_capacity(const ChoiceProblem& problem, const Level& level, std::int64_t samples,
                                              std::int64_t capacity_bytes) {
  const auto fits = [&](std::int64_t resident) {
    return problem.peak_bytes(resident, level.workspace_bytes, samples) <= capacity_bytes;
  };
  std::int64_t low = level.relaxation.resident_bytes.front(), high = level.relaxation.resident_bytes.back();
  if (!fits(low)) return std::nullopt;
  if (fits(high)) return high;
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

class ExactSearch::Tables {
  struct Pair {
    double seconds = infinity;
    std::size_t a = 0, b = 0;
  };

 public:
  Tables(const ChoiceProblem& problem, const ExactOptions& options)
      : problem_(problem), options_(options), levels_(levels_of(problem)), sums_(levels_.size()) {}

  std::optional<BatchAnswer> best(std::int64_t samples, std::int64_t capacity_bytes) {
    double bound = infinity;
    bool coarse = false;
    Pair best;
    const LevelSums* level_of_best = nullptr;
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      const auto capacity = resident_capacity(problem_, levels_[l], samples, capacity_bytes);
      if (!capacity) continue;
      const double level_bound = levels_[l].relaxation.at(*capacity);
      bound = std::min(bound, level_bound);
      if (level_bound >= best.seconds) continue;
      if (!sums_[l]) sums_[l] = build(levels_[l]);
      coarse = coarse || sums_[l]->coarse;
      const auto pair = best_pair(*sums_[l], *capacity);
      if (!pair || pair->seconds >= best.seconds) continue;
      best = *pair;
      level_of_best = &*sums_[l];
    }
    if (level_of_best == nullptr) return std::nullopt;
    BatchAnswer answer = evaluated(problem_, counts_of(*level_of_best, best), samples);
    if (coarse) answer.gap = std::max(0.0, (best.seconds - bound) / answer.seconds);
    return answer;
  }

 private:
  const ClassFront& class_front(std::size_t c, const ParetoFront& choices) {
    std::vector<int> key = {static_cast<int>(c)};
    for (const FrontPoint& p : choices) key.push_back(p.first);
    const auto [place, is_new] = class_fronts_.try_emplace(std::move(key));
    ClassFront& front = place->second;
    if (!is_new) return front;
    front.choices = choices;
    front.steps.push_back(choices);
    for (std::size_t i = 0; i < choices.size(); ++i) front.steps.back()[i].first = static_cast<int>(i);
    for (int n = 1; n < problem_.classes[c].count; ++n) {
      front.steps.push_back(sum_of(choices, front.steps.back()));
      front.coarse = coarsen(front.steps.back(), options_.max_front) || front.coarse;
    }
    return front;
  }

  /// A sum of class fronts.
  struct Half {
    std::vector<std::size_t> classes;
    std::vector<ParetoFront> sums;  ///< [n]: of the first n + 1; `first` into sums[n - 1], `second` into the class's
  };
  /// Everything of a level.
  struct LevelSums {
    std::vector<const ClassFront*> fronts;  ///< by class
    Half a, b;
    bool coarse = false;
  };

  LevelSums build(const Level& level) {
    LevelSums sums;
    for (std::size_t c = 0; c < problem_.classes.size(); ++c) {
      sums.fronts.push_back(&class_front(c, level.choices[c]));
      sums.coarse = sums.coarse || sums.fronts.back()->coarse;
    }
    std::vector<std::size_t> largest_first(sums.fronts.size());
    std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
    std::ranges::stable_sort(largest_first, std::ranges::greater{},
                             [&](std::size_t c) { return sums.fronts[c]->all().size(); });
    std::vector<std::size_t> split[2];
    double points[2] = {1.0, 1.0};
    for (const std::size_t c : largest_first) {
      const int half = points[0] <= points[1] ? 0 : 1;
      split[half].push_back(c);
      points[half] *= static_cast<double>(sums.fronts[c]->all().size());
    }
    sums.a = half_of(std::move(split[0]), sums);
    sums.b = half_of(std::move(split[1]), sums);
    return sums;
  }

  Half half_of(std::vector<std::size_t> classes, LevelSums& level) const {
    Half half{.classes = std::move(classes), .sums = {}};
    for (const std::size_t c : half.classes) {
      const ParetoFront& front = level.fronts[c]->all();
      if (half.sums.empty()) {
        half.sums.push_back(front);
        for (std::size_t i = 0; i < front.size(); ++i) half.sums.back()[i].second = static_cast<int>(i);
        continue;
      }
      half.sums.push_back(sum_of(half.sums.back(), front));
      level.coarse = coarsen(half.sums.back(), options_.max_front) || level.coarse;
    }
    if (half.sums.empty()) half.sums.push_back({FrontPoint{}});
    return half;
  }

  static std::optional<Pair> best_pair(const LevelSums& level, std::int64_t capacity) {
    const ParetoFront& a = level.a.sums.back();
    const ParetoFront& b = level.b.sums.back();
    Pair best;
    std::size_t above = b.size();  // first point of b that no longer fits
    for (std::size_t i = 0; i < a.size(); ++i) {
      while (above > 0 && b[above - 1].resident_bytes > capacity - a[i].resident_bytes) --above;
      if (above == 0) break;
      const double seconds = a[i].seconds + b[above - 1].seconds;
      if (seconds < best.seconds) best = {seconds, i, above - 1};
    }
    return best.seconds == infinity ? std::nullopt : std::optional(best);
  }

  static void count_class(const ClassFront& front, std::size_t point, std::vector<int>& counts) {
    for (std::size_t n = front.steps.size(); n-- > 0;) {
      const FrontPoint& p = front.steps[n][point];
      const FrontPoint& choice = front.choices[static_cast<std::size_t>(p.first)];
      ++counts[static_cast<std::size_t>(choice.first)];
      point = static_cast<std::size_t>(p.second);
    }
  }

  static void count_half(const LevelSums& level, const Half& half, std::size_t point, Counts& counts) {
    for (std::size_t n = half.classes.size(); n-- > 0;) {
      const FrontPoint& p = half.sums[n][point];
      const std::size_t c = half.classes[n];
      count_class(*level.fronts[c], static_cast<std::size_t>(p.second), counts[c]);
      point = static_cast<std::size_t>(p.first);
    }
  }

  Counts counts_of(const LevelSums& level, const Pair& pair) const {
    Counts counts;
    for (const OperatorClass& c : problem_.classes) counts.emplace_back(c.choices.size(), 0);
    count_half(level, level.a, pair.a, counts);
    count_half(level, level.b, pair.b, counts);
    return counts;
  }

  const ChoiceProblem& problem_;
  ExactOptions options_;
  std::vector<Level> levels_;
  std::vector<std::optional<LevelSums>> sums_;           ///< by level, once it was needed
  std::map<std::vector<int>, ClassFront> class_fronts_;  ///< by class and its allowed choices
};

ExactSearch::ExactSearch(const ChoiceProblem& problem, const ExactOptions& options)
    : tables_(std::make_unique<Tables>(problem, options)) {}
ExactSearch::~ExactSearch() = default;

std::optional<BatchAnswer> ExactSearch::best(std::int64_t samples, std::int64_t capacity_bytes) {
  return tables_->best(samples, capacity_bytes);
}

std::vector<BatchAnswer> search_exactly(const ChoiceProblem& problem, std::span<const std::int64_t> samples,
                                        const ExactOptions& options) {
  ExactSearch search(problem, options);
  std::vector<BatchAnswer> answers;
  for (const std::int64_t b : samples) {
    if (auto answer = search.best(b, problem.capacity_bytes)) answers.push_back(std::move(*answer));
  }
  return answers;
}

const BatchAnswer* best_of(std::span<const BatchAnswer> answers) {
  const BatchAnswer* best = nullptr;
  for (const BatchAnswer& answer : answers) {
    if (best == nullptr || answer.seconds_per_sample() < best->seconds_per_sample() ||
        (answer.seconds_per_sample() == best->seconds_per_sample() && answer.samples > best->samples)) {
      best = &answer;
    }
  }
  return best;
}

double lower_bound_seconds(const ChoiceProblem& problem, std::int64_t samples) {
  double bound = infinity;
  for (const Level& level : levels_of(problem)) {
    const auto capacity = resident_capacity(problem, level, samples, problem.capacity_bytes);
    if (capacity) bound = std::min(bound, level.relaxation.at(*capacity));
  }
  return bound + problem.compute_seconds(samples);
}

}  // namespace strata

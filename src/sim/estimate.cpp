#include "sim/estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "sim/task_graph.hpp"

namespace strata {
namespace {

using sim::Across;
using sim::Compiled;
using sim::Rendezvous;
using sim::Task;
using sim::TaskGraph;

/// Paths walked at most; most jobs need three.
constexpr int max_walks = 5;
/// A path that differs less from the one before, as a share, is the last.
constexpr double tolerance = 1e-3;

struct Interval {
  double begin = 0.0;
  double end = 0.0;
};

/// In order and without overlaps.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> result;
  for (const Interval& i : intervals) {
    if (!result.empty() && i.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, i.end);
    } else {
      result.push_back(i);
    }
  }
  return result;
}

double total(const std::vector<Interval>& disjoint) {
  double sum = 0.0;
  for (const Interval& i : disjoint) sum += i.end - i.begin;
  return sum;
}

/// Of @p i, inside @p disjoint.
double covered(const std::vector<Interval>& disjoint, const Interval& i) {
  double sum = 0.0;
  for (auto at = std::ranges::upper_bound(disjoint, i.begin, {}, &Interval::end);
       at != disjoint.end() && at->begin < i.end; ++at) {
    sum += std::min(i.end, at->end) - std::max(i.begin, at->begin);
  }
  return sum;
}

struct EstimatedClass {
  std::vector<double> kernel_seconds;    ///< by task, as on this path
  std::vector<int> num_waits;            ///< left, by task
  std::vector<double> begin;             ///< the latest of what a task waits for, so far
  std::deque<std::vector<double>> ends;  ///< by task, of this step and of those that it may wait for; the last first
  double ended_at = 0.0;                 ///< the step before
  int max_lag = 0;
};

struct Meeting {
  double seconds = 0.0;  ///< as on this path
  int num_arrived = 0;
  Interval running{};
  std::vector<std::pair<int, int>> members{};  ///< class, task
};

class Estimation {
 public:
  Estimation(const Job& job, const CostModel& costs, const SimulationOptions& options)
      : job_(job),
        options_(options),
        compiled_(sim::compile(job, costs, options.issue_in_list_order)),
        slowdown_(costs.slowdown()),
        overhead_seconds_(costs.step_overhead_seconds()),
        nics_per_node_(costs.nics_per_node()) {
    if (options.noise > 0.0) throw UserError("noise has no closed form: simulate instead of estimating");
    if (!options.stragglers.empty() && job.programs.size() != job.class_of_rank.size()) {
      throw UserError(fmt::format("stragglers make ranks differ, but {} ranks are folded into {} classes",
                                  job.num_ranks(), job.programs.size()));
    }
    classes_.resize(job.programs.size());
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const auto slow = options.stragglers.find(job.programs[c]->rank);
      const double factor = slow == options.stragglers.end() ? 1.0 : slow->second;
      for (const Task& task : graph(c).tasks) classes_[c].kernel_seconds.push_back(task.seconds * factor);
      for (const Across& a : graph(c).across) classes_[c].max_lag = std::max(classes_[c].max_lag, a.lag);
      alone_.push_back(classes_[c].kernel_seconds);
    }
    for (const Rendezvous& r : compiled_.rendezvous) {
      const double share = r.nodes.empty() ? 1.0 : std::max(1.0, static_cast<double>(r.nics) / nics_per_node_);
      meetings_.push_back({.seconds = r.seconds * share});
      any_nics_ = any_nics_ || !r.nodes.empty();
    }
    result_.seconds_by_basis = compiled_.seconds_by_basis;
  }

  SimulationResult run() && {
    walk();
    const bool interferes = slowdown_.compute != 1.0 || slowdown_.communication != 1.0;
    double before = last_step_seconds();
    for (int i = 1; i < max_walks && (interferes || any_nics_); ++i) {
      lengthen();
      walk();
      const double now = last_step_seconds();
      if (std::abs(now - before) <= tolerance * now) break;
      before = now;
    }
    return std::move(result_);
  }

 private:
  const TaskGraph& graph(std::size_t c) const { return compiled_.graphs[c]; }

  double last_step_seconds() const {
    double longest = 0.0;
    for (const SimulatedStep& s : result_.steps.back()) longest = std::max(longest, s.step_seconds);
    return longest;
  }

  /// All steps, instructions in the order in which they become ready: no time is ever waited for.
  void walk() {
    result_.steps.assign(static_cast<std::size_t>(options_.num_steps), std::vector<SimulatedStep>(classes_.size()));
    result_.num_events = 0;
    for (EstimatedClass& k : classes_) {
      k.ends.clear();
      k.ended_at = 0.0;
    }
    for (int step = 0; step < options_.num_steps; ++step) {
      for (std::size_t c = 0; c < classes_.size(); ++c) begin_step(c, step);
      for (Meeting& m : meetings_) {
        m.num_arrived = 0;
        m.running = {};
        m.members.clear();
      }
      while (!ready_.empty()) {
        const auto [c, t] = ready_.back();
        ready_.pop_back();
        const Task& task = graph(c).tasks[static_cast<std::size_t>(t)];
        const double begin = classes_[c].begin[static_cast<std::size_t>(t)];
        if (task.rendezvous < 0) {
          end_task(c, t, begin + classes_[c].kernel_seconds[static_cast<std::size_t>(t)]);
        } else {
          arrive(c, t, task.rendezvous, begin);
        }
      }
      for (std::size_t c = 0; c < classes_.size(); ++c) end_step(c, step);
    }
  }

  void begin_step(std::size_t c, int step) {
    EstimatedClass& k = classes_[c];
    const TaskGraph& g = graph(c);
    k.begin.assign(g.tasks.size(), g.across.empty() ? k.ended_at : 0.0);
    for (const Across& a : g.across) {
      if (a.lag > step) continue;
      double& begin = k.begin[static_cast<std::size_t>(a.later)];
      begin = std::max(begin, k.ends[static_cast<std::size_t>(a.lag - 1)][static_cast<std::size_t>(a.earlier)]);
    }
    k.num_waits.clear();
    for (std::size_t t = 0; t < g.tasks.size(); ++t) {
      k.num_waits.push_back(g.tasks[t].num_waits);
      if (g.tasks[t].num_waits == 0) ready_.emplace_back(c, static_cast<int>(t));
    }
    if (static_cast<int>(k.ends.size()) > k.max_lag) k.ends.pop_back();
    k.ends.emplace_front(g.tasks.size(), 0.0);
  }

  void arrive(std::size_t c, int t, int meeting, double begin) {
    Meeting& m = meetings_[static_cast<std::size_t>(meeting)];
    m.members.emplace_back(c, t);
    m.running.begin = m.num_arrived == 0 ? begin : std::max(m.running.begin, begin);
    if (++m.num_arrived < compiled_.rendezvous[static_cast<std::size_t>(meeting)].num_needed) return;
    m.running.end = m.running.begin + m.seconds;
    for (const auto& [member, task] : m.members) end_task(static_cast<std::size_t>(member), task, m.running.end);
  }

  void end_task(std::size_t c, int t, double end) {
    EstimatedClass& k = classes_[c];
    const TaskGraph& g = graph(c);
    const Task& task = g.tasks[static_cast<std::size_t>(t)];
    k.ends.front()[static_cast<std::size_t>(t)] = end;
    ++result_.num_events;
    for (int d = task.first_dependent; d < task.first_dependent + task.num_dependents; ++d) {
      const auto next = static_cast<std::size_t>(g.dependents[static_cast<std::size_t>(d)]);
      k.begin[next] = std::max(k.begin[next], end);
      if (--k.num_waits[next] == 0) ready_.emplace_back(c, static_cast<int>(next));
    }
  }

  void end_step(std::size_t c, int step) {
    EstimatedClass& k = classes_[c];
    const TaskGraph& g = graph(c);
    const std::vector<double>& ends = k.ends.front();
    SimulatedStep& s = result_.steps[static_cast<std::size_t>(step)][c];
    std::vector<Interval> transfers;
    double last = k.ended_at;
    for (std::size_t t = 0; t < g.tasks.size(); ++t) {
      last = std::max(last, ends[t]);
      if (g.tasks[t].rendezvous >= 0) {
        const Meeting& m = meetings_[static_cast<std::size_t>(g.tasks[t].rendezvous)];
        const bool met =
            m.num_arrived == compiled_.rendezvous[static_cast<std::size_t>(g.tasks[t].rendezvous)].num_needed;
        if (k.num_waits[t] > 0 || !met) report_deadlock(c, t);
        transfers.push_back({k.begin[t], ends[t]});
      } else {
        if (k.num_waits[t] > 0) continue;  // the transfer it waits for is named
        s.compute_seconds += ends[t] - k.begin[t];
      }
    }
    s.step_seconds = last - k.ended_at + overhead_seconds_;
    s.exposed_seconds = last - k.ended_at - s.compute_seconds;
    s.communication_seconds = total(merged(std::move(transfers)));
    k.ended_at = last;
  }

  [[noreturn]] void report_deadlock(std::size_t c, std::size_t t) const {
    const Program& program = *job_.programs[c];
    throw InternalError(
        fmt::format("deadlock: rank {} never gets past #{} {}; `simulate` without --fast names all "
                    "that wait",
                    program.rank, t, program.body[t].name));
  }

  /// What work of @p seconds takes at the mean speed that it had on the last path, where it @p lost so many seconds.
  static double lengthened(double seconds, const Interval& on_path, double lost) {
    const double wall = on_path.end - on_path.begin;
    return wall > 0.0 ? seconds * wall / (wall - lost) : seconds;
  }

  /// Kernels and transfers take on the next path what they would have taken on the last one beside what ran there.
  void lengthen() {
    std::vector<double> lost = lost_to_shared_nics();
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      EstimatedClass& k = classes_[c];
      const TaskGraph& g = graph(c);
      std::vector<Interval> kernels;
      std::vector<Interval> transfers;
      for (std::size_t t = 0; t < g.tasks.size(); ++t) {
        if (g.tasks[t].rendezvous >= 0) {
          transfers.push_back(meetings_[static_cast<std::size_t>(g.tasks[t].rendezvous)].running);
        } else {
          kernels.push_back({k.begin[t], k.ends.front()[t]});
        }
      }
      const std::vector<Interval> computing = merged(std::move(kernels));
      const std::vector<Interval> transferring = merged(std::move(transfers));
      for (std::size_t t = 0; t < g.tasks.size(); ++t) {
        const int id = g.tasks[t].rendezvous;
        if (id < 0) {
          const Interval kernel{k.begin[t], k.ends.front()[t]};
          k.kernel_seconds[t] =
              lengthened(alone_[c][t], kernel, covered(transferring, kernel) * (1.0 - 1.0 / slowdown_.compute));
          continue;
        }
        // Of all members, the one that computes longest beside it.
        const auto i = static_cast<std::size_t>(id);
        const double beside = covered(computing, meetings_[i].running) * (1.0 - 1.0 / slowdown_.communication);
        beside_kernels_.resize(meetings_.size(), 0.0);
        beside_kernels_[i] = std::max(beside_kernels_[i], beside);
      }
    }
    for (std::size_t i = 0; i < meetings_.size(); ++i) {
      Meeting& m = meetings_[i];
      const double wall = m.running.end - m.running.begin;
      const double left =
          wall > 0.0 ? 1.0 - lost[i] / wall : 1.0;  // of the time that kernels beside it take their part
      m.seconds = lengthened(compiled_.rendezvous[i].seconds, m.running, lost[i] + left * beside_kernels_[i]);
    }
    beside_kernels_.clear();
  }

  /// By meeting: seconds of the last step's path that sharing its nodes' NICs took from it, on the worst of its nodes.
  std::vector<double> lost_to_shared_nics() const {
    std::vector<double> lost(meetings_.size(), 0.0);
    struct Change {
      double time;
      int nics;
      std::size_t meeting;
    };
    std::map<int, std::vector<Change>> by_node;
    for (std::size_t i = 0; i < meetings_.size(); ++i) {
      const Rendezvous& r = compiled_.rendezvous[i];
      for (const int node : r.nodes) {
        by_node[node].push_back({meetings_[i].running.begin, r.nics, i});
        by_node[node].push_back({meetings_[i].running.end, -r.nics, i});
      }
    }
    for (auto& [node, changes] : by_node) {
      std::ranges::sort(changes, {}, &Change::time);
      std::vector<double> here(meetings_.size(), 0.0);
      std::vector<std::size_t> active;
      int load = 0;
      double since = 0.0;
      for (const Change& change : changes) {
        const double share = std::min(1.0, static_cast<double>(nics_per_node_) / std::max(load, 1));
        for (const std::size_t i : active) here[i] += (change.time - since) * (1.0 - share);
        since = change.time;
        load += change.nics;
        if (change.nics > 0) {
          active.push_back(change.meeting);
        } else {
          std::erase(active, change.meeting);
        }
      }
      for (std::size_t i = 0; i < lost.size(); ++i) lost[i] = std::max(lost[i], here[i]);
    }
    return lost;
  }

  const Job& job_;
  SimulationOptions options_;
  Compiled compiled_;
  Slowdown slowdown_;
  double overhead_seconds_;
  int nics_per_node_;
  bool any_nics_ = false;
  std::vector<EstimatedClass> classes_;
  std::vector<std::vector<double>> alone_;  ///< kernels with nothing beside them, by class and task
  std::vector<Meeting> meetings_;           ///< by rendezvous
  std::vector<double> beside_kernels_;      ///< by rendezvous: what the next path gives back
  std::vector<std::pair<std::size_t, int>> ready_;
  SimulationResult result_;
};

}  // namespace

SimulationResult estimate(const Job& job, const CostModel& costs, const SimulationOptions& options) {
  return Estimation(job, costs, options).run();
}

}  // namespace strata

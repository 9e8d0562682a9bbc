#include "sim/simulate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "ir/program/repetition.hpp"
#include "sim/overlapping_steps.hpp"
#include "sim/task_graph.hpp"

namespace strata {
namespace {

using sim::Compiled;
using sim::Rendezvous;
using sim::Task;
using sim::TaskGraph;

constexpr double never = std::numeric_limits<double>::infinity();

/// Work in progress whose speed may change.
struct Running {
  double remaining_seconds = 0.0;  ///< at full speed
  double speed = 0.0;              ///< 0: not running
  double since = 0.0;              ///< when `remaining_seconds` was right
  std::uint32_t version = 0;       ///< of the last end that was announced; earlier ones are void

  void settle(double now) {
    remaining_seconds -= (now - since) * speed;
    since = now;
  }
};

/// Something will end.
struct End {
  double time = 0.0;
  int owner = 0;  ///< class of a kernel, or number of the transfer
  std::uint32_t version = 0;
  bool is_transfer = false;
};
struct Later {
  bool operator()(const End& a, const End& b) const { return a.time > b.time; }
};

/// A task of one class's body in one step.
struct Place {
  int of_class = 0;
  int step = 0;
  int task = 0;
};

struct Transfer {
  Running running;
  int num_arrived = 0;
  int num_computing = 0;  ///< members that run a kernel
  std::vector<Place> members;
};

struct SimulatedClass {
  // Of the step that is under way.
  std::vector<int> num_waits;  ///< left, by task
  std::vector<double> begin, end;
  int num_left = 0;

  int num_ended = 0;      ///< steps that are over
  double ended_at = 0.0;  ///< the last of them
  int kernel = -1;        ///< running task
  Running running;
  bool was_computing = false;
  std::vector<int> transfers;  ///< in progress
};

double union_seconds(std::vector<std::pair<double, double>> intervals) {
  std::ranges::sort(intervals);
  double seconds = 0.0;
  double covered_until = 0.0;
  for (const auto& [from, to] : intervals) {
    seconds += std::max(0.0, to - std::max(from, covered_until));
    covered_until = std::max(covered_until, to);
  }
  return seconds;
}

class Simulation {
 public:
  /// @param lists what each class runs in a step.
  Simulation(const Job& job, std::span<const InstructionList> lists, const CostModel& costs,
             const SimulationOptions& options)
      : job_(job),
        lists_(lists),
        options_(options),
        compiled_(sim::compile(job, lists, costs, options.issue_in_list_order)),
        slowdown_(costs.slowdown()),
        overhead_seconds_(costs.step_overhead_seconds()),
        nics_per_node_(costs.nics_per_node()),
        interferes_(slowdown_.compute != 1.0 || slowdown_.communication != 1.0) {
    STRATA_INVARIANT(nics_per_node_ >= 1, "nodes without a NIC");
    const bool differs = options.noise > 0.0 || !options.stragglers.empty();
    if (differs && job.programs.size() != job.class_of_rank.size()) {
      throw UserError(fmt::format("noise and stragglers make ranks differ, but {} ranks are folded into {} classes",
                                  job.num_ranks(), job.programs.size()));
    }
    classes_.resize(job.programs.size());
    transfers_.resize(compiled_.rendezvous.size() * static_cast<std::size_t>(options.num_steps));
    const int num_nodes = job.num_ranks() / job.ranks_per_node + 1;
    link_load_.resize(static_cast<std::size_t>(sim::outgoing_link(num_nodes)), 0);
    link_transfers_.resize(link_load_.size());
    result_.steps.assign(static_cast<std::size_t>(options.num_steps), std::vector<SimulatedStep>(classes_.size()));
    result_.seconds_by_basis = compiled_.seconds_by_basis;
    result_.steady_step = options.num_steps - 1;
    for (std::size_t c = 0; c < classes_.size(); ++c) slow_.push_back(straggling(static_cast<int>(c)));
  }

  SimulationResult run() && {
    for (int c = 0; c < num_classes(); ++c) begin_step(c);
    start_ready();
    while (!ends_.empty()) {
      now_ = ends_.top().time;
      while (!ends_.empty() && ends_.top().time == now_) {
        const End end = ends_.top();
        ends_.pop();
        if (end.is_transfer) {
          if (transfer(end.owner).running.version == end.version) end_transfer(end.owner);
        } else if (at(end.owner).running.version == end.version) {
          end_kernel(end.owner);
        }
      }
      start_ready();
    }
    for (int c = 0; c < num_classes(); ++c) {
      if (at(c).num_ended < options_.num_steps) report_deadlock();
    }
    return std::move(result_);
  }

 private:
  int num_classes() const { return static_cast<int>(classes_.size()); }
  SimulatedClass& at(int c) { return classes_[static_cast<std::size_t>(c)]; }
  Transfer& transfer(int t) { return transfers_[static_cast<std::size_t>(t)]; }
  const TaskGraph& graph(int c) const { return compiled_.graphs[static_cast<std::size_t>(c)]; }
  const Rendezvous& rendezvous(int t) const {
    return compiled_.rendezvous[static_cast<std::size_t>(t) % compiled_.rendezvous.size()];
  }

  double straggling(int c) const {
    const auto found = options_.stragglers.find(job_.programs[static_cast<std::size_t>(c)]->rank);
    return found == options_.stragglers.end() ? 1.0 : found->second;
  }

  void begin_step(int c) {
    const TaskGraph& g = graph(c);
    SimulatedClass& k = at(c);
    k.begin.assign(g.tasks.size(), never);
    k.end.assign(g.tasks.size(), never);
    k.num_left = static_cast<int>(g.tasks.size());
    k.num_waits.clear();
    for (const Task& task : g.tasks) k.num_waits.push_back(task.num_waits);
    for (std::size_t t = 0; t < g.tasks.size(); ++t) {
      if (k.num_waits[t] == 0) ready_.push_back({c, k.num_ended, static_cast<int>(t)});
    }
    if (g.tasks.empty()) end_step(c);
  }

  void start_ready() {
    // Ending a step begins the next one, which adds to the list.
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      const Place place = ready_[i];
      const Task& task = graph(place.of_class).tasks[static_cast<std::size_t>(place.task)];
      at(place.of_class).begin[static_cast<std::size_t>(place.task)] = now_;
      if (task.rendezvous < 0) {
        start_kernel(place, task.seconds);
      } else {
        arrive(place, task.rendezvous);
      }
    }
    ready_.clear();
    refresh();
  }

  void start_kernel(const Place& place, double seconds) {
    const int c = place.of_class;
    SimulatedClass& k = at(c);
    STRATA_INVARIANT(k.kernel < 0, "kernels of a rank run one at a time");
    k.kernel = place.task;
    k.running.remaining_seconds = seconds * slow_[static_cast<std::size_t>(c)] * jitter(place);
    k.running.since = now_;
    k.running.speed = kernel_speed(k);
    announce(k.running, c, false);
    touch_class(c);
  }

  /// Lognormal with mean one, by rank, step and task: no order of events changes it.
  double jitter(const Place& place) const {
    if (options_.noise <= 0.0) return 1.0;
    const auto rank = static_cast<std::uint32_t>(job_.programs[static_cast<std::size_t>(place.of_class)]->rank);
    const auto words =
        philox4x32({static_cast<std::uint32_t>(place.task), static_cast<std::uint32_t>(place.step), rank, 0x5157u},
                   {static_cast<std::uint32_t>(options_.seed), static_cast<std::uint32_t>(options_.seed >> 32U)});
    const double z = normal_pair(words[0], words[1]).cosine;
    return std::exp(options_.noise * z - 0.5 * options_.noise * options_.noise);
  }

  void arrive(const Place& place, int meeting) {
    const int id = place.step * static_cast<int>(compiled_.rendezvous.size()) + meeting;
    Transfer& x = transfer(id);
    x.members.push_back(place);
    if (++x.num_arrived < rendezvous(id).num_needed) return;
    x.running.remaining_seconds = rendezvous(id).seconds;
    x.running.since = now_;
    x.num_computing = 0;
    for (const int link : rendezvous(id).links) {
      link_load_[static_cast<std::size_t>(link)] += rendezvous(id).nics;
      link_transfers_[static_cast<std::size_t>(link)].push_back(id);
      touch_link(link);
    }
    if (interferes_) {
      for (const Place& member : x.members) {
        at(member.of_class).transfers.push_back(id);
        x.num_computing += at(member.of_class).was_computing ? 1 : 0;
        touch_class(member.of_class);
      }
    }
    touched_transfers_.push_back(id);
  }

  void end_kernel(int c) {
    SimulatedClass& k = at(c);
    const int t = std::exchange(k.kernel, -1);
    k.running.speed = 0.0;
    ++k.running.version;
    SimulatedStep& step = result_.steps[static_cast<std::size_t>(k.num_ended)][static_cast<std::size_t>(c)];
    step.compute_seconds += now_ - k.begin[static_cast<std::size_t>(t)];
    touch_class(c);
    end_task({c, k.num_ended, t});
  }

  void end_transfer(int id) {
    Transfer& x = transfer(id);
    x.running.speed = 0.0;
    ++x.running.version;
    for (const int link : rendezvous(id).links) {
      link_load_[static_cast<std::size_t>(link)] -= rendezvous(id).nics;
      std::erase(link_transfers_[static_cast<std::size_t>(link)], id);
      touch_link(link);
    }
    for (const Place& member : x.members) {
      if (interferes_) {
        std::erase(at(member.of_class).transfers, id);
        touch_class(member.of_class);
      }
      end_task(member);
    }
    x.members.clear();
    x.members.shrink_to_fit();
  }

  void end_task(const Place& place) {
    const int c = place.of_class;
    const TaskGraph& g = graph(c);
    const Task& task = g.tasks[static_cast<std::size_t>(place.task)];
    SimulatedClass& k = at(c);
    k.end[static_cast<std::size_t>(place.task)] = now_;
    ++result_.num_events;
    for (int d = task.first_dependent; d < task.first_dependent + task.num_dependents; ++d) {
      const int next = g.dependents[static_cast<std::size_t>(d)];
      if (--k.num_waits[static_cast<std::size_t>(next)] == 0) ready_.push_back({c, place.step, next});
    }
    if (--k.num_left == 0) end_step(c);
  }

  /// The next step of the class begins; nobody waits for the others.
  void end_step(int c) {
    SimulatedClass& k = at(c);
    record(c);
    ++k.num_ended;
    k.ended_at = now_;
    if (k.num_ended < options_.num_steps) begin_step(c);
  }

  void record(int c) {
    SimulatedClass& k = at(c);
    const Program& program = *job_.programs[static_cast<std::size_t>(c)];
    SimulatedStep& step = result_.steps[static_cast<std::size_t>(k.num_ended)][static_cast<std::size_t>(c)];
    step.begin_ns = std::llround(k.ended_at * 1e9);
    step.step_seconds = now_ - k.ended_at + overhead_seconds_;
    step.exposed_seconds = now_ - k.ended_at - step.compute_seconds;
    std::vector<std::pair<double, double>> busy;
    const auto nanoseconds = [&](double time) { return std::llround((time - k.ended_at) * 1e9); };
    const InstructionList& list = lists_[static_cast<std::size_t>(c)];
    for (std::size_t t = 0; t < list.size(); ++t) {
      const Instruction& in = list[t];
      if (in.is_collective()) busy.emplace_back(k.begin[t], k.end[t]);
      if (!options_.keeps_events) continue;
      result_.events.push_back({.rank = program.rank,
                                .step = k.num_ended,
                                .stream = in.stream,
                                .instruction = static_cast<int>(t),
                                .begin_ns = nanoseconds(k.begin[t]),
                                .end_ns = nanoseconds(k.end[t]),
                                .bytes_sent = bytes_sent(program, in)});
    }
    step.communication_seconds = union_seconds(std::move(busy));
  }

  // Speeds. What changed at this moment is collected and settled once, so that one kernel following another does not
  // count as a pause.

  void touch_class(int c) {
    if (interferes_) touched_classes_.push_back(c);
  }
  void touch_link(int link) {
    for (const int id : link_transfers_[static_cast<std::size_t>(link)]) touched_transfers_.push_back(id);
  }

  double kernel_speed(const SimulatedClass& k) const { return k.transfers.empty() ? 1.0 : 1.0 / slowdown_.compute; }

  double transfer_speed(int id) {
    int load = nics_per_node_;
    for (const int link : rendezvous(id).links) load = std::max(load, link_load_[static_cast<std::size_t>(link)]);
    const double share = static_cast<double>(nics_per_node_) / load;
    return transfer(id).num_computing > 0 ? share / slowdown_.communication : share;
  }

  void refresh() {
    for (const int c : touched_classes_) {
      SimulatedClass& k = at(c);
      const bool computing = k.kernel >= 0;
      if (computing != k.was_computing) {
        k.was_computing = computing;
        for (const int id : k.transfers) {
          transfer(id).num_computing += computing ? 1 : -1;
          touched_transfers_.push_back(id);
        }
      }
      if (computing && k.running.speed != kernel_speed(k)) change_speed(k.running, kernel_speed(k), c, false);
    }
    touched_classes_.clear();
    for (const int id : touched_transfers_) {
      Transfer& x = transfer(id);
      if (x.members.empty()) continue;  // over
      const double speed = transfer_speed(id);
      if (x.running.speed != speed) change_speed(x.running, speed, id, true);
    }
    touched_transfers_.clear();
  }

  void change_speed(Running& running, double speed, int owner, bool is_transfer) {
    running.settle(now_);
    running.speed = speed;
    announce(running, owner, is_transfer);
  }

  void announce(Running& running, int owner, bool is_transfer) {
    ends_.push(
        {now_ + std::max(0.0, running.remaining_seconds) / running.speed, owner, ++running.version, is_transfer});
  }

  [[noreturn]] void report_deadlock() {
    std::string text;
    int named = 0;
    for (int c = 0; c < num_classes() && named < 4; ++c) {
      SimulatedClass& k = at(c);
      if (k.num_ended == options_.num_steps) continue;
      const Program& program = *job_.programs[static_cast<std::size_t>(c)];
      for (std::size_t t = 0; t < k.begin.size(); ++t) {
        if (k.begin[t] == never || k.end[t] != never) continue;  // has not come, or is over
        const Instruction& in = lists_[static_cast<std::size_t>(c)][t];
        const Group& group = program.groups[static_cast<std::size_t>(in.group)];
        text += fmt::format("{}rank {} waits at #{} {} {} in group {} = {} (step {})", text.empty() ? "" : "; ",
                            program.rank, t, to_string(in.collective), in.name, group.name, group.ranks, k.num_ended);
        ++named;
        break;
      }
    }
    throw InternalError("deadlock: " + text);
  }

  const Job& job_;
  std::span<const InstructionList> lists_;
  SimulationOptions options_;
  Compiled compiled_;
  Slowdown slowdown_;
  double overhead_seconds_;
  int nics_per_node_;
  bool interferes_;
  std::vector<double> slow_;  ///< straggling factor, by class
  std::vector<SimulatedClass> classes_;
  std::vector<Transfer> transfers_;  ///< [step][rendezvous]
  std::vector<int> link_load_;       ///< NICs in use, by direction
  std::vector<std::vector<int>> link_transfers_;
  std::vector<Place> ready_;
  std::vector<int> touched_classes_, touched_transfers_;
  std::priority_queue<End, std::vector<End>, Later> ends_;
  double now_ = 0.0;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const Job& job, const CostModel& costs, const SimulationOptions& options) {
  const auto is_alone = [](const Program* program) { return is_repeated_alone(*program); };
  if (std::ranges::all_of(job.programs, is_alone)) {
    std::vector<InstructionList> bodies;
    for (const Program* program : job.programs) bodies.emplace_back(program->body);
    return Simulation(job, bodies, costs, options).run();
  }
  return sim::simulate_overlapping(job, costs, options,
                                   [&](std::span<const InstructionList> lists, const SimulationOptions& once) {
                                     return Simulation(job, lists, costs, once).run();
                                   });
}

}  // namespace strata

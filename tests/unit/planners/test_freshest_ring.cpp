/// @file
/// The planner's cuts and tables of cyclic data parallelism beside every cut and every table there is, and what the
/// modes make of it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "models/model.hpp"
#include "partition/stages.hpp"
#include "planners/cyclic/cut_box.hpp"
#include "planners/cyclic/freshest_ring.hpp"
#include "planners/cyclic/planned_ring.hpp"
#include "planners/cyclic/ring_waits.hpp"
#include "planners/planner.hpp"
#include "support/deep.hpp"
#include "support/refusal.hpp"

namespace strata::test_freshest_ring {
namespace {

std::string joined(const FreshTable& table) { return fmt::format("{}", fmt::join(table, " ")); }

double period_of(const RingProblem& problem, const RingStages& stages, const RingCut& cut, const FreshTable& fresh) {
  Schedule schedule = problem.schedule;
  schedule.fresh = joined(fresh);
  return ring_period(schedule, stages.seconds(cut));
}
double period_of(const RingProblem& problem, const RingCut& cut, const FreshTable& fresh) {
  return period_of(problem, RingStages(problem), cut, fresh);
}

struct Best {
  double least_period = std::numeric_limits<double>::infinity();
  int num_fresh = -1;
};

/// Every way to choose @p num_stages - 1 of the pieces behind the first.
std::vector<RingCut> every_cut(int num_pieces, int num_stages) {
  std::vector<RingCut> cuts;
  for (unsigned chosen = 0; chosen < 1U << (num_pieces - 1); ++chosen) {
    RingCut cut = {0};
    for (int p = 1; p < num_pieces; ++p) {
      if ((chosen >> (p - 1) & 1U) != 0) cut.push_back(p);
    }
    if (std::ssize(cut) == num_stages) cuts.push_back(cut);
  }
  return cuts;
}

Best best_of_all(const RingProblem& problem) {
  const int n = problem.schedule.micro_batches;
  const RingStages stages(problem);
  std::vector<std::pair<double, int>> all;
  for (const RingCut& cut : every_cut(static_cast<int>(problem.pieces.size()), problem.num_stages)) {
    for (unsigned cells = 0; cells < 1U << (n * problem.num_stages); ++cells) {
      FreshTable table = never_fresh(n, problem.num_stages);
      int ones = 0, cell = 0;
      for (std::string& row : table) {
        for (char& digit : row) {
          if ((cells >> cell++ & 1U) == 0) continue;
          digit = '1';
          ++ones;
        }
      }
      all.emplace_back(period_of(problem, stages, cut, table), ones);
    }
  }
  Best best;
  for (const auto& [period, ones] : all) best.least_period = std::min(best.least_period, period);
  for (const auto& [period, ones] : all) {
    if (period > problem.within * best.least_period * (1.0 + 1e-9)) continue;
    best.num_fresh = std::max(best.num_fresh, ones);
  }
  return best;
}

/// Pieces unlike each other; messages that are hidden, that nearly are, and that take longer than passes; every way to
/// add up and to spread.
RingProblem random_problem(int micro_batches, int stages, int pieces, std::uint64_t stream) {
  const RandomStream random{.seed = 29, .stream = stream};
  std::uint64_t index = 0;
  const auto uniform = [&](double most) { return most * static_cast<double>(random.uniform(index++)); };
  RingProblem problem{.num_stages = stages};
  for (int p = 0; p < pieces; ++p) {
    const double forward = 1.0 + uniform(9.0);
    const auto bytes = static_cast<std::int64_t>(uniform(10.0));  // some have no parameters
    problem.pieces.push_back({.forward = forward,
                              .backward = forward * (1.0 + uniform(1.5)),
                              .addition = uniform(0.5),
                              .update = uniform(1.0),
                              .gradient_bytes = bytes,
                              .parameter_bytes = bytes});
  }
  const double latency = uniform(0.5), per_byte = uniform(stream % 3 == 0 ? 4.0 : stream % 3 == 1 ? 0.6 : 0.1);
  problem.message_seconds = [=](std::int64_t b) { return latency + per_byte * static_cast<double>(b); };
  problem.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches};
  problem.schedule.sum = stream % 5 < 2 ? "after" : "inside";
  problem.schedule.spread = stream % 7 < 2 ? "direct" : "relay";
  problem.schedule.spare_stages = static_cast<int>(stream % 4) % 3;
  problem.within = stream % 2 == 0 ? 1.0 : 1.0 + uniform(0.3);
  return problem;
}

void expect_best_of_all(const RingProblem& problem, const std::string& what) {
  const FreshestRing found = freshest_ring(problem);
  const Best best = best_of_all(problem);
  EXPECT_TRUE(found.is_exact()) << what;
  EXPECT_NEAR(found.least_period_seconds, best.least_period, 1e-9 * best.least_period) << what;
  EXPECT_EQ(found.best.num_fresh, best.num_fresh) << what;
  EXPECT_LE(found.best.period_seconds, problem.within * best.least_period * (1.0 + 2e-9)) << what;
  // What it says of its choice is true.
  EXPECT_NEAR(period_of(problem, found.best.cut, found.best.fresh), found.best.period_seconds,
              1e-12 * found.best.period_seconds);
  if (found.runner_up) {
    EXPECT_TRUE(found.runner_up->cut != found.best.cut || found.runner_up->fresh != found.best.fresh) << what;
  }
}

TEST(FreshestRing, IsTheBestOfAllCutsAndTables) {
  struct Size {
    int micro_batches, stages, pieces, count, deep_count;
  };
  int num_problems = 0;
  for (const Size& size : {Size{1, 2, 4, 5, 20}, Size{2, 1, 3, 10, 40}, Size{2, 2, 8, 100, 1000},
                           Size{2, 3, 6, 30, 300}, Size{3, 2, 8, 20, 200}, Size{3, 3, 4, 20, 200}, Size{3, 3, 8, 2, 60},
                           Size{4, 2, 6, 3, 100}, Size{4, 3, 4, 0, 20}, Size{4, 4, 4, 0, 6}}) {
    for (int i = 0; i < (is_deep() ? size.deep_count : size.count); ++i, ++num_problems) {
      const RingProblem problem =
          random_problem(size.micro_batches, size.stages, size.pieces, static_cast<std::uint64_t>(num_problems));
      expect_best_of_all(problem, fmt::format("problem {} of {} micro-batches, {} stages of {} pieces", num_problems,
                                              size.micro_batches, size.stages, size.pieces));
    }
  }
}

FreshTable random_table(int rows, int columns, const RandomStream& random, std::uint64_t& index) {
  FreshTable table = never_fresh(rows, columns);
  for (std::string& row : table) {
    for (char& digit : row) digit = random.uniform(index++) < 0.5F ? '0' : '1';
  }
  return table;
}

/// As many operators as models have: nobody can look at all cuts and tables, but at some beside those that were taken.
TEST(FreshestRing, OfFourMicroBatchesIsExactForHundredsOfPieces) {
  for (std::uint64_t stream = 0; stream < (is_deep() ? 60 : 12); ++stream) {
    const int pieces = stream % 6 == 3 ? 300 : 150;
    const RingProblem problem = random_problem(4, 4, pieces, stream);
    const RingStages stages(problem);
    const FreshestRing found = freshest_ring(problem);
    EXPECT_TRUE(found.is_exact()) << stream;
    const double least = found.least_period_seconds;
    EXPECT_LE(found.best.period_seconds, problem.within * least * (1.0 + 2e-9)) << stream;
    const RandomStream random{.seed = 31, .stream = stream};
    std::uint64_t index = 0;
    const auto below = [&](int count) { return static_cast<int>(random.uniform(index++) * static_cast<float>(count)); };
    for (int i = 0; i < 200; ++i) {
      RingChoice other = found.best;
      if (i % 2 == 0) other.fresh[static_cast<std::size_t>(below(4))][static_cast<std::size_t>(below(4))] ^= 1;
      for (int j = 1; j < 4; ++j) other.cut[static_cast<std::size_t>(j)] += below(5) - 2;
      if (!std::ranges::is_sorted(other.cut, std::less_equal()) || other.cut.back() >= pieces) continue;
      const double seconds = period_of(problem, stages, other.cut, other.fresh);
      EXPECT_GE(seconds, least * (1.0 - 1e-9)) << stream;
      int fresh = 0;
      for (const std::string& row : other.fresh) fresh += static_cast<int>(std::ranges::count(row, '1'));
      if (seconds > problem.within * least) continue;
      EXPECT_LE(fresh, found.best.num_fresh) << stream;
    }
  }
}

/// What a box of cuts takes is no more than what any of them does; of one cut it is what a step takes.
TEST(FreshestRing, ABoxOfCutsBoundsThePeriodsOfAll) {
  int num_bounding = 0;
  for (std::uint64_t stream = 0; stream < 400; ++stream) {
    const RandomStream random{.seed = 32, .stream = stream};
    std::uint64_t index = 0;
    const auto below = [&](int count) { return static_cast<int>(random.uniform(index++) * static_cast<float>(count)); };
    const int n = 1 + static_cast<int>(stream % 4), k = 1 + static_cast<int>(stream % 5);
    const RingProblem problem = random_problem(n, k, 12, stream);
    const RingStages stages(problem);
    const PieceSeconds pieces(problem, stages);
    CutBox box = CutBox::of_all(12, k);
    Schedule schedule = problem.schedule;
    schedule.fresh = joined(random_table(n, k, random, index));
    std::vector<bool> known;
    for (int j = 0; j < k; ++j) known.push_back(stream % 3 == 0 || below(2) == 0);
    RingWaits waits(ring_graph(schedule, k, known));
    for (int depth = 0; !box.is_one(); ++depth) {
      const auto stage = static_cast<std::size_t>(below(k));
      if (box.first[stage] == box.last[stage]) continue;
      const int piece = box.first[stage] + 1 + below(box.last[stage] - box.first[stage]);
      box = box.split(static_cast<int>(stage), piece)[static_cast<std::size_t>(below(2))];
      CutBox one = box;
      while (!one.is_one()) {
        const auto any = static_cast<std::size_t>(below(k));
        if (one.first[any] == one.last[any]) continue;
        const int middle = one.first[any] + 1 + below(one.last[any] - one.first[any]);
        one = one.split(static_cast<int>(any), middle)[static_cast<std::size_t>(below(2))];
      }
      const double seconds = ring_period(schedule, stages.seconds(one.cut()), known);
      EXPECT_TRUE(waits.may_hold(BoxSeconds(pieces, box), seconds * (1.0 + 1e-12))) << stream << ", " << depth;
      EXPECT_TRUE(waits.may_hold(BoxSeconds(pieces, one), seconds * (1.0 + 1e-12))) << stream;
      EXPECT_FALSE(waits.may_hold(BoxSeconds(pieces, one), seconds * (1.0 - 1e-9))) << stream;
      num_bounding += waits.may_hold(BoxSeconds(pieces, box), seconds * 0.9) ? 0 : 1;
    }
  }
  EXPECT_GT(num_bounding, 400) << "and is near them";
}

/// Parameters of one more stage only add waits: what lets the planner give up a table half way.
TEST(FreshestRing, StagesThatAreNotKnownBoundThePeriod) {
  for (std::uint64_t stream = 0; stream < 60; ++stream) {
    const RingProblem problem = random_problem(3, 3, 3, stream);
    const std::vector<StageSeconds> stages = RingStages(problem).seconds(RingCut{0, 1, 2});
    Schedule schedule = problem.schedule;
    const RandomStream random{.seed = 30, .stream = stream};
    std::uint64_t index = 0;
    std::vector<bool> known(3, false);
    const std::vector<std::size_t> order =
        stream % 2 == 0 ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{2, 0, 1};
    schedule.fresh = joined(random_table(3, 3, random, index));
    double last = ring_period(schedule, stages, known);
    for (const std::size_t stage : order) {
      known[stage] = true;
      const double next = ring_period(schedule, stages, known);
      EXPECT_LE(last, next * (1.0 + 1e-12)) << stream;
      last = next;
    }
    EXPECT_EQ(last, ring_period(schedule, stages)) << stream;
  }
}

/// Where everything is hidden the last rank's passes and updates are all that a step takes; and bounds that hold.
TEST(FreshestRing, OfManyStagesStandsBesideItsBounds) {
  for (std::uint64_t stream = 0; stream < 6; ++stream) {
    RingProblem problem = random_problem(8, 8, 24, 3 * stream + 2);
    problem.schedule.spread = "relay";
    const FreshestRing found = freshest_ring(problem);
    EXPECT_EQ(found.best.cut.size(), 8U);
    EXPECT_EQ(found.best.fresh.size(), 8U);
    EXPECT_GE(found.least_period_seconds, found.period_bound_seconds * (1.0 - 1e-9));
    EXPECT_LE(found.best.num_fresh, found.fresh_bound);
    EXPECT_LE(found.best.period_seconds, problem.within * found.least_period_seconds * (1.0 + 2e-9));
    // No worse than the paper's rule on stages that are cut as evenly.
    const RingChoice& best = found.best;
    EXPECT_LE(found.least_period_seconds, period_of(problem, best.cut, freshest(8, 8)) * (1.0 + 1e-9));
  }
}

// ---- the modes -----------------------------------------------------------------------------------------------------

/// Every operator takes so long; linears have parameters that travel.
class MadeUpSeconds final : public Evaluate {
 public:
  explicit MadeUpSeconds(double message_seconds) : message_seconds_(message_seconds) {}
  Evaluation operator()(const Plan&) const override { return {}; }
  bool knows_seconds() const override { return true; }
  Evaluation account(const Plan&) const override { return {}; }
  Evaluation memory(const Plan&) const override { return {}; }
  Evaluation least_memory(const Plan&) const override { return {}; }
  PricedStep price(const Plan& plan, const ModelGraph& part) const override {
    EXPECT_EQ(plan.mesh.num_ranks(), 1);
    EXPECT_EQ(plan.schedule.micro_batches, 2);
    PricedStep step;
    for (int of_body = 0; of_body < 2; ++of_body) {
      for (const int micro_batch : {0, 1}) {
        for (const Operator& op : part.operators) {
          step.instructions.push_back({.name = op.name, .micro_batch = micro_batch, .seconds = 1.0});
          step.instructions.push_back(
              {.name = op.name, .phase = Phase::backward, .micro_batch = micro_batch, .seconds = 2.0});
        }
      }
      for (const Parameter& p : part.parameters) {
        step.instructions.push_back({.name = p.name, .phase = Phase::update, .seconds = 0.25});
      }
    }
    return step;
  }
  double collective_seconds(Collective kind, const Mesh& mesh, std::span<const int> ranks,
                            std::int64_t bytes) const override {
    EXPECT_EQ(kind, Collective::send);
    EXPECT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks.front() + 1, ranks.back());
    EXPECT_NE(ranks.front() / mesh.ranks_per_node == ranks.back() / mesh.ranks_per_node, mesh.nodes > 1)
        << "the slowest link";
    EXPECT_GT(bytes, 0);
    return message_seconds_;
  }

 private:
  double message_seconds_;
};

Plan planned_ring_of(const ModelGraph& graph, const Evaluate* evaluate, std::map<std::string, OptionValue> options,
                     int nodes = 1, int ranks_per_node = 3) {
  const Planner& planner = find_planner("cdp-v2");
  options.try_emplace("fresh", std::string(planner_word));
  for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
  Plan base;
  base.strategy = "cdp-v2";
  base.mesh.nodes = nodes;
  base.mesh.ranks_per_node = ranks_per_node;
  base.global_batch = std::int64_t{2} * nodes * ranks_per_node;
  static const Cluster cluster;
  return planner.plan(
      {.graph = graph, .cluster = cluster, .base = base, .options = std::move(options), .evaluate = evaluate});
}

ModelGraph untied_gpt() { return build_model({.name = "gpt-nano", .layers = 3, .tied_head = false}); }

TEST(PlannedRing, IsAPlanWithItsCutsItsTableAndItsReasons) {
  const ModelGraph graph = untied_gpt();
  const MadeUpSeconds seconds(0.5);
  for (const char* cut_at : {"block", "operator"}) {
    for (const int nodes : {1, 3}) {
      const Plan plan = planned_ring_of(graph, &seconds, {{"cut_at", std::string(cut_at)}}, nodes, 3 / nodes);
      EXPECT_NO_THROW(verify(plan, graph));
      EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
      EXPECT_EQ(plan.stages.begins.size(), 2U);
      EXPECT_EQ(cut_into_stages(graph, plan.stages).size(), 3U);
      // All passes and updates of the last rank, and nothing that anybody waits for.
      const double all =
          3.0 * static_cast<double>(graph.operators.size()) + 0.25 * static_cast<double>(graph.parameters.size());
      EXPECT_NEAR(plan.why.predicted_seconds, all, 1e-9 * all);
      EXPECT_TRUE(plan.why.binding.starts_with("the least period of all cuts and tables is")) << plan.why.binding;
      EXPECT_NE(plan.why.runner_up.find("reads fresh"), std::string::npos) << plan.why.runner_up;
      EXPECT_GE(std::ranges::count(plan.schedule.fresh, '1'), 6) << "v2 has six, and messages are short";
    }
  }
}

TEST(PlannedRing, MoreReadsAreFreshWhereAStepMayTakeLonger) {
  const ModelGraph graph = untied_gpt();
  const MadeUpSeconds seconds(4.0);
  const Plan tight = planned_ring_of(graph, &seconds, {});
  const Plan loose = planned_ring_of(graph, &seconds, {{"within", 3.0}});
  EXPECT_GT(std::ranges::count(loose.schedule.fresh, '1'), std::ranges::count(tight.schedule.fresh, '1'));
  EXPECT_LE(loose.why.predicted_seconds, 3.0 * tight.why.predicted_seconds * (1.0 + 1e-8));
}

TEST(PlannedRing, RefusesWhatItCannotPlan) {
  const ModelGraph graph = untied_gpt();
  const MadeUpSeconds seconds(0.5);
  const std::string no_costs = refusal([&] { planned_ring_of(graph, nullptr, {}); });
  EXPECT_TRUE(no_costs.starts_with("cdp-v2 on 3 ranks: fresh = planner compares what steps take")) << no_costs;
  EXPECT_EQ(refusal([&] {
              planned_ring_of(graph, &seconds, {{"implementation", std::string("pipeline")}});
            }),
            "cdp-v2: fresh = planner with implementation = pipeline, whose order allows no table fresher than v2 and "
            "takes as long with any; accepted: implementation = multi, or fresh = v2");
  EXPECT_EQ(refusal([&] {
              planned_ring_of(graph, &seconds, {{"shift", std::string("paced")}});
            }),
            "cdp-v2: fresh = planner with shift = paced, of which it does not know how long steps take; accepted: "
            "shift = free, or fresh = v2");
  EXPECT_EQ(refusal([&] {
              planned_ring_of(graph, &seconds, {{"optimizer", std::string("first_user")}});
            }),
            "cdp-v2: fresh = planner with optimizer = first_user, of which it does not know how long steps take; "
            "accepted: optimizer = last, or fresh = v2");
  const ModelGraph tied = build_model({.name = "gpt-nano", .layers = 3, .tied_head = true});
  EXPECT_EQ(refusal([&] { planned_ring_of(tied, &seconds, {}); }),
            "cdp-v2: 3 stages, but between operators of gpt-nano that share no parameter only 1 can begin");
}

}  // namespace
}  // namespace strata::test_freshest_ring

/// @file
/// The search of `3d+osdp` on described clusters beside every plan that there is of a small model: all combinations of
/// data, tensor and stage degrees, each with every set of operators sharded, lowered and simulated here.

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/infinity.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/operators/in_stages.hpp"
#include "planners/operators/units.hpp"
#include "planners/pipelines/degree_search.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/pipelines/step_bound.hpp"
#include "planners/states/factors.hpp"
#include "planners/states/sharded_plan.hpp"
#include "predict/plan_evaluation.hpp"
#include "support/refusal.hpp"
#include "unit/predict/counted_evaluation.hpp"
#include "unit/predict/small_gpt.hpp"

namespace strata::predict::test_degrees_with_states {
namespace {

using ::testing::HasSubstr;

constexpr const char* file = "/no/such/folder/e.toml";

class Setting {
 public:
  /// @param overlap of gathers and gradients' sums, unless options say otherwise.
  explicit Setting(const std::vector<std::string>& words, std::string overlap = "none")
      : point_(small_gpt_point(words, file)), overlap_(std::move(overlap)) {}

  /// What a mode is asked, but for its options. @param capacity bytes; 0: no limit.
  Plan base(const char* mode, std::int64_t capacity) const { return asked_of(point_, mode, capacity); }
  /// By the mode of @p base. @param options of it that differ from their defaults.
  Plan planned(const Plan& base, std::map<std::string, OptionValue> options, const Evaluate* evaluate) const {
    const Planner& planner = find_planner(base.strategy);
    return planner.plan({.graph = point_.graph,
                         .cluster = point_.cluster,
                         .base = base,
                         .options = planner.with_defaults(std::move(options)),
                         .evaluate = evaluate});
  }
  /// By 3d+osdp, of whole operators unless @p options say otherwise.
  Plan plan(std::map<std::string, OptionValue> options, std::int64_t capacity, const Evaluate* evaluate) const {
    options.insert({{"slices", std::int64_t{0}}, {"overlap", overlap_}});
    return planned(base("3d+osdp", capacity), std::move(options), evaluate);
  }
  const PreparedPoint& point() const { return point_; }

 private:
  PreparedPoint point_;
  std::string overlap_;
};

struct Combination {
  std::string words;
  ParallelDegrees degrees;
  Plan replicated;  ///< of the same degrees
  double seconds = 0.0;
  std::int64_t peak_bytes = 0;
};

/// Every unit's rules where it is sharded over @p copies.
std::vector<std::vector<OperatorRule>> rules_of_units(const ModelGraph& graph, const Factor& copies) {
  std::vector<std::vector<OperatorRule>> all;
  for (const OperatorUnit& unit : operator_units(graph, Granularity::block)) {
    std::vector<OperatorRule>& rules = all.emplace_back();
    const std::string block = unit.block < 0 ? "" : graph.blocks[static_cast<std::size_t>(unit.block)].name + ".";
    for (const std::string& pattern : unit.patterns) {
      rules.push_back({.match = block + pattern, .state = StateFactors{.p = copies, .g = copies, .os = copies}});
    }
  }
  return all;
}

/// By unit: it is sharded.
using Sharded = std::vector<bool>;

std::vector<Sharded> every_way(std::size_t num_units) {
  std::vector<Sharded> ways;
  for (std::size_t set = 0; set < std::size_t{1} << num_units; ++set) {
    Sharded& way = ways.emplace_back();
    for (std::size_t u = 0; u < num_units; ++u) way.push_back((set >> u & 1) != 0);
  }
  return ways;
}

/// The first ones or the last ones, one after the other.
std::vector<Sharded> in_order(std::size_t num_units) {
  std::vector<Sharded> ways;
  for (std::size_t end = 0; end <= num_units; ++end) {
    for (const bool are_first : {false, true}) {
      Sharded& way = ways.emplace_back();
      for (std::size_t u = 0; u < num_units; ++u) way.push_back((u < end) == are_first);
    }
  }
  return ways;
}

/// 3d+osdp's plan of @p degrees in the setting's micro-batches, in all of the ways to hold states that @p ways_of says
/// there are of so many units.
std::vector<Combination> plans_of(const Setting& setting, const PlanEvaluation& evaluate, ParallelDegrees degrees,
                                  std::vector<Sharded> (*ways_of)(std::size_t num_units)) {
  degrees.micro_batches = setting.point().plan.schedule.micro_batches;
  const Plan replicated = setting.plan({{"stages", std::int64_t{degrees.stages()}},
                                        {"chunks", std::int64_t{degrees.chunks}},
                                        {"tensor", std::int64_t{degrees.tensor}},
                                        {"sum", std::string(to_string(degrees.sum))}},
                                       0, nullptr);
  const Factor grid = data_grid(replicated.mesh);
  const Factor copies = degrees.tensor > 1 ? quotient(grid, nearest_ranks(grid, degrees.tensor)) : grid;
  const auto units = rules_of_units(setting.point().graph, copies);
  std::vector<Combination> found;
  for (const Sharded& way : copies.total() > 1 ? ways_of(units.size()) : std::vector<Sharded>{Sharded(units.size())}) {
    Plan plan = replicated;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (way[u]) plan.operators.insert(plan.operators.end(), units[u].begin(), units[u].end());
    }
    const Evaluation simulated = evaluate(plan);
    EXPECT_GT(simulated.step_seconds, 0.0) << simulated.missing;
    found.push_back({.words = fmt::format("{}, sharded {}", in_words(degrees, plan.mesh.num_ranks()), way),
                     .degrees = degrees,
                     .replicated = replicated,
                     .seconds = simulated.step_seconds,
                     .peak_bytes = simulated.peak_bytes});
  }
  return found;
}

std::vector<Combination> every_plan(const Setting& setting, const PlanEvaluation& evaluate) {
  const int ranks = setting.point().plan.mesh.num_ranks();
  std::vector<Combination> found;
  for (const int places : {1, 2}) {
    for (const int tensor : {1, 2, 4}) {
      for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
        if (places * tensor > ranks || (tensor == 1 && sum == PartialSums::all_reduce)) continue;
        const auto plans = plans_of(setting, evaluate, {.places = places, .tensor = tensor, .sum = sum}, every_way);
        found.insert(found.end(), plans.begin(), plans.end());
      }
    }
  }
  return found;
}

/// At every memory between what replicas and shards need.
void expect_fastest(const std::vector<std::string>& words) {
  const Setting setting(words);
  const PlanEvaluation evaluate(setting.point(), file);
  const std::vector<Combination> all = every_plan(setting, evaluate);
  EXPECT_GE(all.size(), 190U);
  std::int64_t most = 0, least = all.front().peak_bytes;
  for (const Combination& c : all) {
    most = std::max(most, c.peak_bytes);
    least = std::min(least, c.peak_bytes);
  }
  for (int part = 0; part <= 8; ++part) {
    const std::int64_t capacity = least + (most - least) * part / 8;
    const Combination* best = nullptr;
    for (const Combination& c : all) {
      if (c.peak_bytes <= capacity && (best == nullptr || c.seconds < best->seconds)) best = &c;
    }
    const Plan plan = setting.plan({}, capacity, &evaluate);
    EXPECT_DOUBLE_EQ(plan.why.predicted_seconds, best->seconds)
        << capacity << " bytes: " << best->words << " instead of " << plan.why.binding << "\n"
        << to_text(plan);
    EXPECT_LE(plan.why.predicted_peak_bytes, capacity);
    EXPECT_EQ(evaluate(plan).step_seconds, plan.why.predicted_seconds);
  }
  EXPECT_THAT(out_of_memory([&] { setting.plan({}, least / 2, &evaluate); }),
              HasSubstr("3d+osdp on 4 ranks: nothing fits into a device memory of "));
}

struct BoundsOfMemory {
  int num_close = 0;   ///< plans whose bound memory makes higher, to over half of what they take
  int num_closer = 0;  ///< whose bound is higher still by what the Programs of replicas need
};

/// Every plan takes at least what is said of its degrees within the memory that it needs.
BoundsOfMemory expect_bounds(const Setting& setting, const PlanEvaluation& evaluate,
                             const std::vector<Combination>& plans) {
  const PlanRequest request{.graph = setting.point().graph,
                            .cluster = setting.point().cluster,
                            .base = setting.base("3d+osdp", 0),
                            .options = find_planner("3d+osdp").with_defaults({}),
                            .evaluate = &evaluate};
  StepBounds within(request, HeldStates::dp_or_zdp), whatever(request, HeldStates::any);
  BoundsOfMemory found;
  for (const Combination& c : plans) {
    Plan plan = c.replicated;
    std::vector<int> places(static_cast<std::size_t>(c.degrees.places));
    std::iota(places.begin(), places.end(), 0);
    const std::vector<std::int64_t> peaks = evaluate.peaks_of_places(plan, places, PeaksOf::alive);
    plan.device_capacity_bytes = c.peak_bytes;
    const double bound = within.seconds(c.degrees, plan), without_memory = whatever.seconds(c.degrees, plan);
    const double by_peaks = within.sharing_seconds(c.degrees, plan, peaks);
    EXPECT_LE(bound, c.seconds * (1.0 + 1e-9)) << c.words;
    EXPECT_LE(by_peaks, c.seconds * (1.0 + 1e-9)) << c.words;
    EXPECT_LE(without_memory, bound) << c.words;
    found.num_close += bound > 1.1 * without_memory && bound > 0.5 * c.seconds ? 1 : 0;
    found.num_closer += by_peaks > 1.01 * bound ? 1 : 0;
  }
  return found;
}

/// Where links are slow, shards are gathered for many micro-batches, and in turn with what tensor ranks exchange.
TEST(DegreesWithStates, TakeAtLeastWhatMemoryMakesThemSend) {
  struct Case {
    std::vector<std::string> words;
    bool has_a_nic_to_itself = false;  ///< each rank
    std::vector<ParallelDegrees> degrees{};
    int num_close = 0, num_closer = 0;
  };
  const std::vector<std::string> nodes = {"cluster=daint-p100", "resources.nodes=4", "resources.ranks_per_node=1"};
  const auto and_more = [&](std::vector<std::string> words) {
    words.insert(words.end(), nodes.begin(), nodes.end());
    return words;
  };
  for (const auto& [words, has_a_nic_to_itself, degrees, num_close, num_closer] : std::vector<Case>{
           {{}, false, {{1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {2, 2, 1}}, 55, 40},
           {{"train.recompute=block", "overlap.update=backward"}, false, {{1, 1, 1}, {2, 1, 1}, {2, 4, 1}}, 18, 40},
           {nodes, true, {{1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {2, 2, 1}}, 65, 55},
           {and_more({"model.vocabulary=65536"}), true, {{1, 1, 1}, {1, 1, 2}, {2, 1, 1}}, 30, 8},
           {and_more({"train.micro_batches=2"}), true, {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {2, 4, 1}}, 20, 20}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    std::vector<std::string> all = {"train.global_batch=64", "train.micro_batches=16", "model.layers=8",
                                    "overlap.bucket_mib=0.01"};
    all.insert(all.end(), words.begin(), words.end());
    const Setting setting(all, "full");
    const PlanEvaluation evaluate(setting.point(), file);
    EXPECT_EQ(evaluate.has_a_nic_to_itself(setting.point().plan.mesh), has_a_nic_to_itself);
    BoundsOfMemory all_found;
    for (const ParallelDegrees& d : degrees) {
      const BoundsOfMemory found = expect_bounds(setting, evaluate, plans_of(setting, evaluate, d, in_order));
      all_found.num_close += found.num_close;
      all_found.num_closer += found.num_closer;
    }
    EXPECT_GE(all_found.num_close, num_close);
    EXPECT_GE(all_found.num_closer, num_closer);
  }
}

TEST(DegreesWithStates, AreTheFastestOfAllPlans) { expect_fastest({}); }
TEST(DegreesWithStates, AreTheFastestOfAllPlansWithRecomputation) { expect_fastest({"train.recompute=block"}); }

constexpr const char* by_all_programs = "all Programs";

/// Plans whose states were not decided by all Programs do not fit. Those that were take longer than these, twice as
/// long or the less the longer these take.
class FewProgramsAreWrong final : public CountedEvaluation {
 public:
  FewProgramsAreWrong(const Evaluate& of, bool in_reverse) : CountedEvaluation(of), in_reverse_(in_reverse) {}
  Evaluation operator()(const Plan& plan) const override {
    constexpr double long_enough = 1000.0;
    Evaluation found = CountedEvaluation::operator()(plan);
    if (plan.why.binding != by_all_programs) {
      found.missing = "more memory than few Programs say";
    } else {
      found.step_seconds = in_reverse_ ? long_enough - found.step_seconds : 2.0 * found.step_seconds;
    }
    return found;
  }

 private:
  bool in_reverse_;
};

/// What few Programs say fits, and does not, is asked of all as long as it may be the fastest, and then no more.
TEST(DegreesWithStates, WhatFewProgramsSayFitsIsAskedOfAllWhereItMayBeFastest) {
  const Setting setting({});
  const PlanEvaluation evaluate(setting.point(), file);
  for (const bool in_reverse : {true, false}) {
    const FewProgramsAreWrong evaluated(evaluate, in_reverse);
    std::map<PeaksOf, std::vector<double>> seconds;  // of those that are decided
    const auto decide = [&](const ParallelDegrees&, const Plan& replicated, const StatesWanted& wanted) {
      const PeaksOf programs = wanted.peaks;
      PlanWithStates decided{.plan = replicated, .peak_bytes = 1};
      if (programs == PeaksOf::all) decided.plan.why.binding = by_all_programs;
      seconds[programs].push_back(evaluated(decided.plan).step_seconds);
      return std::vector{decided};
    };
    const Plan found = fastest_degrees({.graph = setting.point().graph,
                                        .cluster = setting.point().cluster,
                                        .base = setting.base("3d+osdp", std::int64_t{1} << 40),
                                        .options = find_planner("3d+osdp").with_defaults({}),
                                        .evaluate = &evaluated},
                                       decide, HeldStates::dp_or_zdp);
    const double best = std::ranges::min(seconds[PeaksOf::all]);
    EXPECT_EQ(found.why.predicted_seconds, best);
    const auto may_be_fastest = std::ranges::count_if(seconds[PeaksOf::few], [&](double s) { return s <= best; });
    EXPECT_EQ(std::ssize(seconds[PeaksOf::all]), may_be_fastest);
    EXPECT_EQ(std::ssize(seconds[PeaksOf::few]) > may_be_fastest, !in_reverse);
    EXPECT_GE(may_be_fastest, 3);
  }
}

/// Of what takes longer than is wanted one plan is made, and of what does not the same ones.
TEST(DegreesWithStates, AreGivenUpWhereTheyTakeLongerThanIsWanted) {
  const Setting setting({"cluster=daint-p100", "resources.nodes=4", "resources.ranks_per_node=1"});
  const PlanEvaluation evaluate(setting.point(), file);
  const ParallelDegrees degrees{.micro_batches = setting.point().plan.schedule.micro_batches};
  const auto peak_of = [&](const char* mode) {
    return evaluate(setting.planned(setting.base(mode, 0), {}, nullptr)).peak_bytes;
  };
  const std::int64_t capacity = (peak_of("zero3") + peak_of("ddp")) / 2;
  PlanRequest request{.graph = setting.point().graph,
                      .cluster = setting.point().cluster,
                      .base = setting.base("3d+osdp", capacity),
                      .options = find_planner("3d+osdp").with_defaults({}),
                      .evaluate = &evaluate};
  request.base = with_options_of_states(request);
  const std::unique_ptr<CostModel> costs = cost_model_of(request, "");
  const auto plans_within = [&](double most_seconds) {
    return states_in_stages(request, *costs, degrees, plan_of_degrees(request, degrees),
                            {.peaks = PeaksOf::few, .most_seconds = most_seconds});
  };
  const std::vector<PlanWithStates> all = plans_within(infinity);
  ASSERT_EQ(all.size(), 3U);
  const double fastest = std::ranges::min(all, {}, &PlanWithStates::seconds).seconds;
  const std::vector<PlanWithStates> wanted = plans_within(2.0 * fastest);
  ASSERT_EQ(wanted.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(wanted[i].plan, all[i].plan);
  const std::vector<PlanWithStates> unwanted = plans_within(fastest / 2.0);
  ASSERT_EQ(unwanted.size(), 1U);
  EXPECT_GT(unwanted.front().seconds, fastest / 2.0);
}

/// A plan that is fast enough is the one that is found without a limit; where bounds say that none is, none is
/// simulated.
TEST(DegreesWithStates, NothingSlowerThanIsWantedIsLookedFor) {
  const Setting setting({"cluster=daint-p100", "resources.nodes=4", "resources.ranks_per_node=1"});
  const PlanEvaluation evaluate(setting.point(), file);
  const auto peak_of = [&](const char* mode) {
    return evaluate(setting.planned(setting.base(mode, 0), {}, nullptr)).peak_bytes;
  };
  const CountedEvaluation counted(evaluate);
  PlanRequest request{.graph = setting.point().graph,
                      .cluster = setting.point().cluster,
                      .base = setting.base("3d+osdp", (peak_of("zero3") + peak_of("ddp")) / 2),
                      .options = find_planner("3d+osdp").with_defaults({}),
                      .evaluate = &counted};
  const Plan fastest = find_planner("3d+osdp").plan(request);
  request.most_seconds = fastest.why.predicted_seconds;
  EXPECT_EQ(to_text(find_planner("3d+osdp").plan(request)), to_text(fastest));
  request.most_seconds = 1e-3 * fastest.why.predicted_seconds;
  counted.num_simulated = 0;
  EXPECT_THAT([&] { find_planner("3d+osdp").plan(request); },
              ThrowsMessage<Unsupported>(HasSubstr("3d+osdp on 4 ranks: nothing that fits takes")));
  EXPECT_EQ(counted.num_simulated, 0);
}

/// Tensor ranks, which the search is free to leave, are left where slices are asked for.
TEST(DegreesWithStates, SlicesThatAreAskedForLeaveNoTensorRanks) {
  const Setting setting({});
  const PlanEvaluation evaluate(setting.point(), file);
  const std::map<std::string, OptionValue> slices = {{"slices", std::int64_t{2}}};
  std::map<std::string, OptionValue> whole_weights = slices;
  whole_weights.insert({"tensor", std::int64_t{1}});
  const Plan free = setting.plan(slices, 0, &evaluate), bound = setting.plan(whole_weights, 0, &evaluate);
  EXPECT_EQ(free.operators, bound.operators);
  EXPECT_EQ(free.mesh, bound.mesh);
  EXPECT_EQ(free.why.predicted_seconds, bound.why.predicted_seconds);
}

/// Data ranks alone are one of the combinations, and osdp's own plan one of theirs: with its batch, and with any other.
TEST(DegreesWithStates, AreNeverSlowerThanOsdp) {
  const Setting setting({});
  const PlanEvaluation evaluate(setting.point(), file);
  int compared = 0, faster = 0;
  for (const std::int64_t batch : {0, 8, 32}) {
    for (const std::int64_t mib : {45, 60, 80, 110, 150}) {
      const auto plan_of = [&](const char* mode) {
        Plan base = setting.base(mode, mib << 20);
        base.global_batch = batch;
        base.schedule.micro_batches = 1;
        return setting.planned(base, {}, &evaluate);
      };
      Plan osdp;
      if (!out_of_memory([&] { osdp = plan_of("osdp"); }).empty()) continue;
      const Plan ours = plan_of("3d+osdp");
      EXPECT_EQ(ours.global_batch, osdp.global_batch);
      EXPECT_LE(ours.why.predicted_seconds, evaluate(osdp).step_seconds) << batch << " samples, " << mib << " MiB";
      EXPECT_EQ(ours.why.predicted_seconds, evaluate(ours).step_seconds);
      EXPECT_LE(ours.why.predicted_peak_bytes, mib << 20);
      ++compared;
      faster += ours.why.predicted_seconds < 0.999 * evaluate(osdp).step_seconds ? 1 : 0;
    }
  }
  EXPECT_GE(compared, 6);
  EXPECT_GE(faster, 1) << "and where tensor ranks or stages are worth it, faster";
}

TEST(DegreesWithStates, ABatchOfThePlannersThatOsdpDoesNotFindIsRefused) {
  const Setting setting({});
  const PlanEvaluation evaluate(setting.point(), file);
  Plan base = setting.base("3d+osdp", std::int64_t{1} << 20);
  base.global_batch = 0;
  base.schedule.micro_batches = 1;
  EXPECT_THAT(out_of_memory([&] { setting.planned(base, {}, &evaluate); }),
              HasSubstr("train.global_batch = \"planner\" is osdp's batch, of data ranks alone, and there is none: "
                        "3d+osdp on 4 ranks: nothing fits into a device memory of"));
}

}  // namespace
}  // namespace strata::predict::test_degrees_with_states

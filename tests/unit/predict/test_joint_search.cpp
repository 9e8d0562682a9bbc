/// @file
/// `auto` on described clusters: never behind a mode that plans alone, beside every uniform plan that there is of small
/// models, within the dimensions that it is given, and what it says about its answer.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/as_index.hpp"
#include "base/error.hpp"
#include "planners/joint/degree_moves.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "planners/joint/single_plans.hpp"
#include "planners/pipelines/step_bound.hpp"
#include "planners/states/sharded_plan.hpp"
#include "predict/plan_evaluation.hpp"
#include "support/refusal.hpp"
#include "unit/predict/counted_evaluation.hpp"
#include "unit/predict/small_gpt.hpp"

namespace strata::predict::test_joint_search {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Options = std::map<std::string, OptionValue>;

constexpr const char* file = "/no/such/folder/e.toml";

/// A model on a machine, and what modes are asked there.
class Setting {
 public:
  explicit Setting(const std::vector<std::string>& words)
      : point_(small_gpt_point(words, file)), evaluate_(point_, file) {}

  PlanRequest request(std::int64_t capacity, const Options& options = {}) const {
    return {.graph = point_.graph,
            .cluster = point_.cluster,
            .base = asked_of(point_, "auto", capacity),
            .options = find_planner("auto").with_defaults(options),
            .leaf_of_node = point_.leaf_of_node,
            .evaluate = &evaluate_};
  }
  Plan plan(std::int64_t capacity, const Options& options = {}) const {
    return find_planner("auto").plan(request(capacity, options));
  }
  const PlanEvaluation& evaluate() const { return evaluate_; }
  const ModelGraph& graph() const { return point_.graph; }
  std::int64_t peak_of(const char* mode) const {
    return evaluate_(plan_of_mode(request(0), find_planner(mode), {}, false).plan.value()).peak_bytes;
  }

 private:
  PreparedPoint point_;
  PlanEvaluation evaluate_;
};

/// Less to look at, for what holds of every search.
const Options narrow = {{"points", std::int64_t{4}}, {"beam", std::int64_t{1}}};

/// Between all sharded and all replicated.
std::int64_t between(const Setting& setting, double share) {
  const std::int64_t least = setting.peak_of("zero3"), most = setting.peak_of("ddp");
  return least + std::llround(share * static_cast<double>(most - least));
}

TEST(JointSearch, IsNeverSlowerThanAModeAlone) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{},
        {"cluster=a800-ib", "train.dtype=bf16", "train.micro_batches=2"},
        {"cluster=rtx3090-nvlink", "resources.nodes=2", "resources.ranks_per_node=2", "train.recompute=block"}}) {
    const Setting setting(words);
    for (const std::int64_t capacity : {std::int64_t{0}, between(setting, 0.5)}) {
      const Plan plan = setting.plan(capacity, narrow);
      const Evaluation ours = setting.evaluate()(plan);
      EXPECT_EQ(ours.step_seconds, plan.why.predicted_seconds);
      EXPECT_EQ(ours.peak_bytes, plan.why.predicted_peak_bytes);
      EXPECT_TRUE(capacity == 0 || ours.peak_bytes <= capacity);
      int num_fitting = 0;
      for (const SinglePlan& single : single_plans(setting.request(capacity), false, false)) {
        if (!single.plan) continue;
        Plan exact = *single.plan;
        exact.quantization = {};
        const Evaluation theirs = setting.evaluate()(exact);
        if (!theirs.feasible()) continue;
        ++num_fitting;
        EXPECT_LE(ours.step_seconds, theirs.step_seconds) << single.mode;
      }
      EXPECT_GE(num_fitting, 5);
      EXPECT_EQ(std::ssize(plan.why.decisions), 8);
      EXPECT_GE(std::ssize(plan.why.singles), 20);
      EXPECT_FALSE(plan.why.frontier.empty());
      EXPECT_NO_THROW(verify(plan, setting.graph()));
      EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
      if (words.empty()) {
        EXPECT_EQ(setting.plan(capacity, narrow), plan) << "equal requests";
      }
    }
  }
}

/// Other modes' plans come behind all that the search finds by itself, and only add to it. Plans of stale gradients
/// come from other modes alone.
TEST(JointSearch, TellsWhatItFindsWithoutCandidates) {
  constexpr const char* words = "; without other modes' plans as candidates: ";
  int num_helped = 0;
  for (const auto& [cluster, staleness] : {std::pair("a100-2x8", 0), {"rtx3090-pcie", 0}, {"a800-ib", 1}}) {
    const Setting setting({fmt::format("cluster={}", cluster)});
    Options options = narrow;
    options["staleness"] = std::int64_t{staleness};
    Options alone = options;
    alone["seeds"] = false;
    for (const std::int64_t capacity : {std::int64_t{0}, between(setting, 0.1)}) {
      const Why with = setting.plan(capacity, options).why, without = setting.plan(capacity, alone).why;
      EXPECT_THAT(with.binding, EndsWith(fmt::format("{}{:.6g} s", words, without.predicted_seconds)));
      EXPECT_THAT(without.binding, Not(HasSubstr(words)));
      EXPECT_LE(with.predicted_seconds, without.predicted_seconds);
      num_helped += with.predicted_seconds < without.predicted_seconds ? 1 : 0;
    }
  }
  EXPECT_GE(num_helped, 1);
}

struct Uniform {
  std::string words;
  Evaluation found;
};

/// Every plan whose operators hold their states alike: all degrees and sums, what is sharded, and how much runs again.
std::vector<Uniform> every_uniform_plan(const Setting& setting) {
  const PlanRequest request = setting.request(0);
  std::vector<Uniform> found;
  for (const ParallelDegrees& degrees : asked_degrees(request)) {
    Plan plain;
    if (!refusal([&] { plain = plan_of_degrees(request, degrees); }).empty()) continue;
    for (const Move& again : moves_of_recompute(request, plain)) {
      for (const Move& held : moves_of_states(request, again.plan)) {
        Evaluation evaluation = setting.evaluate()(held.plan);
        if (evaluation.step_seconds == 0.0) continue;
        found.push_back({plan_in_words(held.plan, setting.graph()), std::move(evaluation)});
      }
    }
  }
  return found;
}

/// Machines, numbers and batches of two layers on four ranks, the same for equal @p number.
std::vector<std::string> words_of_setting(int number) {
  constexpr std::array clusters = {"a100-2x8", "a800-ib", "rtx3090-nvlink", "rtx3090-pcie", "gcp-a100"};
  std::vector<std::string> words = {fmt::format("cluster={}", clusters[as_index(number % 5)])};
  const int num_nodes = 1 + number / 5 % 2;
  words.push_back(fmt::format("resources.nodes={}", num_nodes));
  words.push_back(fmt::format("resources.ranks_per_node={}", 4 / num_nodes));
  words.push_back(fmt::format("train.dtype={}", number / 10 % 2 == 0 ? "bf16" : "fp32"));
  words.push_back(fmt::format("train.global_batch={}", number / 20 % 3 == 0 ? 32 : 16));
  words.push_back(fmt::format("train.micro_batches={}", number / 20 % 3 == 1 ? 2 : 4));
  return words;
}

/// By the seconds of a step of plans in which the search decides alone. STRATA_JOINT_SETTINGS=60 looks at 300
/// instances.
TEST(JointSearch, IsNeverSlowerThanAnyUniformPlan) {
  const char* asked = std::getenv("STRATA_JOINT_SETTINGS");
  const int num_settings = asked == nullptr ? 2 : std::atoi(asked);
  int num_instances = 0, num_faster = 0;
  for (int number = 0; number < num_settings; ++number) {
    const Setting setting(words_of_setting(number));
    const std::vector<Uniform> all = every_uniform_plan(setting);
    EXPECT_GE(all.size(), 150U) << number;
    for (const double share : {0.02, 0.1, 0.3, 0.5, 0.8}) {
      const std::int64_t capacity = between(setting, share);
      const Uniform* best = nullptr;
      for (const Uniform& each : all) {
        if (each.found.peak_bytes > capacity) continue;
        if (best == nullptr || each.found.step_seconds < best->found.step_seconds) best = &each;
      }
      ASSERT_NE(best, nullptr) << share;
      const Plan plan = setting.plan(capacity, {{"seeds", false}});
      EXPECT_LE(plan.why.predicted_seconds, best->found.step_seconds * (1.0 + 1e-12))
          << "setting " << number << ", share " << share << ": " << best->words << " beside " << plan.why.binding;
      ++num_instances;
      num_faster += plan.why.predicted_seconds < best->found.step_seconds * (1.0 - 1e-12) ? 1 : 0;
    }
  }
  RecordProperty("instances", num_instances);
  RecordProperty("faster_than_every_uniform_plan", num_faster);
}

/// A pipeline is ahead of them until moves have cut operators otherwise.
TEST(JointSearch, LayoutsWithoutStagesAreImprovedBesidePipelines) {
  const Setting setting({"model.hidden=6144", "model.heads=16", "model.vocabulary=50304", "model.sequence_length=576",
                         "train.global_batch=24", "train.micro_batches=24"});
  const auto plan_with = [&](Options options) {
    options.insert({{"points", std::int64_t{2}}, {"beam", std::int64_t{1}}, {"seeds", false}});
    return setting.plan(std::int64_t{6} << 30, options);
  };
  const Plan plan = plan_with({}), without_stages = plan_with({{"without", std::string("stages")}});
  EXPECT_LE(plan.why.predicted_seconds, without_stages.why.predicted_seconds) << plan.why.binding;
  EXPECT_GT(std::ssize(plan.why.decisions), std::ssize(without_stages.why.decisions));
}

/// By their bound, in which nothing runs beside sums, plans of many tensor ranks come behind all others.
TEST(JointSearch, EveryTensorDegreeIsLookedAtWithoutStagesAndOnRings) {
  const Setting setting({"resources.ranks_per_node=8"});
  PlanRequest request = setting.request(0, {{"points", std::int64_t{1}}, {"beam", std::int64_t{1}}, {"seeds", false}});
  const CountedEvaluation counted(setting.evaluate());
  request.evaluate = &counted;
  (void)find_planner("auto").plan(request);
  for (const int tensor : {2, 4, 8}) {
    const std::string on_rings = fmt::format("8 ranks × tensor {} (scatter, ring) × stage 1, 4 micro-batches", tensor);
    EXPECT_TRUE(counted.degrees_in_words.contains(on_rings)) << on_rings;
  }
}

/// What the kernels take alone is never more than a step takes, whatever else is decided.
TEST(JointSearch, KernelsAreABoundOfEveryUniformPlan) {
  const Setting setting({});
  const Plan plan = setting.plan(0);
  const std::string& words = plan.why.binding;
  const auto at = words.find("kernels alone take at least ");
  ASSERT_NE(at, std::string::npos) << words;
  const double bound = std::stod(words.substr(at + 28));
  EXPECT_GT(bound, 0.1 * plan.why.predicted_seconds);
  for (const Uniform& each : every_uniform_plan(setting)) EXPECT_LE(bound, each.found.step_seconds) << each.words;
}

/// Moves that are left out by their bound take no less, in any dimension, whatever the pipeline and the micro-batches.
TEST(JointSearch, FewBlocksAreABoundOfEveryMove) {
  const Setting setting({"cluster=a800-ib", "resources.nodes=2", "resources.ranks_per_node=4", "train.global_batch=64",
                         "train.micro_batches=4", "model.layers=4"});
  const PlanRequest request = setting.request(0);
  StepBounds bounds(request, HeldStates::any);
  std::map<Dimension, int> num_known, num_close;
  for (const ParallelDegrees& degrees : asked_degrees(request)) {
    Plan plain;
    if (!refusal([&] { plain = plan_of_degrees(request, degrees); }).empty()) continue;
    for (const Dimension dimension : {Dimension::stages, Dimension::tensor, Dimension::states, Dimension::slices,
                                      Dimension::recompute, Dimension::sub_batches, Dimension::overlap}) {
      for (const Move& move : moves_of(dimension, request, plain, std::array{degrees})) {
        const double seconds = setting.evaluate()(move.plan).step_seconds;
        if (seconds == 0.0) continue;  // it cannot be lowered
        const double bound = bounds.seconds_of_alike_blocks(degrees_of(move.plan), move.plan);
        EXPECT_LE(bound, seconds * (1.0 + 1e-9)) << in_words(degrees, 8) << ": " << move.words;
        num_known[dimension] += bound > 0.0 ? 1 : 0;
        num_close[dimension] += bound > 0.7 * seconds ? 1 : 0;
      }
    }
    Plan elsewhere = plain;
    elsewhere.mesh.placement = "leaf-first";
    EXPECT_EQ(bounds.seconds_of_alike_blocks(degrees, elsewhere), 0.0);
    plain.schedule.kind = ScheduleKind::two_buffered_weights;
    EXPECT_EQ(bounds.seconds_of_alike_blocks(degrees, plain), 0.0) << "it has no bubble";
  }
  for (const auto& [dimension, known] : num_known) {
    SCOPED_TRACE(to_string(dimension));
    EXPECT_GE(known, dimension == Dimension::stages ? 5 : 30);
    EXPECT_GE(num_close[dimension], known / 2);
  }
}

/// From wherever a search stands: of a product that gathers and scatters, and under gradients of weights, there is
/// none.
TEST(JointSearch, RingsAreThereBesideOtherLayoutsAndOverlap) {
  const Setting setting({});
  const PlanRequest request = setting.request(0);
  const ParallelDegrees degrees{.tensor = 4, .sum = PartialSums::all_reduce, .micro_batches = 4};
  Plan plan = plan_of_degrees(request, degrees);
  plan.overlap.layout = "weight_gradient";
  const auto move_of = [&](const Plan& from, std::string_view words) {
    for (const Move& move : moves_of_tensor(request, from, std::array{degrees})) {
      if (move.words == words) return move.plan;
    }
    ADD_FAILURE() << "no move: " << words;
    return from;
  };
  for (const Plan& from : {plan, move_of(plan, "attn.proj: p0 1x1, p1 2x1, p2 2x1")}) {
    for (const char* words : {"sums scattered", "products on rings in one direction"}) {
      const Evaluation found = setting.evaluate()(move_of(from, words));
      EXPECT_GT(found.step_seconds, 0.0) << words << ": " << found.missing;
    }
  }
}

int num_on_rings(const std::vector<OperatorDecision>& decisions) {
  return static_cast<int>(std::ranges::count(decisions, MatmulAlgorithm::ring, &OperatorDecision::algorithm));
}

TEST(JointSearch, RingsStayWhereTensorDegreesChangeAndLayoutsWhereMicroBatchesDo) {
  const Setting setting({});
  const PlanRequest request = setting.request(0);
  const auto degrees = [](int tensor, PartialSums sum, int micro_batches) {
    return ParallelDegrees{.tensor = tensor, .sum = sum, .micro_batches = micro_batches};
  };
  const Plan two = on_rings(request, plan_of_degrees(request, degrees(2, PartialSums::scatter, 4)));
  const int num_linears = num_on_rings(resolve(two, setting.graph()));
  EXPECT_EQ(num_linears, 9);  // four of each block, and the head
  const auto num_of = [&](const ParallelDegrees& of) {
    return num_on_rings(resolve(with_degrees(request, two, of), setting.graph()));
  };
  EXPECT_EQ(num_of(degrees(4, PartialSums::scatter, 4)), num_linears);
  EXPECT_EQ(num_of(degrees(4, PartialSums::all_reduce, 4)), 0);

  Plan uneven = two;  // one product over four ranks, which no degrees are
  uneven.operators.push_back({.match = "block[0].attn.qkv", .layout = Layout{.p1 = {4, 1}}});
  const Plan smaller = with_degrees(request, uneven, degrees(4, PartialSums::scatter, 8));
  EXPECT_EQ(smaller.schedule.micro_batches, 8);
  EXPECT_EQ(smaller.operators, uneven.operators);
}

/// With its new layout it gathers and scatters, which no ring does: where the others stay on theirs it is local.
TEST(JointSearch, AProductLeavesItsRingForALayoutThatNoRingHas) {
  const Setting setting({});
  const PlanRequest request = setting.request(0);
  const ParallelDegrees degrees{.tensor = 4, .sum = PartialSums::scatter, .micro_batches = 4};
  const Plan ring = on_rings(request, plan_of_degrees(request, degrees));
  const std::vector<Move> moves = moves_of_tensor(request, ring, std::array{degrees});
  const auto move = std::ranges::find(moves, "attn.proj: p0 1x1, p1 2x1, p2 2x1", &Move::words);
  ASSERT_NE(move, moves.end());
  EXPECT_EQ(num_on_rings(resolve(move->plan, setting.graph())), num_on_rings(resolve(ring, setting.graph())) - 2);
  const Evaluation found = setting.evaluate()(move->plan);
  EXPECT_GT(found.step_seconds, 0.0) << found.missing;
}

TEST(JointSearch, SmallerMicroBatchesComeInsteadOfBlocksThatRunAgain) {
  const Setting setting({});
  const PlanRequest request = setting.request(0, {{"micro_batches", std::string("planner")}});
  const std::vector<ParallelDegrees> all = asked_degrees(request);
  const ParallelDegrees degrees{.tensor = 2, .micro_batches = 2};
  const Plan kept = plan_of_degrees(request, degrees);
  const Plan again = with_recompute(request, kept, Recompute::block, 1);
  const auto cut_smaller = [&](const Plan& from) {
    std::vector<int> micro_batches;
    for (const Move& move : moves_of_stages(request, from, all)) {
      const bool keeps_all = !runs_again(move.plan) && move.plan.stages.count == 1;
      if (keeps_all && move.plan.schedule.micro_batches > 2) {
        micro_batches.push_back(move.plan.schedule.micro_batches);
        EXPECT_TRUE(move.words.ends_with(runs_again(from) ? ", recompute none" : "micro-batches")) << move.words;
      }
    }
    std::ranges::sort(micro_batches);
    return micro_batches;
  };
  EXPECT_EQ(cut_smaller(again), (std::vector{4, 8}));
  EXPECT_EQ(cut_smaller(kept), std::vector{4});  // the next alone
}

/// @return how the pipelines of @p moves are cut that have other places than @p from and one stage a rank.
std::vector<std::string> other_places(const std::vector<Move>& moves, const Plan& from) {
  std::vector<std::string> cut;
  for (const Move& move : moves) {
    const ParallelDegrees degrees = degrees_of(move.plan);
    if (degrees.places == degrees_of(from).places || degrees.chunks > 1) continue;
    cut.push_back(fmt::format("{} in {}", degrees.places, degrees.micro_batches));
  }
  std::ranges::sort(cut);
  return cut;
}

TEST(JointSearch, StagesComeInsteadOfReplicasWithAsManySamplesOfAMicroBatch) {
  const Setting setting({"model.layers=4"});
  const PlanRequest request = setting.request(0, {{"micro_batches", std::string("planner")}});
  const std::vector<ParallelDegrees> all = asked_degrees(request);
  const Plan two = plan_of_degrees(request, {.places = 2, .micro_batches = 2});
  EXPECT_EQ(other_places(moves_of_stages(request, two, all), two),
            (std::vector<std::string>{"1 in 1", "1 in 2", "4 in 2", "4 in 4"}));
  const Plan one = plan_of_degrees(request, {.micro_batches = 4});
  EXPECT_EQ(other_places(moves_of_stages(request, one, all), one), (std::vector<std::string>{"2 in 4", "2 in 8"}));
}

/// Expects that the plans of @p setting are as fast where bounds and few blocks leave plans out, of which no more than
/// this share are simulated then.
void expect_nothing_better_left_out(const Setting& setting, const Options& options, double most_simulated) {
  int num_simulated = 0, num_simulated_without = 0;
  for (const double share : {0.2, 1.1}) {
    PlanRequest request = setting.request(between(setting, share), options);
    const CountedEvaluation with(setting.evaluate()), without(setting.evaluate(), false);
    request.evaluate = &without;
    const double seconds = find_planner("auto").plan(request).why.predicted_seconds;
    request.evaluate = &with;
    EXPECT_LE(find_planner("auto").plan(request).why.predicted_seconds, seconds * 1.0001) << share;
    num_simulated += with.num_simulated;
    num_simulated_without += without.num_simulated;
  }
  EXPECT_LT(num_simulated, most_simulated * num_simulated_without);
}

/// Of a vocabulary that no number of ranks divides.
TEST(JointSearch, BoundsLeaveOutNoBetterPlan) {
  expect_nothing_better_left_out(Setting({"model.vocabulary=50257", "model.hidden=128", "train.micro_batches=1"}),
                                 narrow, 0.75);
}

TEST(JointSearch, FewBlocksLeaveOutNoBetterPlan) {
  expect_nothing_better_left_out(
      Setting({"model.layers=24", "model.hidden=32", "train.micro_batches=1"}),
      {{"points", std::int64_t{2}}, {"beam", std::int64_t{2}}, {"seeds", false}, {"without", std::string("stages")}},
      0.9);
}

TEST(JointSearch, ThreadsChangeNothing) {
  const Setting setting({"cluster=a800-ib"});
  PlanRequest request = setting.request(between(setting, 0.3), narrow);
  const Plan alone = find_planner("auto").plan(request);
  request.num_threads = 4;
  EXPECT_EQ(find_planner("auto").plan(request), alone);
}

TEST(JointSearch, LongProgramsOfSummaAreNotAskedFor) {
  const Setting setting({});
  PlanRequest request = setting.request(0);
  const Planner& summa = find_planner("summa");
  EXPECT_TRUE(plan_of_mode(request, summa, {}, false).plan);
  request.base.schedule.micro_batches = 1000;
  EXPECT_THAT(plan_of_mode(request, summa, {}, false).refusal,
              AllOf(HasSubstr("not asked: "), HasSubstr("1000 micro-batches on 4 ranks in at least 2 panels")));
  // Short ones of very many ranks, no two of which are alike, are long together.
  PlanRequest many_ranks = setting.request(0);
  many_ranks.base.mesh.nodes = 4096;
  EXPECT_THAT(plan_of_mode(many_ranks, summa, {}, false).refusal,
              AllOf(HasSubstr("not asked: "), HasSubstr("of each of so many ranks are looked at")));
}

TEST(JointSearch, LeavesOutWhatItIsToLeaveOut) {
  const Setting setting({"resources.nodes=2", "resources.ranks_per_node=2", "cluster=a800-ib"});
  const std::int64_t capacity = between(setting, 0.3);
  const double everything = setting.plan(capacity, narrow).why.predicted_seconds;
  for (const Dimension dimension : all_dimensions) {
    const std::string without(to_string(dimension));
    Options options = narrow;
    options["without"] = without;
    const Plan plan = setting.plan(capacity, options);
    const Plan base = setting.request(capacity).base;
    EXPECT_EQ(Dimensions(without).within(plan, base)->operators, plan.operators) << without;
    EXPECT_LE(everything, plan.why.predicted_seconds * 1.02) << without;
    EXPECT_EQ(std::ssize(plan.why.decisions), 7) << without;
  }
  const Plan data_alone = setting.plan(0, {{"without", std::string("stages,tensor")}});
  EXPECT_EQ(data_alone.stages.count, 1);
  EXPECT_EQ(most_tensor_ranks(data_alone), 1);
  EXPECT_THAT(user_error([&] {
                setting.plan(0, {{"without", std::string("stages,colour")}});
              }),
              AllOf(HasSubstr("strategy.without = \"stages,colour\": no dimension `colour`; accepted: none, stages, "
                              "tensor, states, slices, recompute, sub_batches, overlap, placement")));
}

/// As asked without one dimension after another; those that are left out anyway stay so.
TEST(JointSearch, TellsWhatEachDimensionIsWorth) {
  const Setting setting({"cluster=rtx3090-pcie"});
  const std::int64_t capacity = between(setting, 0.3);
  Options options = narrow;
  options["without"] = std::string("stages,tensor,slices,placement");
  const Plan alone = setting.plan(capacity, options);
  EXPECT_TRUE(alone.why.ablation.empty());
  options["ablation"] = true;
  Plan plan = setting.plan(capacity, options);
  EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
  const std::vector<std::string> told = std::exchange(plan.why.ablation, {});
  EXPECT_EQ(plan, alone);
  std::vector<std::string> expected;
  int num_longer = 0, num_refused = 0;
  for (const char* name : {"states", "recompute", "sub_batches", "overlap"}) {
    Options without = narrow;
    without["without"] = fmt::format("stages,tensor,slices,placement,{}", name);
    try {
      const Plan found = setting.plan(capacity, without);
      const double times = found.why.predicted_seconds / plan.why.predicted_seconds;
      num_longer += times > 1.001 ? 1 : 0;
      expected.push_back(fmt::format("{}: {:.6g} s, {}, {:.4g} times as long: {}", name, found.why.predicted_seconds,
                                     gib(found.why.predicted_peak_bytes), times,
                                     plan_in_words(found, setting.graph())));
    } catch (const OutOfMemory& refusal) {
      ++num_refused;
      expected.push_back(fmt::format("{}: {}", name, refusal.what()));
    }
  }
  EXPECT_EQ(told, expected);
  EXPECT_GE(num_longer, 1);
  EXPECT_GE(num_refused, 1);
}

TEST(JointSearch, TellsNoTimesWhereThereIsNothingToCompare) {
  const Setting setting({"cluster=this", "resources.ranks_per_node=1"});
  const Plan plan = setting.plan(0, {{"ablation", true}});
  EXPECT_EQ(plan.why.predicted_seconds, 0.0);
  EXPECT_TRUE(plan.why.ablation.empty());
}

/// CDP's figure 1. All states sharded are found first, and faster than any plan next to them; with optimizer states
/// alone, as whole tensors, a step is a tenth shorter.
TEST(JointSearch, DealsOptimizerStatesFromWhereAllAreSharded) {
  const Setting setting({"cluster=a100-2x8", "model.name=llama-nano", "model.layers=12", "model.hidden=64",
                         "model.heads=4", "model.vocabulary=256", "resources.ranks_per_node=3", "train.global_batch=12",
                         "train.micro_batches=1", "train.optimizer=sgd", "train.momentum=0.9",
                         "overlap.bucket_mib=25"});
  const double everything = setting.plan(0).why.predicted_seconds;
  EXPECT_LE(everything, setting.plan(0, {{"without", std::string("overlap")}}).why.predicted_seconds);
}

/// Oases' figure 2, the model of 2048: states over half of the copies leave just as much memory as it takes, and from
/// layouts of tensors, which are found first, no move leads there.
TEST(JointSearch, FindsTheStatesOfAmspWithoutItsPlanAsACandidate) {
  const Setting setting({"cluster=rtx3090-nvlink", "model.layers=24", "model.hidden=2048", "model.heads=32",
                         "model.vocabulary=51200", "model.sequence_length=1024", "train.micro_batches=1",
                         "train.optimizer=adam"});
  constexpr std::int64_t capacity = std::int64_t{24} << 30;
  const PlanRequest request = setting.request(capacity);
  const Plan theirs = plan_of_mode(request, find_planner("amsp"), {}, false).plan.value();
  EXPECT_LE(setting.plan(capacity, {{"seeds", false}}).why.predicted_seconds, setting.evaluate()(theirs).step_seconds);
}

/// Bounds know nothing of memory: the first in their order that fits is not the fastest.
TEST(JointSearch, FindsTheFastestDegreesHoweverFewAreLookedAt) {
  const Options one = {{"points", std::int64_t{1}},
                       {"seeds", false},
                       {"without", std::string("states,slices,recompute,sub_batches,overlap,placement")}};
  for (const auto& [layers, share] : {std::pair(7, 0.1), {8, 0.3}}) {
    const Setting setting({"cluster=a800-ib", fmt::format("model.layers={}", layers), "resources.nodes=1",
                           "resources.ranks_per_node=8", "train.global_batch=64", "train.micro_batches=8"});
    const std::int64_t capacity = between(setting, share);
    const Plan theirs = plan_of_mode(setting.request(capacity), find_planner("3d"), {}, false).plan.value();
    EXPECT_LE(setting.plan(capacity, one).why.predicted_seconds, setting.evaluate()(theirs).step_seconds)
        << layers << " layers";
  }
}

TEST(JointSearch, MicroBatchesAndTheBatchAreChosenWhereAsked) {
  const Setting setting({"cluster=a800-ib", "train.global_batch=32"});
  const std::int64_t capacity = between(setting, 0.5);
  const double of_four = setting.plan(capacity, narrow).why.predicted_seconds;
  Options options = narrow;
  options["micro_batches"] = std::string(planner_word);
  const Plan open = setting.plan(capacity, options);
  EXPECT_LE(open.why.predicted_seconds, of_four);
  PlanRequest request = setting.request(capacity, narrow);
  request.base.global_batch = 0;
  const Plan with_batch = find_planner("auto").plan(request);
  EXPECT_GT(with_batch.global_batch, 0);
  EXPECT_LE(with_batch.why.predicted_peak_bytes, capacity);
}

TEST(JointSearch, RulesOfStaleGradientsAreLookedAtWhereAsked) {
  const Setting setting({"cluster=a800-ib"});
  const auto has_single = [](const Plan& plan, std::string_view mode) {
    return std::ranges::any_of(plan.why.singles, [&](const std::string& line) { return line.starts_with(mode); });
  };
  const Plan synchronous = setting.plan(0, narrow);
  Options options = narrow;
  options["staleness"] = std::int64_t{1};
  const Plan stale = setting.plan(0, options);
  for (const char* mode : {"2bw: ", "cdp-v1: ", "cdp-v2: "}) {
    EXPECT_TRUE(has_single(stale, mode)) << mode;
    EXPECT_FALSE(has_single(synchronous, mode)) << mode;
  }
  EXPECT_FALSE(has_steps_that_overlap(synchronous.schedule.kind));
  EXPECT_LE(stale.why.predicted_seconds, synchronous.why.predicted_seconds);
}

TEST(JointSearch, SaysWhatWouldMakeAPlanFit) {
  const Setting setting({"train.micro_batches=1", "train.global_batch=64"});
  Options options = narrow;
  options["stages"] = options["tensor"] = std::int64_t{1};
  options["seeds"] = false;
  options["without"] = std::string("states,slices,recompute,tensor,sub_batches");
  // Data parallelism alone needs more, and ZeRO-3 less.
  const std::string words = out_of_memory([&] { setting.plan(between(setting, 0.5), options); });
  EXPECT_THAT(words,
              ContainsRegex("; all states over all copies .left out: states. would free [0-9.]+ GiB, and it fits"));
  EXPECT_THAT(words, HasSubstr("; train.micro_batches = 2 would free "));
  EXPECT_THAT(words, HasSubstr("; train.global_batch = 32 would free "));
  EXPECT_THAT(words, Not(HasSubstr("left out: overlap"))) << "it is in the space";
}

TEST(JointSearch, RefusesWithNumbers) {
  const Setting setting({});
  EXPECT_THAT(out_of_memory([&] { setting.plan(1 << 20); }),
              AllOf(HasSubstr("auto on 4 ranks: nothing fits into a device memory of 0.0010 GiB (1048576 bytes): of "),
                    HasSubstr("the one that needs least"), HasSubstr("bytes too much; of it parameters")));
  PlanRequest without_batch = setting.request(1 << 20);
  without_batch.base.global_batch = 0;
  EXPECT_THAT(refusal([&] { find_planner("auto").plan(without_batch); }),
              AllOf(HasSubstr("auto on 4 ranks: no mode that chooses the batch has a plan: "),
                    HasSubstr("nothing fits into a device memory of 0.0010 GiB (1048576 bytes)")));
  PlanRequest uneven = setting.request(0);
  uneven.base.schedule.micro_batches = 3;
  EXPECT_THAT(refusal([&] { find_planner("auto").plan(uneven); }),
              HasSubstr("16 samples are not divisible by 3 micro-batches"));
  PlanRequest blind = setting.request(0);
  blind.evaluate = nullptr;
  EXPECT_THAT(refusal([&] { find_planner("auto").plan(blind); }),
              HasSubstr("auto on 4 ranks: plans are compared by what their Programs take, and nobody knows"));
  EXPECT_THAT(refusal([&] {
                setting.plan(0, {{"stages", std::int64_t{2}}, {"without", std::string("stages")}, {"seeds", false}});
              }),
              HasSubstr("auto on 4 ranks: no plan of the space can be lowered with without = \"stages\""));
}

}  // namespace
}  // namespace strata::predict::test_joint_search

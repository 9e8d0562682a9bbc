#include "planners/layouts/layout_planning.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "ir/plan/plan_words.hpp"
#include "planners/operators/block_rules.hpp"
#include "planners/operators/units.hpp"
#include "planners/search/memory_first.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// With the samples of a micro-batch. @throws Unsupported where micro-batches do not divide the batch.
LayoutLimits with_samples(LayoutLimits limits, const PlanRequest& request) {
  const Plan& base = request.base;
  if (base.global_batch % base.schedule.micro_batches != 0) {
    throw Unsupported(fmt::format("{} on {} ranks: {} samples are not divisible by {} micro-batches", base.strategy,
                                  base.mesh.num_ranks(), base.global_batch, base.schedule.micro_batches));
  }
  limits.samples = base.global_batch / base.schedule.micro_batches;
  return limits;
}

/// The ranks of a pipeline that hold @p stages together, several each where schedule = interleaved.
/// @throws Unsupported for stages that are none of `chunks` a place.
std::int64_t places_of_stages(const PlanRequest& request, std::int64_t stages) {
  if (request.option<std::string>("schedule") != "interleaved") return stages;
  const auto chunks = request.option<std::int64_t>("chunks");
  if (stages % chunks == 0 && stages > chunks) return stages / chunks;
  throw Unsupported(
      fmt::format("{} on {} ranks: {} interleaved stages in chunks of {}; accepted: {} or a greater multiple of {}",
                  request.base.strategy, request.base.mesh.num_ranks(), stages, chunks, 2 * chunks, chunks));
}

ScheduleKind asked_schedule(const PlanRequest& request) {
  const auto& word = request.option<std::string>("schedule");
  return word == "gpipe"         ? ScheduleKind::gpipe
         : word == "interleaved" ? ScheduleKind::interleaved
                                 : ScheduleKind::one_forward_one_backward;
}

/// @throws Unsupported for places of a pipeline that are neither whole nodes nor an even part of one, or have one rank;
/// for more stages than there are blocks; for micro-batches that interleaved stages cannot take in rounds.
Plan in_stages(const PlanRequest& request) {
  Plan plan = request.base;
  plan.mesh.axes.clear();  // layouts say how ranks are used
  const auto asked = request.option<std::int64_t>("stages");
  const ScheduleKind schedule = asked_schedule(request);
  if (asked == 1) {
    if (schedule == ScheduleKind::gpipe) plan.schedule.kind = schedule;  // others are what one stage is without them
    return plan;
  }
  const Mesh& mesh = request.base.mesh;
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("{} in {} stages on {} nodes × {} ranks: {}", plan.strategy, asked, mesh.nodes,
                                  mesh.ranks_per_node, what));
  };
  if (asked > static_cast<std::int64_t>(request.graph.blocks.size())) {
    refuse(
        fmt::format("{} has {} blocks, and a stage has one or more", request.graph.name, request.graph.blocks.size()));
  }
  const auto places = static_cast<int>(places_of_stages(request, asked));
  if (!cuts_evenly(mesh, places)) {
    refuse(places == asked ? "a stage is neither whole nodes nor an even part of one"
                           : fmt::format("each of {} places is neither whole nodes nor an even part of one", places));
  }
  if (mesh.num_ranks() == places) {
    refuse(fmt::format("a rank a {} has nothing to lay out; strategy.name = {} does that",
                       places == asked ? "stage" : "place",
                       schedule == ScheduleKind::interleaved ? "interleaved" : "1f1b"));
  }
  if (schedule == ScheduleKind::interleaved && plan.schedule.micro_batches % places != 0) {
    refuse(
        fmt::format("train.micro_batches = {} is no multiple of the {} places of interleaved stages, which take as "
                    "many at once; accepted: {} or a multiple of it",
                    plan.schedule.micro_batches, places, places));
  }
  plan.mesh.axes = {{"stage", places}};
  plan.stages = {.count = static_cast<int>(asked), .cut_by = request.option<std::string>("cut_by")};
  plan.schedule.kind = schedule;
  return plan;
}

Plan on_one_stage(Plan plan) {
  plan.mesh = mesh_of_stage(plan.mesh);
  return plan;
}

LayerChain chain_of(const ModelGraph& graph, MatmulAlgorithm products, PartialSums sum, int directions) {
  LayerChain chain = layer_chain(graph);
  multiply_by(products, directions, chain);
  sum_by(sum, chain);
  return chain;
}

}  // namespace

OptionRow zero_option() {
  return {"zero", std::string("none"), "none | zero1",
          "zero1: the ranks that hold the same part of a matrix share its optimizer states"};
}

OptionRow sum_option() {
  return {"sum", std::string(to_string(PartialSums::scatter)), plan_words::sum,
          "how partial sums come together: each rank keeps its part, or all of them the whole, as Megatron-LM does"};
}

std::array<OptionRow, 4> stage_options() {
  return {OptionRow{"stages", std::int64_t{1}, ">= 1", "stages of a pipeline, each of equally many ranks"},
          OptionRow{"schedule", std::string("1f1b"), "1f1b | gpipe | interleaved",
                    "how the passes of several stages follow each other"},
          OptionRow{"chunks", std::int64_t{2}, ">= 1", "stages that the same ranks hold, where schedule = interleaved"},
          OptionRow{"cut_by", std::string("flops"), "flops | operators | parameters",
                    "what the largest stage has the least of"}};
}

LayoutPlanning::LayoutPlanning(const PlanRequest& request, const LayoutLimits& limits, MatmulAlgorithm products,
                               PartialSums sum, int directions)
    : request_(request),
      base_(in_stages(request)),
      stage_(on_one_stage(base_)),
      limits_(with_samples(limits, request)),
      shards_optimizer_(request.option<std::string>("zero") == "zero1"),
      chain_(chain_of(request.graph, products, sum, directions)),
      costs_(stage_, link_costs_of(request)),
      lasting_bytes_(request.graph, stage_, num_places(), shards_optimizer_) {}

bool LayoutPlanning::counts_bytes() const { return request_.option<std::string>("cost") == "volume"; }

double LayoutPlanning::seconds(std::span<const Layout> layouts) const {
  return all_stages_seconds(layouts) / num_places();
}

double LayoutPlanning::all_stages_seconds(std::span<const Layout> layouts) const {
  double sum = 0.0;
  for (std::size_t l = 0; l < layouts.size(); ++l) sum += costs_.seconds(chain_.layers[l], layouts[l]);
  for (const LayerLink& link : chain_.links) {
    const auto from = static_cast<std::size_t>(link.from), to = static_cast<std::size_t>(link.to);
    sum += costs_.seconds(link, chain_.layers[to], local_layout(chain_.layers[from], layouts[from]),
                          local_layout(chain_.layers[to], layouts[to]));
  }
  return sum;
}

std::string LayoutPlanning::seconds_in_words(double seconds) const {
  return counts_bytes() ? fmt::format("{:.6g} bytes", seconds) : fmt::format("{:.6g} s", seconds);
}

LayoutPlanning::Peak LayoutPlanning::peak(std::span<const Layout> layouts) const {
  // Stages differ, and hold what they have in flight, of which the closed form knows nothing.
  const bool has_stages = num_places() > 1 || base_.schedule.kind == ScheduleKind::gpipe;
  if (request_.evaluate != nullptr && (capacity_bytes() > 0 || has_stages)) {
    const Evaluation evaluation = request_.evaluate->memory(with_rules(layouts));
    if (evaluation.peak_bytes > 0) return {evaluation.peak_bytes, true};
    if (!evaluation.missing.empty()) throw Unsupported(evaluation.missing);  // lowering refuses, and says why
  }
  return {lasting_bytes_.of_all(chain_, layouts) / num_places(), false};
}

std::int64_t LayoutPlanning::excess_bytes(std::span<const Layout> layouts) const {
  if (request_.evaluate != nullptr && capacity_bytes() > 0 && num_places() > 1) {
    const Plan plan = with_rules(layouts);
    const Evaluation least = is_much_less_than_all(plan) ? request_.evaluate->least_memory(plan) : Evaluation{};
    if (least.peak_bytes > capacity_bytes()) return least.peak_bytes - capacity_bytes();
  }
  return peak(layouts).bytes - capacity_bytes();
}

Plan LayoutPlanning::with_rules(std::span<const Layout> layouts) const {
  const ModelGraph& graph = request_.graph;
  Plan plan = base_;
  if (shards_optimizer_) {
    plan.optimizer.sharding = "intra_tensor";
    plan.optimizer.spread = "all_gather";
    plan.optimizer.gradients = "reduce_scatter";
  }
  std::vector<RuleOfBlock> said;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& op = graph.operators[o];
    if (op.parameters.empty()) continue;
    const auto home = static_cast<std::size_t>(chain_.home[o]);
    const Layer& layer = chain_.layers[home];
    const bool is_layer = layer.op == static_cast<int>(o);
    OperatorRule rule{.match = name_within_block(graph, op)};
    rule.layout = is_layer ? layouts[home] : home_layout(local_layout(layer, layouts[home]), grid());
    if (is_layer && layer.algorithm != MatmulAlgorithm::local) rule.algorithm = layer.algorithm;
    if (is_layer && layer.directions > 1) rule.directions = layer.directions;
    if (is_layer && layer.sum != PartialSums::scatter) rule.sum = layer.sum;
    if (shards_optimizer_) {
      rule.state = StateFactors{.p = {}, .g = {}, .os = copies_of_weight(layouts[home], layer.algorithm)};
    }
    said.push_back({block_in_names(graph, op.block), std::move(rule)});
  }
  plan.operators = joined_over_blocks(std::move(said));
  return plan;
}

Plan LayoutPlanning::plan(std::span<const Layout> layouts, const std::string& why) const {
  Plan plan = with_rules(layouts);
  const double cost = knows_seconds() ? seconds(layouts) : 0.0, share = 1.0 / num_places();
  const Peak fullest = peak(layouts);
  plan.why.predicted_seconds = counts_bytes() ? 0.0 : cost;
  plan.why.predicted_peak_bytes = fullest.bytes;
  const StepVolume volume = costs_.volume(chain_, layouts);
  plan.why.binding = fmt::format(
      "{}; communication {}, a rank moves {:.6g} elements forward and {:.6g} backward a micro-batch and {:.6g} of "
      "weight gradients{}; bytes by {}",
      why, knows_seconds() ? seconds_in_words(cost) : "of unknown cost", share * volume.forward.total(),
      share * volume.backward.total(), share * volume.weight_gradients.total(),
      num_places() > 1 ? ", in the mean of the stages" : "",
      fullest.is_programs ? "the Program" : "what lasts, at least");
  return plan;
}

void LayoutPlanning::refuse_capacity(std::span<const Layout> best) const {
  const std::int64_t needed = peak(best).bytes;
  std::string parts;
  if (num_places() == 1 && request_.evaluate != nullptr) {
    const MemoryPeak of_program = request_.evaluate->memory(with_rules(best)).peak;
    const auto of = [&](Category category) { return gib(of_program.bytes[static_cast<int>(category)]); };
    parts = fmt::format(
        "; of it parameters {}, gradients {}, optimizer states {}, activations {}, on their way between ranks {}",
        of(Category::parameter), of(Category::gradient), of(Category::optimizer), of(Category::activation),
        of(Category::communication));
  }
  throw OutOfMemory(fmt::format("{}: the layouts that need least need {}, {} bytes too much{}",
                                nothing_fits(request_.base), gib(needed), needed - capacity_bytes(), parts));
}

}  // namespace strata

#include "planners/pipelines/degrees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/layouts/grid_search.hpp"
#include "planners/layouts/megatron_layouts.hpp"
#include "planners/pipelines/micro_batches.hpp"
#include "planners/pipelines/pipeline.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

/// Those up to @p most.
std::vector<int> divisors_of(std::int64_t n, std::int64_t most) {
  std::vector<int> all;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) all.push_back(static_cast<int>(d));
  }
  return all;
}

/// With @p micro_batches, and options as modes over layouts have them. All but the graph is the same.
PlanRequest request_in_stages(const PlanRequest& request, const ModelGraph& graph, const ParallelDegrees& degrees) {
  PlanRequest of_degrees{.graph = graph,
                         .cluster = request.cluster,
                         .base = request.base,
                         .options = {{"stages", std::int64_t{degrees.stages()}},
                                     {"schedule", std::string(degrees.chunks > 1 ? "interleaved" : "1f1b")},
                                     {"chunks", std::int64_t{degrees.chunks}},
                                     {"cut_by", request.option<std::string>("cut_by")},
                                     {"zero", std::string("none")},
                                     {"cost", std::string("volume")}},
                         .leaf_of_node = request.leaf_of_node,
                         .evaluate = request.evaluate};
  of_degrees.base.schedule.micro_batches = degrees.micro_batches;
  return of_degrees;
}

/// Every product by megatron's layouts on the ranks of a place.
Plan with_tensor_ranks(const PlanRequest& in_stages, const ParallelDegrees& degrees) {
  const LayoutPlanning planning(in_stages, {}, MatmulAlgorithm::local, degrees.sum);
  const Factor& grid = planning.grid();
  if (grid.total() % degrees.tensor != 0) {
    throw Unsupported(fmt::format("tensor = {} does not divide the {} ranks of a stage", degrees.tensor, grid.total()));
  }
  const Factor tensor = nearest_ranks(grid, degrees.tensor);
  const WayToCut way{fmt::format("tensor {}", to_string(tensor)), megatron_layouts(planning.chain(), grid, tensor)};
  if (const std::string broken = broken_limit(planning, way); !broken.empty()) throw Unsupported(broken);
  return planning.with_rules(way.layouts);
}

/// As `1f1b` and `interleaved`.
Plan with_whole_weights(const PlanRequest& in_stages, const ParallelDegrees& degrees) {
  const bool is_interleaved = degrees.chunks > 1;
  Plan plan =
      pipeline_plan(in_stages, is_interleaved ? ScheduleKind::interleaved : ScheduleKind::one_forward_one_backward,
                    degrees.stages(), degrees.places);
  data_grid(plan.mesh);  // refuses what is none
  if (is_interleaved && degrees.micro_batches % degrees.places != 0) {
    throw Unsupported(fmt::format(
        "{}: {} micro-batches are no multiple of the {} ranks of a pipeline (of {} ranks), which take as many at once",
        plan.strategy, degrees.micro_batches, degrees.places, plan.mesh.num_ranks()));
  }
  return plan;
}

/// All data ranks have equally many samples of a micro-batch.
bool shares_evenly(const Plan& base, const ParallelDegrees& degrees) {
  const int data = std::max(1, degrees.data(base.mesh.num_ranks()));
  return base.global_batch / degrees.micro_batches % data == 0;
}

}  // namespace

std::string in_words(const ParallelDegrees& degrees, int num_ranks) {
  std::string text = fmt::format("data {}", degrees.data(num_ranks));
  if (degrees.tensor > 1) text += fmt::format(" × tensor {} ({})", degrees.tensor, to_string(degrees.sum));
  text += fmt::format(" × stage {}", degrees.stages());
  if (degrees.chunks > 1) text += fmt::format(" ({} a rank)", degrees.chunks);
  return text + fmt::format(", {} micro-batches", degrees.micro_batches);
}

std::span<const OptionRow> degree_options() {
  static const std::array rows = {
      OptionRow{"stages", std::int64_t{0}, ">= 0", "stages of the pipeline, over all ranks; 0: searched"},
      OptionRow{"chunks", std::int64_t{0}, ">= 0", "stages a rank, interleaved if several; 0: searched"},
      OptionRow{"tensor", std::int64_t{0}, ">= 0",
                "ranks that share a weight, neighbours; 0: searched, inside nodes of several ranks"},
      OptionRow{"sum", std::string(planner_word), "planner | scatter | all_reduce",
                "how tensor ranks' partial sums come together: each keeps its part, or all have the whole"},
      OptionRow{"micro_batches", std::string("train"), "train | planner",
                "those of train.micro_batches, or searched beside the degrees"},
      OptionRow{"cut_by", std::string("flops"), "flops | operators | parameters",
                "what the largest stage has the least of"},
  };
  return rows;
}

void refuse_slices(const PlanRequest& request, const ParallelDegrees& degrees) {
  const auto slices = request.options.find("slices");
  if (slices == request.options.end() || degrees.tensor == 1 || std::get<std::int64_t>(slices->second) <= 1) return;
  throw Unsupported(fmt::format(
      "{} on {} ranks: slices = {} beside tensor = {}: operators that tensor ranks share are held whole; accepted: "
      "slices = -1 or 0, or tensor = 1",
      request.base.strategy, request.base.mesh.num_ranks(), std::get<std::int64_t>(slices->second), degrees.tensor));
}

std::vector<ParallelDegrees> asked_degrees(const PlanRequest& request) {
  const Mesh& mesh = request.base.mesh;
  const auto asked_stages = request.option<std::int64_t>("stages"),
             asked_chunks = request.option<std::int64_t>("chunks"),
             asked_tensor = request.option<std::int64_t>("tensor");
  const auto& asked_sum = request.option<std::string>("sum");
  const std::int64_t most = most_stages_of_model(request);
  const bool comes_out = asked_chunks == 0 || (asked_stages % asked_chunks == 0 && asked_stages / asked_chunks > 1);
  if (asked_stages > 1 && asked_chunks != 1 && !comes_out) {
    throw Unsupported(fmt::format("{} on {} ranks: {} stages in chunks of {}; accepted: {} or a greater multiple of {}",
                                  request.base.strategy, mesh.num_ranks(), asked_stages, asked_chunks, 2 * asked_chunks,
                                  asked_chunks));
  }
  const bool chooses_micro_batches = request.option<std::string>("micro_batches") == planner_word;
  std::vector<int> micro_batches = {request.base.schedule.micro_batches};
  if (chooses_micro_batches) micro_batches = divisors_of(request.base.global_batch, most_micro_batches_tried);
  std::vector<std::pair<int, int>> pipelines;  // places, chunks
  if (asked_stages > 0) {
    for (const int chunks : divisors_of(asked_stages, asked_stages))
      pipelines.emplace_back(asked_stages / chunks, chunks);
  } else {
    for (const int places : divisors_of(mesh.num_ranks(), mesh.num_ranks())) {
      for (int chunks = 1; chunks == 1 || places * chunks <= most; ++chunks) pipelines.emplace_back(places, chunks);
    }
  }
  std::erase_if(pipelines, [&](const auto& pipeline) {
    const auto& [places, chunks] = pipeline;
    // Of one rank's stages none is interleaved with another's.
    return (places == 1 && chunks > 1) || (asked_chunks > 0 && chunks != asked_chunks && places > 1);
  });
  std::vector<ParallelDegrees> all;
  for (const auto& [places, chunks] : pipelines) {
    const int ranks = std::max(1, mesh.num_ranks() / places);
    for (const int tensor :
         asked_tensor > 0 ? std::vector{static_cast<int>(asked_tensor)} : divisors_of(ranks, ranks)) {
      const bool is_in_node = tensor <= mesh.ranks_per_node || mesh.ranks_per_node == 1;
      if (asked_tensor == 0 && !is_in_node) continue;
      for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
        const bool is_asked = asked_sum == planner_word || asked_sum == to_string(sum);
        if (tensor == 1 ? sum != PartialSums::scatter : !is_asked) continue;
        for (const int count : micro_batches) {
          const ParallelDegrees degrees{
              .places = places, .chunks = chunks, .tensor = tensor, .sum = sum, .micro_batches = count};
          if (chooses_micro_batches && count > 1 && !shares_evenly(request.base, degrees)) continue;
          all.push_back(degrees);
        }
      }
    }
  }
  std::ranges::sort(all);
  return all;
}

Plan plan_of_degrees(const PlanRequest& request, const ParallelDegrees& degrees) {
  refuse_slices(request, degrees);
  const PlanRequest in_stages = request_in_stages(request, request.graph, degrees);
  return degrees.tensor > 1 ? with_tensor_ranks(in_stages, degrees) : with_whole_weights(in_stages, degrees);
}

Plan plan_of_place(const PlanRequest& request, const ModelGraph& part, const ParallelDegrees& degrees,
                   int micro_batches) {
  ParallelDegrees alone = degrees;
  alone.places = alone.chunks = 1;
  alone.micro_batches = micro_batches;
  PlanRequest of_place = request_in_stages(request, part, alone);
  Mesh& mesh = of_place.base.mesh;
  mesh.axes = {{"stage", degrees.places}};
  mesh = mesh_of_stage(mesh);
  of_place.base.global_batch = request.base.global_batch / degrees.micro_batches * micro_batches;
  if (degrees.tensor > 1) return with_tensor_ranks(of_place, alone);
  Plan plan = of_place.base;
  plan.mesh.axes = {{"data", mesh.num_ranks()}};
  return plan;
}

}  // namespace strata

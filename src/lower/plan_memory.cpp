#include "lower/plan_memory.hpp"

#include <algorithm>
#include <map>
#include <span>

#include "base/collective.hpp"
#include "ir/program/alike_micro_batches.hpp"
#include "lower/fewer_blocks.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "lower/rank_classes.hpp"
#include "partition/shards.hpp"

namespace strata {
namespace {

constexpr int enough_micro_batches = 3;

/// One after another, micro-batches between the first and the last keep alive what the others do.
Plan with_few_micro_batches(const Plan& plan) {
  return plan.schedule.kind == ScheduleKind::simultaneous ? with_at_most(plan, enough_micro_batches) : plan;
}

/// As many as fill a pipeline, and some behind them: no more are in flight at a time.
Plan with_full_pipeline(const Plan& plan) {
  const int places = axis_size(plan.mesh, "stage");
  switch (plan.schedule.kind) {
    case ScheduleKind::one_forward_one_backward: return with_at_most(plan, places + enough_micro_batches);
    case ScheduleKind::interleaved: return with_at_most(plan, enough_micro_batches * places);  // in rounds of places
    default: return plan;
  }
}

bool keeps_all_micro_batches(const Plan& plan) { return plan.schedule.kind == ScheduleKind::gpipe; }

/// Of a pipeline: few of them tell no sooner what all need.
bool lowers_all_micro_batches(const Plan& plan) {
  return keeps_all_micro_batches(plan) ? with_at_most(plan, enough_micro_batches + 1) == plan
                                       : with_full_pipeline(plan) == plan;
}

/// What is alive at once of the Program of @p rank at most, wherever that lies.
std::int64_t live_bytes(const Plan& plan, const ModelGraph& graph, int rank, KernelTraits kernels) {
  kernels.assigns_addresses = false;
  kernels.finds_waits = false;
  return memory_peak(lower(plan, graph, rank, kernels)).total_bytes;
}

/// Those of fullest_ranks() that stand at @p places; empty: all.
std::vector<int> fullest_ranks_at(std::span<const int> places, const Plan& plan, const ModelGraph& graph) {
  std::vector<int> ranks = fullest_ranks(plan, graph);
  if (places.empty()) return ranks;
  std::erase_if(
      ranks, [&](int rank) { return std::ranges::find(places, coordinate(plan.mesh, "stage", rank)) == places.end(); });
  return ranks;
}

/// The same of the fullest rank of each of @p places in the pipeline.
std::vector<std::int64_t> live_bytes_by_place(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                                              std::span<const int> places) {
  std::vector<std::int64_t> by_place(static_cast<std::size_t>(axis_size(plan.mesh, "stage")));
  for (const int rank : fullest_ranks_at(places, plan, graph)) {
    std::int64_t& of_place = by_place[static_cast<std::size_t>(coordinate(plan.mesh, "stage", rank))];
    of_place = std::max(of_place, live_bytes(plan, graph, rank, kernels));
  }
  return by_place;
}

/// The Program of @p rank, or of micro-batches one after another that of few whose arena is as large: of so many that
/// those between the first ones and the last lie where the ones before them lie.
Program lowered_for_memory(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels) {
  const bool is_in_turn = plan.schedule.kind == ScheduleKind::simultaneous;
  for (const int few : {4, 6}) {
    if (!is_in_turn || plan.schedule.micro_batches <= few) break;
    Program program = lower(with_at_most(plan, few), graph, rank, kernels);
    const std::vector<int> micro_batches = micro_batches_of(program, plan.schedule.sub_batches);
    if (addresses_repeat(program, micro_batches, {.first = few / 2 - 1, .last = few - 2})) return program;
  }
  return lower(plan, graph, rank, kernels);
}

/// Bytes of optimizer states by which the rank that owns most tensors exceeds even parts; 0 where none are dealt whole.
std::int64_t dealt_unevenly_bytes(const Plan& plan, const ModelGraph& graph,
                                  std::span<const OperatorDecision> decisions) {
  if (plan.optimizer.sharding != "inter_tensor" || has_layouts(plan.mesh)) return 0;
  std::map<int, std::int64_t> held;  // elements, by owner
  std::int64_t even = 0, most = 0;
  for (const ParameterShard& shard : shards_of(plan, graph, decisions, 0)) {
    const int parts = shard.factors.os.total() / shard.factors.p.total();
    std::int64_t& of_owner = held[shard.owner];
    of_owner += shard.held.size;
    most = std::max(most, of_owner);
    even += chunk_of(shard.held.size, parts, 0).size();
  }
  return optimizer_bytes_per_element(plan) * std::max<std::int64_t>(0, most - even);
}

/// Of one stage.
std::int64_t least_bytes_of_few_blocks(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels) {
  constexpr int enough = 2;  // what is gathered ahead is a neighbour's
  Plan even = with_few_micro_batches(plan);
  if (plan.optimizer.sharding == "inter_tensor") {
    even.optimizer.sharding = "intra_tensor";
    even.optimizer.spread = "all_gather";
  }
  const auto bytes_of_part = [&](const Plan& of_part, const ModelGraph& part) {
    return live_bytes(of_part, part, 0, kernels);  // Of what does not divide the first rank has most.
  };
  return FewBlocks(even, graph, enough, 1).told<std::int64_t>(bytes_of_part) +
         dealt_unevenly_bytes(plan, graph, resolve(plan, graph));
}

}  // namespace

PlanMemory plan_memory(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                       std::span<const int> places) {
  verify(plan, graph);
  PlanMemory memory;
  memory.stage_peak_bytes.resize(static_cast<std::size_t>(axis_size(plan.mesh, "stage")));
  for (const int rank : fullest_ranks_at(places, plan, graph)) {
    const Program program = lowered_for_memory(plan, graph, rank, kernels);
    std::int64_t& of_stage = memory.stage_peak_bytes[static_cast<std::size_t>(coordinate(plan.mesh, "stage", rank))];
    of_stage = std::max(of_stage, program.arena_bytes);
    if (program.arena_bytes <= memory.peak_bytes) continue;
    memory.peak_bytes = program.arena_bytes;
    memory.peak = memory_peak(program);
  }
  return memory;
}

std::vector<std::int64_t> least_memory_by_place(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                                                std::span<const int> places) {
  const bool is_lowered_whole = plan.stages.count > 1 && lowers_all_micro_batches(plan);
  return is_lowered_whole ? plan_memory(plan, graph, kernels, places).stage_peak_bytes
                          : live_memory_by_place(plan, graph, kernels, places);
}

std::vector<std::int64_t> live_memory_by_place(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                                               std::span<const int> places) {
  if (plan.stages.count == 1) return {least_bytes_of_few_blocks(plan, graph, kernels)};
  verify(plan, graph);
  if (lowers_all_micro_batches(plan)) return live_bytes_by_place(plan, graph, kernels, places);
  if (!keeps_all_micro_batches(plan)) return live_bytes_by_place(with_full_pipeline(plan), graph, kernels, places);
  std::vector<std::int64_t> by_place =
      live_bytes_by_place(with_at_most(plan, enough_micro_batches), graph, kernels, places);
  const std::vector<std::int64_t> of_one_more =
      live_bytes_by_place(with_at_most(plan, enough_micro_batches + 1), graph, kernels, places);
  const int left_out = plan.schedule.micro_batches - enough_micro_batches;
  for (std::size_t p = 0; p < by_place.size(); ++p) by_place[p] += left_out * (of_one_more[p] - by_place[p]);
  return by_place;
}

std::int64_t least_memory_bytes(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels) {
  return std::ranges::max(least_memory_by_place(plan, graph, kernels));
}

}  // namespace strata

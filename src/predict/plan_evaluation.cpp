#include "predict/plan_evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "lower/fewer_blocks.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "lower/lower.hpp"
#include "lower/plan_memory.hpp"
#include "lower/stages_by_name.hpp"
#include "planners/joint/normal_form.hpp"
#include "predict/prediction.hpp"
#include "predict/repeated_micro_batches.hpp"
#include "sim/steady_state.hpp"

namespace strata::predict {
namespace {

/// Empty if it fits.
std::string missing_memory(std::int64_t peak_bytes, std::int64_t capacity_bytes) {
  if (capacity_bytes == 0 || peak_bytes <= capacity_bytes) return "";
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  return fmt::format("a rank needs {:.3f} GiB of {:.3f} GiB ({} of {} bytes)", static_cast<double>(peak_bytes) / gib,
                     static_cast<double>(capacity_bytes) / gib, peak_bytes, capacity_bytes);
}

/// By instruction of the body. Several collectives of one stream between two kernels are waited for together.
std::vector<bool> are_holding_up_kernels(const Program& program) {
  std::vector<bool> result(program.body.size());
  const auto waits_for = [&](std::size_t i, int other) {
    return std::ranges::find(program.body[i].waits, Wait{other}) != program.body[i].waits.end();
  };
  int last_kernel = -1;
  std::vector<std::size_t> between;  // collectives behind it, of one stream, the first of which waits for it
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (!in.is_collective()) {
      if (!between.empty() && waits_for(i, static_cast<int>(between.back()))) {
        for (const std::size_t held : between) result[held] = true;
      }
      between.clear();
      last_kernel = static_cast<int>(i);
    } else if (between.empty() ? waits_for(i, last_kernel) : program.body[between.back()].stream == in.stream) {
      between.push_back(i);
    }
  }
  return result;
}

/// See PricedStep.
std::vector<KeptTensor> kept_tensors(const Program& program) {
  const auto operator_of = [](const Instruction& in) { return in.name.substr(0, in.name.find('/')); };
  std::map<int, KeptTensor> made;  // by buffer
  for (const Instruction& in : program.body) {
    if (in.micro_batch != 0) continue;
    if (in.phase == Phase::forward) {
      for (const int id : in.allocs) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
        made[id] = {.made_by = operator_of(in), .bytes = buffer.size_bytes()};
      }
      for (const int id : in.frees) made.erase(id);
    } else if (in.phase == Phase::recompute || in.phase == Phase::backward) {
      for (const Operand& operand : in.inputs) {
        if (const auto kept = made.find(operand.buffer); kept != made.end()) {
          kept->second.read_by.push_back(operator_of(in));
        }
      }
      for (const int id : in.allocs) made.erase(id);
    }
  }
  std::vector<KeptTensor> kept;
  for (auto& [_, tensor] : made) {
    if (!tensor.read_by.empty()) kept.push_back(std::move(tensor));
  }
  return kept;
}

/// @p row as planners are told it. @param costs null: what needs no simulation alone.
Evaluation evaluation_of(const results::StepRow& row, const Plan& plan, const CostModel* costs) {
  Evaluation evaluation;
  evaluation.source = costs == nullptr ? "program" : "simulator, " + costs->description();
  evaluation.peak_bytes = row.arena_peak_bytes;
  std::ranges::copy(row.sent_bytes, evaluation.bytes_sent.bytes);
  evaluation.missing = missing_memory(evaluation.peak_bytes, plan.device_capacity_bytes);
  if (costs != nullptr) evaluation.step_seconds = row.step_seconds_max;
  return evaluation;
}

/// Equal for plans of the same Programs, whichever mode made them, as far as normal forms tell.
std::string text_of_any_mode(Plan plan, const ModelGraph& graph) {
  plan.strategy.clear();
  plan.why = {};
  return to_text(in_normal_form(std::move(plan), graph));
}

/// Of a step in the steady state, by the slowest rank.
double simulated_seconds(const PreparedPoint& point, const LoweredJob& lowered, const CostModel& costs) {
  SimulationOptions options = simulation_options(point);
  options.keeps_events = false;
  return steady_step_seconds(simulate_steady(lowered.job(point.plan.mesh.ranks_per_node), costs, options));
}

}  // namespace

PlanEvaluation::PlanEvaluation(const PreparedPoint& point, std::string experiment_file)
    : point_(point), experiment_file_(std::move(experiment_file)) {
  point_.verifies_programs = false;
  SimulateSection& simulate = point_.experiment.simulate;
  simulate.steps = 1;
  simulate.noise = 0.0;
  simulate.straggler_ranks.clear();
}

Evaluation PlanEvaluation::operator()(const Plan& plan) const {
  return lowered_once(simulated_, plan, [&] { return told_apart(plan) ? apart(plan) : evaluate(plan, &costs()); });
}

/// Addresses take a third of a step's lowering and more, and of micro-batches one after another few say all that is to
/// be known of them.
bool PlanEvaluation::told_apart(const Plan& plan) {
  constexpr int many = 8;
  return plan.schedule.kind == ScheduleKind::simultaneous && plan.schedule.micro_batches >= many;
}

Evaluation PlanEvaluation::apart(const Plan& plan) const {
  Evaluation needed = memory(plan);
  if (needed.peak_bytes == 0) return needed;  // It is refused.
  PreparedPoint point = point_;
  point.plan = plan;
  point.assigns_addresses = false;
  Evaluation evaluation = evaluate(std::move(point), &costs());
  evaluation.peak_bytes = needed.peak_bytes;
  evaluation.missing = std::move(needed.missing);
  return evaluation;
}

bool PlanEvaluation::knows_seconds() const { return knows_costs(point_, "planner.cost"); }

std::optional<Evaluation> PlanEvaluation::at_least(const Plan& plan) const {
  // Of a vocabulary that does not divide some ranks have a token more, and with other samples and stages that makes
  // many Programs: without the tokens that are left over all have as many.
  const ModelGraph* even = with_even_vocabulary(most_tensor_ranks(plan));
  if (even == nullptr && plan.optimizer.sharding != "inter_tensor") return std::nullopt;
  return told_once(at_least_, plan, [&] {
    PreparedPoint point = point_;
    point.plan = plan;
    point.assigns_addresses = false;
    if (even != nullptr) {
      point.graph = *even;
      point.plan.stages = by_name(plan.stages, point_.graph);
    }
    std::optional<Evaluation> bound = at_least_of_dealt_tensors(point);
    if (!bound && even != nullptr) bound = at_least_of_even_vocabulary(std::move(point));
    return bound;
  });
}

template <typename EvaluationOf>
Evaluation PlanEvaluation::lowered_once(std::unordered_map<std::string, Evaluation>& known, const Plan& plan,
                                        const EvaluationOf& evaluation_of) const {
  // What lowering refuses it says of the mode that asks.
  return once(known, text_of_any_mode(plan, point_.graph), evaluation_of,
              [](const Evaluation& evaluation) { return evaluation.peak_bytes > 0; });
}

template <typename Value, typename ValueOf>
Value PlanEvaluation::once(std::unordered_map<std::string, Value>& known, std::string question, const ValueOf& value_of,
                           bool (*is_kept)(const std::type_identity_t<Value>&)) const {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto told = known.find(question); told != known.end()) return told->second;
  }
  Value value = value_of();
  if (is_kept != nullptr && !is_kept(value)) return value;
  const std::scoped_lock lock(mutex_);
  known.emplace(std::move(question), value);
  return value;
}

template <typename Value, typename ValueOf>
std::optional<Value> PlanEvaluation::told_once(std::unordered_map<std::string, std::optional<Value>>& known,
                                               const Plan& plan, const ValueOf& value_of) const {
  return once(known, text_of_any_mode(plan, point_.graph), [&]() -> std::optional<Value> {
    try {
      verify(plan, point_.graph);
      return value_of();
    } catch (const Unsupported&) {
      return std::nullopt;
    } catch (const UserError&) {
      return std::nullopt;
    }
  });
}

/// Ranks that even parts do not tell apart differ in what they update alone. If all of them did what one does, and that
/// one updated nothing, none would begin or end anything later.
std::optional<Evaluation> PlanEvaluation::at_least_of_dealt_tensors(const PreparedPoint& point) const {
  constexpr std::size_t many = 4;  // times as many classes as of even parts
  const Plan& plan = point.plan;
  if (plan.optimizer.sharding != "inter_tensor") return std::nullopt;
  Plan even = plan;
  even.optimizer.sharding = "intra_tensor";
  even.optimizer.spread = "all_gather";
  RankClasses alike = rank_classes(even, point.graph, point.leaves_that_matter());
  const RankClasses dealt = rank_classes(plan, point.graph, point.leaves_that_matter());
  if (dealt.representatives.size() < many * alike.representatives.size()) return std::nullopt;
  const KernelTraits kernels = kernels_of(point);
  LoweredJob lowered;
  Evaluation bound{.source = "simulator, without updates"};
  double update_seconds = 0.0;
  for (const int rank : alike.representatives) {
    const Program& program = lowered.programs.emplace_back(lower(plan, point.graph, rank, kernels));
    bound.peak_bytes = std::max(bound.peak_bytes, peak_bytes(program));
    for (const Instruction& in : program.body) {
      if (!in.is_collective() && in.phase == Phase::update) update_seconds += costs().kernel(program, in).seconds;
    }
  }
  lowered.class_of_rank = std::move(alike.class_of_rank);
  lowered.leaf_of_node.assign(point.leaves_that_matter().begin(), point.leaves_that_matter().end());
  bound.step_seconds = std::max(0.0, simulated_seconds(point, lowered, costs()) - update_seconds);
  bound.missing = missing_memory(bound.peak_bytes, plan.device_capacity_bytes);
  return bound;
}

/// @param point of the model without the tokens that are left over.
std::optional<Evaluation> PlanEvaluation::at_least_of_even_vocabulary(PreparedPoint point) const {
  const auto num_classes = [&](const ModelGraph& graph) {
    return rank_classes(point.plan, graph, point.leaves_that_matter()).representatives.size();
  };
  if (num_classes(point_.graph) < 2 * num_classes(point.graph)) return std::nullopt;
  Evaluation bound = evaluate(std::move(point), &costs());
  if (bound.peak_bytes == 0) return std::nullopt;  // It is refused.
  return bound;
}

const ModelGraph* PlanEvaluation::with_even_vocabulary(int parts) const {
  const std::scoped_lock lock(mutex_);
  const auto [known, is_new] = even_vocabularies_.try_emplace(parts);
  if (is_new) {
    const auto embedding = std::ranges::find(point_.graph.operators, OperatorKind::embedding, &Operator::kind);
    if (embedding == point_.graph.operators.end()) return nullptr;
    const std::int64_t tokens = embedding->attributes.integer("vocabulary");
    if (tokens % parts == 0 || tokens < 2 * parts) return nullptr;
    Experiment experiment = point_.experiment;
    experiment.model.vocabulary = tokens / parts * parts;
    known->second = model_of(experiment);
  }
  return known->second ? &*known->second : nullptr;
}

std::optional<double> PlanEvaluation::seconds_of_few(const Plan& plan, Tokens tokens) const {
  const ModelGraph* even = tokens == Tokens::all ? nullptr : with_even_vocabulary(most_tensor_ranks(plan));
  const ModelGraph& graph = even == nullptr ? point_.graph : *even;
  return told_once(of_few_[even == nullptr ? 0 : 1], plan, [&] {
    return plan.stages.count > 1 ? seconds_of_few_micro_batches(plan, graph) : seconds_of_few_blocks(plan, graph);
  });
}

std::optional<double> PlanEvaluation::seconds_of_few_blocks(const Plan& plan, const ModelGraph& graph) const {
  constexpr int kept = 2, added = 4;    // gradients of so many blocks mostly fill their buckets
  constexpr int at_least_as_quick = 2;  // times
  const FewBlocks few(plan, graph, kept, added);
  if (at_least_as_quick * few.num_blocks_asked() > std::ssize(graph.blocks)) return std::nullopt;
  return few.told<double>([&](const Plan& of_part, const ModelGraph& part) { return seconds_of_part(of_part, part); });
}

/// Once the pipeline is full each micro-batch, or each round of them where stages are interleaved, takes as long as the
/// one before: mostly behind as many as there are places, and nearly always behind twice as many.
std::optional<double> PlanEvaluation::seconds_of_few_micro_batches(const Plan& plan, const ModelGraph& graph) const {
  constexpr double at_least_as_quick = 1.5;  // times
  const Schedule& schedule = plan.schedule;
  const int places = axis_size(plan.mesh, "stage");
  const bool goes_in_rounds = schedule.kind == ScheduleKind::interleaved;
  if (!goes_in_rounds && schedule.kind != ScheduleKind::one_forward_one_backward) return std::nullopt;
  const int added = goes_in_rounds ? places : 2;
  const auto is_quick = [&](int few) { return at_least_as_quick * (few + few + added) <= schedule.micro_batches; };
  if (!is_quick(places)) return std::nullopt;
  const int few = is_quick(2 * places) ? 2 * places : places;
  Plan same_stages = plan;
  same_stages.stages = by_name(plan.stages, point_.graph);
  const double of_few = seconds_of_part(with_at_most(same_stages, few), graph);
  const double of_more = seconds_of_part(with_at_most(same_stages, few + added), graph);
  return of_few + (of_more - of_few) * (schedule.micro_batches - few) / added;
}

double PlanEvaluation::seconds_of_part(const Plan& plan, const ModelGraph& graph) const {
  PreparedPoint point = point_;
  point.graph = graph;
  point.plan = plan;
  point.assigns_addresses = false;
  const Evaluation evaluation = evaluate(std::move(point), &costs());
  if (evaluation.peak_bytes == 0) throw Unsupported(evaluation.missing);
  return evaluation.step_seconds;
}

Evaluation PlanEvaluation::account(const Plan& plan) const { return evaluate(plan, nullptr); }

Evaluation PlanEvaluation::memory(const Plan& plan) const {
  return lowered_once(memory_, plan, [&] { return memory_of(plan); });
}

Evaluation PlanEvaluation::memory_of(const Plan& plan) const {
  Evaluation evaluation;
  evaluation.source = "program";
  try {
    PlanMemory memory = plan_memory(plan, point_.graph, kernels_of(point_));
    evaluation.peak_bytes = memory.peak_bytes;
    evaluation.stage_peak_bytes = std::move(memory.stage_peak_bytes);
    evaluation.peak = memory.peak;
  } catch (const Unsupported& refusal) {
    evaluation.missing = refusal.what();
    return evaluation;
  }
  evaluation.missing = missing_memory(evaluation.peak_bytes, plan.device_capacity_bytes);
  return evaluation;
}

Evaluation PlanEvaluation::least_memory(const Plan& plan) const {
  return once(least_memory_, text_of_any_mode(plan, point_.graph), [&] { return least_memory_of(plan); });
}

Evaluation PlanEvaluation::least_memory_of(const Plan& plan) const {
  Evaluation evaluation;
  evaluation.source = "program of few blocks";
  try {
    evaluation.stage_peak_bytes = least_memory_by_place(plan, point_.graph, kernels_of(point_));
    evaluation.peak_bytes = std::ranges::max(evaluation.stage_peak_bytes);
  } catch (const Unsupported& refusal) {
    evaluation.missing = refusal.what();
    return evaluation;
  }
  evaluation.missing = missing_memory(evaluation.peak_bytes, plan.device_capacity_bytes);
  return evaluation;
}

std::vector<std::int64_t> PlanEvaluation::peaks_of_places(const Plan& plan, std::span<const int> places,
                                                          PeaksOf programs) const {
  std::string question = fmt::format("{} {}\n", fmt::join(places, ","), static_cast<int>(programs));
  question += text_of_any_mode(plan, point_.graph);
  return once(peaks_, std::move(question), [&] {
    std::vector<std::int64_t> asked;
    try {
      const std::vector<std::int64_t> by_place = peaks_by_place(plan, places, programs);
      for (const int place : places) asked.push_back(by_place[static_cast<std::size_t>(place)]);
    } catch (const Unsupported&) {
      asked.clear();
    }
    return asked;
  });
}

std::vector<std::int64_t> PlanEvaluation::peaks_by_place(const Plan& plan, std::span<const int> places,
                                                         PeaksOf programs) const {
  const KernelTraits kernels = kernels_of(point_);
  switch (programs) {
    case PeaksOf::alive: return live_memory_by_place(plan, point_.graph, kernels, places);
    case PeaksOf::few: return least_memory_by_place(plan, point_.graph, kernels, places);
    case PeaksOf::all: return plan_memory(plan, point_.graph, kernels, places).stage_peak_bytes;
  }
  throw InternalError("no such Programs");
}

PricedStep PlanEvaluation::price(const Plan& plan, const ModelGraph& part) const {
  PricedStep priced;
  Program program;
  KernelTraits kernels = kernels_of(point_);
  kernels.assigns_addresses = false;
  try {
    program = lower(plan, part, 0, kernels);
  } catch (const Unsupported& refusal) {
    priced.missing = refusal.what();
    return priced;
  }
  priced.live_bytes = memory_peak(program).total_bytes;
  if (plan.schedule.sub_batches == 1) priced.kept = kept_tensors(program);
  priced.overhead_seconds = costs().step_overhead_seconds();
  const auto ranks_of = [&](const Instruction& in) -> const std::vector<int>& {
    return program.groups[static_cast<std::size_t>(in.group)].ranks;
  };
  const int ranks_per_node = plan.mesh.ranks_per_node;
  const std::vector<bool> held_up = are_holding_up_kernels(program);
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    PricedInstruction& row = priced.instructions.emplace_back(PricedInstruction{.name = in.name,
                                                                                .phase = in.phase,
                                                                                .micro_batch = in.micro_batch,
                                                                                .stream = in.stream,
                                                                                .is_collective = in.is_collective()});
    if (!row.is_collective) {
      row.seconds = costs().kernel(program, in).seconds;
      continue;
    }
    row.place = placement(ranks_of(in), ranks_per_node, point_.leaves_that_matter());
    row.holds_up_kernels = held_up[i];
    row.collective = in.collective;
    row.bytes_sent = bytes_sent(program, in);
    row.seconds = costs().collective(in.collective, priced_bytes(program, in), row.place).seconds;
  }
  return priced;
}

double PlanEvaluation::collective_seconds(Collective kind, const Mesh& mesh, std::span<const int> ranks,
                                          std::int64_t bytes) const {
  const Placement place = placement(ranks, mesh.ranks_per_node, point_.leaves_that_matter());
  return costs().collective(kind, bytes, place).seconds;
}

bool PlanEvaluation::has_a_nic_to_itself(const Mesh& mesh) const {
  if (mesh.num_ranks() < 2 || mesh.ranks_per_node != 1 || costs().nics_per_node() != 1) return false;
  const Placement neighbours = placement(std::array{0, 1}, mesh.ranks_per_node, point_.leaves_that_matter());
  return costs().collective(Collective::all_gather, 1, neighbours).nics_used == 1;
}

const CostModel& PlanEvaluation::costs() const {
  std::call_once(once_, [this] { costs_ = cost_model(point_, experiment_file_, "planner.cost"); });
  return *costs_;
}

Evaluation PlanEvaluation::evaluate(const Plan& plan, const CostModel* costs) const {
  PreparedPoint point = point_;
  point.plan = plan;
  return evaluate(std::move(point), costs);
}

Evaluation PlanEvaluation::evaluate(PreparedPoint point, const CostModel* costs) {
  if (costs != nullptr) {
    if (const std::optional<RepeatedStep> repeated = repeated_step(point, *costs)) {
      return evaluation_of(repeated->row, point.plan, costs);
    }
  }
  LoweredJob lowered;
  try {
    lowered = lower_job_uncapped(point);
  } catch (const Unsupported& refusal) {
    Evaluation evaluation;
    evaluation.source = "program";
    evaluation.missing = refusal.what();
    return evaluation;
  }
  results::StepRow row;
  set_account(row, point, lowered);
  if (costs != nullptr) row.step_seconds_max = simulated_seconds(point, lowered, *costs);
  return evaluation_of(row, point.plan, costs);
}

}  // namespace strata::predict

#include "planners/pipelines/step_bound.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "partition/pipeline_passes.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"
#include "planners/pipelines/passes_in_turn.hpp"

namespace strata {

/// What a rank of one place holds at least, but for sharing states with others.
struct StepBounds::PlaceNeeds {
  std::int64_t kept_bytes = 0;          ///< for backward, at the fullest moment
  std::int64_t elements = 0;            ///< of parameters
  std::int64_t elements_read_once = 0;  ///< of them, those that no backward reads
  double layout_seconds = 0.0;          ///< of a step: what its tensor ranks exchange
  bool keeps_with_gradients = false;    ///< so much is kept also at a moment when there are gradients of all elements
};

/// What a place has to share with others.
struct StepBounds::SharingDemand {
  std::int64_t too_many_bytes = 0;  ///< where nothing is shared
  std::int64_t held_bytes = 0;      ///< by an element that is not
};

StepBounds::StepBounds(const PlanRequest& request, HeldStates states)
    : request_(request),
      states_(states),
      blocks_(request.graph, 3),
      part_(blocks_.part(-1)),
      is_read_by_backward_(request.graph.parameters.size()) {
  const std::vector<bool> has_gradient = tensors_with_gradient(request.graph);
  for (const Operator& op : request.graph.operators) {
    for (const int p : weights_read_by_backward(op, has_gradient[static_cast<std::size_t>(op.inputs.front())])) {
      is_read_by_backward_[static_cast<std::size_t>(p)] = true;
    }
  }
}

const OperatorsPrices& StepBounds::prices_of(const ParallelDegrees& degrees) {
  const std::tuple key(degrees.places, degrees.tensor, degrees.sum, degrees.micro_batches);
  if (const auto known = prices_.find(key); known != prices_.end()) return known->second;
  const int micro_batches = std::min(degrees.micro_batches, priced_micro_batches);
  const Plan place = plan_of_place(request_, part_, degrees, micro_batches);
  return prices_.emplace(key, prices_of_operators(request_, blocks_, part_, place)).first->second;
}

/// To or from stage @p stage, which begins with @p first_operator, and the one before it, of what every rank sends at
/// least.
double StepBounds::message_seconds(const ParallelDegrees& degrees, const Plan& plan, int first_operator,
                                   int stage) const {
  if (degrees.places == 1) return 0.0;
  const ModelGraph& graph = request_.graph;
  const int ranks = plan.mesh.num_ranks() / degrees.places;
  const std::int64_t samples = plan.global_batch / degrees.micro_batches / degrees.data(plan.mesh.num_ranks());
  const int parts = degrees.sum == PartialSums::scatter ? degrees.tensor : 1;
  double seconds = 0.0;
  for (const int t : tensors_across(graph, first_operator)) {
    const std::int64_t elements = samples * graph.tensors[static_cast<std::size_t>(t)].elements_per_sample() / parts;
    seconds +=
        request_.evaluate->message_seconds(plan.mesh, (stage - 1) % degrees.places * ranks,
                                           stage % degrees.places * ranks, elements * size_of(plan.dtypes.compute));
  }
  return seconds;
}

/// Of parameters that are used at a place, in one of its ranks. Of tensor ranks only matrices count.
std::int64_t StepBounds::num_elements(const ParallelDegrees& degrees, const std::vector<bool>& parameters) const {
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = request_.graph.parameters[p];
    const bool is_matrix = parameter.shape.size() > 1;
    if (parameters[p] && (degrees.tensor == 1 || is_matrix)) elements += parameter.num_elements() / degrees.tensor;
  }
  return elements;
}

/// Over the ranks of a place that hold the same parts of parameters, all @p bytes at once: in several it takes no less.
double StepBounds::collective_of_copies(Collective kind, const ParallelDegrees& degrees, const Plan& plan, int place,
                                        std::int64_t bytes) const {
  const int data = degrees.data(plan.mesh.num_ranks());
  if (data == 1 || bytes == 0) return 0.0;
  std::vector<int> ranks;
  for (int d = 0; d < data; ++d) ranks.push_back((place * data + d) * degrees.tensor);
  return request_.evaluate->collective_seconds(kind, plan.mesh, ranks, bytes);
}

double StepBounds::gradient_seconds(const ParallelDegrees& degrees, const Plan& plan, int place,
                                    const std::vector<bool>& parameters) const {
  const Collective kind = states_ == HeldStates::replicated ? Collective::all_reduce : Collective::reduce_scatter;
  return collective_of_copies(kind, degrees, plan, place,
                              num_elements(degrees, parameters) * size_of(plan.dtypes.gradient));
}

/// A place's kernels, behind the first micro-batch's forward through the places before it.
double StepBounds::kernel_seconds(const ParallelDegrees& degrees, const Plan& plan) {
  const OperatorsPrices& prices = prices_of(degrees);
  if (!prices.is_known) return 0.0;
  const std::vector<StagePrice> of_stages = prices_of_stages(request_.graph, plan, prices);
  const auto places = static_cast<std::size_t>(degrees.places);
  double bound = 0.0, fill = 0.0;
  for (std::size_t place = 0; place < places; ++place) {
    double computed = fill;
    for (std::size_t s = place; s < of_stages.size(); s += places) {
      const PassPrices& passes = of_stages[s].passes;
      for (const auto* of_phase : passes.all()) {
        computed += in_step(*of_phase, &PassPrice::kernels, degrees.micro_batches);
      }
    }
    bound = std::max(bound, computed);
    fill += of_stages[place].passes.forward[0].kernels;
  }
  return bound + prices.overhead_seconds;
}

double StepBounds::seconds(const ParallelDegrees& degrees, const Plan& plan) {
  const OperatorsPrices& prices = prices_of(degrees);
  return std::max(seconds(degrees, plan, prices, true), sharing_seconds(degrees, plan, prices));
}

double StepBounds::seconds_of_alike_blocks(ParallelDegrees degrees, const Plan& plan) const {
  // Such steps have no bubble; places are priced in the order of ranks; and the first sub-batch of a pass goes on to
  // the next stage before the others have come.
  if (has_steps_that_overlap(plan.schedule.kind) || plan.mesh.placement != Mesh{}.placement) return 0.0;
  if (degrees.places > 1 && plan.schedule.sub_batches > 1) return 0.0;
  const std::vector<OperatorDecision> decisions = resolve(plan, request_.graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const int stand_in = blocks_.id_of_stand_in(static_cast<int>(o));
    if (decisions[o] != decisions[static_cast<std::size_t>(stand_in)]) return 0.0;
  }
  Plan place = with_rules_of(plan, part_);
  place.mesh = mesh_of_stage(plan.mesh);
  std::ranges::copy_if(plan.mesh.axes, std::back_inserter(place.mesh.axes),
                       [](const MeshAxis& axis) { return axis.name != "stage"; });
  place.stages = {};
  place.schedule.kind = ScheduleKind::simultaneous;
  place.schedule.micro_batches = std::min(plan.schedule.micro_batches, priced_micro_batches);
  place.global_batch = plan.global_batch / plan.schedule.micro_batches * place.schedule.micro_batches;
  degrees.sum = PartialSums::scatter;  // a message has no more than what one rank holds of it
  OperatorsPrices prices = prices_of_operators(request_, blocks_, part_, place);
  // A rank may hold all of one parameter and nothing of another, and of other parameters in the part than in the model.
  const bool has_sharded_states = std::ranges::any_of(
      decisions, [](const OperatorDecision& d) { return d.state != StateFactors{} || d.slices > 0; });
  if (has_sharded_states) std::ranges::fill(prices.update_seconds, 0.0);
  return seconds(degrees, plan, prices, false);
}

double StepBounds::seconds(const ParallelDegrees& degrees, const Plan& plan, const OperatorsPrices& prices,
                           bool sums_gradients) const {
  if (!prices.is_known) return 0.0;
  const std::vector<StagePrice> of_stages = prices_of_stages(request_.graph, plan, prices);
  const std::vector<Stage> stages = cut_into_stages(request_.graph, plan.stages);
  const auto places = static_cast<std::size_t>(degrees.places);
  const double others = degrees.micro_batches - 1;  // behind the first micro-batch
  // The passes whose gradients are the last: of a stage one, of interleaved ones those that take turns with them.
  const double last = degrees.chunks > 1 ? degrees.places : 1;
  const bool updates_behind = plan.overlap.update == "none";
  // Else a message leaves before the gradients of weights are made.
  const bool sends_behind_kernels = degrees.tensor == 1 || plan.overlap.layout == "none";
  std::vector<double> messages(stages.size());  // by stage, from or to the one before it
  for (std::size_t stage = 1; stage < stages.size(); ++stage) {
    messages[stage] = message_seconds(degrees, plan, stages[stage].first_operator, static_cast<int>(stage));
  }
  double bound = 0.0, fill = 0.0, drain = 0.0, first_update = 0.0;
  for (std::size_t place = 0; place < places; ++place) {
    double forward = 0.0, backward = 0.0, last_backward = 0.0, update = 0.0;
    std::vector<bool> parameters(request_.graph.parameters.size());
    for (std::size_t s = place; s < of_stages.size(); s += places) {
      const PassPrices& passes = of_stages[s].passes;
      const auto backward_of = [&](std::size_t m) {
        return passes.again[m].occupied() + passes.backward[m].occupied();
      };
      forward += passes.forward[0].occupied() + others * passes.forward[1].occupied();
      backward += backward_of(0) + others * backward_of(1);
      last_backward += backward_of(1);
      update += of_stages[s].update_seconds;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p] = parameters[p] || of_stages[s].parameters[p];
      }
    }
    if (place == 0) first_update = updates_behind ? update : 0.0;
    const double computed = fill + forward + backward;
    bound = std::max({bound, computed + update, computed + (place > 0 ? drain + first_update : 0.0)});
    const double summed = sums_gradients ? gradient_seconds(degrees, plan, static_cast<int>(place), parameters) : 0.0;
    const bool runs_under = states_ != HeldStates::replicated || plan.overlap.all_reduce == "backward";
    bound = std::max(bound, summed + computed - (runs_under ? std::min(last * last_backward, backward) : 0.0));
    if (place + 1 == places) break;
    fill += of_stages[place].passes.forward[0].whole() + messages[place + 1];
    if (sends_behind_kernels) drain += of_stages[place].passes.backward[1].whole() + messages[place + 1];
  }
  if (takes_passes_in_turn(plan)) {
    bound = std::max(bound,
                     seconds_of_passes_in_turn(plan, of_stages, messages, prices.has_one_stream, sends_behind_kernels) +
                         first_update);
  }
  return bound + prices.overhead_seconds;
}

std::vector<StepBounds::PlaceNeeds> StepBounds::needs_of_places(const ParallelDegrees& degrees, const Plan& plan,
                                                                const OperatorsPrices& prices) const {
  const std::vector<StagePrice> of_stages = prices_of_stages(request_.graph, plan, prices);
  const std::vector<Stage> stages = cut_into_stages(request_.graph, plan.stages);
  std::vector<PlaceNeeds> all;
  for (int place = 0; place < degrees.places; ++place) {
    const PlaceInPipeline here = place_in_pipeline(plan, place);
    std::vector<std::int64_t> in_flight(static_cast<std::size_t>(degrees.chunks));  // by stage of the place
    for (int k = 0; k < here.most_in_flight(); ++k) ++in_flight[static_cast<std::size_t>(here.turn_of_forward(k))];
    PlaceNeeds& needs = all.emplace_back();
    std::vector<bool> parameters(request_.graph.parameters.size());
    for (std::size_t turn = 0; turn < in_flight.size(); ++turn) {
      const std::size_t s = turn * static_cast<std::size_t>(degrees.places) + static_cast<std::size_t>(place);
      needs.kept_bytes += in_flight[turn] * kept_bytes(prices, stages[s]);
      const PassPrices& passes = of_stages[s].passes;
      for (const auto* of_phase : passes.all()) {
        needs.layout_seconds += in_step(*of_phase, &PassPrice::collectives, degrees.micro_batches);
      }
      for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p] = parameters[p] || of_stages[s].parameters[p];
    }
    needs.elements = num_elements(degrees, parameters);
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p] = parameters[p] && !is_read_by_backward_[p];
    needs.elements_read_once = num_elements(degrees, parameters);
    // When each stage's backward has come, as many passes are in flight again, unless too few are left.
    needs.keeps_with_gradients = here.most_in_flight() + degrees.stages() <= degrees.chunks * degrees.micro_batches;
  }
  return all;
}

/// Of an element of a parameter, without its gradient, which not every moment has.
std::int64_t StepBounds::state_bytes(const Plan& plan) const {
  return size_of(plan.dtypes.compute) + optimizer_bytes_per_element(plan);
}

std::int64_t StepBounds::bytes(const ParallelDegrees& degrees, const Plan& plan) {
  const OperatorsPrices& prices = prices_of(degrees);
  if (!prices.is_known) return 0;
  const int copies = states_ == HeldStates::replicated ? 1 : degrees.data(plan.mesh.num_ranks());
  std::int64_t most = 0;
  for (const PlaceNeeds& needs : needs_of_places(degrees, plan, prices)) {
    most = std::max(most, needs.elements * state_bytes(plan) / copies + needs.kept_bytes);
  }
  return most;
}

/// What ZDP sends for each micro-batch, of as few elements as leave room for the others.
/// @param demand_of by (place, its needs).
template <typename DemandOf>
double StepBounds::sharing_seconds_of(const ParallelDegrees& degrees, const Plan& plan, const OperatorsPrices& prices,
                                      const DemandOf& demand_of) const {
  const int copies = degrees.data(plan.mesh.num_ranks());
  if (plan.device_capacity_bytes == 0 || copies == 1 || !prices.is_known) return 0.0;
  double slowest = 0.0;
  const bool take_turns = request_.evaluate->has_a_nic_to_itself(plan.mesh);
  const std::vector<PlaceNeeds> places = needs_of_places(degrees, plan, prices);
  for (std::size_t p = 0; p < places.size(); ++p) {
    const PlaceNeeds& needs = places[p];
    const SharingDemand demand = demand_of(p, needs);
    if (demand.too_many_bytes <= 0) continue;
    const double saved_bytes = static_cast<double>(demand.held_bytes) * (copies - 1) / copies;  // by an element
    const auto shared = static_cast<std::int64_t>(static_cast<double>(demand.too_many_bytes) / saved_bytes);
    const std::int64_t shared_and_read_again = std::max<std::int64_t>(0, shared - needs.elements_read_once);
    const auto seconds_of = [&](Collective kind, std::int64_t elements, DType dtype) {
      return collective_of_copies(kind, degrees, plan, static_cast<int>(p), elements * size_of(dtype));
    };
    const double of_micro_batch = seconds_of(Collective::all_gather, shared, plan.dtypes.compute) +
                                  seconds_of(Collective::all_gather, shared_and_read_again, plan.dtypes.compute) +
                                  seconds_of(Collective::reduce_scatter, shared, plan.dtypes.gradient);
    const double besides = take_turns ? needs.layout_seconds : 0.0;
    slowest = std::max(slowest, besides + degrees.micro_batches * of_micro_batch);
  }
  return slowest + prices.overhead_seconds;
}

double StepBounds::sharing_seconds(const ParallelDegrees& degrees, const Plan& plan,
                                   const OperatorsPrices& prices) const {
  if (states_ != HeldStates::dp_or_zdp) return 0.0;
  return sharing_seconds_of(degrees, plan, prices, [&](std::size_t, const PlaceNeeds& needs) {
    const std::int64_t held_bytes =
        state_bytes(plan) + (needs.keeps_with_gradients ? size_of(plan.dtypes.gradient) : 0);
    return SharingDemand{.too_many_bytes = needs.kept_bytes + needs.elements * held_bytes - plan.device_capacity_bytes,
                         .held_bytes = held_bytes};
  });
}

double StepBounds::sharing_seconds(const ParallelDegrees& degrees, const Plan& plan,
                                   std::span<const std::int64_t> peaks) {
  return sharing_seconds_of(degrees, plan, prices_of(degrees), [&](std::size_t p, const PlaceNeeds&) {
    // When the Program holds most, it may hold gradients, and copies of them on their way, which are scattered here.
    const std::int64_t travelling_bytes = 2 * plan.overlap.bucket_bytes;
    return SharingDemand{.too_many_bytes = peaks[p] - travelling_bytes - plan.device_capacity_bytes,
                         .held_bytes = state_bytes(plan) + size_of(plan.dtypes.gradient)};
  });
}

}  // namespace strata

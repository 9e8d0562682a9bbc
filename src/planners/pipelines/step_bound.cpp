#include "planners/pipelines/step_bound.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "partition/pipeline_passes.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// What one operator does in one pass of one micro-batch, or several one after another do.
struct PassSeconds {
  double kernels = 0.0, collectives = 0.0;
  double ahead = 0.0, behind = 0.0;  ///< of the collectives: those before its first kernel, and behind its last
  bool has_kernels = false;

  void append(const PassSeconds& next) {
    ahead += has_kernels ? 0.0 : next.ahead;
    behind = next.has_kernels ? next.behind : behind + next.collectives;
    has_kernels = has_kernels || next.has_kernels;
    kernels += next.kernels;
    collectives += next.collectives;
  }
  void append(double seconds, bool is_collective) {
    append(is_collective ? PassSeconds{.collectives = seconds, .ahead = seconds, .behind = seconds}
                         : PassSeconds{.kernels = seconds, .has_kernels = true});
  }
  double whole() const { return kernels + collectives; }
  /// Of the rank: what stands at its ends runs under other passes.
  double occupied() const { return has_kernels ? whole() - ahead - behind : 0.0; }
};

/// Of the first micro-batch, and of one behind it, whose gradients are added to what is there.
struct Passes {
  std::array<PassSeconds, 2> forward, again, backward;
};

/// Of all micro-batches of a step.
double in_step(const std::array<PassSeconds, 2>& passes, double PassSeconds::*part, int micro_batches) {
  return passes[0].*part + (micro_batches - 1) * passes[1].*part;
}

constexpr int priced_micro_batches = 2;

/// In the order of partition/pipeline_passes.hpp, each as a whole.
bool takes_passes_in_turn(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  const bool is_in_turn =
      schedule.kind == ScheduleKind::one_forward_one_backward || schedule.kind == ScheduleKind::interleaved;
  return is_in_turn && schedule.sub_batches == 1 && !schedule.cross_pass;
}

}  // namespace

/// What an operator makes in its forward that is read when the backward of others comes, or its own.
struct StepBounds::Kept {
  std::vector<int> readers;  ///< how far behind it these operators stand
  std::int64_t bytes = 0;    ///< of a micro-batch
};

struct StepBounds::Prices {
  std::map<std::string, Passes, std::less<>> passes;           ///< by operator of the part
  std::map<std::string, std::vector<Kept>, std::less<>> kept;  ///< by operator of the part
  /// By operator of the model, what stands for it in the maps, which are moved and never copied; null: nothing.
  std::vector<const Passes*> passes_of;
  std::vector<const std::vector<Kept>*> kept_of;
  std::vector<double> update_seconds;  ///< by parameter of the model
  double overhead_seconds = 0.0;       ///< of a step
  bool is_known = false;
};

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

/// What is of one stage.
struct StepBounds::StageShare {
  Passes passes;
  double update_seconds = 0.0;
  std::vector<bool> parameters;  ///< by parameter: used here
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
StepBounds::~StepBounds() = default;

/// @param place of the part, without stages.
StepBounds::Prices StepBounds::priced(const Plan& place) const {
  Prices prices;
  const PricedStep step = request_.evaluate->price(place, part_);
  if (!step.missing.empty()) return prices;
  prices.is_known = true;
  prices.overhead_seconds = step.overhead_seconds;
  std::map<std::string, double, std::less<>> updates;  // by parameter of the part
  for (const PricedInstruction& in : step.instructions) {
    if (in.phase == Phase::update) updates[in.name] += in.seconds;
    const bool is_pass = in.phase == Phase::forward || in.phase == Phase::recompute || in.phase == Phase::backward;
    if (!is_pass || (in.is_collective && !in.holds_up_kernels)) continue;
    Passes& passes = prices.passes[in.name.substr(0, in.name.find('/'))];
    auto& of_phase = in.phase == Phase::forward     ? passes.forward
                     : in.phase == Phase::recompute ? passes.again
                                                    : passes.backward;
    const int micro_batch = in.micro_batch / place.schedule.sub_batches;
    of_phase[static_cast<std::size_t>(micro_batch)].append(in.seconds, in.is_collective);
  }
  std::map<std::string, int, std::less<>> position;
  for (std::size_t o = 0; o < part_.operators.size(); ++o) position.emplace(part_.operators[o].name, o);
  for (const KeptTensor& tensor : step.kept) {
    const auto maker = position.find(tensor.made_by);
    if (maker == position.end()) continue;
    Kept& kept = prices.kept[tensor.made_by].emplace_back(Kept{.readers = {}, .bytes = tensor.bytes});
    for (const std::string& name : tensor.read_by) {
      if (const auto reader = position.find(name); reader != position.end()) {
        kept.readers.push_back(reader->second - maker->second);
      }
    }
  }
  if (place.schedule.micro_batches == 1) {
    for (auto& [_, passes] : prices.passes) {
      for (auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) (*of_phase)[1] = (*of_phase)[0];
    }
  }
  // Looked up once, and not for every stage of every combination of degrees.
  const ModelGraph& graph = request_.graph;
  const auto value_of = [](const auto& by_name, const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : &found->second;
  };
  prices.update_seconds.resize(graph.parameters.size());
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& stand_in = blocks_.stands_for(static_cast<int>(o));
    prices.passes_of.push_back(value_of(prices.passes, stand_in.name));
    prices.kept_of.push_back(value_of(prices.kept, stand_in.name));
    for (std::size_t i = 0; i < stand_in.parameters.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(stand_in.parameters[i]);
      const double* seconds = value_of(updates, graph.parameters[parameter].name);
      const int own = graph.operators[o].parameters[i];
      if (seconds != nullptr) prices.update_seconds[static_cast<std::size_t>(own)] = *seconds;
    }
  }
  return prices;
}

const StepBounds::Prices& StepBounds::prices_of(const ParallelDegrees& degrees) {
  std::unique_ptr<Prices>& known = prices_[{degrees.places, degrees.tensor, degrees.sum, degrees.micro_batches}];
  if (known == nullptr) {
    const int micro_batches = std::min(degrees.micro_batches, priced_micro_batches);
    known = std::make_unique<Prices>(priced(plan_of_place(request_, part_, degrees, micro_batches)));
  }
  return *known;
}

std::vector<StepBounds::StageShare> StepBounds::shares_of(const Plan& plan, const Prices& prices) const {
  const ModelGraph& graph = request_.graph;
  std::vector<StageShare> shares;
  for (const Stage& stage : cut_into_stages(graph, plan.stages)) {
    StageShare& share = shares.emplace_back();
    share.parameters.resize(graph.parameters.size());
    const auto append = [&](int o, auto member, std::array<PassSeconds, 2>& to) {
      const Passes* passes = prices.passes_of[static_cast<std::size_t>(o)];
      if (passes == nullptr) return;
      for (std::size_t m = 0; m < 2; ++m) to[m].append((passes->*member)[m]);
    };
    for (int o = stage.first_operator; o < stage.end(); ++o) {
      append(o, &Passes::forward, share.passes.forward);
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) {
        const auto parameter = static_cast<std::size_t>(p);
        if (share.parameters[parameter]) continue;
        share.parameters[parameter] = true;
        share.update_seconds += prices.update_seconds[parameter];
      }
    }
    for (int o = stage.end(); o-- > stage.first_operator;) {
      append(o, &Passes::again, share.passes.again);
      append(o, &Passes::backward, share.passes.backward);
    }
  }
  return shares;
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
  const Prices& prices = prices_of(degrees);
  if (!prices.is_known) return 0.0;
  const std::vector<StageShare> shares = shares_of(plan, prices);
  const auto places = static_cast<std::size_t>(degrees.places);
  double bound = 0.0, fill = 0.0;
  for (std::size_t place = 0; place < places; ++place) {
    double computed = fill;
    for (std::size_t s = place; s < shares.size(); s += places) {
      const Passes& passes = shares[s].passes;
      for (const auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) {
        computed += in_step(*of_phase, &PassSeconds::kernels, degrees.micro_batches);
      }
    }
    bound = std::max(bound, computed);
    fill += shares[place].passes.forward[0].kernels;
  }
  return bound + prices.overhead_seconds;
}

double StepBounds::seconds(const ParallelDegrees& degrees, const Plan& plan) {
  const Prices& prices = prices_of(degrees);
  return std::max(seconds(degrees, plan, prices, true), sharing_seconds(degrees, plan, prices));
}

double StepBounds::seconds_of_alike_blocks(ParallelDegrees degrees, const Plan& plan) {
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
  Prices prices = priced(place);
  // A rank may hold all of one parameter and nothing of another, and of other parameters in the part than in the model.
  const bool has_sharded_states = std::ranges::any_of(
      decisions, [](const OperatorDecision& d) { return d.state != StateFactors{} || d.slices > 0; });
  if (has_sharded_states) std::ranges::fill(prices.update_seconds, 0.0);
  return seconds(degrees, plan, prices, false);
}

double StepBounds::seconds(const ParallelDegrees& degrees, const Plan& plan, const Prices& prices,
                           bool sums_gradients) const {
  if (!prices.is_known) return 0.0;
  const std::vector<StageShare> shares = shares_of(plan, prices);
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
    for (std::size_t s = place; s < shares.size(); s += places) {
      const Passes& passes = shares[s].passes;
      const auto backward_of = [&](std::size_t m) {
        return passes.again[m].occupied() + passes.backward[m].occupied();
      };
      forward += passes.forward[0].occupied() + others * passes.forward[1].occupied();
      backward += backward_of(0) + others * backward_of(1);
      last_backward += backward_of(1);
      update += shares[s].update_seconds;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p] = parameters[p] || shares[s].parameters[p];
      }
    }
    if (place == 0) first_update = updates_behind ? update : 0.0;
    const double computed = fill + forward + backward;
    bound = std::max({bound, computed + update, computed + (place > 0 ? drain + first_update : 0.0)});
    const double summed = sums_gradients ? gradient_seconds(degrees, plan, static_cast<int>(place), parameters) : 0.0;
    const bool runs_under = states_ != HeldStates::replicated || plan.overlap.all_reduce == "backward";
    bound = std::max(bound, summed + computed - (runs_under ? std::min(last * last_backward, backward) : 0.0));
    if (place + 1 == places) break;
    fill += shares[place].passes.forward[0].whole() + messages[place + 1];
    if (sends_behind_kernels) drain += shares[place].passes.backward[1].whole() + messages[place + 1];
  }
  if (takes_passes_in_turn(plan)) {
    bound = std::max(bound, passes_seconds(plan, shares, messages, sends_behind_kernels) + first_update);
  }
  return bound + prices.overhead_seconds;
}

/// Until the first place has ended its last pass, each place taking its own in order, and each pass behind the one of
/// the stage before it, or in backward behind it.
double StepBounds::passes_seconds(const Plan& plan, std::span<const StageShare> shares,
                                  std::span<const double> messages, bool sends_behind_kernels) {
  const auto num_stages = static_cast<int>(shares.size()), micro_batches = plan.schedule.micro_batches;
  const int num_places = axis_size(plan.mesh, "stage");
  constexpr double not_yet = -1.0;
  // When what a stage needs of a micro-batch is there, forward and backward: [stage * M + micro-batch].
  std::vector<double> input(shares.size() * static_cast<std::size_t>(micro_batches), not_yet);
  std::vector<double> gradient = input;
  const auto at = [&](int stage, int m) {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches) + static_cast<std::size_t>(m);
  };
  for (int m = 0; m < micro_batches; ++m) input[at(0, m)] = gradient[at(num_stages - 1, m)] = 0.0;
  struct Place {
    std::vector<PipelinePass> passes;
    std::size_t next = 0;
    double free = 0.0;
  };
  std::vector<Place> places;
  for (int place = 0; place < num_places; ++place) {
    places.push_back({.passes = pipeline_passes(place_in_pipeline(plan, place))});
  }
  const auto take = [&](Place& place, const PipelinePass& pass, int stage) {
    const Passes& of_stage = shares[static_cast<std::size_t>(stage)].passes;
    const std::size_t which = pass.micro_batch == 0 ? 0 : 1;
    const double there = (pass.is_forward ? input : gradient)[at(stage, pass.micro_batch)];
    if (there == not_yet) return false;
    const PassSeconds& seconds = (pass.is_forward ? of_stage.forward : of_stage.backward)[which];
    // What runs again may do so before the gradient comes.
    if (!pass.is_forward) place.free += of_stage.again[which].occupied();
    double left = there + seconds.collectives;
    if (seconds.has_kernels) {
      place.free = std::max(place.free, there + seconds.ahead) + seconds.occupied();
      left = place.free + seconds.behind;
    }
    if (pass.is_forward && stage + 1 < num_stages) {
      input[at(stage + 1, pass.micro_batch)] = left + messages[static_cast<std::size_t>(stage) + 1];
    } else if (!pass.is_forward && stage > 0) {
      gradient[at(stage - 1, pass.micro_batch)] =
          (sends_behind_kernels ? left : there) + messages[static_cast<std::size_t>(stage)];
    }
    return true;
  };
  for (bool is_going_on = true; is_going_on;) {
    is_going_on = false;
    for (int p = 0; p < num_places; ++p) {
      Place& place = places[static_cast<std::size_t>(p)];
      for (; place.next < place.passes.size(); ++place.next) {
        const PipelinePass& pass = place.passes[place.next];
        if (!take(place, pass, pass.turn * num_places + p)) break;
        is_going_on = true;
      }
    }
  }
  STRATA_INVARIANT(places.front().next == places.front().passes.size(), "passes that wait for each other");
  return places.front().free;
}

/// Of a micro-batch between its passes through @p stage. What stages before it made is left out.
std::int64_t StepBounds::kept_bytes(const Prices& prices, const Stage& stage) const {
  std::int64_t bytes = 0;
  for (int o = stage.first_operator; o < stage.end(); ++o) {
    const std::vector<Kept>* made_here = prices.kept_of[static_cast<std::size_t>(o)];
    if (made_here == nullptr) continue;
    for (const Kept& kept : *made_here) {
      const bool is_read_here = std::ranges::any_of(kept.readers, [&](int behind) { return o + behind < stage.end(); });
      if (is_read_here) bytes += kept.bytes;
    }
  }
  return bytes;
}

std::vector<StepBounds::PlaceNeeds> StepBounds::needs_of_places(const ParallelDegrees& degrees, const Plan& plan,
                                                                const Prices& prices) const {
  const std::vector<StageShare> shares = shares_of(plan, prices);
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
      const Passes& passes = shares[s].passes;
      for (const auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) {
        needs.layout_seconds += in_step(*of_phase, &PassSeconds::collectives, degrees.micro_batches);
      }
      for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p] = parameters[p] || shares[s].parameters[p];
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
  const Prices& prices = prices_of(degrees);
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
double StepBounds::sharing_seconds_of(const ParallelDegrees& degrees, const Plan& plan, const Prices& prices,
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

double StepBounds::sharing_seconds(const ParallelDegrees& degrees, const Plan& plan, const Prices& prices) const {
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

#include "planners/pipelines/step_bound.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/dtype.hpp"
#include "partition/stages.hpp"
#include "partition/stages_of_places.hpp"

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

constexpr int priced_micro_batches = 2;

}  // namespace

struct StepBounds::Prices {
  std::map<std::string, Passes, std::less<>> passes;   ///< by operator of the part
  std::map<std::string, double, std::less<>> updates;  ///< by parameter of the part
  double overhead_seconds = 0.0;                       ///< of a step
  bool is_known = false;
};

/// What is of one stage.
struct StepBounds::StageShare {
  Passes passes;
  double update_seconds = 0.0;
  std::vector<bool> parameters;  ///< by parameter: used here
};

StepBounds::StepBounds(const PlanRequest& request, GradientSums gradients)
    : request_(request), gradients_(gradients), blocks_(request.graph, 3), part_(blocks_.part(-1)) {}
StepBounds::~StepBounds() = default;

/// @param place of the part, without stages.
StepBounds::Prices StepBounds::priced(const Plan& place) const {
  Prices prices;
  const PricedStep step = request_.evaluate->price(place, part_);
  if (!step.missing.empty()) return prices;
  prices.is_known = true;
  prices.overhead_seconds = step.overhead_seconds;
  for (const PricedInstruction& in : step.instructions) {
    if (in.phase == Phase::update) prices.updates[in.name] += in.seconds;
    const bool is_pass = in.phase == Phase::forward || in.phase == Phase::recompute || in.phase == Phase::backward;
    if (!is_pass || (in.is_collective && !in.holds_up_kernels)) continue;
    Passes& passes = prices.passes[in.name.substr(0, in.name.find('/'))];
    auto& of_phase = in.phase == Phase::forward     ? passes.forward
                     : in.phase == Phase::recompute ? passes.again
                                                    : passes.backward;
    const int micro_batch = in.micro_batch / place.schedule.sub_batches;
    of_phase[static_cast<std::size_t>(micro_batch)].append(in.seconds, in.is_collective);
  }
  if (place.schedule.micro_batches == 1) {
    for (auto& [_, passes] : prices.passes) {
      for (auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) (*of_phase)[1] = (*of_phase)[0];
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
      const auto found = prices.passes.find(blocks_.stands_for(o).name);
      if (found == prices.passes.end()) return;
      for (std::size_t m = 0; m < 2; ++m) to[m].append((found->second.*member)[m]);
    };
    for (int o = stage.first_operator; o < stage.end(); ++o) {
      append(o, &Passes::forward, share.passes.forward);
      const Operator& op = graph.operators[static_cast<std::size_t>(o)];
      const Operator& priced = blocks_.stands_for(o);
      for (std::size_t i = 0; i < op.parameters.size(); ++i) {
        const auto parameter = static_cast<std::size_t>(op.parameters[i]);
        if (share.parameters[parameter]) continue;
        share.parameters[parameter] = true;
        const auto update = prices.updates.find(graph.parameters[static_cast<std::size_t>(priced.parameters[i])].name);
        if (update != prices.updates.end()) share.update_seconds += update->second;
      }
    }
    for (int o = stage.end(); o-- > stage.first_operator;) {
      append(o, &Passes::again, share.passes.again);
      append(o, &Passes::backward, share.passes.backward);
    }
  }
  return shares;
}

/// To or from the stage that begins with @p first_operator, at @p place, of what every rank sends at least.
double StepBounds::message_seconds(const ParallelDegrees& degrees, const Plan& plan, int first_operator,
                                   int place) const {
  const ModelGraph& graph = request_.graph;
  const int ranks = plan.mesh.num_ranks() / degrees.places;
  const std::int64_t samples = plan.global_batch / degrees.micro_batches / degrees.data(plan.mesh.num_ranks());
  const int parts = degrees.sum == PartialSums::scatter ? degrees.tensor : 1;
  double seconds = 0.0;
  for (const int t : tensors_across(graph, first_operator)) {
    const std::int64_t elements = samples * graph.tensors[static_cast<std::size_t>(t)].elements_per_sample() / parts;
    seconds += request_.evaluate->message_seconds(plan.mesh, (place - 1) * ranks, place * ranks,
                                                  elements * size_of(plan.dtypes.compute));
  }
  return seconds;
}

/// Of all gradients of a place in one collective: in several it takes no less. Of tensor ranks only matrices count.
double StepBounds::gradient_seconds(const ParallelDegrees& degrees, const Plan& plan, int place,
                                    const std::vector<bool>& parameters) const {
  const int data = degrees.data(plan.mesh.num_ranks());
  if (data == 1) return 0.0;
  std::vector<int> ranks;
  for (int d = 0; d < data; ++d) ranks.push_back((place * data + d) * degrees.tensor);
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = request_.graph.parameters[p];
    const bool is_matrix = parameter.shape.size() > 1;
    if (parameters[p] && (degrees.tensor == 1 || is_matrix)) elements += parameter.num_elements() / degrees.tensor;
  }
  const Collective kind = gradients_ == GradientSums::all_reduce ? Collective::all_reduce : Collective::reduce_scatter;
  return request_.evaluate->collective_seconds(kind, plan.mesh, ranks, elements * size_of(plan.dtypes.gradient));
}

/// A place's kernels, behind the first micro-batch's forward through the places before it.
double StepBounds::kernel_seconds(const ParallelDegrees& degrees, const Plan& plan) {
  const Prices& prices = prices_of(degrees);
  if (!prices.is_known) return 0.0;
  const std::vector<StageShare> shares = shares_of(plan, prices);
  const auto places = static_cast<std::size_t>(degrees.places);
  const double others = degrees.micro_batches - 1;  // behind the first micro-batch
  double bound = 0.0, fill = 0.0;
  for (std::size_t place = 0; place < places; ++place) {
    double computed = fill;
    for (std::size_t s = place; s < shares.size(); s += places) {
      const Passes& passes = shares[s].passes;
      for (const auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) {
        computed += (*of_phase)[0].kernels + others * (*of_phase)[1].kernels;
      }
    }
    bound = std::max(bound, computed);
    fill += shares[place].passes.forward[0].kernels;
  }
  return bound + prices.overhead_seconds;
}

double StepBounds::seconds(const ParallelDegrees& degrees, const Plan& plan) {
  return seconds(degrees, plan, prices_of(degrees), true);
}

double StepBounds::seconds_of_alike_blocks(ParallelDegrees degrees, const Plan& plan) {
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
  return seconds(degrees, plan, priced(place), false);
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
    const bool runs_under = gradients_ == GradientSums::unknown || plan.overlap.all_reduce == "backward";
    bound = std::max(bound, summed + computed - (runs_under ? std::min(last * last_backward, backward) : 0.0));
    if (place + 1 == places) break;
    const double message =
        message_seconds(degrees, plan, stages[place + 1].first_operator, static_cast<int>(place) + 1);
    fill += shares[place].passes.forward[0].whole() + message;
    if (sends_behind_kernels) drain += shares[place].passes.backward[1].whole() + message;
  }
  return bound + prices.overhead_seconds;
}

}  // namespace strata

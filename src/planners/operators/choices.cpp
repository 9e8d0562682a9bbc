#include "planners/operators/choices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/ceil_div.hpp"
#include "partition/shards.hpp"
#include "planners/operators/backward_moments.hpp"

namespace strata {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Bytes of an element by state.
struct ElementBytes {
  std::int64_t parameter, gradient, optimizer;
  std::int64_t total() const { return parameter + gradient + optimizer; }
};

ElementBytes element_bytes(const Plan& plan) {
  return {size_of(plan.dtypes.compute), size_of(plan.dtypes.gradient), optimizer_bytes_per_element(plan)};
}

/// How a parameter is held: so many pieces of so many elements each are cut over all ranks, the rest is whole.
struct HeldParameter {
  std::int64_t sharded_pieces = 0;
  std::int64_t piece_elements = 0;
  std::int64_t whole_elements = 0;
};

/// Parameter number @p i of operator @p op.
HeldParameter held(const ModelGraph& graph, int op, std::size_t i, const UnitChoice& choice, bool is_sliced) {
  const int p = graph.operators[at(op)].parameters[i];
  const std::int64_t elements = graph.parameters[at(p)].num_elements();
  if (is_sliced && i == 0) {
    const std::int64_t piece = elements / choice.slices;
    return {choice.sharded_slices, piece, (choice.slices - choice.sharded_slices) * piece};
  }
  if (choice.hold == Hold::zdp) return {1, elements, 0};
  return {0, 0, elements};
}

}  // namespace

OperatorChoices::OperatorChoices(const ModelGraph& graph, const Plan& plan, const CostModel& costs,
                                 const ChoiceOptions& options)
    : graph_(graph),
      plan_(plan),
      costs_(costs),
      options_(options),
      units_(operator_units(graph, options.granularity)),
      gathers_(gathers_of(graph, plan)),
      compute_(graph, plan, gathers_, costs),
      updates_in_backward_(plan.overlap.update == "backward"),
      ranks_(options.sharded_over.value_or(data_grid(plan.mesh))),
      num_uses_(graph.parameters.size(), 0) {
  for (const Operator& op : graph.operators) {
    for (const int p : op.parameters) ++num_uses_[at(p)];
  }
  collect_moments();
  collect_windows();
  using Key = std::vector<std::tuple<double, std::int64_t, std::int64_t>>;
  std::map<Key, int> classes;
  for (const OperatorUnit& unit : units_) {
    meanings_.push_back(choices_of(unit));
    costs_of_units_.push_back(cost_of(unit, meanings_.back()));
    const std::vector<Choice>& choices = costs_of_units_.back().choices;
    Key key;
    for (const Choice& c : choices) key.emplace_back(c.seconds, c.resident_bytes, c.workspace_bytes);
    const auto [place, is_new] = classes.try_emplace(std::move(key), static_cast<int>(problem_.classes.size()));
    if (is_new) problem_.classes.push_back({.choices = choices, .count = 0});
    ++problem_.classes[at(place->second)].count;
    class_of_.push_back(place->second);
  }
  problem_.capacity_bytes = plan.device_capacity_bytes;
  problem_.peak_bytes = [this](std::int64_t resident, std::int64_t workspace, std::int64_t samples) {
    return peak_of_sums(resident, workspace, samples);
  };
  problem_.compute_seconds = [this](std::int64_t samples) {
    return plan_.schedule.micro_batches * compute_.of_micro_batch(samples);
  };
}

double OperatorChoices::time(Collective kind, double bytes) const {
  if (ranks_.total() == 1 || bytes == 0.0) return 0.0;
  return costs_.collective(kind, std::llround(bytes), {.shape = ranks_}).seconds;
}

bool OperatorChoices::is_sliced(int op, int slices) const {
  const Operator& o = graph_.operators[at(op)];
  return slices > 1 && o.kind == OperatorKind::linear && num_uses_[at(o.parameters.front())] == 1 &&
         o.attributes.integer("in") % slices == 0;
}

std::vector<UnitChoice> OperatorChoices::choices_of(const OperatorUnit& unit) const {
  std::vector<UnitChoice> choices = {{}};
  if (unit.parameters.empty() || ranks_.total() == 1) return choices;
  const auto is_pinned = [&](int p) { return std::ranges::find(options_.pinned, p) != options_.pinned.end(); };
  if (std::ranges::any_of(unit.parameters, is_pinned)) return {{.hold = options_.pinned_hold}};
  if (options_.offers_sdp) choices.push_back({.hold = Hold::sdp});
  choices.push_back({.hold = Hold::zdp});
  if (std::ranges::none_of(unit.operators, [&](int o) { return is_sliced(o, options_.slices); })) return choices;
  for (int j = 1; j <= options_.slices; ++j) {
    const Hold of_the_rest = j == options_.slices ? Hold::zdp : Hold::dp;
    choices.push_back({.hold = of_the_rest, .slices = options_.slices, .sharded_slices = j});
  }
  return choices;
}

OperatorChoices::UnitCost OperatorChoices::cost_of(const OperatorUnit& unit,
                                                   std::span<const UnitChoice> choices) const {
  const ElementBytes bytes = element_bytes(plan_);
  const int ranks = ranks_.total();
  UnitCost cost;
  for (const UnitChoice& choice : choices) {
    std::set<int> counted;
    std::vector<std::int64_t> gradients(unit.operators.size(), 0);
    std::int64_t persistent = 0, gathered = 0;
    // A parameter that two operators use counts at the last: its gradient begins to exist there.
    for (std::size_t n = unit.operators.size(); n-- > 0;) {
      const int op = unit.operators[n];
      for (std::size_t i = 0; i < graph_.operators[at(op)].parameters.size(); ++i) {
        if (!counted.insert(graph_.operators[at(op)].parameters[i]).second) continue;
        const HeldParameter h = held(graph_, op, i, choice, is_sliced(op, choice.slices));
        std::int64_t parameter = h.whole_elements + h.sharded_pieces * ceil_div(h.piece_elements, ranks);
        std::int64_t others = parameter;
        if (choice.hold == Hold::sdp) others = ceil_div(h.whole_elements, ranks);
        persistent += bytes.parameter * parameter + bytes.optimizer * others;
        gradients[n] += bytes.gradient * others;
        gathered += bytes.parameter * (h.sharded_pieces > 0 ? h.piece_elements : h.whole_elements);
      }
    }
    const std::int64_t resident = persistent + std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
    cost.choices.push_back(options_.paper ? Choice{paper_seconds(unit, choice), resident + gathered, 0}
                                          : Choice{seconds_of(unit, choice), resident, workspace_of(unit, choice)});
    cost.gradients.push_back(std::move(gradients));
    cost.persistent.push_back(persistent);
  }
  return cost;
}

double OperatorChoices::seconds_of(const OperatorUnit& unit, const UnitChoice& choice) const {
  const ElementBytes bytes = element_bytes(plan_);
  const int micro_batches = plan_.schedule.micro_batches;
  const auto of = [](std::int64_t bytes_an_element, std::int64_t elements) {
    return static_cast<double>(bytes_an_element * elements);
  };
  // A gradient as large as a bucket is one; smaller ones share theirs. Without buckets every gradient goes alone.
  const double bucket =
      std::min(of(bytes.gradient, graph_.num_parameters()), static_cast<double>(plan_.overlap.bucket_bytes));
  const auto all_reduced = [&](double gradient) {
    return gradient >= bucket ? time(Collective::all_reduce, gradient)
                              : gradient / bucket * time(Collective::all_reduce, bucket);
  };
  double seconds = 0.0;
  std::set<int> scattered;
  for (const int o : unit.operators) {
    const Operator& op = graph_.operators[at(o)];
    for (std::size_t i = 0; i < op.parameters.size(); ++i) {
      const HeldParameter h = held(graph_, o, i, choice, is_sliced(o, choice.slices));
      const int gathers = i == 0 ? gathers_[at(o)].of_weight : gathers_[at(o)].of_others;
      // Each use gathers; the gradient is one.
      seconds += micro_batches * static_cast<double>(h.sharded_pieces) * gathers *
                 time(Collective::all_gather, of(bytes.parameter, h.piece_elements));
      if (!scattered.insert(op.parameters[i]).second) continue;
      seconds += micro_batches * static_cast<double>(h.sharded_pieces) *
                 time(Collective::reduce_scatter, of(bytes.gradient, h.piece_elements));
      const double whole = of(bytes.gradient, h.whole_elements);
      if (choice.hold == Hold::sdp) {
        seconds += micro_batches * time(Collective::reduce_scatter, whole) +
                   time(Collective::all_gather, of(bytes.parameter, h.whole_elements));
      } else {
        seconds += all_reduced(whole);
      }
    }
  }
  return seconds;
}

double OperatorChoices::paper_seconds(const OperatorUnit& unit, const UnitChoice& choice) const {
  const ElementBytes bytes = element_bytes(plan_);
  std::int64_t elements = 0;
  for (const int p : unit.parameters) elements += graph_.parameters[at(p)].num_elements();
  const double size = static_cast<double>(bytes.parameter * elements);
  const int zdp_passes = plan_.recompute == Recompute::none ? 3 : 4;
  const auto passes = [&](int count, double of_bytes) { return count * time(Collective::all_gather, of_bytes); };
  if (choice.slices > 0) {
    const double slice = size / choice.slices;
    return choice.sharded_slices * passes(zdp_passes, slice) +
           passes(2, (choice.slices - choice.sharded_slices) * slice);
  }
  return passes(choice.hold == Hold::zdp ? zdp_passes : 2, size);
}

std::int64_t OperatorChoices::workspace_of(const OperatorUnit& unit, const UnitChoice& choice) const {
  const ElementBytes bytes = element_bytes(plan_);
  const int scattering = plan_.overlap.reduce_scatter == "none" ? 1 : 2;
  std::int64_t largest = 0, largest_whole = 0;
  bool all_sliced = choice.slices > 0;
  for (const int o : unit.operators) {
    const Operator& op = graph_.operators[at(o)];
    const bool sliced = is_sliced(o, choice.slices);
    std::int64_t gathered = 0, scattered = 0, whole = 0;
    for (std::size_t i = 0; i < op.parameters.size(); ++i) {
      const HeldParameter h = held(graph_, o, i, choice, sliced);
      gathered += h.sharded_pieces > 0 ? bytes.parameter * h.piece_elements : 0;
      scattered += h.sharded_pieces > 0 ? bytes.gradient * h.piece_elements : 0;
      whole += h.whole_elements;
    }
    largest = std::max(largest, gathered + scattering * scattered);
    largest_whole = std::max(largest_whole, whole);
    if (op.kind == OperatorKind::linear && !sliced && gathered > 0) all_sliced = false;
  }
  // Before it is scattered one bucket is whole.
  if (choice.hold == Hold::sdp) return plan_.overlap.bucket_bytes + bytes.gradient * largest_whole;
  const bool gathers_ahead = plan_.overlap.gather != "none";
  if (largest == 0 || unit.block < 0 || !gathers_ahead) return largest;
  return ceil_div(windows_[at(unit.block)], all_sliced ? choice.slices : 1);
}

void OperatorChoices::collect_moments() {
  const std::int64_t gradient = size_of(plan_.dtypes.gradient);
  const std::vector<BackwardMoment> moments = backward_moments(graph_, plan_.dtypes.compute, plan_.recompute, 1);
  std::vector<int> last_use(graph_.parameters.size(), -1);
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    for (const int p : graph_.operators[o].parameters) last_use[at(p)] = static_cast<int>(o);
  }
  std::int64_t before = 0;
  for (std::size_t o = 0; o < moments.size(); ++o) {
    moments_.push_back({.bytes_per_sample = moments[o].activations + moments[o].activation_gradients,
                        .replicated_gradients = before,
                        .op = static_cast<int>(o)});
    all_activation_bytes_ = std::max(all_activation_bytes_, moments[o].activations);
    for (const int p : std::set<int>(graph_.operators[o].parameters.begin(), graph_.operators[o].parameters.end())) {
      if (last_use[at(p)] == static_cast<int>(o)) before += gradient * graph_.parameters[at(p)].num_elements();
    }
  }
  // An operator's moment matters beside a later one only if what its gradients have more than the other's outweighs
  // what the other holds more of one sample, and so of any number of samples.
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (std::size_t o = moments_.size(); o-- > 0;) {
    const std::int64_t outweighs = moments_[o].bytes_per_sample - moments_[o].replicated_gradients;
    if (outweighs > most) peak_moments_.push_back(moments_[o]);
    most = std::max(most, outweighs);
  }
}

/// Forward has this block and a neighbour; backward this operator and the next and two gradients on their way, or,
/// where a block is computed again, all of that block.
void OperatorChoices::collect_windows() {
  const ElementBytes bytes = element_bytes(plan_);
  std::vector<std::int64_t> layer(graph_.blocks.size(), 0), largest(graph_.blocks.size(), 0);
  for (const Operator& op : graph_.operators) {
    if (op.block < 0) continue;
    std::int64_t elements = 0;
    for (const int p : op.parameters) elements += graph_.parameters[at(p)].num_elements();
    layer[at(op.block)] += elements;
    largest[at(op.block)] = std::max(largest[at(op.block)], elements);
  }
  const bool again = recomputes_blocks(plan_.recompute);
  const int scattering = plan_.overlap.reduce_scatter == "none" ? 1 : 2;
  for (std::size_t b = 0; b < layer.size(); ++b) {
    const std::int64_t before = b > 0 ? layer[b - 1] : 0, behind = b + 1 < layer.size() ? layer[b + 1] : 0;
    const std::int64_t forward = bytes.parameter * (layer[b] + std::max(before, behind));
    const std::int64_t ahead = again ? layer[b] : largest[b];
    const std::int64_t backward = bytes.parameter * (largest[b] + ahead) + scattering * bytes.gradient * largest[b];
    windows_.push_back(std::max(forward, backward));
  }
}

std::int64_t OperatorChoices::peak_of_sums(std::int64_t resident, std::int64_t workspace, std::int64_t samples) const {
  if (options_.paper) return resident + workspace + samples * all_activation_bytes_;
  const ElementBytes bytes = element_bytes(plan_);
  const std::int64_t gradients = resident / bytes.total() * bytes.gradient;
  const bool keeps_all = plan_.schedule.micro_batches > 1;
  const std::int64_t kept_at_most = updates_in_backward_ ? 0 : gradients;  // with one micro-batch
  std::int64_t most = 0;
  for (const Moment& m : peak_moments_) {
    // At least what the operators before this one cannot hold.
    const std::int64_t there =
        plan_.overlap.bucket_bytes + std::max<std::int64_t>(0, gradients - m.replicated_gradients);
    const std::int64_t now = keeps_all ? gradients : std::min(kept_at_most, there);
    most = std::max(most, now + samples * m.bytes_per_sample);
  }
  return resident - gradients + most + workspace;
}

std::int64_t OperatorChoices::peak_bytes(std::span<const int> choices, std::int64_t samples) const {
  std::vector<std::int64_t> gradient_of(graph_.operators.size(), 0);
  std::int64_t persistent = 0, gradients = 0, workspace = 0, resident = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const auto k = at(choices[u]);
    const UnitCost& cost = costs_of_units_[u];
    persistent += cost.persistent[k];
    resident += cost.choices[k].resident_bytes;
    workspace = std::max(workspace, cost.choices[k].workspace_bytes);
    for (std::size_t n = 0; n < units_[u].operators.size(); ++n) {
      gradient_of[at(units_[u].operators[n])] = cost.gradients[k][n];
      gradients += cost.gradients[k][n];
    }
  }
  if (options_.paper) return peak_of_sums(resident, workspace, samples);
  std::int64_t there = 0, most = 0;
  for (std::size_t o = moments_.size(); o-- > 0;) {
    there += gradient_of[o];
    // What is updated in backward leaves the operator's own and what is on its way.
    const std::int64_t come = updates_in_backward_ ? gradient_of[o] : there;
    const std::int64_t now =
        plan_.schedule.micro_batches > 1 ? gradients : std::min(gradients, plan_.overlap.bucket_bytes + come);
    most = std::max(most, now + samples * moments_[o].bytes_per_sample);
  }
  return persistent + most + workspace;
}

std::vector<int> OperatorChoices::dealt(const Counts& counts) const {
  std::vector<std::vector<int>> order;  // by class: the choices of its units, first to last
  for (std::size_t c = 0; c < counts.size(); ++c) {
    std::vector<int> by_bytes(counts[c].size());
    std::iota(by_bytes.begin(), by_bytes.end(), 0);
    std::ranges::stable_sort(by_bytes, std::ranges::greater{},
                             [&](int k) { return problem_.classes[c].choices[at(k)].resident_bytes; });
    std::vector<int>& choices = order.emplace_back();
    for (const int k : by_bytes) choices.insert(choices.end(), at(counts[c][at(k)]), k);
  }
  std::vector<std::size_t> next(counts.size(), 0);
  std::vector<int> dealt;
  for (const int c : class_of_) dealt.push_back(order[at(c)][next[at(c)]++]);
  return dealt;
}

}  // namespace strata

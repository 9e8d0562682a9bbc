#include "lower/states/parameter_gathers.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "partition/operator_splitting.hpp"

namespace strata {
namespace {

using Kind = GatherAction::Kind;

class GatherWalk {
 public:
  GatherWalk(const StepOrder& order, std::span<const SegmentRecomputation> recomputation, const Plan& plan,
             const ModelGraph& graph, const ShardGroups& groups)
      : order_(order),
        plan_(plan),
        graph_(graph),
        groups_(groups),
        needs_gradient_(tensors_with_gradient(graph)),
        recomputation_(recomputation),
        ahead_in_forward_(plan.overlap.gather == "next_layer"),
        ahead_in_backward_(plan.overlap.gather_backward == "next_module"),
        held_(graph.parameters.size()),
        segments_held_(order.shape.segments.size(), false) {
    result_.of_operator = ByOperator<ParameterGathers::OfOperator>(order);
    for (const OrderItem& item : order.items) {
      if (item.pass != Pass::update) segments_held_[static_cast<std::size_t>(item.segment)] = true;
    }
    find_what_is_read_again();
  }

  ParameterGathers run() && {
    begin();
    for (int i = 0; i < static_cast<int>(order_.items.size()); ++i) {
      switch (order_.items[static_cast<std::size_t>(i)].pass) {
        case Pass::forward: forward(i); break;
        case Pass::recompute: recompute(i); break;
        case Pass::backward: backward(i); break;
        case Pass::update: break;
      }
    }
    return std::move(result_);
  }

 private:
  /// What there is of a parameter where the walk has got to.
  struct Held {
    int copy = -1;
    bool is_on_its_way = false;  ///< as blocks of codes: a kernel has to unpack them
    bool is_read_again = false;  ///< behind forward
    bool has_second_shard = false;
    bool spread_is_due = false;
  };

  Held& held(int parameter) { return held_[static_cast<std::size_t>(parameter)]; }
  const Operator& at(int o) const { return graph_.operators[static_cast<std::size_t>(o)]; }
  const OrderItem& item_at(int i) const { return order_.items[static_cast<std::size_t>(i)]; }
  const Segment& segment_of(const OrderItem& item) const {
    return order_.shape.segments[static_cast<std::size_t>(item.segment)];
  }
  bool is_held(std::size_t segment) const { return segments_held_[segment]; }
  bool is_sharded(int parameter) const { return groups_.of(parameter).parameter >= 0; }
  std::vector<int> read_by_backward(int o) const {
    return weights_read_by_backward(at(o), needs_gradient_[static_cast<std::size_t>(at(o).inputs.front())]);
  }
  const std::vector<int>& runs_again(const OrderItem& item) const {
    return recomputation_[static_cast<std::size_t>(item.segment)].runs_again;
  }
  int here() const { return static_cast<int>(result_.actions.size()); }

  void find_what_is_read_again() {
    for (std::size_t s = 0; s < order_.shape.segments.size(); ++s) {
      const Segment& segment = order_.shape.segments[s];
      if (!is_held(s)) continue;
      for (int o = segment.first_operator; o < segment.end(); ++o) {
        for (const int p : read_by_backward(o)) held(p).is_read_again = true;
      }
      for (const int again : recomputation_[s].runs_again) {
        for (const int p : at(again).parameters) held(p).is_read_again = true;
      }
    }
  }

  void begin() {
    if (plan_.overlap.broadcast != "next_forward") return;
    std::set<int> seen;
    for (std::size_t s = 0; s < order_.shape.segments.size(); ++s) {
      const Segment& segment = order_.shape.segments[s];
      if (!is_held(s)) continue;
      for (int o = segment.first_operator; o < segment.end(); ++o) {
        for (const int p : at(o).parameters) {
          if (!seen.insert(p).second) continue;
          if (is_sharded(p)) {
            held(p).spread_is_due = true;
          } else {
            result_.actions.push_back({.kind = Kind::spread_last_update, .parameter = p});
          }
        }
      }
    }
    result_.at_beginning.end = here();
  }

  int new_copy(bool is_second_shard) {
    result_.is_second_shard.push_back(is_second_shard);
    return result_.num_copies++;
  }

  /// All of @p parameter will be on this rank when a kernel reads it.
  void gather(int parameter, Phase phase, int micro_batch) {
    Held& now = held(parameter);
    if (!is_sharded(parameter) || now.copy >= 0) return;
    const auto act = [&](Kind kind) {
      result_.actions.push_back(
          {.kind = kind, .parameter = parameter, .copy = now.copy, .phase = phase, .micro_batch = micro_batch});
    };
    if (std::exchange(now.spread_is_due, false)) act(Kind::spread_last_update);
    const ShardGroups::Set& groups = groups_.of(parameter);
    const bool from_secondary = phase != Phase::forward && groups.has_secondary;
    STRATA_INVARIANT(
        !from_secondary || now.has_second_shard,
        graph_.parameters[static_cast<std::size_t>(parameter)].name + " has no second shard to be gathered from");
    const bool nothing_travels = from_secondary && groups.secondary < 0;
    now.copy = new_copy(nothing_travels);
    if (nothing_travels) return;
    now.is_on_its_way = plan_.quantization.weights != "none" && !from_secondary;
    act(from_secondary ? Kind::gather_secondary : now.is_on_its_way ? Kind::send_quantized : Kind::gather);
  }
  void gather(std::span<const int> parameters, Phase phase, int micro_batch) {
    for (const int p : parameters) gather(p, phase, micro_batch);
  }

  /// A kernel that is issued next reads @p parameters, which have been gathered: what has to be done with them on the
  /// compute stream is done here and not where they were asked for, so that what stands between hides the transfer.
  void arrive(std::span<const int> parameters, Phase phase, int micro_batch) {
    for (const int p : parameters) {
      Held& now = held(p);
      if (!is_sharded(p)) continue;
      const auto act = [&](Kind kind) {
        result_.actions.push_back(
            {.kind = kind, .parameter = p, .copy = now.copy, .phase = phase, .micro_batch = micro_batch});
      };
      if (std::exchange(now.is_on_its_way, false)) act(Kind::unpack_quantized);
      if (!groups_.of(p).has_secondary || !now.is_read_again || now.has_second_shard) continue;
      now.has_second_shard = true;
      act(Kind::keep_secondary);
    }
  }

  void gather_segment(const Segment& segment, int micro_batch) {
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      if (!follows_slice(o)) gather(at(o).parameters, Phase::forward, micro_batch);
    }
  }

  bool follows_slice(int o) const {
    const std::optional<ColumnBlock> columns = columns_of(at(o));
    return columns && !is_first(*columns);
  }

  /// Of a split operator the slice behind @p o, under the kernel of this one.
  void gather_next_slice(int o, Phase phase, int micro_batch) {
    const std::optional<ColumnBlock> columns = columns_of(at(o));
    if (columns && !is_last(*columns)) gather(at(o + 1).parameters, phase, micro_batch);
  }

  /// What backward reads next, behind operator @p o.
  void gather_before(int o, int micro_batch) {
    const std::vector<Segment>& segments = order_.shape.segments;
    auto segment = std::ranges::find_if(segments, [&](const Segment& s) { return o < s.end(); });
    for (int next = o - 1; next >= 0; --next) {
      if (next < segment->first_operator) {
        --segment;
        if (!is_held(static_cast<std::size_t>(segment - segments.begin())) || segment->recomputed) {
          return;  // backward() does it, before its recompute item
        }
      }
      const std::vector<int> ahead = read_by_backward(next);
      if (ahead.empty()) continue;
      gather(ahead, Phase::backward, micro_batch);
      return;
    }
  }

  /// The kernels of operator @p o in item @p i come here, behind the actions from @p first_action on.
  void kernels(int i, int o, int first_action) {
    ParameterGathers::OfOperator& of_operator = result_.of_operator.at(i, o);
    of_operator.before = {first_action, here()};
    for (const int p : at(o).parameters) of_operator.copies.push_back(held(p).is_on_its_way ? -1 : held(p).copy);
  }
  /// Other sub-batches have the same kernels next.
  void release(const OrderItem& item, int o) {
    if (item.sub_batch + 1 < order_.shape.sub_batches) return;
    for (const int p : at(o).parameters) {
      held(p).copy = -1;
      held(p).is_on_its_way = false;
    }
  }

  void forward(int i) {
    const OrderItem& item = item_at(i);
    const Segment& segment = segment_of(item);
    const std::vector<Segment>& segments = order_.shape.segments;
    const auto next = static_cast<std::size_t>(item.segment) + 1;
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      const int first_action = here();
      if (ahead_in_forward_ && o == segment.first_operator) {
        gather_segment(segment, item.micro_batch);
        if (next < segments.size() && is_held(next)) gather_segment(segments[next], item.micro_batch);
      }
      gather(at(o).parameters, Phase::forward, item.micro_batch);
      if (ahead_in_forward_) gather_next_slice(o, Phase::forward, item.micro_batch);
      arrive(at(o).parameters, Phase::forward, item.micro_batch);
      kernels(i, o, first_action);
      release(item, o);
    }
  }

  void recompute(int i) {
    const OrderItem& item = item_at(i);
    for (const int o : runs_again(item)) {
      const int first_action = here();
      gather(at(o).parameters, Phase::recompute, item.micro_batch);
      if (ahead_in_backward_) gather_next_slice(o, Phase::recompute, item.micro_batch);
      arrive(at(o).parameters, Phase::recompute, item.micro_batch);
      kernels(i, o, first_action);
      if (plan_.gathered_after_recompute == "regather") release(item, o);
    }
  }

  void backward(int i) {
    const OrderItem& item = item_at(i);
    const Segment& segment = segment_of(item);
    int first_action = here();
    const bool is_last = i + 1 == static_cast<int>(order_.items.size());
    if (ahead_in_backward_ && !is_last && item_at(i + 1).pass == Pass::recompute) {
      const OrderItem& next = item_at(i + 1);
      for (const int o : runs_again(next)) {
        if (!follows_slice(o)) gather(at(o).parameters, Phase::recompute, next.micro_batch);
      }
    }
    for (int o = segment.end(); o-- > segment.first_operator; first_action = here()) {
      const std::vector<int> now = read_by_backward(o);
      gather(now, Phase::backward, item.micro_batch);
      if (ahead_in_backward_ && !now.empty()) gather_before(o, item.micro_batch);
      arrive(now, Phase::backward, item.micro_batch);
      kernels(i, o, first_action);
      release(item, o);
    }
  }

  const StepOrder& order_;
  const Plan& plan_;
  const ModelGraph& graph_;
  const ShardGroups& groups_;
  std::vector<bool> needs_gradient_;
  std::span<const SegmentRecomputation> recomputation_;  ///< by segment
  bool ahead_in_forward_;
  bool ahead_in_backward_;
  std::vector<Held> held_;           ///< by parameter
  std::vector<bool> segments_held_;  ///< this rank has items of it
  ParameterGathers result_;
};

}  // namespace

ParameterGathers parameter_gathers(const StepOrder& order, std::span<const SegmentRecomputation> recomputation,
                                   const Plan& plan, const ModelGraph& graph, const ShardGroups& groups) {
  return GatherWalk(order, recomputation, plan, graph, groups).run();
}

}  // namespace strata

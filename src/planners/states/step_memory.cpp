#include "planners/states/step_memory.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/ceil_div.hpp"
#include "ir/model/backward_reads.hpp"
#include "partition/recomputation.hpp"
#include "planners/states/memory.hpp"

namespace strata {
namespace {
using Index = std::size_t;
}  // namespace

/// The step of one rank with given factors. Names as in lower/gradient_buckets.
class StepMemory::Walk {
 public:
  Walk(const StepMemory& memory, const StateFactors& state, const Shares& shares,
       const std::function<void(const StepMoment&)>& visit)
      : m_(memory),
        plan_(memory.plan_),
        shares_(shares),
        visit_(visit),
        weight_bytes_(size_of(plan_.dtypes.compute)),
        gradient_bytes_(size_of(plan_.dtypes.gradient)),
        is_sharded_(state.p.total() > 1),
        cuts_further_(state.g != state.p),
        scatters_(plan_.optimizer.gradients == "reduce_scatter" && state.os != state.p),
        scatter_is_awaited_(plan_.overlap.reduce_scatter == "none"),
        reduction_is_awaited_(plan_.overlap.all_reduce == "none"),
        regathers_(plan_.gathered_after_recompute == "regather"),
        num_second_(state.p_backward && is_sharded_ ? state.p_backward->total() : 0),
        now_(memory.sizes_.size()),
        own_(static_cast<Index>(shares.num_owners), 0) {
    for (const Step& step : m_.steps_) {
      std::int64_t elements = 0;
      for (const int p : step.parameters) elements += size(p);
      largest_operator_ = std::max(largest_operator_, elements);
    }
    assign_buckets();
  }

  /// @param optimizer bytes of an element's states.
  void run(std::int64_t optimizer) {
    for (Index p = 0; p < m_.sizes_.size(); ++p) keep(static_cast<int>(p), optimizer);
    constexpr int enough = 3;
    const int micro_batches = std::min(plan_.schedule.micro_batches, enough);
    for (int i = 0; i < micro_batches; ++i) {
      is_last_ = i + 1 == micro_batches;
      for (int o = 0; o < static_cast<int>(m_.steps_.size()); ++o) forward(o);
      for (int o = static_cast<int>(m_.steps_.size()); o-- > 0;) backward(o);
      finish_micro_batch();
    }
    reduce_remaining();
  }

 private:
  static constexpr int none = -1;
  struct Now {
    int gathered_at = none;  ///< by which collective; none: it is not
    bool has_second = false;
    int num_done = 0;         ///< operators that have added to its gradient, in this micro-batch
    bool has_full = false;    ///< a full gradient that is not complete yet
    bool is_written = false;  ///< its bucket has an earlier micro-batch's gradient
    Index bucket = 0;
  };
  struct Bucket {
    std::vector<int> parameters;
    std::int64_t bytes = 0;
    int num_complete = 0;
    bool is_there = false;
    bool has_kept = false;
    bool kept_is_there = false;
    bool is_reduced = false;
  };
  struct Scattered {
    int parameter;
    int at;
    bool awaited;
    bool accumulate;
  };
  struct Travelling {
    Index bucket;
    int at;
    bool in_place;
    bool is_last;
  };
  /// Memory that is free once the compute stream knows collective `at` to be over.
  struct Leaving {
    int at;
    std::int64_t* from;
    std::int64_t bytes;
    const Bucket* stays_with_owners = nullptr;  ///< those that update something of it
  };

  std::int64_t size(int parameter) const { return m_.sizes_[static_cast<Index>(parameter)]; }
  std::int64_t held(int parameter) const { return shares_.held[static_cast<Index>(parameter)]; }
  Now& now(int parameter) { return now_[static_cast<Index>(parameter)]; }
  const Step& step(int o) const { return m_.steps_[static_cast<Index>(o)]; }
  bool keeps() const { return cuts_further_ || scatters_; }

  void assign_buckets() {
    bool closed = true;
    for (const int p : m_.completion_order_) {
      if (closed) buckets_.emplace_back();
      Bucket& bucket = buckets_.back();
      now(p).bucket = buckets_.size() - 1;
      bucket.parameters.push_back(p);
      bucket.bytes += gradient_bytes_ * held(p);
      closed = bucket.bytes >= plan_.overlap.bucket_bytes;
    }
  }

  /// A collective is issued.
  int issue() { return ++issued_; }
  /// The compute stream waits for it.
  void wait_for(int at) {
    known_ = std::max(known_, at);
    while (!leaving_.empty() && leaving_.front().at <= known_) {
      const Leaving& left = leaving_.front();
      *left.from -= left.bytes;
      if (left.stays_with_owners != nullptr) leave_with_owners(*left.stays_with_owners);
      leaving_.pop_front();
    }
  }
  void leave_with_owners(const Bucket& bucket) {
    std::vector<int> owners;
    for (const int p : bucket.parameters) owners.push_back(shares_.owner[static_cast<Index>(p)]);
    std::ranges::sort(owners);
    owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
    for (const int owner : owners) own(owner, bucket.bytes);
  }
  void leave(std::int64_t& from, std::int64_t bytes) { leaving_.push_back({issued_, &from, bytes}); }
  StepMoment moment(int o, bool is_backward) const {
    return {.op = o,
            .backward = is_backward,
            .gathered = gathered_,
            .second = second_,
            .own = most_owned_,
            .buckets = kept_buckets_,
            .on_the_way = on_the_way_};
  }
  void visit(int o, bool is_backward = true, bool allocates = false) const {
    StepMoment at = moment(o, is_backward);
    at.allocates = allocates;
    for (const Leaving& l : leaving_) at.leaving += l.bytes;
    const bool is_dealt = shares_.num_owners > 1;  // whoever owns nothing of a bucket copies nothing
    if (is_dealt && travelling_ && travelling_->in_place) at.leaving += buckets_[travelling_->bucket].bytes;
    visit_(at);
  }
  /// At a collective that fills new memory: what leaves with earlier ones is gone.
  void visit_collective(int o, bool is_backward = true) const {
    StepMoment at = moment(o, is_backward);
    at.allocates = true;
    for (const Leaving& l : leaving_) {
      if (l.stays_with_owners != nullptr) continue;
      (l.from == &second_ ? at.second : l.from == &kept_buckets_ ? at.buckets : at.on_the_way) -= l.bytes;
    }
    visit_(at);
  }

  void keep(int parameter, std::int64_t bytes_per_element) {
    const auto p = static_cast<Index>(parameter);
    own(shares_.owner[p], bytes_per_element * shares_.updated[p]);
  }
  void own(int owner, std::int64_t bytes) {
    std::int64_t& all = own_[static_cast<Index>(owner)];
    all += bytes;
    most_owned_ = std::max(most_owned_, all);
  }

  // Gathering.
  void gather(int parameter, bool in_forward, bool is_last_use, int o) {
    if (!is_sharded_ || now(parameter).gathered_at != none) return;
    const bool from_second = !in_forward && num_second_ > 0;
    if (from_second && num_second_ == 1) {
      now(parameter).gathered_at = known_;  // it is here
    } else {
      now(parameter).gathered_at = issue();
      gathered_ += weight_bytes_ * size(parameter);
      visit_collective(o, !in_forward);
    }
    if (from_second && is_last_ && is_last_use && num_second_ > 1) leave(second_, second_bytes(parameter));
  }
  std::int64_t second_bytes(int parameter) const { return weight_bytes_ * ceil_div(size(parameter), num_second_); }
  void await_gathered(const std::vector<int>& parameters) {
    for (const int p : parameters) {
      if (is_sharded_) wait_for(now(p).gathered_at);
    }
  }
  void drop(int parameter, bool in_forward, bool is_last_use = false) {
    if (std::exchange(now(parameter).gathered_at, none) == none) return;
    const bool is_second = !in_forward && num_second_ == 1;
    if (!is_second) gathered_ -= weight_bytes_ * size(parameter);
    if (is_second && is_last_ && is_last_use) second_ -= second_bytes(parameter);
  }
  void keep_second(int parameter, int o) {
    const bool again = m_.read_again_[static_cast<Index>(parameter)];
    if (num_second_ == 0 || !again || now(parameter).has_second) return;
    now(parameter).has_second = true;
    second_ += second_bytes(parameter);
    visit(o, false, true);
  }

  void forward(int o) {
    const Step& op = step(o);
    if (is_sharded_) {
      if (op.begins_unit && plan_.overlap.gather == "next_layer") {
        const auto first = static_cast<Index>(op.unit);
        const Index end = std::min(first + 2, m_.units_.size());
        for (Index unit = first; unit < end; ++unit) {
          for (const int p : m_.units_[unit]) gather(p, true, false, o);
        }
      }
      for (const int p : op.parameters) gather(p, true, false, o);
      await_gathered(op.parameters);
      for (const int p : op.parameters) keep_second(p, o);
    }
    visit(o, false);
    for (const int p : op.parameters) drop(p, true);
  }

  static bool reads(const Step& step, int parameter) {
    return std::ranges::find(step.read_by_backward, parameter) != step.read_by_backward.end();
  }

  void recompute(const std::vector<int>& operators) {
    for (const int again : operators) {
      const Step& op = step(again);
      for (const int p : op.parameters) gather(p, false, !reads(op, p), again);
      await_gathered(op.parameters);
      visit(again);
      for (const int p : op.parameters) {
        if (regathers_ || !reads(op, p)) drop(p, false, !reads(op, p));
      }
    }
  }

  void backward(int o) {
    const Step& op = step(o);
    if (op.ends_block) recompute(m_.recomputed_[static_cast<Index>(op.block)]);
    const bool ahead = plan_.overlap.gather_backward == "next_module";
    if (ahead && op.recomputed_after >= 0) {
      for (const int again : m_.recomputed_[static_cast<Index>(op.recomputed_after)]) {
        for (const int p : step(again).parameters) gather(p, false, !reads(step(again), p), o);
      }
    }
    for (const int p : op.read_by_backward) gather(p, false, true, o);
    if (ahead && !op.read_by_backward.empty()) {
      for (const int p : op.next_read) gather(p, false, true, o);
    }
    if (op.one_kernel) await_gathered(op.read_by_backward);
    bool allocates = false;
    for (const int p : op.parameters) allocates |= destination(p, o);
    visit(o, true, allocates);
    for (const int p : op.parameters) contributed(p, o);
    if (!op.one_kernel && !op.read_by_backward.empty()) {
      await_gathered(op.read_by_backward);
      visit(o);
    }
    for (const int p : op.parameters) drop(p, false, true);
  }

  // Gradients.
  /// @return true if it is new.
  bool storage(Bucket& bucket) {
    if (std::exchange(bucket.is_there, true)) return false;
    (cuts_further_ ? on_the_way_ : kept_buckets_) += bucket.bytes;
    return true;
  }
  Bucket& bucket_of(int parameter) { return buckets_[now(parameter).bucket]; }

  /// @return true if it is new.
  bool destination(int parameter, int o) {
    if (!is_sharded_) return storage(bucket_of(parameter));
    if (now(parameter).has_full) return false;
    while (scattered_elements_ > largest_operator_) finish_oldest_scatter(o);
    now(parameter).has_full = true;
    on_the_way_ += gradient_bytes_ * size(parameter);
    return true;
  }

  void contributed(int parameter, int o) {
    if (++now(parameter).num_done < m_.num_uses_[static_cast<Index>(parameter)]) return;
    now(parameter).num_done = 0;
    if (!is_sharded_) {
      bucket_complete(now(parameter).bucket, o);
      return;
    }
    now(parameter).has_full = false;
    if (storage(bucket_of(parameter))) visit_collective(o);
    const bool accumulate = std::exchange(now(parameter).is_written, true);
    const bool awaited = accumulate || (is_last_ && bucket_of(parameter).has_kept && !scatters_);
    scattered_.push_back({parameter, issue(), awaited, accumulate});
    scattered_elements_ += size(parameter);
    if (!accumulate) leave(on_the_way_, gradient_bytes_ * size(parameter));
    if (!awaited) bucket_complete(now(parameter).bucket, o);
    if (scatter_is_awaited_) finish_oldest_scatter(o);
  }

  void finish_oldest_scatter(int o) {
    const Scattered oldest = scattered_.front();
    scattered_.pop_front();
    scattered_elements_ -= size(oldest.parameter);
    wait_for(oldest.at);
    if (!oldest.awaited) return;
    if (oldest.accumulate) {
      visit(o);
      on_the_way_ -= gradient_bytes_ * size(oldest.parameter);
    }
    bucket_complete(now(oldest.parameter).bucket, o);
  }

  void finish_micro_batch() {
    while (!scattered_.empty()) {
      if (scattered_.front().awaited) {
        finish_oldest_scatter(0);
      } else {
        scattered_elements_ -= size(scattered_.front().parameter);
        scattered_.pop_front();
      }
    }
  }

  void bucket_complete(Index index, int o) {
    Bucket& bucket = buckets_[index];
    if (++bucket.num_complete < static_cast<int>(bucket.parameters.size())) return;
    if (is_last_) {
      if (!reduction_is_awaited_ || cuts_further_) reduce(index, o);
      return;
    }
    bucket.num_complete = 0;
    if (!cuts_further_) return;
    scatter_or_reduce(bucket, o);
    depart({index, issued_, !scatters_ || bucket.has_kept, false}, o);
    bucket.has_kept = true;
    bucket.is_there = false;
    for (const int p : bucket.parameters) now(p).is_written = false;
  }

  void scatter_or_reduce(Bucket& bucket, int o) {
    if (!scatters_) {
      issue();
      return;
    }
    if (keep_parts(bucket)) visit_collective(o);
    issue();
  }

  /// @return true if there was nothing yet.
  bool keep_parts(Bucket& bucket) {
    if (std::exchange(bucket.kept_is_there, true)) return false;
    for (const int p : bucket.parameters) keep(p, gradient_bytes_);
    return true;
  }

  void depart(const Travelling& travelling, int o) {
    finish_travelling(o);
    travelling_ = travelling;
    if (!travelling.in_place) {
      leave(cuts_further_ ? on_the_way_ : kept_buckets_, buckets_[travelling.bucket].bytes);
    }
    if (reduction_is_awaited_) finish_travelling(o);
  }

  void finish_travelling(int o) {
    if (!travelling_) return;
    const Travelling t = *std::exchange(travelling_, std::nullopt);
    Bucket& bucket = buckets_[t.bucket];
    if (t.in_place || !backward_is_over_) wait_for(t.at);
    if (t.in_place) {
      visit(o, true, keep_parts(bucket));
      (cuts_further_ ? on_the_way_ : kept_buckets_) -= bucket.bytes;
    }
    if (!t.is_last || !scatters_) return;
    issue();
    if (reduction_is_awaited_ && !backward_is_over_) wait_for(issued_);
  }

  void reduce(Index index, int o) {
    Bucket& bucket = buckets_[index];
    bucket.is_reduced = true;
    if (travelling_ && travelling_->bucket == index) finish_travelling(o);
    if (keeps() && scatters_) scatter_or_reduce(bucket, o);
    if (!scatters_ || !bucket.has_kept) issue();
    const bool is_dealt = shares_.num_owners > 1;
    if (!keeps() && is_dealt) leaving_.push_back({issued_, &kept_buckets_, bucket.bytes, &bucket});
    if (keeps()) depart({index, issued_, !scatters_ || bucket.has_kept, bucket.has_kept}, o);
  }

  void reduce_remaining() {
    backward_is_over_ = true;
    for (Index b = 0; b < buckets_.size(); ++b) {
      if (!buckets_[b].is_reduced) reduce(b, none);
    }
    finish_travelling(none);
  }

  const StepMemory& m_;
  const Plan& plan_;
  const Shares& shares_;
  const std::function<void(const StepMoment&)>& visit_;
  std::int64_t weight_bytes_, gradient_bytes_;
  bool is_sharded_, cuts_further_, scatters_;
  bool scatter_is_awaited_, reduction_is_awaited_, regathers_;
  int num_second_;
  bool is_last_ = false, backward_is_over_ = false;
  int issued_ = 0;        ///< collectives; they are numbered from 1
  int known_ = 0;         ///< the last of them that the compute stream knows to be over
  std::vector<Now> now_;  ///< by parameter
  std::vector<Bucket> buckets_;
  std::deque<Scattered> scattered_;
  std::int64_t scattered_elements_ = 0, largest_operator_ = 0;
  std::optional<Travelling> travelling_;
  std::deque<Leaving> leaving_;
  std::vector<std::int64_t> own_;  ///< by owner
  std::int64_t gathered_ = 0, second_ = 0, most_owned_ = 0, kept_buckets_ = 0, on_the_way_ = 0;
};

StepMemory::StepMemory(const ModelGraph& graph, const Plan& plan) : plan_(plan) {
  for (const Parameter& p : graph.parameters) sizes_.push_back(p.num_elements());
  num_uses_.assign(sizes_.size(), 0);
  read_again_.assign(sizes_.size(), false);
  const bool recomputes = plan.recompute == Recompute::block;
  recomputed_.resize(graph.blocks.size());
  for (Index b = 0; recomputes && b < graph.blocks.size(); ++b) {
    recomputed_[b] = operators_to_recompute(graph, graph.blocks[b]);
    for (const int o : recomputed_[b]) {
      for (const int p : graph.operators[static_cast<Index>(o)].parameters) read_again_[static_cast<Index>(p)] = true;
    }
  }

  const std::vector<bool> has_gradient = tensors_with_gradient(graph);
  const auto num_operators = static_cast<int>(graph.operators.size());
  std::vector<int> first_use(sizes_.size(), num_operators);
  for (int o = 0; o < num_operators; ++o) {
    const Operator& op = graph.operators[static_cast<Index>(o)];
    Step step;
    step.parameters = op.parameters;
    step.read_by_backward = weights_read_by_backward(op, has_gradient[static_cast<Index>(op.inputs.front())]);
    step.block = op.block;
    step.one_kernel = op.kind != OperatorKind::linear && op.kind != OperatorKind::convolution;
    step.begins_unit = o == 0 || steps_.back().block != op.block;
    if (step.begins_unit) units_.emplace_back();
    step.unit = static_cast<int>(units_.size()) - 1;
    for (const int p : op.parameters) {
      units_.back().push_back(p);
      ++num_uses_[static_cast<Index>(p)];
      first_use[static_cast<Index>(p)] = std::min(first_use[static_cast<Index>(p)], o);
    }
    for (const int p : step.read_by_backward) read_again_[static_cast<Index>(p)] = true;
    steps_.push_back(std::move(step));
  }
  for (int o = 0; o < num_operators; ++o) {
    Step& step = steps_[static_cast<Index>(o)];
    const bool begins_backward = o + 1 == num_operators || steps_[static_cast<Index>(o) + 1].block != step.block;
    step.ends_block = recomputes && begins_backward && step.block >= 0;
    int before = o;
    while (before >= 0 && steps_[static_cast<Index>(before)].block == step.block) --before;
    if (recomputes && begins_backward && before >= 0) step.recomputed_after = steps_[static_cast<Index>(before)].block;
    for (int next = o - 1; next >= 0 && step.next_read.empty(); --next) {
      const Step& other = steps_[static_cast<Index>(next)];
      if (recomputes && other.block >= 0 && other.block != step.block) break;
      step.next_read = other.read_by_backward;
    }
  }

  for (Index p = 0; p < sizes_.size(); ++p) {
    if (num_uses_[p] > 0) completion_order_.push_back(static_cast<int>(p));
  }
  std::ranges::stable_sort(completion_order_, std::ranges::greater{},
                           [&](int p) { return first_use[static_cast<Index>(p)]; });
}

void StepMemory::walk(const StateFactors& state, const Shares& shares,
                      const std::function<void(const StepMoment&)>& visit) const {
  Walk(*this, state, shares, visit).run(optimizer_bytes_per_element(plan_));
}

}  // namespace strata

#include "lower/states/replica_sums.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace strata {
namespace {

class ReplicaWalk {
 public:
  ReplicaWalk(const StepOrder& order, const GradientBuckets& buckets, const Plan& plan,
              std::span<const ParameterShard> shards, const ReplicaLinks& links)
      : layout_(buckets), plan_(plan), shards_(shards), links_(links) {
    sums_.parameters = buckets.parameters;
    sums_.backward = ByOperator<GradientSums::OfOperator>(order);
    sums_.reduced.resize(shards.size());
  }

  /// How many gradients of each micro-batch complete a bucket.
  void expect(std::span<const GradientContribution> contributions) {
    for (const GradientContribution& c : contributions) {
      if (c.last_of_micro_batch) ++missing_[{c.micro_batch, bucket_of(c.parameter)}];
    }
  }
  /// Before item @p item, the first one of @p micro_batch: places of its gradients, and the sums of those before it.
  void begin(int item, int micro_batch);
  /// Of one operator in one item.
  void contribute(std::span<const GradientContribution> contributions);
  /// Behind the last item of the step, by a replica that takes one as many micro-batches behind the last one.
  void finish(int distance_from_last);
  GradientSums take() && { return std::move(sums_); }

 private:
  using Kind = GradientAction::Kind;
  /// Buffers of a bucket while a micro-batch is under way.
  struct Filling {
    int own = -1;    ///< where its gradients are made
    int sum = -1;    ///< where the sum of all so far stands in the end
    int added = -1;  ///< what is added there behind the kernels that make gradients; -1: nothing
  };

  int add_buffer(const char* what, int bucket) {
    sums_.buffers.push_back({.name = fmt::format("{}[{}]", what, bucket),
                             .num_elements = layout(bucket).num_elements,
                             .dtype = plan_.dtypes.gradient,
                             .category = Category::gradient});
    return static_cast<int>(sums_.buffers.size()) - 1;
  }
  void receive(const ReplicaLinks::Link& link, int bucket, int to) {
    sums_.actions.push_back({.kind = Kind::receive,
                             .bucket = bucket,
                             .to = sums_.whole(to),
                             .group = link.group,
                             .peer = links_.before(),
                             .stream = link.from_before});
  }
  void send(const ReplicaLinks::Link& link, int bucket, int from) {
    sums_.actions.push_back({.kind = Kind::send,
                             .bucket = bucket,
                             .from = sums_.whole(from),
                             .group = link.group,
                             .peer = links_.behind(),
                             .stream = link.to_behind});
  }
  template <typename Emit>
  ActionRange actions_of(const Emit& emit) {
    const int first = static_cast<int>(sums_.actions.size());
    emit();
    return {first, static_cast<int>(sums_.actions.size())};
  }
  void complete(int bucket, int micro_batch);
  void say_what_is_reduced(int bucket, int buffer);

  bool adds_behind() const { return plan_.schedule.sum == "after"; }
  bool is_last(int micro_batch) const { return micro_batch + 1 == plan_.schedule.micro_batches; }
  int bucket_of(int parameter) const { return layout_.place(parameter).bucket; }
  int num_buckets() const { return static_cast<int>(layout_.buckets.size()); }
  const GradientBucket& layout(int bucket) const { return layout_.buckets[static_cast<std::size_t>(bucket)]; }

  const GradientBuckets& layout_;
  const Plan& plan_;
  std::span<const ParameterShard> shards_;
  const ReplicaLinks& links_;
  GradientSums sums_;
  std::map<std::pair<int, int>, int> missing_;  ///< by micro-batch and bucket: parameters without their gradient
  std::map<int, Filling> filling_;              ///< by bucket, of the micro-batch that is under way
};

void ReplicaWalk::begin(int item, int micro_batch) {
  sums_.before_item[item] = actions_of([&] {
    for (int b = 0; b < num_buckets(); ++b) {
      // Alone, a replica has taken the micro-batch before, too.
      const int before = links_.is_alone() && micro_batch > 0 ? filling_.at(b).sum : -1;
      Filling& now = filling_[b] = {};
      if (before >= 0) {
        now.sum = now.own = before;
        if (adds_behind()) now.added = now.own = add_buffer("gradients", b);
        continue;
      }
      now.own = now.sum = add_buffer("gradients", b);
      if (micro_batch == 0) continue;
      if (adds_behind()) now.added = add_buffer("gradients_received", b);
      receive(links_.partial, b, adds_behind() ? now.added : now.own);
    }
  });
}

void ReplicaWalk::contribute(std::span<const GradientContribution> contributions) {
  GradientSums::OfOperator& here = sums_.backward.at(contributions.front().item, contributions.front().op);
  for (const GradientContribution& c : contributions) {
    const bool has_earlier = c.micro_batch > 0 && !adds_behind();
    here.destinations.push_back({.parameter = c.parameter,
                                 .place = {filling_.at(bucket_of(c.parameter)).own, layout_.place(c.parameter).begin,
                                           shards_[static_cast<std::size_t>(c.parameter)].held.size},
                                 .accumulate = !c.first_of_micro_batch || has_earlier,
                                 .before = actions_of([] {})});
  }
  here.behind_contributions = actions_of([&] {
    for (const GradientContribution& c : contributions) {
      if (!c.last_of_micro_batch) continue;
      const int b = bucket_of(c.parameter);
      if (--missing_.at({c.micro_batch, b}) == 0) complete(b, c.micro_batch);
    }
  });
  here.behind_operator = actions_of([] {});
}

/// The gradients of the micro-batch are there, and, unless they are added behind, in the sum.
void ReplicaWalk::complete(int bucket, int micro_batch) {
  const Filling& now = filling_.at(bucket);
  if (now.added >= 0) {
    sums_.actions.push_back(
        {.kind = Kind::add, .bucket = bucket, .from = sums_.whole(now.added), .to = sums_.whole(now.sum)});
  }
  if (is_last(micro_batch)) say_what_is_reduced(bucket, now.sum);
  if (!links_.is_alone()) send(is_last(micro_batch) ? links_.whole : links_.partial, bucket, now.sum);
}

void ReplicaWalk::finish(int distance_from_last) {
  for (const auto& [key, num] : missing_) STRATA_INVARIANT(num == 0, "a gradient is missing");
  if (distance_from_last == 0) return;  // the sum has been made here
  std::vector<int> received;
  sums_.ahead_of_update = actions_of([&] {
    for (int b = 0; b < num_buckets(); ++b) {
      received.push_back(add_buffer("gradients_summed", b));
      say_what_is_reduced(b, received.back());
      receive(links_.whole, b, received.back());
    }
  });
  if (distance_from_last + 1 == links_.num_replicas) return;  // all others have it
  sums_.behind_backward = actions_of([&] {
    for (int b = 0; b < num_buckets(); ++b) send(links_.whole, b, received[static_cast<std::size_t>(b)]);
  });
}

void ReplicaWalk::say_what_is_reduced(int bucket, int buffer) {
  for (const int p : layout(bucket).parameters) {
    const Piece& updated = shards_[static_cast<std::size_t>(p)].updated;
    sums_.reduced[static_cast<std::size_t>(p)] = {buffer, layout_.place(p).begin + updated.begin, updated.size};
  }
}

}  // namespace

GradientSums replica_sums(const StepOrder& order, int step, std::span<const GradientContribution> contributions,
                          const GradientBuckets& buckets, const Plan& plan, std::span<const ParameterShard> shards,
                          const ReplicaLinks& links) {
  ReplicaWalk walk(order, buckets, plan, shards, links);
  walk.expect(contributions);
  auto next = contributions.begin();
  int micro_batch = -1;
  for (int i = 0; i < behind_last_pass(order); ++i) {
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.micro_batch != micro_batch) walk.begin(i, micro_batch = item.micro_batch);
    while (next != contributions.end() && next->item == i) {
      const auto behind = std::find_if(next, contributions.end(), [&](const GradientContribution& c) {
        return c.item != next->item || c.op != next->op;
      });
      walk.contribute({next, behind});
      next = behind;
    }
  }
  walk.finish(links.distance_from_last(step));
  return std::move(walk).take();
}

}  // namespace strata

#include "lower/states/gradient_sums.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/error.hpp"
#include "lower/states/quantized_reduction.hpp"

namespace strata {
namespace {

/// Elements of the full gradients that an operator makes before they are reduce-scattered: the most of all operators.
std::int64_t largest_operator(std::span<const GradientContribution> contributions, const ModelGraph& graph,
                              const ShardGroups& groups) {
  std::int64_t largest = 0;
  std::int64_t elements = 0;
  const GradientContribution* before = nullptr;
  for (const GradientContribution& c : contributions) {
    if (before == nullptr || before->item != c.item || before->op != c.op) elements = 0;
    if (groups.of(c.parameter).parameter >= 0) {
      elements += graph.parameters[static_cast<std::size_t>(c.parameter)].num_elements();
    }
    largest = std::max(largest, elements);
    before = &c;
  }
  return largest;
}

/// Goes along the order and remembers what is on its way there.
class GradientWalk {
 public:
  GradientWalk(const StepOrder& order, const GradientBuckets& buckets, const Plan& plan, const ModelGraph& graph,
               std::span<const ParameterShard> shards, const ShardGroups& groups, const RingOfSums* ring,
               const QuantizedReductions& quantized, std::int64_t largest_operator)
      : layout_(buckets),
        plan_(plan),
        graph_(graph),
        shards_(shards),
        groups_(groups),
        ring_(ring),
        largest_operator_(largest_operator),
        quantized_(quantized),
        reduced_apart_(quantized.all.size()),
        full_(graph.parameters.size()),
        is_written_(graph.parameters.size(), false),
        on_the_way_(buckets.buckets.size()) {
    sums_.parameters = buckets.parameters;
    sums_.backward = ByOperator<GradientSums::OfOperator>(order);
    add_lasting_buffers();
    say_what_is_reduced();
  }

  /// Before the others: how many gradients complete each bucket, one a parameter and micro-batch.
  void expect(std::span<const GradientContribution> contributions);
  /// Before item @p item: what other replicas have summed up of @p buckets.
  void receive(int item, std::span<const std::size_t> buckets);
  /// Of one operator in one item.
  void contribute(std::span<const GradientContribution> contributions);
  /// Before the update @p item of @p parameters, none of whose gradients is to come: their sums, as far as they have
  /// not begun or are on their way.
  void complete(int item, std::span<const int> parameters);
  /// After backward: the reductions that were not overlapped, and those over the copies of a parameter.
  void reduce_remaining(const std::map<int, Copies>& copies);
  GradientSums take() && { return std::move(sums_); }

 private:
  /// A bucket's gradients of one micro-batch where it is sharded, else of all.
  struct Filling {
    int buffer = -1;
    int missing = 0;  ///< parameters, whose gradients are not complete
  };
  struct Bucket {
    int lasting = -1;                 ///< buffer of a bucket that is not sharded
    int first_micro_batch = -1;       ///< that contributes to it
    int kept = -1;                    ///< buffer; -1 also where nothing of the bucket is this rank's
    std::map<int, Filling> fillings;  ///< sharded, or added behind: by micro-batch
    int received = -1;                ///< buffer of what is added behind: the sum over other replicas' micro-batches
    int missing = 0;                  ///< the same, of all micro-batches
    bool has_kept = false;            ///< own parts of earlier micro-batches are in `kept`
    bool is_reduced = false;
  };
  /// A full gradient on its way to the p shards.
  struct Scattered {
    int parameter = -1;
    int micro_batch = 0;
    int action = -1;  ///< the reduce-scatter
    std::int64_t num_elements = 0;
    bool awaited = false;     ///< its bucket is not complete before the compute stream has added something
    bool accumulate = false;  ///< its own part stands where it was cut from, to be added to the bucket
    Operand own;              ///< that part
  };
  /// A bucket on its way to `kept`.
  struct Travelling {
    std::size_t index = 0;
    int buffer = -1;
    int action = -1;        ///< the last of its collectives
    bool in_place = false;  ///< own parts stand in the bucket, to be written or added to `kept`
    bool accumulate = false;
    bool is_last = false;  ///< micro-batch
  };
  /// A quantised reduction that has begun.
  struct ReducedApart {
    Operand own{};            ///< where the sum goes
    bool accumulate = false;  ///< to what is there
    int received = -1;        ///< buffer, of the hop that is on its way
  };
  using Kind = GradientAction::Kind;

  void add_lasting_buffers();
  void share_lasting_buffers();
  void share(int buffer, std::string name, std::int64_t num_elements);
  void say_what_is_reduced();
  GradientSums::Destination destination(const GradientContribution& contribution);
  void contributed(const GradientContribution& contribution);
  void scatter_full(const GradientContribution& contribution);
  void begin_reduction(int number, const Operand& full, const Operand& own, bool accumulate);
  void add_up(const QuantizedReductions::Sum& hop);
  /// At a place of the order where there may be some.
  template <typename Place>
  void add_up_hops_at(const std::map<Place, std::vector<QuantizedReductions::Sum>>& hops, const Place& place) {
    const auto here = hops.find(place);
    if (here == hops.end()) return;
    for (const QuantizedReductions::Sum& hop : here->second) add_up(hop);
  }
  void finish_oldest_scatter();
  void finish_micro_batch(int micro_batch);
  void gradient_complete(int parameter, int micro_batch);
  void keep_own_parts(std::size_t index, int buffer);
  void reduce(std::size_t index, int buffer);
  void scatter_own_parts(std::size_t index, int buffer);
  void depart(Travelling bucket);
  void finish_travelling();
  void receive_whole_sums();
  void add(int parameter, const Operand& from, const Operand& to, bool accumulate);
  /// All of the bucket, to what earlier micro-batches have left there.
  void add_whole(std::size_t index, int from);
  void all_reduce(GradientAction action);
  void wait_for(int action);
  void communicate(GradientAction action);
  /// What @p emit adds to the actions.
  template <typename Emit>
  ActionRange actions_of(const Emit& emit) {
    const int begin = static_cast<int>(sums_.actions.size());
    emit();
    return {begin, static_cast<int>(sums_.actions.size())};
  }
  int add_buffer(std::string name, std::int64_t num_elements);
  /// Of the bucket of @p parameter, at its place.
  Operand shard_in_bucket(int parameter, int micro_batch);
  Operand own_part(int parameter, int buffer) const;
  Operand kept_part(int parameter) const;
  bool is_scattered(int parameter) const { return groups_.of(parameter).parameter >= 0; }
  /// Gradients of the micro-batch are made apart and added to those of earlier ones.
  bool adds_behind(std::size_t bucket, int micro_batch) const {
    return plan_.schedule.sum == "after" && micro_batch != on_the_way_[bucket].first_micro_batch;
  }
  std::size_t bucket_of(int parameter) const { return static_cast<std::size_t>(layout_.place(parameter).bucket); }
  const GradientBucket& layout(std::size_t index) const { return layout_.buckets[index]; }
  const ShardGroups::Set& groups_of(std::size_t index) const { return groups_.of(layout(index).parameters.front()); }
  const ParameterShard& shard(int parameter) const { return shards_[static_cast<std::size_t>(parameter)]; }
  const Parameter& described(int parameter) const { return graph_.parameters[static_cast<std::size_t>(parameter)]; }

  const GradientBuckets& layout_;
  const Plan& plan_;
  const ModelGraph& graph_;
  std::span<const ParameterShard> shards_;
  const ShardGroups& groups_;
  const RingOfSums* ring_;
  std::int64_t largest_operator_;
  GradientSums sums_;
  const QuantizedReductions& quantized_;
  std::vector<ReducedApart> reduced_apart_;  ///< by quantised reduction
  std::vector<std::map<int, int>> full_;     ///< by parameter: buffers of micro-batches that are not complete
  std::vector<bool> is_written_;             ///< by parameter: something stands at its place in a bucket that lasts
  std::vector<Bucket> on_the_way_;
  std::deque<Scattered> scattered_;      ///< the oldest first
  std::int64_t scattered_elements_ = 0;  ///< of all of them
  std::optional<Travelling> travelling_;
  int last_communication_ = -1;    ///< action
  bool backward_is_over_ = false;  ///< nothing needs the memory of what travels any more
};

int GradientWalk::add_buffer(std::string name, std::int64_t num_elements) {
  sums_.buffers.push_back({.name = std::move(name),
                           .num_elements = num_elements,
                           .dtype = plan_.dtypes.gradient,
                           .category = Category::gradient});
  return static_cast<int>(sums_.buffers.size()) - 1;
}

void GradientWalk::add_lasting_buffers() {
  for (std::size_t b = 0; b < on_the_way_.size(); ++b) {
    const GradientBucket& bucket = layout(b);
    if (!bucket.is_sharded) on_the_way_[b].lasting = add_buffer(fmt::format("gradients[{}]", b), bucket.num_elements);
    if (bucket.keeps() && bucket.num_kept > 0) {
      on_the_way_[b].kept = add_buffer(fmt::format("gradients_kept[{}]", b), bucket.num_kept);
    }
  }
  sums_.num_lasting = static_cast<int>(sums_.buffers.size());
  if (ring_ != nullptr && !ring_->slots.empty()) share_lasting_buffers();
}

/// A slot has a buffer for each bucket of a stage, in their order, as large as the largest that comes there.
void GradientWalk::share_lasting_buffers() {
  std::map<std::string, std::int64_t> largest;
  std::vector<std::string> names;
  int slot = -1, number = 0;
  for (const GradientBucket& bucket : layout_.buckets) {
    const int here = ring_->slots.at(bucket.parameters.front());
    number = here == std::exchange(slot, here) ? number + 1 : 0;
    std::int64_t& elements = largest[names.emplace_back(fmt::format("gradients_slot[{}][{}]", slot, number))];
    elements = std::max(elements, bucket.num_elements);
  }
  for (std::size_t b = 0; b < names.size(); ++b) share(on_the_way_[b].lasting, names[b], largest.at(names[b]));
}

void GradientWalk::share(int buffer, std::string name, std::int64_t num_elements) {
  Buffer shared = sums_.buffers[static_cast<std::size_t>(buffer)];
  shared.name = std::move(name);
  shared.num_elements = num_elements;
  shared.persistent = true;
  sums_.shared.emplace(buffer, std::move(shared));
}

void GradientWalk::say_what_is_reduced() {
  sums_.reduced.resize(shards_.size());
  for (const int p : layout_.parameters) {
    const std::size_t b = bucket_of(p);
    sums_.reduced[static_cast<std::size_t>(p)] = layout(b).keeps() ? kept_part(p) : own_part(p, on_the_way_[b].lasting);
  }
  for (std::size_t b = 0; b < on_the_way_.size(); ++b) {
    const GradientBucket& bucket = layout(b);
    if (!bucket.counted) continue;
    const int group = groups_of(b).optimizer;
    const std::string name = fmt::format("gradients[{}]", b);
    if (bucket.keeps()) {
      sums_.counted.push_back({{on_the_way_[b].kept, 0, bucket.num_kept}, group, name});
    } else if (groups_of(b).spread < 0) {
      sums_.counted.push_back({sums_.whole(on_the_way_[b].lasting), group, name});
    } else {
      for (const int p : bucket.parameters) {
        sums_.counted.push_back({sums_.reduced[static_cast<std::size_t>(p)], group, described(p).name});
      }
    }
  }
}

void GradientWalk::expect(std::span<const GradientContribution> contributions) {
  for (const GradientContribution& c : contributions) {
    if (!c.last_of_micro_batch) continue;
    const std::size_t b = bucket_of(c.parameter);
    if (on_the_way_[b].first_micro_batch < 0) on_the_way_[b].first_micro_batch = c.micro_batch;
    ++on_the_way_[b].missing;
    if (layout(b).is_sharded || adds_behind(b, c.micro_batch)) ++on_the_way_[b].fillings[c.micro_batch].missing;
  }
}

Operand GradientWalk::shard_in_bucket(int parameter, int micro_batch) {
  const std::size_t b = bucket_of(parameter);
  int buffer = on_the_way_[b].lasting;
  if (layout(b).is_sharded || adds_behind(b, micro_batch)) {
    Filling& filling = on_the_way_[b].fillings[micro_batch];
    if (filling.buffer < 0) filling.buffer = add_buffer(fmt::format("gradients[{}]", b), layout(b).num_elements);
    buffer = filling.buffer;
  }
  return {buffer, layout_.place(parameter).begin, shard(parameter).held.size};
}

Operand GradientWalk::own_part(int parameter, int buffer) const {
  const Piece& updated = shard(parameter).updated;
  return {buffer, layout_.place(parameter).begin + updated.begin, updated.size};
}

Operand GradientWalk::kept_part(int parameter) const {
  return {on_the_way_[bucket_of(parameter)].kept, layout_.place(parameter).kept_begin, shard(parameter).updated.size};
}

void GradientWalk::receive(int item, std::span<const std::size_t> buckets) {
  sums_.before_item[item] = actions_of([&] {
    for (const std::size_t b : buckets) {
      Bucket& bucket = on_the_way_[b];
      int to = bucket.lasting;
      if (plan_.schedule.sum == "after") {
        to = bucket.received = add_buffer(fmt::format("gradients_received[{}]", b), layout(b).num_elements);
      } else {
        for (const int p : layout(b).parameters) is_written_[static_cast<std::size_t>(p)] = true;
      }
      sums_.actions.push_back({.kind = Kind::receive,
                               .bucket = static_cast<int>(b),
                               .to = sums_.whole(to),
                               .group = ring_->group,
                               .peer = ring_->from.rank,
                               .stream = ring_->from.stream});
    }
  });
}

void GradientWalk::contribute(std::span<const GradientContribution> contributions) {
  GradientSums::OfOperator& here = sums_.backward.at(contributions.front().item, contributions.front().op);
  for (const GradientContribution& c : contributions) here.destinations.push_back(destination(c));
  here.behind_contributions = actions_of([&] {
    for (const GradientContribution& c : contributions) contributed(c);
  });
  here.behind_operator = actions_of([&] {
    add_up_hops_at(quantized_.behind_operator, {contributions.front().item, contributions.front().op});
  });
}

GradientSums::Destination GradientWalk::destination(const GradientContribution& c) {
  const auto p = static_cast<std::size_t>(c.parameter);
  if (!is_scattered(c.parameter)) {
    const std::size_t b = bucket_of(c.parameter);
    const bool lasts = !layout(b).is_sharded && !adds_behind(b, c.micro_batch);
    const bool accumulate = lasts ? is_written_[p] : !c.first_of_micro_batch;
    is_written_[p] = true;
    return {.parameter = c.parameter,
            .place = shard_in_bucket(c.parameter, c.micro_batch),
            .accumulate = accumulate,
            .before = actions_of([] {})};
  }
  ActionRange before{};
  if (c.first_of_micro_batch) {
    // Beside what is on its way there is room for the full gradients that one operator makes.
    before = actions_of([&] {
      while (scattered_elements_ > largest_operator_) finish_oldest_scatter();
    });
    full_[p][c.micro_batch] =
        add_buffer(described(c.parameter).name + "/gradient", described(c.parameter).num_elements());
  }
  return {.parameter = c.parameter,
          .place = sums_.whole(full_[p].at(c.micro_batch)),
          .accumulate = !c.first_of_micro_batch,
          .before = before};
}

void GradientWalk::contributed(const GradientContribution& c) {
  if (c.last_of_micro_batch) {
    if (is_scattered(c.parameter)) {
      scatter_full(c);
    } else {
      gradient_complete(c.parameter, c.micro_batch);
    }
  }
  if (c.ends_micro_batch) finish_micro_batch(c.micro_batch);
}

/// The sum over the p shards' ranks, into this rank's shard.
void GradientWalk::scatter_full(const GradientContribution& c) {
  const auto p = static_cast<std::size_t>(c.parameter);
  const std::size_t b = bucket_of(c.parameter);
  const Operand full = sums_.whole(full_[p].extract(c.micro_batch).mapped());
  const Operand own = shard_in_bucket(c.parameter, c.micro_batch);
  const bool accumulate = !layout(b).is_sharded && is_written_[p];
  is_written_[p] = true;
  if (plan_.quantization.gradients != "none") {
    begin_reduction(quantized_.beginning.at({c.item, c.parameter}), full, own, accumulate);
    gradient_complete(c.parameter, c.micro_batch);
    return;
  }
  const Piece& held = shard(c.parameter).held;
  const Operand in_place{full.buffer, held.begin, held.size};
  communicate({.kind = Kind::reduce_scatter,
               .parameter = c.parameter,
               .from = full,
               .to = accumulate ? in_place : own,
               .group = groups_.of(c.parameter).parameter});
  // Where nothing is to be added on the compute stream the next collective follows at once.
  const bool awaited = accumulate || (c.last && on_the_way_[b].has_kept && !layout(b).scatters);
  scattered_.push_back({.parameter = c.parameter,
                        .micro_batch = c.micro_batch,
                        .action = last_communication_,
                        .num_elements = full.num_elements,
                        .awaited = awaited,
                        .accumulate = accumulate,
                        .own = in_place});
  scattered_elements_ += full.num_elements;
  if (!awaited) gradient_complete(c.parameter, c.micro_batch);
  if (plan_.overlap.reduce_scatter == "none") finish_oldest_scatter();
}

/// @param own this rank's part of the sum over the ranks that share @p full.
void GradientWalk::begin_reduction(int number, const Operand& full, const Operand& own, bool accumulate) {
  const auto n = static_cast<std::size_t>(number);
  const QuantizedReduction& reduction = quantized_.all[n];
  reduced_apart_[n] = {own, accumulate, exchange(reduction, 0, full, plan_.quantization, sums_)};
  if (plan_.overlap.reduce_scatter != "none") return;
  for (int hop = 0; hop < std::ssize(reduction.hops); ++hop) add_up({number, hop});
}

void GradientWalk::add_up(const QuantizedReductions::Sum& hop) {
  const auto n = static_cast<std::size_t>(hop.reduction);
  ReducedApart& r = reduced_apart_[n];
  r.received = strata::add_up(quantized_.all[n], hop.hop, r.received, r.own, r.accumulate, plan_.quantization, sums_);
}

/// The compute stream waits for the oldest full gradient on its way, which leaves its memory.
void GradientWalk::finish_oldest_scatter() {
  const Scattered oldest = scattered_.front();
  scattered_.pop_front();
  scattered_elements_ -= oldest.num_elements;
  wait_for(oldest.action);
  if (!oldest.awaited) return;
  if (oldest.accumulate) {
    add(oldest.parameter, oldest.own, shard_in_bucket(oldest.parameter, oldest.micro_batch), true);
  }
  gradient_complete(oldest.parameter, oldest.micro_batch);
}

/// What the compute stream has to do with this micro-batch's full gradients. Those that need nothing more are gone when
/// the next forward has gathered a parameter: nobody waits for them. Nor for a bucket, under which the next forward
/// runs.
void GradientWalk::finish_micro_batch(int micro_batch) {
  const auto is_here = [&](const Scattered& s) { return s.micro_batch == micro_batch; };
  // The communication stream is in order: what is older has arrived, too.
  while (std::ranges::any_of(scattered_, is_here)) {
    if (scattered_.front().awaited) {
      finish_oldest_scatter();
    } else {
      scattered_elements_ -= scattered_.front().num_elements;
      scattered_.pop_front();
    }
  }
}

/// The gradient of one micro-batch stands in its bucket.
void GradientWalk::gradient_complete(int parameter, int micro_batch) {
  const std::size_t b = bucket_of(parameter);
  Bucket& bucket = on_the_way_[b];
  STRATA_INVARIANT(bucket.missing > 0, "a contribution too many to " + described(parameter).name);
  --bucket.missing;
  if (!layout(b).is_sharded) {
    if (adds_behind(b, micro_batch) && --bucket.fillings.at(micro_batch).missing == 0) {
      add_whole(b, bucket.fillings.extract(micro_batch).mapped().buffer);
    }
    if (bucket.missing == 0 && plan_.overlap.all_reduce == "backward") reduce(b, bucket.lasting);
    return;
  }
  // The buffer is given up again, so that it cannot wait for other buckets.
  Filling& filling = bucket.fillings.at(micro_batch);
  if (--filling.missing > 0) return;
  const int buffer = filling.buffer;
  bucket.fillings.erase(micro_batch);
  if (bucket.missing == 0) {
    reduce(b, buffer);
  } else {
    keep_own_parts(b, buffer);
  }
}

/// Of an early micro-batch, where gradients are sharded further than parameters: the next one has a buffer of its own.
void GradientWalk::keep_own_parts(std::size_t index, int buffer) {
  Bucket& bucket = on_the_way_[index];
  const bool scatter = layout(index).scatters;
  if (scatter) {
    scatter_own_parts(index, buffer);
  } else {
    all_reduce({.bucket = static_cast<int>(index), .to = sums_.whole(buffer), .group = groups_of(index).spread});
  }
  const bool accumulate = std::exchange(bucket.has_kept, true);
  depart({.index = index, .buffer = buffer, .in_place = !scatter || accumulate, .accumulate = accumulate});
}

/// Own parts of the bucket, scattered out of it: into `kept`, or where they stand if something is in `kept` already.
void GradientWalk::scatter_own_parts(std::size_t index, int buffer) {
  std::vector<GradientAction> scatters;
  for (const int p : layout(index).parameters) {
    const ParameterShard& s = shard(p);
    if (s.held.size == 0) continue;
    const Operand own = own_part(p, buffer);
    const bool in_place = on_the_way_[index].has_kept || own.num_elements == 0;
    scatters.push_back({.kind = Kind::reduce_scatter,
                        .parameter = layout(index).parameters.size() == 1 ? p : -1,
                        .bucket = static_cast<int>(index),
                        .from = {buffer, layout_.place(p).begin, s.held.size},
                        .to = in_place ? own : kept_part(p),
                        .group = groups_of(index).spread,
                        .is_between_replicas = true,
                        .goes_with_next = true});
  }
  if (!scatters.empty()) scatters.back().goes_with_next = false;
  for (const GradientAction& scatter : scatters) communicate(scatter);
}

/// The last collective that was issued is @p bucket's. It begins when the bucket that left before it has arrived; the
/// compute stream waits for that one, which gives its memory up.
void GradientWalk::depart(Travelling bucket) {
  bucket.action = last_communication_;
  finish_travelling();
  travelling_ = bucket;
  if (plan_.overlap.all_reduce == "none") finish_travelling();
}

/// The compute stream waits for the bucket on its way, which leaves its memory; own parts come into `kept`.
void GradientWalk::finish_travelling() {
  if (!travelling_) return;
  const Travelling t = *std::exchange(travelling_, std::nullopt);
  const GradientBucket& bucket = layout(t.index);
  const auto wait = [&](int action) {
    if (action >= 0 && !backward_is_over_) wait_for(action);
  };
  wait(t.action);
  if (t.in_place) {
    for (const int p : bucket.parameters) add(p, own_part(p, t.buffer), kept_part(p), t.accumulate);
  }
  if (t.is_last && bucket.scatters) {
    all_reduce({.bucket = static_cast<int>(t.index),
                .to = {on_the_way_[t.index].kept, 0, bucket.num_kept},
                .group = groups_of(t.index).owners});
    if (plan_.overlap.all_reduce == "none") wait(last_communication_);
  }
}

/// Of the last micro-batch, which completes the step's sum.
void GradientWalk::reduce(std::size_t index, int buffer) {
  Bucket& bucket = on_the_way_[index];
  bucket.is_reduced = true;
  const int number = static_cast<int>(index);
  if (ring_ != nullptr) {
    if (bucket.received >= 0) add_whole(index, bucket.received);
    const RingOfSums::Peer to = ring_->next(layout(index).parameters.front());
    if (to.rank < 0) return;
    sums_.actions.push_back({.kind = Kind::send,
                             .bucket = number,
                             .from = sums_.whole(buffer),
                             .group = ring_->group,
                             .peer = to.rank,
                             .stream = to.stream});
    return;
  }
  const ShardGroups::Set& groups = groups_of(index);
  if (!layout(index).keeps()) {
    all_reduce({.bucket = number, .to = sums_.whole(buffer), .group = groups.replicas});
    return;
  }
  // What earlier micro-batches have kept is read below: it has to be there.
  if (travelling_ && travelling_->index == index) finish_travelling();
  if (layout(index).scatters) {
    scatter_own_parts(index, buffer);
    // The rest of the sum waits for additions only where there are some.
    if (!bucket.has_kept) {
      all_reduce({.bucket = number, .to = {bucket.kept, 0, layout(index).num_kept}, .group = groups.owners});
    }
    depart({.index = index,
            .buffer = buffer,
            .in_place = bucket.has_kept,
            .accumulate = true,
            .is_last = bucket.has_kept});
    return;
  }
  if (bucket.has_kept) {
    for (const int p : layout(index).parameters) add(p, kept_part(p), own_part(p, buffer), true);
  }
  all_reduce({.bucket = number, .to = sums_.whole(buffer), .group = groups.replicas});
  depart({.index = index, .buffer = buffer, .in_place = true});
}

void GradientWalk::complete(int item, std::span<const int> parameters) {
  const auto is_one = [&](int p) { return std::ranges::find(parameters, p) != parameters.end(); };
  sums_.before_item[item] = actions_of([&] {
    add_up_hops_at(quantized_.before_item, item);
    while (std::ranges::any_of(scattered_, [&](const Scattered& s) { return s.awaited && is_one(s.parameter); })) {
      finish_oldest_scatter();
    }
    for (std::size_t b = 0; b < on_the_way_.size(); ++b) {
      if (!is_one(layout(b).parameters.front())) continue;
      STRATA_INVARIANT(on_the_way_[b].missing == 0, "an update before its gradients");
      if (!on_the_way_[b].is_reduced) reduce(b, on_the_way_[b].lasting);
      if (travelling_ && travelling_->index == b) finish_travelling();
    }
  });
}

void GradientWalk::reduce_remaining(const std::map<int, Copies>& copies) {
  sums_.behind_backward = actions_of([&] {
    for (const QuantizedReductions::Sum& hop : quantized_.behind_backward) add_up(hop);
    backward_is_over_ = true;
    // A bucket is complete long before backward ends, and streams run ahead as far as they may.
    if (plan_.overlap.all_reduce == "none") sums_.actions.push_back({.kind = Kind::hold_sums});
    for (std::size_t b = 0; b < on_the_way_.size(); ++b) {
      STRATA_INVARIANT(on_the_way_[b].missing == 0, "a gradient is missing");
      if (!on_the_way_[b].is_reduced) reduce(b, on_the_way_[b].lasting);
    }
    finish_travelling();
    if (ring_ != nullptr) receive_whole_sums();
    for (const auto& [p, copy] : copies) {
      all_reduce({.parameter = p, .to = sums_.reduced[static_cast<std::size_t>(p)], .group = copy.group});
    }
  });
}

/// Of what this rank updates and another one has summed up: in buffers of their own, since the rank's own part of the
/// sum may still be on its way there.
void GradientWalk::receive_whole_sums() {
  for (std::size_t b = 0; b < on_the_way_.size(); ++b) {
    const auto from = ring_->whole_from.find(layout(b).parameters.front());
    if (from == ring_->whole_from.end()) continue;
    const std::string name = fmt::format("gradients_whole[{}]", b);
    const int whole = add_buffer(name, layout(b).num_elements);
    if (!ring_->slots.empty()) share(whole, name, layout(b).num_elements);
    for (const int p : layout(b).parameters) sums_.reduced[static_cast<std::size_t>(p)] = own_part(p, whole);
    sums_.actions.push_back({.kind = Kind::receive,
                             .bucket = static_cast<int>(b),
                             .to = sums_.whole(whole),
                             .group = ring_->group,
                             .peer = from->second.rank,
                             .stream = from->second.stream});
  }
}

void GradientWalk::add(int parameter, const Operand& from, const Operand& to, bool accumulate) {
  if (to.num_elements == 0) return;
  sums_.actions.push_back(
      {.kind = accumulate ? Kind::add : Kind::copy, .parameter = parameter, .from = from, .to = to});
}

void GradientWalk::add_whole(std::size_t index, int from) {
  sums_.actions.push_back({.kind = Kind::add,
                           .bucket = static_cast<int>(index),
                           .from = sums_.whole(from),
                           .to = sums_.whole(on_the_way_[index].lasting)});
}

void GradientWalk::all_reduce(GradientAction action) {
  if (action.group < 0 || action.to.num_elements == 0) return;
  action.kind = Kind::all_reduce;
  action.is_between_replicas = true;
  communicate(action);
}

void GradientWalk::communicate(GradientAction action) {
  last_communication_ = static_cast<int>(sums_.actions.size());
  sums_.actions.push_back(action);
}

void GradientWalk::wait_for(int action) { sums_.actions.push_back({.kind = Kind::await, .awaited = action}); }

/// By item: buckets whose sums of earlier micro-batches are received before it, which is one pass of a stage before
/// their own gradients, so that it hides them.
std::map<int, std::vector<std::size_t>> buckets_to_receive(const StepOrder& order,
                                                           std::span<const GradientContribution> contributions,
                                                           const GradientBuckets& buckets) {
  std::vector<int> ahead(order.items.size(), -1);  // by item: the first one of the pass before its own
  int first = -1, before = -1;
  for (int i = 0; i < static_cast<int>(order.items.size()); ++i) {
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.pass == Pass::update) continue;
    const auto pass_of = [&](const OrderItem& of) {
      return std::pair(order.shape.segments[static_cast<std::size_t>(of.segment)].stage, of.pass == Pass::forward);
    };
    if (first < 0 || pass_of(item) != pass_of(order.items[static_cast<std::size_t>(first)])) {
      before = std::exchange(first, i);
    }
    ahead[static_cast<std::size_t>(i)] = std::max(before, 0);
  }
  std::map<int, std::vector<std::size_t>> all;
  std::vector<bool> is_begun(buckets.buckets.size(), false);
  for (const GradientContribution& c : contributions) {
    const auto b = static_cast<std::size_t>(buckets.place(c.parameter).bucket);
    if (is_begun[b]) continue;
    is_begun[b] = true;
    all[ahead[static_cast<std::size_t>(c.item)]].push_back(b);
  }
  return all;
}

}  // namespace

GradientSums gradient_sums(const StepOrder& order, std::span<const GradientContribution> contributions,
                           const GradientBuckets& buckets, const Plan& plan, const ModelGraph& graph,
                           std::span<const ParameterShard> shards, const ShardGroups& groups,
                           const std::map<int, Copies>& copies, const RingOfSums* ring) {
  const QuantizedReductions quantized = quantized_reductions(order, contributions, plan, graph, shards, groups);
  GradientWalk walk(order, buckets, plan, graph, shards, groups, ring, quantized,
                    largest_operator(contributions, graph, groups));
  walk.expect(contributions);
  std::map<int, std::vector<std::size_t>> received;
  if (ring != nullptr && ring->from.rank >= 0) received = buckets_to_receive(order, contributions, buckets);
  const int end = behind_last_pass(order);
  auto next = contributions.begin();
  for (int i = 0; i < end; ++i) {
    if (const auto here = received.find(i); here != received.end()) walk.receive(i, here->second);
    const OrderItem& item = order.items[static_cast<std::size_t>(i)];
    if (item.pass == Pass::update) walk.complete(i, item.parameters);
    while (next != contributions.end() && next->item == i) {
      const auto behind = std::find_if(next, contributions.end(), [&](const GradientContribution& c) {
        return c.item != next->item || c.op != next->op;
      });
      walk.contribute({next, behind});
      next = behind;
    }
  }
  walk.reduce_remaining(copies);
  return std::move(walk).take();
}

}  // namespace strata

#include "lower/states/gradient_buckets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "lower/step/streams.hpp"

namespace strata {

GradientBuckets::GradientBuckets(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                                 std::span<const ParameterShard> shards, const ShardGroups& groups,
                                 const std::map<int, Copies>& copies, std::span<const int> update_of,
                                 ProgramBuilder& builder)
    : plan_(plan),
      graph_(graph),
      operators_(operators),
      shards_(shards),
      groups_(groups),
      builder_(builder),
      quantized_(plan.quantization, plan.overlap.reduce_scatter != "none", builder),
      members_(graph.parameters.size()) {
  for (const Operator& op : operators) {
    std::int64_t elements = 0;
    for (const int p : op.parameters) {
      ++member(p).num_uses;
      if (groups.of(p).parameter >= 0) elements += graph.parameters[static_cast<std::size_t>(p)].num_elements();
    }
    largest_operator_ = std::max(largest_operator_, elements);
  }
  assign_buckets(copies, update_of);
  for (const auto& [p, c] : copies) copies_.emplace_back(p, c.group);
}

bool GradientBuckets::shards_gradients(const Bucket& bucket) const {
  const StateFactors& f = shard(bucket.parameters.front()).factors;
  return f.g != f.p;
}

bool GradientBuckets::scatters(const Bucket& bucket) const {
  return plan_.optimizer.gradients == "reduce_scatter" && groups_of(bucket).spread >= 0;
}

void GradientBuckets::assign_buckets(const std::map<int, Copies>& copies, std::span<const int> update_of) {
  // A gradient is complete after the backward of the first operator, in graph order, that uses the parameter.
  std::vector<int> first_use(members_.size(), std::numeric_limits<int>::max());
  for (std::size_t o = operators_.size(); o-- > 0;) {
    for (const int p : operators_[o].parameters) {
      first_use[static_cast<std::size_t>(p)] = static_cast<int>(o);
    }
  }
  for (std::size_t p = 0; p < members_.size(); ++p) {
    if (members_[p].num_uses > 0) in_order_.push_back(static_cast<int>(p));
  }
  std::ranges::stable_sort(in_order_, std::ranges::greater{},
                           [&](int p) { return first_use[static_cast<std::size_t>(p)]; });

  bool closed = true;
  for (const int p : in_order_) {
    // A parameter with copies elsewhere is summed and counted by itself: its bucket has no other.
    const auto copy = copies.find(p);
    const bool has_copies = copy != copies.end();
    const bool other_groups = !buckets_.empty() && &groups_.of(buckets_.back().parameters.front()) != &groups_.of(p);
    const bool other_update =
        !buckets_.empty() && update_of[static_cast<std::size_t>(p)] !=
                                 update_of[static_cast<std::size_t>(buckets_.back().parameters.front())];
    if (closed || has_copies || other_groups || other_update) {
      buckets_.emplace_back();
      buckets_.back().counted = !has_copies || copy->second.counted;
    }
    Bucket& bucket = buckets_.back();
    Member& m = member(p);
    m.bucket = static_cast<int>(buckets_.size()) - 1;
    m.begin = bucket.num_elements;
    m.kept_begin = bucket.num_kept;
    bucket.num_elements += shard(p).held.size;
    bucket.num_kept += shard(p).updated.size;
    bucket.parameters.push_back(p);
    closed = has_copies || bucket.num_elements * size_of(plan_.dtypes.gradient) >= plan_.overlap.bucket_bytes;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const auto add_buffer = [&](const char* name, std::int64_t num_elements) {
      return builder_.add_buffer({.name = fmt::format("{}[{}]", name, b),
                                  .num_elements = num_elements,
                                  .dtype = plan_.dtypes.gradient,
                                  .category = Category::gradient});
    };
    if (!shards_gradients(bucket)) bucket.buffer = add_buffer("gradients", bucket.num_elements);
    bucket.keeps = shards_gradients(bucket) || scatters(bucket);
    if (bucket.keeps && bucket.num_kept > 0) bucket.kept = add_buffer("gradients_kept", bucket.num_kept);
  }
}

int GradientBuckets::storage(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (bucket.buffer < 0) {
    bucket.buffer = builder_.add_buffer({.name = fmt::format("gradients[{}]", index),
                                         .num_elements = bucket.num_elements,
                                         .dtype = plan_.dtypes.gradient,
                                         .category = Category::gradient});
  }
  return bucket.buffer;
}

GradientBuckets::Destination GradientBuckets::destination(int parameter) {
  Member& m = member(parameter);
  const std::int64_t num_elements = graph_.parameters[static_cast<std::size_t>(parameter)].num_elements();
  if (groups_.of(parameter).parameter >= 0) {
    const bool accumulate = m.full >= 0;
    if (!accumulate) {
      make_room_for_full();
      m.full = builder_.add_buffer({.name = name_of(parameter) + "/gradient",
                                    .num_elements = num_elements,
                                    .dtype = plan_.dtypes.gradient,
                                    .category = Category::gradient});
    }
    return {builder_.whole(m.full), accumulate};
  }
  const bool accumulate = std::exchange(m.written, true);
  return {{storage(static_cast<std::size_t>(m.bucket)), m.begin, num_elements}, accumulate};
}

void GradientBuckets::contributed(int parameter, bool last_micro_batch) {
  Member& m = member(parameter);
  if (++m.num_done < m.num_uses) return;
  m.num_done = 0;
  if (m.full >= 0) {
    scatter_full(parameter, last_micro_batch);
  } else {
    bucket_complete(static_cast<std::size_t>(m.bucket), last_micro_batch);
  }
  if (++num_complete_ < static_cast<int>(in_order_.size())) return;
  num_complete_ = 0;
  finish_micro_batch();
}

/// The sum over the p shards' ranks, into this rank's shard.
void GradientBuckets::scatter_full(int parameter, bool last_micro_batch) {
  Member& m = member(parameter);
  const Operand full = builder_.whole(std::exchange(m.full, -1));
  const Piece& held = shard(parameter).held;
  const Operand own{storage(static_cast<std::size_t>(m.bucket)), m.begin, held.size};
  const bool accumulate = std::exchange(m.written, true);
  if (plan_.quantization.gradients != "none") {
    quantized_.reduce(name_of(parameter), full, shard(parameter).factors.p, groups_.of(parameter), own, accumulate);
    bucket_complete(static_cast<std::size_t>(m.bucket), last_micro_batch);
    return;
  }
  const Operand in_place{full.buffer, held.begin, held.size};
  // What the compute stream has given up by now may be what is written.
  const int before = builder_.last_on(compute_stream);
  const int scatter = builder_.emit({.kernel = Kernel::none,
                                     .collective = Collective::reduce_scatter,
                                     .group = groups_.of(parameter).parameter,
                                     .stream = communication_stream,
                                     .phase = Phase::reduce,
                                     .name = name_of(parameter),
                                     .inputs = {full},
                                     .outputs = {accumulate ? in_place : own}},
                                    {&before, 1U});
  // Where nothing is to be added on the compute stream the next collective follows at once.
  const Bucket& bucket = buckets_[static_cast<std::size_t>(m.bucket)];
  const bool awaited = accumulate || (last_micro_batch && bucket.has_kept && !scatters(bucket));
  scattered_.push_back({.parameter = parameter,
                        .instruction = scatter,
                        .num_elements = full.num_elements,
                        .awaited = awaited,
                        .accumulate = accumulate,
                        .own = in_place,
                        .last_micro_batch = last_micro_batch});
  scattered_elements_ += full.num_elements;
  if (!awaited) bucket_complete(static_cast<std::size_t>(m.bucket), last_micro_batch);
  if (plan_.overlap.reduce_scatter == "none") finish_oldest_scatter();
}

void GradientBuckets::finish_oldest_scatter() {
  const Scattered oldest = scattered_.front();
  scattered_.pop_front();
  scattered_elements_ -= oldest.num_elements;
  builder_.hold(compute_stream, oldest.instruction);
  if (!oldest.awaited) return;
  const Member& m = member(oldest.parameter);
  const auto bucket = static_cast<std::size_t>(m.bucket);
  if (oldest.accumulate) {
    add(oldest.own, {storage(bucket), m.begin, oldest.own.num_elements}, true, name_of(oldest.parameter));
  }
  bucket_complete(bucket, oldest.last_micro_batch);
}

/// Beside the full gradients that the next operator makes.
void GradientBuckets::make_room_for_full() {
  while (scattered_elements_ > largest_operator_) finish_oldest_scatter();
}

/// What the compute stream has to do with this micro-batch's full gradients. Those that need nothing more are gone when
/// the next forward has gathered a parameter: nobody waits for them. Nor for a bucket, under which the next forward
/// runs.
void GradientBuckets::finish_micro_batch() {
  while (!scattered_.empty()) {
    if (scattered_.front().awaited) {
      finish_oldest_scatter();
    } else {
      scattered_elements_ -= scattered_.front().num_elements;
      scattered_.pop_front();
    }
  }
}

void GradientBuckets::add(const Operand& from, const Operand& to, bool accumulate, const std::string& name) {
  if (to.num_elements == 0) return;
  builder_.emit({.kernel = accumulate ? Kernel::accumulate : Kernel::copy,
                 .phase = Phase::reduce,
                 .name = name,
                 .inputs = {from},
                 .outputs = {to},
                 .attributes = {{"elements", to.num_elements}}});
}

void GradientBuckets::bucket_complete(std::size_t index, bool last_micro_batch) {
  Bucket& bucket = buckets_[index];
  STRATA_INVARIANT(bucket.num_complete < static_cast<int>(bucket.parameters.size()),
                   "a contribution too many to " + name_of(bucket.parameters.front()));
  if (++bucket.num_complete < static_cast<int>(bucket.parameters.size())) return;
  if (last_micro_batch) {
    // A bucket that is given up again cannot wait for the others.
    if (plan_.overlap.all_reduce == "backward" || shards_gradients(bucket)) reduce(index);
    return;
  }
  bucket.num_complete = 0;
  if (shards_gradients(bucket)) keep_own_parts(index);
}

/// Of an early micro-batch, where gradients are sharded further than parameters.
void GradientBuckets::keep_own_parts(std::size_t index) {
  Bucket& bucket = buckets_[index];
  const bool scatter = scatters(bucket);
  if (scatter) {
    scatter_own_parts(index);
  } else {
    all_reduce(builder_.whole(bucket.buffer), groups_of(bucket).spread, fmt::format("gradients[{}]", index));
  }
  const bool accumulate = std::exchange(bucket.has_kept, true);
  depart({.index = index, .in_place = !scatter || accumulate, .accumulate = accumulate});
  // The next micro-batch has a bucket of its own.
  bucket.buffer = -1;
  for (const int p : bucket.parameters) member(p).written = false;
}

void GradientBuckets::scatter_own_parts(std::size_t index) {
  Bucket& bucket = buckets_[index];
  const int before = builder_.last_on(compute_stream);  // as of what it has given up
  for (const int p : bucket.parameters) {
    const ParameterShard& s = shard(p);
    if (s.held.size == 0) continue;
    const Operand own{bucket.buffer, member(p).begin + s.updated.begin, s.updated.size};
    const bool in_place = bucket.has_kept || own.num_elements == 0;
    builder_.emit({.kernel = Kernel::none,
                   .collective = Collective::reduce_scatter,
                   .group = groups_of(bucket).spread,
                   .stream = communication_stream,
                   .phase = Phase::reduce,
                   .name = name_of(p),
                   .inputs = {{bucket.buffer, member(p).begin, s.held.size}},
                   .outputs = {in_place ? own : Operand{bucket.kept, member(p).kept_begin, s.updated.size}}},
                  {&before, 1U});
  }
}

/// The bucket before it has arrived by then.
void GradientBuckets::depart(Travelling bucket) {
  bucket.buffer = buckets_[bucket.index].buffer;
  bucket.instruction = builder_.last_on(communication_stream);
  finish_travelling();
  travelling_ = bucket;
  if (plan_.overlap.all_reduce == "none") finish_travelling();
}

void GradientBuckets::finish_travelling() {
  if (!travelling_) return;
  const Travelling t = *std::exchange(travelling_, std::nullopt);
  const Bucket& bucket = buckets_[t.index];
  const auto wait = [&](int instruction) {
    if (instruction >= 0 && !backward_is_over_) builder_.hold(compute_stream, instruction);
  };
  wait(t.instruction);
  if (t.in_place) {
    for (const int p : bucket.parameters) {
      const Member& m = member(p);
      const Piece& updated = shard(p).updated;
      add({t.buffer, m.begin + updated.begin, updated.size}, {bucket.kept, m.kept_begin, updated.size}, t.accumulate,
          name_of(p));
    }
  }
  if (t.is_last && scatters(bucket)) {
    all_reduce({bucket.kept, 0, bucket.num_kept}, groups_of(bucket).owners, fmt::format("gradients[{}]", t.index));
    if (plan_.overlap.all_reduce == "none") wait(builder_.last_on(communication_stream));
  }
}

void GradientBuckets::all_reduce(const Operand& operand, int group, std::string name) {
  if (group < 0 || operand.num_elements == 0) return;
  builder_.emit({.kernel = Kernel::none,
                 .collective = Collective::all_reduce,
                 .group = group,
                 .stream = communication_stream,
                 .phase = Phase::reduce,
                 .name = std::move(name),
                 .inputs = {operand},
                 .outputs = {operand}});
}

/// Of the last micro-batch, which completes the step's sum.
void GradientBuckets::reduce(std::size_t index) {
  Bucket& bucket = buckets_[index];
  bucket.reduced = true;
  const std::string name = fmt::format("gradients[{}]", index);
  const ShardGroups::Set& groups = groups_of(bucket);
  if (!bucket.keeps) {
    all_reduce(builder_.whole(bucket.buffer), groups.replicas, name);
    return;
  }
  // What an earlier micro-batch has kept is read now.
  if (travelling_ && travelling_->index == index) finish_travelling();
  if (scatters(bucket)) {
    scatter_own_parts(index);
    // The rest of the sum waits for additions only where there are some.
    if (!bucket.has_kept) all_reduce({bucket.kept, 0, bucket.num_kept}, groups.owners, name);
    depart({.index = index, .in_place = bucket.has_kept, .accumulate = true, .is_last = bucket.has_kept});
    return;
  }
  if (bucket.has_kept) {
    for (const int p : bucket.parameters) {
      const Piece& updated = shard(p).updated;
      add({bucket.kept, member(p).kept_begin, updated.size},
          {bucket.buffer, member(p).begin + updated.begin, updated.size}, true, name_of(p));
    }
  }
  all_reduce(builder_.whole(bucket.buffer), groups.replicas, name);
  depart({.index = index, .in_place = true});
}

void GradientBuckets::complete(std::span<const int> parameters) {
  quantized_.finish();
  const auto is_one = [&](int p) { return std::ranges::find(parameters, p) != parameters.end(); };
  while (std::ranges::any_of(scattered_, [&](const Scattered& s) { return s.awaited && is_one(s.parameter); })) {
    finish_oldest_scatter();
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!is_one(buckets_[b].parameters.front())) continue;
    if (!buckets_[b].reduced) reduce(b);
    if (travelling_ && travelling_->index == b) finish_travelling();
  }
}

void GradientBuckets::reduce_remaining() {
  quantized_.finish();
  backward_is_over_ = true;
  // A bucket is complete long before backward ends, and streams run ahead as far as they may.
  if (plan_.overlap.all_reduce == "none") builder_.hold(communication_stream, builder_.last_on(compute_stream));
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    STRATA_INVARIANT(buckets_[b].num_complete == static_cast<int>(buckets_[b].parameters.size()),
                     "a gradient is missing");
    if (!buckets_[b].reduced) reduce(b);
  }
  finish_travelling();
  // In the order of the graph's parameters, which all stages share.
  for (const auto& [p, group] : copies_) all_reduce(reduced(p), group, name_of(p));
}

Operand GradientBuckets::reduced(int parameter) const {
  const Member& m = member(parameter);
  const Bucket& bucket = buckets_[static_cast<std::size_t>(m.bucket)];
  const Piece& updated = shard(parameter).updated;
  if (bucket.keeps) return {bucket.kept, m.kept_begin, updated.size};
  return {bucket.buffer, m.begin + updated.begin, updated.size};
}

std::vector<GradientBuckets::Counted> GradientBuckets::counted() const {
  std::vector<Counted> result;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (!bucket.counted) continue;
    const int group = groups_of(bucket).optimizer;
    const std::string name = fmt::format("gradients[{}]", b);
    if (bucket.keeps) {
      result.push_back({{bucket.kept, 0, bucket.num_kept}, group, name});
    } else if (groups_of(bucket).spread < 0) {
      result.push_back({builder_.whole(bucket.buffer), group, name});
    } else {
      for (const int p : bucket.parameters) result.push_back({reduced(p), group, name_of(p)});
    }
  }
  return result;
}

}  // namespace strata

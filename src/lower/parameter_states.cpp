#include "lower/parameter_states.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace strata {

ParameterStates::ParameterStates(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                                 ProgramBuilder& builder, ParameterGroups groups)
    : plan_(plan),
      graph_(graph),
      operators_(operators),
      builder_(builder),
      groups_(std::move(groups)),
      owned_(graph.parameters.size()) {
  for (const Operator& op : operators) {
    for (const int p : op.parameters) {
      ++owned_[static_cast<std::size_t>(p)].remaining;
    }
  }
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    Owned& owned = owned_[p];
    if (owned.remaining == 0) continue;
    const auto add = [&](const char* suffix, DType dtype, Category category, bool is_master) {
      return builder.add_buffer({.name = parameter.name + suffix,
                                 .num_elements = parameter.num_elements(),
                                 .dtype = dtype,
                                 .category = category,
                                 .persistent = true,
                                 .parameter = is_master ? parameter.name : ""});
    };
    const bool mixed = plan.dtypes.compute != DType::f32;
    owned.weight = add("", plan.dtypes.compute, Category::parameter, !mixed);
    owned.master = mixed ? add("/master", DType::f32, Category::optimizer, true) : owned.weight;
    for (int s = 0; s < num_states(); ++s) {
      owned.states.push_back(add(num_states() == 1 ? "/momentum"
                                 : s == 0          ? "/m"
                                                   : "/v",
                                 DType::f32, Category::optimizer, false));
    }
  }
  assign_buckets();
}

int ParameterStates::num_states() const {
  if (plan_.optimizer.kind == "sgd") {
    return plan_.optimizer.momentum == 0.0 ? 0 : 1;
  }
  return 2;
}

void ParameterStates::assign_buckets() {
  // A gradient is complete after the backward of the first operator, in graph order, that uses the parameter.
  std::vector<int> first_use(owned_.size(), std::numeric_limits<int>::max());
  for (std::size_t o = operators_.size(); o-- > 0;) {
    for (const int p : operators_[o].parameters) {
      first_use[static_cast<std::size_t>(p)] = static_cast<int>(o);
    }
  }
  std::vector<int> by_completion;
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    if (owned_[p].held()) by_completion.push_back(static_cast<int>(p));
  }
  std::ranges::stable_sort(by_completion, std::ranges::greater{},
                           [&](int p) { return first_use[static_cast<std::size_t>(p)]; });

  std::int64_t filled = 0;
  bool closed = true;
  for (const int p : by_completion) {
    // A parameter with copies elsewhere is summed and counted by itself: its bucket has no other.
    const auto copies = groups_.copies.find(p);
    const bool has_copies = copies != groups_.copies.end();
    if (closed || has_copies) {
      buckets_.emplace_back();
      buckets_.back().counted = !has_copies || copies->second.counted;
      filled = 0;
    }
    Owned& owned = owned_[static_cast<std::size_t>(p)];
    owned.bucket = static_cast<int>(buckets_.size()) - 1;
    owned.bucket_begin = filled;
    filled += graph_.parameters[static_cast<std::size_t>(p)].num_elements();
    buckets_.back().parameters.push_back(p);
    ++buckets_.back().incomplete;
    closed = has_copies || filled * size_of(plan_.dtypes.gradient) >= plan_.overlap.bucket_bytes;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Owned& last = owned_[static_cast<std::size_t>(buckets_[b].parameters.back())];
    buckets_[b].buffer = builder_.add_buffer(
        {.name = fmt::format("gradients[{}]", b),
         .num_elements = last.bucket_begin +
                         graph_.parameters[static_cast<std::size_t>(buckets_[b].parameters.back())].num_elements(),
         .dtype = plan_.dtypes.gradient,
         .category = Category::gradient});
  }
}

void ParameterStates::initialize() {
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    const Parameter& parameter = graph_.parameters[p];
    const Owned& owned = owned_[p];
    if (!owned.held()) continue;
    const auto emit = [&](Kernel kernel, std::vector<Operand> inputs, Operand output, Attributes attributes) {
      attributes.set("elements", output.num_elements);
      builder_.emit({.kernel = kernel,
                     .phase = Phase::setup,
                     .name = parameter.name,
                     .inputs = std::move(inputs),
                     .outputs = {output},
                     .attributes = std::move(attributes)});
    };
    const Initializer& initializer = parameter.initializer;
    emit(Kernel::initialize, {}, builder_.whole(owned.master),
         {{"distribution", std::int64_t{static_cast<int>(initializer.kind)}},
          {"a", initializer.a},
          {"b", initializer.b}});
    if (owned.weight != owned.master) {
      emit(Kernel::copy, {builder_.whole(owned.master)}, builder_.whole(owned.weight), {});
    }
    for (const int state : owned.states) {
      emit(Kernel::fill, {}, builder_.whole(state), {{"value", 0.0}});
    }
  }
}

Operand ParameterStates::weight(int parameter) const {
  return builder_.whole(owned_[static_cast<std::size_t>(parameter)].weight);
}

ParameterStates::Destination ParameterStates::gradient(int parameter) {
  Owned& owned = owned_[static_cast<std::size_t>(parameter)];
  const Operand operand{buckets_[static_cast<std::size_t>(owned.bucket)].buffer, owned.bucket_begin,
                        graph_.parameters[static_cast<std::size_t>(parameter)].num_elements(), 0};
  const bool accumulate = owned.written;
  owned.written = true;
  return {operand, accumulate};
}

void ParameterStates::contributed(int parameter, bool last_micro_batch) {
  if (!last_micro_batch) {
    return;
  }
  Owned& owned = owned_[static_cast<std::size_t>(parameter)];
  STRATA_INVARIANT(owned.remaining > 0,
                   "a contribution too many to " + graph_.parameters[static_cast<std::size_t>(parameter)].name);
  if (--owned.remaining > 0) {
    return;
  }
  Bucket& bucket = buckets_[static_cast<std::size_t>(owned.bucket)];
  if (--bucket.incomplete == 0 && plan_.overlap.all_reduce == "backward") {
    reduce(bucket, static_cast<std::size_t>(owned.bucket));
  }
}

void ParameterStates::reduce(Bucket& bucket, std::size_t index) {
  bucket.reduced = true;
  if (groups_.data >= 0) {
    all_reduce_bucket(bucket, groups_.data, fmt::format("gradients[{}]", index));
  }
}

void ParameterStates::all_reduce_bucket(const Bucket& bucket, int group, std::string name) {
  const Operand all = builder_.whole(bucket.buffer);
  builder_.emit({.kernel = Kernel::none,
                 .collective = Collective::all_reduce,
                 .group = group,
                 .stream = communication_stream,
                 .phase = Phase::reduce,
                 .name = std::move(name),
                 .inputs = {all},
                 .outputs = {all}});
}

void ParameterStates::reduce_remaining() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    STRATA_INVARIANT(buckets_[b].incomplete == 0, "a gradient is missing");
    if (!buckets_[b].reduced) {
      reduce(buckets_[b], b);
    }
  }
  // In the order of the graph's parameters, which all stages share.
  for (const auto& [p, copies] : groups_.copies) {
    all_reduce_bucket(buckets_[static_cast<std::size_t>(owned_[static_cast<std::size_t>(p)].bucket)], copies.group,
                      graph_.parameters[static_cast<std::size_t>(p)].name);
  }
}

/// @return the buffer of the factor that clips.
int ParameterStates::gradient_norm() {
  const auto scalar = [&](const char* name, bool persistent) {
    return builder_.add_buffer(
        {.name = name, .num_elements = 1, .category = Category::workspace, .persistent = persistent});
  };
  const int sum = scalar("gradient_norm/sum_of_squares", false);
  const int factor = scalar("gradient_norm/factor", false);
  const int norm = scalar("gradient_norm", true);
  bool accumulate = false;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].counted) continue;
    const Operand all = builder_.whole(buckets_[b].buffer);
    builder_.emit({.kernel = Kernel::sum_of_squares,
                   .phase = Phase::update,
                   .name = fmt::format("gradients[{}]", b),
                   .inputs = {all},
                   .outputs = {builder_.whole(sum)},
                   .attributes = {{"elements", all.num_elements}, {"accumulate", std::int64_t{accumulate ? 1 : 0}}}});
    accumulate = true;
  }
  if (!accumulate) {
    builder_.emit({.kernel = Kernel::fill,
                   .phase = Phase::update,
                   .name = "gradient_norm",
                   .outputs = {builder_.whole(sum)},
                   .attributes = {{"elements", std::int64_t{1}}, {"value", 0.0}}});
  }
  if (groups_.stages >= 0) {
    builder_.emit({.kernel = Kernel::none,
                   .collective = Collective::all_reduce,
                   .group = groups_.stages,
                   .stream = communication_stream,
                   .phase = Phase::update,
                   .name = "gradient_norm",
                   .inputs = {builder_.whole(sum)},
                   .outputs = {builder_.whole(sum)}});
  }
  builder_.emit({.kernel = Kernel::clip_factor,
                 .phase = Phase::update,
                 .name = "gradient_norm",
                 .inputs = {builder_.whole(sum)},
                 .outputs = {builder_.whole(factor), builder_.whole(norm)},
                 .attributes = {{"clip_norm", plan_.optimizer.clip_norm}}});
  builder_.set_norm(norm);
  return factor;
}

void ParameterStates::update() {
  const int factor = plan_.optimizer.clip_norm > 0.0 ? gradient_norm() : -1;
  for (const Bucket& bucket : buckets_) {
    for (const int p : bucket.parameters) {
      emit_update(p, factor);
    }
  }
}

void ParameterStates::emit_update(int parameter, int factor_buffer) {
  const Owned& owned = owned_[static_cast<std::size_t>(parameter)];
  const Parameter& description = graph_.parameters[static_cast<std::size_t>(parameter)];
  const OptimizerPlan& optimizer = plan_.optimizer;
  Instruction in{.phase = Phase::update, .name = description.name};
  in.inputs = {
      {buckets_[static_cast<std::size_t>(owned.bucket)].buffer, owned.bucket_begin, description.num_elements(), 0}};
  if (factor_buffer >= 0) {
    in.inputs.push_back(builder_.whole(factor_buffer));
  }
  in.outputs = {builder_.whole(owned.master)};
  for (const int state : owned.states) {
    in.outputs.push_back(builder_.whole(state));
  }
  if (owned.weight != owned.master) {
    in.outputs.push_back(builder_.whole(owned.weight));
  }
  in.attributes = {{"elements", description.num_elements()},
                   {"weight_decay", description.weight_decay ? optimizer.weight_decay : 0.0}};
  if (optimizer.kind == "sgd") {
    in.kernel = owned.states.empty() ? Kernel::sgd : Kernel::sgd_momentum;
    if (!owned.states.empty()) {
      in.attributes.set("momentum", optimizer.momentum);
    }
  } else {
    in.kernel = Kernel::adam;
    in.attributes.set("beta1", optimizer.beta1);
    in.attributes.set("beta2", optimizer.beta2);
    in.attributes.set("epsilon", optimizer.epsilon);
    in.attributes.set("decoupled", optimizer.kind == "adamw" ? 1 : 0);
  }
  builder_.emit(std::move(in));
}

}  // namespace strata

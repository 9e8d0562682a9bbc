#include "lower/order/schedules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "lower/order/cyclic.hpp"
#include "lower/order/interleaved.hpp"
#include "lower/order/pyramid.hpp"
#include "partition/walking_parameters.hpp"

namespace strata {
namespace {

/// Where parameters of the last step are read too, there are two versions of them, which change places every step: a
/// repetition of the body then holds two steps, so that it finds them where the one before it did. On a pyramid it
/// holds as many as its replicas need to take the same micro-batches again.
OrderGenerator cyclic_generator(const Plan& plan) {
  const FreshTable fresh = fresh_table(plan.schedule, plan.stages.count);
  const bool reads_last_version =
      std::ranges::any_of(fresh, [](const std::string& row) { return row.find('0') != std::string::npos; });
  const int versions = reads_last_version ? 2 : 1;
  if (const auto pyramid = pyramid_of(plan.mesh)) {
    const auto steps = static_cast<int>(std::lcm(pyramid->steps_to_return(most_steps_of_a_pyramid), versions));
    return [fresh, steps](const StepShape& shape, const StepPart& part) {
      return pyramid_order(shape, fresh, part, steps);
    };
  }
  if (parameters_walk(plan)) {
    return [fresh, steps = versions](const StepShape& shape, const StepPart& part) {
      return unrolled(walking_order(shape, fresh, part.first_micro_batch), steps);
    };
  }
  const CyclicUpdates updates = plan.optimizer.clip_norm > 0.0          ? CyclicUpdates::at_once
                                : plan.schedule.updater == "first_user" ? CyclicUpdates::by_first_user
                                                                        : CyclicUpdates::stage_by_stage;
  return [fresh, updates, steps = versions](const StepShape& shape, const StepPart& part) {
    return unrolled(cyclic_order(shape, fresh, part, updates), steps);
  };
}

}  // namespace

OrderGenerator by_stage(StageOrderGenerator generator) {
  return [generator = std::move(generator)](const StepShape& shape, const StepPart& part) {
    STRATA_INVARIANT(part.end_stage == part.first_stage + 1, "a rank with one stage");
    return generator(shape, part.first_stage);
  };
}

StageOrderGenerator order_generator(ScheduleKind kind) {
  switch (kind) {
#define STRATA_CASE(name, word) \
  case ScheduleKind::name: return name##_order;
    STRATA_SCHEDULES(STRATA_CASE)
#undef STRATA_CASE
    default: return nullptr;
  }
}

OrderGenerator order_generator_of(const Plan& plan) {
  if (plan.schedule.kind == ScheduleKind::cyclic) return cyclic_generator(plan);
  if (plan.schedule.kind == ScheduleKind::interleaved) return interleaved_order;
  StageOrderGenerator generator = order_generator(plan.schedule.kind);
  if (!generator) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.kind = {} cannot be lowered", plan.strategy, to_string(plan.schedule.kind)));
  }
  return by_stage(std::move(generator));
}

}  // namespace strata

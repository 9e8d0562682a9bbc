#include "lower/order/schedules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "lower/order/cyclic.hpp"

namespace strata {
namespace {

/// Where parameters of the last step are read too, there are two versions of them, which change places every step: a
/// repetition of the body then holds two steps, so that it finds them where the one before it did.
OrderGenerator cyclic_generator(const Plan& plan) {
  const FreshTable fresh = fresh_table(plan.schedule, plan.stages.count);
  const bool reads_last_version =
      std::ranges::any_of(fresh, [](const std::string& row) { return row.find('0') != std::string::npos; });
  const CyclicUpdates updates = plan.optimizer.clip_norm > 0.0          ? CyclicUpdates::at_once
                                : plan.schedule.updater == "first_user" ? CyclicUpdates::by_first_user
                                                                        : CyclicUpdates::stage_by_stage;
  return [fresh, updates, steps = reads_last_version ? 2 : 1](const StepShape& shape, const StepPart& part) {
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
  StageOrderGenerator generator = order_generator(plan.schedule.kind);
  if (!generator) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.kind = {} cannot be lowered", plan.strategy, to_string(plan.schedule.kind)));
  }
  return by_stage(std::move(generator));
}

}  // namespace strata

#include "lower/order/schedules.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata {

OrderGenerator order_generator(ScheduleKind kind) {
  switch (kind) {
#define STRATA_CASE(name, word) \
  case ScheduleKind::name: return name##_order;
    STRATA_SCHEDULES(STRATA_CASE)
#undef STRATA_CASE
    default: return nullptr;
  }
}

OrderGenerator order_generator_of(const Plan& plan) {
  OrderGenerator generator = order_generator(plan.schedule.kind);
  if (!generator) {
    throw Unsupported(
        fmt::format("plan `{}`: schedule.kind = {} cannot be lowered", plan.strategy, to_string(plan.schedule.kind)));
  }
  return generator;
}

}  // namespace strata

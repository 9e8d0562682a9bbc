#include "lower/order/schedules.hpp"

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

}  // namespace strata

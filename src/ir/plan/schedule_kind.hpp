#pragma once

/// @file
/// The names of schedules. A new one is a line here and its generator in lower/order/.

#include <cstdint>
#include <string_view>

namespace strata {

/// APPLY(enumerator, word): schedules whose ranks hold one stage, with a generator <enumerator>_order().
#define STRATA_SCHEDULES(APPLY)           \
  APPLY(simultaneous, "simultaneous")     \
  APPLY(gpipe, "gpipe")                   \
  APPLY(one_forward_one_backward, "1f1b") \
  APPLY(two_buffered_weights, "2bw")

/// Those whose ranks may hold several stages, so that their generators are asked for more than one; orders of cyclic
/// schedules are made from the plan's table (lower/order/cyclic).
#define STRATA_SCHEDULES_OF_PLANS(APPLY) \
  APPLY(interleaved, "interleaved")      \
  APPLY(cyclic, "cyclic")

enum class ScheduleKind : std::uint8_t {
#define STRATA_ENUMERATOR(name, word) name,
  STRATA_SCHEDULES(STRATA_ENUMERATOR) STRATA_SCHEDULES_OF_PLANS(STRATA_ENUMERATOR)
#undef STRATA_ENUMERATOR
};

constexpr ScheduleKind schedule_kinds[] = {
#define STRATA_VALUE(name, word) ScheduleKind::name,
    STRATA_SCHEDULES(STRATA_VALUE) STRATA_SCHEDULES_OF_PLANS(STRATA_VALUE)
#undef STRATA_VALUE
};

/// A step begins before the one before it has ended.
constexpr bool has_steps_that_overlap(ScheduleKind value) {
  return value == ScheduleKind::cyclic || value == ScheduleKind::two_buffered_weights;
}

constexpr std::string_view to_string(ScheduleKind value) {
  switch (value) {
#define STRATA_WORD(name, word) \
  case ScheduleKind::name: return word;
    STRATA_SCHEDULES(STRATA_WORD)
    STRATA_SCHEDULES_OF_PLANS(STRATA_WORD)
#undef STRATA_WORD
  }
  return "?";
}

}  // namespace strata

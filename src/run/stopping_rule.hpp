#pragma once

/// @file
/// When enough steps have been measured: the exact binomial interval of the median, as in Hoefler & Belli, SC'15,
/// rule 6.

#include <cstdint>
#include <span>

#include "config/experiment.hpp"
#include "ir/program/repetition.hpp"

namespace strata::run {

/// Half-width of the 99 % rank interval of the median over the median; infinity below 8 values, where no such interval
/// exists.
double relative_half_width(std::span<const double> seconds);

/// @param measured seconds of the measured steps so far. Where the number of steps is fixed the rule does not apply.
bool measured_enough(const MeasureSection& rule, std::span<const double> measured);

/// One past the last step that is trained, whatever is measured. @param num_steps of the training, before a restart
/// too; 0: the rule decides. @param first_step where training begins.
std::int64_t latest_end(const MeasureSection& rule, std::int64_t num_steps, std::int64_t first_step,
                        const FillAndDrain& unmeasured);

/// How many steps after @p step ranks exchange them again, three times a second where steps are short; 0: @p step steps
/// were enough. @param num_steps, end see latest_end(). @param measured_seconds of the measured steps so far.
std::int64_t steps_until_exchange(const MeasureSection& rule, std::int64_t num_steps, std::int64_t step,
                                  std::int64_t end, std::span<const double> measured_seconds);

}  // namespace strata::run

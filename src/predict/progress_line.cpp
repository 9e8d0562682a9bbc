#include "predict/progress_line.hpp"

#include <fmt/core.h>

namespace strata::predict {

std::string progress_line(const results::AttemptFacts& facts, const results::StepRow& row) {
  const double samples_per_second = static_cast<double>(row.num_samples) / row.step_seconds_max;
  const double flops_per_second = samples_per_second * facts.flops_per_sample;
  const double share = flops_per_second / (facts.peak_flops_per_second * static_cast<double>(facts.num_ranks));
  const std::string first = facts.simulated ? fmt::format("simulated {:.4f} s", row.step_seconds_max)
                                            : fmt::format("step {} loss {:.4f}", row.step, row.loss);
  // Nothing is faster than it can be: the peak was measured while the machine was disturbed.
  const char* const mark = share > 1.0 ? " (> peak)" : "";
  return fmt::format("{} {:.1f} {}s/s {:.1f} GFLOP/s mfu {:.1f} %{} mem {:.3f} GiB", first, samples_per_second,
                     facts.sample_unit, flops_per_second * 1e-9, share * 100.0, mark,
                     static_cast<double>(row.arena_peak_bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string evaluation_line(const results::EvaluationRow& row) {
  return fmt::format(
      "evaluated after {} steps, epoch {:.2f}: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {} samples, "
      "{:.2f} s",
      row.trained_steps, row.epoch, row.loss, 100.0 * row.top_1, 100.0 * row.top_5, row.num_samples,
      row.evaluation_seconds);
}

}  // namespace strata::predict

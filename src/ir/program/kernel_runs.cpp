#include "ir/program/kernel_runs.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace strata {

void set_runs(Attributes& to, std::string_view first_key, const StridedBlock& block, std::string_view who) {
  if (block.levels.size() > most_run_levels) {
    throw Unsupported(fmt::format("{}: elements at {} distances cannot be lowered; {} can", who, block.levels.size(),
                                  most_run_levels));
  }
  to.set(first_key, block.first);
  if (block.levels.empty()) return;
  to.set("run", block.run);
  for (std::size_t l = 0; l < block.levels.size(); ++l) {
    const StridedBlock::Level& level = block.levels[block.levels.size() - 1 - l];
    to.set(fmt::format("size{}", l), level.count);
    to.set(fmt::format("stride{}", l), level.stride);
    if (level.period > 0) to.set(fmt::format("period{}", l), level.period);
  }
}

void copy_runs(const Attributes& from, Attributes& to) {
  for (const Attributes::Entry& entry : from.entries()) {
    const bool is_of_runs = entry.key == "run" || entry.key.starts_with("size") || entry.key.starts_with("stride") ||
                            entry.key.starts_with("period");
    if (is_of_runs) to.set(entry);
  }
}

}  // namespace strata

#include "ir/program/alike_micro_batches.hpp"

#include <algorithm>

namespace strata {
namespace {

/// Same work, whatever it is called.
bool are_alike(const Instruction& a, const Instruction& b) {
  return a.kernel == b.kernel && a.phase == b.phase && a.stream == b.stream && a.is_collective() == b.is_collective() &&
         (!a.is_collective() || (a.collective == b.collective && a.group == b.group));
}

}  // namespace

std::vector<int> micro_batches_of(const Program& program, int sub_batches) {
  std::vector<int> all;
  int last = 0;
  for (const Instruction& in : program.body) {
    if (in.phase != Phase::reduce) last = in.micro_batch / sub_batches;
    all.push_back(last);
  }
  return all;
}

AlikeMicroBatches alike_micro_batches(const Program& program, const std::vector<int>& micro_batches,
                                      const MicroBatchRun& compared) {
  AlikeMicroBatches alike(static_cast<std::size_t>(compared.last - compared.first + 1));
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const int m = micro_batches[i];
    if (m < compared.first || m > compared.last) continue;
    alike[static_cast<std::size_t>(m - compared.first)].push_back(i);
  }
  const auto apart = static_cast<std::size_t>(compared.apart);
  for (std::size_t m = 0; m < alike.size(); ++m) {
    const auto is_alike = [&](std::size_t a, std::size_t b) { return are_alike(program.body[a], program.body[b]); };
    const bool repeats = m < apart || std::ranges::equal(alike[m], alike[m - apart], is_alike);
    if (!repeats || alike[m].empty()) return {};
  }
  return alike;
}

bool addresses_repeat(const Program& program, const std::vector<int>& micro_batches, const MicroBatchRun& compared) {
  const AlikeMicroBatches alike = alike_micro_batches(program, micro_batches, compared);
  const auto apart = static_cast<std::size_t>(compared.apart);
  if (alike.size() <= apart) return false;
  const auto address_of = [&](int buffer) { return program.buffers[static_cast<std::size_t>(buffer)].offset_bytes; };
  const auto lie_alike = [&](std::size_t a, std::size_t b) {
    return std::ranges::equal(program.body[a].allocs, program.body[b].allocs, {}, address_of, address_of);
  };
  for (std::size_t m = apart; m < alike.size(); ++m) {
    if (!std::ranges::equal(alike[m], alike[m - apart], lie_alike)) return false;
  }
  return true;
}

}  // namespace strata

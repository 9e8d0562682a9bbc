#include "run/step_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.hpp"
#include "base/median.hpp"

namespace strata::run {
namespace {

static_assert(std::is_trivially_copyable_v<RankStep>);

struct Memory {
  MemoryPeak peak;
  std::int64_t touched_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<Memory>);

/// What all devices together say. One that ranks share is in each of their readings, so that each has its part. A
/// number is unknown where it is so on any device.
void add_devices(const std::vector<const RankStep*>& ranks, results::StepRow& row) {
  if (ranks.front()->num_sharers == 0) return;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto is_unknown = [&](double DeviceReading::*member) {
    return std::ranges::any_of(ranks, [&](const RankStep* r) { return std::isnan(r->device.*member); });
  };
  const auto sum = [&](double DeviceReading::*member) {
    double total = 0.0;
    for (const RankStep* r : ranks) total += r->device.*member / r->num_sharers;
    return total;  // NaN where one is
  };
  const auto lowest = [&](double DeviceReading::*member) {
    double value = infinity;
    for (const RankStep* r : ranks) value = std::min(value, r->device.*member);
    return is_unknown(member) ? results::unknown : value;
  };
  const auto highest = [&](double DeviceReading::*member) {
    double value = -infinity;
    for (const RankStep* r : ranks) value = std::max(value, r->device.*member);
    return is_unknown(member) ? results::unknown : value;
  };
  row.energy_joules = sum(&DeviceReading::energy_joules);
  row.power_watts = sum(&DeviceReading::power_watts);
  row.sm_clock_hertz = lowest(&DeviceReading::sm_clock_hertz);
  row.memory_clock_hertz = lowest(&DeviceReading::memory_clock_hertz);
  row.device_memory_used_bytes = highest(&DeviceReading::device_memory_used_bytes);
  row.device_memory_taken_bytes = highest(&DeviceReading::device_memory_taken_bytes);
  if (is_unknown(&DeviceReading::clock_event_reasons)) return;
  std::uint64_t reasons = 0;
  for (const RankStep* r : ranks) reasons |= static_cast<std::uint64_t>(r->device.clock_event_reasons);
  row.clock_event_reasons = static_cast<double>(reasons);
}

results::StepPhase phase_of(const RankStep& step, const StepFacts& facts) {
  if (step.fills) return results::StepPhase::fill;
  if (step.drains) return results::StepPhase::drain;
  return step.step < facts.num_warmup_steps ? results::StepPhase::warmup : results::StepPhase::measured;
}

results::StepRow row_of(const std::vector<const RankStep*>& ranks, const StepFacts& facts, const Memory& fullest) {
  const auto largest = [&](auto member) {
    auto value = member(*ranks.front());
    for (const RankStep* r : ranks) value = std::max(value, member(*r));
    return value;
  };
  const RankStep& root = *ranks.front();
  const RankStep* slowest =
      *std::ranges::max_element(ranks, {}, [](const RankStep* r) { return r->measured.step_seconds; });
  std::vector<double> seconds;
  for (const RankStep* r : ranks) seconds.push_back(r->measured.step_seconds);

  results::StepRow row;
  row.step = root.step;
  row.phase = phase_of(root, facts);
  row.unix_seconds = root.unix_seconds;
  row.step_seconds_max = slowest->measured.step_seconds;
  row.step_seconds_median = median(seconds);
  row.compute_seconds = largest([](const RankStep& r) { return r.measured.compute_seconds; });
  row.communication_seconds = largest([](const RankStep& r) { return r.measured.communication_seconds; });
  row.exposed_communication_seconds = largest([](const RankStep& r) { return r.measured.exposed_seconds; });
  row.input_seconds = largest([](const RankStep& r) { return r.measured.input_seconds; });
  row.slowest_rank_compute_seconds = slowest->measured.compute_seconds;
  row.slowest_rank_exposed_seconds = slowest->measured.exposed_seconds;
  row.other_seconds =
      slowest->measured.step_seconds - slowest->measured.compute_seconds - slowest->measured.exposed_seconds;
  row.busy_share = 0.0;
  for (const RankStep* r : ranks) {
    row.busy_share += r->measured.compute_seconds / r->measured.step_seconds / static_cast<double>(ranks.size());
  }
  row.loss = 0.0F;
  for (const RankStep* r : ranks) row.loss += r->measured.loss;
  row.learning_rate = root.learning_rate;
  // Where ranks take a micro-batch each, the last one alone knows it.
  for (const RankStep* r : ranks) {
    if (std::isnan(row.gradient_norm)) row.gradient_norm = r->measured.gradient_norm;
  }
  row.num_samples = facts.num_samples;
  for (std::size_t kind = 0; kind < row.sent_bytes.size(); ++kind) {
    row.sent_bytes[kind] = largest([&](const RankStep& r) { return r.measured.bytes_sent[kind]; });
  }
  const auto& live = fullest.peak.bytes;
  row.parameter_bytes = live[static_cast<int>(Category::parameter)];
  row.gradient_bytes = live[static_cast<int>(Category::gradient)];
  row.optimizer_bytes = live[static_cast<int>(Category::optimizer)];
  row.activation_bytes = live[static_cast<int>(Category::activation)];
  row.workspace_bytes = live[static_cast<int>(Category::workspace)];
  row.communication_bytes = live[static_cast<int>(Category::communication)];
  row.arena_peak_bytes = fullest.touched_bytes;
  row.outside_arena_peak_bytes = largest([](const RankStep& r) { return r.outside_arena_bytes; });
  add_devices(ranks, row);
  return row;
}

}  // namespace

std::vector<results::StepRow> exchange_steps(const comm::World& world, const std::vector<RankStep>& steps,
                                             const StepFacts& facts, const MemoryPeak& peak,
                                             std::int64_t touched_bytes) {
  const Memory mine{peak, touched_bytes};
  std::string message(sizeof mine + steps.size() * sizeof(RankStep), '\0');
  std::memcpy(message.data(), &mine, sizeof mine);
  std::memcpy(message.data() + sizeof mine, steps.data(), steps.size() * sizeof(RankStep));
  const std::vector<std::string> messages = world.gather(message);
  std::vector<results::StepRow> rows;
  if (messages.empty()) {
    return rows;
  }
  std::vector<std::vector<RankStep>> by_rank;
  Memory fullest = mine;
  for (const std::string& text : messages) {
    STRATA_INVARIANT(text.size() == message.size(), "ranks exchange equally many steps");
    Memory memory;
    std::memcpy(&memory, text.data(), sizeof memory);
    if (memory.touched_bytes > fullest.touched_bytes) fullest = memory;
    by_rank.emplace_back(steps.size());
    std::memcpy(by_rank.back().data(), text.data() + sizeof memory, steps.size() * sizeof(RankStep));
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::vector<const RankStep*> ranks;
    for (const auto& list : by_rank) ranks.push_back(&list[s]);
    rows.push_back(row_of(ranks, facts, fullest));
  }
  return rows;
}

}  // namespace strata::run

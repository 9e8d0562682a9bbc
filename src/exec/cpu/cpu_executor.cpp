#include "exec/cpu/cpu_executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/intervals.hpp"
#include "exec/collective_request.hpp"
#include "exec/touched_memory.hpp"

namespace strata::cpu {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr double seconds_per_ns = 1e-9;

}  // namespace

CpuExecutor::CpuExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed)
    : program_(program), engine_(engine), arena_(program.arena_bytes) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.versions != 1) {
      throw Unsupported(
          fmt::format("buffer {} has {} versions: the CPU executor keeps one", buffer.name, buffer.versions));
    }
  }
  engine_groups_ = create_groups(program, engine);
  prologue_ = bind(program.prologue, inputs, seed);
  body_ = bind(program.body, inputs, seed);
  epilogue_ = bind(program.epilogue, inputs, seed);
  events_.resize(program.body.size());
}

std::vector<CpuExecutor::Bound> CpuExecutor::bind(const std::vector<Instruction>& section, InputSource& inputs,
                                                  std::uint64_t seed) {
  std::vector<Bound> result(section.size());
  for (std::size_t i = 0; i < section.size(); ++i) {
    const Instruction& in = section[i];
    const Arguments arguments(program_, in, arena_.data());
    Bound& bound = result[i];
    for (const Wait& wait : in.waits) {
      if (wait.lag != 0) {
        throw Unsupported(
            fmt::format("#{} {}: a wait across steps; the CPU executor ends every step before the next", i, in.name));
      }
      if (section[static_cast<std::size_t>(wait.instruction)].is_collective()) {
        bound.collective_waits.push_back(wait.instruction);
      }
    }
    if (!in.is_collective()) {
      bound.kernel = kernel_library().bind_kernel(program_, arguments, inputs, seed);
      continue;
    }
    labels_.push_back(collective_label(program_, in, i));
    bound.request = collective_request(program_, in, arguments, engine_groups_, labels_.back());
  }
  return result;
}

void CpuExecutor::initialize() { run(program_.prologue, prologue_, {}); }

void CpuExecutor::finish() { run(program_.epilogue, epilogue_, {}); }

StepMeasurement CpuExecutor::step(const StepContext& context) {
  measurement_ = {};
  const std::int64_t begin = now_ns();
  run(program_.body, body_, context);
  measurement_.step_seconds = static_cast<double>(now_ns() - begin) * seconds_per_ns;
  // Events carry the clock's time until here; a step's timeline begins at zero.
  std::vector<Interval> busy;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    TimelineEvent& event = events_[i];
    event.rank = program_.rank;
    event.step = context.step;
    event.begin_ns -= begin;
    event.end_ns -= begin;
    if (program_.body[i].is_collective()) {
      busy.emplace_back(event.begin_ns, event.end_ns);
      measurement_.bytes_sent[static_cast<std::size_t>(program_.body[i].collective)] += event.bytes_sent;
    }
  }
  measurement_.communication_seconds = static_cast<double>(union_ns(std::move(busy))) * seconds_per_ns;
  measurement_.loss = read(program_.loss_buffer)[0];
  measurement_.gradient_norm =
      program_.norm_buffer >= 0 ? read(program_.norm_buffer)[0] : std::numeric_limits<float>::quiet_NaN();
  return measurement_;
}

void CpuExecutor::wait_for(const std::vector<Bound>& bound, std::span<const int> instructions) {
  if (std::ranges::all_of(instructions,
                          [&](int i) { return engine_.done(bound[static_cast<std::size_t>(i)].ticket); })) {
    return;
  }
  const std::int64_t begin = now_ns();
  for (const int i : instructions) {
    engine_.wait(bound[static_cast<std::size_t>(i)].ticket);
  }
  measurement_.exposed_seconds += static_cast<double>(now_ns() - begin) * seconds_per_ns;
}

void CpuExecutor::run(const std::vector<Instruction>& section, std::vector<Bound>& bound, const StepContext& context) {
  const bool is_body = &section == &program_.body;
  for (std::size_t i = 0; i < section.size(); ++i) {
    Bound& in = bound[i];
    if (!in.kernel) {
      after_.clear();
      for (const int w : in.collective_waits) after_.push_back(bound[static_cast<std::size_t>(w)].ticket);
      in.request.after = after_;
      in.ticket = engine_.post(in.request);
      continue;
    }
    wait_for(bound, in.collective_waits);
    const std::int64_t begin = now_ns();
    in.kernel(context);
    const std::int64_t end = now_ns();
    measurement_.compute_seconds += static_cast<double>(end - begin) * seconds_per_ns;
    if (is_body) {
      events_[i] = {.stream = section[i].stream, .instruction = static_cast<int>(i), .begin_ns = begin, .end_ns = end};
    }
    engine_.progress();
  }
  finish_collectives(section, bound);
}

/// Nothing of a step outlives it: the caller reads results, and the next step reuses addresses and tickets.
void CpuExecutor::finish_collectives(const std::vector<Instruction>& section, std::vector<Bound>& bound) {
  for (std::size_t i = 0; i < section.size(); ++i) {
    if (!section[i].is_collective()) continue;
    const int index = static_cast<int>(i);
    wait_for(bound, {&index, 1});
    if (&section == &program_.body) {
      const comm::CompletedTimes times = engine_.times(bound[i].ticket);
      events_[i] = {.stream = section[i].stream,
                    .instruction = index,
                    .begin_ns = times.begin_ns,
                    .end_ns = times.end_ns,
                    .bytes_sent = times.bytes_sent};
    }
  }
}

TouchedMemory CpuExecutor::touched_memory() const {
  return strata::touched_memory(program_, [&](std::int64_t end) { return arena_.touched_bytes(end); });
}

std::span<const float> CpuExecutor::read(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  STRATA_INVARIANT(b.persistent && b.dtype == DType::f32, b.name + " is not a persistent f32 buffer");
  return {reinterpret_cast<const float*>(arena_.data() + b.offset_bytes), static_cast<std::size_t>(b.num_elements)};
}

void CpuExecutor::write(int buffer, std::int64_t begin, std::span<const float> values) {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  const auto count = static_cast<std::int64_t>(values.size());
  STRATA_INVARIANT(b.persistent, b.name + " is not persistent");
  STRATA_INVARIANT(begin >= 0 && begin + count <= b.num_elements,
                   fmt::format("{}: elements {} + {} of {}", b.name, begin, count, b.num_elements));
  kernel_library().cast(DType::f32, values.data(), b.dtype, arena_.data() + b.offset_bytes + begin * size_of(b.dtype),
                        count);
}

}  // namespace strata::cpu

#include "exec/cpu/cpu_executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/intervals.hpp"
#include "exec/collective_request.hpp"
#include "exec/touched_memory.hpp"

namespace strata::cpu {
namespace {

constexpr double seconds_per_ns = 1e-9;

bool loads_inputs(const Instruction& in) {
  return in.kernel == Kernel::load_tokens || in.kernel == Kernel::load_images || in.kernel == Kernel::load_targets;
}

}  // namespace

CpuExecutor::CpuExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed,
                         const Numerics& numerics)
    : program_(program),
      engine_(engine),
      arena_(program.arena_bytes),
      engine_groups_(create_groups(program, engine)),
      prologue_(bind(program.prologue, inputs, seed, numerics)),
      body_(bind(program.body, inputs, seed, numerics)),
      loss_writers_(last_writers(program, program.loss_buffer)),
      norm_writers_(last_writers(program, program.norm_buffer)),
      steps_(program) {}

std::vector<CpuExecutor::Bound> CpuExecutor::bind(const std::vector<Instruction>& section, InputSource& inputs,
                                                  std::uint64_t seed, const Numerics& numerics) {
  std::vector<Bound> result(section.size());
  for (std::size_t i = 0; i < section.size(); ++i) {
    const Instruction& in = section[i];
    const Arguments arguments(program_, in, arena_.data());
    Bound& bound = result[i];
    for (const Wait& wait : in.waits) {
      if (section[static_cast<std::size_t>(wait.instruction)].is_collective()) bound.waits.push_back(wait);
    }
    if (!in.is_collective()) {
      bound.kernel = kernel_library().bind_kernel(program_, arguments, inputs, seed, numerics);
      continue;
    }
    labels_.push_back(collective_label(program_, in, i));
    bound.requests = collective_requests(program_, in, arguments, engine_groups_, labels_.back());
  }
  return result;
}

/// Initial values need no communication: every rank makes its own.
void CpuExecutor::initialize() {
  for (std::size_t i = 0; i < prologue_.size(); ++i) {
    STRATA_INVARIANT(prologue_[i].kernel != nullptr, program_.prologue[i].name + ": a collective in the prologue");
    prologue_[i].kernel({});
  }
}

void CpuExecutor::submit(std::span<const StepContext> steps) {
  const StepRange before = steps_.under_way();
  const std::int64_t repetition = steps_.submit(steps, now_ns());
  for (const StepContext& context : steps) {
    Step& step = steps_.kept(context.step);
    step.measurement = {.gradient_norm = std::numeric_limits<float>::quiet_NaN()};
    step.events.assign(program_.body.size(), {.rank = program_.rank, .step = context.step});
    step.tickets.assign(program_.body.size(), {});
  }
  if (program_.join) {
    for (std::int64_t step = before.first; step <= before.last; ++step) wait_for_collectives(step);
  }
  run_repetition(repetition);
}

void CpuExecutor::drain() {
  steps_.drain([&](std::int64_t repetition) { run_repetition(repetition); });
}

void CpuExecutor::run_repetition(std::int64_t repetition) {
  for (std::size_t i = 0; i < body_.size(); ++i) {
    const std::int64_t step = training_step(program_, program_.body[i], repetition);
    if (!steps_.runs(step)) continue;
    find_tickets(body_[i], repetition);
    body_[i].kernel ? run_kernel(i, step) : post(i, step);
  }
}

/// Of the collectives that an instruction waits for: those that ran, and are not known to be complete.
void CpuExecutor::find_tickets(const Bound& in, std::int64_t repetition) {
  tickets_.clear();
  for (const Wait& wait : in.waits) {
    const auto index = static_cast<std::size_t>(wait.instruction);
    const std::int64_t step = training_step(program_, program_.body[index], repetition - wait.lag);
    if (steps_.is_under_way(step)) tickets_.push_back(steps_.kept(step).tickets[index]);
  }
}

void CpuExecutor::post(std::size_t index, std::int64_t step) {
  for (comm::Request& request : body_[index].requests) request.after = tickets_;
  steps_.kept(step).tickets[index] = engine_.post(body_[index].requests);
}

void CpuExecutor::run_kernel(std::size_t index, std::int64_t step) {
  Step& kept = steps_.kept(step);
  wait_for_tickets(kept.measurement);
  const std::int64_t begin = now_ns();
  body_[index].kernel(steps_.context(step));
  const std::int64_t end = now_ns();
  const double seconds = static_cast<double>(end - begin) * seconds_per_ns;
  kept.measurement.compute_seconds += seconds;
  if (loads_inputs(program_.body[index])) kept.measurement.input_seconds += seconds;
  TimelineEvent& event = kept.events[index];
  event.begin_ns = begin;
  event.end_ns = end;
  const auto is_one = [&](const std::vector<int>& writers) {
    return std::ranges::find(writers, static_cast<int>(index)) != writers.end();
  };
  if (is_one(loss_writers_)) kept.measurement.loss = read(program_.loss_buffer)[0];
  if (is_one(norm_writers_)) kept.measurement.gradient_norm = read(program_.norm_buffer)[0];
  engine_.progress();
}

void CpuExecutor::wait_for_tickets(StepMeasurement& measurement) {
  if (std::ranges::all_of(tickets_, [&](comm::Ticket ticket) { return engine_.done(ticket); })) return;
  const std::int64_t begin = now_ns();
  for (const comm::Ticket ticket : tickets_) engine_.wait(ticket);
  measurement.exposed_seconds += static_cast<double>(now_ns() - begin) * seconds_per_ns;
}

void CpuExecutor::wait_for_collectives(std::int64_t step) {
  Step& kept = steps_.kept(step);
  tickets_.clear();
  for (std::size_t i = 0; i < body_.size(); ++i) {
    if (!body_[i].kernel && belongs_to(program_, program_.body[i], step)) tickets_.push_back(kept.tickets[i]);
  }
  wait_for_tickets(kept.measurement);
}

StepMeasurement CpuExecutor::complete(std::int64_t number) {
  Step& step = steps_.kept(number);
  wait_for_collectives(number);
  // The end of the last step under way is when the rank learns of it; of others it is long over.
  const std::int64_t begin = steps_.begin_ns(number);
  std::int64_t end = number == steps_.under_way().last ? now_ns() : begin;
  std::vector<Interval> busy;
  events_.clear();
  for (std::size_t i = 0; i < body_.size(); ++i) {
    if (!belongs_to(program_, program_.body[i], number)) continue;
    TimelineEvent& event = step.events[i];
    event.stream = program_.body[i].stream;
    event.instruction = static_cast<int>(i);
    if (!body_[i].kernel) {
      const comm::CompletedTimes times = engine_.times(step.tickets[i]);
      event.begin_ns = times.begin_ns;
      event.end_ns = times.end_ns;
      event.bytes_sent = times.bytes_sent;
    }
    end = std::max(end, event.end_ns);
    event.begin_ns -= begin;
    event.end_ns -= begin;
    events_.push_back(event);
    if (body_[i].kernel) continue;
    busy.emplace_back(event.begin_ns, event.end_ns);
    step.measurement.bytes_sent[static_cast<std::size_t>(program_.body[i].collective)] += event.bytes_sent;
  }
  step.measurement.communication_seconds = static_cast<double>(union_ns(std::move(busy))) * seconds_per_ns;
  step.measurement.step_seconds = steps_.complete(number, end);
  return step.measurement;
}

TouchedMemory CpuExecutor::touched_memory() const {
  return strata::touched_memory(program_, [&](std::int64_t end) { return arena_.touched_bytes(end); });
}

std::span<const float> CpuExecutor::read(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  STRATA_INVARIANT(b.persistent && (b.dtype == DType::f32 || b.dtype == DType::bf16), b.name + " cannot be read");
  if (b.dtype == DType::bf16) {
    std::vector<float>& copy = copies_[buffer];
    copy.resize(static_cast<std::size_t>(b.num_elements));
    kernel_library().cast(b.dtype, arena_.data() + b.offset_bytes, DType::f32, copy.data(), b.num_elements);
    return copy;
  }
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

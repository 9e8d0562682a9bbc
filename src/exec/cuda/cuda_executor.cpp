#include "exec/cuda/cuda_executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.hpp"
#include "exec/collective_request.hpp"
#include "exec/cuda/nccl_collective.hpp"
#include "exec/device/step_times.hpp"

namespace strata::cuda {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool has_collectives(const Program& program) {
  const auto in_section = [](const std::vector<Instruction>& section) {
    return std::ranges::any_of(section, [](const Instruction& in) { return in.is_collective(); });
  };
  return in_section(program.prologue) || in_section(program.body) || in_section(program.epilogue);
}

/// Equal on all ranks: making communicators is collective, also for a rank whose Program needs none.
bool uses_nccl(const Program& program, const NcclOptions& nccl) {
  return nccl.world != nullptr && (program.num_ranks > 1 || has_collectives(program));
}

ArenaMemory arena_memory(const Program& program, const NcclOptions& nccl) {
  if (uses_nccl(program, nccl)) return ArenaMemory::nccl;
  return has_collectives(program) ? ArenaMemory::managed : ArenaMemory::device;
}

}  // namespace

CudaExecutor::CudaExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed,
                           const CudaOptions& options)
    : program_(program),
      engine_(engine),
      inputs_(inputs),
      seed_(seed),
      options_(options),
      libraries_(options.numerics),
      arena_(program.arena_bytes, arena_memory(program, options.nccl)),
      out_of_range_(sizeof(OutOfRange)),
      copies_(program.buffers.size()) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.versions != 1) {
      throw Unsupported(
          fmt::format("buffer {} has {} versions: the CUDA executor keeps one", buffer.name, buffer.versions));
    }
  }
  *out_of_range_.as<OutOfRange>() = 0;
  for (std::size_t s = 0; s < program.streams.size(); ++s) streams_.push_back(std::make_unique<Stream>());
  if (uses_nccl(program, options.nccl)) {
    communicators_ = std::make_unique<Communicators>(communicators_of(program), options.nccl);
    communicators_->register_arena(arena_.data(), program.arena_bytes);
  } else {
    engine_groups_ = create_groups(program, engine);
  }
  prologue_ = bind(program.prologue, false);
  body_ = bind(program.body, options.timing);
  epilogue_ = bind(program.epilogue, false);
  events_.resize(program.body.size());
}

CudaExecutor::~CudaExecutor() {
  // Kernels may still be queued when an exception ends a step: what they use must not go before them.
  static_cast<void>(cudaDeviceSynchronize());
}

std::vector<CudaExecutor::Bound> CudaExecutor::bind(const std::vector<Instruction>& section, bool timed) {
  std::vector<IssueOrder> order = stream_order(section, static_cast<int>(program_.streams.size()),
                                               communicators_ ? CollectivesOn::device : CollectivesOn::host);
  // Page-locked memory has one address on host and device (unified addressing, on every GPU that is supported).
  const BindingContext context{
      .libraries = libraries_, .inputs = inputs_, .seed = seed_, .out_of_range = out_of_range_.as<OutOfRange>()};
  std::vector<Bound> result(section.size());
  for (std::size_t i = 0; i < section.size(); ++i) {
    const Instruction& in = section[i];
    const Arguments arguments(program_, in, arena_.data());
    Bound& bound = result[i];
    bound.order = std::move(order[i]);
    bound.name = TraceName(instruction_label(in));
    if (in.is_collective()) {
      labels_.push_back(collective_label(program_, in, i));
      if (!communicators_) {
        bound.request = collective_request(program_, in, arguments, engine_groups_, labels_.back());
        continue;
      }
      bound.kernel = bind_collective(program_, arguments, *communicators_, labels_.back());
      bound.communicator = communicators_->number(communicator_key(program_, in));
      bound.label = &labels_.back();
    } else {
      bound.kernel = bind_kernel(program_, arguments, context);
    }
    if (bound.order.records || bound.label != nullptr) bound.done = std::make_unique<Event>(Event::Kind::order);
    if (timed) {
      bound.began = std::make_unique<Event>(Event::Kind::timing);
      bound.ended = std::make_unique<Event>(Event::Kind::timing);
    }
  }
  return result;
}

void CudaExecutor::initialize() {
  const TraceRange range(prologue_name_);
  run(program_.prologue, prologue_, {});
}

void CudaExecutor::finish() {
  const TraceRange range(epilogue_name_);
  run(program_.epilogue, epilogue_, {});
}

StepMeasurement CudaExecutor::step(const StepContext& context) {
  const TraceRange range(step_name_, context.step);
  StepMeasurement measurement;
  step_began_.record(streams_.at(0)->get());
  step_began_ns_ = now_ns();
  run(program_.body, body_, context);
  measurement.step_seconds = static_cast<double>(now_ns() - step_began_ns_) * 1e-9;
  collect_events(context.step);
  if (options_.timing) add_step_times(program_, events_, measurement);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (!program_.body[i].is_collective()) continue;
    measurement.bytes_sent[static_cast<std::size_t>(program_.body[i].collective)] += events_[i].bytes_sent;
  }
  measurement.loss = read(program_.loss_buffer)[0];
  measurement.gradient_norm =
      program_.norm_buffer >= 0 ? read(program_.norm_buffer)[0] : std::numeric_limits<float>::quiet_NaN();
  return measurement;
}

void CudaExecutor::post(std::vector<Bound>& bound, Bound& collective) {
  for (const int k : collective.order.host_kernels) bound[static_cast<std::size_t>(k)].done->synchronize();
  after_.clear();
  for (const int c : collective.order.host_collectives) after_.push_back(bound[static_cast<std::size_t>(c)].ticket);
  collective.request.after = after_;
  collective.ticket = engine_.post(collective.request);
}

void CudaExecutor::run(const std::vector<Instruction>& section, std::vector<Bound>& bound, const StepContext& context) {
  try {
    issue(section, bound, context);
    complete(section, bound);
  } catch (...) {
    // NCCL's kernels wait for other ranks', which may never come: nothing else would let the device become idle.
    if (communicators_) communicators_->abort();
    throw;
  }
}

void CudaExecutor::issue(const std::vector<Instruction>& section, std::vector<Bound>& bound,
                         const StepContext& context) {
  in_flight_.clear();
  for (std::size_t i = 0; i < section.size(); ++i) {
    Bound& in = bound[i];
    const TraceRange range(in.name);
    if (!in.kernel) {
      post(bound, in);
      continue;
    }
    for (const int c : in.order.host_collectives) engine_.wait(bound[static_cast<std::size_t>(c)].ticket);
    const cudaStream_t stream = streams_[static_cast<std::size_t>(section[i].stream)]->get();
    for (const int k : in.order.device_waits) bound[static_cast<std::size_t>(k)].done->hold(stream);
    if (in.began) in.began->record(stream);
    in.kernel(context, stream);
    if (in.ended) in.ended->record(stream);
    if (in.done) in.done->record(stream);
    if (in.label != nullptr) {
      in_flight_.push_back({.done = in.done.get(), .communicator = in.communicator, .label = in.label});
    }
    engine_.progress();
  }
}

/// Nothing of a section outlives it: the caller reads results, and the next step reuses addresses, tickets and staging.
void CudaExecutor::complete(const std::vector<Instruction>& section, std::vector<Bound>& bound) {
  for (std::size_t i = 0; i < section.size(); ++i) {
    if (!bound[i].kernel) engine_.wait(bound[i].ticket);
  }
  if (communicators_) {
    communicators_->wait(streams_, in_flight_);
  } else {
    for (const auto& stream : streams_) stream->synchronize();
  }
  const OutOfRange value = *out_of_range_.as<const OutOfRange>();
  STRATA_INVARIANT(value == 0,
                   fmt::format("token or target {} is outside of the vocabulary or the classes", value - 1));
}

void CudaExecutor::collect_events(std::int64_t step) {
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Instruction& in = program_.body[i];
    TimelineEvent& event = events_[i];
    event = {.stream = in.stream, .instruction = static_cast<int>(i)};
    event.rank = program_.rank;
    event.step = step;
    if (!body_[i].kernel) {
      const comm::CompletedTimes times = engine_.times(body_[i].ticket);
      event.begin_ns = times.begin_ns - step_began_ns_;
      event.end_ns = times.end_ns - step_began_ns_;
      event.bytes_sent = times.bytes_sent;
    } else if (body_[i].began) {
      event.begin_ns = body_[i].began->ns_since(step_began_);
      event.end_ns = body_[i].ended->ns_since(step_began_);
    }
    // NCCL counts no bytes: an operation is charged with what the Program says.
    if (body_[i].label != nullptr) event.bytes_sent = bytes_sent(program_, in);
  }
}

std::span<const float> CudaExecutor::read(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  STRATA_INVARIANT(b.persistent && b.dtype == DType::f32, b.name + " is not a persistent f32 buffer");
  std::vector<float>& copy = copies_[static_cast<std::size_t>(buffer)];
  copy.resize(static_cast<std::size_t>(b.num_elements));
  check(cudaMemcpy(copy.data(), arena_.data() + b.offset_bytes, copy.size() * sizeof(float), cudaMemcpyDefault),
        "reading a buffer");
  return copy;
}

void CudaExecutor::write(int buffer, std::int64_t begin, std::span<const float> values) {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  const auto count = static_cast<std::int64_t>(values.size());
  STRATA_INVARIANT(b.persistent && (b.dtype == DType::f32 || b.dtype == DType::bf16), b.name + " is not persistent");
  STRATA_INVARIANT(begin >= 0 && begin + count <= b.num_elements,
                   fmt::format("{}: elements {} + {} of {}", b.name, begin, count, b.num_elements));
  std::byte* const to = arena_.data() + b.offset_bytes + begin * size_of(b.dtype);
  const auto bytes = static_cast<std::size_t>(count * size_of(b.dtype));
  if (b.dtype == DType::f32) {
    check(cudaMemcpy(to, values.data(), bytes, cudaMemcpyDefault), "writing a buffer");
    return;
  }
  std::vector<bf16> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), [](float value) { return bf16(value); });
  check(cudaMemcpy(to, rounded.data(), bytes, cudaMemcpyDefault), "writing a buffer");
}

}  // namespace strata::cuda

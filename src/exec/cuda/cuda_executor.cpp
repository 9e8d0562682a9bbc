#include "exec/cuda/cuda_executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/clock.hpp"
#include "base/console.hpp"
#include "base/error.hpp"
#include "exec/collective_request.hpp"
#include "exec/cuda/nccl_collective.hpp"
#include "exec/device/step_times.hpp"
#include "exec/touched_memory.hpp"

namespace strata::cuda {
namespace {

bool has_collectives(const Program& program) {
  return std::ranges::any_of(program.body, [](const Instruction& in) { return in.is_collective(); });
}

/// Equal on all ranks: making communicators is collective, also for a rank whose Program needs none.
bool uses_nccl(const Program& program, const NcclOptions& nccl) {
  return nccl.world != nullptr && (program.num_ranks > 1 || has_collectives(program));
}

ArenaMemory arena_memory(const Program& program, const NcclOptions& nccl) {
  if (uses_nccl(program, nccl)) return ArenaMemory::nccl;
  return has_collectives(program) ? ArenaMemory::managed : ArenaMemory::device;
}

/// Null: collectives on the host.
std::unique_ptr<Communicators> make_communicators(const Program& program, const DeviceArena& arena,
                                                  const NcclOptions& options) {
  if (!uses_nccl(program, options)) return nullptr;
  auto communicators = std::make_unique<Communicators>(communicators_of(program), options);
  communicators->register_arena(arena.data(), program.arena_bytes);
  return communicators;
}

std::vector<std::unique_ptr<Stream>> make_streams(const Program& program) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t s = 0; s < program.streams.size(); ++s) streams.push_back(std::make_unique<Stream>());
  return streams;
}

/// For each stream, with room for a value an instruction.
std::vector<std::unique_ptr<StepValues>> make_step_values(const Program& program, int num_sets) {
  std::vector<std::size_t> num_values(program.streams.size());
  for (const auto* section : {&program.prologue, &program.body}) {
    for (const Instruction& in : *section) ++num_values.at(static_cast<std::size_t>(in.stream));
  }
  std::vector<std::unique_ptr<StepValues>> values;
  for (const std::size_t most : num_values) values.push_back(std::make_unique<StepValues>(most, num_sets));
  return values;
}

/// Neighbours from instruction @p begin on that one launch does at the turn of the first: none of the others waits for
/// another stream, or takes memory that something between them may have had. @return one past the last.
std::size_t end_of_updates(const Program& program, const std::vector<Instruction>& section, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < section.size() && section[end].stream == section[begin].stream && section[end].waits.empty() &&
         section[end].allocs.empty() && share_launch(program, section[begin], section[end])) {
    ++end;
  }
  return end;
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
      communicators_(make_communicators(program, arena_, options.nccl)),
      out_of_range_(sizeof(OutOfRange)),
      is_alone_(is_repeated_alone(program) && program.steps_per_body == 1),
      step_values_(make_step_values(program, is_alone_ ? 1 : depth(program) + 2)),
      reached_(static_cast<std::int64_t>(program.body.size() * sizeof(std::int64_t))),
      streams_(make_streams(program)),
      engine_groups_(communicators_ ? std::vector<int>{} : create_groups(program, engine)),
      prologue_(bind(program.prologue, false)),
      body_(bind(program.body, options.timing && is_alone_)),
      uses_graph_(communicators_ ? uses_graph(*options.nccl.world, program, CollectivesOn::device, options.graphs)
                                 : uses_graph(program, CollectivesOn::host, options.graphs)),
      loss_writers_(last_writers(program, program.loss_buffer)),
      norm_writers_(last_writers(program, program.norm_buffer)),
      steps_(program),
      order_(program.body, static_cast<int>(program.streams.size()),
             communicators_ ? CollectivesOn::device : CollectivesOn::host),
      before_began_(std::make_unique<Event>(Event::Kind::timing)),
      copies_(program.buffers.size()),
      input_thread_(is_alone_ && inputs.may_be_read_ahead() ? std::make_unique<InputThread>() : nullptr) {
  *out_of_range_.as<OutOfRange>() = 0;
  if (options.numerics.time_products) arena_.poison();  // the timed products wrote to it
}

void CudaExecutor::agree_on_products(const comm::World& world) {
  libraries_.product_choices().agree(world.all_gather(libraries_.product_choices().to_text()));
}

CudaExecutor::~CudaExecutor() {
  // Kernels may still be queued when an exception ends a step: what they use must not go before them.
  static_cast<void>(cudaDeviceSynchronize());
}

CudaExecutor::Section CudaExecutor::bind(const std::vector<Instruction>& instructions, bool timed) {
  std::vector<IssueOrder> order = stream_order(instructions, static_cast<int>(program_.streams.size()),
                                               communicators_ ? CollectivesOn::device : CollectivesOn::host);
  // Page-locked memory has one address on host and device (unified addressing, on every GPU that is supported).
  const auto context = [&](const Instruction& in) {
    return BindingContext{.libraries = libraries_,
                          .inputs = inputs_,
                          .step_values = *step_values_[static_cast<std::size_t>(in.stream)],
                          .seed = seed_,
                          .out_of_range = out_of_range_.as<OutOfRange>()};
  };
  Section section{.instructions = instructions,
                  .bound = std::vector<Bound>(instructions.size()),
                  .collectives = {},
                  .in_order = {}};
  std::size_t end_of_launch = 0;  // of the last one that does several instructions
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    const Arguments arguments(program_, in, arena_.data());
    Bound& bound = section.bound[i];
    bound.order = std::move(order[i]);
    bound.name = TraceName(instruction_label(in));
    if (in.is_collective()) {
      labels_.push_back(collective_label(program_, in, i));
      if (!communicators_) {
        bound.requests = collective_requests(program_, in, arguments, engine_groups_, labels_.back());
        continue;
      }
      bind_collective_on_device(section, i, arguments);
    } else if (i < end_of_launch) {
      bound.kernel = BoundKernel([](cudaStream_t) {});
    } else if (const std::size_t end = end_of_updates(program_, instructions, i); end > i + 1 && !options_.timing) {
      std::vector<Arguments> updates;
      for (std::size_t u = i; u < end; ++u) updates.emplace_back(program_, instructions[u], arena_.data());
      bound.kernel = bind_updates(updates, context(in).step_values);
      end_of_launch = end;
    } else {
      bound.kernel = bind_kernel(program_, arguments, context(in));
    }
    if (bound.order.records) bound.marks.done = std::make_unique<Event>(Event::Kind::order);
    if (timed) {
      bound.marks.began = std::make_unique<Event>(Event::Kind::timing);
      bound.marks.ended = std::make_unique<Event>(Event::Kind::timing);
    }
  }
  return section;
}

void CudaExecutor::bind_collective_on_device(Section& section, std::size_t i, const Arguments& arguments) {
  const Instruction& in = section.instructions[i];
  Bound& bound = section.bound[i];
  bound.label = &labels_.back();
  BoundCollective collective = bind_collective(program_, arguments, *communicators_, *bound.label);
  bound.kernel = std::move(collective.queue);
  bound.sent_bytes = std::move(collective.sent_bytes);
  bound.communicator = communicators_->number(communicator_key(program_, in));
  // An event cannot be asked in a graph: until its turn comes it may be that of the launch before.
  bound.reached = reached_.as<std::int64_t>() + num_reached_++;
  *bound.reached = 0;
  bound.is_in_order = in.collective != Collective::send && in.collective != Collective::recv;
  if (bound.is_in_order) section.in_order.push_back(section.collectives.size());
  section.collectives.push_back(
      {.is_done = [this, at = static_cast<const volatile std::int64_t*>(bound.reached)] { return *at == run_number_; },
       .communicator = bound.communicator,
       .label = bound.label});
}

template <typename Work>
void CudaExecutor::or_abandon(const Work& work) {
  try {
    work();
  } catch (...) {
    // NCCL's kernels wait for other ranks', which may never come: nothing else would let the device become idle.
    abandon();
    throw;
  }
}

void CudaExecutor::initialize() {
  const TraceRange range(prologue_name_);
  or_abandon([&] {
    ++run_number_;
    issue(prologue_, {});
    wait_for_section(prologue_);
  });
}

void CudaExecutor::submit(std::span<const StepContext> steps) {
  const TraceRange range(step_name_, steps.front().step);
  const StepRange before = steps_.under_way();
  or_abandon([&] {
    if (is_alone_) {
      for (std::int64_t step = before.first; step <= before.last; ++step) measure(step);
      steps_.submit(steps, now_ns());
      submit_alone(steps.front());
      return;
    }
    const std::int64_t repetition = steps_.submit(steps, now_ns());
    for (const StepContext& context : steps) begin_step(context.step, before.last < before.first);
    queue_repetition(repetition);
  });
}

StepMeasurement CudaExecutor::complete(std::int64_t number) {
  StepMeasurement measurement;
  or_abandon([&] {
    if (!is_alone_) {
      measurement = complete_overlapping(number);
      return;
    }
    measure(number);
    Step& step = steps_.kept(number);
    measurement = step.measurement;
    const auto elapsed_ns = static_cast<std::int64_t>(measurement.step_seconds * 1e9);
    steps_.complete(number, steps_.begin_ns(number) + elapsed_ns);
    events_ = step.events;
    if (uses_graph_ && !graph_) record_graph();
  });
  return measurement;
}

void CudaExecutor::drain() {
  or_abandon([&] { steps_.drain([&](std::int64_t repetition) { queue_repetition(repetition); }); });
}

void CudaExecutor::abandon() noexcept {
  // A graph keeps its communicators alive, whose end would wait for it.
  graph_.reset();
  if (communicators_) communicators_->abort();
}

void CudaExecutor::submit_alone(const StepContext& context) {
  Step& step = steps_.kept(context.step);
  step.is_measured = false;
  step.measurement = {};
  ++run_number_;
  step_began_.record(streams_.at(0)->get());
  step_began_ns_ = now_ns();
  graph_ ? launch_graph(context) : issue(body_, context);
  prepare_next_inputs(context.step + 1);
}

/// While the device computes, where the host has nothing else to do.
void CudaExecutor::prepare_next_inputs(std::int64_t step) {
  if (!input_thread_) return;
  for (const Bound& in : body_.bound) in.kernel.prepare_ahead(step, *input_thread_);
}

/// The step stands still meanwhile.
void CudaExecutor::prepare_input(const BoundKernel& kernel, std::int64_t step) {
  if (!kernel.has_host_part()) return;
  const std::int64_t begin = now_ns();
  kernel.prepare(step);
  steps_.kept(step).measurement.input_seconds += static_cast<double>(now_ns() - begin) * 1e-9;
}

void CudaExecutor::measure(std::int64_t number) {
  Step& step = steps_.kept(number);
  if (step.is_measured) return;
  wait_for_section(body_);
  StepMeasurement& measurement = step.measurement;
  measurement.step_seconds = static_cast<double>(now_ns() - step_began_ns_) * 1e-9;
  collect_events(step, number);
  options_.timing ? add_step_times(program_, step.events, measurement) : set_unknown_times(measurement);
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    if (!program_.body[i].is_collective()) continue;
    measurement.bytes_sent[static_cast<std::size_t>(program_.body[i].collective)] += step.events[i].bytes_sent;
  }
  if (program_.loss_buffer >= 0) measurement.loss = read(program_.loss_buffer)[0];
  measurement.gradient_norm =
      program_.norm_buffer >= 0 ? read(program_.norm_buffer)[0] : std::numeric_limits<float>::quiet_NaN();
  step.is_measured = true;
}

void CudaExecutor::post(std::vector<Bound>& bound, Bound& collective) {
  for (const int k : collective.order.host_kernels) bound[static_cast<std::size_t>(k)].marks.done->synchronize();
  after_.clear();
  for (const int c : collective.order.host_collectives)
    after_.push_back(bound[static_cast<std::size_t>(c)].marks.ticket);
  for (comm::Request& request : collective.requests) request.after = after_;
  collective.marks.ticket = engine_.post(collective.requests);
}

void CudaExecutor::issue(Section& section, const StepContext& context) {
  for (const auto& values : step_values_) values->prepare(0, run_number_, [&](int) { return &context; });
  begin_streams();
  std::size_t num_in_order = 0;
  for (std::size_t i = 0; i < section.bound.size(); ++i) {
    Bound& in = section.bound[i];
    const TraceRange range(in.name);
    if (!in.kernel) {
      post(section.bound, in);
      continue;
    }
    prepare_input(in.kernel, context.step);
    if (in.is_in_order && num_in_order++ >= max_collectives_ahead) {
      const std::size_t behind = section.in_order[num_in_order - 1 - max_collectives_ahead];
      communicators_->wait_for_last(std::span(section.collectives).first(behind + 1));
    }
    for (const int c : in.order.host_collectives) engine_.wait(section.bound[static_cast<std::size_t>(c)].marks.ticket);
    queue(section, i);
    engine_.progress();
  }
}

/// What every section begins with.
void CudaExecutor::begin_streams() {
  fork(streams_, began_);
  for (std::size_t s = 0; s < streams_.size(); ++s) step_values_[s]->copy(0, streams_[s]->get());
}

void CudaExecutor::queue(Section& section, std::size_t i) {
  Bound& in = section.bound[i];
  const cudaStream_t stream = streams_[static_cast<std::size_t>(section.instructions[i].stream)]->get();
  for (const int k : in.order.device_waits) section.bound[static_cast<std::size_t>(k)].marks.done->hold(stream);
  queue_timed(in, in.marks, stream);
  if (in.reached != nullptr) {
    const auto& values = *step_values_[static_cast<std::size_t>(section.instructions[i].stream)];
    check(cudaMemcpyAsync(in.reached, values.run_number(), sizeof run_number_, cudaMemcpyDeviceToHost, stream),
          "noting a collective");
  }
  if (in.marks.done) in.marks.done->record(stream);
}

void CudaExecutor::queue_timed(const Bound& bound, Marks& marks, cudaStream_t stream) {
  // Events that the host asks for.
  const auto report = [&](const std::unique_ptr<Event>& event) {
    if (!event) return;
    recording_ ? event->record_in_graph(stream) : event->record(stream);
  };
  report(marks.began);
  bound.kernel.queue(stream);
  report(marks.ended);
}

/// Of all ranks, or of none where one cannot: what NCCL is asked for in a graph, it is asked for in a graph everywhere.
void CudaExecutor::record_graph() {
  std::string reason;
  recording_ = true;
  try {
    graph_ = std::make_unique<Graph>(streams_, [&] {
      begin_streams();
      for (std::size_t i = 0; i < body_.bound.size(); ++i) queue(body_, i);
    });
  } catch (const std::exception& e) {
    if (options_.graphs == GraphUse::on) throw;
    reason = fmt::format("rank {}: {}", program_.rank, e.what());
    static_cast<void>(cudaGetLastError());  // it is answered: the next call is not to find it
  }
  recording_ = false;
  std::vector<std::string> reasons = {reason};
  if (communicators_ && options_.graphs == GraphUse::automatic) reasons = options_.nccl.world->all_gather(reason);
  const auto refused = std::ranges::find_if(reasons, [](const std::string& text) { return !text.empty(); });
  if (refused == reasons.end()) return;
  graph_.reset();
  uses_graph_ = false;
  if (program_.rank == 0 || !communicators_) {
    say_error("strata: warning: cuda.graphs = \"auto\": the step cannot be recorded and goes on without a graph: {}\n",
              *refused);
  }
}

void CudaExecutor::launch_graph(const StepContext& context) {
  for (const auto& values : step_values_) values->prepare(0, run_number_, [&](int) { return &context; });
  for (const Bound& in : body_.bound) prepare_input(in.kernel, context.step);
  graph_->launch(streams_.front()->get());
}

/// Nothing of a section outlives it: the caller reads results, and the next step reuses addresses, tickets and staging.
void CudaExecutor::wait_for_section(Section& section) {
  for (const Bound& in : section.bound) {
    if (!in.kernel) engine_.wait(in.marks.ticket);
  }
  if (communicators_) {
    communicators_->wait(streams_, section.collectives);
  } else {
    for (const auto& stream : streams_) stream->synchronize();
  }
  check_inputs();
}

void CudaExecutor::check_inputs() const {
  const OutOfRange value = *out_of_range_.as<const OutOfRange>();
  STRATA_INVARIANT(value == 0,
                   fmt::format("token or target {} is outside of the vocabulary or the classes", value - 1));
}

void CudaExecutor::collect_events(Step& step, std::int64_t number) {
  step.events.resize(body_.bound.size());
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const Instruction& in = program_.body[i];
    TimelineEvent& event = step.events[i];
    event = {.stream = in.stream, .instruction = static_cast<int>(i)};
    event.rank = program_.rank;
    event.step = number;
    const Bound& bound = body_.bound[i];
    if (!bound.kernel) {
      const comm::CompletedTimes times = engine_.times(bound.marks.ticket);
      event.begin_ns = times.begin_ns - step_began_ns_;
      event.end_ns = times.end_ns - step_began_ns_;
      event.bytes_sent = times.bytes_sent;
    } else if (bound.marks.began) {
      event.begin_ns = bound.marks.began->ns_since(step_began_);
      event.end_ns = bound.marks.ended->ns_since(step_began_);
    }
    if (bound.sent_bytes) event.bytes_sent = *bound.sent_bytes;
  }
}

TouchedMemory CudaExecutor::touched_memory() const {
  return strata::touched_memory(program_, [&](std::int64_t end) { return arena_.touched_bytes(end); });
}

std::span<const float> CudaExecutor::read(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  STRATA_INVARIANT(b.persistent && (b.dtype == DType::f32 || b.dtype == DType::bf16), b.name + " cannot be read");
  std::vector<float>& copy = copies_[static_cast<std::size_t>(buffer)];
  copy.resize(static_cast<std::size_t>(b.num_elements));
  const auto copy_to = [&](void* to) {
    check(cudaMemcpy(to, arena_.data() + b.offset_bytes, copy.size() * static_cast<std::size_t>(size_of(b.dtype)),
                     cudaMemcpyDefault),
          "reading a buffer");
  };
  if (b.dtype == DType::f32) {
    copy_to(copy.data());
    return copy;
  }
  std::vector<bf16> rounded(copy.size());
  copy_to(rounded.data());
  std::ranges::transform(rounded, copy.begin(), [](bf16 value) { return static_cast<float>(value); });
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
  // The copy may still be under way when cudaMemcpy returns, and our streams do not follow the one that it is on.
  const auto copy = [&](const void* from) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "writing a buffer");
    check(cudaDeviceSynchronize(), "writing a buffer");
  };
  if (b.dtype == DType::f32) {
    copy(values.data());
    return;
  }
  std::vector<bf16> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), [](float value) { return bf16(value); });
  copy(rounded.data());
}

}  // namespace strata::cuda

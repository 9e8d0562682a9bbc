/// @file
/// The part of the executor that queues repetitions which overlap. What can be waited for is kept by training step:
/// an instruction's instance in an earlier repetition has events of its own until its step is complete.

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/device/step_times.hpp"

namespace strata::cuda {
namespace {

void erase_done(std::vector<InFlight>& collectives) {
  std::erase_if(collectives, [](const InFlight& collective) { return collective.is_done(); });
}

}  // namespace

/// Null where the step of @p instance is complete, or was never begun: nothing is left to wait for.
CudaExecutor::Marks* CudaExecutor::marks_of(Instance instance) {
  const std::int64_t step = training_step_of(instance);
  if (!steps_.is_under_way(step)) return nullptr;
  return &steps_.kept(step).marks[static_cast<std::size_t>(instance.instruction)];
}

void CudaExecutor::begin_step(std::int64_t number, bool is_idle) {
  Step& step = steps_.kept(number);
  step.measurement = {.gradient_norm = std::numeric_limits<float>::quiet_NaN()};
  if (step.marks.empty()) {
    step.marks.resize(program_.body.size());
    for (std::size_t i = 0; i < step.marks.size(); ++i) {
      if (!body_.bound[i].kernel) continue;
      Marks& marks = step.marks[i];
      marks.done = std::make_unique<Event>(Event::Kind::order);
      if (!options_.timing) continue;
      marks.began = std::make_unique<Event>(Event::Kind::timing);
      marks.ended = std::make_unique<Event>(Event::Kind::timing);
      if (program_.body[i].stream == 0) marks.ready = std::make_unique<Event>(Event::Kind::timing);
    }
  }
  step.began_idle = is_idle;
  step.began->record(streams_.at(0)->get());
}

void CudaExecutor::queue_repetition(std::int64_t repetition) {
  ++run_number_;
  if (program_.join) {
    const StepRange before = steps_.under_way();
    for (std::int64_t step = before.first; step <= before.last; ++step) {
      for (std::size_t i = 0; i < body_.bound.size(); ++i) {
        if (!body_.bound[i].kernel) engine_.wait(steps_.kept(step).marks[i].ticket);
      }
    }
    if (communicators_) {
      communicators_->wait(streams_, in_flight_);
    } else {
      for (const auto& stream : streams_) stream->synchronize();
    }
  }
  prepare_values(repetition);
  for (int i = 0; i < static_cast<int>(body_.bound.size()); ++i) {
    const Instance instance{.instruction = i, .repetition = repetition};
    if (steps_.runs(training_step_of(instance))) queue_instance(instance);
  }
}

/// On each stream, so that they follow what reads those of the repetition before.
void CudaExecutor::prepare_values(std::int64_t repetition) {
  const auto num_sets = static_cast<std::int64_t>(depth(program_)) + 2;
  const int set = static_cast<int>(run_number_ % num_sets);
  const auto context_of = [&](int step) -> const StepContext* {
    const std::int64_t number = repetition * program_.steps_per_body + step;
    return steps_.runs(number) ? &steps_.context(number) : nullptr;
  };
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const StepValues& values = *step_values_[s];
    wait_for(values.copied(set));
    values.prepare(set, run_number_, context_of);
    values.copy(set, streams_[s]->get());
  }
}

void CudaExecutor::queue_instance(Instance instance) {
  const auto index = static_cast<std::size_t>(instance.instruction);
  const Instruction& in = program_.body[index];
  const TraceRange range(body_.bound[index].name);
  waits_.clear();
  for (const Wait& wait : in.waits) {
    const Instance other{.instruction = wait.instruction, .repetition = instance.repetition - wait.lag};
    if (marks_of(other) != nullptr) waits_.push_back(other);
  }
  const IssueWaits order = order_.next(instance, waits_);
  body_.bound[index].kernel ? queue_kernel(instance, order) : post_collective(instance, order);
}

void CudaExecutor::post_collective(Instance instance, const IssueWaits& order) {
  for (const Instance other : order.host_kernels) {
    if (const Marks* const marks = marks_of(other)) wait_for(*marks->done);
  }
  after_.clear();
  for (const Instance other : order.host_collectives) {
    if (const Marks* const marks = marks_of(other)) after_.push_back(marks->ticket);
  }
  Bound& bound = body_.bound[static_cast<std::size_t>(instance.instruction)];
  for (comm::Request& request : bound.requests) request.after = after_;
  marks_of(instance)->ticket = engine_.post(bound.requests);
}

void CudaExecutor::queue_kernel(Instance instance, const IssueWaits& order) {
  const auto index = static_cast<std::size_t>(instance.instruction);
  const Instruction& in = program_.body[index];
  const Bound& bound = body_.bound[index];
  const std::int64_t number = training_step_of(instance);
  Step& step = steps_.kept(number);
  Marks& marks = step.marks[index];
  const cudaStream_t stream = streams_[static_cast<std::size_t>(in.stream)]->get();
  if (bound.kernel.has_host_part()) {
    // Samples of an earlier step lie in the same page-locked memory until the device has fetched them.
    const std::int64_t before = number - InputLoad::num_places * program_.steps_per_body;
    if (steps_.is_under_way(before)) wait_for(*steps_.kept(before).marks[index].done);
    prepare_input(bound.kernel, number);
  }
  const auto is_collective = [&](Instance other) {
    return program_.body[static_cast<std::size_t>(other.instruction)].is_collective();
  };
  marks.has_waited_for_collective =
      marks.ready && (!order.host_collectives.empty() || std::ranges::any_of(order.device_waits, is_collective));
  if (marks.has_waited_for_collective) marks.ready->record(stream);
  if (bound.is_in_order) {
    erase_done(in_order_);
    if (in_order_.size() >= max_collectives_ahead) {
      communicators_->wait_for_last(std::span(in_order_).first(in_order_.size() - max_collectives_ahead + 1));
    }
  }
  for (const Instance other : order.host_collectives) {
    if (const Marks* const before = marks_of(other)) engine_.wait(before->ticket);
  }
  for (const Instance other : order.device_waits) {
    if (const Marks* const before = marks_of(other)) before->done->hold(stream);
  }
  queue_timed(bound, marks, stream);
  // Before anybody can wait for this instance: the next step's loss follows the copy.
  const auto copy_result = [&](const std::vector<int>& writers, int buffer, int result) {
    if (std::ranges::find(writers, instance.instruction) == writers.end()) return;
    check(cudaMemcpyAsync(step.results.as<float>() + result,
                          arena_.data() + program_.buffers[static_cast<std::size_t>(buffer)].offset_bytes,
                          sizeof(float), cudaMemcpyDefault, stream),
          "reading a step's results");
  };
  copy_result(loss_writers_, program_.loss_buffer, 0);
  copy_result(norm_writers_, program_.norm_buffer, 1);
  if (bound.reached != nullptr) {
    const StepValues& values = *step_values_[static_cast<std::size_t>(in.stream)];
    check(cudaMemcpyAsync(bound.reached, values.run_number(), sizeof run_number_, cudaMemcpyDeviceToHost, stream),
          "noting a collective");
    note_collective(bound);
  }
  marks.done->record(stream);
  engine_.progress();
}

/// Of the repetition that is being queued: later ones write greater numbers.
void CudaExecutor::note_collective(const Bound& bound) {
  erase_done(in_flight_);
  const InFlight collective{.is_done = [at = static_cast<const volatile std::int64_t*>(bound.reached),
                                        number = run_number_] { return *at >= number; },
                            .communicator = bound.communicator,
                            .label = bound.label};
  in_flight_.push_back(collective);
  if (bound.is_in_order) in_order_.push_back(collective);
}

void CudaExecutor::wait_for(const Event& event) {
  communicators_ ? communicators_->wait(event, in_flight_) : event.synchronize();
}

/// Not for what is queued behind it, which may wait for what other ranks have yet to begin.
void CudaExecutor::wait_for_step(std::int64_t number) {
  Step& step = steps_.kept(number);
  std::vector<int> last(streams_.size(), -1);
  for (int i = 0; i < static_cast<int>(body_.bound.size()); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (!belongs_to(program_, program_.body[index], number)) continue;
    const Instruction& in = program_.body[index];
    if (!body_.bound[index].kernel) {
      engine_.wait(step.marks[index].ticket);
      continue;
    }
    int& of_stream = last[static_cast<std::size_t>(in.stream)];
    const auto late = [&](int j) { return repetitions_late(program_, program_.body[static_cast<std::size_t>(j)]); };
    if (of_stream < 0 || late(i) >= late(of_stream)) of_stream = i;
  }
  for (const int i : last) {
    if (i >= 0) wait_for(*step.marks[static_cast<std::size_t>(i)].done);
  }
  check_inputs();
}

StepMeasurement CudaExecutor::complete_overlapping(std::int64_t number) {
  wait_for_step(number);
  const std::int64_t now = now_ns();
  Step& step = steps_.kept(number);
  // The device's times are relative to events: from one step to the next, so that no difference becomes long.
  const std::int64_t begin = steps_.begin_ns(number);
  const std::int64_t on_device = step.began_idle ? begin : before_began_ns_ + step.began->ns_since(*before_began_);
  StepMeasurement& measurement = step.measurement;
  const bool is_last = number == steps_.under_way().last;
  std::int64_t end = is_last || !options_.timing ? now : begin;
  std::int64_t exposed_ns = 0;
  step.events.assign(body_.bound.size(), {.rank = program_.rank, .step = number});
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const Instruction& in = program_.body[i];
    const Bound& bound = body_.bound[i];
    const Marks& marks = step.marks[i];
    TimelineEvent& event = step.events[i];
    event.stream = in.stream;
    event.instruction = static_cast<int>(i);
    if (!belongs_to(program_, in, number)) continue;
    if (!bound.kernel) {
      const comm::CompletedTimes times = engine_.times(marks.ticket);
      event.begin_ns = times.begin_ns - begin;
      event.end_ns = times.end_ns - begin;
      event.bytes_sent = times.bytes_sent;
    } else if (marks.began) {
      event.begin_ns = on_device + marks.began->ns_since(*step.began) - begin;
      event.end_ns = on_device + marks.ended->ns_since(*step.began) - begin;
    }
    if (bound.sent_bytes) event.bytes_sent = *bound.sent_bytes;
    if (marks.has_waited_for_collective) {
      exposed_ns += std::max<std::int64_t>(0, marks.began->ns_since(*marks.ready));
    }
    end = std::max(end, begin + event.end_ns);
    if (in.is_collective()) measurement.bytes_sent[static_cast<std::size_t>(in.collective)] += event.bytes_sent;
  }
  if (options_.timing) {
    add_busy_times(program_, step.events, measurement);
    measurement.exposed_seconds = static_cast<double>(exposed_ns) * 1e-9;
  } else {
    set_unknown_times(measurement);
  }
  if (!loss_writers_.empty()) measurement.loss = step.results.as<const float>()[0];
  if (!norm_writers_.empty()) measurement.gradient_norm = step.results.as<const float>()[1];
  measurement.step_seconds = steps_.complete(number, end);
  std::swap(before_began_, step.began);
  before_began_ns_ = on_device;
  events_ = step.events;
  return measurement;
}

}  // namespace strata::cuda

#include "cuda/emulation/streams.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <utility>

namespace emulation {
namespace {

Operations& of(cudaStream_t stream) { return place_of(stream).operations; }
Operations& of(cudaEvent_t event) { return place_of(event).operations; }

float now_milliseconds = 0.0F;

/// Not complete, in the order in which they were queued.
std::list<std::shared_ptr<Operation>> under_way;

void progress() {
  // A graph that is moved on queues its own operations.
  static bool inside = false;
  if (std::exchange(inside, true)) return;
  for (auto at = under_way.begin(); at != under_way.end();) {
    Operation& operation = **at;
    if (!operation.begun) {
      std::erase_if(operation.after, [](const auto& other) { return other->complete; });
      if (operation.after.empty()) {
        operation.begun = true;
        operation.begin();
      }
    }
    if (operation.begun && operation.poll()) {
      operation.complete = true;
      at = under_way.erase(at);
    } else {
      ++at;
    }
  }
  inside = false;
}

void wait_for(Operations& operations) {
  while (!is_complete(operations)) sched_yield();
}

void add(const Operations& operations, Operations& to) { to.insert(to.end(), operations.begin(), operations.end()); }

}  // namespace

Place& place_of(cudaStream_t stream) {
  static Place default_stream;
  return stream == nullptr ? default_stream : *reinterpret_cast<Place*>(stream);
}
Place& place_of(cudaEvent_t event) { return *reinterpret_cast<Place*>(event); }

bool is_complete(Operations& operations) {
  progress();
  std::erase_if(operations, [](const auto& operation) { return operation->complete; });
  return operations.empty();
}

void queue(cudaStream_t stream, const Operations& operations) {
  of(stream) = operations;  // which follow all that was queued before
  under_way.insert(under_way.end(), operations.begin(), operations.end());
  progress();
}

Operations pending(cudaStream_t stream) {
  Operations& operations = of(stream);
  is_complete(operations);
  return operations;
}

void wait(cudaStream_t stream) { wait_for(of(stream)); }

void pass_time(float milliseconds) { now_milliseconds += milliseconds; }

void drop_operations() {
  // What has begun still reads and writes its buffers.
  static std::list<std::shared_ptr<Operation>> dropped;
  for (const auto& operation : under_way) operation->complete = true;
  dropped.splice(dropped.end(), under_way);
}

}  // namespace emulation

using emulation::of;
using emulation::place_of;

extern "C" {
cudaError_t cudaDeviceSynchronize() {
  while (!emulation::under_way.empty()) {
    emulation::progress();
    sched_yield();
  }
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new emulation::Place);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete &place_of(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return emulation::wait(stream), cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return emulation::is_complete(of(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new emulation::Place);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &place_of(event), cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  emulation::Place& to = place_of(stream);
  const emulation::Place& from = place_of(event);
  const int recording = emulation::recording();
  if (from.graph != 0 && from.graph != recording) return cudaErrorCapturedEvent;
  if (recording != 0 && to.graph == recording && from.graph == 0) return cudaErrorStreamCaptureIsolation;
  if (std::exchange(to.graph, from.graph) != from.graph) to.nodes.clear();
  to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
  emulation::add(from.operations, to.operations);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const emulation::Place& from = place_of(stream);
  const bool records = from.graph != 0 && from.graph == emulation::recording();
  place_of(event) =
      records ? from : emulation::Place{.operations = emulation::pending(stream), .graph = 0, .nodes = {}};
  place_of(event).milliseconds = emulation::now_milliseconds;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return emulation::wait_for(of(event)), cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (place_of(event).graph != 0) return cudaErrorCapturedEvent;
  return emulation::is_complete(of(event)) ? cudaSuccess : cudaErrorNotReady;
}
/// What took no time is answered with a later one than the question before.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (place_of(begin).graph != 0 || place_of(end).graph != 0) return cudaErrorCapturedEvent;
  static int num_asked = 0;
  *milliseconds = place_of(end).milliseconds - place_of(begin).milliseconds + 0.001F * static_cast<float>(++num_asked);
  return cudaSuccess;
}
}

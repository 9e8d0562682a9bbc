#pragma once

/// @file
/// Owners of the device's streams and events.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/cuda/check.hpp"

namespace strata::cuda {

/// In order, and independent of the default stream.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "a kernel of the step"); }
  /// All that was queued is done.
  bool idle() const {
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) return false;
    check(status, "a kernel of the step");
    return true;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  enum class Kind : std::uint8_t { order, timing };
  explicit Event(Kind kind) {
    // A host that waits sleeps: ranks may share cores.
    const unsigned flags = kind == Kind::order ? cudaEventDisableTiming | cudaEventBlockingSync : cudaEventDefault;
    check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// As record(), each time that the graph which is being recorded on @p stream is launched.
  void record_in_graph(cudaStream_t stream) {
    check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "cudaEventRecord in a graph");
  }
  /// What is queued on @p stream from now on follows the last record of this event.
  void hold(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  void synchronize() const { check(cudaEventSynchronize(event_), "a kernel before a collective"); }
  bool complete() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  /// Nanoseconds from @p earlier to this one; both are complete timing events.
  std::int64_t ns_since(const Event& earlier) const {
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace strata::cuda

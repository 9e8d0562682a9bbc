#pragma once

/// @file
/// Names for a profiler (Nsight Systems and others that listen to NVTX): what the host issues while a range lives is
/// shown under its name, on the host's row and, projected, on the device's. Without a listener NVTX's functions are
/// null, and a call is the test of that.

#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <string>

namespace strata::cuda {

/// All of ours, so that a listener can choose them.
inline nvtxDomainHandle_t trace_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("strata");
  return domain;
}

/// Registered once, ahead of the ranges that carry it.
class TraceName {
 public:
  TraceName() = default;
  explicit TraceName(const std::string& name) : handle_(nvtxDomainRegisterStringA(trace_domain(), name.c_str())) {}
  nvtxStringHandle_t handle() const { return handle_; }

 private:
  nvtxStringHandle_t handle_ = nullptr;
};

/// Of the calling thread, which ends its ranges from the last to the first.
class TraceRange {
 public:
  explicit TraceRange(const TraceName& name) : TraceRange(name, NVTX_PAYLOAD_UNKNOWN, 0) {}
  /// @param number shown beside the name.
  TraceRange(const TraceName& name, std::int64_t number) : TraceRange(name, NVTX_PAYLOAD_TYPE_INT64, number) {}
  ~TraceRange() { nvtxDomainRangePop(trace_domain()); }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  TraceRange(const TraceName& name, std::int32_t payload_type, std::int64_t number) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = name.handle();
    attributes.payloadType = payload_type;
    attributes.payload.llValue = number;
    nvtxDomainRangePushEx(trace_domain(), &attributes);
  }
};

}  // namespace strata::cuda

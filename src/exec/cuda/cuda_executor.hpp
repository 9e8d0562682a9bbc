#pragma once

/// @file
/// Runs a Program on one GPU. The calling thread issues the section in program order: kernels go to the device's
/// streams, one for each of the Program's, and wait for each other there through events; the host meets the device at
/// the end of a step. Collectives are NCCL's, on the streams that the Program gives them, where every rank has a GPU of
/// its own. Otherwise they go through the host's communication engine, which works in the arena itself (managed
/// memory), so that any number of ranks may share a GPU; the host then meets the device at each collective too.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "exec/cuda/communicators.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/event.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/cuda/trace_range.hpp"
#include "exec/device/stream_order.hpp"
#include "exec/executor.hpp"

namespace strata::cuda {

struct CudaOptions {
  Numerics numerics;
  /// Two timing events an instruction, a microsecond or so each: what events() and the times of a step need.
  bool timing = true;
  NcclOptions nccl{};  ///< by default collectives go through the host
};

class CudaExecutor final : public Executor {
 public:
  /// On the current device. @param engine as for the CPU executor: all ranks construct their executors together. It has
  /// no part in collectives on the device.
  /// @throws Unsupported naming an instruction that this executor cannot run, or where there is no GPU.
  CudaExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed,
               const CudaOptions& options);
  ~CudaExecutor() override;

  void initialize() override;
  StepMeasurement step(const StepContext& context) override;
  void finish() override;
  void write(int buffer, std::int64_t begin, std::span<const float> values) override;
  /// Of the last step; without timing only those of collectives on the host are there.
  std::span<const TimelineEvent> events() const override { return events_; }
  /// A copy, valid until the same buffer is read again.
  std::span<const float> read(int buffer) const override;
  std::int64_t touched_bytes() const override { return arena_.touched_bytes(); }

 private:
  struct Bound {
    BoundKernel kernel;     ///< empty for a collective on the host
    comm::Request request;  ///< of that
    comm::Ticket ticket{};
    int communicator = 0;                ///< of a collective on the device
    const std::string* label = nullptr;  ///< likewise; null for others
    IssueOrder order;
    TraceName name;
    std::unique_ptr<Event> done;  ///< where somebody waits for it
    std::unique_ptr<Event> began, ended;
  };
  std::vector<Bound> bind(const std::vector<Instruction>& section, bool timed);
  void run(const std::vector<Instruction>& section, std::vector<Bound>& bound, const StepContext& context);
  void issue(const std::vector<Instruction>& section, std::vector<Bound>& bound, const StepContext& context);
  void post(std::vector<Bound>& bound, Bound& collective);
  void complete(const std::vector<Instruction>& section, std::vector<Bound>& bound);
  void collect_events(std::int64_t step);

  const Program& program_;
  comm::Engine& engine_;
  InputSource& inputs_;
  std::uint64_t seed_;
  CudaOptions options_;
  Libraries libraries_;
  DeviceArena arena_;
  std::unique_ptr<Communicators> communicators_;  ///< null: collectives on the host
  PinnedMemory out_of_range_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< by Program stream
  std::vector<int> engine_groups_;                ///< by Program group
  std::deque<std::string> labels_;                ///< requests and bound collectives keep pointers to these
  TraceName prologue_name_{"prologue"};
  TraceName step_name_{"step"};
  TraceName epilogue_name_{"epilogue"};
  std::vector<Bound> prologue_;
  std::vector<Bound> body_;
  std::vector<Bound> epilogue_;
  std::vector<comm::Ticket> after_;  ///< scratch of post()
  std::vector<InFlight> in_flight_;  ///< collectives on the device, of the section that runs
  Event step_began_{Event::Kind::timing};
  std::int64_t step_began_ns_ = 0;  ///< steady_clock, when step_began_ was recorded
  std::vector<TimelineEvent> events_;
  mutable std::vector<std::vector<float>> copies_;  ///< by buffer, of read()
};

}  // namespace strata::cuda

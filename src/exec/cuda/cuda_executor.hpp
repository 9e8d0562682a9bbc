#pragma once

/// @file
/// Runs a Program on one GPU. The calling thread issues the section in program order: kernels go to the device's
/// streams, one for each of the Program's, and wait for each other there through events; the host meets the device at
/// the end of a step, and reads the inputs of the next one before. From the second step on the body is launched as one
/// graph, where the host has no part in it: the first step is what libraries need to load their kernels and to connect.
/// Collectives are NCCL's, on the streams that the Program gives them, where every rank has a GPU of its own. Otherwise
/// they go through the host's communication engine, which works in the arena itself (managed memory), so that any
/// number of ranks may share a GPU; the host then meets the device at each collective too.

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
#include "exec/cuda/graph.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/cuda/step_values.hpp"
#include "exec/cuda/trace_range.hpp"
#include "exec/device/graph_use.hpp"
#include "exec/device/stream_order.hpp"
#include "exec/executor.hpp"

namespace strata::cuda {

struct CudaOptions {
  Numerics numerics;
  /// Two timing events an instruction, a microsecond or so each: what events() and the times of a step need.
  bool timing = true;
  GraphUse graphs = GraphUse::automatic;
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
  void abandon() noexcept override;
  void write(int buffer, std::int64_t begin, std::span<const float> values) override;
  /// Of the last step; without timing only those of collectives on the host are there.
  std::span<const TimelineEvent> events() const override { return events_; }
  /// A copy, valid until the same buffer is read again.
  std::span<const float> read(int buffer) const override;
  TouchedMemory touched_memory() const override;

 private:
  struct Bound {
    BoundKernel kernel;     ///< empty for a collective on the host
    comm::Request request;  ///< of that
    comm::Ticket ticket{};
    IssueOrder order;
    TraceName name;
    std::unique_ptr<Event> done;  ///< where another instruction waits for it
    /// Of a collective on the device: page-locked, the number of the run that it was last done in.
    std::int64_t* reached = nullptr;
    std::unique_ptr<Event> began, ended;
    bool is_in_order = false;  ///< a collective on the device that is no message: all ranks have these in one order
  };
  struct Section {
    const std::vector<Instruction>& instructions;
    std::vector<Bound> bound;
    std::vector<InFlight> collectives;  ///< on the device
    std::vector<std::size_t> in_order;  ///< of these, see Bound::is_in_order
  };
  Section bind(const std::vector<Instruction>& instructions, bool timed);
  void run(Section& section, const StepContext& context);
  void issue(Section& section, const StepContext& context);
  void begin_streams();
  void queue(Section& section, std::size_t i);
  void record_graph();
  void launch_graph(const StepContext& context);
  void post(std::vector<Bound>& bound, Bound& collective);
  void complete(Section& section);
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
  StepValues step_values_;
  std::int64_t run_number_ = 0;  ///< of sections, from 1
  const std::int64_t* run_number_on_device_ = nullptr;
  PinnedMemory reached_;  ///< see Bound
  std::size_t num_reached_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< by Program stream
  std::vector<int> engine_groups_;                ///< by Program group
  std::deque<std::string> labels_;                ///< requests and bound collectives keep pointers to these
  TraceName prologue_name_{"prologue"};
  TraceName step_name_{"step"};
  TraceName epilogue_name_{"epilogue"};
  Section prologue_;
  Section body_;
  Section epilogue_;
  bool uses_graph_ = false;
  bool has_collectives_on_host_ = false;
  bool recording_ = false;           ///< what is queued goes into the graph
  std::unique_ptr<Graph> graph_;     ///< of the body; goes before the communicators that are in it
  std::vector<comm::Ticket> after_;  ///< scratch of post()
  Event began_{Event::Kind::order};  ///< the first stream has the step's values
  Event step_began_{Event::Kind::timing};
  std::int64_t step_began_ns_ = 0;  ///< steady_clock, when step_began_ was recorded
  std::vector<TimelineEvent> events_;
  mutable std::vector<std::vector<float>> copies_;  ///< by buffer, of read()
};

}  // namespace strata::cuda

#pragma once

/// @file
/// Runs a Program on the CPU. The calling thread is the compute stream: kernels run on it, in program order, one after
/// the other. Collectives are posted to the communication engine when the list reaches them and complete behind its
/// back; an instruction that waits for one sleeps until the engine reports it.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "exec/arena.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/executor.hpp"

namespace strata::cpu {

class CpuExecutor final : public Executor {
 public:
  /// @param seed of initial values and dropout. All references must outlive the executor; the groups of the Program are
  /// created in
  ///        @p engine, so all ranks construct their executors together.
  /// @throws Unsupported naming an instruction the CPU cannot run.
  CpuExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed);

  void initialize() override;
  StepMeasurement step(const StepContext& context) override;
  void finish() override;
  void write(int buffer, std::int64_t begin, std::span<const float> values) override;
  std::span<const TimelineEvent> events() const override { return events_; }
  std::span<const float> read(int buffer) const override;
  TouchedMemory touched_memory() const override;

 private:
  struct Bound {
    BoundKernel kernel;                 ///< empty for a collective
    comm::Request request;              ///< collectives
    std::vector<int> collective_waits;  ///< instructions of this section to wait for; kernels are complete by order
    comm::Ticket ticket{};
  };
  std::vector<Bound> bind(const std::vector<Instruction>& section, InputSource& inputs, std::uint64_t seed);
  void run(const std::vector<Instruction>& section, std::vector<Bound>& bound, const StepContext& context);
  void wait_for(const std::vector<Bound>& bound, std::span<const int> instructions);
  void finish_collectives(const std::vector<Instruction>& section, std::vector<Bound>& bound);

  const Program& program_;
  comm::Engine& engine_;
  Arena arena_;
  std::vector<int> engine_groups_;  ///< by Program group
  std::deque<std::string> labels_;  ///< requests keep pointers to these
  std::vector<Bound> prologue_;
  std::vector<Bound> body_;
  std::vector<Bound> epilogue_;
  std::vector<comm::Ticket> after_;  ///< scratch of run()
  std::vector<TimelineEvent> events_;
  StepMeasurement measurement_;
};

}  // namespace strata::cpu

#pragma once

/// @file
/// Runs a Program on the CPU. The calling thread is the compute stream: kernels run on it, in program order, one after
/// the other, inside submit(). Collectives are posted to the communication engine when the list reaches them and
/// complete behind its back; an instruction that waits for one sleeps until the engine reports it.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "exec/arena.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/executor.hpp"
#include "exec/steps_under_way.hpp"

namespace strata::cpu {

class CpuExecutor final : public Executor {
 public:
  /// @param seed of initial values and dropout. All references must outlive the executor; the groups of the Program are
  /// created in
  ///        @p engine, so all ranks construct their executors together.
  /// @param numerics those that the Program's workspaces are of.
  /// @throws Unsupported naming an instruction the CPU cannot run.
  CpuExecutor(const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed,
              const Numerics& numerics = {});

  void initialize() override;
  void submit(std::span<const StepContext> steps) override;
  StepMeasurement complete(std::int64_t step) override;
  void drain() override;
  void write(int buffer, std::int64_t begin, std::span<const float> values) override;
  std::span<const TimelineEvent> events() const override { return events_; }
  std::span<const float> read(int buffer) const override;
  TouchedMemory touched_memory() const override;

 private:
  struct Bound {
    BoundKernel kernel;                   ///< empty for a collective
    std::vector<comm::Request> requests;  ///< of a collective, by tensor
    std::vector<Wait> waits;              ///< for collectives; kernels are complete by order
  };
  /// What a step that is under way keeps.
  struct Step {
    StepMeasurement measurement;
    std::vector<TimelineEvent> events;  ///< by instruction of the body, on the clock's time
    std::vector<comm::Ticket> tickets;  ///< by instruction of the body: its collectives that were posted
  };
  std::vector<Bound> bind(const std::vector<Instruction>& section, InputSource& inputs, std::uint64_t seed,
                          const Numerics& numerics);
  void run_repetition(std::int64_t repetition);
  void run_kernel(std::size_t index, std::int64_t step);
  void post(std::size_t index, std::int64_t step);
  void find_tickets(const Bound& in, std::int64_t repetition);
  void wait_for_tickets(StepMeasurement& measurement);
  void wait_for_collectives(std::int64_t step);

  const Program& program_;
  comm::Engine& engine_;
  Arena arena_;
  std::vector<int> engine_groups_;  ///< by Program group
  std::deque<std::string> labels_;  ///< requests keep pointers to these
  std::vector<Bound> prologue_;
  std::vector<Bound> body_;
  std::vector<int> loss_writers_;  ///< instructions of the body behind which a step's loss is complete
  std::vector<int> norm_writers_;
  StepsUnderWay<Step> steps_;
  std::vector<comm::Ticket> tickets_;                 ///< what is waited for next
  std::vector<TimelineEvent> events_;                 ///< of the step completed last
  mutable std::map<int, std::vector<float>> copies_;  ///< by buffer that is not f32: as it was read last
};

}  // namespace strata::cpu

#pragma once

/// @file
/// Runs a Program on one GPU. The calling thread issues the section in program order: kernels go to the device's
/// streams, one for each of the Program's, and wait for each other there through events; the host meets the device at
/// the end of a step. Where a repetition of the body is alone (is_repeated_alone()), a thread has the inputs of the
/// next step written to page-locked memory meanwhile, and from the second step on the body is launched as one graph,
/// where the host has no part in it: the first step is what libraries need to load their kernels and to connect. Where
/// steps overlap, a repetition is queued behind the one before, with events of its own for each step that is under way
/// (overlapping_steps.cpp). Collectives are NCCL's, on the streams that the Program gives them, where every rank has a
/// GPU of its own. Otherwise they go through the host's communication engine, which works in the arena itself (managed
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
#include "exec/cuda/graph.hpp"
#include "exec/cuda/input_thread.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/cuda/step_values.hpp"
#include "exec/cuda/trace_range.hpp"
#include "exec/device/graph_use.hpp"
#include "exec/device/stream_order.hpp"
#include "exec/executor.hpp"
#include "exec/steps_under_way.hpp"

namespace strata::cuda {

/// A GPU takes about a thousand calls before the host must wait for it, and then nothing watches it wait: it waits here
/// before, for what it queued so many collectives ago, over all repetitions that are under
/// way.
constexpr std::size_t max_collectives_ahead = 8;

struct CudaOptions {
  Numerics numerics;
  /// Two timing events an instruction, a microsecond or so each: what events() and the times of a step need.
  bool timing = true;
  /// automatic: where recording fails after all, the step goes on without a graph, with a warning, on all ranks.
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
  /// Ranks whose products have one shape compute them by one kernel. Collective, before initialize().
  void agree_on_products(const comm::World& world);

  void initialize() override;
  void submit(std::span<const StepContext> steps) override;
  StepMeasurement complete(std::int64_t step) override;
  void drain() override;
  void abandon() noexcept override;
  void write(int buffer, std::int64_t begin, std::span<const float> values) override;
  /// Of the last step; without timing only those of collectives on the host are there.
  std::span<const TimelineEvent> events() const override { return events_; }
  /// A copy, valid until the same buffer is read again.
  std::span<const float> read(int buffer) const override;
  TouchedMemory touched_memory() const override;

 private:
  /// What tells of one instance of an instruction.
  struct Marks {
    comm::Ticket ticket{};                   ///< of a collective on the host
    std::unique_ptr<Event> done;             ///< where another instruction waits for it
    std::unique_ptr<Event> began, ended;     ///< timing, where asked for
    std::unique_ptr<Event> ready;            ///< timing: its stream had come to its waits; where steps overlap
    bool has_waited_for_collective = false;  ///< between ready and began
  };
  struct Bound {
    BoundKernel kernel;                   ///< empty for a collective on the host
    std::vector<comm::Request> requests;  ///< of that, by tensor
    IssueOrder order;
    TraceName name;
    Marks marks;  ///< where a repetition is alone, and of the prologue
    /// Of a collective on the device: page-locked, the number of the run that it was last done in.
    std::int64_t* reached = nullptr;
    std::shared_ptr<const std::int64_t> sent_bytes;  ///< of a collective on the device, see BoundCollective
    int communicator = 0;                            ///< of a collective on the device
    const std::string* label = nullptr;
    bool is_in_order = false;  ///< a collective on the device that is no message: all ranks have these in one order
  };
  struct Section {
    const std::vector<Instruction>& instructions;
    std::vector<Bound> bound;
    std::vector<InFlight> collectives;  ///< on the device
    std::vector<std::size_t> in_order;  ///< of these, see Bound::is_in_order
  };
  /// What a step that is under way keeps.
  struct Step {
    StepMeasurement measurement;
    std::vector<TimelineEvent> events;  ///< by instruction of the body
    bool is_measured = false;           ///< both are complete; where a repetition is alone
    // Where steps overlap:
    std::vector<Marks> marks;                                                     ///< by instruction of the body
    std::unique_ptr<Event> began = std::make_unique<Event>(Event::Kind::timing);  ///< on the first stream
    bool began_idle = false;                                                      ///< nothing else was under way
    PinnedMemory results{2 * sizeof(float)};                                      ///< loss and norm
  };
  Section bind(const std::vector<Instruction>& instructions, bool timed);
  void bind_collective_on_device(Section& section, std::size_t i, const Arguments& arguments);
  // Of repetitions that are alone, and of the prologue:
  void submit_alone(const StepContext& context);
  void measure(std::int64_t step);
  void issue(Section& section, const StepContext& context);
  void begin_streams();
  void queue(Section& section, std::size_t i);
  void record_graph();
  void launch_graph(const StepContext& context);
  void prepare_next_inputs(std::int64_t step);
  void post(std::vector<Bound>& bound, Bound& collective);
  void wait_for_section(Section& section);
  void collect_events(Step& step, std::int64_t number);
  // Of steps that overlap:
  void begin_step(std::int64_t step, bool is_idle);
  void queue_repetition(std::int64_t repetition);
  void prepare_values(std::int64_t repetition);
  void prepare_input(const BoundKernel& kernel, std::int64_t step);
  void queue_instance(Instance instance);
  void queue_kernel(Instance instance, const IssueWaits& order);
  void post_collective(Instance instance, const IssueWaits& order);
  void note_collective(const Bound& bound);
  void wait_for(const Event& event);
  void wait_for_step(std::int64_t step);
  StepMeasurement complete_overlapping(std::int64_t step);
  std::int64_t training_step_of(Instance instance) const {
    return training_step(program_, program_.body[static_cast<std::size_t>(instance.instruction)], instance.repetition);
  }
  Marks* marks_of(Instance instance);
  // Of both:
  void queue_timed(const Bound& bound, Marks& marks, cudaStream_t stream);
  void check_inputs() const;
  template <typename Work>
  void or_abandon(const Work& work);

  const Program& program_;
  comm::Engine& engine_;
  InputSource& inputs_;
  std::uint64_t seed_;
  CudaOptions options_;
  Libraries libraries_;
  DeviceArena arena_;
  std::unique_ptr<Communicators> communicators_;  ///< null: collectives on the host
  PinnedMemory out_of_range_;
  bool is_alone_;  ///< repetitions of the body follow each other, and hold a step each
  std::vector<std::unique_ptr<StepValues>> step_values_;  ///< by Program stream
  std::int64_t run_number_ = 0;                           ///< of the prologue and repetitions, from 1
  PinnedMemory reached_;                                  ///< see Bound
  std::size_t num_reached_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< by Program stream
  std::vector<int> engine_groups_;                ///< by Program group
  std::deque<std::string> labels_;                ///< requests and bound collectives keep pointers to these
  TraceName prologue_name_{"prologue"};
  TraceName step_name_{"step"};
  Section prologue_;
  Section body_;
  bool uses_graph_ = false;          ///< equal on all ranks that share communicators
  bool recording_ = false;           ///< what is queued goes into the graph
  std::unique_ptr<Graph> graph_;     ///< of the body; goes before the communicators that are in it
  std::vector<comm::Ticket> after_;  ///< scratch of post()
  Event began_{Event::Kind::order};  ///< the other streams go on from here
  Event step_began_{Event::Kind::timing};
  std::int64_t step_began_ns_ = 0;  ///< steady_clock, when step_began_ was recorded
  std::vector<int> loss_writers_;   ///< instructions of the body behind which a step's loss is complete
  std::vector<int> norm_writers_;
  StepsUnderWay<Step> steps_;
  std::vector<TimelineEvent> events_;
  // Where steps overlap:
  StreamOrder order_;
  std::vector<Instance> waits_;                     ///< scratch of queue_instance()
  std::vector<InFlight> in_flight_;                 ///< collectives on the device that were not seen done
  std::vector<InFlight> in_order_;                  ///< of these, see Bound::is_in_order
  std::unique_ptr<Event> before_began_;             ///< Step::began of the step that was completed last
  std::int64_t before_began_ns_ = 0;                ///< steady_clock
  mutable std::vector<std::vector<float>> copies_;  ///< by buffer, of read()
  std::unique_ptr<InputThread> input_thread_;  ///< null: inputs are read when they are due. Last: it uses the loads
};

}  // namespace strata::cuda

#pragma once

/// @file
/// Plan → bytes and seconds, as an interface: planners ask it, lower and sim answer it, predict joins them. What a step
/// holds and takes is described once, by its order and its Programs: a planner that has a closed form of its own uses
/// it to order candidates or to leave out those that cannot fit, never to say that one fits.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cost/group_shape.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// What a plan costs. Numbers are there for plans that do not fit too; none where lowering refuses.
struct Evaluation {
  std::string missing{};        ///< why it cannot run: what lowering refuses, or bytes over the capacity; empty: it can
  std::int64_t peak_bytes = 0;  ///< of the fullest rank's arena
  std::vector<std::int64_t> stage_peak_bytes{};  ///< by place in the pipeline; by memory() and least_memory() alone
  MemoryPeak peak{};  ///< what the fullest rank's arena holds at its fullest moment, by category; by memory() alone
  BytesByCollective bytes_sent{};  ///< a step; of each kind, by the rank that sends most of it
  double step_seconds = 0.0;       ///< of the slowest rank, in the steady state; 0: not asked for
  std::string source{};            ///< what the numbers stand on, in words
  bool feasible() const { return missing.empty(); }
};

/// An instruction of a Program's body, as if it had the machine to itself.
struct PricedInstruction {
  std::string name{};  ///< of the operator or bucket that it belongs to
  Phase phase = Phase::forward;
  int micro_batch = 0;  ///< counted over sub-batches
  int stream = 0;
  bool is_collective = false;
  Collective collective = Collective::all_reduce;
  Placement place{};            ///< ranks of a collective
  std::int64_t bytes_sent = 0;  ///< by the first rank
  /// Of a collective: it waits for the kernel before it, and the kernel behind it waits for it, so that nothing
  /// computes meanwhile.
  bool holds_up_kernels = false;
  double seconds = 0.0;
};

/// What of one micro-batch stays from its forward to its backward.
struct KeptTensor {
  std::string made_by{};               ///< operator in whose forward
  std::vector<std::string> read_by{};  ///< operators in whose backward or recomputation
  std::int64_t bytes = 0;
};

/// What the first rank does in a step. Nothing is simulated: what runs under what is left to who asks.
struct PricedStep {
  std::string missing{};  ///< what lowering refuses; empty: nothing
  std::vector<PricedInstruction> instructions{};
  std::vector<KeptTensor> kept{};  ///< of the first micro-batch, where it has no sub-batches
  std::int64_t live_bytes = 0;     ///< at the fullest moment
  double overhead_seconds = 0.0;   ///< of every step, beside all instructions
};

/// Which Programs say what plans need: those of few micro-batches or blocks, which need no more than those of all and
/// nearly always as much, or those of all; or what is alive at once in the few, wherever it lies, to which nothing is
/// added by first fit.
enum class PeaksOf : std::uint8_t { alive, few, all };

/// Of a vocabulary that is cut over ranks and does not divide: all its tokens, or without those that are left over,
/// which make ranks differ that are alike otherwise.
enum class Tokens : std::uint8_t { all, that_divide };

/// Pure: equal plans get equal answers, on every rank.
class Evaluate {
 public:
  virtual ~Evaluate() = default;
  /// @throws UserError where the costs that were asked for are not known, e.g. of a machine that nobody profiled.
  virtual Evaluation operator()(const Plan& plan) const = 0;
  /// The costs that were asked for are known: operator() tells the seconds.
  virtual bool knows_seconds() const = 0;
  /// As operator(), faster, of plans whose ranks differ only by who has the parts that are left over, or by whole
  /// tensors that are dealt to them: seconds and peak, no more of either than operator() says where less work takes a
  /// kernel no longer and nothing shares a NIC. Messages that do share one are otherwise in another order: that has
  /// made the seconds 0.3 % more than those of operator(), of two nodes of eight ranks. Nothing: of others, and of what
  /// is refused.
  virtual std::optional<Evaluation> at_least(const Plan& /*plan*/) const { return std::nullopt; }
  /// Seconds of operator(), told from few of the blocks, or of stages from few of the micro-batches: the same to
  /// rounding where each of neighbouring blocks that are alike, or each micro-batch behind the first ones, adds what
  /// the next one does, within a few percent where it does not, since buckets of gradients say end within other blocks.
  /// Nothing: of so few blocks or micro-batches that operator() says it as quickly, of stages in other schedules than
  /// 1f1b and interleaved, and of what is refused. @param tokens that_divide: several times faster, and a few
  /// millionths less.
  virtual std::optional<double> seconds_of_few(const Plan& /*plan*/, Tokens /*tokens*/) const { return std::nullopt; }
  /// Memory and bytes alone: needs no costs.
  virtual Evaluation account(const Plan& plan) const = 0;
  /// The peak alone, and whether it fits: less is lowered than all bytes need.
  virtual Evaluation memory(const Plan& plan) const = 0;
  /// As memory(), faster and never more, from Programs of few of the blocks, or of a pipeline's micro-batches: what
  /// does not fit by this is left out; of what does, memory() has the last word.
  virtual Evaluation least_memory(const Plan& plan) const = 0;
  /// stage_peak_bytes of memory() or of least_memory(), which may say of what is alive what it says of few, for @p
  /// places of the pipeline, in their order: an evaluation that lowers lowers ranks of those alone. Empty where
  /// lowering refuses.
  virtual std::vector<std::int64_t> peaks_of_places(const Plan& plan, std::span<const int> places,
                                                    PeaksOf programs) const {
    const std::vector<std::int64_t> all =
        (programs == PeaksOf::all ? memory(plan) : least_memory(plan)).stage_peak_bytes;
    std::vector<std::int64_t> asked;
    for (const int place : places) {
      if (!all.empty()) asked.push_back(all[static_cast<std::size_t>(place)]);
    }
    return asked;
  }
  /// The step of @p plan for @p part, which is of the model, such as a few of its blocks. One Program is lowered.
  /// @throws UserError as operator().
  virtual PricedStep price(const Plan& plan, const ModelGraph& part) const = 0;
  /// Of a collective over @p ranks of @p mesh, alone. @param bytes of the full tensor; of a send, of the message.
  /// @throws UserError as operator().
  virtual double collective_seconds(Collective kind, const Mesh& mesh, std::span<const int> ranks,
                                    std::int64_t bytes) const = 0;
  /// All that a rank of @p mesh sends goes through one NIC, which nobody else uses: several collectives at a time take
  /// together as long as one after another.
  virtual bool has_a_nic_to_itself(const Mesh& /*mesh*/) const { return false; }
  /// Of a message of @p bytes from one rank of @p mesh to another, alone.
  double message_seconds(const Mesh& mesh, int from, int to, std::int64_t bytes) const {
    return collective_seconds(Collective::send, mesh, std::array{from, to}, bytes);
  }
};

}  // namespace strata

#pragma once

/// @file
/// What travels between a stage and its neighbours: activations forward, their gradients backward, a message a tensor.
///
/// Each direction to each neighbour has a stream of its own, so that no message waits behind one of another direction.
/// Nothing is buffered between ranks, and nothing needs to be: both sides post the messages of a stream in one order,
/// that of the passes, and a message waits for nothing but its own rank's earlier passes and what its cause implies.

#include <string>
#include <vector>

#include "ir/model_graph.hpp"
#include "ir/plan.hpp"
#include "ir/stages.hpp"
#include "lower/activations.hpp"
#include "lower/builder.hpp"
#include "lower/schedule.hpp"

namespace strata {

/// Names of the streams between @p stage and its neighbours: "stage0to1" on both of its ends.
std::vector<std::string> link_streams(int num_stages, int stage);

class StageLinks {
 public:
  /// @param group ranks of all stages in their order; -1 where there is one stage.
  /// @param first_stream number of the first of link_streams().
  StageLinks(const Plan& plan, const ModelGraph& graph, const std::vector<Stage>& stages, int stage, int group,
             int first_stream, ProgramBuilder& builder, Activations& activations);

  /// What @p pass needs from a neighbour: a forward its activations from the stage before, a backward the gradients
  /// from the stage behind. Selects the pass's micro-batch.
  void receive(const StagePass& pass);
  /// What @p pass, which is selected and emitted, has for a neighbour.
  void send(const StagePass& pass);

 private:
  /// One neighbour.
  struct Link {
    int peer = -1;  ///< stage, which is its index in the group; -1: there is none
    int send_stream = -1;
    int receive_stream = -1;
    std::vector<int> tensors{};      ///< that cross, in the order of their messages
    std::vector<int> forward_at{};   ///< by micro-batch: when the neighbour's forward has its turn
    std::vector<int> backward_at{};  ///< and its backward
    struct Sent {
      int instruction = 0;
      int micro_batch = 0;
    };
    std::vector<Sent> sent{};  ///< the last message of each pass
  };
  Link link_to(const Plan& plan, const ModelGraph& graph, const std::vector<Stage>& stages, int stage, int peer);
  Instruction message(const StagePass& pass, const Link& link, int tensor) const;

  const ModelGraph& graph_;
  int group_;
  ProgramBuilder& builder_;
  Activations& activations_;
  Link before_;
  Link behind_;
};

}  // namespace strata

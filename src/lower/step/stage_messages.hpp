#pragma once

/// @file
/// What travels between a rank and its neighbours in a pipeline, and when: activations forward, their gradients
/// backward. A value that follows from the orders of a rank and of its neighbours.
///
/// Each direction to each neighbour has a stream of its own, so that no message waits behind one of another direction.
/// Of two ranks with interleaved stages each is both neighbours of the other.
/// Nothing is buffered between ranks, and nothing needs to be: both sides post the messages of a stream in the order of
/// the sender's items, and a message waits for nothing but its own rank's earlier items and what its cause implies.
///
/// A rank's items are taken in passes: neighbouring items of one micro-batch in one direction, with a message for each
/// of its sub-batches. A receive is posted before the pass that precedes its reader, so that the transfer runs under
/// that pass's kernels. Where that pass is a backward, the receive of activations is posted behind it: a stage of 1F1B
/// holds as many activations as it may until its backward has let some go.

#include <map>
#include <string>
#include <vector>

#include "ir/order/step_order.hpp"
#include "partition/stages_of_places.hpp"

namespace strata {

/// Names of the streams between @p place and its neighbours: "stage0to1" on both of its ends, "around1to0" from the
/// last place to the first.
std::vector<std::string> link_streams(const StagePlaces& pipeline, int place);

class StageMessages {
 public:
  /// Of one sub-batch in one direction, a message a tensor.
  struct Receive {
    int item = -1;    ///< of the rank: the first that reads it
    int peer = -1;    ///< place in the pipeline
    int cut = -1;     ///< the stage behind the cut that it crosses
    int stream = -1;  ///< of link_streams
    int taken = -1;   ///< item of the rank whose messages the peer has taken before it sends these; -1: none
  };
  struct Send {
    int peer = -1;
    int cut = -1;
    int stream = -1;
  };

  /// Of a rank at @p place.  @param before, behind orders of the neighbours; null where there is none.
  StageMessages(const StepOrder& order, const StagePlaces& pipeline, int place, const StepOrder* before,
                const StepOrder* behind);

  /// Of one of the replicas of a stage in a pyramid, which has one micro-batch at a time: what comes of it is awaited
  /// when it is needed, its gradients behind the activations that made them, which the other rank has taken by then.
  /// The peer is a stage; which of its replicas depends on the micro-batch.
  static StageMessages of_replica(const StepOrder& order, const StagePlaces& pipeline, int stage);

  /// To be posted before item @p item, in this order.
  const std::vector<Receive>& before(int item) const { return receives_[static_cast<std::size_t>(item)]; }
  /// To be posted behind item @p item; no peer: nothing.
  const Send& after(int item) const { return sends_[static_cast<std::size_t>(item)]; }

 private:
  StageMessages(const StepOrder& order, const StagePlaces& pipeline, int place);

  std::vector<std::vector<Receive>> receives_;  ///< by item
  std::vector<Send> sends_;                     ///< by item
};

}  // namespace strata

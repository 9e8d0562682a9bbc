#pragma once

/// @file
/// Programs as Chakra execution traces, the workloads of ASTRA-sim (Sridharan et al., "Chakra", arXiv 2305.14516;
/// schema: chakra/trace.proto). The decision: one node an instruction of the body, whose id is its index there;
/// streams and waits become data dependencies, the kind that every version of the feeder resolves; collectives stay
/// whole and name their group, whose members stand in one file beside the traces. A rank of ASTRA-sim has one send or
/// collective under way: taken as they become free, two ranks may each hold what the other waits for. So control
/// dependencies keep sends and collectives in the order of the list, which fits together over all ranks.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// What a trace says that is not in the Program.
struct NodeCost {
  double seconds = 0.0;           ///< of a kernel, or of a transfer with the network to itself
  std::int64_t tensor_bytes = 0;  ///< kernels: read and written, for the reader's own roofline
};
using NodeCosts = std::function<NodeCost(const Program& program, const Instruction& instruction)>;

/// Writes the traces of one job; it sees each rank's Program once, in any order.
class ChakraWriter {
 public:
  explicit ChakraWriter(NodeCosts costs) : costs_(std::move(costs)) {}

  /// The bytes of `<name>.<rank>.et`: one step as length-delimited messages, a GlobalMetadata and a Node an
  /// instruction. `comm_size` is what the feeder's readers count: bytes that each member puts in, of an all-gather its
  /// largest chunk so that all members agree; of a message its length. `comm_src` of a broadcast is its root,
  /// `comm_dst` of a reduce. `comm_tag` tells the messages from one rank to another apart, equal at both ends.
  /// Durations are whole microseconds: what rounding takes from one node of a stream the next one gets, so that sums
  /// are right. Steps that overlap are given as one list (in_one_list).
  /// @throws InternalError if a step has more messages than tags.
  std::string trace(const Program& program);

  /// JSON object from the group's number, `pg_name` of its collectives, to its world ranks in group order; of the
  /// groups of all Programs seen.
  std::string communicator_groups() const;

 private:
  /// From 1: readers keep 0 for all ranks.
  int number_of(const Group& group);

  NodeCosts costs_;
  std::map<std::pair<std::string, std::vector<int>>, int> numbers_;  ///< by name and ranks
};

}  // namespace strata

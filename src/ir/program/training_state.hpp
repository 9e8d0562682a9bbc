#pragma once

/// @file
/// What a rank must have to go on training where another run stopped, read off its Program: what its optimizer updates,
/// and the weights that its kernels read, of one training step or of the last two. Nothing else outlives a step.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Elements of one parameter that this rank's optimizer updates. They alone are current after a step: where updates are
/// spread under the next forward (overlap.broadcast), the rest of a p shard is a step old until then. Or, without
/// states, elements that another rank updates and of which this one goes on to read an older version: that it will is
/// said by the instruction that receives them, whose attribute `version` is 1.
struct KeptPart {
  std::string parameter;
  std::int64_t begin = 0;  ///< first element within the flattened parameter, or within `block` of it
  StridedBlock block{};
  /// The f32 value under the name `value`, then the optimizer's states: `momentum`, or `m` and `v`. Equally many
  /// elements each, all persistent f32.
  struct State {
    std::string name;
    Operand operand;
  };
  std::vector<State> states;
  /// Of a parameter that is read in the version before, too: that version, in the dtype of the compute.
  std::optional<Operand> previous{};
  std::int64_t num_elements() const {
    return states.empty() ? previous->num_elements : states.front().operand.num_elements;
  }
};

/// As they are behind training step @p last_step: what is updated, in the order of the update, then what others update.
/// A part without elements is left out.
std::vector<KeptPart> kept_parts(const Program& program, std::int64_t last_step);

/// True of a buffer that the update of training step @p step does not write, but another step's does: where versions
/// of parameters change places, it holds an older one then.
bool is_older_version(const Program& program, int buffer, std::int64_t step);

/// A rank's part of the running statistics of a batch norm, which are sums over all ranks: see
/// lower/states/norm_statistics.
struct KeptStatistics {
  std::string weight;              ///< the norm's, a parameter
  int mean = -1;                   ///< persistent f32 buffers, an element a channel
  int variance = -1;               ///< as above
  bool has_first_samples = false;  ///< a value that comes from elsewhere is this rank's part, the others' are 0
};
std::vector<KeptStatistics> kept_statistics(const Program& program);

/// Weights that stay on this rank between steps, in the dtype of the compute.
struct HeldWeight {
  std::string parameter;
  int buffer = -1;
};
std::vector<HeldWeight> held_weights(const Program& program);

}  // namespace strata

#pragma once

/// @file
/// What is simulated: the Programs of all ranks, equal ranks once.

#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Ranks of one class have the same Program up to renaming of ranks, and groups of the same shape; they do the same at
/// the same time. programs[c]->rank is the class's representative.
struct Job {
  std::vector<const Program*> programs;  ///< by class
  std::vector<int> class_of_rank;        ///< by world rank
  int ranks_per_node = 1;
  std::vector<int> leaf_of_node{};  ///< the switch that a node of the job hangs under; empty: unknown
  int num_ranks() const { return static_cast<int>(class_of_rank.size()); }
};

/// Every rank a class of its own. @p programs by rank; they outlive the job.
Job unfolded(const std::vector<Program>& programs, int ranks_per_node);

}  // namespace strata

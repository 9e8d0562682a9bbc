#pragma once

/// @file
/// What one class runs, made ready to be run through quickly: tasks with durations and flat dependency lists, and the
/// rendezvous that its collectives take part in. Its waits are without lag: repetitions that overlap are one list.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/program/repetition.hpp"
#include "sim/job.hpp"

namespace strata::sim {

/// The NICs of a node carry as much each way at once, so that its load is counted by direction: links are numbered over
/// all nodes. A collective loads both.
constexpr int outgoing_link(int node) { return 2 * node; }
constexpr int incoming_link(int node) { return 2 * node + 1; }

/// One collective, or one message, of one step: who meets. Numbered over all classes.
struct Rendezvous {
  int num_needed = 0;      ///< arrivals before it can start: one a class of the group; a message's two ends
  double seconds = 0.0;    ///< with the network to itself
  int nics = 0;            ///< busy on each of `links`, those of its mirror images on the same node included
  std::vector<int> links;  ///< of the representatives' nodes that take part; empty inside a node
  int group_size = 0;
};

struct Task {
  double seconds = 0.0;  ///< kernels
  int rendezvous = -1;   ///< collectives; -1: a kernel
  int num_waits = 0;     ///< tasks that must end first
  int first_dependent = 0;
  int num_dependents = 0;
};

struct TaskGraph {
  std::vector<Task> tasks;      ///< by instruction of the list
  std::vector<int> dependents;  ///< of task t: [first_dependent, first_dependent + num_dependents)
};

struct Compiled {
  std::vector<TaskGraph> graphs;  ///< by class
  std::vector<Rendezvous> rendezvous;
  /// Seconds of kernels and collectives by what their times stand on; index: Basis.
  std::vector<double> seconds_by_basis;
};

/// @param lists by class: the body of its Program, or several repetitions of it.
/// @param issue_in_list_order a collective is posted when the list reaches it, after the kernels before it: what an
/// executor does whose host computes.
Compiled compile(const Job& job, std::span<const InstructionList> lists, const CostModel& costs,
                 bool issue_in_list_order);

}  // namespace strata::sim

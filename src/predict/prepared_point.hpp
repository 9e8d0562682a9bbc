#pragma once

/// @file
/// Experiment → everything that a run, a simulation or a print of the plan starts from.

#include <span>
#include <string>
#include <vector>

#include "config/experiment.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/lower.hpp"

namespace strata::predict {

/// Ranks compute on GPUs, through CUDA.
bool is_on_gpus(const Experiment& experiment);
/// [model], built and verified. @throws UserError.
ModelGraph model_of(const Experiment& experiment);
/// Samples of a step over all ranks; 0: the planner chooses. @throws UserError where train.global_batch_tokens is no
/// whole number of samples.
std::int64_t global_batch_samples(const Experiment& experiment, const ModelGraph& graph);

struct PreparedPoint {
  Experiment experiment;
  ModelGraph graph;
  Cluster cluster;
  Plan plan;
  std::vector<int> leaf_of_node{};  ///< the switch that each node of the job hangs under; empty: a flat network
  bool verifies_programs = true;    ///< see KernelTraits
  bool assigns_addresses = true;    ///< likewise; without them a peak is of what lives at once, wherever it lies

  /// The same where it makes a difference to times: under a spine that is slower than its leaves.
  std::span<const int> leaves_that_matter() const {
    return cluster.spine_oversubscription > 1.0 ? std::span<const int>(leaf_of_node) : std::span<const int>();
  }
};

/// Cluster "this", as far as the operating system tells: without rates and links, which are found by measuring.
/// @throws Unsupported where a GPU is asked for and there is none.
Cluster machine_at_hand(const Experiment& experiment);

/// What experiment.cluster names. @param machine cluster "this" as it was measured; null: as machine_at_hand() has it.
/// @param experiment_file a description's path is relative to it. @throws UserError listing those that there are.
Cluster cluster_of(const Experiment& experiment, const std::string& experiment_file, const Cluster* machine = nullptr);

/// Builds the model, describes the cluster and asks the mode for a plan.
/// @param experiment_file clusters and data are found relative to it.
/// @param machine see cluster_of(). @param num_threads that may plan.
/// @throws UserError; Unsupported, also where a GPU of this machine is asked for and there is none.
PreparedPoint prepare_point(const Experiment& experiment, const std::string& experiment_file,
                            const Cluster* machine = nullptr, int num_threads = 1);

/// What the mode's planner searches, in free MPS; see Planner::linear_program().
/// @throws UserError; Unsupported where it does not search a linear program.
std::string linear_program(const Experiment& experiment, const std::string& experiment_file);

/// As prepare_point() with a plan of the user's own instead of the planner's.
/// @param plan_file for messages.
PreparedPoint prepare_point_with_plan(const Experiment& experiment, const std::string& experiment_file,
                                      const std::string& plan_text, const std::string& plan_file,
                                      const Cluster* machine = nullptr);

/// One of the above: with the plan in @p plan_file, or, where that is empty, the planner's.
/// @throws UserError also where the file cannot be read.
PreparedPoint prepare_point(const Experiment& experiment, const std::string& experiment_file,
                            const std::string& plan_file, const Cluster* machine = nullptr, int num_threads = 1);

/// The kernels of the point's cluster: ours on this machine and on described CPUs, those of CUDA where its GPUs are
/// asked for; another described device's need no scratch and fuse nothing that a description knows of.
KernelTraits kernels_of(const PreparedPoint& point);
/// The Program of one rank, for the kernels of the device it runs on. @throws OutOfMemory if it exceeds the plan's
/// capacity.
Program lower_for_run(const PreparedPoint& point, int rank);
/// What evaluates @p batch samples at a time, over all ranks.
struct LoweredEvaluation {
  ModelGraph graph;  ///< evaluation_graph() of the point's
  std::int64_t batch = 0;
  Program program;
};
/// evaluate.batch, or as many as a micro-batch of the training has, and at least one a rank.
std::int64_t evaluation_batch(const PreparedPoint& point);
/// @param training_bytes of the arena of the training, beside which it stands. @throws OutOfMemory with the numbers.
LoweredEvaluation lower_evaluation_for_run(const PreparedPoint& point, int rank, std::int64_t training_bytes);
/// On the point's cluster, see kernels_of().
LoweredEvaluation lower_evaluation_for_cluster(const PreparedPoint& point, int rank, std::int64_t training_bytes);
/// On the point's cluster, see kernels_of().
Program lower_for_cluster(const PreparedPoint& point, int rank);
/// As lower_for_cluster, whatever the plan's capacity.
Program lower_uncapped(const PreparedPoint& point, int rank);

/// Floating-point operations of one counted sample (token or image), forward and backward, under a named convention.
struct CountedFlops {
  std::string convention;
  double per_sample = 0.0;
};
CountedFlops counted_flops(const Experiment& experiment, const ModelGraph& graph);

}  // namespace strata::predict

#pragma once

/// @file
/// One point of a sweep, run for real on all ranks of the world: checked, initialised, warmed up, measured, recorded.

#include <string>

#include "base/environment.hpp"
#include "comm/world.hpp"
#include "config/sweep.hpp"
#include "exec/cuda_backend.hpp"
#include "predict/evaluation_inputs.hpp"
#include "predict/prepared_point.hpp"
#include "predict/training_inputs.hpp"
#include "predict/training_length.hpp"
#include "results/outcome.hpp"
#include "results/status.hpp"
#include "run/checkpoint.hpp"
#include "run/last_word.hpp"

namespace strata::run {

/// The place of an attempt among those it is compared with in one job; see results-schema/. -1: it has none.
struct HeadToHead {
  std::int64_t number = -1;
  std::int64_t order = -1;
  std::int64_t seed = -1;
};

struct RunOptions {
  std::string results_folder = "results";
  bool print_steps = true;        ///< rank 0 prints a line a second, in the shape people know
  LastWord* last_word = nullptr;  ///< told what to watch
  results::AttemptOrigin origin;  ///< launch and job; the nodes are found
  HeadToHead block;
};

/// What rank 0 knows before the others: equal on all ranks afterwards, but for the GPU's name.
struct RunRequest {
  std::string experiment_file;
  std::string experiment_name;
  Point point;
  predict::PreparedPoint prepared;
  predict::TrainingInputs inputs;
  predict::EvaluationInputs evaluation_inputs;  ///< without a source: nothing is evaluated
  predict::TrainingLength length;
  RestartPoint restart;
  std::string gpu_name;                                      ///< of this rank; on GPUs alone
  cuda::Transport device_transport = cuda::Transport::host;  ///< likewise
  ProductRates peak;                                         ///< of one rank, see MeasuredPeak
  Cluster machine;                                           ///< as it was measured, see machine_costs()
};

/// `<results>/<experiment>/<point>/`: its attempts; its checkpoints stand in a folder of that name below.
std::string point_folder(const RunOptions& options, const RunRequest& request);
std::string checkpoint_folder(const RunOptions& options, const RunRequest& request);

/// Collective over @p world. Failures of the point (out of memory, refused, a peer gone, results that cannot be
/// written) are outcomes, recorded where there is something to record them in, and equal on all ranks that are still
/// there.
results::Outcome run_point(const comm::World& world, const Environment& environment, const RunRequest& request,
                           const RunOptions& options);

}  // namespace strata::run

#pragma once

/// @file
/// Checkpoints of a run, and a run that goes on from one, under any plan of the same model, optimizer and data.
///
/// What is saved are the f32 values that optimizers update, with their states, each element by one rank. The weights
/// that kernels read are made from them again, so no sharding, dtype of the compute or transport is part of a
/// checkpoint. Data, dropout, learning rate and Adam's bias correction are functions of the step.

#include <cstdint>
#include <map>
#include <string>

#include "comm/world.hpp"
#include "exec/executor.hpp"
#include "predict/prepared_point.hpp"
#include "predict/training_length.hpp"
#include "results/checkpoint_file.hpp"

namespace strata::run {

/// Where a run begins: after the last step of a checkpoint, or (empty path) at step 0.
struct RestartPoint {
  std::string path;
  std::int64_t step = 0;
};

/// Key of an option → value as TOML: what must be equal for a run to go on where another stopped. What can differ:
/// everything that says how a step is computed, and the hyperparameters that hold for one step.
std::map<std::string, std::string> training_identity(const Experiment& experiment, std::int64_t global_batch);

/// checkpoint.restart_from as a file, found complete and of this training.
/// @param folder of this point's own checkpoints, for `latest`.
/// @throws UserError: no such checkpoint, another training (both values), nothing left to train.
RestartPoint find_restart_point(const predict::PreparedPoint& point, const predict::TrainingLength& length,
                                const std::string& experiment_file, const std::string& folder);

/// Where an attempt saves. What rank 0 holds counts.
struct CheckpointFolder {
  std::string path;
  std::int64_t keep = 0;  ///< so many at most; 0: all
  int attempt = 0;        ///< unfinished files bear its number
  bool is_own = false;    ///< no other attempt can be at work in it: what is unfinished was left by killed ones
};

/// Collective. Saves what @p program has updated after @p facts.step steps, in @p folder, and removes what it makes
/// superfluous. @return false, on all ranks and with nothing saved or removed, where a value or state is not finite:
/// nobody could go on from there, and what was saved before stays. @throws UserError on all ranks if any of them cannot
/// write.
bool save_checkpoint(const comm::World& world, const Program& program, const ModelGraph& graph,
                     const Executor& executor, const results::CheckpointFacts& facts, const CheckpointFolder& folder);

/// Collective: each rank reads its share of the file. @throws UserError on all ranks, naming what is not as it was
/// written, or not finite: training that goes on from there would not be the training that was saved.
void verify_checkpoint(const comm::World& world, const std::string& path);

/// Weights, master values and optimizer states of this rank, between initialize() and the first step, which is @p step.
/// Not collective. @throws UserError if the file is not a checkpoint of @p graph.
void load_checkpoint(const std::string& path, std::int64_t step, const Program& program, const ModelGraph& graph,
                     Executor& executor);

}  // namespace strata::run

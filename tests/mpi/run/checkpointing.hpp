#pragma once

/// @file
/// What tests of runs that stop and go on share: a folder of their own, and trainings that save or go on.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "mpi/exec/training.hpp"
#include "run/checkpoint.hpp"

namespace strata::run {

class Checkpointing : public testing::Test {
 protected:
  Checkpointing() {
    // Checkpoints are synced, which takes a busy disk a second each: in memory where there is a folder of it.
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = std::filesystem::is_directory(memory);
    std::string pattern =
        ((has_memory ? memory : std::filesystem::temp_directory_path()) / "strata-checkpoint-XXXXXX").string();
    if (world.rank() == 0 && ::mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = world.broadcast(pattern);
  }
  ~Checkpointing() override {
    world.barrier();
    std::error_code ignored;
    if (world.rank() == 0) std::filesystem::remove_all(folder_, ignored);
  }

  int size() const { return world.size(); }
  std::string folder(const std::string& name) const { return folder_ + "/" + name; }

  void save(const Training& training, const Program& program, const Executor& executor, const std::string& where,
            std::int64_t step) const {
    save_checkpoint(world, program, training.graph, executor, {.step = step, .identity = {{"train.seed", "1"}}},
                    {.path = where, .attempt = 1});
  }
  /// @p training, saved after its last step.
  Training saved_to(const std::string& where, Training training) const {
    training.after = [this, where, training](const Program& program, Executor& executor) {
      save(training, program, executor, where, training.steps);
    };
    return training;
  }
  /// @p training, from the checkpoint of @p step on.
  static Training from(const std::string& where, int step, Training training) {
    training.first_step = step;
    training.before = [path = results::checkpoint_path(where, step), step, graph = training.graph](
                          const Program& program, Executor& executor) {
      load_checkpoint(path, step, program, graph, executor);
    };
    return training;
  }

  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

 private:
  std::string folder_;
};

}  // namespace strata::run

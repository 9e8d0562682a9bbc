#pragma once

/// @file
/// A GPT of two blocks on four devices, of which every plan of a kind can be looked at, and what a mode is asked there.

#include <cstdint>
#include <string>
#include <vector>

#include "config/sweep.hpp"
#include "predict/prepared_point.hpp"

namespace strata::predict {

/// As `ddp` has it. @param words override what stands here, as `--set`. @param experiment_file need not be there.
inline PreparedPoint small_gpt_point(const std::vector<std::string>& words, const std::string& experiment_file) {
  constexpr const char* text = R"(name = "small"
cluster = "titan-pcie"
[model]
name = "gpt"
layers = 2
hidden = 512
heads = 8
vocabulary = 1024
sequence_length = 64
[data]
format = "synthetic"
[resources]
ranks_per_node = 4
[train]
global_batch = 16
micro_batches = 4
optimizer = "adamw"
[overlap]
bucket_mib = 1
[strategy]
name = "ddp"
)";
  return prepare_point(expand(read_experiment(text, "e.toml", words), "simulated").points.at(0).experiment,
                       experiment_file);
}

/// What @p mode is asked on @p point, but for its options. @param capacity bytes; 0: no limit.
inline Plan asked_of(const PreparedPoint& point, const char* mode, std::int64_t capacity) {
  Plan base = point.plan;
  base.strategy = mode;
  base.mesh.axes.clear();
  base.operators.clear();
  base.device_capacity_bytes = capacity;
  return base;
}

}  // namespace strata::predict

#pragma once

/// @file
/// The data set of an experiment, as the input source of an executor.

#include <cstdint>
#include <memory>
#include <string>

#include "config/experiment.hpp"
#include "data/order.hpp"
#include "exec/executor.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::predict {

struct TrainingInputs {
  std::unique_ptr<InputSource> source;
  data::Order order;
  std::string description;  ///< provenance, one line
};

/// @param experiment_file paths of data are relative to it. @throws UserError for anything wrong with the files.
TrainingInputs make_training_inputs(const Experiment& experiment, const ModelGraph& graph, std::int64_t global_batch,
                                    const std::string& experiment_file);

}  // namespace strata::predict

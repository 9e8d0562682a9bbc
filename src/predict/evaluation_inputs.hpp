#pragma once

/// @file
/// The samples that what is trained is evaluated on, as the input source of an executor: in the order of the data set,
/// each once, a batch a step.

#include <cstdint>
#include <memory>
#include <string>

#include "config/experiment.hpp"
#include "exec/executor.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::predict {

struct EvaluationInputs {
  /// Behind the last sample its batch is filled up by samples whose targets are ignored_target.
  std::unique_ptr<InputSource> source;
  std::string description;       ///< provenance, one line
  std::int64_t num_samples = 0;  ///< sequences or images
};

/// @param batch samples a step.  @param experiment_file paths of data are relative to it.
/// @throws UserError for anything wrong with the files; evaluation without data.
EvaluationInputs make_evaluation_inputs(const Experiment& experiment, const ModelGraph& graph, std::int64_t batch,
                                        const std::string& experiment_file);

}  // namespace strata::predict

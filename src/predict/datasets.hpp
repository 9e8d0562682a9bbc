#pragma once

/// @file
/// The data sets of an experiment, for the model that reads them.

#include <memory>
#include <string>
#include <vector>

#include "config/experiment.hpp"
#include "data/dataset.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::predict {

/// Tokens or images: what the model reads.
const Tensor& input_tensor(const ModelGraph& graph);

/// Paths of an experiment, found. @param paths as written.
std::vector<std::string> paths_beside(const std::string& experiment_file, const std::vector<std::string>& paths);

/// @param paths as they are found.  @throws UserError for anything wrong with the files.
std::unique_ptr<data::TokenDataset> token_dataset(const DataSection& section, const ModelGraph& graph,
                                                  std::vector<std::string> paths);
std::unique_ptr<data::ImageDataset> image_dataset(const DataSection& section, const ModelGraph& graph,
                                                  std::vector<std::string> paths);

}  // namespace strata::predict

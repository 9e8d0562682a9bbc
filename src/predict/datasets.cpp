#include "predict/datasets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace strata::predict {
namespace {

std::int64_t num_classes(const ModelGraph& graph) {
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::cross_entropy) return op.attributes.integer("classes");
  }
  throw InternalError("model " + graph.name + " has no loss");
}

}  // namespace

const Tensor& input_tensor(const ModelGraph& graph) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::tokens || tensor.role == TensorRole::image) return tensor;
  }
  throw InternalError("model " + graph.name + " has no input");
}

std::vector<std::string> paths_beside(const std::string& experiment_file, const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  found.reserve(paths.size());
  for (const std::string& path : paths) found.push_back(path_beside(experiment_file, path));
  return found;
}

std::unique_ptr<data::TokenDataset> token_dataset(const DataSection& section, const ModelGraph& graph,
                                                  std::vector<std::string> paths) {
  return data::make_token_dataset({.format = data::parse_format(section.format),
                                   .paths = std::move(paths),
                                   .sequence_length = input_tensor(graph).elements_per_sample(),
                                   .vocabulary = num_classes(graph),
                                   .end_of_text = section.end_of_text,
                                   .seed = static_cast<std::uint64_t>(section.seed),
                                   .num_samples = section.num_samples});
}

std::unique_ptr<data::ImageDataset> image_dataset(const DataSection& section, const ModelGraph& graph,
                                                  std::vector<std::string> paths) {
  const Tensor& input = input_tensor(graph);
  const bool is_vector = input.shape.size() == 1;
  STRATA_INVARIANT(is_vector || (input.shape.size() == 3 && input.shape[2] == data::ImageDataset::num_channels &&
                                 input.shape[0] == input.shape[1]),
                   fmt::format("model {} reads images that are not square with {} channels", graph.name,
                               data::ImageDataset::num_channels));
  return data::make_image_dataset({.format = data::parse_format(section.format),
                                   .paths = std::move(paths),
                                   .image_size = input.shape[0],
                                   .vector_values = is_vector ? input.shape[0] : 0,
                                   .num_classes = num_classes(graph),
                                   .seed = static_cast<std::uint64_t>(section.seed),
                                   .num_samples = section.num_samples,
                                   .shorter_side = section.resize,
                                   .mean = section.mean,
                                   .deviation = section.deviation});
}

}  // namespace strata::predict

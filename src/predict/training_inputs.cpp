#include "predict/training_inputs.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/options.hpp"
#include "data/batch.hpp"
#include "data/dataset.hpp"
#include "data/order.hpp"
#include "predict/datasets.hpp"

namespace strata::predict {
namespace {

class TokenInputs final : public InputSource {
 public:
  TokenInputs(std::unique_ptr<data::TokenDataset> dataset, data::Order order)
      : dataset_(std::move(dataset)), order_(order) {}
  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t /*num_samples*/,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    data::load_tokens(*dataset_, order_, step, first_sample, tokens, targets);
  }
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {
    throw InternalError("a data set of tokens has no images");
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t /*num_samples*/,
                    std::span<std::int32_t> targets) override {
    data::load_tokens(*dataset_, order_, step, first_sample, {}, targets);
  }

 private:
  std::unique_ptr<data::TokenDataset> dataset_;
  data::Order order_;
};

class ImageInputs final : public InputSource {
 public:
  ImageInputs(std::unique_ptr<data::ImageDataset> dataset, data::Order order, data::Augmentation augmentation)
      : dataset_(std::move(dataset)), order_(order), augmentation_(augmentation) {}
  void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                   std::span<std::int32_t>) override {
    throw InternalError("a data set of images has no tokens");
  }
  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t /*num_samples*/, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    data::load_images(*dataset_, order_, step, first_sample, pixels, labels, augmentation_);
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t /*num_samples*/,
                    std::span<std::int32_t> labels) override {
    data::load_images(*dataset_, order_, step, first_sample, {}, labels);
  }

 private:
  std::unique_ptr<data::ImageDataset> dataset_;
  data::Order order_;
  data::Augmentation augmentation_;
};

/// @throws UserError where tokens should be treated as images.
void refuse_keys_of_images(const Experiment& experiment, const ModelGraph& graph) {
  for (const std::string_view key : {"data.augment", "data.resize", "data.mean", "data.deviation"}) {
    const std::string value = toml_text(value_of(experiment, key).value());
    if (value == toml_text(value_of(Experiment{}, key).value())) continue;
    throw UserError(fmt::format("{}: {}: {} is of images, but model {} reads tokens", experiment.where(key), key, value,
                                graph.name));
  }
}

}  // namespace

TrainingInputs make_training_inputs(const Experiment& experiment, const ModelGraph& graph, std::int64_t global_batch,
                                    const std::string& experiment_file) {
  const DataSection& section = experiment.data;
  const auto order = [&](std::int64_t num_samples) {
    return data::Order{.num_samples = num_samples,
                       .global_batch = global_batch,
                       .seed = static_cast<std::uint64_t>(section.seed),
                       .shuffle = section.shuffle};
  };
  std::vector<std::string> paths = paths_beside(experiment_file, section.paths);
  TrainingInputs result;
  if (input_tensor(graph).role == TensorRole::tokens) {
    refuse_keys_of_images(experiment, graph);
    auto dataset = token_dataset(section, graph, std::move(paths));
    result.description = data::to_string(dataset->describe());
    result.order = order(dataset->num_samples());
    result.source = std::make_unique<TokenInputs>(std::move(dataset), result.order);
    return result;
  }
  auto dataset = image_dataset(section, graph, std::move(paths));
  result.description = data::to_string(dataset->describe());
  result.order = order(dataset->num_samples());
  result.source = std::make_unique<ImageInputs>(std::move(dataset), result.order,
                                                data::parse_augmentation(section.augment, result.order.seed));
  return result;
}

}  // namespace strata::predict

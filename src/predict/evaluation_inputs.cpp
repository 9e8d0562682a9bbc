#include "predict/evaluation_inputs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "data/dataset.hpp"
#include "exec/kernel_dims.hpp"
#include "predict/datasets.hpp"

namespace strata::predict {
namespace {

/// Calls @p read with each sample of a part of a batch, and where in the part it stands; -1: there is none.
struct Batches {
  std::int64_t num_samples = 0;
  std::int64_t batch = 0;
  std::int64_t first = 0;  ///< of the data set's
  template <typename Read>
  void for_samples(std::int64_t step, std::int64_t first_of_part, std::int64_t count, const Read& read) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t sample = step * batch + first_of_part + i;
      read(sample < num_samples ? first + sample : -1, i);
    }
  }
};

template <typename T>
std::span<T> part(std::span<T> all, std::int64_t index, std::int64_t count) {
  if (all.empty()) return {};
  const std::size_t size = all.size() / static_cast<std::size_t>(count);
  return all.subspan(static_cast<std::size_t>(index) * size, size);
}

class EvaluationTokens final : public InputSource {
 public:
  EvaluationTokens(std::unique_ptr<data::TokenDataset> dataset, const Batches& batches)
      : dataset_(std::move(dataset)), batches_(batches) {}
  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    batches_.for_samples(step, first_sample, num_samples, [&](std::int64_t sample, std::int64_t i) {
      const std::span<std::int32_t> input = part(tokens, i, num_samples), target = part(targets, i, num_samples);
      if (sample >= 0) return dataset_->tokens(sample, input, target);
      std::ranges::fill(input, 0);
      std::ranges::fill(target, ignored_target);
    });
  }
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {
    throw InternalError("a data set of tokens has no images");
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> targets) override {
    load_tokens(step, first_sample, num_samples, {}, targets);
  }

 private:
  std::unique_ptr<data::TokenDataset> dataset_;
  Batches batches_;
};

class EvaluationImages final : public InputSource {
 public:
  EvaluationImages(std::unique_ptr<data::ImageDataset> dataset, const Batches& batches)
      : dataset_(std::move(dataset)), batches_(batches) {}
  void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                   std::span<std::int32_t>) override {
    throw InternalError("a data set of images has no tokens");
  }
  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    batches_.for_samples(step, first_sample, num_samples, [&](std::int64_t sample, std::int64_t i) {
      const std::span<float> image = part(pixels, i, num_samples);
      std::int32_t label = ignored_target;
      if (sample >= 0) {
        dataset_->image(sample, image, label);
      } else {
        std::ranges::fill(image, 0.0F);
      }
      if (!labels.empty()) labels[static_cast<std::size_t>(i)] = label;
    });
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> labels) override {
    load_images(step, first_sample, num_samples, {}, labels);
  }

 private:
  std::unique_ptr<data::ImageDataset> dataset_;
  Batches batches_;
};

void check_that_there_are_data(const Experiment& experiment) {
  const bool is_synthetic = experiment.data.format == "synthetic";
  const EvaluateSection& section = experiment.evaluate;
  if (is_synthetic && section.num_samples == 0) {
    throw UserError(fmt::format("{}: evaluate.num_samples: 0, but synthetic data have no end; say how many",
                                experiment.where("evaluate.num_samples")));
  }
  if (is_synthetic && !section.paths.empty()) {
    throw UserError(fmt::format("{}: evaluate.paths: {} of them, but data.format is synthetic, which reads no files",
                                experiment.where("evaluate.paths"), section.paths.size()));
  }
  if (!is_synthetic && section.paths.empty()) {
    throw UserError(fmt::format("{}: evaluate.every: {}, but evaluate.paths names no files: evaluation without data",
                                experiment.where("evaluate.every"), section.every));
  }
}

}  // namespace

EvaluationInputs make_evaluation_inputs(const Experiment& experiment, const ModelGraph& graph, std::int64_t batch,
                                        const std::string& experiment_file) {
  check_that_there_are_data(experiment);
  const EvaluateSection& section = experiment.evaluate;
  DataSection data = experiment.data;
  // The seed of synthetic data is what there is to be learnt: others of the same are those behind the epoch.
  const std::int64_t first = data.format == "synthetic" ? data.num_samples : 0;
  data.num_samples += section.num_samples;
  std::vector<std::string> paths = paths_beside(experiment_file, section.paths);
  EvaluationInputs result;
  const auto batches_of = [&](std::int64_t num_samples) {
    const std::int64_t left = num_samples - first;
    result.num_samples = section.num_samples > 0 ? std::min(left, section.num_samples) : left;
    return Batches{result.num_samples, batch, first};
  };
  if (input_tensor(graph).role == TensorRole::tokens) {
    auto dataset = token_dataset(data, graph, std::move(paths));
    result.description = data::to_string(dataset->describe());
    const Batches batches = batches_of(dataset->num_samples());
    result.source = std::make_unique<EvaluationTokens>(std::move(dataset), batches);
    return result;
  }
  auto dataset = image_dataset(data, graph, std::move(paths));
  result.description = data::to_string(dataset->describe());
  const Batches batches = batches_of(dataset->num_samples());
  result.source = std::make_unique<EvaluationImages>(std::move(dataset), batches);
  return result;
}

}  // namespace strata::predict

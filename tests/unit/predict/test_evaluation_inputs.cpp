/// @file
/// Which samples are evaluated: each of the data set once, others than those of training, and none behind the last.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/dataset.hpp"
#include "exec/kernel_dims.hpp"
#include "models/model.hpp"
#include "predict/evaluation_inputs.hpp"

namespace strata::predict::test_evaluation_inputs {
namespace {

constexpr std::int64_t batch = 4;
constexpr std::int64_t num_trained = 30;

Experiment synthetic(std::int64_t num_samples) {
  Experiment experiment;
  experiment.data.format = "synthetic";
  experiment.data.num_samples = num_trained;
  experiment.evaluate.every = 1;
  experiment.evaluate.num_samples = num_samples;
  return experiment;
}

TEST(EvaluationInputs, AreTheImagesBehindThoseOfTrainingAndNoneBehindTheLast) {
  const ModelGraph graph = build_model({.name = "resnet-nano"});
  const EvaluationInputs inputs = make_evaluation_inputs(synthetic(11), graph, batch, "experiment.toml");
  EXPECT_EQ(inputs.num_samples, 11);
  const std::int64_t size = graph.tensors.front().shape.front();
  const auto all = data::make_image_dataset({.format = data::Format::synthetic,
                                             .image_size = size,
                                             .num_classes = 10,
                                             .seed = 1,
                                             .num_samples = num_trained + 11});
  const auto values = static_cast<std::size_t>(all->values_per_sample());
  std::int64_t counted = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    for (const std::int64_t first : {0, 2}) {  // as two ranks read it
      std::vector<float> pixels(2 * values, 7.0F), expected(values);
      std::vector<std::int32_t> labels(2), labels_alone(2);
      inputs.source->load_images(step, first, 2, pixels, labels);
      inputs.source->load_targets(step, first, 2, labels_alone);
      EXPECT_EQ(labels, labels_alone);
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::int64_t sample = batch * step + first + i;
        const auto at = pixels.begin() + i * static_cast<std::int64_t>(values);
        std::int32_t label = ignored_target;
        if (sample < 11) {
          all->image(num_trained + sample, expected, label);
          ++counted;
        } else {
          expected.assign(values, 0.0F);
        }
        EXPECT_EQ(labels[static_cast<std::size_t>(i)], label) << sample;
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), at)) << sample;
      }
    }
  }
  EXPECT_EQ(counted, 11);
}

TEST(EvaluationInputs, TokensBehindTheLastSampleTakeNoPart) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const EvaluationInputs inputs = make_evaluation_inputs(synthetic(3), graph, batch, "experiment.toml");
  const auto sequence = static_cast<std::size_t>(graph.tensors.front().elements_per_sample());
  std::vector<std::int32_t> tokens(4 * sequence, 5), targets(4 * sequence);
  inputs.source->load_tokens(0, 0, 4, tokens, targets);
  for (std::size_t i = 0; i < 4 * sequence; ++i) {
    EXPECT_EQ(targets[i] == ignored_target, i >= 3 * sequence) << i;
    EXPECT_TRUE(tokens[i] >= 0 && (i < 3 * sequence || tokens[i] == 0)) << i;
  }
}

std::string refusal(const Experiment& experiment) {
  try {
    make_evaluation_inputs(experiment, build_model({.name = "resnet-nano"}), batch, "experiment.toml");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(EvaluationInputs, EvaluationWithoutDataIsRefused) {
  EXPECT_THAT(refusal(synthetic(0)), testing::HasSubstr("evaluate.num_samples: 0, but synthetic data have no end"));
  Experiment files = synthetic(5);
  files.data.format = "cifar10";
  files.evaluate.every = 25;
  EXPECT_THAT(refusal(files), testing::HasSubstr("evaluate.every: 25, but evaluate.paths names no files"));
  Experiment both = synthetic(5);
  both.evaluate.paths = {"test.bin"};
  EXPECT_THAT(refusal(both), testing::HasSubstr("evaluate.paths: 1 of them, but data.format is synthetic"));
}

}  // namespace
}  // namespace strata::predict::test_evaluation_inputs

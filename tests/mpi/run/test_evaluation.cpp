/// @file
/// Evaluation under every kind of mode: the running statistics of batch norms, and what is evaluated with them, are
/// those of one rank that has trained the same micro-batches; a checkpoint brings both to another mode.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "mpi/exec/networks.hpp"
#include "mpi/run/checkpointing.hpp"
#include "mpi/run/evaluated.hpp"
#include "run/running_statistics.hpp"

namespace strata::run::test_evaluation {
namespace {

constexpr int samples_of_micro_batch = 3;

class Evaluating : public Checkpointing {
 protected:
  struct Found {
    RunningStatisticsOfModel statistics;
    results::EvaluationRow row;
  };

  /// @p micro_batches a rank, on @p replicas.
  static Training resnet(int micro_batches, int replicas) {
    Training training = real({"resnet", {.name = "resnet-nano"}}, samples_of_micro_batch * micro_batches * replicas);
    training.plan.schedule.micro_batches = micro_batches;
    training.learning_rate = 0.005;
    training.steps = 3;
    return training;
  }

  /// @p mode on all ranks, or on every rank alone, of which the first one's statistics count.
  Found found(Training training, const std::string& mode, int num_ranks) {
    Found result;
    training.after = [&, before = training.after](const Program& program, Executor& executor) {
      if (before) before(program, executor);
      if (num_ranks == 1 && world.rank() > 0) {
        for (const KeptStatistics& kept : kept_statistics(program)) {
          const std::vector<float> none(executor.read(kept.mean).size(), 0.0F);
          executor.write(kept.mean, 0, none);
          executor.write(kept.variance, 0, none);
        }
      }
      result.statistics = running_statistics(world, training.graph, program, executor);
      result.row = evaluate(world, training, program, executor);
    };
    train(training, mode, num_ranks, world, engine);
    return result;
  }

  static void expect_near(const Found& ours, const Found& reference, const std::string& what) {
    ASSERT_EQ(ours.statistics.size(), reference.statistics.size()) << what;
    for (const auto& [norm, expected] : reference.statistics) {
      EXPECT_LE(relative_difference(ours.statistics.at(norm).mean, expected.mean), 1e-4) << what << " " << norm;
      EXPECT_LE(relative_difference(ours.statistics.at(norm).variance, expected.variance), 1e-4) << what << " " << norm;
    }
    EXPECT_NEAR(ours.row.loss, reference.row.loss, 1e-4 * reference.row.loss) << what;
    EXPECT_EQ(ours.row.top_1, reference.row.top_1) << what;
    EXPECT_EQ(ours.row.top_5, reference.row.top_5) << what;
    EXPECT_EQ(ours.row.num_samples, num_evaluated) << what;
  }
};

TEST_F(Evaluating, ReplicasKeepWhatOneRankKeeps) {
  const Found reference = found(resnet(2 * size(), 1), "single", 1);
  EXPECT_GT(reference.row.loss, 0.0);
  EXPECT_GE(reference.row.top_5, reference.row.top_1);
  for (const auto& [norm, statistics] : reference.statistics) {
    EXPECT_NE(statistics.mean, std::vector<float>(statistics.mean.size(), 0.0F)) << norm;
    EXPECT_NE(statistics.variance, std::vector<float>(statistics.variance.size(), 1.0F)) << norm;
  }
  for (const char* mode : {"ddp", "zero1", "zero3"}) {
    expect_near(found(resnet(2, size()), mode, size()), reference, mode);
  }
  for (const char* mode : {"1f1b", "gpipe", "interleaved"}) {
    expect_near(found(resnet(2 * size(), 1), mode, size()), reference, mode);
  }
}

/// Each rank has its share of every parameter, of means and variances too.
TEST_F(Evaluating, IsGivenWhatTrainingHasUnderItsName) {
  Training training = resnet(1, size());
  RunningStatisticsOfModel statistics;
  GivenValues given;
  training.after = [&](const Program& program, Executor& executor) {
    statistics = running_statistics(world, training.graph, program, executor);
    evaluate(world, training, program, executor, &given);
  };
  const Trained trained = train(training, "ddp", size(), world, engine);
  std::map<std::string, std::vector<float>> whole;
  for (const auto& [name, mine] : given) {
    std::vector<float>& values = whole[name];
    for (const std::string& theirs : world.all_gather({reinterpret_cast<const char*>(mine.data()), 4 * mine.size()})) {
      const std::size_t at = values.size();
      values.resize(at + theirs.size() / 4);
      std::memcpy(values.data() + at, theirs.data(), theirs.size());
    }
  }
  for (const auto& [name, values] : trained.parameters) EXPECT_EQ(whole.at(name), values) << name;
  for (const auto& [weight, norm] : statistics) {
    const std::string of = weight.substr(0, weight.rfind('.'));
    EXPECT_EQ(whole.at(of + ".running_mean"), norm.mean) << of;
    EXPECT_EQ(whole.at(of + ".running_variance"), norm.variance) << of;
  }
}

TEST_F(Evaluating, CyclicModesKeepWhatOneRankKeeps) {
  const int n = size();
  const auto cyclic = [&](const std::string& implementation) {
    Training training = resnet(n, 1);
    training.options["implementation"] = implementation;
    return training;
  };
  const Found reference = found(cyclic("single"), "cdp-v2", 1);
  for (const char* implementation : {"multi", "pipeline", "zero"}) {
    expect_near(found(cyclic(implementation), "cdp-v2", n), reference, implementation);
  }
}

/// Stage j of N is on N - j ranks, which take micro-batches by turns: two stages are on three ranks.
TEST_F(Evaluating, ReplicasOfAPyramidKeepWhatOneRankKeeps) {
  if (size() != 3) return;
  Training training = resnet(2, 1);
  training.options["implementation"] = std::string("single");
  const Found reference = found(training, "cdp-v2", 1);
  training.options["implementation"] = std::string("model");
  expect_near(found(training, "cdp-v2", size()), reference, "model");
}

TEST_F(Evaluating, ACheckpointBringsThemToAnotherMode) {
  Training training = resnet(2, size());
  const Found unbroken = found(training, "zero1", size());
  Training first = training;
  first.steps = 2;
  train(saved_to(folder("c"), first), "ddp", size(), world, engine);
  expect_near(found(from(folder("c"), 2, training), "zero3", size()), unbroken, "ddp, then zero3");
}

TEST_F(Evaluating, ARankWithoutSamplesKeepsNothing) {
  Training uneven = resnet(1, 1);
  uneven.plan.global_batch = 2 * (size() - 1);  // two each, none for the last
  const Found reference = [&] {
    Training single = uneven;
    single.plan.schedule.micro_batches = size() - 1;
    return found(single, "single", 1);
  }();
  expect_near(found(uneven, "ddp", size()), reference, "ddp");
}

}  // namespace
}  // namespace strata::run::test_evaluation

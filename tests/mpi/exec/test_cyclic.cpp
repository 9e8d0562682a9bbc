/// @file
/// Cyclic data parallelism trains what its rule says, evaluated without any of strata; on one rank, on a rank a stage,
/// on a rank a micro-batch and where parameters walk between these, for every rule that their orders allow, bit for bit
/// where numbers are exact.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mpi/exec/cyclic_training.hpp"
#include "mpi/exec/staged_networks.hpp"
#include "partition/replica_ring.hpp"

namespace strata::test_cyclic {
namespace {

/// Every table that is nowhere fresher than the freshest.
std::vector<FreshTable> tables_within(const FreshTable& most) {
  std::vector<FreshTable> tables = {most};
  for (std::size_t i = 0; i < most.size(); ++i) {
    for (std::size_t j = 0; j < most[i].size(); ++j) {
      if (most[i][j] == '0') continue;
      for (std::size_t t = tables.size(); t-- > 0;) {
        tables.push_back(tables[t]);
        tables.back()[i][j] = '0';
      }
    }
  }
  return tables;
}

/// The freshest, the stalest, and of the others a number that takes seconds.
std::vector<FreshTable> some_of(std::vector<FreshTable> tables) {
  constexpr std::size_t enough = 24;
  if (tables.size() <= enough) return tables;
  std::vector<FreshTable> some = {tables.front(), tables.back()};
  for (std::size_t t = 1; some.size() < enough; ++t) some.push_back(tables[t * tables.size() / enough + t % 3]);
  return some;
}

/// As many stages as ranks; of micro-batches as many, or the next power of two: one over their number is exact.
TEST_F(Cyclic, ExactInputsGiveTheRulesValues) {
  const int stages = world.size();
  const int micro_batches = stages == 3 ? 4 : stages;
  const int num_layers = stages + 1;
  const ModelGraph graph = even_mlp(num_layers);
  constexpr int samples = 2;
  std::map<test::DenseNetwork, std::string> seen;
  for (const FreshTable& fresh : some_of(tables_within(freshest(micro_batches, stages)))) {
    const std::string table = joined(fresh);
    const test::CyclicTraining rule = chain_rule(graph, num_layers, {.count = stages}, fresh, samples, 4);
    const test::CyclicResult expected = evaluate_cyclic(rule);
    ASSERT_TRUE(expected.is_exact) << table;
    const auto [same, is_new] = seen.try_emplace(expected.network, table);
    EXPECT_TRUE(is_new) << "the images do not tell " << table << " and " << same->second << " apart";
    const Training training = training_of(rule, graph);
    for (const Ranks ranks : {Ranks::one, Ranks::one_a_stage}) {
      const Plan plan = cyclic_plan(micro_batches, stages, table, ranks, samples);
      expect_equal(train_plan(training, plan, world, engine), expected,
                   fmt::format("{} on {}", table, to_string(ranks)));
    }
  }
}

/// Stages that begin with an activation: it reads what the stage before it has made with its own parameters.
TEST_F(Cyclic, CutInsideBlocksExactInputsGiveTheRulesValues) {
  const int n = world.size() == 3 ? 4 : world.size();
  const int num_layers = world.size() + 1;
  const ModelGraph graph = even_mlp(num_layers);
  Stages stages{.count = world.size(), .cut_at = "operator"};
  for (int b = 1; b < stages.count; ++b) stages.begins.push_back(fmt::format("block[{}].relu", b));
  constexpr int samples = 2;
  for (const FreshTable& fresh : {never_fresh(n, stages.count), freshest(n, stages.count)}) {
    const test::CyclicTraining rule = chain_rule(graph, num_layers, stages, fresh, samples, 4);
    test::CyclicTraining at_blocks = rule;
    at_blocks.stage_of_layer = stages_of_layers(graph, {.count = stages.count});
    const test::CyclicResult expected = evaluate_cyclic(rule);
    ASSERT_TRUE(expected.is_exact);
    const bool is_stale = fresh == never_fresh(n, stages.count);
    EXPECT_EQ(evaluate_cyclic(at_blocks).network == expected.network, is_stale) << "the images tell the cuts apart";
    for (const Ranks ranks : {Ranks::one, Ranks::one_a_stage, Ranks::one_a_micro_batch}) {
      if (ranks == Ranks::one_a_micro_batch && n != world.size()) continue;
      Plan plan = cyclic_plan(n, stages.count, joined(fresh), ranks, samples);
      plan.stages = stages;
      expect_equal(train_plan(training_of(rule, graph), plan, world, engine), expected,
                   fmt::format("{} on {}", joined(fresh), to_string(ranks)));
    }
  }
}

bool is_within(const FreshTable& table, const FreshTable& most) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (std::size_t j = 0; j < table[i].size(); ++j) {
      if (table[i][j] > most[i][j]) return false;
    }
  }
  return true;
}

/// Values without the rounding of a mean: two networks that differ by more are not equal.
test::DenseNetwork without_rounding(test::DenseNetwork network) {
  const auto round = [](test::Values& values) {
    for (double& value : values) value = std::round(value * 1024.0) / 1024.0;
  };
  for (test::DenseLayer& layer : network) {
    round(layer.weight);
    round(layer.bias);
  }
  return network;
}

/// What rank @p rank has when the last of rule.steps steps T is over: of θ_T all but what it has no room for beside
/// θ_{T-1}; of that what it would read in step T.
struct HeldBehindTheLastStep {
  Trained newest, older;
  HeldBehindTheLastStep(const Program& program, const Executor& executor, const test::CyclicTraining& rule,
                        const Plan& plan, int rank) {
    const ReplicaRing ring = replica_ring(plan.schedule, plan.stages.count, rank);
    const int num_layers = static_cast<int>(rule.stage_of_layer.size());
    for (int l = 0; l < num_layers; ++l) {
      const auto& stage = ring.stages[static_cast<std::size_t>(rule.stage_of_layer[static_cast<std::size_t>(l)])];
      const auto read = [&](int step, Trained& held) {
        const int version = step % stage.num_versions;
        for (const char* suffix : {".weight", ".bias"}) {
          const std::string name = name_of_layer(l, num_layers) + suffix;
          const std::string holder = name + (version == 0 ? "" : fmt::format("/version[{}]", version));
          const auto buffer = std::ranges::find(program.buffers, holder, &Buffer::name);
          if (buffer == program.buffers.end()) continue;  // a layer without biases
          const std::span<const float> values = executor.read(static_cast<int>(buffer - program.buffers.begin()));
          held.parameters[name].assign(values.begin(), values.end());
        }
      };
      const bool has_no_room = stage.arrival == Arrival::behind_backward;
      if (!has_no_room) read(rule.steps, newest);
      if (has_no_room || stage.num_versions == 2) read(rule.steps - 1, older);
    }
  }
};

/// A rank a micro-batch waits for what it reads: whatever the table says, all of its own step's parameters (which is
/// ordinary data parallelism) too; with more and with fewer stages than micro-batches. Bit for bit, but within rounding
/// on three ranks, whose mean divides by three. When the last step is over, what it has updated is on every rank that
/// has room for it.
TEST_F(Cyclic, OnRanksOfAMicroBatchAnyTableGivesItsValues) {
  const int n = world.size();
  const double tolerance = n == 3 ? 1e-5 : 0.0;
  constexpr int samples = 2;
  std::size_t num_newest = 0, num_older = 0;
  for (const int stages : {n, 3, n - 1}) {
    const int num_layers = std::max(n, 3) + 1;
    const ModelGraph graph = even_mlp(num_layers);
    std::vector<FreshTable> tables = {
        never_fresh(n, stages), freshest(n, stages),
        FreshTable(static_cast<std::size_t>(n), std::string(static_cast<std::size_t>(stages), '1'))};
    for (std::uint64_t t = 0; t < 8; ++t) {
      FreshTable table = never_fresh(n, stages);
      std::uint64_t cell = 0;
      for (std::string& row : table) {
        for (char& digit : row) digit = RandomStream{.seed = 5, .stream = t}.uniform(cell++) < 0.5 ? '0' : '1';
      }
      tables.push_back(table);
    }
    std::map<test::DenseNetwork, FreshTable> seen;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const test::CyclicTraining rule = chain_rule(graph, num_layers, {.count = stages}, tables[t], samples, 3);
      const test::CyclicResult expected = evaluate_cyclic(rule);
      ASSERT_EQ(expected.is_exact, tolerance == 0.0) << joined(tables[t]);
      const auto same = seen.try_emplace(without_rounding(expected.network), tables[t]).first;
      EXPECT_EQ(same->second, tables[t]) << "the images do not tell the two apart";
      Plan plan = cyclic_plan(n, stages, joined(tables[t]), Ranks::one_a_micro_batch, samples);
      plan.schedule.sum = t % 2 == 0 ? "inside" : "after";
      plan.schedule.spread = t % 4 < 2 ? "relay" : "direct";
      plan.schedule.spare_stages = static_cast<int>(t % 3);
      plan.overlap.bucket_bytes = t % 5 == 0 ? 100 : 1 << 20;
      const bool first_users_update = stages == n && t % 2 == 1;
      if (first_users_update) plan.schedule.updater = "first_user";
      // Ranks that keep a distance read what is there in time, and are a whole number of passes apart.
      const bool is_in_time = is_within(tables[t], freshest(n, stages)) && 2 * stages % n == 0;
      if (is_in_time) plan.schedule.shift = t == 0 ? "paced" : "begun";
      Training training = training_of(rule, graph);
      std::optional<HeldBehindTheLastStep> held;
      training.after = [&](const Program& program, const Executor& executor) {
        held.emplace(program, executor, rule, plan, world.rank());
      };
      const Trained ours = train_plan(training, plan, world, engine);
      expect_equal(ours, expected, joined(tables[t]), tolerance);
      expect_equal(held->newest, expected, joined(tables[t]) + ", held", tolerance);
      test::CyclicTraining until_before = rule;
      --until_before.steps;
      expect_equal(held->older, evaluate_cyclic(until_before), joined(tables[t]) + ", held of before", tolerance);
      num_newest += held->newest.parameters.size();
      num_older += held->older.parameters.size();
      EXPECT_EQ(ours.parameters.empty(), !first_users_update && world.rank() + 1 < n) << "the last rank updates";
    }
  }
  EXPECT_TRUE(num_newest > 0 && num_older > 0);
}

/// Where parameters walk, every table that is nowhere fresher than the freshest gives its values; bit for bit, but
/// within rounding on three ranks, whose mean divides by three. Each rank has the parameters of its own stage in the
/// end.
TEST_F(Cyclic, WalkingParametersGiveTheRulesValues) {
  const int n = world.size();
  const double tolerance = n == 3 ? 1e-5 : 0.0;
  constexpr int samples = 2;
  const int num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  const std::vector<int> stage_of_layer = stages_of_layers(graph, {.count = n});
  std::map<test::DenseNetwork, FreshTable> seen;
  int number = 0;
  for (const FreshTable& fresh : some_of(tables_within(freshest(n, n)))) {
    const test::CyclicTraining rule = chain_rule(graph, num_layers, {.count = n}, fresh, samples, 4);
    const test::CyclicResult expected = evaluate_cyclic(rule);
    ASSERT_EQ(expected.is_exact, tolerance == 0.0) << joined(fresh);
    const auto same = seen.try_emplace(without_rounding(expected.network), fresh).first;
    EXPECT_EQ(same->second, fresh) << "the images do not tell the two apart";
    Plan plan = cyclic_plan(n, n, joined(fresh), Ranks::walking, samples);
    plan.schedule.sum = number % 2 == 0 ? "inside" : "after";
    plan.overlap.bucket_bytes = number % 3 == 0 ? 100 : 1 << 20;
    const Trained ours = train_plan(training_of(rule, graph), plan, world, engine);
    expect_equal(ours, expected, joined(fresh), tolerance);
    const BytesByCollective predicted = bytes_by_collective(ours.program);
    for (int kind = 0; kind < num_collectives; ++kind) {
      EXPECT_EQ(ours.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind]) << joined(fresh);
    }
    for (int l = 0; l < num_layers; ++l) {
      const bool is_own = stage_of_layer[static_cast<std::size_t>(l)] == n - 1 - world.rank();
      EXPECT_EQ(ours.parameters.contains(name_of_layer(l, num_layers) + ".weight"), is_own) << l;
    }
    ++number;
  }
}

// ---- real models ---------------------------------------------------------------------------------------------------

/// All add up as one rank does, whatever the optimizer, the dtype, dropout and recomputation, in the backward's kernels
/// or behind these.
TEST_F(Cyclic, EqualBitsOnRealModelsHoweverManyRanks) {
  const int n = world.size();
  for (const RealModel& model : staged_models()) {
    if (std::string_view(model.name) == "gpt") continue;  // its tied head is refused
    for (const char* fresh : {"none", "v2"}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Training training = with(build_model(model.options), 2 * n, n);
        training.steps = 3;
        training.rate = [](int step) { return 0.05 / (step + 1.0); };
        const auto trained = [&](Ranks ranks) {
          Plan plan = cyclic_plan(n, n, fresh, ranks, 2);
          const bool adds_behind = (std::string_view(fresh) == "v2") == (dtype == DType::bf16);
          plan.schedule.sum = adds_behind ? "after" : "inside";
          if (ranks == Ranks::one_a_micro_batch) {
            plan.schedule.shift = std::string_view(fresh) == "v2" ? "paced" : "free";
            plan.schedule.updater = adds_behind ? "first_user" : "last";
          }
          plan.dtypes = {dtype, dtype};
          plan.recompute = dtype == DType::f32 ? Recompute::block : Recompute::none;
          plan.optimizer.kind = dtype == DType::bf16 ? "adamw" : "sgd";
          plan.optimizer.momentum = dtype == DType::bf16 ? 0.0 : 0.5;
          plan.optimizer.weight_decay = 0.01;
          return train_plan(training, plan, world, engine);
        };
        const Trained reference = trained(Ranks::one);
        for (const Ranks ranks : {Ranks::one_a_stage, Ranks::one_a_micro_batch, Ranks::walking}) {
          const Trained ours = trained(ranks);
          for (const auto& [name, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(name))
                << name << ", " << model.name << ", " << fresh << ", " << to_string(ranks);
            EXPECT_NE(values, reference.initial.at(name)) << name << " must have moved";
          }
          if (ranks == Ranks::one_a_stage) {
            EXPECT_EQ(ours.losses, reference.losses) << model.name << ", " << fresh;
            continue;
          }
          for (std::size_t step = 0; step < ours.losses.size(); ++step) {  // added up in another order
            EXPECT_NEAR(ours.losses[step], reference.losses[step], 1e-6 * reference.losses[step]) << model.name;
          }
        }
      }
    }
  }
}

/// One micro-batch of one stage: v2 is what `single` does.
TEST_F(Cyclic, OfOneMicroBatchAndStageIsOrdinaryTraining) {
  for (const RealModel& model : staged_models()) {
    Training training = with(build_model(model.options), 4, 1);
    training.steps = 3;
    training.plan.optimizer.momentum = 0.5;
    const Trained reference = train(training, "single", 1, world, engine);
    const Trained ours = train_plan(training, cyclic_plan(1, 1, "v2", Ranks::one, 4), world, engine);
    for (const auto& [name, values] : ours.parameters) EXPECT_EQ(values, reference.parameters.at(name)) << name;
    EXPECT_EQ(ours.losses, reference.losses) << model.name;
  }
}

/// Twenty steps against the evaluation in double precision, and, at a constant rate, against what the authors' code
/// does; three micro-batches too. Gradient descent with momentum and weight decay, rates that change, Adam.
TEST_F(Cyclic, RealInputsGiveTheRulesValues) {
  const int n = world.size();
  const int num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  const FreshTable all_fresh(static_cast<std::size_t>(n), std::string(static_cast<std::size_t>(n), '1'));
  for (const FreshTable& fresh : {never_fresh(n, n), freshest(n, n), all_fresh}) {
    for (const char* optimizer : {"constant rate", "falling rate", "adamw"}) {
      const std::string what = fmt::format("{}, {}", joined(fresh), optimizer);
      test::CyclicTraining rule = real_training(graph, num_layers, fresh);
      rule.weight_decay = 0.0625;
      if (std::string_view(optimizer) == "falling rate") {
        rule.rate = [](int step) { return static_cast<double>(0.5F / static_cast<float>(1 + step / 5)); };
      }
      if (std::string_view(optimizer) == "adamw") {
        rule.adam = test::Adam{.epsilon = 1e-3};  // no step is as long as the rate whatever its gradient
        rule.rate = [](int) { return 0.0078125; };
      }
      const test::CyclicResult expected = evaluate_cyclic(rule);
      if (std::string_view(optimizer) == "constant rate") {
        EXPECT_LE(relative_difference_of(imitate_cyclic(rule), expected.network), 1e-12) << what;
        if (fresh != all_fresh) {
          test::CyclicTraining other = rule;
          other.fresh = all_fresh;
          EXPECT_GT(relative_difference_of(evaluate_cyclic(other).network, expected.network), 1e-3) << what;
        }
      }
      const Training training = training_of(rule, graph);
      for (const Ranks ranks : {Ranks::one, Ranks::one_a_stage, Ranks::one_a_micro_batch, Ranks::walking}) {
        if (fresh == all_fresh && ranks != Ranks::one_a_micro_batch && n > 1)
          continue;  // its order would wait for itself
        Plan plan = cyclic_plan(n, n, joined(fresh), ranks, static_cast<int>(rule.samples));
        plan.optimizer.weight_decay = rule.weight_decay;
        if (rule.adam) plan.optimizer = {.kind = "adamw", .epsilon = rule.adam->epsilon, .weight_decay = 0.0625};
        const Trained ours = train_plan(training, plan, world, engine);
        for (int l = 0; l < num_layers; ++l) {
          const auto held = ours.parameters.find(name_of_layer(l, num_layers) + ".weight");
          if (held == ours.parameters.end()) continue;
          const test::Values& weight = expected.network[static_cast<std::size_t>(l)].weight;
          const std::vector<float> rounded(weight.begin(), weight.end());
          EXPECT_LE(relative_difference(held->second, rounded), 1e-5)
              << held->first << ", " << what << " on " << to_string(ranks);
        }
        for (std::size_t step = 0; step < expected.losses.size(); ++step) {
          EXPECT_NEAR(ours.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_cyclic

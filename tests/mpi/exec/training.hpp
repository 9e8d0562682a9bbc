#pragma once

/// @file
/// Trains a plan for a few steps and returns what it learned, so that two plans can be compared.

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "ir/program/repetition.hpp"
#include "ir/program/training_state.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "support/lowered_account.hpp"

namespace strata {

/// Tokens and pixels by global index: any split of the batch sees the same samples.
class CountedInputs final : public InputSource {
 public:
  CountedInputs(std::int64_t vocabulary, std::int64_t classes) : vocabulary_(vocabulary), classes_(classes) {}

  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    const auto sequence = static_cast<std::int64_t>(tokens.size()) / num_samples;
    for (std::int64_t s = 0; s < num_samples; ++s) {
      for (std::int64_t i = 0; i < sequence; ++i) {
        const auto at = static_cast<std::size_t>(s * sequence + i);
        tokens[at] = token(step, (first_sample + s) * sequence + i);
        if (!targets.empty()) targets[at] = token(step, (first_sample + s) * sequence + i + 1);
      }
    }
  }

  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    const auto size = static_cast<std::int64_t>(pixels.size()) / num_samples;
    for (std::int64_t s = 0; s < num_samples; ++s) {
      if (image) {
        const auto pixels_of_sample =
            pixels.subspan(static_cast<std::size_t>(s * size), static_cast<std::size_t>(size));
        std::int32_t label_of_sample = image(step, first_sample + s, pixels_of_sample);
        if (!labels.empty()) labels[static_cast<std::size_t>(s)] = label_of_sample;
        continue;
      }
      for (std::int64_t i = 0; i < size; ++i) {
        pixels[static_cast<std::size_t>(s * size + i)] = pixel(step, (first_sample + s) * size + i);
      }
      if (!labels.empty()) labels[static_cast<std::size_t>(s)] = label(step, first_sample + s);
    }
  }

  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> targets) override {
    const auto sequence = static_cast<std::int64_t>(targets.size()) / num_samples;
    for (std::int64_t s = 0; s < num_samples; ++s) {
      for (std::int64_t i = 0; i < sequence; ++i) {
        targets[static_cast<std::size_t>(s * sequence + i)] = image ? image(step, first_sample + s, {})
                                                              : images
                                                                  ? label(step, first_sample + s)
                                                                  : token(step, (first_sample + s) * sequence + i + 1);
      }
    }
  }

  /// -1, 0 or 1, so that sums of few products are exact.
  bool dyadic = false;
  /// What load_targets() gives: labels of images, not the next tokens.
  bool images = false;
  /// Other images than counted ones: writes the pixels, if there are any, and returns the label.
  std::function<std::int32_t(std::int64_t step, std::int64_t sample, std::span<float> pixels)> image;

 private:
  static float uniform(std::int64_t stream, std::int64_t index) {
    return RandomStream{.seed = 77, .stream = static_cast<std::uint64_t>(stream)}.uniform(
        static_cast<std::uint64_t>(index));
  }
  std::int32_t label(std::int64_t step, std::int64_t sample) const {
    return static_cast<std::int32_t>(uniform(2 * step + 1, sample) * static_cast<float>(classes_));
  }
  std::int32_t token(std::int64_t step, std::int64_t index) const {
    return static_cast<std::int32_t>(uniform(2 * step, index) * static_cast<float>(vocabulary_));
  }
  float pixel(std::int64_t step, std::int64_t index) const {
    const float u = uniform(2 * step, index);
    return dyadic ? std::floor(3.0F * u) - 1.0F : 2.0F * u - 1.0F;
  }
  std::int64_t vocabulary_;
  std::int64_t classes_;
};

struct Trained {
  Program program;
  std::map<std::string, std::vector<float>> parameters;  ///< master weights by name
  std::map<std::string, std::vector<float>> initial;
  std::vector<float> losses;
  std::vector<float> norms;  ///< what this rank knows, or, where it does not, the others
  StepMeasurement last_step;
  std::int64_t touched_bytes = 0;  ///< of the arena, workspaces whole
};

/// What a plan is trained on: the CPU, unless said otherwise.
struct Backend {
  KernelTraits kernels = cpu::workspaces_of({});
  std::function<std::unique_ptr<Executor>(const Program&, comm::Engine&, InputSource&, std::uint64_t seed)> executor =
      [](const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed) {
        return std::make_unique<cpu::CpuExecutor>(program, engine, inputs, seed);
      };
};

struct Training {
  ModelGraph graph;
  Plan plan;                                     ///< as an experiment asks; train() sets the mesh
  int nodes = 1;                                 ///< over which several ranks are spread evenly
  Cluster cluster{};                             ///< what planners may ask about the machine
  std::map<std::string, OptionValue> options{};  ///< of the mode, where they differ from its defaults
  /// Of plans of a model on a machine, where the mode compares them; null: their memory alone is known.
  std::function<std::unique_ptr<Evaluate>(const ModelGraph&, const Cluster&)> evaluation{};
  int steps = 1;
  double learning_rate = 0.25;
  std::int64_t vocabulary = 256;
  std::int64_t classes = 10;
  bool dyadic = false;
  decltype(CountedInputs::image) image;  ///< null: counted ones
  std::function<double(int step)> rate;  ///< null: the learning rate
  /// Rewrites initial values, of which a rank may hold a part (NaN elsewhere); null: the model's own.
  std::function<void(const std::string& parameter, std::span<float> values)> initial;
  int first_step = 0;  ///< steps are [first_step, steps)
  /// Before the first step and after the last one: another run's states in, ours out. May be null.
  std::function<void(const Program&, Executor&)> before, after;
  Backend backend{};
  OrderGenerator order{};  ///< of a step; empty: the plan's schedule
};

/// Completes the parameters of which this rank holds a shard (NaN elsewhere) by what others hold.
inline void join_shards(const ModelGraph& graph, std::map<std::string, std::vector<float>>& parameters,
                        const comm::World& world) {
  // One message for all: '1' and the values, or '0', by parameter.
  std::string mine;
  for (const Parameter& parameter : graph.parameters) {
    const auto held = parameters.find(parameter.name);
    mine += held == parameters.end() ? '0' : '1';
    if (held == parameters.end()) continue;
    mine.append(reinterpret_cast<const char*>(held->second.data()), held->second.size() * sizeof(float));
  }
  for (const std::string& theirs : world.all_gather(mine)) {
    std::size_t at = 0;
    for (const Parameter& parameter : graph.parameters) {
      if (theirs[at++] == '0') continue;
      std::vector<float> other(static_cast<std::size_t>(parameter.num_elements()));
      std::memcpy(other.data(), theirs.data() + at, other.size() * sizeof(float));
      at += other.size() * sizeof(float);
      const auto held = parameters.find(parameter.name);
      if (held == parameters.end()) continue;
      for (std::size_t i = 0; i < other.size(); ++i) {
        if (std::isnan(held->second[i])) held->second[i] = other[i];
      }
    }
  }
}

/// The weights that kernels read where those are not the values that are updated, by training.initial.
inline void set_weights(const Training& training, const Program& program, Executor& executor) {
  for (const HeldWeight& weight : held_weights(program)) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(weight.buffer)];
    if (!buffer.parameter.empty()) continue;  // the values themselves
    const auto parameter = std::ranges::find(training.graph.parameters, weight.parameter, &Parameter::name);
    std::vector<float> whole(static_cast<std::size_t>(parameter->num_elements()));
    training.initial(weight.parameter, whole);
    buffer.block.for_runs(
        buffer.parameter_begin, buffer.num_elements, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
          executor.write(weight.buffer, at,
                         std::span(whole).subspan(static_cast<std::size_t>(in_whole), static_cast<std::size_t>(count)));
        });
  }
}

/// @p plan on all ranks of the world, or, where it is for one, on every rank alone.
inline Trained train_plan(const Training& training, const Plan& plan, const comm::World& world, comm::Engine& engine) {
  const int num_ranks = plan.mesh.num_ranks();
  Trained result;
  omp_set_num_threads(1);
  const int rank = num_ranks == 1 ? 0 : world.rank();
  const KernelTraits& kernels = training.backend.kernels;
  result.program = training.order ? lower(plan, training.graph, rank, kernels, training.order)
                                  : lower(plan, training.graph, rank, kernels);
  CountedInputs inputs(training.vocabulary, training.classes);
  inputs.dyadic = training.dyadic;
  inputs.image = training.image;
  inputs.images = std::ranges::any_of(training.graph.tensors,
                                      [](const Tensor& tensor) { return tensor.role == TensorRole::image; });
  const std::unique_ptr<Executor> made = training.backend.executor(result.program, engine, inputs, plan.seed);
  Executor& executor = *made;
  executor.initialize();
  const auto collect = [&](std::map<std::string, std::vector<float>>& into) {
    for (std::size_t b = 0; b < result.program.buffers.size(); ++b) {
      const Buffer& buffer = result.program.buffers[b];
      if (buffer.parameter.empty()) continue;
      const bool is_end = &into == &result.parameters;
      if (is_end && is_older_version(result.program, static_cast<int>(b), training.steps - 1)) continue;
      const std::span<const float> values = executor.read(static_cast<int>(b));
      const auto parameter = std::ranges::find(training.graph.parameters, buffer.parameter, &Parameter::name);
      std::vector<float>& whole = into[buffer.parameter];
      if (whole.empty()) {
        whole.assign(static_cast<std::size_t>(parameter->num_elements()), std::numeric_limits<float>::quiet_NaN());
      }
      const auto for_runs = [&](const auto& body) {
        buffer.block.for_runs(buffer.parameter_begin, buffer.num_elements, body);
      };
      for_runs([&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
        std::copy_n(values.begin() + at, count, whole.begin() + in_whole);
      });
      if (training.initial && &into == &result.initial) {
        training.initial(buffer.parameter, whole);
        for_runs([&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
          executor.write(static_cast<int>(b), at,
                         std::span(whole).subspan(static_cast<std::size_t>(in_whole), static_cast<std::size_t>(count)));
        });
      }
    }
    if (num_ranks > 1) join_shards(training.graph, into, world);
  };
  collect(result.initial);
  if (training.initial) set_weights(training, result.program, executor);
  if (training.before) training.before(result.program, executor);
  const auto complete = [&](int step) {
    result.last_step = executor.complete(step);
    const float mine = result.last_step.gradient_norm;
    const bool knows_norm = !std::isnan(mine);
    double sums[3] = {result.last_step.loss, knows_norm ? mine : 0.0, knows_norm ? 1.0 : 0.0};
    if (num_ranks > 1) world.all_reduce_sum(sums);
    result.losses.push_back(static_cast<float>(sums[0]));
    result.norms.push_back(knows_norm ? mine : static_cast<float>(sums[1] / sums[2]));
  };
  // Steps overlap as far as they may: ranks complete one together, when the last of them has all of it.
  double late[1] = {static_cast<double>(depth(result.program))};
  if (num_ranks > 1) world.all_reduce_max(late);
  int completed = training.first_step;
  for (int step = training.first_step; step < training.steps;) {
    std::vector<StepContext> steps;
    do {
      steps.push_back({.step = step, .learning_rate = training.rate ? training.rate(step) : training.learning_rate});
      ++step;
    } while (step < training.steps && step % result.program.steps_per_body != 0);
    executor.submit(steps);
    while (completed < step && repetition_of(result.program, completed) + static_cast<int>(late[0]) <=
                                   repetition_of(result.program, step - 1)) {
      complete(completed++);
    }
  }
  executor.drain();
  while (completed < training.steps) complete(completed++);
  if (training.after) training.after(result.program, executor);
  collect(result.parameters);
  // What a Program says that it needs is what its run touches, to the byte, whatever the processor's instructions are:
  // as soon as every instruction of its body has run.
  const TouchedMemory touched = executor.touched_memory();
  if (training.steps - training.first_step >= result.program.steps_per_body + depth(result.program)) {
    EXPECT_EQ(touched.total_bytes, result.program.arena_bytes) << plan.strategy;
    EXPECT_EQ(touched.own_bytes, own_arena_bytes(result.program)) << plan.strategy;
  }
  result.touched_bytes = touched.total_bytes;
  return result;
}

/// @p mode on @p num_ranks ranks of the world: all of them, or 1, where every rank trains the whole batch alone.
inline Plan plan_of(const Training& training, const std::string& mode, int num_ranks) {
  Plan base = training.plan;
  base.strategy = mode;
  base.mesh.nodes = num_ranks > 1 ? training.nodes : 1;
  base.mesh.ranks_per_node = num_ranks / base.mesh.nodes;
  const LoweredAccount account(training.graph);
  PlanRequest request{.graph = training.graph, .cluster = training.cluster, .base = base, .options = {}};
  if (base.device_capacity_bytes > 0) request.evaluate = &account;
  const std::unique_ptr<Evaluate> own =
      training.evaluation ? training.evaluation(training.graph, training.cluster) : nullptr;
  if (own != nullptr) request.evaluate = own.get();
  for (const OptionRow& row : find_planner(mode).options()) {
    const std::string name(row.name);
    const auto given = training.options.find(name);
    request.options[name] = given == training.options.end() ? row.default_value : given->second;
  }
  return find_planner(mode).plan(request);
}

inline Trained train(const Training& training, const std::string& mode, int num_ranks, const comm::World& world,
                     comm::Engine& engine) {
  return train_plan(training, plan_of(training, mode, num_ranks), world, engine);
}

inline double norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

/// ‖a - b‖₂ / ‖b‖₂.
inline double relative_difference(std::span<const float> a, std::span<const float> b) {
  std::vector<float> difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  const double size = norm(b);
  return size == 0.0 ? norm(difference) : norm(difference) / size;
}

}  // namespace strata

#include "run/checkpoint.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "base/toml_value.hpp"
#include "comm/collective_error.hpp"
#include "config/options.hpp"
#include "ir/program/training_state.hpp"
#include "run/assigned_states.hpp"
#include "run/running_statistics.hpp"

namespace strata::run {
namespace {

using results::CheckpointFile;
using results::CheckpointKey;
using results::CheckpointParameter;

std::vector<CheckpointParameter> parameters_of(const ModelGraph& graph) {
  std::vector<CheckpointParameter> list;
  for (const Parameter& parameter : graph.parameters) list.push_back({parameter.name, parameter.num_elements()});
  return list;
}

/// Names of the states that a rank updates; equal for all parts that have any.
std::vector<std::string> state_names(const std::vector<KeptPart>& parts) {
  std::vector<std::string> names;
  if (parts.empty()) return names;  // what is updated stands first
  for (const KeptPart::State& state : parts.front().states) names.push_back(state.name);
  return names;
}

/// Parameters that are kept in two versions: on this rank, and on all of them.
std::vector<CheckpointKey> previous_of(const std::vector<KeptPart>& parts) {
  std::vector<CheckpointKey> keys;
  for (const KeptPart& part : parts) {
    CheckpointKey key(part.parameter, previous_state);
    if (part.previous && std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}
std::vector<CheckpointKey> previous_of_all(const comm::World& world, const std::vector<KeptPart>& parts) {
  std::string mine;
  for (const auto& [parameter, _] : previous_of(parts)) mine += parameter + "\n";
  std::set<CheckpointKey> keys;
  for (const std::string& list : world.all_gather(mine)) {
    std::istringstream stream(list);
    for (std::string parameter; std::getline(stream, parameter);) keys.emplace(parameter, previous_state);
  }
  return {keys.begin(), keys.end()};
}

/// Of batch norms.
std::vector<CheckpointKey> statistics_of(const ModelGraph& graph) {
  std::vector<CheckpointKey> keys;
  for (const Operator& op : graph.operators) {
    if (op.kind != OperatorKind::batch_norm) continue;
    const std::string& weight = graph.parameters[static_cast<std::size_t>(op.parameters.front())].name;
    for (const char* state : {running_mean_state, running_variance_state}) keys.emplace_back(weight, state);
  }
  return keys;
}

/// Read at once, to be verified: 4 MiB.
constexpr std::int64_t max_elements_in_memory = 1 << 20;

bool are_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

/// Collective. Equal on all ranks.
std::map<CheckpointKey, std::uint64_t> sum_over_ranks(const comm::World& world,
                                                      const std::map<CheckpointKey, std::uint64_t>& of_this_rank) {
  std::string text;
  for (const auto& [key, sum] : of_this_rank) text += fmt::format("{} {} {}\n", key.first, key.second, sum);
  std::map<CheckpointKey, std::uint64_t> sums;
  for (const std::string& list : world.all_gather(text)) {
    std::istringstream stream(list);
    CheckpointKey key;
    for (std::uint64_t sum = 0; stream >> key.first >> key.second >> sum;) sums[key] += sum;
  }
  return sums;
}

/// Of checkpoint.restart_from; empty: `latest` of a point that has none yet.
std::string restart_file(const Experiment& experiment, const std::string& experiment_file, const std::string& folder) {
  const std::string& asked = experiment.checkpoint.restart_from;
  const bool latest = asked == "latest";
  const std::string path = latest ? folder : path_beside(experiment_file, asked);
  if (!latest && !std::filesystem::is_directory(path)) return path;
  const std::vector<std::int64_t> steps = results::checkpoints_in(path);
  if (!steps.empty()) return results::checkpoint_path(path, steps.back());
  if (latest) return "";
  throw UserError(fmt::format("{}: checkpoint.restart_from: no step_<number>.h5 in folder {}",
                              experiment.where("checkpoint.restart_from"), path));
}

}  // namespace

std::map<std::string, std::string> training_identity(const Experiment& experiment, std::int64_t global_batch) {
  std::map<std::string, std::string> identity;
  for (const Option& option : all_options()) {
    constexpr std::string_view keys[] = {"train.optimizer", "train.seed",     "data.num_samples",
                                         "data.shuffle",    "data.augment",   "data.resize",
                                         "data.mean",       "data.deviation", "data.seed"};
    if (!option.key.starts_with("model.") && std::ranges::find(keys, option.key) == std::end(keys)) continue;
    const auto value = value_of(experiment, option.key);
    identity[std::string(option.key)] = value ? toml_text(*value) : "unset";
  }
  identity["train.global_batch"] = fmt::format("{}", global_batch);
  return identity;
}

RestartPoint find_restart_point(const predict::PreparedPoint& point, const predict::TrainingLength& length,
                                const std::string& experiment_file, const std::string& folder) {
  const Experiment& experiment = point.experiment;
  if (experiment.checkpoint.restart_from.empty()) return {};
  const std::string path = restart_file(experiment, experiment_file, folder);
  if (path.empty()) return {};
  const results::CheckpointFacts facts = results::read_checkpoint_facts(path);
  const std::map<std::string, std::string> ours = training_identity(experiment, point.plan.global_batch);
  for (const auto& [key, theirs] : facts.identity) {
    const auto here = ours.find(key);
    const std::string value = here == ours.end() ? "no option" : here->second;
    if (value == theirs) continue;
    throw UserError(
        fmt::format("{}: {}: {}, but {} was trained with {}", experiment.where(key), key, value, path, theirs));
  }
  if (length.num_steps > 0 && facts.step >= length.num_steps) {
    const bool in_epochs = experiment.train.epochs > 0;
    const std::string_view key = in_epochs ? "train.epochs" : "train.steps";
    throw UserError(fmt::format("{}: {}: {}, but {} has trained {} steps already", experiment.where(key), key,
                                in_epochs
                                    ? fmt::format("{}, which are {} steps", experiment.train.epochs, length.num_steps)
                                    : fmt::format("{}", experiment.train.steps),
                                path, facts.step));
  }
  return {path, facts.step};
}

bool save_checkpoint(const comm::World& world, const Program& program, const ModelGraph& graph,
                     const Executor& executor, const results::CheckpointFacts& facts, const CheckpointFolder& folder) {
  const std::vector<KeptPart> parts = kept_parts(program, facts.step - 1);
  const std::vector<AssignedState> saved = assign_states(world, graph, parts);
  const std::vector<CheckpointParameter> parameters = parameters_of(graph);
  const std::string unfinished =
      world.broadcast(results::unfinished_checkpoint_path(folder.path, facts.step, folder.attempt));
  // Rank 0 may update nothing: greedy sharding leaves a rank without a tensor where there are few.
  std::vector<std::string> states = state_names(parts);
  for (const std::string& names : world.all_gather(fmt::format("{}", fmt::join(states, " ")))) {
    if (!states.empty()) break;
    std::istringstream stream(names);
    for (std::string name; stream >> name;) states.push_back(name);
  }
  std::vector<CheckpointKey> more = previous_of_all(world, parts);
  std::ranges::copy(statistics_of(graph), std::back_inserter(more));
  const RunningStatisticsOfModel statistics = running_statistics(world, graph, program, executor);
  comm::on_rank_0(world, [&] { results::create_checkpoint(unfinished, facts, parameters, states, more); });
  std::map<CheckpointKey, std::uint64_t> checksums;
  double num_not_finite[1] = {0.0};
  comm::on_all_ranks(world, [&] {
    const bool saves_statistics = world.rank() == 0 && !statistics.empty();
    if (saved.empty() && !saves_statistics) return;
    const CheckpointFile file(unfinished, parameters, states, true, more);
    for (const AssignedState& each : saved) {
      const KeptPart& part = *each.part;
      const KeptPart::State& state = each.state;
      const std::span<const float> values = executor.read(state.operand.buffer);
      const auto write = [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
        const std::span<const float> run =
            values.subspan(static_cast<std::size_t>(state.operand.begin + at), static_cast<std::size_t>(count));
        file.write(part.parameter, state.name, in_whole, run);
        num_not_finite[0] += are_finite(run) ? 0.0 : 1.0;
        checksums[{part.parameter, state.name}] += results::checksum_of_elements(in_whole, run);
      };
      part.block.for_runs(part.begin, state.operand.num_elements, write);
    }
    if (saves_statistics) {
      for (const RunningStatisticsOfModel::value_type& each : statistics) {
        const std::string& weight = each.first;
        const auto write = [&](const char* state, const std::vector<float>& values) {
          file.write(weight, state, 0, values);
          num_not_finite[0] += are_finite(values) ? 0.0 : 1.0;
          checksums[{weight, state}] += results::checksum_of_elements(0, values);
        };
        write(running_mean_state, each.second.mean);
        write(running_variance_state, each.second.variance);
      }
    }
    file.sync();
  });
  world.all_reduce_sum(num_not_finite);
  if (num_not_finite[0] > 0.0) {
    if (world.rank() == 0) std::filesystem::remove(unfinished);
    return false;
  }
  checksums = sum_over_ranks(world, checksums);
  comm::on_rank_0(world, [&] {
    results::write_checksums(unfinished, checksums);
    results::rename_file(unfinished, results::checkpoint_path(folder.path, facts.step));
    results::remove_old_checkpoints(folder.path, folder.keep, facts.step);
    if (folder.is_own) results::remove_unfinished_checkpoints(folder.path);
  });
  return true;
}

void verify_checkpoint(const comm::World& world, const std::string& path) {
  std::map<CheckpointKey, std::uint64_t> sums;
  std::map<CheckpointKey, CheckpointFile::Place> places;
  comm::on_all_ranks(world, [&] {
    const CheckpointFile file(path);
    places = file.places();
    std::vector<float> values;
    for (const auto& [key, place] : places) {
      const std::int64_t end = place.num_elements * (world.rank() + 1) / world.size();
      std::uint64_t sum = 0;
      for (std::int64_t begin = place.num_elements * world.rank() / world.size(); begin < end;) {
        values.resize(static_cast<std::size_t>(std::min(end - begin, max_elements_in_memory)));
        file.read(key.first, key.second, begin, values);
        if (!are_finite(values)) {
          throw UserError(fmt::format("checkpoint {}: {} of {} is not finite: the training that saved it had diverged",
                                      path, key.second, key.first));
        }
        sum += results::checksum_of_elements(begin, values);
        begin += std::ssize(values);
      }
      sums[key] = sum;
    }
  });
  sums = sum_over_ranks(world, sums);
  comm::on_rank_0(world, [&] {
    for (const auto& [key, place] : places) {
      if (!place.checksum || *place.checksum == sums[key]) continue;
      throw UserError(
          fmt::format("checkpoint {}: {} of {} is not what was written (checksum {:016x} instead of {:016x})", path,
                      key.second, key.first, sums[key], *place.checksum));
    }
  });
}

void load_checkpoint(const std::string& path, std::int64_t step, const Program& program, const ModelGraph& graph,
                     Executor& executor) {
  const std::vector<KeptPart> parts = kept_parts(program, step - 1);
  std::vector<std::string> states = state_names(parts);
  if (states.empty()) states = {"value"};
  std::vector<CheckpointKey> more = previous_of(parts);
  std::ranges::copy(statistics_of(graph), std::back_inserter(more));
  const CheckpointFile file(path, parameters_of(graph), states, false, more);
  std::vector<float> values;
  const auto load = [&](const std::string& parameter, const std::string& state, std::int64_t begin,
                        const StridedBlock& block, const Operand& into) {
    values.resize(static_cast<std::size_t>(into.num_elements));
    block.for_runs(begin, into.num_elements, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
      file.read(parameter, state, in_whole,
                std::span(values).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
    });
    executor.write(into.buffer, into.begin, values);
  };
  for (const auto& [parameter, buffer] : held_weights(program)) {
    const Buffer& weight = program.buffers[static_cast<std::size_t>(buffer)];
    load(parameter, "value", weight.parameter_begin, weight.block, {buffer, 0, weight.num_elements});
  }
  for (const KeptPart& part : parts) {
    for (const auto& [name, operand] : all_states(part)) load(part.parameter, name, part.begin, part.block, operand);
  }
  put_running_statistics(program, executor, [&](const std::string& weight) {
    const auto channels = static_cast<std::size_t>(file.places().at({weight, running_mean_state}).num_elements);
    NormRunningStatistics norm{std::vector<float>(channels), std::vector<float>(channels)};
    file.read(weight, running_mean_state, 0, norm.mean);
    file.read(weight, running_variance_state, 0, norm.variance);
    return norm;
  });
}

}  // namespace strata::run

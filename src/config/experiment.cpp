/// @file
/// What an experiment says of itself: its canonical keys, its id, its text, and the conditions between its options.

#include "config/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/random.hpp"
#include "config/options.hpp"

namespace strata {
namespace {

/// An option's value as text, "" where it is unset.
std::string text_at(const Experiment& experiment, std::string_view key) {
  const auto value = value_of(experiment, key);
  return value ? toml_text(*value) : "";
}

[[noreturn]] void fail(const Experiment& experiment, std::string_view key, const std::string& message) {
  throw UserError(fmt::format("{}: {}: {}", experiment.where(key), key, message));
}

}  // namespace

std::string Experiment::where(std::string_view key) const {
  const auto found = given_at.find(std::string(key));
  return found == given_at.end() ? "default" : found->second;
}

DType dtype_of_word(std::string_view word) {
  if (word == "fp32") {
    return DType::f32;
  }
  if (word == "bf16") {
    return DType::bf16;
  }
  throw UserError(fmt::format("unknown dtype \"{}\"; accepted: fp32 | bf16", word));
}

std::string path_beside(std::string_view file_name, std::string_view path) {
  return (std::filesystem::path(file_name).parent_path() / path).lexically_normal().string();
}

std::vector<CanonicalKey> canonical_keys(const Experiment& experiment) {
  const Experiment defaults;
  std::vector<CanonicalKey> keys = {{"backend", toml_string(experiment.backend)}};
  for (const Option& option : all_options()) {
    std::string value = text_at(experiment, option.key);
    // How a run is predicted changes nothing of the run.
    const bool concerns = experiment.backend == "simulated" || !option.key.starts_with("simulate.");
    if (option.identifies && concerns && value != text_at(defaults, option.key)) {
      keys.push_back({std::string(option.key), std::move(value)});
    }
  }
  for (const auto& [name, value] : experiment.strategy.options) {
    const std::string key = "strategy." + name;
    keys.push_back({key, text_at(experiment, key)});
  }
  std::sort(keys.begin(), keys.end(), [](const CanonicalKey& a, const CanonicalKey& b) { return a.key < b.key; });
  return keys;
}

std::string point_id(const Experiment& experiment) {
  std::string text;
  for (const CanonicalKey& key : canonical_keys(experiment)) {
    text += fmt::format("{} = {}\n", key.key, key.value);
  }
  // FNV-1a, then the finaliser of MurmurHash3: the upper 48 bits depend on every letter.
  std::uint64_t hash = stream_of(text);
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  hash ^= hash >> 33U;
  return fmt::format("{:012x}", hash >> 16U);
}

std::string to_text(const Experiment& experiment) {
  const Experiment defaults;
  std::string text, section;
  const auto line = [&](std::string_view key) {
    const std::size_t dot = key.find('.');
    const std::string_view its_section = dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
    if (its_section != section) {
      section = its_section;
      text += fmt::format("\n[{}]\n", section);
    }
    text +=
        fmt::format("{} = {}\n", dot == std::string_view::npos ? key : key.substr(dot + 1), text_at(experiment, key));
  };
  for (const Option& option : all_options()) {
    const std::string value = text_at(experiment, option.key);
    const bool given = experiment.given_at.contains(std::string(option.key));
    if (!value.empty() && (given || option.required || value != text_at(defaults, option.key))) {
      line(option.key);
    }
    if (option.key == "strategy.name") {
      for (const auto& [name, held] : experiment.strategy.options) {
        line("strategy." + name);
      }
    }
  }
  return text;
}

namespace {

/// @throws UserError where [cpu] says what has no meaning.
void verify_cpu(const Experiment& experiment) {
  if (experiment.resources.device == "cpu" || experiment.cpu.winograd) return;
  fail(experiment, "cpu.winograd",
       fmt::format("false is of processors, and resources.device is \"{}\"", experiment.resources.device));
}

/// @throws UserError where [cuda] says what has no meaning.
void verify_cuda(const Experiment& experiment) {
  for (const std::string_view key :
       {"cuda.graphs", "cuda.deterministic", "cuda.tf32", "cuda.attention", "cuda.time_products", "cuda.timing"}) {
    if (experiment.resources.device != "cpu" || text_at(experiment, key) == text_at(Experiment{}, key)) continue;
    fail(experiment, key, fmt::format("{} is of GPUs, and resources.device is \"cpu\"", text_at(experiment, key)));
  }
  if (experiment.cuda.time_products == "on" && experiment.cuda.deterministic) {
    fail(experiment, "cuda.time_products",
         "\"on\" may choose other kernels in each run, and cuda.deterministic is true; accepted: \"auto\" | \"off\"");
  }
  if (experiment.cuda.tf32 && experiment.train.dtype != "fp32") {
    fail(experiment, "cuda.tf32",
         fmt::format("true is of fp32 products, and train.dtype is \"{}\"", experiment.train.dtype));
  }
}

/// @throws UserError where images cannot be varied so.
void verify_augmentation(const Experiment& experiment) {
  std::vector<std::string> words = experiment.data.augment;
  std::ranges::sort(words);
  const std::string given = text_at(experiment, "data.augment");
  if (const auto twice = std::ranges::adjacent_find(words); twice != words.end()) {
    fail(experiment, "data.augment", fmt::format("{} has \"{}\" twice", given, *twice));
  }
  if (std::ranges::count(words, "crop") + std::ranges::count(words, "resized_crop") > 1) {
    fail(experiment, "data.augment", fmt::format("{}; accepted: one of \"crop\" and \"resized_crop\"", given));
  }
}

/// @throws UserError where it is not said once how long training is and when the learning rate decays.
void verify_length(const Experiment& experiment) {
  const TrainSection& train = experiment.train;
  if (train.steps > 0 && train.epochs > 0) {
    fail(experiment, "train.epochs",
         fmt::format("{}, but train.steps = {} too; accepted: one of the two", train.epochs, train.steps));
  }
  if (train.schedule == "step" && train.decay_steps == 0 && train.decay_epochs.empty()) {
    fail(experiment, "train.schedule", "\"step\" needs train.decay_steps > 0 or train.decay_epochs");
  }
  if (train.schedule == "cosine" && train.decay_steps == 0 && train.steps == 0 && train.epochs == 0) {
    fail(experiment, "train.schedule",
         "\"cosine\" needs an end: train.decay_steps > 0, train.steps > 0 or train.epochs > 0");
  }
  if (train.decay_epochs.empty()) return;
  const std::string epochs = text_at(experiment, "train.decay_epochs");
  if (train.schedule != "step") {
    fail(experiment, "train.decay_epochs",
         fmt::format("{} is of train.schedule = \"step\", and it is \"{}\"", epochs, train.schedule));
  }
  if (train.decay_steps > 0) {
    fail(experiment, "train.decay_epochs",
         fmt::format("{}, but train.decay_steps = {} too; accepted: one of the two", epochs, train.decay_steps));
  }
  if (!std::ranges::is_sorted(train.decay_epochs, std::ranges::less_equal())) {
    fail(experiment, "train.decay_epochs", fmt::format("{}; accepted: each larger than the one before", epochs));
  }
}

}  // namespace

void verify(const Experiment& experiment) {
  const TrainSection& train = experiment.train;
  const DataSection& data = experiment.data;
  const CommunicationSection& communication = experiment.communication;

  for (const char c : experiment.name) {
    const bool safe =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!safe) {
      fail(experiment, "name",
           fmt::format("\"{}\" names a folder; accepted: letters, digits, - and _", experiment.name));
    }
  }
  for (const std::string_view key : {"name", "model.name", "strategy.name"}) {
    if (text_at(experiment, key) == "\"\"") {
      fail(experiment, key, "empty");
    }
  }
  if (train.global_batch.is_given() == (train.global_batch_tokens > 0)) {
    const std::string_view key = train.global_batch_tokens > 0 ? "train.global_batch_tokens" : "train.global_batch";
    fail(experiment, key,
         fmt::format(
             "exactly one of train.global_batch (samples, {}) and train.global_batch_tokens (tokens, {}) must be > 0",
             text_at(experiment, "train.global_batch"), train.global_batch_tokens));
  }
  if (data.format == "synthetic" && !data.paths.empty()) {
    fail(experiment, "data.paths", "files are given, but data.format is \"synthetic\"; accepted: one of the two");
  }
  if (data.format != "synthetic" && data.paths.empty()) {
    fail(experiment, "data.paths",
         fmt::format("missing: data.format \"{}\" reads files; data.format = \"synthetic\" needs none", data.format));
  }
  if (experiment.measure.min_steps > experiment.measure.max_steps) {
    fail(experiment, "measure.min_steps",
         fmt::format("{} is more than measure.max_steps = {}", experiment.measure.min_steps,
                     experiment.measure.max_steps));
  }
  if (communication.emulated_alpha_us > 0.0 && communication.emulated_gbit_per_s == 0.0) {
    fail(experiment, "communication.emulated_link.alpha_us",
         "an emulated link has a bandwidth too: set communication.emulated_link.gbit_per_s > 0");
  }
  if (communication.emulated_inside_alpha_us > 0.0 && communication.emulated_inside_gbit_per_s == 0.0) {
    fail(experiment, "communication.emulated_link.inside.alpha_us",
         "an emulated link has a bandwidth too: set communication.emulated_link.inside.gbit_per_s > 0");
  }
  if (communication.emulated_inside_gbit_per_s > 0.0 && communication.emulated_gbit_per_s == 0.0) {
    fail(experiment, "communication.emulated_link.inside.gbit_per_s",
         "emulated nodes have an emulated link between them: set communication.emulated_link.gbit_per_s > 0");
  }
  if (communication.device_transport != "auto" && experiment.resources.device == "cpu") {
    fail(experiment, "communication.device_transport",
         fmt::format("\"{}\" is of GPUs, and resources.device is \"cpu\"", communication.device_transport));
  }
  if (communication.device_transport == "nccl" && communication.emulated_gbit_per_s > 0.0) {
    fail(experiment, "communication.device_transport",
         fmt::format("\"nccl\" passes by the emulated link of {} Gbit/s; accepted with it: auto | host",
                     communication.emulated_gbit_per_s));
  }
  verify_cpu(experiment);
  verify_cuda(experiment);
  verify_length(experiment);
  verify_augmentation(experiment);
  for (const std::string_view key : {"simulate.cost", "planner.cost"}) {
    const std::string& cost = key == "simulate.cost" ? experiment.simulate.cost : experiment.planner.cost;
    if (cost != "measured" || !experiment.simulate.profile.empty()) continue;
    fail(experiment, "simulate.profile",
         fmt::format("missing: {} = \"measured\" reads what `strata profile` wrote", key));
  }
  if (train.min_learning_rate > train.learning_rate) {
    fail(experiment, "train.min_learning_rate",
         fmt::format("{} is more than train.learning_rate = {}", train.min_learning_rate, train.learning_rate));
  }
}

}  // namespace strata

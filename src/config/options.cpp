/// @file
/// Every option stands here once, with its key, field, accepted values, unit and help.

#include "config/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "config/accepted.hpp"

namespace strata {
namespace {

// The only macro: a function from an Experiment to one of its fields.
#define FIELD(member) [](Experiment& e) -> OptionField { return &e.member; }

constexpr std::string_view dtypes = "fp32 | bf16";

constexpr Option options[] = {
    {"name", FIELD(name), "", "", "names the results folder: letters, digits, - and _", true},
    {"title", FIELD(title), "", "", "one line for figures and reports", false, false},
    {"cluster", FIELD(cluster), "", "",
     "a name in experiments/clusters, a path ending in .toml, relative to this file, or \"this\": the machine it runs "
     "on"},
    {"expect", FIELD(expect), "oom | refused | diverged", "", "outcomes of a point that do not count as failures",
     false, false},

    {"model.name", FIELD(model.name), "", "", "a preset or a family; `strata list models` prints them", true},
    {"model.layers", FIELD(model.layers), ">= 1", "", "transformer blocks; vgg: 11, 13 or 16; resnet: 18 or 50"},
    {"model.hidden", FIELD(model.hidden), ">= 1", "elements", "width of the residual stream"},
    {"model.heads", FIELD(model.heads), ">= 1", "", "attention heads; they divide hidden"},
    {"model.kv_heads", FIELD(model.kv_heads), ">= 1", "", "key and value heads; they divide heads"},
    {"model.ffn_hidden", FIELD(model.ffn_hidden), ">= 1", "elements", "inner width of the feed-forward part"},
    {"model.vocabulary", FIELD(model.vocabulary), ">= 2", "", "number of different tokens"},
    {"model.sequence_length", FIELD(model.sequence_length), ">= 1", "", "tokens of one sample"},
    {"model.dropout", FIELD(model.dropout), ">= 0 and < 1", "", "probability of dropping an activation"},
    {"model.tied_head", FIELD(model.tied_head), "", "", "the output projection is the embedding table"},
    {"model.image_size", FIELD(model.image_size), ">= 1", "pixels",
     "height and width of an image; resnet below 64: CIFAR form"},
    {"model.patch_size", FIELD(model.patch_size), ">= 1", "pixels",
     "vit: height and width of a token; divides image_size"},
    {"model.num_classes", FIELD(model.num_classes), ">= 2", "", "classes of an image"},
    {"model.widths", FIELD(model.widths), ">= 1", "elements",
     "mlp: inputs, hidden layers, classes; gpt: hidden size of each layer; vgg, resnet: channels of the "
     "five, four stages"},

    {"data.format", FIELD(data.format), "auto | text | raw_u16 | raw_u32 | llmc | cifar10 | image_folder | synthetic",
     "", "auto: by the files' content; synthetic: generated, with a structure that can be learnt"},
    {"data.paths", FIELD(data.paths), "", "",
     "files, relative to this file, read as one; image_folder: one folder, with a folder for each class"},
    {"data.end_of_text", FIELD(data.end_of_text), "", "", "text: token 256 follows the last byte of each file"},
    {"data.num_samples", FIELD(data.num_samples), ">= 1", "", "samples of an epoch of synthetic data"},
    {"data.shuffle", FIELD(data.shuffle), "", "", "visit samples in a random order, the same for any number of ranks"},
    {"data.augment", FIELD(data.augment), "crop | resized_crop | flip", "",
     "images in training: a square from anywhere in the image with 4 black pixels around it; 8 to 100 % of its area, "
     "stretched to the square; mirrored every other time"},
    {"data.resize", FIELD(data.resize), ">= 0 and <= 65536", "pixels",
     "image_folder: images are resized until their shorter side has so many, before the square is taken from the "
     "middle "
     "or by crop; 0: model.image_size"},
    {"data.mean", FIELD(data.mean), ">= 0 and <= 1", "",
     "of red, green and blue, as fractions of white, subtracted from images in files; empty: CIFAR-10's or ImageNet's"},
    {"data.deviation", FIELD(data.deviation), "> 0 and <= 1", "", "likewise, what the difference is divided by"},
    {"data.seed", FIELD(data.seed), ">= 0", "", "of the order, of augmentation and of synthetic data"},

    {"resources.nodes", FIELD(resources.nodes), ">= 1 and <= 1048576", "", "nodes"},
    {"resources.ranks_per_node", FIELD(resources.ranks_per_node), ">= 1 and <= 1024", "", "ranks on a node"},
    {"resources.threads_per_rank", FIELD(resources.threads_per_rank), ">= 1 and <= 1024", "",
     "compute threads of a rank"},
    {"resources.device", FIELD(resources.device), "cpu | cuda", "",
     "what a rank computes on: cuda, the node's GPUs in turn, of those that CUDA_VISIBLE_DEVICES leaves"},
    {"resources.memory_gib", FIELD(resources.memory_gib), ">= 0 and <= 1048576", "GiB",
     "what a rank's Program may take of its device; 0: what the cluster's runtime leaves, of this machine no cap"},
    {"resources.allocated_nodes", FIELD(resources.allocated_nodes), ">= 0", "",
     "which nodes of the cluster the job has, in the launcher's order: what is under one leaf switch; empty: the "
     "first"},

    {"train.global_batch", FIELD(train.global_batch), ">= 0", "",
     "samples of a step over all ranks, or \"planner\": the strategy chooses; exactly one of this and "
     "global_batch_tokens"},
    {"train.global_batch_tokens", FIELD(train.global_batch_tokens), ">= 0", "", "the same, counted in tokens"},
    {"train.micro_batches", FIELD(train.micro_batches), ">= 0 and <= 1048576", "",
     "parts into which a rank cuts its share of a step; 0: one, or with stages of a pipeline what its planner chooses"},
    {"train.optimizer", FIELD(train.optimizer), "sgd | adam | adamw", "", "update rule"},
    {"train.learning_rate", FIELD(train.learning_rate), "> 0", "", "at the end of the warm-up"},
    {"train.momentum", FIELD(train.momentum), ">= 0 and < 1", "", "of sgd"},
    {"train.beta1", FIELD(train.beta1), ">= 0 and < 1", "", "of adam and adamw"},
    {"train.beta2", FIELD(train.beta2), ">= 0 and < 1", "", "of adam and adamw"},
    {"train.epsilon", FIELD(train.epsilon), "> 0", "", "of adam and adamw"},
    {"train.weight_decay", FIELD(train.weight_decay), ">= 0", "", "of matrices and kernels"},
    {"train.clip_norm", FIELD(train.clip_norm), ">= 0", "", "largest global norm of the gradient; 0: no clipping"},
    {"train.schedule", FIELD(train.schedule), "constant | step | cosine", "", "learning rate after the warm-up"},
    {"train.warmup_steps", FIELD(train.warmup_steps), ">= 0", "steps", "the learning rate rises linearly from 0"},
    {"train.decay_steps", FIELD(train.decay_steps), ">= 0", "steps",
     "step: a decay every so many steps; cosine: the minimum is reached so many after the warm-up, 0: at the end of "
     "train.steps or train.epochs"},
    {"train.decay_epochs", FIELD(train.decay_epochs), ">= 1", "epochs",
     "step, instead of train.decay_steps: a decay where each of these epochs begins, counted from 0, in the first step "
     "whose first sample is of it"},
    {"train.decay_factor", FIELD(train.decay_factor), "> 0 and <= 1", "",
     "step: the learning rate is multiplied by this at each decay"},
    {"train.min_learning_rate", FIELD(train.min_learning_rate), ">= 0", "", "where the decay ends"},
    {"train.dtype", FIELD(train.dtype), dtypes, "",
     "activations and the weights that kernels read; master weights are fp32"},
    {"train.gradient_dtype", FIELD(train.gradient_dtype), dtypes, "", "parameter gradients, as stored and as reduced"},
    {"train.recompute", FIELD(train.recompute), "none | block | after_communication | whole_block", "",
     "activations computed again in the backward pass: what it reads of a block, the same but what layouts' "
     "collectives "
     "have brought, or all of it as checkpointing does"},
    {"train.seed", FIELD(train.seed), ">= 0", "", "of initialisation and dropout"},
    {"train.steps", FIELD(train.steps), ">= 0 and <= 1000000000000", "",
     "steps to train; 0: as train.epochs says, or until [measure] has enough"},
    {"train.epochs", FIELD(train.epochs), ">= 0 and <= 1000000", "",
     "instead of train.steps: epochs to train, in as many steps as contain them; 0: as train.steps says"},

    {"strategy.name", FIELD(strategy.name), "", "",
     "a mode; `strata list strategies` prints them and their own options", true},

    {"overlap.bucket_mib", FIELD(overlap.bucket_mib), ">= 0", "MiB",
     "gradients are reduced in buckets of at least this size"},
    {"overlap.spread_mib", FIELD(overlap.spread_mib), ">= 0", "MiB",
     "parameters whose optimizer states are sharded come back together, updated, in messages of at least this size; 0: "
     "each one alone"},
    {"overlap.all_reduce", FIELD(overlap.all_reduce), "backward | none", "", "what hides the reduction of gradients"},
    {"overlap.update", FIELD(overlap.update), "none | backward", "",
     "when parameters are updated: none: behind the last backward; backward: as soon as their gradients are summed, so "
     "that with one micro-batch they need not wait for each other in memory; not with clipping"},
    {"overlap.layout", FIELD(overlap.layout), "none | weight_gradient", "",
     "weight_gradient: where ranks sum the gradient of a product's input, it is made first and summed under the "
     "gradient of the weight; with sum = all_reduce"},
    {"overlap.replica_stream", FIELD(overlap.replica_stream), "shared | own", "",
     "sums over replicas and updated parameters that come back: shared: in turn with gathers and scatters of sharded "
     "parameters; own: beside them, on a stream of their own"},

    {"communication.transport", FIELD(communication.transport), "auto | mpi | shm | two_level", "",
     "auto: shm within a node, mpi between nodes"},
    {"communication.device_transport", FIELD(communication.device_transport), "auto | nccl | host", "",
     "of ranks on GPUs: nccl, which needs a GPU of its own for every rank; host: managed memory and "
     "communication.transport; auto: nccl where every rank has its own and no link is emulated, host otherwise"},
    {"communication.progress", FIELD(communication.progress), "automatic | thread | polling", "",
     "who drives transfers; automatic: a thread where a core is free"},
    {"communication.emulated_link.alpha_us", FIELD(communication.emulated_alpha_us), ">= 0", "us",
     "latency of an emulated link between ranks"},
    {"communication.emulated_link.gbit_per_s", FIELD(communication.emulated_gbit_per_s), ">= 0", "Gbit/s",
     "bandwidth of an emulated link; 0: none"},
    {"communication.emulated_link.inside.alpha_us", FIELD(communication.emulated_inside_alpha_us), ">= 0", "us",
     "latency between the ranks of an emulated node"},
    {"communication.emulated_link.inside.gbit_per_s", FIELD(communication.emulated_inside_gbit_per_s), ">= 0", "Gbit/s",
     "bandwidth between the ranks of an emulated node: all resources.nodes then run on one machine, "
     "resources.ranks_per_node consecutive ranks each, and the emulated link is that between them; 0: nodes are real"},
    {"communication.watchdog_seconds", FIELD(communication.watchdog_seconds), "> 0", "s",
     "an instruction that waits longer ends the job, by name"},

    {"cpu.winograd", FIELD(cpu.winograd), "", "",
     "of ranks on processors: convolutions of 3 x 3 and stride 1 by Winograd's F(4 x 4, 3 x 3), in fp32 sums, where "
     "that is faster, off by at most 3e-7 of the largest input times the sum of an output's weights' magnitudes; "
     "false, as direct sums"},

    {"cuda.graphs", FIELD(cuda.graphs), "auto | on | off", "",
     "of ranks on GPUs: a step is recorded once and launched as one graph; on refuses a step that cannot be, auto "
     "leaves it"},
    {"cuda.deterministic", FIELD(cuda.deterministic), "", "",
     "of ranks on GPUs: only kernels that give equal bits for equal inputs; cuDNN's gradient of attention then takes 2 "
     "bytes for every score"},
    {"cuda.tf32", FIELD(cuda.tf32), "", "",
     "of ranks on GPUs: products of fp32 on tensor cores, with operands rounded to 10 bits"},
    {"cuda.attention", FIELD(cuda.attention), "auto | cudnn | strata", "",
     "of ranks on GPUs: auto, cuDNN's fused attention in bf16 with heads of a multiple of 8 up to 128, strata's "
     "kernels otherwise; cudnn refuses where it does not serve; neither goes on without a cuDNN that has it; with "
     "dropout cuDNN's takes 2 bytes for every score"},
    {"cuda.time_products", FIELD(cuda.time_products), "auto | on | off", "",
     "of ranks on GPUs: the kernel of each shape of product is the fastest of the 8 that cuBLASLt's heuristic names, "
     "timed before the first step; auto, unless deterministic, since another run may choose another one; off, the "
     "first that it names"},
    {"cuda.timing", FIELD(cuda.timing), "", "",
     "of ranks on GPUs: two events around each instruction, a microsecond or so each, so that results have the parts "
     "of a step and its timeline; without them these are unknown",
     false, false},

    {"measure.warmup_steps", FIELD(measure.warmup_steps), ">= 0 and <= 1000000000000", "", "steps before measuring",
     false, false},
    {"measure.min_steps", FIELD(measure.min_steps), ">= 1 and <= 1000000000000", "steps", "measured at least", false,
     false},
    {"measure.max_steps", FIELD(measure.max_steps), ">= 1 and <= 1000000000000", "steps", "measured at most", false,
     false},
    {"measure.stop_when_ci_below", FIELD(measure.stop_when_ci_below), ">= 0", "",
     "stop when the median's 99 % interval is this narrow: half-width over median; 0: only max_steps stops", false,
     false},
    {"measure.flops_convention", FIELD(measure.flops_convention),
     "auto | megatron | sc21 | internevo | palm | torchtitan | operators", "",
     "what MFU counts; auto: megatron for transformers, operators for others", false, false},
    {"measure.peak", FIELD(measure.peak), "thorough | quick", "",
     "of ranks on processors: MFU's peak, the rate of a matrix product measured at the start, thorough: the best of n "
     "= "
     "1024, 2048 and 4096 in half a second each; quick: n = 512 in a hundredth, for tries whose MFU nobody reads",
     false, false},
    {"measure.timeline_steps", FIELD(measure.timeline_steps), ">= 0", "",
     "steps whose every instruction is recorded, the first that are measured; on GPUs with cuda.timing", false, false},

    {"checkpoint.every", FIELD(checkpoint.every), ">= 0", "steps",
     "a checkpoint after so many, and where the run ends or is told to; 0: none", false, false},
    {"checkpoint.keep", FIELD(checkpoint.keep), ">= 0", "", "newest checkpoints of a point that are kept; 0: all",
     false, false},
    {"checkpoint.restart_from", FIELD(checkpoint.restart_from), "", "",
     "a checkpoint or a folder of them, relative to this file, whatever strategy and ranks wrote it; \"latest\": this "
     "point's newest, step 0 where it has none; empty: step 0",
     false, false},

    {"evaluate.every", FIELD(evaluate.every), ">= 0", "steps",
     "what is trained is evaluated after so many, and where the run ends; 0: never", false, false},
    {"evaluate.paths", FIELD(evaluate.paths), "", "",
     "files of data.format, relative to this file, none for synthetic: other samples than those of data.paths", false,
     false},
    {"evaluate.batch", FIELD(evaluate.batch), ">= 0", "samples",
     "evaluated at a time, over all ranks; 0: as many as a micro-batch has, and one a rank at least", false, false},
    {"evaluate.num_samples", FIELD(evaluate.num_samples), ">= 0", "samples",
     "the first so many; 0: all, which synthetic data do not have", false, false},

    {"planner.cost", FIELD(planner.cost), "paper | analytic | measured", "",
     "where the times come from by which a mode compares plans: as simulate.cost; measured reads simulate.profile"},

    {"simulate.cost", FIELD(simulate.cost), "paper | analytic | measured", "",
     "where times come from: the papers' formulas, roofline and alpha-beta, or a profile"},
    {"simulate.profile", FIELD(simulate.profile), "", "",
     "what `strata profile` measured, relative to this file; needed by measured", false, false},
    {"simulate.steps", FIELD(simulate.steps), ">= 1 and <= 1000", "steps", "simulated", false, false},
    {"simulate.noise", FIELD(simulate.noise), ">= 0 and < 1", "",
     "standard deviation of the logarithm of a kernel's time; 0: none"},
    {"simulate.seed", FIELD(simulate.seed), ">= 0", "", "of the noise"},
    {"simulate.straggler_ranks", FIELD(simulate.straggler_ranks), ">= 0", "", "ranks whose kernels are slow"},
    {"simulate.straggler_slowdown", FIELD(simulate.straggler_slowdown), ">= 1", "", "factor on their kernels' time"},

    {"job.time_limit_minutes", FIELD(job.time_limit_minutes), ">= 1", "minutes", "limit of one job", false, false},
    {"job.partition", FIELD(job.partition), "", "", "Slurm's; empty: as the site says", false, false},
    {"job.constraint", FIELD(job.constraint), "", "", "features that the nodes must have; empty: as the site says",
     false, false},
    {"job.max_running", FIELD(job.max_running), ">= 0", "", "jobs of an array at a time; 0: no throttle", false, false},
    {"job.blocks", FIELD(job.blocks), ">= 0 and <= 10000", "",
     "head to head: points that differ in their strategy alone run in one job, so many times each, in blocks of random "
     "order; 0: every point is a job of its own",
     false, false},
    {"job.block_seed", FIELD(job.block_seed), ">= 0", "", "of the orders within blocks", false, false},
    {"job.one_launch", FIELD(job.one_launch), "true | false", "",
     "with blocks: the strategies of a block follow each other in one launch instead of a launch each; one that "
     "crashes takes those behind it along",
     false, false},
};

#undef FIELD

/// Takes an optional field back to what the preset says: what a zip axis needs for the models that lack the option.
constexpr std::string_view unset = "unset";
constexpr std::string_view planners_word = "planner";
constexpr std::string_view strategy_prefix = "strategy.";

OptionField field_of(Experiment& experiment, const Option& option) { return option.field(experiment); }

/// The value of a field; nothing where it is an optional without one.
struct ReadField {
  std::optional<TomlValue> operator()(const bool* field) const { return TomlValue{*field, 0}; }
  std::optional<TomlValue> operator()(const std::int64_t* field) const { return TomlValue{*field, 0}; }
  std::optional<TomlValue> operator()(const double* field) const { return TomlValue{*field, 0}; }
  std::optional<TomlValue> operator()(const std::string* field) const { return TomlValue{*field, 0}; }
  std::optional<TomlValue> operator()(const BatchSize* field) const {
    return field->is_planners ? TomlValue{std::string(planners_word), 0} : TomlValue{field->samples, 0};
  }
  template <class T>
  std::optional<TomlValue> operator()(const std::optional<T>* field) const {
    return field->has_value() ? std::optional(TomlValue{**field, 0}) : std::nullopt;
  }
  template <class T>
  std::optional<TomlValue> operator()(const std::vector<T>* field) const {
    TomlValue::Array elements;
    for (const T& element : *field) {
      elements.push_back({element, 0});
    }
    return TomlValue{std::move(elements), 0};
  }
};

/// Takes a value of the field's type; false if it has another. An integer is a real too.
struct WriteField {
  const TomlValue& value;

  template <class T>
  bool operator()(T* field) const {
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
        *field = static_cast<double>(*integer);
        return true;
      }
    }
    const T* held = std::get_if<T>(&value.data);
    if (held != nullptr) {
      *field = *held;
    }
    return held != nullptr;
  }
  bool operator()(BatchSize* field) const {
    if (const auto* word = std::get_if<std::string>(&value.data); word != nullptr && *word == planners_word) {
      *field = {.samples = 0, .is_planners = true};
      return true;
    }
    field->is_planners = false;
    return (*this)(&field->samples);
  }
  template <class T>
  bool operator()(std::optional<T>* field) const {
    if (const auto* word = std::get_if<std::string>(&value.data); word != nullptr && *word == unset) {
      field->reset();
      return true;
    }
    return (*this)(&field->emplace());
  }
  template <class T>
  bool operator()(std::vector<T>* field) const {
    if (!value.is_array()) {
      return false;
    }
    field->clear();
    return std::all_of(value.array().begin(), value.array().end(),
                       [&](const TomlValue& element) { return WriteField{element}(&field->emplace_back()); });
  }
};

void assign_strategy_option(Experiment& experiment, std::string_view name, const TomlValue& value,
                            const std::string& origin) {
  OptionValue held;
  if (const auto* flag = std::get_if<bool>(&value.data)) {
    held = *flag;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    held = *integer;
  } else if (const auto* real = std::get_if<double>(&value.data)) {
    held = *real;
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    held = *text;
  } else {
    throw UserError(fmt::format("{}: strategy.{}: {} where true or false, a number or a string is accepted", origin,
                                name, value.kind()));
  }
  experiment.strategy.options[std::string(name)] = held;
}

void check_finite(std::string_view key, const TomlValue& value, const std::string& origin) {
  const double* real = std::get_if<double>(&value.data);
  if (real != nullptr && !std::isfinite(*real)) {
    throw UserError(fmt::format("{}: {}: {} is not a finite number", origin, key, toml_real(*real)));
  }
}

}  // namespace

std::span<const Option> all_options() { return options; }

const Option* find_option(std::string_view key) {
  const auto found =
      std::find_if(std::begin(options), std::end(options), [&](const Option& o) { return o.key == key; });
  return found == std::end(options) ? nullptr : &*found;
}

std::string_view type_name(const Option& option) {
  constexpr std::string_view names[] = {"true or false",
                                        "integer",
                                        "real",
                                        "string",
                                        "true, false or \"unset\"",
                                        "integer or \"unset\"",
                                        "real or \"unset\"",
                                        "list of strings",
                                        "list of integers",
                                        "integer or \"planner\"",
                                        "list of reals"};
  Experiment any;
  return names[field_of(any, option).index()];
}

bool is_key(std::string_view key) {
  return find_option(key) != nullptr || (key.starts_with(strategy_prefix) && key.size() > strategy_prefix.size());
}

std::optional<TomlValue> value_of(const Experiment& experiment, std::string_view key) {
  if (key == "backend") {
    return TomlValue{experiment.backend, 0};
  }
  if (const Option* option = find_option(key)) {
    // Fields are reached through pointers to non-const; nothing is written through them here.
    return std::visit(ReadField{}, field_of(const_cast<Experiment&>(experiment), *option));
  }
  if (key.starts_with(strategy_prefix)) {
    const auto found = experiment.strategy.options.find(std::string(key.substr(strategy_prefix.size())));
    if (found != experiment.strategy.options.end()) {
      return to_toml(found->second);
    }
  }
  return std::nullopt;
}

void fail_unknown_key(std::string_view key, const std::string& origin) {
  const std::string_view section = key.substr(0, key.rfind('.') == std::string_view::npos ? 0 : key.rfind('.') + 1);
  std::vector<std::string> every, here;
  for (const Option& option : options) {
    every.emplace_back(option.key);
    if (option.key.starts_with(section)) {
      const std::string_view rest = option.key.substr(section.size());
      const std::string word(rest.substr(0, rest.find('.')));
      if (std::find(here.begin(), here.end(), word) == here.end()) {
        here.push_back(word);
      }
    }
  }
  if (section.empty()) {
    here.emplace_back("sweep");
    every.insert(every.end(), here.begin(), here.end());
  }
  if (here.empty()) {
    throw UserError(fmt::format("{}: {}: unknown key{}", origin, key, did_you_mean(key, every)));
  }
  throw UserError(fmt::format("{}: {}: unknown key{}; accepted{}: {}", origin, key, did_you_mean(key, every),
                              section.empty() ? "" : fmt::format(" in [{}]", section.substr(0, section.size() - 1)),
                              fmt::join(here, ", ")));
}

void assign(Experiment& experiment, std::string_view key, const TomlValue& value, const std::string& origin) {
  check_finite(key, value, origin);
  const Option* option = find_option(key);
  if (option != nullptr) {
    if (!std::visit(WriteField{value}, field_of(experiment, *option))) {
      throw UserError(fmt::format("{}: {}: {} where {} is accepted", origin, key, value.kind(), type_name(*option)));
    }
    const TomlValue::Array single = {value};
    for (const TomlValue& element : value.is_array() ? value.array() : single) {
      if (const std::string reason = refusal(element, option->accepted); !reason.empty()) {
        throw UserError(fmt::format("{}: {}: {}", origin, key, reason));
      }
    }
  } else if (is_key(key)) {
    assign_strategy_option(experiment, key.substr(strategy_prefix.size()), value, origin);
  } else {
    fail_unknown_key(key, origin);
  }
  experiment.given_at[std::string(key)] = origin;
}

}  // namespace strata

/// @file
/// Every mode with every feature and every pair of features, generated from the table of modes: each combination runs
/// and equals what the mode's file comment declares as its reference, or is refused with the condition; of exact inputs
/// and each feature alone what is evaluated behind training is the same number too. What came of
/// each is compared with tests/golden/matrix/<mode>.np<ranks>.txt; STRATA_UPDATE_GOLDEN=1 accepts the present outcome.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/paired_units.hpp"
#include "mpi/run/checkpointing.hpp"
#include "mpi/run/evaluated.hpp"
#include "support/held_bytes.hpp"
#include "support/simulated_account.hpp"
#include "support/source_dir.hpp"

namespace strata::run::test_matrix {
namespace {

// ---- features ----------------------------------------------------------------------------------------------------

enum Feature : unsigned { accumulation = 1, recompute = 2, bf16 = 4, uneven = 8, clipping = 16, restart = 32 };
constexpr std::array feature_names = {"accumulation", "recompute", "bf16", "uneven sizes", "clipping", "restart"};
constexpr unsigned num_features = feature_names.size();
constexpr unsigned all_features = (1U << num_features) - 1;

bool has(unsigned features, Feature feature) { return (features & feature) != 0; }

std::string name_of(unsigned features) {
  std::vector<std::string_view> names;
  for (unsigned f = 0; f < num_features; ++f) {
    if (has(features, static_cast<Feature>(1U << f))) names.emplace_back(feature_names[f]);
  }
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, " + "));
}

/// None, each, each pair, all together.
std::vector<unsigned> combinations() {
  std::vector<unsigned> result;
  for (unsigned features = 0; features <= all_features; ++features) {
    if (std::popcount(features) <= 2 || features == all_features) result.push_back(features);
  }
  return result;
}

// ---- what is trained ---------------------------------------------------------------------------------------------

/// So that planners that compare times have some.
Cluster described_cluster() {
  Cluster cluster;
  cluster.name = "described";
  cluster.nodes = 2;
  cluster.memory_bandwidth_bytes_per_second = 1e11;
  cluster.intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 1e10};
  cluster.inter_node = {.latency_seconds = 5e-6, .bandwidth_bytes_per_second = 1e9};
  cluster.peak_flops_per_second = {{"f32", 1e11}, {"bf16", 1e11}};
  return cluster;
}

struct Subject {
  const char* name;
  bool is_exact;
  Training (*make)(unsigned features);
};

Training common(unsigned features, ModelGraph graph) {
  Training training{.graph = std::move(graph), .plan = {}};
  training.cluster = described_cluster();
  training.plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  training.plan.recompute = has(features, recompute) ? Recompute::block : Recompute::none;
  return training;
}

/// One step, whose every sum is exact in any order. Gradients are f32: sums of them need more bits than bf16 has.
/// Clipping computes the norm, and a factor of 1: any other is rounded.
Training exact_inputs(unsigned features) {
  const std::vector<std::int64_t> widths = has(features, uneven) ? std::vector<std::int64_t>{5, 7, 9, 7, 9, 5, 4}
                                                                 : std::vector<std::int64_t>{8, 8, 16, 8, 8, 8, 4};
  Training training = common(features, build_model({.name = "mlp", .widths = widths}));
  training.plan.global_batch = 16;
  training.plan.schedule.micro_batches = has(features, accumulation) ? 2 : 1;
  training.plan.overlap.bucket_bytes = 200;
  training.plan.dtypes.compute = has(features, bf16) ? DType::bf16 : DType::f32;
  training.plan.optimizer.clip_norm = has(features, clipping) ? 1e30 : 0.0;
  training.classes = 4;
  training.dyadic = true;
  training.initial = [widths](const std::string& parameter, std::span<float> values) {
    paired_mlp(parameter, values, widths);
  };
  return training;
}

constexpr double real_clip_norm = 0.5;

ModelOptions language_options(unsigned features) {
  ModelOptions options{.name = "gpt-nano",
                       .layers = 4,
                       .hidden = 32,
                       .heads = 4,
                       .vocabulary = 96,
                       .sequence_length = 8,
                       .dropout = 0.1};
  if (has(features, uneven)) {
    options.hidden = 33;
    options.heads = 3;
    options.vocabulary = 101;
    options.sequence_length = 9;
  }
  return options;
}

ModelGraph language_model(unsigned features, bool tied_head) {
  ModelOptions options = language_options(features);
  options.tied_head = tied_head;
  return build_model(options);
}

/// Two steps of a small language model with everything that rounds.
Training real_model(unsigned features) {
  Training training = common(features, language_model(features, true));
  training.plan.global_batch = 24;
  training.plan.schedule.micro_batches = has(features, accumulation) ? 3 : 1;
  training.plan.overlap.bucket_bytes = 4096;
  if (has(features, bf16)) training.plan.dtypes = {DType::bf16, DType::bf16};
  training.plan.optimizer.momentum = 0.5;
  training.plan.optimizer.weight_decay = 0.01;
  training.plan.optimizer.clip_norm = has(features, clipping) ? real_clip_norm : 0.0;
  training.vocabulary = *language_options(features).vocabulary;
  training.learning_rate = 0.01;
  training.steps = 2;
  return training;
}

/// The same of images, whose attention sees all of it.
Training vision_transformer(unsigned features) {
  Training training = real_model(features);
  ModelOptions options{.name = "vit-nano", .layers = 4, .dropout = 0.1, .image_size = 8, .num_classes = 12};
  if (has(features, uneven)) {
    options.hidden = 33;
    options.heads = 3;
    options.image_size = 12;
    options.num_classes = 11;
  }
  training.graph = build_model(options);
  training.classes = *options.num_classes;
  return training;
}

constexpr std::array subjects = {Subject{"exact inputs", true, exact_inputs},
                                 Subject{"language model", false, real_model},
                                 Subject{"vision transformer", false, vision_transformer}};

/// A bf16 sum rounds by 2^-9 at each of at most 4 ranks × 3 micro-batches, in whatever order: 12 · 2^-9 = 0.023 of what
/// a step moves, in either of two steps. Biases begin at zero: all that they are is what they moved.
Tolerance tolerance_of(unsigned features) {
  if (!has(features, bf16)) return {};
  return {.parameter = 0.025, .moved = 0.025, .loss = 1e-2, .norm = 0.025};
}

// ---- what trains it ----------------------------------------------------------------------------------------------

/// A mode with some of its options.
struct Variant {
  std::string mode;
  std::string name;
  std::map<std::string, OptionValue> options{};
  double capacity_share = 0.0;  ///< of what a replica needs beside the library's workspace; 0: no limit
};

/// Of a mode that has stages in schedules.
const std::map<std::string, OptionValue> interleaved_stages = {{"stages", std::int64_t{4}},
                                                               {"schedule", std::string("interleaved")}};

/// Words of an option that accepts a choice of them; none: it accepts something else.
std::vector<std::string> words_of(const OptionRow& row) {
  std::vector<std::string> words;
  if (!std::holds_alternative<std::string>(row.default_value)) return words;
  std::istringstream accepted{std::string(row.accepted)};
  for (std::string word; accepted >> word;) {
    if (word != "|") words.push_back(word);
  }
  return words;
}

/// A mode as it is, with every other word of each of its options, and, where it has options for factors, with factors
/// by hand and with a memory in which not everything fits; where it decides by operator, with such a memory, in stages
/// too where it has any. @param in_node ranks of each of @p nodes.
std::vector<Variant> variants_of(const Planner& planner, int in_node, int nodes) {
  const std::string mode(planner.name()), node = fmt::format("{}x1", in_node),
                                          all = fmt::format("{}x{}", in_node, nodes);
  std::vector<Variant> variants = {{mode, "defaults"}};
  bool has_factors = false, has_stages = false, has_schedules = false, decides_by_operator = false;
  for (const OptionRow& row : planner.options()) {
    if (row.name.starts_with("quantized_")) continue;  // rounds: test_sharding_zeropp has its error
    for (const std::string& word : words_of(row)) {
      if (word == std::get<std::string>(row.default_value)) continue;
      variants.push_back({mode, fmt::format("{} = {}", row.name, word), {{std::string(row.name), word}}});
    }
    has_factors = has_factors || row.name == "os";
    has_stages = has_stages || row.name == "stages";
    has_schedules = has_schedules || row.name == "schedule";
    decides_by_operator = decides_by_operator || row.name == "granularity";
    if (row.name == "cross_pass") {
      variants.push_back({mode, "cross_pass = false", {{"cross_pass", false}}});
      variants.push_back({mode, "neither crossed nor fine", {{"cross_pass", false}, {"fine_recompute", false}}});
      variants.push_back({mode, "one sub-batch", {{"cross_pass", false}, {"sub_batches", std::int64_t{1}}}});
    }
  }
  const bool shares = in_node * nodes > 1;  // one rank has nobody to shard with
  if (decides_by_operator && shares) variants.push_back({mode, "nineteen twentieths of a replica's memory", {}, 0.95});
  if (decides_by_operator && has_stages && in_node > 1 && nodes > 1) {
    variants.push_back({mode, "2 stages, seven tenths of a replica's memory", {{"stages", std::int64_t{2}}}, 0.7});
  }
  // Where stages are beside what else a mode decides.
  if (has_stages && in_node * nodes > 2 && !decides_by_operator) {
    variants.push_back({mode, "stages = 2", {{"stages", std::int64_t{2}}}});
    if (has_schedules) variants.push_back({mode, "stages = 4, two a rank in turn", interleaved_stages});
  }
  if (!has_factors) return variants;
  const std::string one = "1x1";
  using Triple = std::array<std::string, 3>;
  for (const auto& [p, g, os] : {Triple{one, one, all}, {one, all, all}, {node, all, all}, {all, all, all}}) {
    for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
      variants.push_back({mode,
                          fmt::format("p {}, g {}, os {}, {}", p, g, os, sharding),
                          {{"p", p}, {"g", g}, {"os", os}, {"sharding", std::string(sharding)}}});
    }
  }
  if (shares) variants.push_back({mode, "nineteen twentieths of a replica's memory", {}, 0.95});
  return variants;
}

/// The mode that the file comment of @p mode names first under "Reference:"; nothing: it is the reference of others.
std::optional<std::string> declared_reference(std::string_view mode) {
  std::ifstream file(fmt::format("{}/src/planners/{}.cpp", test::source_dir(), mode_file_stem(mode)));
  std::string reference;
  for (std::string line; std::getline(file, line) && line.starts_with("///");) {
    const bool begins = line.starts_with("/// Reference:");
    if (begins || (!reference.empty() && line.starts_with("///   "))) {
      reference += line;
    } else if (!reference.empty()) {
      break;
    }
  }
  EXPECT_NE(reference, "") << mode << " declares no reference";
  const std::size_t begin = reference.find('`');
  if (begin == std::string::npos) return std::nullopt;
  return reference.substr(begin + 1, reference.find('`', begin + 1) - begin - 1);
}

bool is_cyclic(const std::string& mode) { return mode.starts_with("cdp"); }

bool is_interleaved(const Variant& variant) {
  return variant.mode == "interleaved" || variant.options == interleaved_stages;
}

/// The reference of its reference, and so on.
std::string last_reference(const std::string& mode) {
  const std::optional<std::string> declared = declared_reference(mode);
  return declared ? last_reference(*declared) : mode;
}

class Matrix : public Checkpointing {
 protected:
  int num_nodes() const { return size() > 2 ? 2 : 1; }

  void expect_golden(const std::string& mode, const std::string& text) const {
    if (world.rank() != 0) return;
    const std::string path = fmt::format("{}/tests/golden/matrix/{}.np{}.txt", test::source_dir(), mode, size());
    if (std::getenv("STRATA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << ": set STRATA_UPDATE_GOLDEN=1 to write the outcome of a new mode, and read it";
    std::ostringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(text, golden.str()) << path;
  }

  /// Equal on all ranks: what the first rank that refuses says; empty: none does.
  template <typename Action>
  std::string refusal(const Action& action) const {
    std::string mine;
    try {
      action();
    } catch (const Unsupported& e) {
      mine = e.what();
    } catch (const OutOfMemory& e) {
      mine = e.what();
    } catch (const UserError& e) {
      mine = e.what();
    }
    for (const std::string& theirs : world.all_gather(mine)) {
      if (!theirs.empty()) return theirs;
    }
    return "";
  }

  /// @p variant's training of @p subject.
  Training training_of(const Subject& subject, const Variant& variant, unsigned features) const {
    Training training = subject.make(features);
    // Stages of theirs have versions of their own, so that no weight is tied over them.
    if (is_cyclic(variant.mode) && subject.make == real_model) training.graph = language_model(features, false);
    // Ranks of a pipeline, which are two for five blocks and for four, take as many of its micro-batches at once.
    if (is_interleaved(variant)) training.plan.schedule.micro_batches *= 2;
    // At least as many micro-batches as stages.
    if (variant.mode == "2bw") training.plan.schedule.micro_batches *= size();
    training.options = variant.options;
    training.nodes = num_nodes();
    if (compares_steps(variant.mode)) training.evaluation = simulated_account;
    if (variant.mode == "auto") training.options.insert({{"points", std::int64_t{1}}, {"beam", std::int64_t{1}}});
    if (variant.capacity_share > 0.0) {
      const Program replica = lower(plan_of(training, "ddp", size()), training.graph, 0, cpu::workspaces_of({}));
      const std::int64_t workspace = most_held(replica, {Category::workspace});
      training.plan.device_capacity_bytes =
          workspace + std::llround(variant.capacity_share * static_cast<double>(replica.arena_bytes - workspace));
    }
    return training;
  }

  /// The plan, and that it lowers on every rank. @return why not.
  std::string plan_and_lower(const Training& training, const std::string& mode, std::optional<Plan>& plan) const {
    return refusal([&] {
      const Plan planned = plan_of(training, mode, size());
      lower(planned, training.graph, world.rank(), cpu::workspaces_of({}));
      plan = planned;
    });
  }

  /// What the reference of @p mode learns: on all ranks where it runs there, else on each rank alone. A mode that is
  /// the reference of others must equal itself without what changes the order of things only; cyclic ones of as many
  /// micro-batches as ranks, and 2bw, their own rule on one rank.
  const Trained& reference_of(const Subject& subject, const std::string& mode, unsigned features) {
    const std::optional<std::string> declared = declared_reference(mode);
    unsigned kept = features & ~(recompute | restart);
    if (!declared) kept &= ~accumulation;
    const std::string name = declared.value_or(mode);
    static std::map<std::string, Trained> references;  // for all modes
    const auto [place, is_new] = references.try_emplace(fmt::format("{} {} {}", subject.name, name, kept));
    if (!is_new) return place->second;
    Training training = training_of(subject, {.mode = name, .name = ""}, kept);
    std::optional<Plan> plan;
    if (name == "2bw") {
      training.options["stages"] = std::int64_t{1};
      plan = plan_of(training, name, 1);
    } else if (is_cyclic(name)) {
      training.options["implementation"] = std::string("single");
      training.plan.schedule.micro_batches = size();
      plan = plan_of(training, name, 1);
    } else if (const std::string alone = plan_and_lower(training, name, plan); !alone.empty()) {
      plan = plan_of(training, name, 1);
    }
    place->second = train_plan(training, *plan, world, engine);
    return place->second;
  }

  void expect_equal(const Subject& subject, const Trained& ours, const Trained& reference, unsigned features,
                    const std::string& what) const {
    if (subject.is_exact) {
      for (const auto& [name, values] : ours.parameters) {
        EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << what;
      }
      EXPECT_EQ(ours.losses, reference.losses) << what;
    } else {
      expect_same(ours, reference, what, tolerance_of(features));
    }
    if (!subject.is_exact && has(features, clipping)) {
      EXPECT_GT(reference.norms[0], real_clip_norm) << "nothing is clipped";
    }
    expect_all_held(ours, reference, what);
  }

  /// All ranks together hold every parameter.
  void expect_all_held(const Trained& ours, const Trained& reference, const std::string& what) const {
    std::string names;
    for (const auto& [name, _] : ours.parameters) names += name + "\n";
    std::string all;
    for (const std::string& held : world.all_gather(names)) all += held;
    for (const auto& [name, _] : reference.parameters) {
      EXPECT_THAT(all, testing::HasSubstr(name + "\n")) << what;
    }
  }

  /// Trains @p variant, stopping and going on where asked, and compares. @return why it is refused; empty: it ran.
  std::string outcome(const Subject& subject, const Variant& variant, unsigned features) {
    const Training training = training_of(subject, variant, features);
    const std::string what =
        fmt::format("{} ({}) with {}, {}", variant.mode, variant.name, name_of(features), subject.name);
    SCOPED_TRACE(what);
    std::optional<Plan> plan;
    if (std::string why = plan_and_lower(training, variant.mode, plan); !why.empty()) return why;
    // Options of a search often come to one plan, which has run then.
    const auto [place, is_new] = outcomes_.try_emplace({variant.mode, subject.name, features, text_of(*plan)});
    if (is_new) place->second = outcome_of(subject, variant, features, training, *plan, what);
    return place->second;
  }

  /// Free of why it was chosen.
  static std::string text_of(Plan plan) {
    plan.why = {};
    return to_text(plan);
  }

  std::string outcome_of(const Subject& subject, const Variant& variant, unsigned features, const Training& training,
                         const Plan& plan, const std::string& what) {
    Trained ours;
    results::EvaluationRow evaluated;
    const bool evaluates = subject.is_exact && std::popcount(features) <= 1;
    const Training with_evaluation = evaluates ? evaluated_behind(training, evaluated) : training;
    if (std::string why = refusal([&] { ours = train_plan(with_evaluation, plan, world, engine); }); !why.empty()) {
      return why;
    }
    const Trained& reference = reference_of(subject, variant.mode, features);
    expect_equal(subject, ours, reference, features, what);
    if (evaluates) expect_evaluated(training, reference, evaluated, what);
    if (has(features, restart)) stop_and_go_on(subject, variant, plan, training, ours, reference, features);
    return "";
  }

  /// By mode, subject, features and plan.
  std::map<std::tuple<std::string, std::string, unsigned, std::string>, std::string> outcomes_;

  Training evaluated_behind(Training training, results::EvaluationRow& row) const {
    training.after = [this, &row, training](const Program& program, Executor& executor) {
      row = evaluate(world, training, program, executor);
    };
    return training;
  }

  /// As the reference's values would be, which are on this rank: these, learnt by no step.
  void expect_evaluated(const Training& training, const Trained& reference, const results::EvaluationRow& row,
                        const std::string& what) {
    Training given{.graph = training.graph, .plan = {}};
    given.plan.optimizer = {.kind = "sgd", .momentum = 0.0};
    given.plan.global_batch = 1;
    given.classes = training.classes;
    given.learning_rate = 0.0;
    given.initial = [&](const std::string& parameter, std::span<float> values) {
      std::ranges::copy(reference.parameters.at(parameter), values.begin());
    };
    results::EvaluationRow expected;
    train(evaluated_behind(given, expected), "single", 1, world, engine);
    EXPECT_EQ(row.loss, expected.loss) << what;
    EXPECT_EQ(row.top_1, expected.top_1) << what;
    EXPECT_EQ(row.top_5, expected.top_5) << what;
    EXPECT_EQ(row.num_samples, num_evaluated) << what;
  }

  void stop_and_go_on(const Subject& subject, const Variant& variant, const Plan& plan, const Training& training,
                      const Trained& straight, const Trained& reference, unsigned features) {
    // The step that is exact is the only one, so it follows the restart.
    const int stop = training.steps - 1;
    const std::string where = folder(fmt::format("{} {} {} {}", variant.mode, variant.name, features, subject.name));
    Training begun = training;
    begun.steps = stop;
    train_plan(saved_to(where, begun), plan, world, engine);
    Training rest = from(where, stop, training);
    rest.initial = nullptr;
    const auto last = [&](const std::vector<float>& all) { return std::vector<float>(all.begin() + stop, all.end()); };
    const auto tail = [&](Trained trained) {
      trained.losses = last(trained.losses);
      trained.norms = last(trained.norms);
      return trained;
    };

    const Trained again = train_plan(rest, plan, world, engine);
    EXPECT_EQ(again.parameters, straight.parameters) << "restarted";
    EXPECT_EQ(again.losses, last(straight.losses)) << "restarted";

    // Under another sharding, from this mode's checkpoint.
    const auto [other_mode, other_plan] = next_mode(subject, variant.mode, features);
    Trained other = train_plan(rest, other_plan, world, engine);
    other.initial = reference.initial;
    expect_equal(subject, other, tail(reference), features, "gone on by " + other_mode);
  }

  /// The next mode in the table that runs @p subject here and updates by the same rule, which those do whose references
  /// lead to one mode: every mode goes on where its neighbour stopped.
  std::pair<std::string, Plan> next_mode(const Subject& subject, const std::string& mode, unsigned features) const {
    const auto modes = all_planners();
    const auto at = std::ranges::find(modes, mode, [](const Planner* p) { return p->name(); }) - modes.begin();
    for (std::size_t i = 1; i <= modes.size(); ++i) {
      const std::string name(modes[(static_cast<std::size_t>(at) + i) % modes.size()]->name());
      if (last_reference(name) != last_reference(mode)) continue;
      std::optional<Plan> plan;
      const Training training = training_of(subject, {.mode = name, .name = ""}, features);
      if (plan_and_lower(training, name, plan).empty()) return {name, *plan};
    }
    throw InternalError("not even itself");
  }
};

/// Rows and columns are features; on the diagonal each alone.
class Table {
 public:
  void set(unsigned features, const std::string& why) { cells_[features] = why; }

  std::string text() {
    std::string text = row("", [](unsigned column) { return std::string(feature_names[column]); });
    for (unsigned r = 0; r < num_features; ++r) {
      text +=
          row(feature_names[r], [&](unsigned column) { return column < r ? "" : cell((1U << r) | (1U << column)); });
    }
    return text + ends();
  }
  /// Without features and with all of them, and the reasons.
  std::string ends() {
    std::string text = fmt::format("none of them: {}; all of them: {}\n", cell(0), cell(all_features));
    for (std::size_t i = 0; i < reasons_.size(); ++i) text += fmt::format("({}) {}\n", i + 1, reasons_[i]);
    return text;
  }

 private:
  template <typename Cell>
  static std::string row(std::string_view head, const Cell& cell_of) {
    std::string line = fmt::format("{:<14}", head);
    for (unsigned column = 0; column < num_features; ++column) line += fmt::format("{:<14}", cell_of(column));
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }
  std::string cell(unsigned features) {
    const auto found = cells_.find(features);
    if (found == cells_.end()) return "-";
    if (found->second.empty()) return "runs";
    auto at = std::ranges::find(reasons_, found->second);
    if (at == reasons_.end()) at = reasons_.insert(at, found->second);
    return fmt::format("refused ({})", at - reasons_.begin() + 1);
  }
  std::map<unsigned, std::string> cells_;  ///< by features: why it is refused; empty: it runs
  std::vector<std::string> reasons_;
};

/// The paper and baselines of AMSP must run with everything (its options may exclude one another).
constexpr std::array never_refused = {"zero1", "zero2", "zero3", "mics", "zeropp", "amsp"};

class EveryMode : public Matrix, public testing::WithParamInterface<const Planner*> {};

TEST_P(EveryMode, RunsEveryPairOfFeaturesOrIsRefused) {
  const Planner& planner = *GetParam();
  const std::string mode(planner.name());
  const int nodes = num_nodes(), in_node = size() / nodes;
  std::string text = fmt::format("{} on {} nodes of {}\n", mode, nodes, in_node);
  for (const Variant& variant : variants_of(planner, in_node, nodes)) {
    Table table;
    const bool is_whole = variant.name == "defaults";
    for (const unsigned features : combinations()) {
      if (!is_whole && features != 0 && features != all_features) continue;
      const std::string why = outcome(subjects[0], variant, features);
      // The language model sees each feature and all of them, with the defaults.
      if (is_whole && std::popcount(features) != 2) {
        // Sizes that ranks do not divide are other operators' in another model: only whether it runs is the same.
        const std::string other = outcome(subjects[1], variant, features);
        EXPECT_EQ(other.empty(), why.empty())
            << variant.name << ", " << name_of(features) << ": " << why << " | " << other;
      }
      // Of images with the defaults, plain and with all of them.
      if (is_whole && (features == 0 || features == all_features)) {
        const std::string other = outcome(subjects[2], variant, features);
        EXPECT_EQ(other.empty(), why.empty())
            << variant.name << ", " << name_of(features) << ": " << why << " | " << other;
      }
      table.set(features, why);
      if (is_whole && std::ranges::find(never_refused, mode) != never_refused.end()) {
        EXPECT_EQ(why, "") << mode << " with " << name_of(features);
      }
    }
    text += fmt::format("\n{}\n{}", variant.name, is_whole ? table.text() : table.ends());
  }
  // What some modes are, and others have no word for.
  const auto accepts = [&](std::string_view option) {
    return std::ranges::any_of(planner.options(), [&](const OptionRow& row) { return row.name == option; });
  };
  const bool shards =
      accepts("zero") || accepts("os") || accepts("granularity") || mode.starts_with("zero") || mode == "mics";
  text += fmt::format("\nsharded optimizer states: {}\npipeline: {}\n", shards ? "above" : "refused, no such option",
                      accepts("stages") ? "above" : "refused, no such option");
  expect_golden(mode, text);
}

INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, testing::ValuesIn(all_planners().begin(), all_planners().end()),
                         [](const auto& mode) { return mode_file_stem(mode.param->name()); });

}  // namespace
}  // namespace strata::run::test_matrix

/// @file
/// Programs that must stay what they are. Of some small networks the whole text is kept, for people to read; of every
/// mode with every word of its options a fingerprint over all ranks, so that nothing else moves unseen.
/// STRATA_UPDATE_GOLDEN=1 accepts the present Programs: read the difference.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "support/deep.hpp"
#include "support/simulated_account.hpp"
#include "support/source_dir.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_golden_programs {
namespace {

using Options = std::map<std::string, OptionValue>;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string golden_path(const std::string& name) { return fmt::format("{}/tests/golden/{}", test::source_dir(), name); }

void expect_golden(const std::string& text, const std::string& name) {
  if (std::getenv("STRATA_UPDATE_GOLDEN") != nullptr) std::ofstream(golden_path(name)) << text;
  const std::string golden = text_of(golden_path(name));
  if (text == golden) return;
  // The first line that differs: all of them together are too much to read, and to compare.
  std::istringstream ours(text), theirs(golden);
  std::string our_line, their_line;
  while (our_line == their_line && std::getline(ours, our_line) && std::getline(theirs, their_line)) continue;
  ADD_FAILURE() << name << ": \"" << our_line << "\" instead of \"" << their_line << "\"";
}

// ---- the text of some ----------------------------------------------------------------------------------------------

const ModelOptions mlp = {.name = "mlp", .widths = {6, 4, 3}};
const ModelOptions deeper_mlp = {.name = "mlp", .widths = {6, 4, 5, 3}};
const ModelOptions gpt = {.name = "gpt",
                          .layers = 1,
                          .hidden = 8,
                          .heads = 2,
                          .vocabulary = 11,
                          .sequence_length = 4,
                          .dropout = 0.1,
                          .tied_head = true};
const ModelOptions llama = {.name = "llama",
                            .layers = 1,
                            .hidden = 8,
                            .heads = 4,
                            .kv_heads = 2,
                            .ffn_hidden = 16,
                            .vocabulary = 11,
                            .sequence_length = 4};

ModelOptions with_layers(ModelOptions options, int layers) {
  options.layers = layers;
  return options;
}

void plain(Plan& plan) {
  plan.optimizer.kind = "sgd";
  plan.overlap.bucket_bytes = 100;
}

void two_micro_batches(Plan& plan) {
  plain(plan);
  plan.schedule.micro_batches = 2;
}

/// Micro-batches, recomputation, clipping, a tied weight.
void everything(Plan& plan) {
  plan.schedule.micro_batches = 2;
  plan.recompute = Recompute::block;
  plan.optimizer.clip_norm = 1.0;
  plan.overlap.bucket_bytes = 1000;
}

void mixed(Plan& plan) {
  plan.dtypes = {DType::bf16, DType::bf16};
  plan.overlap.bucket_bytes = 500;
  plan.overlap.all_reduce = "none";
}

struct Golden {
  std::string name;  ///< of its file, before ".np"
  std::string mode;
  int ranks;
  ModelOptions model;
  std::function<void(Plan&)> asks;
  Options options{};
  std::function<void(Plan&)> decides{};  ///< changed by hand after the mode's planner
};

std::vector<Golden> golden_programs() {
  const Options select_and_drop = {{"p", std::string("1x1")},
                                   {"g", std::string("4x1")},
                                   {"os", std::string("4x1")},
                                   {"sharding", std::string("intra_tensor")}};
  Options dealt_late = {{"p", std::string("1x1")},
                        {"g", std::string("1x1")},
                        {"os", std::string("2x1")},
                        {"sharding", std::string("inter_tensor")},
                        {"broadcast", std::string("next_forward")}};
  const auto over_leaves = [](Plan& plan) {
    plan.mesh = {
        .nodes = 4, .ranks_per_node = 1, .axes = {{"data", 4}}, .placement = "leaf-first", .node_order = {0, 2, 1, 3}};
    plan.operators = {{.match = "*", .state = StateFactors{.p = {1, 2}, .g = {1, 2}, .os = {1, 4}}}};
    plan.optimizer.spread = "all_gather";
  };
  const auto slices = [](Plan& plan) {
    const Factor all{2, 1};
    plan.operators.push_back({.match = "block[0].linear",
                              .state = StateFactors{.p = all, .g = all, .os = all},
                              .slices = 2,
                              .slice_state = {"dp", "zdp"}});
  };
  return {{"single.mlp", "single", 1, mlp, plain},
          {"ddp.mlp", "ddp", 4, mlp, plain},
          {"ddp.gpt", "ddp", 4, gpt, everything},
          {"ddp.llama", "ddp", 4, llama, mixed},
          {"gpipe.mlp", "gpipe", 2, deeper_mlp, two_micro_batches},
          {"1f1b.gpt", "1f1b", 2, with_layers(gpt, 2), everything},
          {"interleaved.gpt", "interleaved", 2, with_layers(gpt, 4), two_micro_batches},
          {"zero3.mlp", "zero3", 2, mlp, two_micro_batches},
          {"select-and-drop.mlp", "amsp", 4, mlp, two_micro_batches, select_and_drop},
          {"late-broadcast.mlp", "amsp", 2, mlp, two_micro_batches, dealt_late},
          {"update-in-backward.mlp",
           "ddp",
           2,
           deeper_mlp,
           two_micro_batches,
           {},
           [](Plan& plan) { plan.overlap.update = "backward"; }},
          {"leaf-first.mlp", "ddp", 4, mlp, plain, {}, over_leaves},
          {"slices.mlp", "ddp", 2, deeper_mlp, plain, {}, slices},
          {"quantised.mlp",
           "zeropp",
           4,
           mlp,
           two_micro_batches,
           {{"quantized_weights", std::string("int8")},
            {"quantized_gradients", std::string("int4")},
            {"quantization_block", std::int64_t{16}}}},
          {"megatron.mlp",
           "megatron",
           2,
           {.name = "mlp", .widths = {8, 8, 8}},
           plain,
           {{"tensor", std::string("2x1")}, {"cost", std::string("volume")}}},
          {"decomposed.mlp",
           "decomposed",
           3,
           {.name = "mlp", .widths = {12, 12, 12}},
           plain,
           {{"tensor", std::string("3x1")}, {"cost", std::string("volume")}}},
          {"decomposed.both_ways.mlp",
           "decomposed",
           3,
           {.name = "mlp", .widths = {12, 12, 12}},
           plain,
           {{"tensor", std::string("3x1")}, {"directions", std::int64_t{2}}, {"cost", std::string("volume")}}},
          {"summa.mlp",
           "summa",
           4,
           {.name = "mlp", .widths = {8, 8, 8}},
           plain,
           {{"rows", std::string("2x1")}, {"cost", std::string("volume")}}}};
}

/// The whole step of one small network, as a person reads it.
TEST(GoldenPrograms, Texts) {
  for (const Golden& golden : golden_programs()) {
    const ModelGraph graph = build_model(golden.model);
    Plan base = asked(8, golden.ranks);
    golden.asks(base);
    Plan plan = planned(find_planner(golden.mode), graph, base, golden.options);
    if (golden.decides) golden.decides(plan);
    const Program program = lower(plan, graph, golden.ranks > 1 ? 1 : 0, no_workspace);
    const std::string text = to_text(program);
    expect_golden(text, fmt::format("{}.np{}.rank{}.txt", golden.name, golden.ranks, program.rank));
    EXPECT_EQ(parse_program(text), program) << golden.name;
  }
}

// ---- fingerprints of all -------------------------------------------------------------------------------------------

struct Shape {
  const char* name;
  std::function<void(Plan&)> asks;
};

void mixed_and_ahead(Plan& plan) {
  mixed(plan);
  plan.schedule.micro_batches = 3;
  plan.overlap.gather = "next_layer";
  plan.overlap.gather_backward = "next_module";
  plan.overlap.reduce_scatter = "grad_input";
}

void updates_in_backward(Plan& plan) {
  everything(plan);
  plan.optimizer.clip_norm = 0.0;
  plan.overlap.update = "backward";
}

const Shape shapes[] = {{"plain", plain},
                        {"everything", everything},
                        {"mixed", mixed_and_ahead},
                        {"updates in backward", updates_in_backward}};

struct Variant {
  std::string name;
  Options options{};
};

/// A mode as it is and with each other word of each of its options; in stages, in slices and with factors where it has
/// such options.
std::vector<Variant> variants_of(const Planner& planner) {
  std::vector<Variant> variants = {{"as it is"}};
  for (const OptionRow& row : planner.options()) {
    const std::string key(row.name);
    // How to find a plan, not what to lower.
    if (key == "search" || key == "choice" || key == "cost" || key == "trace") continue;
    if (key == "stages") variants.push_back({"stages = 2", {{key, std::int64_t{2}}}});
    if (key == "slices") variants.push_back({"slices = 2", {{key, std::int64_t{2}}}});
    if (key == "os") {
      for (const auto& [p, g, os] : {std::array{"1x1", "1x1", "2x2"}, {"1x1", "2x2", "2x2"}, {"2x1", "2x2", "2x2"}}) {
        for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
          for (const char* broadcast : {"none", "next_forward"}) {
            variants.push_back({fmt::format("p {} g {} os {} {} broadcast {}", p, g, os, sharding, broadcast),
                                {{"p", std::string(p)},
                                 {"g", std::string(g)},
                                 {"os", std::string(os)},
                                 {"sharding", std::string(sharding)},
                                 {"broadcast", std::string(broadcast)}}});
          }
        }
      }
    }
    if (!std::holds_alternative<std::string>(row.default_value)) continue;
    std::istringstream accepted{std::string(row.accepted)};
    for (std::string word; accepted >> word;) {
      if (word == "|" || word == std::get<std::string>(row.default_value)) continue;
      variants.push_back({fmt::format("{} = {}", key, word), {{key, word}}});
    }
  }
  return variants;
}

/// Instructions of the body, bytes of the arena and a hash of the text, over all ranks.
std::string fingerprint(const Plan& plan, const ModelGraph& graph) {
  std::size_t num_instructions = 0;
  std::int64_t arena_bytes = 0;
  std::uint64_t hash = 0;
  for (const Program& program : all_ranks(plan, graph, some_workspace)) {
    const std::string text = to_text(program);
    num_instructions += program.body.size();
    arena_bytes = std::max(arena_bytes, program.arena_bytes);
    hash = hash_bytes(std::as_bytes(std::span(text)), hash);
  }
  return fmt::format("{} instructions, {} bytes, {:016x}", num_instructions, arena_bytes, hash);
}

TEST(GoldenPrograms, FingerprintsOfEveryModeWithItsOptions) {
  const std::vector<ModelGraph> graphs = {
      build_model({.name = "mlp", .dropout = 0.2, .widths = {12, 16, 10, 14, 8}}),
      build_model(with_layers(gpt, 3)),
      build_model({.name = "vgg-nano"}),
      build_model({.name = "vit-nano"}),
  };
  const std::string cluster_file = test::source_dir() + "/experiments/clusters/a100-2x8.toml";
  const Cluster cluster = parse_cluster(text_of(cluster_file), cluster_file);
  // Of each variant every model and every shape, but every second pair of them; the others' lines are taken as they
  // stand.
  const bool every_pair = is_deep() || std::getenv("STRATA_UPDATE_GOLDEN") != nullptr;
  std::istringstream golden(text_of(golden_path("fingerprints.txt")));
  std::string text;
  int number = 0;
  for (const Planner* planner : all_planners()) {
    for (const Variant& variant : variants_of(*planner)) {
      for (const ModelGraph& graph : graphs) {
        for (const Shape& shape : shapes) {
          const std::string key =
              fmt::format("{}, {}, {}, {}: ", planner->name(), variant.name, graph.name, shape.name);
          const int model_and_shape = number / static_cast<int>(std::size(shapes)) + number;
          ++number;
          std::string golden_line;
          std::getline(golden, golden_line);
          if (!every_pair && model_and_shape % 2 == 1 && golden_line.starts_with(key)) {
            text += golden_line + "\n";
            continue;
          }
          Plan base;
          base.mesh = {.nodes = planner->name() == "single" ? 1 : 2,
                       .ranks_per_node = planner->name() == "single" ? 1 : 2};
          base.global_batch = 24;
          shape.asks(base);
          std::string outcome;
          try {
            const SimulatedAccount simulated(graph, cluster);
            // What auto takes are others' plans; its search of every variant would take minutes.
            const bool is_told_seconds = compares_steps(planner->name()) && planner->name() != "auto";
            outcome = fingerprint(
                planned(*planner, graph, base, variant.options, cluster, is_told_seconds ? &simulated : nullptr),
                graph);
          } catch (const Unsupported&) {
            outcome = "refused";
          } catch (const UserError&) {
            outcome = "refused";
          }
          text += key + outcome + "\n";
        }
      }
    }
  }
  expect_golden(text, "fingerprints.txt");
}

}  // namespace
}  // namespace strata::test_golden_programs

#pragma once

/// @file
/// What modes with stages are compared on: networks of four blocks and more whose first step is exact, and small real
/// models.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "models/graph_builder.hpp"
#include "mpi/exec/networks.hpp"
#include "mpi/exec/paired_units.hpp"

namespace strata {

inline Training with(ModelGraph graph, std::int64_t global_batch, int micro_batches) {
  Training training{.graph = std::move(graph), .plan = {}};
  training.plan.global_batch = global_batch;
  training.plan.schedule.micro_batches = micro_batches;
  training.plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  training.plan.overlap.bucket_bytes = 4096;
  training.vocabulary = 101;
  return training;
}

/// Five blocks, uneven in two, three and four stages, or as many as asked for.
inline Training exact_mlp(int micro_batches, int num_blocks = 5) {
  constexpr std::int64_t between[] = {8, 12, 8, 10, 6};
  std::vector<std::int64_t> widths = {6};
  for (int b = 0; b < num_blocks; ++b) widths.push_back(between[b % 5]);
  widths.push_back(4);
  Training training = with(build_model({.name = "mlp", .widths = widths}), 8 * micro_batches, micro_batches);
  training.plan.overlap.bucket_bytes = 200;
  training.classes = 4;
  training.dyadic = true;
  training.initial = [widths](const std::string& parameter, std::span<float> values) {
    paired_mlp(parameter, values, widths);
  };
  return training;
}

constexpr std::int64_t tied_width = 8;

/// A table of four words that is the head too, four blocks between, or as many as asked for.
inline Training exact_tied(int micro_batches, int num_blocks = 4) {
  GraphBuilder graph("tied");
  const int tokens = graph.input("tokens", {4}, TensorRole::tokens);
  const int targets = graph.input("targets", {4}, TensorRole::targets);
  int x = graph.embedding("embedding", tokens, 4, tied_width, 0, {});
  for (int b = 0; b < num_blocks; ++b) {
    graph.begin_block(fmt::format("block[{}]", b));
    x = graph.linear("linear", x, {.in = tied_width, .out = tied_width, .bias = false});
    x = graph.relu("relu", x);
    graph.end_block();
  }
  x = graph.tied_linear("head", x, graph.parameter("embedding.table"));
  graph.cross_entropy("loss", x, targets);
  Training training = with(graph.finish(4), 8 * micro_batches, micro_batches);
  training.vocabulary = 4;
  training.initial = [](const std::string& parameter, std::span<float> values) {
    if (parameter == "embedding.table") {
      cancelling_columns(parameter, values, tied_width);  // which makes the pairs of the first layer's input opposite
    } else {
      const bool first = parameter.starts_with("block[0]");
      paired_rows(parameter, values, tied_width, first ? Input::opposite : Input::equal);
    }
  };
  return training;
}

/// A value that the block after next reads too: it travels through a stage.
inline Training exact_skip(int micro_batches, int num_blocks = 4) {
  GraphBuilder graph("skip");
  int x = graph.input("image", {6}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  int kept = -1;
  for (int b = 0; b < num_blocks; ++b) {
    graph.begin_block(fmt::format("block[{}]", b));
    x = graph.linear("linear", x, {.in = b == 0 ? 6 : tied_width, .out = tied_width, .bias = false});
    x = graph.relu("relu", x);
    if (b == 3) x = graph.add("add", x, kept);
    if (b == 0) kept = x;
    graph.end_block();
  }
  x = graph.linear("head", x, {.in = tied_width, .out = 4, .bias = false});
  graph.cross_entropy("loss", x, label);
  Training training = with(graph.finish(1), 8 * micro_batches, micro_batches);
  training.classes = 4;
  training.dyadic = true;
  training.initial = [](const std::string& parameter, std::span<float> values) {
    if (parameter.starts_with("head")) {
      cancelling_columns(parameter, values, tied_width);
    } else {
      const bool first = parameter.starts_with("block[0]");
      paired_rows(parameter, values, first ? 6 : tied_width, first ? Input::unpaired : Input::equal);
    }
  };
  return training;
}

/// Five blocks each: uneven in two, three and four stages.
inline std::vector<RealModel> staged_models() {
  return {
      {"gpt",
       {.name = "gpt-nano", .layers = 5, .vocabulary = 101, .sequence_length = 17, .dropout = 0.1, .tied_head = true}},
      {"gpt untied",
       {.name = "gpt-nano", .layers = 5, .vocabulary = 101, .sequence_length = 9, .dropout = 0.1, .tied_head = false}},
      {"llama", {.name = "llama-nano", .layers = 5, .vocabulary = 101, .sequence_length = 9}},
      {"vgg", {.name = "vgg-nano", .dropout = 0.25}},
      {"vit", {.name = "vit-nano", .layers = 5, .dropout = 0.1}},
      {"mlp", {.name = "mlp", .dropout = 0.2, .widths = {48, 64, 32, 40, 24, 16, 10}}},
  };
}

}  // namespace strata

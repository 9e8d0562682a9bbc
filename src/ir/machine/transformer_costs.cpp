#include "ir/machine/transformer_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr std::string_view recomputations = "none | selective | full";

auto shape_of(const LayerRatio& layer) {
  return std::tuple(layer.hidden_size, layer.attention_heads, layer.sequence_length, layer.tensor, layer.micro_batch);
}

Recomputation read_recomputation(TomlReader& reader, std::string_view key) {
  reader.require(key);
  std::string word;
  reader.read_word(key, word, recomputations);
  for (const Recomputation r : {Recomputation::none, Recomputation::selective}) {
    if (word == to_string(r)) return r;
  }
  return Recomputation::full;
}

}  // namespace

std::span<const TransformerCostField> transformer_cost_fields() {
  using C = TransformerCosts;
  static constexpr std::array fields = {
      TransformerCostField{"product_share", &C::product_share, true},
      TransformerCostField{"small_tile_share", &C::small_tile_share, true},
      TransformerCostField{"half_depth", &C::half_depth, false},
      TransformerCostField{"attention_share", &C::attention_share, true},
      TransformerCostField{"memory_share", &C::memory_share, true},
      TransformerCostField{"replicated_bytes", &C::replicated_bytes, false},
      TransformerCostField{"sharded_bytes", &C::sharded_bytes, false},
      TransformerCostField{"score_bytes", &C::score_bytes, false},
      TransformerCostField{"launch_seconds", &C::launch_seconds, false},
      TransformerCostField{"tensor_launch_seconds", &C::tensor_launch_seconds, false},
      TransformerCostField{"full_node_launch_factor", &C::full_node_launch_factor, false},
      TransformerCostField{"unfused_softmax_seconds", &C::unfused_softmax_seconds, false},
      TransformerCostField{"launch_overlap_exponent", &C::launch_overlap_exponent, false},
      TransformerCostField{"tensor_latency_seconds", &C::tensor_latency_seconds, false},
      TransformerCostField{"tensor_bandwidth_bytes_per_second", &C::tensor_bandwidth_bytes_per_second, false},
      TransformerCostField{"slot_seconds", &C::slot_seconds, false},
      TransformerCostField{"node_bandwidth_bytes_per_second", &C::node_bandwidth_bytes_per_second, false},
      TransformerCostField{"unsharded_head_share", &C::unsharded_head_share, true},
      TransformerCostField{"head_share", &C::head_share, true},
      TransformerCostField{"logit_bytes", &C::logit_bytes, false},
      TransformerCostField{"update_bytes", &C::update_bytes, false},
      TransformerCostField{"step_seconds", &C::step_seconds, false},
      TransformerCostField{"reduce_seconds", &C::reduce_seconds, false},
      TransformerCostField{"reduce_bandwidth_bytes_per_second", &C::reduce_bandwidth_bytes_per_second, false},
  };
  return fields;
}

TransformerCosts read_transformer_costs(TomlReader& reader) {
  TransformerCosts costs;
  for (const TransformerCostField& field : transformer_cost_fields()) {
    reader.require(field.key);
    reader.read(field.key, costs.*field.value);
  }
  reader.require("vocabulary_size");
  reader.read("vocabulary_size", costs.vocabulary_size, 1);
  costs.recomputation_on_one_node = read_recomputation(reader, "recomputation_on_one_node");
  costs.recomputation_on_many_nodes = read_recomputation(reader, "recomputation_on_many_nodes");
  reader.require("dtype");
  reader.read_word("dtype", costs.dtype, "bf16 | f16");
  reader.require("multiprocessors");
  reader.read("multiprocessors", costs.multiprocessors, 1);
  if (const TomlValue* layers = reader.array("layers")) {
    for (std::size_t i = 0; i < layers->array().size(); ++i) {
      if (!layers->array()[i].is_table()) reader.fail("layers", "a list of tables is accepted");
      TomlReader fields = reader.child(fmt::format("layers[{}]", i), layers->array()[i]);
      LayerRatio& layer = costs.layers.emplace_back();
      const auto read = [&](std::string_view key, auto& value, auto minimum) {
        fields.require(key);
        fields.read(key, value, minimum);
      };
      read("hidden_size", layer.hidden_size, 1);
      read("attention_heads", layer.attention_heads, 1);
      read("sequence_length", layer.sequence_length, 1);
      read("tensor_parallelism", layer.tensor, 1);
      read("micro_batch", layer.micro_batch, 1);
      read("ratio", layer.ratio, 0.0);
      fields.finish();
    }
  }
  reader.finish();
  return costs;
}

std::string to_text(const TransformerCosts& costs) {
  std::string text = "[transformer_costs]\n";
  for (const TransformerCostField& field : transformer_cost_fields()) {
    text += fmt::format("{} = {}\n", field.key, toml_real(costs.*field.value));
  }
  text += fmt::format(
      "vocabulary_size = {}\nrecomputation_on_one_node = {}\nrecomputation_on_many_nodes = {}\ndtype = {}\n"
      "multiprocessors = {}\nlayers = [\n",
      costs.vocabulary_size, toml_string(to_string(costs.recomputation_on_one_node)),
      toml_string(to_string(costs.recomputation_on_many_nodes)), toml_string(costs.dtype), costs.multiprocessors);
  for (const LayerRatio& layer : costs.layers) {
    text += fmt::format(
        "  {{ hidden_size = {}, attention_heads = {}, sequence_length = {}, tensor_parallelism = {}, micro_batch = {}, "
        "ratio = {} }},\n",
        layer.hidden_size, layer.attention_heads, layer.sequence_length, layer.tensor, layer.micro_batch,
        toml_real(layer.ratio));
  }
  return text + "]\n";
}

void verify(const TransformerCosts& costs) {
  for (const TransformerCostField& field : transformer_cost_fields()) {
    const double value = costs.*field.value;
    if (!(value > 0.0) || (field.is_share && value > 1.0)) {
      throw UserError(fmt::format("transformer_costs.{}: {} is out of range; accepted: > 0{}", field.key, value,
                                  field.is_share ? " and <= 1" : ""));
    }
  }
  for (std::size_t i = 0; i < costs.layers.size(); ++i) {
    if (!(costs.layers[i].ratio > 0.0)) {
      throw UserError(fmt::format("transformer_costs.layers[{}].ratio: {} is out of range; accepted: > 0", i,
                                  costs.layers[i].ratio));
    }
    if (i > 0 && shape_of(costs.layers[i]) <= shape_of(costs.layers[i - 1])) {
      throw UserError(
          fmt::format("transformer_costs.layers[{}]: not after the one before it; accepted: ascending by "
                      "hidden_size, attention_heads, sequence_length, tensor_parallelism, micro_batch",
                      i));
    }
  }
}

}  // namespace strata

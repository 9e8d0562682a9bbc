#include "planners/layouts/layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

bool is_unary(OperatorKind kind) {
  return kind == OperatorKind::gelu || kind == OperatorKind::gelu_erf || kind == OperatorKind::relu ||
         kind == OperatorKind::dropout;
}
bool is_branch(OperatorKind kind) {
  return is_unary(kind) || kind == OperatorKind::swiglu || kind == OperatorKind::rotary ||
         kind == OperatorKind::attention;
}

class ChainReader {
 public:
  explicit ChainReader(const ModelGraph& graph)
      : graph_(graph),
        home_of_tensor_(graph.tensors.size(), from_data),
        uses_(graph.tensors.size(), 0),
        producer_(graph.tensors.size(), 0) {
    for (std::size_t o = 0; o < graph.operators.size(); ++o) {
      for (const int t : graph.operators[o].inputs) ++uses_[at(t)];
      for (const int t : graph.operators[o].outputs) producer_[at(t)] = static_cast<int>(o);
    }
  }

  LayerChain read() {
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      const int layer = is_layer(op) ? add_layer(static_cast<int>(o)) : join_home(op);
      chain_.home.push_back(layer);
      for (const int t : op.outputs) home_of_tensor_[at(t)] = layer;
    }
    return std::move(chain_);
  }

 private:
  static constexpr int from_data = -1;
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  static bool is_searched(const Operator& op) {
    return op.kind == OperatorKind::linear || op.kind == OperatorKind::embedding;
  }
  static bool is_layer(const Operator& op) {
    return is_searched(op) || op.kind == OperatorKind::convolution || op.kind == OperatorKind::batch_norm;
  }

  std::int64_t new_parameters(const Operator& op, int layer) {
    std::int64_t elements = 0;
    for (const int p : op.parameters) {
      if (first_user_.emplace(p, layer).second) elements += graph_.parameters[at(p)].num_elements();
    }
    return elements;
  }

  int repeats(const Operator& op, int index) {
    if (op.block < 0) return num_places_++;
    const Block& block = graph_.blocks[at(op.block)];
    const auto [found, is_new] = place_.try_emplace({block.shape_class, index - block.first_operator}, num_places_);
    if (is_new) ++num_places_;
    return found->second;
  }

  int add_layer(int index) {
    const Operator& op = graph_.operators[at(index)];
    const int number = static_cast<int>(chain_.layers.size());
    const int input_home = home_of_tensor_[at(op.inputs[0])];
    const std::int64_t input_elements = graph_.tensors[at(op.inputs[0])].elements_per_sample();
    const std::int64_t output_elements = graph_.tensors[at(op.outputs[0])].elements_per_sample();
    Layer layer{.op = index, .name = op.name, .is_searched = is_searched(op)};
    layer.is_embedding = op.kind == OperatorKind::embedding;
    layer.reads_data = input_home == from_data;
    layer.is_behind_images = !layer.reads_data && !chain_.layers[at(input_home)].is_searched;
    layer.block = op.block;
    layer.repeats = repeats(op, index);
    if (layer.is_searched) {
      layer.in = op.attributes.integer(layer.is_embedding ? "vocabulary" : "in");
      layer.out = op.attributes.integer(layer.is_embedding ? "width" : "out");
      layer.rows = output_elements / layer.out;
    } else {
      layer.in = input_elements;
      layer.out = output_elements;
    }
    if (const auto tied = first_user_.find(op.parameters[0]); tied != first_user_.end()) {
      layer.tied_weight = tied->second;
      layer.shares_weight = chain_.layers[at(tied->second)].shares_weight = true;
    }
    layer.parameters = new_parameters(op, number);
    chain_.layers.push_back(std::move(layer));
    if (input_home != from_data) {
      chain_.links.push_back(
          {.from = input_home,
           .to = number,
           .elements = input_elements,
           .gathers = true,
           // Images are samples on every rank: they can be gathered along them.
           .is_unary = leads_through(op.inputs[0], is_unary) || is_image(graph_.tensors[at(op.inputs[0])]),
           .is_branch = leads_through(op.inputs[0], is_branch)});
    }
    return number;
  }

  /// From the output of a searched layer to @p tensor through such operators alone, each output read by nothing else.
  bool leads_through(int tensor, bool (*such)(OperatorKind)) const {
    for (;;) {
      if (uses_[at(tensor)] != 1) return false;
      const Operator& producer = graph_.operators[at(producer_[at(tensor)])];
      if (is_layer(producer)) return is_searched(producer);
      if (!such(producer.kind)) return false;
      tensor = producer.inputs[0];
    }
  }

  /// The latest home among the inputs; what comes from elsewhere is brought there.
  int join_home(const Operator& op) {
    int home = from_data;
    for (const int t : op.inputs) home = std::max(home, home_of_tensor_[at(t)]);
    if (home == from_data) {
      throw Unsupported(
          fmt::format("layouts: {} ({}) stands before every layer with weights: where its rows and "
                      "features are is not known",
                      op.name, to_string(op.kind)));
    }
    for (const int t : op.inputs) {
      const int from = home_of_tensor_[at(t)];
      if (from == from_data || from == home) continue;
      chain_.links.push_back(
          {.from = from, .to = home, .elements = graph_.tensors[at(t)].elements_per_sample(), .gathers = false});
    }
    Layer& layer = chain_.layers[at(home)];
    layer.parameters += new_parameters(op, home);
    note_limits(op, layer);
    return home;
  }

  void note_limits(const Operator& op, Layer& layer) const {
    const auto elements = [&](int tensor) { return graph_.tensors[at(tensor)].elements_per_sample(); };
    switch (op.kind) {
      case OperatorKind::attention:
      case OperatorKind::rotary:
        layer.of_home.push_back({op.attributes.integer("heads"), "heads of " + op.name});
        layer.of_home.push_back({op.attributes.integer("kv_heads"), "key and value heads of " + op.name});
        break;
      case OperatorKind::swiglu:
        layer.of_home.push_back({op.attributes.integer("width"), "features of " + op.name});
        break;
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm:
        // Two sums of a row forward, and two sums of products backward; of rms one of them is 0.
        layer.forward_statistics += 2 * elements(op.outputs[0]) / op.attributes.integer("width");
        layer.backward_statistics += 2 * elements(op.outputs[0]) / op.attributes.integer("width");
        break;
      case OperatorKind::cross_entropy:
        // Maximum, sum of exponentials, the target's logit; backward needs nothing more.
        layer.forward_statistics += 3 * elements(op.outputs[0]);
        break;
      default: break;
    }
  }

  const ModelGraph& graph_;
  LayerChain chain_;
  std::vector<int> home_of_tensor_;           ///< a layer, or from_data
  std::vector<int> uses_;                     ///< by tensor: operators that read it
  std::vector<int> producer_;                 ///< by tensor that an operator writes
  std::map<int, int> first_user_;             ///< by parameter: a layer
  std::map<std::pair<int, int>, int> place_;  ///< by shape class and place in the block
  int num_places_ = 0;
};

}  // namespace

LayerChain layer_chain(const ModelGraph& graph) { return ChainReader(graph).read(); }

void multiply_by(MatmulAlgorithm algorithm, int directions, LayerChain& chain) {
  for (Layer& layer : chain.layers) {
    if (!layer.is_searched || layer.is_embedding) continue;
    layer.algorithm = algorithm;
    layer.directions = directions;
  }
}

void sum_by(PartialSums sum, LayerChain& chain) {
  for (Layer& layer : chain.layers) {
    if (layer.is_searched) layer.sum = sum;
  }
}

Layout local_layout(const Layer& layer, const Layout& layout) {
  if (layer.algorithm != MatmulAlgorithm::summa) return layout;
  return {.p0 = product(layout.p0, layout.p1), .p1 = {}, .p2 = layout.p2};
}

}  // namespace strata

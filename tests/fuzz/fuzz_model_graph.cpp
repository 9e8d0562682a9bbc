/// @file
/// A model as text.

#include "fuzz/fuzz_target.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::fuzz::model_graph_text {

STRATA_FUZZ_TARGET(model_graph) {
  const auto graph = unless_refused("model graph", [&] { return parse_model_graph(text_of(bytes)); });
  if (!graph) return;
  const std::string text = to_text(*graph);
  require(parse_model_graph(text) == *graph, "a graph and its text differ:\n" + text);
  require(graph->num_parameters() >= 0, "fewer elements than none");
  for (const Operator& op : graph->operators) {
    require(forward_flops(*graph, op, 3) >= 0.0 && backward_flops(*graph, op, 3) >= 0.0, "work of less than nothing");
    for (const int tensor : saved_for_backward(op)) {
      require(tensor >= 0 && static_cast<std::size_t>(tensor) < graph->tensors.size(), "saves what is no tensor");
    }
  }
}

}  // namespace strata::fuzz::model_graph_text

/// @file
/// The rules of a ModelGraph. A graph that passes can be lowered without looking at shapes again, so every shape that
/// an attribute implies is checked here, once.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>

#include "base/as_index.hpp"
#include "base/error.hpp"
#include "ir/model/block_shape.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/model/operator_table.hpp"

namespace strata {
namespace {

using Shape = std::vector<std::int64_t>;

bool in_range(int id, std::size_t size) { return id >= 0 && as_index(id) < size; }

double elements_of(const Shape& shape) {
  double elements = 1.0;
  for (const std::int64_t size : shape) elements *= static_cast<double>(size);
  return elements;
}

bool is_graph_input(TensorRole role) {
  return role == TensorRole::tokens || role == TensorRole::targets || role == TensorRole::image;
}

/// The rules of one operator, whose ids are in range.
class OperatorCheck {
 public:
  OperatorCheck(const ModelGraph& graph, const Operator& op)
      : graph_(graph), op_(op), row_(operator_table::row(op.kind)) {}

  void run() const {
    counts();
    attributes();
    roles();
    shapes();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InternalError(
        fmt::format("model graph `{}`, operator `{}` ({}): {}", graph_.name, op_.name, row_.name, message));
  }
  template <class... Args>
  void require(bool condition, fmt::format_string<const Args&...> message, const Args&... args) const {
    if (!condition) fail(fmt::format(message, args...));
  }
  const Tensor& input(std::size_t i) const { return graph_.tensors[as_index(op_.inputs[i])]; }
  const Tensor& output(std::size_t i) const { return graph_.tensors[as_index(op_.outputs[i])]; }
  std::int64_t attribute(std::string_view key) const { return op_.attributes.integer(key); }

  void counts() const {
    require(op_.inputs.size() == row_.num_inputs, "{} inputs, must be {}", op_.inputs.size(), row_.num_inputs);
    require(op_.outputs.size() == row_.num_outputs, "{} outputs, must be {}", op_.outputs.size(), row_.num_outputs);
    require(op_.parameters.size() >= row_.min_parameters && op_.parameters.size() <= row_.max_parameters,
            "{} parameters, must be {} to {}", op_.parameters.size(), row_.min_parameters, row_.max_parameters);
  }

  /// Removes each key of @p keys from @p left, which must hold it with the right type.
  template <class Type>
  void take(std::string_view keys, std::map<std::string, Attributes::Value, std::less<>>& left) const {
    while (!keys.empty()) {
      const std::string_view key = keys.substr(0, keys.find(' '));
      keys.remove_prefix(std::min(keys.size(), key.size() + 1));
      const auto entry = left.find(key);
      if (entry == left.end() || !std::holds_alternative<Type>(entry->second)) {
        fail(fmt::format("attribute `{}` is missing or of the wrong type in `{}`", key, to_text(op_.attributes)));
      }
      left.erase(entry);
    }
  }

  void attributes() const {
    std::map<std::string, Attributes::Value, std::less<>> left;
    for (const Attributes::Entry& entry : op_.attributes.entries()) {
      left[entry.key] = entry.value;
      const auto* integer = std::get_if<std::int64_t>(&entry.value);
      const bool may_be_zero = entry.key == "causal" || entry.key == "padding";
      // The upper bound keeps products of two in 64 bits, whatever a text says.
      if (integer != nullptr && (*integer < (may_be_zero ? 0 : 1) || *integer > std::int64_t{1} << 30)) {
        fail(fmt::format("attribute `{}` out of range in `{}`", entry.key, to_text(op_.attributes)));
      }
    }
    take<std::int64_t>(row_.integers, left);
    for (const Attributes::Entry& entry : op_.attributes.entries()) {
      const auto* real = std::get_if<double>(&entry.value);
      require(real == nullptr || std::isfinite(*real), "attribute `{}` is not finite", entry.key);
    }
    take<double>(row_.reals, left);
    if (!left.empty()) fail(fmt::format("unknown attribute `{}`", left.begin()->first));
    for (const char* key : {"dropout", "probability"}) {
      const double probability = op_.attributes.real_or(key, 0.0);
      require(probability >= 0.0 && probability < 1.0, "{} = {}, must be in [0, 1)", key, probability);
    }
  }

  void role(const Tensor& tensor, TensorRole expected) const {
    require(tensor.role == expected, "tensor `{}` has role {}, must be {}", tensor.name, to_string(tensor.role),
            to_string(expected));
  }

  void roles() const {
    const bool embeds = op_.kind == OperatorKind::embedding;
    const bool ends = op_.kind == OperatorKind::cross_entropy || op_.kind == OperatorKind::top_k;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      if (embeds || (ends && i == 1)) {
        role(input(i), embeds ? TensorRole::tokens : TensorRole::targets);
      } else {
        require(input(i).role == TensorRole::activation || input(i).role == TensorRole::image,
                "input `{}` has role {}, must be activation or image", input(i).name, to_string(input(i).role));
      }
    }
    role(output(0), ends ? TensorRole::loss : TensorRole::activation);
    for (std::size_t i = 1; i < op_.outputs.size(); ++i) {
      role(output(i), ends                                 ? TensorRole::loss
                      : op_.kind == OperatorKind::max_pool ? TensorRole::indices
                                                           : TensorRole::statistic);
    }
  }

  void shape(const Tensor& tensor, const Shape& expected) const {
    require(tensor.shape == expected, "tensor `{}` has shape {}, must be {}", tensor.name, tensor.shape, expected);
  }
  void parameter(std::size_t i, const Shape& expected) const {
    if (i >= op_.parameters.size()) return;  // an optional one
    const Parameter& p = graph_.parameters[as_index(op_.parameters[i])];
    require(p.shape == expected, "parameter `{}` has shape {}, must be {}", p.name, p.shape, expected);
  }
  void last_dim(const Tensor& tensor, std::int64_t width) const {
    require(!tensor.shape.empty() && tensor.shape.back() == width, "tensor `{}` has shape {}, its last dim must be {}",
            tensor.name, tensor.shape, width);
  }
  static Shape with_last(Shape shape, std::int64_t width) {
    shape.back() = width;
    return shape;
  }

  void heads() const {
    require(attribute("heads") % attribute("kv_heads") == 0, "{} heads over {} kv_heads", attribute("heads"),
            attribute("kv_heads"));
    require(input(0).shape.size() == 2, "qkv has shape {}, must be [s, width]", input(0).shape);
    last_dim(input(0), (attribute("heads") + 2 * attribute("kv_heads")) * attribute("head_dim"));
  }

  std::int64_t slid(const char* size) const {
    const std::int64_t room = attribute(size) + 2 * attribute("padding") - attribute("kernel");
    require(room >= 0, "kernel {} over {} {}", attribute("kernel"), size, attribute(size));
    return room / attribute("stride") + 1;
  }

  void shapes() const {
    switch (op_.kind) {
      case OperatorKind::embedding: {
        const std::int64_t width = attribute("width");
        require(input(0).shape.size() == 1, "tokens must have shape [s]");
        const std::int64_t sequence = input(0).shape[0];
        shape(output(0), {sequence, width});
        parameter(0, {attribute("vocabulary"), width});
        if (op_.parameters.size() > 1) {
          const Parameter& positions = graph_.parameters[as_index(op_.parameters[1])];
          require(positions.shape.size() == 2 && positions.shape[0] >= sequence && positions.shape[1] == width,
                  "parameter `{}` has shape {}, must be [at least {}, {}]", positions.name, positions.shape, sequence,
                  width);
        }
        return;
      }
      case OperatorKind::linear: {
        const std::int64_t in = attribute("in");
        const std::int64_t out = attribute("out");
        if (is_image(input(0))) {
          require(input(0).elements_per_sample() == in, "image `{}` has shape {}: its size must be in = {}",
                  input(0).name, input(0).shape, in);
          shape(output(0), {out});
        } else {
          last_dim(input(0), in);
          shape(output(0), with_last(input(0).shape, out));
        }
        parameter(0, {out, in});
        parameter(1, {out});
        return;
      }
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm: {
        const std::int64_t width = attribute("width");
        last_dim(input(0), width);
        shape(output(0), input(0).shape);
        Shape statistics = input(0).shape;
        statistics.pop_back();
        if (op_.kind == OperatorKind::layer_norm) statistics.push_back(2);
        shape(output(1), statistics);
        parameter(0, {width});
        parameter(1, {width});
        return;
      }
      case OperatorKind::rotary:
        heads();
        require(attribute("head_dim") % 2 == 0, "head_dim = {} is odd", attribute("head_dim"));
        shape(output(0), input(0).shape);
        return;
      case OperatorKind::attention: {
        heads();
        const std::int64_t sequence = input(0).shape[0];
        shape(output(0), {sequence, attribute("heads") * attribute("head_dim")});
        shape(output(1), {attribute("heads"), sequence});
        require(attribute("causal") <= 1, "causal must be 0 or 1");
        return;
      }
      case OperatorKind::swiglu:
        last_dim(input(0), 2 * attribute("width"));
        shape(output(0), with_last(input(0).shape, attribute("width")));
        return;
      case OperatorKind::add: shape(input(1), input(0).shape); [[fallthrough]];
      case OperatorKind::gelu:
      case OperatorKind::gelu_erf:
      case OperatorKind::relu:
      case OperatorKind::dropout: shape(output(0), input(0).shape); return;
      case OperatorKind::convolution: {
        const std::int64_t in = attribute("in");
        const std::int64_t out = attribute("out");
        shape(input(0), {attribute("height"), attribute("width"), in});
        shape(output(0), {slid("height"), slid("width"), out});
        parameter(0, {out, attribute("kernel"), attribute("kernel"), in});
        parameter(1, {out});
        return;
      }
      case OperatorKind::max_pool:
        // A window that lies in the padding alone has no maximum, and the position in a window is one byte.
        require(2 * attribute("padding") <= attribute("kernel") && attribute("kernel") * attribute("kernel") <= 255,
                "kernel {} with padding {}", attribute("kernel"), attribute("padding"));
        shape(input(0), {attribute("height"), attribute("width"), attribute("channels")});
        shape(output(0), {slid("height"), slid("width"), attribute("channels")});
        shape(output(1), output(0).shape);
        return;
      case OperatorKind::average_pool:
        shape(input(0), {attribute("height"), attribute("width"), attribute("channels")});
        shape(output(0), {attribute("channels")});
        return;
      case OperatorKind::class_token: {
        const std::int64_t channels = attribute("channels");
        const std::int64_t tokens = attribute("height") * attribute("width") + 1;
        shape(input(0), {attribute("height"), attribute("width"), channels});
        shape(output(0), {tokens, channels});
        parameter(0, {channels});
        parameter(1, {tokens, channels});
        return;
      }
      case OperatorKind::first_row:
        require(input(0).shape.size() == 2, "input has shape {}, must be [s, width]", input(0).shape);
        last_dim(input(0), attribute("width"));
        shape(output(0), {attribute("width")});
        return;
      case OperatorKind::batch_norm: {
        const std::int64_t channels = attribute("channels");
        last_dim(input(0), channels);
        shape(output(0), input(0).shape);
        shape(output(1), {2 * channels});
        parameter(0, {channels});
        parameter(1, {channels});
        return;
      }
      case OperatorKind::batch_norm_inference: {
        const std::int64_t channels = attribute("channels");
        last_dim(input(0), channels);
        shape(output(0), input(0).shape);
        for (std::size_t i = 0; i < op_.parameters.size(); ++i) parameter(i, {channels});
        return;
      }
      case OperatorKind::cross_entropy:
      case OperatorKind::top_k: {
        last_dim(input(0), attribute("classes"));
        Shape positions = input(0).shape;
        positions.pop_back();
        shape(input(1), positions);
        for (std::size_t i = 0; i < op_.outputs.size(); ++i) shape(output(i), positions);
        return;
      }
      case OperatorKind::redistribute: fail("a model knows of no ranks");
    }
    fail("no such operator kind");
  }

  const ModelGraph& graph_;
  const Operator& op_;
  const operator_table::Row& row_;
};

class GraphCheck {
 public:
  explicit GraphCheck(const ModelGraph& graph) : graph_(graph) {}

  void run() const {
    name("model graph", graph_.name);
    require(graph_.positions_per_sample > 0, "positions_per_sample must be positive");
    names();
    operators();
    blocks();
  }

 private:
  template <class... Args>
  void require(bool condition, fmt::format_string<const Args&...> message, const Args&... args) const {
    if (!condition)
      throw InternalError(fmt::format("model graph `{}`: {}", graph_.name, fmt::format(message, args...)));
  }

  void name(std::string_view what, const std::string& text) const {
    // The text form separates words by spaces and lists by commas.
    require(!text.empty() && text.find_first_of(" \t\n,#") == std::string::npos,
            "{} name `{}` is empty or has spaces, commas or `#`", what, text);
  }

  template <class Entity>
  void unique(std::string_view what, const std::vector<Entity>& entities) const {
    std::set<std::string_view> seen;
    for (const Entity& entity : entities) {
      name(what, entity.name);
      require(seen.insert(entity.name).second, "{} `{}` exists twice", what, entity.name);
    }
  }

  void names() const {
    unique("tensor", graph_.tensors);
    unique("parameter", graph_.parameters);
    unique("operator", graph_.operators);
    unique("block", graph_.blocks);
    const auto positive = [&](std::string_view what, const std::string& entity, const Shape& shape) {
      double elements = 1.0;
      for (const std::int64_t size : shape) {
        elements *= static_cast<double>(size);
        require(size > 0 && elements < 0x1.0p62, "{} `{}` has shape {}", what, entity, shape);
      }
    };
    for (const Tensor& tensor : graph_.tensors) positive("tensor", tensor.name, tensor.shape);
    double all_elements = 0.0;
    for (const Parameter& parameter : graph_.parameters) {
      positive("parameter", parameter.name, parameter.shape);
      require(!parameter.shape.empty(), "parameter `{}` has no dims", parameter.name);
      const Initializer& initializer = parameter.initializer;
      require(std::isfinite(initializer.a) && std::isfinite(initializer.b),
              "the initializer of parameter `{}` is not finite", parameter.name);
      all_elements += elements_of(parameter.shape);
      require(all_elements < 0x1.0p62, "parameters of more than 2^62 elements");
    }
  }

  /// Ids, order and producers; then each operator's own rules.
  void operators() const {
    std::vector<bool> available(graph_.tensors.size());
    std::vector<bool> read(graph_.tensors.size());
    std::vector<bool> used(graph_.parameters.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      available[t] = is_graph_input(graph_.tensors[t].role);
    }
    for (const Operator& op : graph_.operators) {
      const auto fail_unless = [&]<class... Args>(bool condition, fmt::format_string<const Args&...> message,
                                                  const Args&... args) {
        if (!condition) require(false, "operator `{}`: {}", op.name, fmt::format(message, args...));
      };
      for (const int t : op.inputs) {
        fail_unless(in_range(t, graph_.tensors.size()), "input tensor {} does not exist", t);
        fail_unless(available[as_index(t)], "reads `{}` before any operator writes it",
                    graph_.tensors[as_index(t)].name);
        read[as_index(t)] = true;
      }
      for (const int p : op.parameters) {
        fail_unless(in_range(p, graph_.parameters.size()), "parameter {} does not exist", p);
        used[as_index(p)] = true;
      }
      for (const int t : op.outputs) {
        fail_unless(in_range(t, graph_.tensors.size()), "output tensor {} does not exist", t);
        fail_unless(!available[as_index(t)], "writes `{}`, which is an input of the graph or already written",
                    graph_.tensors[as_index(t)].name);
        available[as_index(t)] = true;
      }
      OperatorCheck(graph_, op).run();
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      require(available[t], "no operator writes tensor `{}`", tensor.name);
      require(read[t] || !is_graph_input(tensor.role), "nothing reads the input `{}`", tensor.name);
    }
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      require(used[p], "no operator uses parameter `{}`", graph_.parameters[p].name);
    }
  }

  void blocks() const {
    std::vector<int> block_of(graph_.operators.size(), -1);
    int end = 0;
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) {
      const Block& block = graph_.blocks[b];
      // Subtraction, not addition: a wrong number from a text must not overflow.
      require(block.num_operators > 0 && block.first_operator >= end &&
                  block.num_operators <= static_cast<int>(graph_.operators.size()) - block.first_operator,
              "block `{}` has {} operators from {}: blocks stand in order, do not overlap and lie within "
              "the {} operators",
              block.name, block.num_operators, block.first_operator, graph_.operators.size());
      end = block.first_operator + block.num_operators;
      for (int i = block.first_operator; i < end; ++i) block_of[as_index(i)] = static_cast<int>(b);
    }
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      const Operator& op = graph_.operators[i];
      require(op.block == block_of[i], "operator `{}` says block {}, the blocks say {}", op.name, op.block,
              block_of[i]);
    }
    std::map<int, const Block*> first_of_class;
    for (const Block& block : graph_.blocks) {
      const Block& first = *first_of_class.emplace(block.shape_class, &block).first->second;
      require(same_shape(graph_, first, block), "blocks `{}` and `{}` share shape class {} but differ", first.name,
              block.name, block.shape_class);
    }
  }

  const ModelGraph& graph_;
};

}  // namespace

void verify(const ModelGraph& graph) { GraphCheck(graph).run(); }

}  // namespace strata

/// @file
/// One pass over the operators collects what the formulas need; each formula is one line.

#include "cost/flops_convention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr std::array<std::string_view, 6> names = {"megatron", "sc21", "internevo", "palm", "torchtitan", "operators"};

/// What the formulas need of a transformer, layer by layer, in the order of its operators.
struct Transformer {
  double sequence = 0.0;
  double vocabulary = 0.0;
  std::vector<std::int64_t> attention_widths;  ///< q = heads · head size
  std::vector<std::int64_t> hidden_sizes;      ///< inputs of what feeds each attention
  std::vector<std::int64_t> ffn_widths;
  bool gated = false;
  double linear_weights = 0.0;     ///< elements, once a use: a tied table counts where it multiplies
  double lookup_parameters = 0.0;  ///< elements of tables that only embeddings use
};

class TransformerReader {
 public:
  TransformerReader(const ModelGraph& graph, FlopsConvention convention) : graph_(graph), convention_(convention) {}

  Transformer read() {
    for (const Operator& op : graph_.operators) {
      read_operator(op);
    }
    require(!shape_.attention_widths.empty(), "needs a transformer: the graph has no attention");
    require(shape_.vocabulary > 0.0, "needs a loss over a vocabulary");
    for (const int p : embedded_) {
      if (multiplied_.count(p) == 0) {
        shape_.lookup_parameters += static_cast<double>(graph_.parameters[static_cast<std::size_t>(p)].num_elements());
      }
    }
    return shape_;
  }

  void require(bool condition, std::string_view message) const {
    if (!condition) {
      throw Unsupported(
          fmt::format("FLOPs convention `{}`, model graph `{}`: {}", to_string(convention_), graph_.name, message));
    }
  }

 private:
  const Operator* producer(int tensor) const {
    for (const Operator& op : graph_.operators) {
      if (op.outputs.front() == tensor) return &op;
    }
    return nullptr;
  }

  void read_operator(const Operator& op) {
    const Attributes& a = op.attributes;
    switch (op.kind) {
      case OperatorKind::linear:
        shape_.linear_weights += static_cast<double>(a.integer("in")) * static_cast<double>(a.integer("out"));
        multiplied_.insert(op.parameters.front());
        break;
      case OperatorKind::embedding: embedded_.insert(op.parameters.begin(), op.parameters.end()); break;
      case OperatorKind::attention: read_attention(op); break;
      case OperatorKind::gelu:
      case OperatorKind::gelu_erf:
      case OperatorKind::relu:
      case OperatorKind::swiglu: {
        const bool gated = op.kind == OperatorKind::swiglu;
        require(shape_.ffn_widths.empty() || shape_.gated == gated, "gated and plain MLPs are mixed");
        shape_.gated = gated;
        shape_.ffn_widths.push_back(graph_.tensors[static_cast<std::size_t>(op.outputs.front())].shape.back());
        break;
      }
      case OperatorKind::cross_entropy: shape_.vocabulary = static_cast<double>(a.integer("classes")); break;
      case OperatorKind::convolution:
        require(false, fmt::format("has no term for the convolution `{}`; `operators` counts it", op.name));
        break;
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm:
      case OperatorKind::rotary:
      case OperatorKind::add:
      case OperatorKind::dropout:
      case OperatorKind::max_pool:
      case OperatorKind::average_pool:
      case OperatorKind::class_token:
      case OperatorKind::first_row:
      case OperatorKind::batch_norm:
      case OperatorKind::batch_norm_inference:
      case OperatorKind::top_k:
      case OperatorKind::redistribute: break;
    }
  }

  void read_attention(const Operator& op) {
    const Attributes& a = op.attributes;
    const auto sequence = static_cast<double>(graph_.tensors[static_cast<std::size_t>(op.inputs.front())].shape[0]);
    require(shape_.attention_widths.empty() || shape_.sequence == sequence, "attention over different lengths");
    require(static_cast<std::int64_t>(sequence) == graph_.positions_per_sample,
            fmt::format("counts a token, but attention runs over {} positions and a sample has {}", sequence,
                        graph_.positions_per_sample));
    require(convention_ != FlopsConvention::megatron || a.integer("causal") != 0,
            fmt::format("halves attention, and `{}` is not causal", op.name));
    shape_.sequence = sequence;
    shape_.attention_widths.push_back(a.integer("heads") * a.integer("head_dim"));
    const Operator* source = producer(op.inputs.front());
    while (source != nullptr && source->kind != OperatorKind::linear) {
      source = producer(source->inputs.front());  // rotary
    }
    require(source != nullptr, fmt::format("no linear feeds `{}`", op.name));
    shape_.hidden_sizes.push_back(source->attributes.integer("in"));
  }

  const ModelGraph& graph_;
  FlopsConvention convention_;
  Transformer shape_;
  std::set<int> embedded_;
  std::set<int> multiplied_;
};

/// The one value of a formula that knows one: h and f of every layer.
double uniform(const TransformerReader& reader, std::string_view what, const std::vector<std::int64_t>& values,
               std::size_t layers) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  reader.require(values.size() == layers, fmt::format("{} layers but {} of {}", layers, values.size(), what));
  reader.require(*low == *high, fmt::format("needs equal layers, but {} goes from {} to {}", what, *low, *high));
  return static_cast<double>(*low);
}

double operator_flops(const ModelGraph& graph) {
  double flops = 0.0;
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::linear || op.kind == OperatorKind::convolution || op.kind == OperatorKind::attention) {
      flops += forward_flops(graph, op, 1) + backward_flops(graph, op, 1);
    }
  }
  return flops / static_cast<double>(graph.positions_per_sample);
}

}  // namespace

std::string_view to_string(FlopsConvention convention) { return names.at(static_cast<std::size_t>(convention)); }

FlopsConvention parse_flops_convention(std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) {
      return static_cast<FlopsConvention>(i);
    }
  }
  throw UserError(fmt::format("unknown FLOPs convention `{}`; accepted: {}", text, fmt::join(names, ", ")));
}

FlopsConvention default_flops_convention(const ModelGraph& graph) {
  // Of tokens that each see those before: what attends in an image sees all of it, and is counted by operators.
  const bool is_causal = std::any_of(graph.operators.begin(), graph.operators.end(), [](const Operator& op) {
    return op.kind == OperatorKind::attention && op.attributes.integer("causal") != 0;
  });
  return is_causal ? FlopsConvention::megatron : FlopsConvention::operators;
}

double training_flops_per_position(const ModelGraph& graph, FlopsConvention convention, bool recomputes) {
  if (convention == FlopsConvention::operators) {
    return operator_flops(graph);
  }
  TransformerReader reader(graph, convention);
  const Transformer model = reader.read();
  const std::size_t layers = model.attention_widths.size();
  const double num_layers = static_cast<double>(layers);
  const double s = model.sequence;
  const double vocabulary = model.vocabulary;
  double attention = 0.0;  // Σ q s over the layers
  for (const std::int64_t q : model.attention_widths) {
    attention += static_cast<double>(q) * s;
  }
  switch (convention) {
    case FlopsConvention::megatron: return 6.0 * model.linear_weights + 6.0 * attention;
    case FlopsConvention::sc21: {
      const double h = uniform(reader, "hidden", model.hidden_sizes, layers);
      const double c = model.gated ? 32.0 : 24.0;
      const double k = recomputes ? 4.0 : 3.0;
      return c * k * num_layers * h * h * (1.0 + s / (6.0 * h) + vocabulary / (16.0 * num_layers * h));
    }
    case FlopsConvention::internevo: {
      const double h = uniform(reader, "hidden", model.hidden_sizes, layers);
      const double f = uniform(reader, "ffn_hidden", model.ffn_widths, layers);
      const double r = (model.gated ? 1.5 : 1.0) * f / h;
      return 3.0 * ((8.0 + 4.0 * r) * h * h + 4.0 * s * h) * num_layers + 6.0 * h * vocabulary;
    }
    case FlopsConvention::palm: return 6.0 * static_cast<double>(graph.num_parameters()) + 12.0 * attention;
    case FlopsConvention::torchtitan:
      return 6.0 * (static_cast<double>(graph.num_parameters()) - model.lookup_parameters) + 12.0 * attention;
    case FlopsConvention::operators: break;
  }
  throw InternalError("no such FLOPs convention");
}

}  // namespace strata

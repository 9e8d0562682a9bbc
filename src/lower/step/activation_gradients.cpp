#include "lower/step/activation_gradients.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "partition/operator_splitting.hpp"

namespace strata {
namespace {

/// How the gradient of an operator's inputs comes about.
enum class Way : std::uint8_t {
  none,       ///< it does not in backward
  writes,     ///< a kernel writes it
  adds,       ///< a kernel writes it, or adds it
  in_place,   ///< a kernel writes it, perhaps over the gradient of the output
  passes_on,  ///< it is that of the output
};

Way way_of(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::embedding:
    case OperatorKind::cross_entropy:
    case OperatorKind::batch_norm_inference:
    case OperatorKind::top_k: return Way::none;
    case OperatorKind::linear:
      // Products by panels or blocks, and those whose parts are summed over ranks, have all of it before it can be
      // added.
      return op.attributes.has("summa") || op.attributes.has("ring") || op.attributes.has("sum_gradient_over")
                 ? Way::writes
                 : Way::adds;
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm: return Way::adds;
    // oneDNN's convolution writes its result, its matrix product can add.
    case OperatorKind::convolution:
    case OperatorKind::attention:
    case OperatorKind::swiglu:
    case OperatorKind::max_pool:
    case OperatorKind::average_pool:
    case OperatorKind::batch_norm:
    case OperatorKind::class_token:
    case OperatorKind::first_row:
    case OperatorKind::redistribute: return Way::writes;
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::relu:
    case OperatorKind::rotary:
    case OperatorKind::dropout: return Way::in_place;
    case OperatorKind::add: return Way::passes_on;
  }
  throw InternalError("no such operator");
}

/// Its kernel makes the gradient of its input beside those of its parameters, whether anybody needs it or not.
bool always_makes_input_gradient(OperatorKind kind) {
  return kind == OperatorKind::layer_norm || kind == OperatorKind::rms_norm || kind == OperatorKind::batch_norm ||
         kind == OperatorKind::class_token;
}

/// Goes along the operators of a part, the last one first.
class WayBack {
 public:
  WayBack(const ModelGraph& graph, const TensorUses& uses)
      : graph_(graph), uses_(uses), place_of_(graph.tensors.size(), -1) {
    gradients_.operators.resize(graph.operators.size());
  }

  void go(const Stage& part) {
    // The loss has made its gradient in forward, and what comes from the next part comes first.
    for (int o = part.first_operator; o < part.end(); ++o) make_in_forward(o);
    if (part.end() < std::ssize(graph_.operators)) {
      for (const int t : crossing(part.end())) gradients_.received[t] = make(t);
    }
    for (int o = part.end(); o-- > part.first_operator;) go_back(o);
    if (part.first_operator > 0) {
      for (const int t : crossing(part.first_operator)) gradients_.sent[t] = place_of_[static_cast<std::size_t>(t)];
    }
  }

  ActivationGradients gradients() && { return std::move(gradients_); }

 private:
  using Contribution = ActivationGradients::Contribution;

  std::vector<int> crossing(int cut) const {
    std::vector<int> tensors = tensors_across(graph_, cut);
    std::erase_if(tensors, [&](int t) { return !uses_.needs_gradient[static_cast<std::size_t>(t)]; });
    return tensors;
  }

  int new_place(int tensor) {
    gradients_.tensors.push_back(tensor);
    num_tensors_.push_back(0);
    return static_cast<int>(gradients_.tensors.size()) - 1;
  }
  /// The gradient of @p tensor is in @p place.
  void put(int tensor, int place) {
    int& now = place_of_[static_cast<std::size_t>(tensor)];
    if (now >= 0) --num_tensors_[static_cast<std::size_t>(now)];
    now = place;
    if (place >= 0) ++num_tensors_[static_cast<std::size_t>(place)];
  }
  int make(int tensor) {
    const int place = new_place(tensor);
    put(tensor, place);
    return place;
  }

  void make_in_forward(int o) {
    const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
    if (op.kind != OperatorKind::cross_entropy) return;
    const int logits = op.inputs.front();
    const int place = make(logits);
    // It is one of those whose backward reads them.
    const bool is_values = uses_.has_one_reader(logits, 1);
    gradients_.operators[static_cast<std::size_t>(o)].inputs = {
        {.place = place, .written = place, .is_values = is_values}};
  }

  void go_back(int o) {
    const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
    const Way way = way_of(op);
    const int y = op.outputs.front();
    const int dy = place_of_[static_cast<std::size_t>(y)];
    if (op.kind == OperatorKind::cross_entropy || dy < 0) return;
    ActivationGradients::OfOperator& of = gradients_.operators[static_cast<std::size_t>(o)];
    of.output = dy;
    of.inputs.resize(op.inputs.size());
    // Of all slices of an operator the first in the graph is the last that reads it.
    const std::optional<ColumnBlock> columns = columns_of(op);
    if (!columns || is_first(*columns)) put(y, -1);
    if (way == Way::none) return;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const int x = op.inputs[i];
      if (uses_.needs_gradient[static_cast<std::size_t>(x)]) {
        of.inputs[i] = columns && !is_last(*columns) ? like_slice_before(o, x) : contribution(way, x, dy);
      } else if (always_makes_input_gradient(op.kind)) {
        const int nobodys = new_place(x);
        of.inputs[i] = {.place = nobodys, .written = nobodys, .can_accumulate = way == Way::adds};
      }
    }
  }

  /// Slices write, or add to, their own columns of one gradient: what the last of them does, which goes back first,
  /// they all do.
  Contribution like_slice_before(int o, int x) const {
    Contribution c = gradients_.operators[static_cast<std::size_t>(o) + 1].inputs.front();
    STRATA_INVARIANT(c.place == place_of_[static_cast<std::size_t>(x)] && c.written == c.place,
                     "slices of an operator have one gradient");
    c.copy_of = -1;
    return c;
  }

  Contribution contribution(Way way, int x, int dy) {
    Contribution c{.can_accumulate = way == Way::adds};
    const int before = place_of_[static_cast<std::size_t>(x)];
    if (before < 0) {
      const bool is_free = num_tensors_[static_cast<std::size_t>(dy)] == 0;
      const bool stays = way == Way::passes_on || (way == Way::in_place && is_free);
      c.place = c.written = stays ? dy : new_place(x);
      put(x, c.place);
      return c;
    }
    if (way != Way::adds) c.written = way == Way::passes_on ? dy : new_place(x);
    if (num_tensors_[static_cast<std::size_t>(before)] > 1 || before == c.written) {
      c.copy_of = before;
      put(x, new_place(x));
    }
    c.place = place_of_[static_cast<std::size_t>(x)];
    if (way == Way::adds) {
      c.written = c.place;
      c.accumulate = true;
    }
    return c;
  }

  const ModelGraph& graph_;
  const TensorUses& uses_;
  ActivationGradients gradients_;
  std::vector<int> place_of_;     ///< by tensor: of its gradient, -1: none yet, or it has been read
  std::vector<int> num_tensors_;  ///< by place: whose gradient it is
};

}  // namespace

ActivationGradients activation_gradients(const ModelGraph& graph, const TensorUses& uses, const Stage& part) {
  WayBack way(graph, uses);
  way.go(part);
  return std::move(way).gradients();
}

}  // namespace strata

#include "lower/step/fusion.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace strata {
namespace {

bool overlap(const Operand& a, const Operand& b) {
  return a.buffer == b.buffer && a.begin < b.begin + b.num_elements && b.begin < a.begin + a.num_elements;
}

bool touches(const Instruction& in, const Operand& operand) {
  const auto is_it = [&](const Operand& own) { return overlap(own, operand); };
  return std::ranges::any_of(in.inputs, is_it) || std::ranges::any_of(in.outputs, is_it);
}

/// Windows of which MaxPoolDims::no_place (exec/kernel_dims.hpp) is no place.
constexpr std::int64_t largest_masked_window = 15;

/// Rows of what GELU is applied to are moved in vectors of so many elements: CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
constexpr std::int64_t gelu_vector = 8;

class Fusing {
 public:
  Fusing(std::vector<Instruction>& section, std::span<const int> spans)
      : section_(section), spans_(spans), computed_by_(section.size()) {
    std::iota(computed_by_.begin(), computed_by_.end(), 0);
  }

  std::vector<int> run(const Fusions& fusions) && {
    if (fusions.convolution_relu) for_neighbours([this](int i, int j) { put_relu_into_convolution(i, j); });
    if (fusions.max_pool_relu) for_neighbours([this](int i, int j) { put_relu_into_max_pool(i, j); });
    if (fusions.bias_gradient_first) for_neighbours([this](int i, int j) { move_bias_gradient(i, j); });
    if (fusions.add_norm) for_neighbours([this](int i, int j) { put_sum_into_norm(i, j); });
    if (fusions.linear_gelu) {
      for_neighbours([this](int i, int j) { put_gelu_into_linear(i, j); });
      for_neighbours([this](int i, int j) { put_gelu_gradient_into_linear(i, j); });
    }
    return std::move(computed_by_);
  }

 private:
  Instruction& at(int i) { return section_[static_cast<std::size_t>(i)]; }
  bool is_left_out(int i) const { return computed_by_[static_cast<std::size_t>(i)] != i; }
  int size() const { return static_cast<int>(section_.size()); }

  /// Calls body(i, j) for kernels of which j is the next one on its stream.
  template <typename Body>
  void for_neighbours(const Body& body) {
    for (int i = 0; i < size(); ++i) {
      if (is_left_out(i) || at(i).is_collective()) continue;
      const int span = spans_[static_cast<std::size_t>(i)];
      for (int j = i + 1; j < size() && spans_[static_cast<std::size_t>(j)] == span; ++j) {
        if (is_left_out(j) || at(j).stream != at(i).stream) continue;
        if (!at(j).is_collective()) body(i, j);
        break;
      }
    }
  }

  bool is_touched_between(int i, int j, const Operand& operand) {
    for (int between = i + 1; between < j; ++between) {
      if (!is_left_out(between) && touches(at(between), operand)) return true;
    }
    return false;
  }

  void put_relu_into_convolution(int i, int j) {
    Instruction& convolution = at(i);
    const Instruction& relu = at(j);
    if (convolution.kernel != Kernel::convolution_forward || relu.kernel != Kernel::relu_forward) return;
    const Operand& y = convolution.outputs.front();
    if (relu.inputs.front() != y || relu.outputs.front() != y || is_touched_between(i, j, y)) return;
    convolution.attributes.set("relu", 1);
    computed_by_[static_cast<std::size_t>(j)] = i;
  }

  /// What wrote @p indices for the kernel @p reader, where both alone have to do with them; null: another has too.
  Instruction* writer_of_indices(const Operand& indices, int reader) {
    Instruction* writer = nullptr;
    for (int i = 0; i < size(); ++i) {
      if (i == reader || is_left_out(i) || !touches(at(i), indices)) continue;
      if (writer != nullptr || at(i).kernel != Kernel::max_pool_forward || at(i).outputs[1] != indices) return nullptr;
      writer = &at(i);
    }
    return writer;
  }

  void put_relu_into_max_pool(int i, int j) {
    const Instruction& pool = at(i);
    const Instruction& relu = at(j);
    if (pool.kernel != Kernel::max_pool_backward || relu.kernel != Kernel::relu_backward) return;
    const Operand& dx = pool.outputs.front();
    if (relu.inputs.front() != dx || relu.outputs.front() != dx || is_touched_between(i, j, dx)) return;
    Instruction* const forward = writer_of_indices(pool.inputs[1], i);
    if (forward == nullptr || forward->inputs.front() != relu.inputs[1] ||
        forward->attributes.integer("kernel") > largest_masked_window) {
      return;
    }
    forward->attributes.set("relu", 1);
    computed_by_[static_cast<std::size_t>(j)] = i;
  }

  void move_bias_gradient(int i, int j) {
    Instruction& first = at(i);
    Instruction& weight = at(j);
    if (first.kernel != Kernel::relu_backward && first.kernel != Kernel::max_pool_backward) return;
    if (weight.kernel != Kernel::convolution_backward_weight || weight.outputs.size() < 2) return;
    const Operand dbias = weight.outputs[1];
    const Operand& dx = first.outputs.front();
    if (weight.inputs[1] != dx || is_touched_between(i, j, dx) || is_touched_between(i, j, dbias)) return;
    const std::int64_t accumulate = weight.attributes.integer_or("accumulate", 0);
    if (first.kernel == Kernel::relu_backward) first.attributes.set("channels", weight.attributes.integer("out"));
    first.attributes.set("accumulate", accumulate & 2);
    first.outputs.push_back(dbias);
    weight.attributes.set("accumulate", accumulate & 1);
    weight.outputs.pop_back();
  }

  /// Whether others than @p i and @p j have to do with @p operand.
  bool is_touched_beside(int i, int j, const Operand& operand) {
    for (int other = 0; other < size(); ++other) {
      if (other != i && other != j && !is_left_out(other) && touches(at(other), operand)) return true;
    }
    return false;
  }

  void put_gelu_into_linear(int i, int j) {
    Instruction& linear = at(i);
    const Instruction& gelu = at(j);
    if (linear.kernel != Kernel::linear_forward || gelu.kernel != Kernel::gelu_forward) return;
    const Operand before = linear.outputs.front();
    const Operand& y = gelu.outputs.front();
    if (gelu.inputs.front() != before || touches(linear, y) || linear.attributes.integer_or("accumulate", 0) != 0 ||
        linear.attributes.integer("out") % gelu_vector != 0 || is_touched_between(i, j, before) ||
        is_touched_between(i, j, y)) {
      return;
    }
    linear.attributes.set("gelu", 1);
    linear.outputs = {y};
    if (is_touched_beside(i, j, before)) linear.outputs.push_back(before);
    computed_by_[static_cast<std::size_t>(j)] = i;
  }

  void put_gelu_gradient_into_linear(int i, int j) {
    Instruction& linear = at(i);
    const Instruction& gelu = at(j);
    if (linear.kernel != Kernel::linear_backward_input || gelu.kernel != Kernel::gelu_backward) return;
    const Operand& dx = linear.outputs.front();
    const Operand& before = gelu.inputs[1];
    if (gelu.inputs.front() != dx || gelu.outputs.front() != dx || touches(linear, before) ||
        linear.attributes.integer_or("accumulate", 0) != 0 || linear.attributes.has("row") ||
        linear.attributes.integer("in") % gelu_vector != 0 || is_touched_between(i, j, dx) ||
        is_touched_between(i, j, before)) {
      return;
    }
    linear.attributes.set("gelu", 1);
    linear.inputs.push_back(before);
    computed_by_[static_cast<std::size_t>(j)] = i;
  }

  /// At the place of the norm: what its weights wait for may be emitted between the two.
  void put_sum_into_norm(int i, int j) {
    const Instruction& add = at(i);
    Instruction& norm = at(j);
    if (add.kernel != Kernel::add ||
        (norm.kernel != Kernel::layer_norm_forward && norm.kernel != Kernel::rms_norm_forward)) {
      return;
    }
    const Operand sum = add.outputs.front();
    const auto is_in_use = [&](const Operand& operand) { return is_touched_between(i, j, operand); };
    if (norm.inputs.front() != sum || touches(add, norm.outputs.front()) || is_in_use(sum) ||
        std::ranges::any_of(add.inputs, is_in_use)) {
      return;
    }
    norm.attributes.set("adds", 1);
    norm.inputs.front() = add.inputs[0];
    norm.inputs.push_back(add.inputs[1]);
    norm.outputs.push_back(sum);
    computed_by_[static_cast<std::size_t>(i)] = j;
  }

  std::vector<Instruction>& section_;
  std::span<const int> spans_;
  std::vector<int> computed_by_;
};

}  // namespace

std::vector<int> fuse(const Fusions& fusions, std::vector<Instruction>& section, std::span<const int> spans) {
  return Fusing(section, spans).run(fusions);
}

}  // namespace strata

#include "lower/step/logit_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/ceil_div.hpp"

namespace strata {
namespace {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool operator==(const Matrix&) const = default;
};

/// The operands of @p in whose rows may be apart: of one matrix.
struct Logits {
  Matrix matrix;
  std::vector<Operand*> operands;
};

std::optional<Logits> logits_of(Instruction& in) {
  const auto matrix = [&](const char* columns) {
    return Matrix{in.attributes.integer("rows"), in.attributes.integer(columns)};
  };
  switch (in.kernel) {
    case Kernel::linear_forward:
      if (in.inputs.size() > 2 || in.attributes.has("gelu")) return std::nullopt;
      return Logits{matrix("out"), {&in.outputs.front()}};
    case Kernel::linear_backward_input: return Logits{matrix("out"), {&in.inputs.front()}};
    case Kernel::linear_backward_weight:
      if (in.outputs.size() > 1) return std::nullopt;
      return Logits{matrix("out"), {&in.inputs[1]}};
    case Kernel::cross_entropy: return Logits{matrix("classes"), {&in.inputs.front(), &in.outputs[1]}};
    case Kernel::top_k: return Logits{matrix("classes"), {&in.inputs.front()}};
    default: return std::nullopt;
  }
}

int num_uses(const Instruction& in, int buffer) {
  return static_cast<int>(std::ranges::count(in.inputs, buffer, &Operand::buffer) +
                          std::ranges::count(in.outputs, buffer, &Operand::buffer));
}

/// Of all instructions that have to do with @p buffer; none where one of them takes it otherwise.
std::vector<Logits> uses_as_logits(std::vector<Instruction>& section, int buffer, const Matrix& matrix) {
  std::vector<Logits> uses;
  for (Instruction& in : section) {
    const int num = num_uses(in, buffer);
    if (num == 0) continue;
    std::optional<Logits> logits = in.is_collective() ? std::nullopt : logits_of(in);
    const Operand whole{buffer, 0, matrix.rows * matrix.columns};
    if (!logits || logits->matrix != matrix || num != std::ssize(logits->operands) ||
        !std::ranges::all_of(logits->operands, [&](const Operand* operand) { return *operand == whole; })) {
      return {};
    }
    uses.push_back(std::move(*logits));
  }
  return uses;
}

}  // namespace

void put_logit_rows_in_vectors(std::vector<Instruction>& section, std::vector<Buffer>& buffers) {
  for (Instruction& loss : section) {
    if (loss.is_collective() || (loss.kernel != Kernel::cross_entropy && loss.kernel != Kernel::top_k)) continue;
    const int id = loss.inputs.front().buffer;
    Buffer& buffer = buffers[static_cast<std::size_t>(id)];
    const Matrix matrix{loss.attributes.integer("rows"), loss.attributes.integer("classes")};
    if (matrix.rows == 0 || matrix.columns % logit_vector == 0 || buffer.persistent ||
        buffer.num_elements != matrix.rows * matrix.columns) {
      continue;
    }
    const std::vector<Logits> uses = uses_as_logits(section, id, matrix);
    const std::int64_t row = round_up(matrix.columns, logit_vector);
    // Behind the last row there is nothing: all of a buffer's end is written.
    const std::int64_t num_elements = (matrix.rows - 1) * row + matrix.columns;
    for (const Logits& use : uses) {
      for (Operand* operand : use.operands) operand->num_elements = num_elements;
    }
    if (uses.empty()) continue;
    buffer.num_elements = num_elements;
    for (Instruction& in : section) {
      if (num_uses(in, id) > 0) in.attributes.set("ld", row);
    }
  }
}

}  // namespace strata

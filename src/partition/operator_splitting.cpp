#include "partition/operator_splitting.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "partition/shards.hpp"

namespace strata {
namespace {

/// An even cut into one slice is none, unless the slice has a mode of its own.
bool is_split(const OperatorDecision& decision) { return decision.slices > 1 || !decision.slice_state.empty(); }

/// The attribute that counts an operator's columns.
const char* width_key(OperatorKind kind) { return kind == OperatorKind::linear ? "in" : "width"; }

class Splitting {
 public:
  Splitting(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions)
      : plan_(plan), graph_(graph), decisions_(decisions) {}

  SplitModel run() && {
    split_.graph.name = graph_.name;
    split_.graph.tensors = graph_.tensors;
    split_.graph.positions_per_sample = graph_.positions_per_sample;
    split_.graph.blocks = graph_.blocks;
    std::vector<int> num_slices(graph_.operators.size(), 0);
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      num_slices[o] = slices_of(graph_.operators[o], decisions_[o]);
    }
    parameters(num_slices);
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      // Blocks are runs of operators: each begins with the first slice of its first operator.
      if (op.block >= 0) {
        Block& block = split_.graph.blocks[static_cast<std::size_t>(op.block)];
        const bool begins = static_cast<int>(o) == graph_.blocks[static_cast<std::size_t>(op.block)].first_operator;
        if (begins) block.first_operator = static_cast<int>(split_.graph.operators.size());
        if (num_slices[o] > 0) block.num_operators += num_slices[o] - 1;
      }
      for (int s = 0; s < std::max(1, num_slices[o]); ++s) add_operator(op, decisions_[o], num_slices[o], s);
    }
    return std::move(split_);
  }

 private:
  /// 0: the operator stays whole.
  int slices_of(const Operator& op, const OperatorDecision& decision) const {
    if (!is_split(decision) || op.parameters.empty()) return 0;
    const auto refuse = [&](const std::string& why) {
      throw Unsupported(fmt::format("plan `{}`: {}: slices = {} cannot be lowered: {}", plan_.strategy, op.name,
                                    decision.slices, why));
    };
    if (op.kind != OperatorKind::linear && op.kind != OperatorKind::embedding) {
      refuse(fmt::format("a {} has no input dimension to cut; linear and embedding have", to_string(op.kind)));
    }
    const std::int64_t columns = op.attributes.integer(width_key(op.kind));
    if (decision.slices > columns) refuse(fmt::format("its weight has {} columns", columns));
    return decision.slices;
  }

  /// Matrices of operators that are split become a parameter a slice, in the place where the matrix stood.
  void parameters(const std::vector<int>& num_slices) {
    std::map<int, int> slices;  // by parameter
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      for (const int p : graph_.operators[o].parameters) {
        const bool is_matrix = graph_.parameters[static_cast<std::size_t>(p)].shape.size() == 2;
        slices[p] = is_matrix ? num_slices[o] : 0;
      }
    }
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      const Parameter& whole = graph_.parameters[p];
      first_part_.push_back(static_cast<int>(split_.graph.parameters.size()));
      const int count = slices[static_cast<int>(p)];
      if (count == 0) split_.graph.parameters.push_back(whole);
      for (int s = 0; s < count; ++s) {
        Parameter slice = whole;
        slice.name = fmt::format("{}/slice[{}]", whole.name, s);
        slice.slice_of = whole.name;
        const ColumnBlock columns = slice_columns(whole.shape[1], count, s);
        slice.block = strided(columns);
        slice.shape[1] = columns.size;
        split_.graph.parameters.push_back(std::move(slice));
      }
    }
  }

  void add_operator(const Operator& op, const OperatorDecision& decision, int num_slices, int index) {
    Operator part = op;
    OperatorDecision decided = decision;
    decided.slices = 0;
    decided.slice_state.clear();
    for (int& p : part.parameters) p = first_part_[static_cast<std::size_t>(p)];
    if (num_slices > 0) {
      part.name = fmt::format("{}/slice[{}]", op.name, index);
      const std::string_view key = width_key(op.kind);
      const ColumnBlock columns = slice_columns(op.attributes.integer(key), num_slices, index);
      part.attributes.set(key, columns.size);
      part.attributes.set("first_column", columns.first);
      part.attributes.set("row", columns.row);
      part.parameters.clear();
      for (const int p : op.parameters) {
        const bool is_matrix = graph_.parameters[static_cast<std::size_t>(p)].shape.size() == 2;
        if (is_matrix) part.parameters.push_back(first_part_[static_cast<std::size_t>(p)] + index);
        if (!is_matrix && index == 0) part.parameters.push_back(first_part_[static_cast<std::size_t>(p)]);
      }
      if (!decision.slice_state.empty()) {
        decided.slice_state = {decision.slice_state[static_cast<std::size_t>(index)]};
      }
    }
    split_.graph.operators.push_back(std::move(part));
    split_.decisions.push_back(std::move(decided));
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  std::span<const OperatorDecision> decisions_;
  SplitModel split_;
  std::vector<int> first_part_;  ///< by parameter of the whole graph: its place in the split one
};

}  // namespace

ColumnBlock slice_columns(std::int64_t num_columns, int num_slices, int index) {
  const std::int64_t size = num_columns / num_slices;
  const std::int64_t longer = num_columns % num_slices;
  return {.first = index * size + std::min<std::int64_t>(index, longer),
          .size = size + (index < longer ? 1 : 0),
          .row = num_columns};
}

std::optional<ColumnBlock> columns_of(const Operator& op) {
  if (!op.attributes.has("row")) return std::nullopt;
  return ColumnBlock{.first = op.attributes.integer("first_column"),
                     .size = op.attributes.integer(width_key(op.kind)),
                     .row = op.attributes.integer("row")};
}

StateFactors slice_factors(const Mesh& mesh, std::string_view word) {
  if (word == "dp") return {};
  const Factor all = data_grid(mesh);
  if (word == "sdp") return {.p = {}, .g = all, .os = all};
  if (word == "zdp") return {.p = all, .g = all, .os = all};
  throw InternalError(fmt::format("no such mode of a slice: {}", word));
}

StateFactors state_of(const Mesh& mesh, const OperatorDecision& decision, const Parameter& parameter) {
  const bool has_own = !parameter.slice_of.empty() && !decision.slice_state.empty();
  return has_own ? slice_factors(mesh, decision.slice_state.front()) : decision.state;
}

bool is_sharded(const Mesh& mesh, const OperatorDecision& decision) {
  return decision.state.os.total() > 1 || std::ranges::any_of(decision.slice_state, [&](const std::string& word) {
           return slice_factors(mesh, word).os.total() > 1;
         });
}

SplitModel split_operators(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions) {
  return Splitting(plan, graph, decisions).run();
}

}  // namespace strata

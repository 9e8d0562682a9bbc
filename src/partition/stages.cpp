#include "partition/stages.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "partition/operator_splitting.hpp"

namespace strata {
namespace {

double cost_of(const ModelGraph& graph, const Operator& op, const std::string& cut_by) {
  // Slices are one operator, whose arithmetic follows from its tensors.
  const std::optional<ColumnBlock> slice = columns_of(op);
  if (slice && !is_first(*slice) && cut_by != "parameters") return 0.0;
  if (cut_by == "operators") return 1.0;
  if (cut_by == "flops") return forward_flops(graph, op, 1);
  if (cut_by == "flops_paper") {
    const double flops = forward_flops(graph, op, 1);
    const bool has_bias = op.kind == OperatorKind::linear && op.parameters.size() > 1;
    return has_bias ? flops + std::sqrt(flops) : flops;
  }
  STRATA_INVARIANT(cut_by == "parameters", "stages.cut_by = " + cut_by);
  double elements = 0.0;
  for (const int p : op.parameters) {
    elements += static_cast<double>(graph.parameters[static_cast<std::size_t>(p)].num_elements());
  }
  return elements;
}

/// A row of costs cut into runs.
class Cut {
 public:
  /// @param sums_before [i]: the cost of everything before piece i.
  Cut(std::vector<double> sums_before, int num_runs)
      : sums_(std::move(sums_before)), num_pieces_(static_cast<int>(sums_.size()) - 1), num_runs_(num_runs) {}

  /// Where each run begins.
  std::vector<int> begins() const {
    const double largest = best([](double so_far, double run) { return std::max(so_far, run); }, infinity).front();
    const std::vector<double> squares = best([](double so_far, double run) { return so_far + run * run; }, largest);
    std::vector<int> begins = {0};
    for (int run = 0; run + 1 < num_runs_; ++run) {
      double least = infinity;
      int chosen = -1;
      for (int end = begins.back() + 1; end < num_pieces_ && run_cost(begins.back(), end) <= largest; ++end) {
        const double cost = run_cost(begins.back(), end);
        const double value = squares[index(run + 1, end)] + cost * cost;
        if (value < least) {
          least = value;
          chosen = end;
        }
      }
      begins.push_back(chosen);
    }
    return begins;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  std::size_t index(int run, int begin) const {
    return static_cast<std::size_t>(run) * sums_.size() + static_cast<std::size_t>(begin);
  }
  double run_cost(int begin, int end) const {
    return sums_[static_cast<std::size_t>(end)] - sums_[static_cast<std::size_t>(begin)];
  }

  /// [run][begin]: the best value of all pieces from `begin` on in the runs from `run` on, no run above @p limit.
  /// @param join grows with both of its arguments: a run whose cost alone is no better ends the search, as others that
  /// begin there only cost more.
  template <typename Join>
  std::vector<double> best(const Join& join, double limit) const {
    std::vector<double> table(static_cast<std::size_t>(num_runs_ + 1) * sums_.size(), infinity);
    table[index(num_runs_, num_pieces_)] = 0.0;
    for (int run = num_runs_; run-- > 0;) {
      const int num_behind = num_runs_ - run - 1;  // runs, of a piece or more each, as those before
      const int last_end = num_pieces_ - num_behind;
      for (int begin = run; begin < (run == 0 ? 1 : last_end); ++begin) {
        double& least = table[index(run, begin)];
        for (int end = begin + 1; end <= last_end; ++end) {
          const double cost = run_cost(begin, end);
          if (cost > limit || join(0.0, cost) >= least) break;
          least = std::min(least, join(table[index(run + 1, end)], cost));
        }
      }
    }
    return table;
  }

  std::vector<double> sums_;
  int num_pieces_;
  int num_runs_;
};

bool is_model_input(const Tensor& tensor) {
  return tensor.role == TensorRole::tokens || tensor.role == TensorRole::targets || tensor.role == TensorRole::image;
}

/// Stages from where each of them begins.
std::vector<Stage> stages_from(const std::vector<int>& begins, int num_operators) {
  std::vector<Stage> stages;
  for (const int begin : begins) {
    if (!stages.empty()) stages.back().num_operators = begin - stages.back().first_operator;
    stages.push_back({begin, num_operators - begin});
  }
  return stages;
}

/// @param possible cut_points().
std::vector<Stage> stages_that_begin_with(const ModelGraph& graph, const Stages& stages,
                                          const std::vector<int>& possible) {
  std::vector<int> begins = {0};
  for (const std::string& name : stages.begins) {
    // Of an operator that is cut into slices the first stands for it.
    const auto is_it = [&](const Operator& op) { return op.name == name || op.name == name + "/slice[0]"; };
    const auto found = std::ranges::find_if(graph.operators, is_it);
    const auto begin = static_cast<int>(found - graph.operators.begin());
    if (!std::ranges::binary_search(possible, begin)) {
      throw Unsupported(fmt::format("stages.begins: no stage of {} can begin with {} where stages.cut_at = {}",
                                    graph.name, name, stages.cut_at));
    }
    begins.push_back(begin);
  }
  return stages_from(begins, static_cast<int>(graph.operators.size()));
}

/// By operator: a tensor that depends on a parameter comes to it, or to one behind it, from one before it.
std::vector<bool> are_behind_gradients(const ModelGraph& graph) {
  const std::vector<bool> has_gradient = tensors_with_gradient(graph);
  std::vector<int> made_by(graph.tensors.size(), -1);
  std::vector<int> change(graph.operators.size() + 1, 0);  // in the number of such tensors
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int t : graph.operators[o].inputs) {
      int& from = made_by[static_cast<std::size_t>(t)];
      if (from < 0 || !has_gradient[static_cast<std::size_t>(t)]) continue;
      ++change[static_cast<std::size_t>(from) + 1];
      --change[o + 1];
    }
    for (const int t : graph.operators[o].outputs) made_by[static_cast<std::size_t>(t)] = static_cast<int>(o);
  }
  std::vector<bool> result;
  int crossing = 0;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) result.push_back((crossing += change[o]) > 0);
  return result;
}

}  // namespace

std::span<const Operator> operators_of(const ModelGraph& graph, const Stage& stage) {
  return std::span(graph.operators)
      .subspan(static_cast<std::size_t>(stage.first_operator), static_cast<std::size_t>(stage.num_operators));
}

std::vector<int> cut_points(const ModelGraph& graph, std::string_view cut_at) {
  std::vector<int> points = {0};
  if (cut_at == "block") {
    for (std::size_t b = 1; b < graph.blocks.size(); ++b) points.push_back(graph.blocks[b].first_operator);
    return points;
  }
  STRATA_INVARIANT(cut_at == "operator", fmt::format("stages.cut_at = {}", cut_at));
  const std::vector<bool> is_behind = are_behind_gradients(graph);
  for (std::size_t o = 1; o < graph.operators.size(); ++o) {
    const std::optional<ColumnBlock> slice = columns_of(graph.operators[o]);
    const bool is_whole = !slice || is_first(*slice);
    if (is_behind[o] && is_whole) points.push_back(static_cast<int>(o));
  }
  return points;
}

std::vector<Stage> cut_into_stages(const ModelGraph& graph, const Stages& stages) {
  const int num_operators = static_cast<int>(graph.operators.size());
  if (stages.count == 1) {
    return {{0, num_operators}};
  }
  std::vector<int> begin_of_piece = cut_points(graph, stages.cut_at);
  if (!stages.begins.empty()) return stages_that_begin_with(graph, stages, begin_of_piece);
  if (stages.count > std::ssize(begin_of_piece)) {
    const std::string why = stages.cut_at == "block" ? "blocks: a stage has one block or more"
                                                     : "places to begin a stage at, the first operator among them";
    throw Unsupported(
        fmt::format("{} stages of {}, which has {} {}", stages.count, graph.name, begin_of_piece.size(), why));
  }
  begin_of_piece.push_back(num_operators);
  std::vector<double> sums = {0.0};
  for (std::size_t piece = 0; piece + 1 < begin_of_piece.size(); ++piece) {
    double cost = 0.0;
    for (int o = begin_of_piece[piece]; o < begin_of_piece[piece + 1]; ++o) {
      cost += cost_of(graph, graph.operators[static_cast<std::size_t>(o)], stages.cut_by);
    }
    sums.push_back(sums.back() + cost);
  }
  std::vector<int> begins;
  for (const int piece : Cut(std::move(sums), stages.count).begins()) {
    begins.push_back(begin_of_piece[static_cast<std::size_t>(piece)]);
  }
  return stages_from(begins, num_operators);
}

std::vector<int> tensors_across(const ModelGraph& graph, int first_operator) {
  std::vector<bool> are_used(graph.tensors.size());  // behind the cut, and not made there
  const auto behind = std::span(graph.operators).subspan(static_cast<std::size_t>(first_operator));
  for (const Operator& op : behind) {
    for (const int t : op.inputs) {
      const auto tensor = static_cast<std::size_t>(t);
      are_used[tensor] = are_used[tensor] || !is_model_input(graph.tensors[tensor]);
    }
  }
  for (const Operator& op : behind) {
    for (const int t : op.outputs) are_used[static_cast<std::size_t>(t)] = false;
  }
  std::vector<int> across;
  for (std::size_t t = 0; t < are_used.size(); ++t) {
    if (are_used[t]) across.push_back(static_cast<int>(t));
  }
  return across;
}

std::vector<std::vector<int>> stages_of_parameters(const ModelGraph& graph, std::span<const Stage> stages) {
  std::vector<std::vector<int>> result(graph.parameters.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const Operator& op : operators_of(graph, stages[s])) {
      for (const int p : op.parameters) {
        std::vector<int>& users = result[static_cast<std::size_t>(p)];
        if (users.empty() || users.back() != static_cast<int>(s)) users.push_back(static_cast<int>(s));
      }
    }
  }
  return result;
}

ModelGraph graph_of(const ModelGraph& graph, std::span<const Stage> stages) {
  ModelGraph part = graph;
  part.operators.clear();
  for (Block& block : part.blocks) block.num_operators = 0;
  for (const Stage& stage : stages) {
    const int moved = static_cast<int>(part.operators.size()) - stage.first_operator;
    const auto operators = operators_of(graph, stage);
    part.operators.insert(part.operators.end(), operators.begin(), operators.end());
    for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
      const Block& whole = graph.blocks[b];
      if (whole.first_operator < stage.first_operator || whole.first_operator >= stage.end()) continue;
      part.blocks[b].first_operator = whole.first_operator + moved;
      part.blocks[b].num_operators = whole.num_operators;
    }
  }
  for (Block& block : part.blocks) {
    if (block.num_operators == 0) block.first_operator = 0;
  }
  return part;
}

}  // namespace strata

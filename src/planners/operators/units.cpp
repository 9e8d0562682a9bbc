#include "planners/operators/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "partition/recomputation.hpp"

namespace strata {
namespace {

/// "attn.qkv" → "attn"; "" where the name is one word.
std::string group_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool stands_for_itself(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::embedding:
    case OperatorKind::linear:
    case OperatorKind::convolution: return true;
    default: return false;
  }
}

class UnitMaker {
 public:
  UnitMaker(const ModelGraph& graph, Granularity granularity) : graph_(graph), granularity_(granularity) {
    for (const Operator& op : graph.operators) {
      if (op.block >= 0 && !group_of(name_within_block(graph, op)).empty()) blocks_with_groups_.insert(op.block);
    }
  }

  std::vector<OperatorUnit> make() {
    for (int o = 0; o < static_cast<int>(graph_.operators.size()); ++o) add(o);
    settle_waiting();
    return merge_shared();
  }

 private:
  const Operator& at(int o) const { return graph_.operators[static_cast<std::size_t>(o)]; }

  void add(int o) {
    const Operator& op = at(o);
    if (op.block != block_) settle_waiting();
    block_ = op.block;
    const std::string name = name_within_block(graph_, op);
    const std::string group = granularity_ == Granularity::block && op.block >= 0 ? group_of(name) : "";
    if (!group.empty()) {
      if (group != open_group_) begin_unit(op.block);
      open_group_ = group;
      put(o, group + ".*");
      return;
    }
    open_group_.clear();
    const bool has_groups = granularity_ == Granularity::block && blocks_with_groups_.contains(op.block);
    if (stands_for_itself(op) && !has_groups) {
      begin_unit(op.block);
      put(o, name);
    } else if (op.parameters.empty() && waiting_.empty() && !units_.empty() && units_.back().block == op.block) {
      units_.back().operators.push_back(o);
    } else {
      waiting_.push_back(o);
    }
  }

  void begin_unit(int block) {
    units_.push_back({.operators = {}, .parameters = {}, .block = block, .patterns = {}});
    for (const int o : waiting_) put(o, name_within_block(graph_, at(o)));
    waiting_.clear();
  }

  void put(int o, const std::string& pattern) {
    OperatorUnit& unit = units_.back();
    unit.operators.push_back(o);
    const bool is_group = pattern.ends_with(".*");
    if (!is_group && at(o).parameters.empty()) return;
    if (std::ranges::find(unit.patterns, pattern) == unit.patterns.end()) unit.patterns.push_back(pattern);
  }

  /// What waits for a next unit that does not come, because its block ends.
  void settle_waiting() {
    open_group_.clear();
    if (waiting_.empty()) return;
    if (units_.empty() || units_.back().block != block_) {
      begin_unit(block_);
      return;
    }
    const std::vector<int> rest = std::exchange(waiting_, {});
    for (const int o : rest) put(o, name_within_block(graph_, at(o)));
  }

  std::vector<OperatorUnit> merge_shared() {
    std::map<int, std::size_t> unit_of_parameter;
    std::vector<OperatorUnit> merged;
    for (OperatorUnit& unit : units_) {
      std::size_t into = merged.size();
      for (const int o : unit.operators) {
        for (const int p : at(o).parameters) {
          const auto found = unit_of_parameter.find(p);
          if (found != unit_of_parameter.end()) into = std::min(into, found->second);
        }
      }
      if (into == merged.size()) {
        merged.push_back(std::move(unit));
      } else {
        OperatorUnit& first = merged[into];
        first.operators.insert(first.operators.end(), unit.operators.begin(), unit.operators.end());
        // Patterns of one unit are of one block, or whole names.
        for (std::string& pattern : unit.patterns) {
          STRATA_INVARIANT(first.block == unit.block, "a parameter is shared between blocks: " + pattern);
          first.patterns.push_back(std::move(pattern));
        }
      }
      for (const int o : merged[into].operators) {
        for (const int p : at(o).parameters) unit_of_parameter[p] = into;
      }
    }
    for (OperatorUnit& unit : merged) {
      std::set<int> parameters;
      for (const int o : unit.operators) parameters.insert(at(o).parameters.begin(), at(o).parameters.end());
      unit.parameters.assign(parameters.begin(), parameters.end());
    }
    return merged;
  }

  const ModelGraph& graph_;
  Granularity granularity_;
  std::set<int> blocks_with_groups_;
  std::vector<OperatorUnit> units_;
  std::vector<int> waiting_;  ///< operators that belong to the next unit of their block
  std::string open_group_;
  int block_ = -1;
};

/// By operator: it runs again before the backward of its block.
std::vector<bool> runs_again(const ModelGraph& graph, const Plan& plan) {
  std::vector<bool> again(graph.operators.size(), false);
  const std::vector<Recompute> kinds(graph.operators.size(), plan.recompute);
  for (const RecomputedRegion& region : recomputed_regions(graph, kinds, {})) {
    for (const int o : region.runs_again) again[static_cast<std::size_t>(o)] = true;
  }
  return again;
}

/// The gradient of its input is made with its first parameter.
bool backward_reads_weight(const ModelGraph& graph, const Operator& op) {
  switch (op.kind) {
    case OperatorKind::linear:
    case OperatorKind::convolution:
      return graph.tensors[static_cast<std::size_t>(op.inputs.front())].role == TensorRole::activation;
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::batch_norm: return true;
    default: return false;
  }
}

}  // namespace

std::string name_within_block(const ModelGraph& graph, const Operator& op) {
  if (op.block < 0) return op.name;
  const std::string& block = graph.blocks[static_cast<std::size_t>(op.block)].name;
  return op.name.substr(block.size() + 1);
}

Granularity parse_granularity(std::string_view text) {
  if (text == "block") return Granularity::block;
  if (text == "linear") return Granularity::linear;
  throw UserError(fmt::format("unknown granularity \"{}\"; accepted: block | linear", text));
}

std::vector<OperatorUnit> operator_units(const ModelGraph& graph, Granularity granularity) {
  return UnitMaker(graph, granularity).make();
}

std::vector<Gathers> gathers_of(const ModelGraph& graph, const Plan& plan) {
  const std::vector<bool> again = runs_again(graph, plan);
  std::vector<Gathers> gathers;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const int forward = again[o] ? 2 : 1;
    const bool kept = again[o] && plan.gathered_after_recompute == "keep";
    const bool in_backward = backward_reads_weight(graph, graph.operators[o]) && !kept;
    gathers.push_back({forward + (in_backward ? 1 : 0), forward, again[o]});
  }
  return gathers;
}

}  // namespace strata

#pragma once

/// @file
/// The contract every mode implements: one mode a file, a pure function from a request to a plan.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/infinity.hpp"
#include "cost/cost_model.hpp"
#include "cost/fit.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "planners/evaluate.hpp"

namespace strata {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;

/// An option that one mode declares for itself: `[strategy]` checking, --help and the reference follow from this row.
struct OptionRow {
  std::string_view name;
  OptionValue default_value;  ///< its alternative is the option's type
  std::string_view
      accepted;  ///< words separated by " | ", or a condition in words ("> 0"); empty: anything of the type
  std::string_view help;
};

/// Everything a planner may look at. If it is not in here, a planner may not depend on it.
struct PlanRequest {
  const ModelGraph& graph;
  const Cluster& cluster;
  Plan base;  ///< mesh, batch, schedule.micro_batches, recompute, optimizer, dtypes, capacity and seed as the
              ///< experiment asks; strategy set
  std::map<std::string, OptionValue> options;  ///< every row of options(), defaults filled in
  std::vector<int> leaf_of_node{};             ///< the switch that each node of the job hangs under; empty: unknown
  /// Lowers a plan and simulates it with the costs that [planner] names: its bytes and seconds. Lowering is what takes
  /// the time, so formulas decide first and this has the last word. Null where nothing predicts.
  const Evaluate* evaluate = nullptr;
  /// Of a step. A slower plan is of no use to who asks, and need not be found.
  double most_seconds = infinity;
  int num_threads = 1;  ///< that may make and evaluate plans beside each other; the answer is the same with any number
  /// Times of collectives from the experiment's profile; null where it names none.
  std::function<std::unique_ptr<CostModel>()> measured_costs = nullptr;
  /// α and β through the collectives of the same profile; null as above.
  std::function<LinkLines()> measured_links = nullptr;

  /// The value of an option that the mode declares, of its declared type.
  template <typename T>
  const T& option(const std::string& name) const {
    return std::get<T>(options.at(name));
  }
};

/// The value of an option that leaves a decision to the planner.
inline constexpr std::string_view planner_word = "planner";

/// A mode. Stateless; safe to call from any thread.
class Planner {
 public:
  virtual ~Planner() = default;
  /// As in TOML, file and figure: "1f1b" lives in planners/m_1f1b.cpp (see mode_file_stem).
  virtual std::string_view name() const = 0;
  /// One line for `strata list strategies`.
  virtual std::string_view summary() const = 0;
  /// Citation, stored in every result file.
  virtual std::string_view source() const = 0;
  virtual std::span<const OptionRow> options() const = 0;
  /// @p given, and the defaults of the options that it does not name.
  std::map<std::string, OptionValue> with_defaults(std::map<std::string, OptionValue> given) const {
    for (const OptionRow& row : options()) given.try_emplace(std::string(row.name), row.default_value);
    return given;
  }
  /// It may be asked to choose the batch: base.global_batch is 0 then (train.global_batch = "planner").
  virtual bool chooses_batch() const { return false; }
  /// @return a plan for which verify(plan, request.graph) holds; equal requests give equal plans.
  /// @throws Unsupported with the violated condition and its numbers; OutOfMemory where a mode that looks for a plan
  /// within the capacity finds none.
  virtual Plan plan(const PlanRequest& request) const = 0;
  /// What plan() searches, as an integer linear program in free MPS, for any solver.
  /// @throws Unsupported where the mode searches in another way.
  virtual std::string linear_program(const PlanRequest&) const {
    throw Unsupported(std::string(name()) +
                      " does not search a linear program; accepted with --format mps: alpa, oases");
  }
};

/// All modes compiled into this binary, sorted by name.
std::span<const Planner* const> all_planners();
/// @throws UserError listing the known names.
const Planner& find_planner(std::string_view name);
/// A mode's file, symbol and test name: `-` → `_`, `+` → `_plus_`, `m_` before a leading digit.
std::string mode_file_stem(std::string_view name);

}  // namespace strata

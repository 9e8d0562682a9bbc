#pragma once

/// @file
/// What the modes that plan layouts share: sizes, costs and memory of a request, and a plan from one layout a layer.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planners/layouts/candidates.hpp"
#include "planners/layouts/lasting_bytes.hpp"
#include "planners/layouts/step_costs.hpp"
#include "planners/planner.hpp"

namespace strata {

/// The option `zero`.
OptionRow zero_option();
/// The option `sum`.
OptionRow sum_option();
/// The options `stages`, `schedule`, `chunks` and `cut_by`: how many stages have the ranks' layouts each, and how their
/// passes follow each other.
std::array<OptionRow, 4> stage_options();

class LayoutPlanning {
 public:
  /// @param limits without samples, which the request says. @param products how linears compute. @param sum how partial
  /// sums come together. @param directions in which blocks of products on a ring go round.
  /// @throws Unsupported where micro-batches do not divide the batch.
  LayoutPlanning(const PlanRequest& request, const LayoutLimits& limits,
                 MatmulAlgorithm products = MatmulAlgorithm::local, PartialSums sum = PartialSums::scatter,
                 int directions = 1);

  const PlanRequest& request() const { return request_; }
  const LayerChain& chain() const { return chain_; }
  const StepCosts& costs() const { return costs_; }
  const LastingBytes& lasting_bytes() const { return lasting_bytes_; }
  const LayoutLimits& limits() const { return limits_; }
  const Factor& grid() const { return costs_.grid(); }
  std::int64_t capacity_bytes() const { return request_.base.device_capacity_bytes; }
  /// Of a pipeline: the ranks of each have their share of the layers, and of what the model would take on them alone.
  int num_places() const { return axis_size(base_.mesh, "stage"); }

  /// Somebody has measured or described what transfers take.
  bool knows_seconds() const { return costs_.links().are_known(); }
  /// Layers and links together, of a stage in the mean. In bytes where cost = "volume". @throws CostsUnknown.
  double seconds(std::span<const Layout> layouts) const;
  std::string seconds_in_words(double seconds) const;

  /// Of the fullest rank: by the Program, or, where nothing limits memory, at least by what lasts.
  struct Peak {
    std::int64_t bytes = 0;
    bool is_programs = false;
  };
  Peak peak(std::span<const Layout> layouts) const;
  /// By which peak() exceeds the capacity, or less of it, where fewer of a pipeline's micro-batches say that already.
  /// At most 0: it fits.
  std::int64_t excess_bytes(std::span<const Layout> layouts) const;

  /// @param layouts by layer. Every operator with parameters has a rule. @param why the search, in words.
  Plan plan(std::span<const Layout> layouts, const std::string& why) const;
  /// The same, with nothing said of what it costs.
  Plan with_rules(std::span<const Layout> layouts) const;

  /// @param best of those that were looked at, the one that needs least.
  [[noreturn]] void refuse_capacity(std::span<const Layout> best) const;

 private:
  double all_stages_seconds(std::span<const Layout> layouts) const;
  bool counts_bytes() const;

  const PlanRequest& request_;
  Plan base_;   ///< of the request, in stages
  Plan stage_;  ///< the same model on the ranks of one stage
  LayoutLimits limits_;
  bool shards_optimizer_;
  LayerChain chain_;
  StepCosts costs_;
  LastingBytes lasting_bytes_;
};

}  // namespace strata

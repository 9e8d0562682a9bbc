#pragma once

/// @file
/// How long things take, as one question with three selectable answers: `paper` (the formulas the papers plan with),
/// `analytic` (roofline and α–β with what real kernels and networks lose), `measured` (a profile of this machine). The
/// simulator and the planners ask; nobody mixes sources silently: every answer says what it stands on.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cost/group_shape.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/machine/cost_profile.hpp"
#include "ir/program/program.hpp"

namespace strata {

enum class CostSource : std::uint8_t { paper, analytic, measured };
std::string_view to_string(CostSource source);
/// @throws UserError listing the accepted words.
CostSource parse_cost_source(std::string_view text);

/// What an answer stands on, from best to worst.
enum class Basis : std::uint8_t { measured, interpolated, formula, extrapolated };
std::string_view to_string(Basis basis);

struct Cost {
  double seconds = 0.0;
  Basis basis = Basis::formula;
};

struct CollectiveCost {
  double seconds = 0.0;  ///< with the network to itself
  Basis basis = Basis::formula;
  /// NICs of each node that it keeps busy: transfers that together want more than a node has slow each other down.
  int nics_used = 0;
};

/// Both at least 1.
struct Slowdown {
  double compute = 1.0;        ///< of kernels while the rank communicates
  double communication = 1.0;  ///< of transfers while a member computes
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual CostSource source() const = 0;
  /// One line for results: the source and what it was made from.
  virtual std::string description() const = 0;
  /// @throws UserError where a profile has no time of such a kernel, naming it.
  virtual Cost kernel(const Program& program, const Instruction& instruction) const = 0;
  /// @param bytes of the full tensor; of the message for a send. @param place of a message: its two ends.
  /// @throws UserError where a profile has no such collective, naming it.
  virtual CollectiveCost collective(Collective kind, std::int64_t bytes, const Placement& place) const = 0;
  virtual Slowdown slowdown() const { return {}; }
  /// What a rank spends a step outside kernels and waits.
  virtual double step_overhead_seconds() const { return 0.0; }
  int nics_per_node() const { return nics_per_node_; }

 protected:
  explicit CostModel(int nics_per_node) : nics_per_node_(nics_per_node) {}

 private:
  int nics_per_node_;
};

/// Kernels at the peak rate, collectives as rings on the slowest link they cross: (p-1)(α + v/p·β), twice for an
/// all-reduce. Sources: OSDP sec. 3.1, AutoDDL sec. 3.2.
/// @throws UserError where @p cluster lacks a number that the formulas need.
std::unique_ptr<CostModel> paper_costs(const Cluster& cluster);

/// Kernels by roofline with efficiencies by shape, collectives by the best of ring, tree and hierarchical algorithms
/// with message-size ramps. @throws UserError as above.
std::unique_ptr<CostModel> analytic_costs(const Cluster& cluster);

/// How the ranks of a measured job talk.
struct Transports {
  std::function<std::string(const Factor& group)> name;  ///< CollectiveTime::transport of such a group
  std::string of_all_ranks;                              ///< Interference::transport
  /// Emulated links, whose collectives take what their definition says: ring steps of alpha + bytes · beta.
  struct Emulated {
    Link inside;   ///< of groups inside one node
    Link between;  ///< of groups over several
  };
  std::optional<Emulated> emulated;
};

/// Times of @p profile for @p ranks_on_node ranks a node.
/// @throws UserError where the profile has no rows for that number of ranks.
std::unique_ptr<CostModel> measured_costs(const CostProfile& profile, int ranks_on_node, const Transports& transports);

}  // namespace strata

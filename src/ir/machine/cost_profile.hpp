#pragma once

/// @file
/// What was measured on one machine: times of kernels by shape, of collectives by size and group, the α–β lines through
/// them, and how much compute and communication slow each other down. Written by `strata profile`, read by whoever
/// predicts. Tables are kept as measured; interpolation is the reader's (cost/measured_costs.hpp).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Time of one kernel while all ranks of the node computed: the mean over a step's instances, its median over steps.
struct KernelTime {
  std::string kind;           ///< KernelShape::kind
  std::vector<double> sizes;  ///< KernelShape::sizes
  double work = 0.0;          ///< KernelShape::work
  int ranks_on_node = 1;
  double seconds = 0.0;
  int num_measured = 0;
  bool operator==(const KernelTime&) const = default;
};

/// Median time of one collective of @p bytes (the full tensor), of the slowest member.
struct CollectiveTime {
  Collective kind = Collective::all_reduce;
  Factor group;           ///< ranks in a node × nodes
  std::string transport;  ///< as results name it: shm, mpi, two_level(…), nccl, managed_memory over shm, …
  std::int64_t bytes = 0;
  double seconds = 0.0;
  bool operator==(const CollectiveTime&) const = default;
};

/// seconds = alpha + beta · (bytes this rank sends), by least squares on relative errors. AutoDDL, section 3.2.
struct AlphaBeta {
  Collective kind = Collective::all_reduce;
  Factor group;
  std::string transport;
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
  double mean_relative_error = 0.0;  ///< of the line at the measured sizes
  bool operator==(const AlphaBeta&) const = default;
};

/// Factors by which a time grows while the other kind of work is in progress; 1: not at all.
struct Interference {
  int ranks_on_node = 1;
  std::string transport;
  double compute_slowdown = 1.0;
  double communication_slowdown = 1.0;
  bool operator==(const Interference&) const = default;
};

/// FLOP/s of one rank's best matrix product while all ranks of the node compute: the denominator of MFU.
struct MeasuredRate {
  std::string dtype;
  int ranks_on_node = 1;
  double flops_per_second = 0.0;
  bool operator==(const MeasuredRate&) const = default;
};

struct CostProfile {
  std::string machine;  ///< machine_identity() of where it was measured: times of another machine or device are refused
  std::map<std::string, std::string> provenance;  ///< commit, date, library versions, threads a rank, …
  std::vector<MeasuredRate> peaks;
  std::vector<KernelTime> kernels;
  std::vector<CollectiveTime> collectives;
  std::vector<AlphaBeta> lines;
  std::vector<Interference> interference;
  /// Seconds a step spends outside kernels and waits, by ranks on the node.
  std::map<int, double> step_overhead_seconds;
  bool operator==(const CostProfile&) const = default;
};

/// @throws UserError naming the row: times that are not positive, sizes that differ in number within a kind.
void verify(const CostProfile& profile);
/// Rows of @p newer replace rows of @p profile that describe the same thing; the others are added.
/// @throws UserError where the machines differ.
void merge(CostProfile& profile, const CostProfile& newer);

/// Stable TOML; parse_cost_profile(to_text(p)) == p.
std::string to_text(const CostProfile& profile);
/// @throws UserError with file, line, key and what is accepted.
CostProfile parse_cost_profile(const std::string& text, std::string_view file_name);

}  // namespace strata

#pragma once

/// @file
/// What a planner decides: the union of what the papers decide, each part with a default. Plain data, equal on every
/// rank, printable as TOML, editable by hand and accepted back. It holds rules with name patterns rather than one row
/// an operator, so that a printed plan reads like the sentence a paper would write; `resolve` turns rules into one
/// decision an operator.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/schedule_kind.hpp"

namespace strata {

/// Ranks in a node × nodes, written "4x2". A product of atomic mesh axes.
struct Factor {
  int in_node = 1;
  int nodes = 1;
  bool operator==(const Factor&) const = default;
  int total() const { return in_node * nodes; }
};

struct MeshAxis {
  std::string name;  ///< data, tensor, stage, micro_batch, p0, p1, p2, tmp
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// Ranks in a node first (fastest), then nodes. `axes` lists named degrees whose product is the number of ranks; the
/// first is slowest. Without axes, or with `stage` alone, layouts of operators say how the ranks, or those of a stage,
/// are used.
struct Mesh {
  int nodes = 1;
  int ranks_per_node = 1;
  std::vector<MeshAxis> axes;
  /// block | leaf-first | zero-ring | pyramid: stage j of N on N - j ranks, see stage_pyramid.hpp; axis `stage` alone.
  std::string placement = "block";
  /// leaf-first: which of the job's nodes stands at each place of the grid that factors tile, a permutation. Empty: in
  /// the order in which the launcher numbers them.
  std::vector<int> node_order{};
  bool operator==(const Mesh&) const = default;
  int num_ranks() const { return nodes * ranks_per_node; }
};

/// How the states of a parameter are held, between steps, over the data axis; 1x1 is replicated.
struct StateFactors {
  Factor p, g, os;
  std::optional<Factor> p_backward;  ///< ZeRO++: a second shard for the backward gather
  bool walks = false;                ///< cyclic: held by the one rank that needs it next
  bool operator==(const StateFactors&) const = default;
};

/// What is computed again before its backward: of a block what the backward reads, the same without what collectives
/// that change layouts have brought (Oases, sec. 3.2), or, as frameworks' checkpointing does, all of it.
enum class Recompute : std::uint8_t { none, block, after_communication, whole_block };
enum class MatmulAlgorithm : std::uint8_t { local, summa, ring };
/// How the partial sums of a product by rows come together: each rank keeps a part of the sum (AutoDDL), or all ranks
/// of it the whole (Megatron-LM, Oases).
enum class PartialSums : std::uint8_t { scatter, all_reduce };

/// S/B/P layout of a linear on p = p0·p1·p2 ranks.
/// algorithm local: input (S0:p0, B:p1, S1:p2), weight (B:p0, S1:p1, S0:p2), output (S0:p0, S1:p1, P:p2).
/// algorithm summa: input and output (S0:p0·p1, S1:p2), weight (S0:p0, B:p1, S1:p2): p1 replicas of a p0 × p2 grid.
struct Layout {
  Factor p0, p1, p2;
  bool operator==(const Layout&) const = default;
};

/// The ranks, of each part of it, that hold a weight of @p layout: p0, of products by panels p1.
const Factor& copies_of_weight(const Layout& layout, MatmulAlgorithm algorithm);

/// One rule; unset fields leave what earlier rules said. Later rules win.
struct OperatorRule {
  std::string
      match;  ///< name pattern: `*` any text, `[2..47]` an inclusive range of block numbers; e.g. "block[2..47].mlp.*"
  std::optional<StateFactors> state;
  std::optional<Layout> layout;
  std::optional<MatmulAlgorithm> algorithm;
  std::optional<int> directions;  ///< 1 | 2
  std::optional<PartialSums> sum;
  std::optional<int> slices;
  std::vector<std::string> slice_state;  ///< "dp" | "sdp" | "zdp" a slice; empty: as `state`
  std::optional<Recompute> recompute;
  bool operator==(const OperatorRule&) const = default;
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::simultaneous;
  int micro_batches = 1;
  int sub_batches = 1;  ///< of a micro-batch: one computes while others' layouts change
  /// Recomputation and backward of sub-batches are one sequence over layers (Oases, sec. 3.1); else all sub-batches
  /// have been recomputed before the backward of a layer begins.
  bool cross_pass = false;
  /// cyclic: none (v1) | v2 | a table, "001 011 111": a row a micro-batch, of each stage whether it reads the
  /// parameters of its own training step (1) or of the one before (0).
  std::string fresh = "none";
  /// cyclic: micro-batches' gradients are added up by the kernels that make them (inside), or each behind its own
  /// (after).
  std::string sum = "inside";
  /// cyclic, a micro-batch a rank: updated parameters go from reader to reader (relay), or to all from where they are
  /// updated (direct).
  std::string spread = "relay";
  /// The same: of so many first stages a rank that still reads the parameters of the step before has a second buffer,
  /// into which the next ones come meanwhile.
  int spare_stages = 1;
  /// The same: how far a rank keeps behind the one before, which has the micro-batch before. free: it waits for data
  /// alone. paced: 2·stages/micro_batches passes. begun: up to one pass less. See partition/ring_pace.hpp.
  std::string shift = "free";
  /// The same: which rank updates a stage and has the states of its optimizer, the last one, or the first that reads in
  /// a training step what the one before has made (first_user).
  std::string updater = "last";
  bool operator==(const Schedule&) const = default;
};

struct Stages {
  int count = 1;
  std::string cut_by = "flops";       ///< flops | flops_paper | operators | parameters
  std::string cut_at = "block";       ///< block | operator
  std::vector<std::string> begins{};  ///< operators that the stages behind the first begin with; empty: by cut_by
  bool operator==(const Stages&) const = default;
};

/// What may run under what. Values name the compute that hides the communication.
struct Overlap {
  std::int64_t bucket_bytes = 25 * 1024 * 1024;  ///< gradients are reduced in buckets of at least this size
  std::string all_reduce = "backward";           ///< none | backward
  std::string gather = "none";                   ///< none | next_layer
  std::string gather_backward = "none";          ///< none | next_module
  std::string reduce_scatter = "none";           ///< none | grad_input
  std::string broadcast = "none";                ///< none | next_forward
  /// Updated parameters come back together (optimizer.spread) in messages of at least this size; 0: each one alone.
  std::int64_t spread_bytes = 0;
  /// none: parameters are updated behind the last backward. backward: each one as soon as its gradients are summed, so
  /// that they need not wait for those of the others.
  std::string update = "none";
  /// weight_gradient: of a product whose input's gradient ranks sum, that gradient is made first, and the sum runs
  /// under the gradient of the weight.
  std::string layout = "none";
  /// Of products of algorithm summa, next_product: a panel's broadcasts run under the product of the panel before, and
  /// sums under the next one; none: the rank computes or communicates.
  std::string panels = "next_product";
  /// Sums over replicas, and what comes back updated: shared, in turn with gathers and scatters of the ranks that share
  /// parameters; own, on a stream of their own beside them (AMSP sec. VI-C).
  std::string replica_stream = "shared";
  bool operator==(const Overlap&) const = default;
};

struct DTypes {
  DType compute = DType::f32;   ///< activations and the parameters that kernels read
  DType gradient = DType::f32;  ///< parameter gradients, as stored and as reduced
  bool operator==(const DTypes&) const = default;
};

/// What sharded parameters and their gradients travel as (ZeRO++): blocks of codes, see base/quantization.hpp. Only
/// what travels between the ranks that share a parameter, which hold its p shards: a second shard (p_backward) is kept
/// and gathered as the numbers that came out.
struct Quantization {
  std::string weights = "none";    ///< none | int8: when they are gathered from the p shards
  std::string gradients = "none";  ///< none | int8 | int4: when they are summed into the p shards, by all-to-all
  int block = 256;                 ///< numbers that share a magnitude; a multiple of 16
  bool operator==(const Quantization&) const = default;
  bool any() const { return weights != "none" || gradients != "none"; }
};

/// Update rule and where its states live. Learning rate and step number are given at run time.
struct OptimizerPlan {
  std::string kind = "adamw";  ///< sgd | adam | adamw
  double momentum = 0.9;       ///< sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;
  double clip_norm = 0.0;                 ///< global norm; 0: no clipping
  std::string sharding = "intra_tensor";  ///< inter_tensor | intra_tensor; matters where os > 1
  std::string spread = "all_gather";      ///< broadcast | all_gather: how updated parameters come back together
  /// How a gradient that several ranks hold comes to the one that keeps a part of it: all_reduce and drop the rest
  /// (AMSP's select and drop), or reduce_scatter, which moves half.
  std::string gradients = "all_reduce";
  bool operator==(const OptimizerPlan&) const = default;
};

/// f32 values beside a weight that its update keeps: sgd's momentum, Adam's two moments.
int num_moments(const OptimizerPlan& optimizer);

/// Why the planner chose this. Free of meaning for lowering.
struct Why {
  double predicted_seconds = 0.0;         ///< 0: not predicted
  std::int64_t predicted_peak_bytes = 0;  ///< 0: not predicted
  std::string binding;                    ///< the constraint that binds, in words
  std::string runner_up;
  std::vector<std::string> frontier;   ///< the best of every batch size, or of every memory, where that was looked at
  std::vector<std::string> decisions;  ///< of a search over several dimensions: what the next choice of each costs
  std::vector<std::string> singles;    ///< of the same: what the plans of other modes cost, or why there is none
  std::vector<std::string> ablation;   ///< of the same: what it finds without one dimension, each in turn
  std::vector<std::string> trace;      ///< of a search that looks at one after another: "<how many> <the best so far>"
  bool operator==(const Why&) const = default;
};

struct Plan {
  std::string strategy;
  Mesh mesh;
  std::int64_t global_batch = 1;  ///< samples a step, over all ranks and micro-batches
  Schedule schedule;
  Stages stages;
  std::vector<OperatorRule> operators;
  Recompute recompute = Recompute::none;  ///< where no rule says otherwise
  /// Sharded parameters that a recomputation has gathered: keep them for the backward behind it (AMSP), or gather again
  /// (FSDP, OSDP).
  std::string gathered_after_recompute = "keep";
  Overlap overlap;
  OptimizerPlan optimizer;
  DTypes dtypes;
  Quantization quantization;
  std::int64_t device_capacity_bytes = 0;  ///< what one rank's arena may hold; 0: no limit
  std::uint64_t seed = 1;
  Why why;
  bool operator==(const Plan&) const = default;
};

/// What the rules say of one operator.
struct OperatorDecision {
  StateFactors state;
  std::optional<Layout> layout;
  MatmulAlgorithm algorithm = MatmulAlgorithm::local;
  int directions = 1;                      ///< in which blocks go round, of products of algorithm ring: 1 or 2
  PartialSums sum = PartialSums::scatter;  ///< of products of algorithm local
  int slices = 0;                          ///< 0: not split
  std::vector<std::string> slice_state;
  Recompute recompute = Recompute::none;
  bool operator==(const OperatorDecision&) const = default;
};

/// One decision an operator, in graph order.
/// @throws UserError if a pattern matches no operator: names the pattern and the nearest operator names.
std::vector<OperatorDecision> resolve(const Plan& plan, const ModelGraph& graph);

/// @p plan for @p part of its model: without the rules that match nothing there.
Plan with_rules_of(Plan plan, const ModelGraph& part);

/// True if @p pattern (see OperatorRule::match) matches all of @p name.
bool matches(std::string_view pattern, std::string_view name);

/// Rank @p rank's coordinate on axis @p axis, and the ranks that share all its other coordinates, in axis order. In a
/// pyramid, where a stage has several ranks, all ranks are along the axis `stage`.
int coordinate(const Mesh& mesh, std::string_view axis, int rank);
std::vector<int> group_along(const Mesh& mesh, std::string_view axis, int rank);
/// Size of the named axis; 1 if the mesh does not have it.
int axis_size(const Mesh& mesh, std::string_view axis);
/// Ranks from one neighbour on the named axis to the next; 1 if the mesh does not have it.
int axis_stride(const Mesh& mesh, std::string_view axis);
/// True where operators are laid out by rules instead of by the axes of the mesh: several ranks, or several a stage.
bool has_layouts(const Mesh& mesh);
/// The most ranks over which samples are cut: the data axis, or, where operators are laid out, the largest p0 (of
/// products by panels p0 x p1).
int most_data_ranks(const Plan& plan, std::span<const OperatorDecision> decisions);
/// The most ranks that share a product, p1 p2 of its layout; 1 where none is shared.
int most_tensor_ranks(const Plan& plan);
/// True where @p stages of neighbouring ranks are whole nodes, or an even part of one.
bool cuts_evenly(const Mesh& mesh, int stages);
/// The nodes and ranks a node of one stage, without axes.
/// @throws UserError with the numbers where stages do not cut the mesh evenly.
Mesh mesh_of_stage(const Mesh& mesh);

/// @throws UserError with key and numbers: axes that do not multiply to the ranks, factors that do not divide, a global
/// batch that micro-batches do not divide, unknown words.
void verify(const Plan& plan, const ModelGraph& graph);

/// Stable TOML; parse_plan(to_text(p)) == p. Defaults are printed too: a stored plan stays readable when defaults
/// change.
std::string to_text(const Plan& plan);
/// @param file_name for messages. @throws UserError with file, line, key and the accepted values.
Plan parse_plan(const std::string& text, std::string_view file_name);

/// Blocks run again with the collectives that are in them.
bool recomputes_blocks(Recompute kind);

std::string_view to_string(Recompute value);
std::string_view to_string(MatmulAlgorithm value);
std::string_view to_string(PartialSums value);
std::string to_string(const Factor& factor);  ///< "4x2"
/// @throws UserError listing the accepted words.
Recompute parse_recompute(std::string_view text);
Factor parse_factor(std::string_view text);

}  // namespace strata

#pragma once

/// @file
/// Tensor layouts of a plan → the model as one rank sees it: operators with this rank's sizes, and redistributions
/// between them (AutoDDL sec. 4.3). A rewriting of the graph, as operator splitting is: what stands behind lowers it
/// like any other. It is of all stages: the ranks at one place of each have the same one, and lower their own part.
///
/// Where tensors stand between operators is layout_axes' business; here each rank gets its part of them. A product's
/// partial sums are scattered to its home, or summed there by all ranks. What stands elsewhere than an operator wants
/// it comes in up to three steps: each rank takes its part of what it holds whole, pieces are exchanged, parts
/// gathered.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/movement.hpp"
#include "lower/layouts/packing.hpp"
#include "lower/layouts/summa_panels.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// A change of layout, and what it does to the gradient: the way back. Of what was gathered, gradients are summed as
/// they are scattered where each reader's is a part of the sum; where ranks repeat what others do, each takes its part
/// of its own.
struct Redistribution {
  Movement forward, backward;
};

/// A product that gathers its input, or scatters its output, block by block (lower/layouts/ring_product.cpp).
struct RingBlocks {
  AxisSet axes = 0;                    ///< the ranks between which blocks are passed on
  int directions = 1;                  ///< 2: every other block goes to the rank before, where that is another one
  bool is_of_inputs = false;           ///< of its input, which is gathered; else of its output, which is scattered
  std::vector<std::int64_t> widths{};  ///< features of the block of each of them
  Packing weights{};                   ///< W of this rank → what multiplies, or makes, each block
  Packing biases{};                    ///< of the output's: all of them → those of each block
  std::int64_t width(int block) const { return widths[static_cast<std::size_t>(block)]; }
};

/// Of ranks that take parts of the samples that are computed together, among those that have any.
struct SampleParts {
  int index = 0;         ///< of this rank's
  int count = 1;         ///< of all parts with samples
  bool is_kept = false;  ///< this rank has samples, and is the first of those that have the same ones
};

/// A dim of which a rank holds a part.
struct HeldCut {
  DimCut cut;
  AxisSet held = 0;  ///< by these of the axes that cut it
  bool operator==(const HeldCut&) const = default;
};

struct LaidOutGraph {
  /// Shapes, sizes of operators and parameters of this rank; redistributions have the attribute `step`. A product of
  /// partial sums has the attribute `adds`: 1 where the bias, or the positions, are added, by one rank of each sum. All
  /// of them hold it. A product by panels has the attribute `summa`, one by blocks on a ring `ring`: it reads its
  /// rank's block of the input, or leaves its block of the output. Where ranks hold copies, `sum_over` has the axes
  /// over which a product's output is summed in place (0: one rank makes all of it), and `sum_gradient_over` those of
  /// its input's gradient.
  ModelGraph graph;
  std::vector<OperatorDecision> decisions;  ///< by operator
  std::vector<TensorLayout> layouts;        ///< by tensor
  std::vector<std::int64_t> num_samples;    ///< by tensor: of those computed together, on this rank
  std::vector<StridedBlock> samples;        ///< by tensor: which of them
  std::vector<AxisSet> replicas;            ///< by parameter: over which axes it has copies
  std::vector<std::int64_t> num_copies;     ///< by parameter: ranks that hold the same part
  /// By parameter that is added to partial sums: axes along which one rank of each sum alone reads it, and, where it is
  /// sharded, gathers it.
  std::map<int, AxisSet> added_by_one;
  std::vector<Stage> stages;              ///< of the graph
  std::vector<Redistribution> steps;      ///< by attribute `step`
  std::vector<SummaPanels> panels;        ///< by attribute `summa`
  std::vector<RingBlocks> rings;          ///< by attribute `ring`
  std::map<int, SampleParts> norm_parts;  ///< by operator: of batch norms
  std::vector<HeldCut> uneven_parts;      ///< different ones that ranks hold in parts of unequal sizes
  AxisSet unequal_panels = 0;             ///< axes along which panels of products are of unequal sizes
  /// Ranks hold parts of tensors, as layouts say. Else each has all of the model, and samples of its own.
  bool is_laid_out() const { return !layouts.empty(); }
};

/// @param decisions of the plan, by operator of @p graph.
/// @param num_samples that are computed together, over all ranks of a stage: a micro-batch or a sub-batch.
/// @throws Unsupported naming the operator, with the numbers: a layout that it cannot have, tied weights whose uses
/// hold different parts.
LaidOutGraph lay_out(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                     std::int64_t num_samples, int rank);

}  // namespace strata

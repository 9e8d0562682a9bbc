#pragma once

/// @file
/// Gradients of one rank, lowered: what gradient_sums says of a place of the order becomes buffers and instructions
/// there. Nothing is decided here.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/gradient_sums.hpp"
#include "lower/step/builder.hpp"

namespace strata {

class GradientEmission {
 public:
  GradientEmission(const Plan& plan, const ModelGraph& graph, GradientSums sums, ProgramBuilder& builder);

  /// Where a kernel puts its contribution to a gradient. `accumulate`: an earlier contribution is there.
  struct Destination {
    Operand operand;
    bool accumulate = false;
  };
  /// Of the backward of operator @p op of the graph in item @p item of the order, its parameter number @p index. What
  /// makes room for it is issued here.
  Destination destination(const Place& here, int item, int op, int index);
  /// @p here is behind the kernels that make these contributions.
  void behind_contributions(const Place& here, int item, int op);
  /// @p here is behind all kernels of the operator.
  void behind_operator(const Place& here, int item, int op);
  /// @p here is before what item @p item of the order has.
  void before_item(const Place& here, int item);
  /// @p here is before the pass that precedes the last update, of whichever training step.
  void ahead_of_update(const Place& here) { issue(here, sums_.ahead_of_update); }
  /// @p here is behind the last pass.
  void behind_backward(const Place& here) { issue(here, sums_.behind_backward); }

  /// The sum over all ranks, of the elements that this rank updates.
  Operand reduced(int parameter) const;
  /// What this rank contributes to the norm of all gradients.
  std::vector<GradientSums::Counted> counted() const;
  /// In the order of updates.
  const std::vector<int>& parameters() const { return sums_.parameters; }

 private:
  using Kind = GradientAction::Kind;

  void issue(const Place& here, const ActionRange& actions);
  /// @param together one action, or those before it that go with it too. @return the index of their instruction, -1: it
  /// is none.
  int issue(const Place& here, std::span<const GradientAction> together);
  void make_buffers(int end);
  /// What @p operand is in the Program. Its buffer is there.
  Operand in_program(const Operand& operand) const;
  /// Its buffer is made, and those that are needed before it.
  Operand made(const Operand& operand);
  std::string name_of(const GradientAction& action) const;
  Attributes quantized(const GradientAction& action) const;

  const Plan& plan_;
  const ModelGraph& graph_;
  const GradientSums sums_;
  const int replica_stream_;
  ProgramBuilder& builder_;
  // What became of the sums' numbers in the Program.
  std::vector<int> buffers_;       ///< by buffer of the sums, of the first ones: made in their order
  std::vector<int> instructions_;  ///< by action, -1: none
};

}  // namespace strata

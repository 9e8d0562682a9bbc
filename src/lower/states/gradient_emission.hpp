#pragma once

/// @file
/// Gradients of one rank, lowered: what gradient_sums says of a place of the order becomes buffers and instructions
/// there. Nothing is decided here.

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
  /// makes room for it is issued first.
  Destination destination(int item, int op, int index);
  /// The kernels that make these contributions have been issued.
  void behind_contributions(int item, int op);
  /// All kernels of the operator have been issued.
  void behind_operator(int item, int op);
  /// Item @p item of the order is next.
  void before_item(int item);
  /// The pass before the last update is next, of whichever training step.
  void ahead_of_update() { issue(sums_.ahead_of_update); }
  /// The last pass is over.
  void behind_backward() { issue(sums_.behind_backward); }

  /// The sum over all ranks, of the elements that this rank updates.
  Operand reduced(int parameter) const;
  /// What this rank contributes to the norm of all gradients.
  std::vector<GradientSums::Counted> counted() const;
  /// In the order of updates.
  const std::vector<int>& parameters() const { return sums_.parameters; }

 private:
  using Kind = GradientAction::Kind;

  void issue(const ActionRange& actions);
  /// @return the index of its instruction, -1: it is none.
  int issue(const GradientAction& action);
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
  ProgramBuilder& builder_;
  // What became of the sums' numbers in the Program.
  std::vector<int> buffers_;       ///< by buffer of the sums, of the first ones: made in their order
  std::vector<int> instructions_;  ///< by action, -1: none
};

}  // namespace strata

/// @file
/// Which gradients of activations share a place, which are added and which are copied first, read off small graphs.

#include <gmock/gmock.h>

#include "ir/model/model_graph.hpp"
#include "lower/step/activation_gradients.hpp"

namespace strata::test_activation_gradients {
namespace {

using Contribution = ActivationGradients::Contribution;

/// A graph that grows; every tensor is an activation with a gradient, but for the first.
struct Example {
  ModelGraph graph;

  Example() { add(OperatorKind::linear, {tensor(TensorRole::image)}); }

  int tensor(TensorRole role = TensorRole::activation) {
    graph.tensors.push_back({.name = "t", .shape = {4}, .role = role});
    return static_cast<int>(graph.tensors.size()) - 1;
  }
  /// @return its output.
  int add(OperatorKind kind, std::vector<int> inputs) {
    const int output = tensor();
    graph.operators.push_back({.name = "op", .kind = kind, .inputs = std::move(inputs), .outputs = {output}});
    if (kind == OperatorKind::linear) {
      graph.operators.back().parameters = {static_cast<int>(graph.parameters.size())};
      graph.parameters.push_back({.name = "p", .shape = {4}});
    }
    return output;
  }
  int last() const { return static_cast<int>(graph.tensors.size()) - 1; }

  ActivationGradients gradients(int first_operator, int num_operators) const {
    return activation_gradients(graph, TensorUses(graph, {}),
                                {.first_operator = first_operator, .num_operators = num_operators});
  }
  ActivationGradients gradients() const { return gradients(0, static_cast<int>(graph.operators.size())); }
};

const Contribution& first_input(const ActivationGradients& gradients, std::size_t op) {
  return gradients.operators[op].inputs.front();
}

/// Of a model that ends with a loss over the last tensor.
Example with_loss(Example example) {
  const int targets = example.tensor(TensorRole::targets);
  example.add(OperatorKind::cross_entropy, {targets - 1, targets});
  return example;
}

TEST(ActivationGradients, ElementwiseKernelsWriteOverTheGradientOfTheirOutput) {
  Example example;
  example.add(OperatorKind::dropout, {example.add(OperatorKind::relu, {example.last()})});
  const ActivationGradients gradients = with_loss(example).gradients();
  const int place = gradients.operators[3].inputs.front().place;
  for (const std::size_t op : {1U, 2U}) {
    EXPECT_EQ(gradients.operators[op].output, place);
    EXPECT_EQ(first_input(gradients, op).place, place);
    EXPECT_EQ(first_input(gradients, op).written, place);
  }
  EXPECT_EQ(gradients.tensors.size(), 1U);
  EXPECT_EQ(first_input(gradients, 0).place, -1) << "nobody needs the gradient of an image";
}

TEST(ActivationGradients, TheLossLeavesItsGradientWhereTheLogitsWereUnlessSomebodyReadsThem) {
  Example example;
  EXPECT_TRUE(first_input(with_loss(example).gradients(), 1).is_values);
  example.add(OperatorKind::gelu, {example.last()});
  example.add(OperatorKind::relu, {example.last()});  // whose backward reads what the loss reads
  EXPECT_FALSE(first_input(with_loss(example).gradients(), 3).is_values);
}

/// y = w x; s = y + relu(v y): the gradient of s is that of both its inputs, and y's has the product's added.
TEST(ActivationGradients, AResidualIsAddedToItsOwnPlaceOnceNobodyElseReadsThat) {
  Example example;
  const int y = example.last();
  const int product = example.add(OperatorKind::linear, {y});
  const int branch = example.add(OperatorKind::relu, {product});
  example.add(OperatorKind::add, {y, branch});
  const ActivationGradients gradients = with_loss(example).gradients();
  const auto& of_add = gradients.operators[3];
  EXPECT_EQ(of_add.inputs[0].place, of_add.output);
  EXPECT_EQ(of_add.inputs[1].place, of_add.output);
  // The gradient of y waits in that place: the kernel of relu must not write over it.
  const Contribution& of_relu = first_input(gradients, 2);
  EXPECT_NE(of_relu.place, of_add.output);
  EXPECT_EQ(of_relu.written, of_relu.place);
  // Nobody reads it any more but y's producer, so that the product's kernel may add to it.
  const Contribution added{
      .place = of_add.output, .written = of_add.output, .can_accumulate = true, .accumulate = true};
  EXPECT_EQ(first_input(gradients, 1), added);
}

/// s = a + b, where b also goes through an operator behind a's: who adds to a finds b's gradient in the same place.
TEST(ActivationGradients, APlaceThatOthersStillReadIsCopiedBeforeItIsAddedTo) {
  for (const bool adds : {true, false}) {
    Example example;
    const int a = example.last();
    const int b = example.add(OperatorKind::linear, {a});
    const int again = example.add(adds ? OperatorKind::linear : OperatorKind::swiglu, {b});
    const int sum = example.add(OperatorKind::add, {a, b});
    example.add(OperatorKind::add, {sum, again});
    const ActivationGradients gradients = with_loss(example).gradients();
    // Backward: sum, again and so a and b have one place when the operator on b adds to b's.
    const int shared = gradients.operators[4].output;
    EXPECT_EQ(gradients.operators[3].inputs[0].place, shared);
    EXPECT_EQ(gradients.operators[3].inputs[1].place, shared);
    const Contribution& to_b = first_input(gradients, 2);
    EXPECT_EQ(to_b.copy_of, shared);
    EXPECT_NE(to_b.place, shared);
    EXPECT_EQ(to_b.accumulate, adds);
    EXPECT_EQ(to_b.written == to_b.place, adds);
    EXPECT_EQ(gradients.operators[1].output, to_b.place);
    // Then a is alone there.
    EXPECT_EQ(first_input(gradients, 1).place, shared);
    EXPECT_EQ(first_input(gradients, 1).copy_of, -1);
  }
}

TEST(ActivationGradients, OfASumOfATensorWithItselfTheGradientIsThereTwice) {
  Example example;
  example.add(OperatorKind::add, {example.last(), example.last()});
  const ActivationGradients gradients = with_loss(example).gradients();
  const int dy = gradients.operators[1].output;
  const std::vector<Contribution>& inputs = gradients.operators[1].inputs;
  EXPECT_EQ(inputs[0].place, dy);
  EXPECT_EQ(inputs[1].written, dy);
  EXPECT_EQ(inputs[1].copy_of, dy);
  EXPECT_NE(inputs[1].place, dy);
  EXPECT_EQ(gradients.operators[0].output, inputs[1].place);
}

TEST(ActivationGradients, WhatCrossesThePartHasAPlaceAtEitherEnd) {
  Example example;
  const int y = example.last();
  const int z = example.add(OperatorKind::linear, {y});
  example.add(OperatorKind::add, {y, example.add(OperatorKind::linear, {z})});
  const Example model = with_loss(example);
  // The part in the middle: y crosses both cuts, z begins in it.
  const ActivationGradients gradients = model.gradients(1, 1);
  ASSERT_EQ(gradients.received.size(), 2U);
  ASSERT_EQ(gradients.sent.size(), 1U);
  EXPECT_EQ(gradients.operators[1].output, gradients.received.at(z));
  // What comes of y's gradient is added to, and goes on.
  EXPECT_TRUE(first_input(gradients, 1).accumulate);
  EXPECT_EQ(gradients.sent.at(y), gradients.received.at(y));
  EXPECT_EQ(gradients.operators[0].output, -1) << "of another part";
}

}  // namespace
}  // namespace strata::test_activation_gradients

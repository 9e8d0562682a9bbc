/// @file
/// The three sources on one instruction; a profile's interpolation, and what it refuses.

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "cost/kernel_work.hpp"

namespace strata::test_cost_models {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// y[rows,out] = x[rows,in] · W.
Program linear(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype = DType::f32) {
  Program program;
  program.streams = {"compute"};
  program.buffers = {{.name = "x", .num_elements = rows * in, .dtype = dtype},
                     {.name = "w", .num_elements = in * out, .dtype = dtype},
                     {.name = "y", .num_elements = rows * out, .dtype = dtype}};
  program.body = {{.kernel = Kernel::linear_forward,
                   .name = "fc",
                   .inputs = {{0, 0, rows * in}, {1, 0, in * out}},
                   .outputs = {{2, 0, rows * out}},
                   .attributes = {{"rows", rows}, {"in", in}, {"out", out}}}};
  return program;
}

Cluster described() {
  Cluster cluster;
  cluster.name = "described";
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  cluster.peak_flops_per_second = {{"f32", 1e13}, {"f16", 1e14}};
  cluster.memory_bandwidth_bytes_per_second = 1e12;
  cluster.intra_node = {1e-6, 1e11};
  cluster.inter_node = {5e-6, 1e10};
  return cluster;
}

Cost kernel_cost(const CostModel& costs, const Program& program) { return costs.kernel(program, program.body[0]); }

TEST(KernelWork, ShapesAndBytes) {
  const Program program = linear(8, 16, 32, DType::bf16);
  const KernelShape shape = kernel_shape(program, program.body[0]);
  EXPECT_EQ(shape.kind, "linear_forward bf16");
  EXPECT_EQ(shape.sizes, (std::vector<double>{16, 32, 8})) << "in, out, rows: attributes are sorted";
  EXPECT_EQ(shape.work, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(bytes_touched(program, program.body[0]), 2 * (8 * 16 + 16 * 32 + 8 * 32));
}

TEST(KernelWork, ASliceIsAKernelOfItsSizeAndTouchesItsColumns) {
  Program program = linear(8, 16, 32, DType::bf16);
  Instruction& in = program.body[0];
  in.attributes.set("in", 4);  // columns [4, 8) of 16
  in.attributes.set("first_column", 4);
  in.attributes.set("row", 16);
  in.attributes.set("accumulate", 1);
  in.inputs[1].num_elements = 4 * 32;
  EXPECT_EQ(bytes_touched(program, in), 2 * (8 * 4 + 4 * 32 + 2 * 8 * 32)) << "the output is read and written";
  const KernelShape whole = kernel_shape(program, linear(8, 4, 32, DType::bf16).body[0]);
  EXPECT_EQ(kernel_shape(program, in).kind, whole.kind) << "one table";
  EXPECT_EQ(kernel_shape(program, in).sizes, whole.sizes);
}

TEST(PaperCosts, PeakRatesAndRingsOnTheSlowestLink) {
  const auto costs = paper_costs(described());
  EXPECT_DOUBLE_EQ(kernel_cost(*costs, linear(100, 200, 300)).seconds, 2.0 * 100 * 200 * 300 / 1e13);
  EXPECT_DOUBLE_EQ(kernel_cost(*costs, linear(100, 200, 300, DType::bf16)).seconds, 2.0 * 100 * 200 * 300 / 1e14)
      << "a device without bf16 computes it as f16";
  EXPECT_DOUBLE_EQ(costs->collective(Collective::all_reduce, 8000, {.shape = {4, 2}}).seconds,
                   14 * (5e-6 + 1000 / 1e10));
}

TEST(AnalyticCosts, LoseSomethingOfThePeakAndMoreOnSmallShapes) {
  const auto costs = analytic_costs(described());
  const auto share = [&](std::int64_t n) {
    return 2.0 * double(n * n * n) / 1e13 / kernel_cost(*costs, linear(n, n, n)).seconds;
  };
  EXPECT_GT(share(8192), 0.75);
  EXPECT_LT(share(8192), 0.9);
  EXPECT_LT(share(256), 0.5 * share(8192));
}

TEST(AnalyticCosts, AreThoseOfTheKindOfDeviceWhateverTheClusterIsNamed) {
  Cluster cluster = described();
  const double on_gpus = kernel_cost(*analytic_costs(cluster), linear(8, 16, 32)).seconds;
  cluster.device = "cpu";
  const double on_cpus = kernel_cost(*analytic_costs(cluster), linear(8, 16, 32)).seconds;
  EXPECT_GT(on_gpus, 4e-6) << "a launch";
  EXPECT_LT(on_cpus, 0.5 * on_gpus) << "a call, and small products lose less";
  cluster.name = "this";
  EXPECT_EQ(kernel_cost(*analytic_costs(cluster), linear(8, 16, 32)).seconds, on_cpus);
  cluster.device = "A800";
  EXPECT_EQ(kernel_cost(*analytic_costs(cluster), linear(8, 16, 32)).seconds, on_gpus);
}

TEST(AnalyticCosts, PairsOfANodeHaveTheirOwnLink) {
  Cluster cluster = described();
  cluster.pairs = {{0, 1, {1e-6, 4e11}}, {2, 3, {1e-6, 4e11}}};
  const auto costs = analytic_costs(cluster);
  const auto seconds = [&](const std::vector<int>& ranks) {
    return costs->collective(Collective::all_reduce, 1 << 28, placement(ranks, 4)).seconds;
  };
  EXPECT_NEAR(seconds({0, 1}) / seconds({1, 2}), 0.25, 0.01);
  EXPECT_EQ(seconds({2, 3}), seconds({0, 1}));
  EXPECT_EQ(seconds({4, 5}), seconds({0, 1})) << "on the second node";
  EXPECT_NEAR(seconds({0, 1, 2, 3}) / seconds({1, 2}), 1.5, 0.01) << "a ring over both pairs crosses between them";
}

TEST(AnalyticCosts, ComputeAndCommunicationSlowEachOtherDownAsTheClusterSays) {
  Cluster cluster = described();
  EXPECT_EQ(analytic_costs(cluster)->slowdown().compute, 1.0);
  EXPECT_EQ(analytic_costs(cluster)->slowdown().communication, 1.0);
  cluster.compute_slowdown = 1.25;
  cluster.communication_slowdown = 2.0;
  EXPECT_EQ(analytic_costs(cluster)->slowdown().compute, 1.25);
  EXPECT_EQ(analytic_costs(cluster)->slowdown().communication, 2.0);
  EXPECT_EQ(paper_costs(cluster)->slowdown().compute, 1.0) << "the papers' formulas have none";
}

TEST(AnalyticCosts, AStepHasTheOverheadOfItsCluster) {
  Cluster cluster = described();
  EXPECT_EQ(analytic_costs(cluster)->step_overhead_seconds(), 0.0);
  cluster.step_overhead_seconds = 0.25;
  EXPECT_EQ(analytic_costs(cluster)->step_overhead_seconds(), 0.25);
  EXPECT_EQ(paper_costs(cluster)->step_overhead_seconds(), 0.0) << "the papers' formulas have none";
}

TEST(DescribedCosts, AMissingNumberIsNamed) {
  Cluster cluster = described();
  cluster.memory_bandwidth_bytes_per_second = 0.0;
  EXPECT_THAT([&] { analytic_costs(cluster); },
              ThrowsMessage<UserError>(HasSubstr("memory_bandwidth_bytes_per_second is missing")));
  cluster = described();
  cluster.peak_flops_per_second.clear();
  const auto costs = paper_costs(cluster);
  EXPECT_THAT([&] { kernel_cost(*costs, linear(1, 1, 1)); },
              ThrowsMessage<UserError>(HasSubstr("peak_flops_per_second.f32 is missing")));
}

CostProfile measured() {
  CostProfile profile;
  profile.machine = "m";
  for (const double rows : {64.0, 256.0, 1024.0}) {
    const double work = 2.0 * 128 * 128 * rows;
    profile.kernels.push_back({"linear_forward f32", {128, 128, rows}, work, 2, work / 1e11, 9});
  }
  for (const std::int64_t bytes : {1000, 2000, 4000}) {
    profile.collectives.push_back({Collective::all_reduce, {2, 1}, "shm", bytes, 1e-5 + double(bytes) * 1e-9});
  }
  profile.interference = {{2, "shm", 1.25, 3.0}};
  profile.step_overhead_seconds = {{2, 1e-4}};
  return profile;
}

Transports over_shm() {
  return {.name = [](const Factor&) { return std::string("shm"); }, .of_all_ranks = "shm", .emulated = {}};
}

TEST(MeasuredCosts, MeasuredShapesAreExactOthersSayWhatTheyAre) {
  const auto costs = measured_costs(measured(), 2, over_shm());
  const Cost exact = kernel_cost(*costs, linear(256, 128, 128));
  EXPECT_EQ(exact.seconds, 2.0 * 128 * 128 * 256 / 1e11);
  EXPECT_EQ(exact.basis, Basis::measured);
  const Cost between = kernel_cost(*costs, linear(500, 128, 128));
  EXPECT_NEAR(between.seconds, 2.0 * 128 * 128 * 500 / 1e11, 1e-12) << "a constant rate is found again";
  EXPECT_EQ(between.basis, Basis::interpolated);
  EXPECT_EQ(kernel_cost(*costs, linear(5000, 128, 128)).basis, Basis::extrapolated);
  EXPECT_EQ(kernel_cost(*costs, linear(256, 128, 256)).basis, Basis::extrapolated);
  EXPECT_EQ(costs->slowdown().compute, 1.25);
  EXPECT_EQ(costs->slowdown().communication, 3.0);
  EXPECT_EQ(costs->step_overhead_seconds(), 1e-4);
}

TEST(MeasuredCosts, CollectivesAreInterpolatedBySize) {
  const auto costs = measured_costs(measured(), 2, over_shm());
  const auto cost = [&](std::int64_t bytes) {
    return costs->collective(Collective::all_reduce, bytes, {.shape = {2, 1}});
  };
  EXPECT_EQ(cost(2000).basis, Basis::measured);
  EXPECT_EQ(cost(3000).basis, Basis::interpolated);
  EXPECT_NEAR(cost(3000).seconds, 1e-5 + 3e-6, 1e-12);
  EXPECT_EQ(cost(8).basis, Basis::extrapolated);
  EXPECT_EQ(cost(8).seconds, cost(1000).seconds) << "latency";
  EXPECT_EQ(cost(40000).basis, Basis::extrapolated);
  EXPECT_NEAR(cost(40000).seconds, 10 * cost(4000).seconds, 1e-12);
}

TEST(MeasuredCosts, AnEmulatedLinkIsItsOwnFormula) {
  Transports transports = over_shm();
  transports.emulated = Transports::Emulated{.inside = {1e-4, 1e8}, .between = {1e-3, 1e7}};
  const auto costs = measured_costs(measured(), 2, transports);
  EXPECT_DOUBLE_EQ(costs->collective(Collective::all_reduce, 1000, {.shape = {2, 1}}).seconds, 2 * (1e-4 + 500 / 1e8));
  EXPECT_DOUBLE_EQ(costs->collective(Collective::all_reduce, 1000, {.shape = {1, 2}}).seconds, 2 * (1e-3 + 500 / 1e7));
  EXPECT_DOUBLE_EQ(costs->collective(Collective::all_reduce, 1000, {.shape = {2, 2}}).seconds, 6 * (1e-3 + 250 / 1e7));
}

TEST(MeasuredCosts, WhatWasNotMeasuredIsNamed) {
  EXPECT_THAT([] { measured_costs(measured(), 3, over_shm()); },
              ThrowsMessage<UserError>(
                  AllOf(HasSubstr("with 3 ranks on a node, only with 2"), HasSubstr("mpiexec -n 3 strata profile"))));
  const auto costs = measured_costs(measured(), 2, over_shm());
  EXPECT_THAT([&] { kernel_cost(*costs, linear(64, 128, 128, DType::bf16)); },
              ThrowsMessage<UserError>(HasSubstr("no time of `linear_forward bf16`")));
  EXPECT_THAT(
      [&] {
        costs->collective(Collective::broadcast, 8, {.shape = {2, 1}});
      },
      ThrowsMessage<UserError>(HasSubstr("no time of broadcast on 2x1 ranks over shm")));
}

TEST(CostSource, Words) {
  for (const char* word : {"paper", "analytic", "measured"}) EXPECT_EQ(to_string(parse_cost_source(word)), word);
  EXPECT_THAT([] { parse_cost_source("guess"); }, ThrowsMessage<UserError>(HasSubstr("paper, analytic, measured")));
}

}  // namespace
}  // namespace strata::test_cost_models

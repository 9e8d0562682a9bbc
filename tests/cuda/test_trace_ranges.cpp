/// @file
/// What a profiler sees of a step: this program is its own NVTX tool, by the pointer that NVTX looks for.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// NVTX's definition of the pointer, a null one, is left out with its declaration.
#define NVTX_STATIC_INJECTION_IMPL
extern "C" int (*InitializeInjectionNvtx2_fnptr)(const void* (*export_table)(std::uint32_t));

#include "exec/cuda/cuda_executor.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "ir/timeline/timeline.hpp"
#include "mpi/exec/networks.hpp"

namespace {

struct Range {
  std::string name;
  std::size_t depth = 0;
  std::int64_t number = -1;
  bool operator==(const Range&) const = default;
};

struct Tool {
  std::map<std::string, nvtxDomainHandle_t> domains;
  std::vector<std::string> names;  // a handle is the number of its name, from 1
  std::vector<Range> ranges;
  std::size_t depth = 0;
} tool;

nvtxDomainHandle_t create_domain(const char* name) {
  static int domain;
  return tool.domains[name] = reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
nvtxStringHandle_t register_name(nvtxDomainHandle_t, const char* name) {
  tool.names.emplace_back(name);
  return reinterpret_cast<nvtxStringHandle_t>(tool.names.size());
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  EXPECT_EQ(domain, tool.domains.at("strata"));
  EXPECT_EQ(range->messageType, NVTX_MESSAGE_TYPE_REGISTERED);
  tool.ranges.push_back(
      {.name = tool.names.at(reinterpret_cast<std::size_t>(range->message.registered) - 1),
       .depth = tool.depth,
       .number = range->payloadType == NVTX_PAYLOAD_TYPE_INT64 ? range->payload.llValue : std::int64_t{-1}});
  return static_cast<int>(tool.depth++);
}
int pop(nvtxDomainHandle_t) { return static_cast<int>(--tool.depth); }

int start_tool(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *functions[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(register_name);
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

extern "C" {
int (*InitializeInjectionNvtx2_fnptr)(const void* (*export_table)(std::uint32_t)) = start_tool;
}

namespace strata {
namespace {

/// A step that is launched as a graph is one range: profilers show a graph's kernels, and the host has no part in them.
void expect_ranges(cuda::GraphUse graphs) {
  tool.ranges.clear();
  const comm::World world;
  comm::Engine engine(world, {});
  const auto models = real_models();
  const auto is_mlp = [](const RealModel& model) { return model.name == std::string_view("mlp"); };
  Training training = real(*std::ranges::find_if(models, is_mlp), 24);
  training.steps = 2;
  training.backend = {
      .kernels = {cuda::workspaces_of({}), cuda::fusions},
      .executor = [graphs](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
        return std::make_unique<cuda::CudaExecutor>(program, of_run, inputs, seed, cuda::CudaOptions{.graphs = graphs});
      }};
  const Trained trained = train(training, "single", 1, world, engine);

  std::vector<Range> expected;
  const auto add = [&](const std::string& name, std::int64_t number, const std::vector<Instruction>& section) {
    expected.push_back({.name = name, .depth = 0, .number = number});
    for (const Instruction& in : section) expected.push_back({.name = instruction_label(in), .depth = 1});
  };
  add("prologue", -1, trained.program.prologue);
  add("step", 0, trained.program.body);
  add("step", 1, graphs == cuda::GraphUse::on ? std::vector<Instruction>{} : trained.program.body);
  ASSERT_EQ(tool.ranges.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(tool.ranges[i], expected[i]) << i << ": " << tool.ranges[i].name << ", not " << expected[i].name;
  }
  EXPECT_EQ(tool.depth, 0U);
}

TEST(TraceRanges, AreStepsAndTheirInstructionsInOrder) { expect_ranges(cuda::GraphUse::off); }
TEST(TraceRanges, AreStepsWhereTheseAreGraphs) { expect_ranges(cuda::GraphUse::on); }

}  // namespace
}  // namespace strata

/// @file
/// How a run uses its processors or GPUs: as asked for, or by the rule; and what is said where there is none.

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "predict/device_options.hpp"
#include "predict/prepared_point.hpp"
#include "support/refusal.hpp"

namespace strata::predict::test_device_options {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Experiment experiment(const std::vector<std::string>& overrides) {
  constexpr const char* minimal = R"(name = "tiny"
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[resources]
device = "cuda"
[train]
global_batch = 8
[strategy]
name = "ddp"
)";
  return expand(read_experiment(minimal, "e.toml", overrides), device_backend).points.at(0).experiment;
}

constexpr const char* shared = "ranks 0 and 1 share the GPU GPU-12";

TEST(DeviceTransport, IsByTheRuleWhereNoneIsAskedFor) {
  EXPECT_EQ(device_transport(experiment({}), ""), cuda::Transport::nccl);
  EXPECT_EQ(device_transport(experiment({}), shared), cuda::Transport::host);
  EXPECT_EQ(device_transport(experiment({"communication.emulated_link.gbit_per_s=1"}), ""), cuda::Transport::host);
}

/// Before devices are known: what could come of it, and no more.
TEST(DeviceTransport, MayBeNcclWhereItCouldBe) {
  EXPECT_TRUE(may_use_nccl(experiment({})));
  EXPECT_FALSE(may_use_nccl(experiment({"communication.emulated_link.gbit_per_s=1"})));
  EXPECT_FALSE(may_use_nccl(experiment({"communication.device_transport=host"})));
  EXPECT_TRUE(may_use_nccl(experiment({"communication.device_transport=nccl"})));
}

TEST(DeviceTransport, IsWhatIsAskedForOrRefused) {
  EXPECT_EQ(device_transport(experiment({"communication.device_transport=host"}), ""), cuda::Transport::host);
  const Experiment nccl = experiment({"communication.device_transport=nccl"});
  EXPECT_EQ(device_transport(nccl, ""), cuda::Transport::nccl);
  EXPECT_THAT(words_of<Unsupported>([&] { device_transport(nccl, shared); }),
              AllOf(HasSubstr("communication.device_transport = \"nccl\""), HasSubstr(shared)));
}

CostProfile profile_over(const std::vector<std::string>& transports) {
  CostProfile profile{.machine = "a GPU"};
  for (const std::string& transport : transports)
    profile.interference.push_back({.ranks_on_node = 2, .transport = transport});
  profile.interference.push_back({.ranks_on_node = 4, .transport = "nccl"});
  profile.interference.push_back({.ranks_on_node = 4, .transport = "managed_memory over shm"});
  return profile;
}

/// A simulation has no ranks to ask.
TEST(DeviceTransport, WithoutRanksIsWhatTheProfileHas) {
  const auto of = [](const std::vector<std::string>& transports, std::vector<std::string> overrides = {}) {
    overrides.emplace_back("resources.ranks_per_node=2");
    return profiled_device_transport(experiment(overrides), profile_over(transports));
  };
  EXPECT_EQ(of({"nccl"}), cuda::Transport::nccl);
  EXPECT_EQ(of({"managed_memory over shm"}), cuda::Transport::host);
  EXPECT_EQ(of({"managed_memory over emulated_link", "nccl"}), cuda::Transport::nccl);
  EXPECT_EQ(of({}), cuda::Transport::nccl);
  EXPECT_EQ(of({"nccl"}, {"communication.emulated_link.gbit_per_s=1"}), cuda::Transport::host);
  const std::vector<std::string> both = {"nccl", "managed_memory over mpi"};
  EXPECT_EQ(of(both, {"communication.device_transport=host"}), cuda::Transport::host);
  EXPECT_EQ(of(both, {"communication.device_transport=nccl"}), cuda::Transport::nccl);
  EXPECT_THAT(words_of<UserError>([&] { of(both); }), AllOf(HasSubstr("communication.device_transport = \"auto\""),
                                                            HasSubstr("2 ranks a node"), HasSubstr("a GPU")));
}

TEST(DeviceTransport, ThatAutoHasComeToIsAskedForByName) {
  for (const cuda::Transport transport : {cuda::Transport::nccl, cuda::Transport::host}) {
    EXPECT_EQ(device_transport(with_device_transport(experiment({}), transport), ""), transport);
  }
}

TEST(CpuSection, IsOfProcessors) {
  EXPECT_TRUE(cpu_numerics_of(experiment({"resources.device=cpu"})).winograd);
  EXPECT_FALSE(cpu_numerics_of(experiment({"resources.device=cpu", "cpu.winograd=false"})).winograd);
  EXPECT_THAT(words_of<UserError>([] { experiment({"cpu.winograd=false"}); }),
              AllOf(HasSubstr("cpu.winograd"), HasSubstr("resources.device is \"cuda\"")));
}

TEST(CpuSection, AProfileIsOfTheConvolutionsThatItMeasured) {
  const auto identity = [](const std::string& winograd) {
    return machine_identity(experiment({"resources.device=cpu", "cpu.winograd=" + winograd}));
  };
  EXPECT_EQ(identity("true") + ", direct convolutions", identity("false"));
}

TEST(CudaSection, IsOfGpus) {
  const auto of_cpu = [](const std::string& override) {
    return words_of<UserError>([&] { experiment({"resources.device=cpu", override}); });
  };
  EXPECT_THAT(of_cpu("cuda.graphs=off"), AllOf(HasSubstr("cuda.graphs"), HasSubstr("resources.device is \"cpu\"")));
  EXPECT_THAT(of_cpu("cuda.deterministic=true"), HasSubstr("cuda.deterministic"));
  EXPECT_THAT(of_cpu("cuda.tf32=true"), HasSubstr("cuda.tf32"));
  EXPECT_THAT(of_cpu("cuda.attention=cudnn"), HasSubstr("cuda.attention"));
  EXPECT_THAT(of_cpu("cuda.time_products=off"), HasSubstr("cuda.time_products"));
  EXPECT_THAT(words_of<UserError>([] {
                experiment({"cuda.tf32=true", "train.dtype=bf16"});
              }),
              AllOf(HasSubstr("cuda.tf32"), HasSubstr("train.dtype is \"bf16\"")));
  const cuda::Numerics numerics = numerics_of(experiment({"cuda.tf32=true", "cuda.deterministic=true"}));
  EXPECT_TRUE(numerics.tf32 && numerics.deterministic);
}

TEST(CudaSection, TimedProductsAreNotOfRunsThatMustBeEqual) {
  EXPECT_TRUE(numerics_of(experiment({})).time_products);
  EXPECT_TRUE(numerics_of(experiment({"cuda.time_products=on"})).time_products);
  EXPECT_FALSE(numerics_of(experiment({"cuda.time_products=off"})).time_products);
  EXPECT_FALSE(numerics_of(experiment({"cuda.deterministic=true"})).time_products);
  EXPECT_THAT(words_of<UserError>([] {
                experiment({"cuda.deterministic=true", "cuda.time_products=on"});
              }),
              AllOf(HasSubstr("cuda.time_products"), HasSubstr("cuda.deterministic is true")));
}

TEST(CudaSection, AttentionOfCudnnIsRefusedWhereItDoesNotServe) {
  EXPECT_EQ(numerics_of(experiment({})).attention, cuda::AttentionKernels::automatic);
  EXPECT_EQ(numerics_of(experiment({"cuda.attention=strata"})).attention, cuda::AttentionKernels::strata);
  const auto lowered = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"cluster=h200-ib", "resources.ranks_per_node=8", "cuda.attention=cudnn"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return lower_for_run(prepare_point(experiment(overrides), "e.toml"), 0);
  };
  EXPECT_THAT(words_of<Unsupported>([&] { lowered({"train.dtype=fp32"}); }),
              AllOf(HasSubstr("cuda.attention = \"cudnn\""), HasSubstr("the activations are f32")));
  for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
    EXPECT_NO_THROW(lowered({"train.dtype=bf16", dropout})) << dropout;
  }
}

TEST(CudaSection, Tf32HasThePeakOfTensorCores) {
  const Experiment a100 = experiment({"cuda.tf32=true", "cluster=a800-ib", "resources.ranks_per_node=8"});
  const Cluster cluster = prepare_point(a100, "e.toml").cluster;
  EXPECT_EQ(cluster.peak_flops_per_second.at("f32"), cluster.peak_flops_per_second.at("tf32"));
  EXPECT_THAT(words_of<UserError>([] {
                prepare_point(experiment({"cuda.tf32=true", "cluster=daint-p100"}), "e.toml");
              }),
              AllOf(HasSubstr("cuda.tf32"), HasSubstr("peak_flops_per_second.tf32")));
}

TEST(DeviceTransport, ThatTheDeviceHasNotIsAnError) {
  EXPECT_THAT(words_of<UserError>([] {
                experiment({"resources.device=cpu", "communication.device_transport=nccl"});
              }),
              AllOf(HasSubstr("communication.device_transport"), HasSubstr("resources.device is \"cpu\"")));
  EXPECT_THAT(words_of<UserError>([] {
                experiment({"communication.device_transport=nccl", "communication.emulated_link.gbit_per_s=2"});
              }),
              AllOf(HasSubstr("communication.device_transport"), HasSubstr("2 Gbit/s")));
}

TEST(DeviceTransport, HasANameForResults) {
  EXPECT_EQ(device_transport_name(cuda::Transport::nccl, "shm"), "nccl");
  EXPECT_EQ(device_transport_name(cuda::Transport::host, "shm"), "managed_memory over shm");
  EXPECT_EQ(device_transport_name(cuda::Transport::nccl, "none"), "none");
}

TEST(Device, IsTheBackendOfARun) {
  EXPECT_EQ(experiment({}).backend, "cuda");
  EXPECT_EQ(experiment({"resources.device=cpu"}).backend, "cpu");
  EXPECT_NE(point_id(experiment({})), point_id(experiment({"resources.device=cpu"})));
}

/// A described cluster's GPUs are planned for anywhere, with the workspaces of our kernels there.
TEST(Device, OfADescribedClusterIsPlannedForWithoutOne) {
  const PreparedPoint gpus = prepare_point(experiment({"cluster=h200-ib"}), "/no/such/folder/e.toml");
  const PreparedPoint unknown =
      prepare_point(experiment({"cluster=h200-ib", "resources.device=cpu"}), "/no/such/folder/e.toml");
  EXPECT_GT(lower_for_run(gpus, 0).arena_bytes, lower_uncapped(unknown, 0).arena_bytes);
  EXPECT_EQ(lower_for_run(gpus, 0).arena_bytes, lower_uncapped(gpus, 0).arena_bytes);
}

}  // namespace
}  // namespace strata::predict::test_device_options

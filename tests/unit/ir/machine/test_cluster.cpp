/// @file
/// Cluster descriptions: round trip, verify's rules, messages.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.hpp"
#include "ir/machine/cluster.hpp"
#include "support/refusal.hpp"
#include "support/source_dir.hpp"

namespace strata::test_cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Every field differs from its default.
Cluster full_cluster() {
  Cluster cluster;
  cluster.name = "a800-ib";
  cluster.description = "128 nodes \"of\" 8";
  cluster.nodes = 128;
  cluster.devices_per_node = 8;
  cluster.device = "A800-SXM4-80GB";
  cluster.device_memory_bytes = 85'899'345'920;
  cluster.runtime_memory_bytes = 9'000'000'000;
  cluster.peak_flops_per_second = {{"f32", 19.5e12}, {"bf16", 312e12}, {"tf32", 156e12}};
  cluster.memory_bandwidth_bytes_per_second = 2.039e12;
  cluster.intra_node = {3.0e-6, 2.0e11};
  cluster.pairs = {{0, 1, {1e-6, 3e11}}, {3, 2, {2e-6, 1.0 / 3.0}}};
  cluster.inter_node = {6e-6, 25e9};
  cluster.nics_per_node = 4;
  cluster.nodes_per_leaf = 20;
  cluster.spine_oversubscription = 2.0;
  cluster.ring_hop_seconds = 8e-5;
  cluster.step_overhead_seconds = 0.25;
  cluster.compute_slowdown = 1.125;
  cluster.communication_slowdown = 1.5;
  cluster.sources = {{"nodes", "section 5.1"}, {"peak_flops_per_second.bf16", "data sheet"}};
  return cluster;
}

TEST(Cluster, ReadsBackEqual) {
  const Cluster cluster = full_cluster();
  EXPECT_NO_THROW(verify(cluster));
  EXPECT_EQ(parse_cluster(to_text(cluster), "a.toml"), cluster);
  Cluster plain;
  plain.name = "laptop";
  EXPECT_NO_THROW(verify(plain));
  EXPECT_EQ(parse_cluster(to_text(plain), "a.toml"), plain);
}

TEST(Cluster, VerifyNamesKeyAndNumbers) {
  const std::pair<const char*, void (*)(Cluster&)> cases[] = {
      {"name: empty", [](Cluster& c) { c.name.clear(); }},
      {"nodes: 0 is out of range; accepted: >= 1", [](Cluster& c) { c.nodes = 0; }},
      {"devices_per_node: -1", [](Cluster& c) { c.devices_per_node = -1; }},
      {"device_memory_bytes: -5", [](Cluster& c) { c.device_memory_bytes = -5; }},
      {"runtime_memory_bytes: -5", [](Cluster& c) { c.runtime_memory_bytes = -5; }},
      {"runtime_memory_bytes: 9000000000 leaves nothing of device_memory_bytes = 9000000000",
       [](Cluster& c) { c.device_memory_bytes = c.runtime_memory_bytes; }},
      {"memory_bandwidth_bytes_per_second: -1", [](Cluster& c) { c.memory_bandwidth_bytes_per_second = -1; }},
      {"nics_per_node: 3 NICs do not divide 8 devices", [](Cluster& c) { c.nics_per_node = 3; }},
      {"nodes_per_leaf: -2", [](Cluster& c) { c.nodes_per_leaf = -2; }},
      {"spine_oversubscription: 0.5", [](Cluster& c) { c.spine_oversubscription = 0.5; }},
      {"spine_oversubscription: 2 on a flat network", [](Cluster& c) { c.nodes_per_leaf = 0; }},
      {"ring_hop_seconds: -1 is out of range", [](Cluster& c) { c.ring_hop_seconds = -1; }},
      {"step_overhead_seconds: -1 is out of range", [](Cluster& c) { c.step_overhead_seconds = -1; }},
      {"compute_slowdown: 0.9 is out of range; accepted: >= 1", [](Cluster& c) { c.compute_slowdown = 0.9; }},
      {"communication_slowdown: 0 is out of range", [](Cluster& c) { c.communication_slowdown = 0; }},
      {"unknown dtype \"fp8\"", [](Cluster& c) { c.peak_flops_per_second["fp8"] = 1; }},
      {"peak_flops_per_second.f32: 0 is out of range", [](Cluster& c) { c.peak_flops_per_second["f32"] = 0; }},
      {"intra_node.bandwidth_bytes_per_second: 0 is out of range; accepted: > 0 with 128 nodes of 8",
       [](Cluster& c) { c.intra_node.bandwidth_bytes_per_second = 0; }},
      {"inter_node.bandwidth_bytes_per_second: 0", [](Cluster& c) { c.inter_node.bandwidth_bytes_per_second = 0; }},
      {"inter_node.latency_seconds: -1", [](Cluster& c) { c.inter_node.latency_seconds = -1; }},
      {"pairs[0]: devices 0 and 8, but a node has 8, counted from 0", [](Cluster& c) { c.pairs[0].second = 8; }},
      {"pairs[1]: device 3 is paired with itself", [](Cluster& c) { c.pairs[1].second = 3; }},
      {"pairs[1]: devices 1 and 0 are listed twice",
       [](Cluster& c) {
         c.pairs[1] = {1, 0, c.pairs[0].link};
       }},
      {"sources.node: is the source of nothing; did you mean \"nodes\"?",
       [](Cluster& c) { c.sources.emplace("node", "section 5"); }},
  };
  for (const auto& [expected, apply] : cases) {
    Cluster cluster = full_cluster();
    apply(cluster);
    EXPECT_THAT(user_error([&] { verify(cluster); }), HasSubstr(expected));
  }
}

TEST(Cluster, ParserNamesFileLineAndKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"nodes = 2", "c.toml:1: name: missing"},
      {"name = \"a\"\nnodes = 0", "c.toml:2: nodes: 0 is out of range; accepted: >= 1"},
      {"name = \"a\"\nnode = 2",
       "c.toml:2: node: unknown key; did you mean \"nodes\"?; accepted: name, description, nodes"},
      {"name = \"a\"\n[intra_node]\nlatency_secs = 1",
       "c.toml:3: intra_node.latency_secs: unknown key; did you mean \"latency_seconds\"?"},
      {"name = \"a\"\n[peak_flops_per_second]\nfp32 = 1.0",
       "c.toml:3: peak_flops_per_second.fp32: unknown key; did you mean \"f32\"?; accepted: f32, bf16, tf32"},
      {"name = \"a\"\n[[pairs]]\nfirst = 1", "pairs[0].second: missing"},
      {"name = \"a\"\npairs = [3]", "c.toml:2: pairs: a list of tables [[pairs]] is accepted"},
      {"name = \"a\"\n[sources]\nnodes = 3", "c.toml:3: sources.nodes: an integer where a string is accepted"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(user_error([&, toml = text] { parse_cluster(toml, "c.toml"); }), HasSubstr(expected));
  }
}

TEST(Cluster, EveryDescriptionThatShipsIsWellFormedAndNamedAsItsFile) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() + "/experiments/clusters")) {
    if (entry.path().extension() != ".toml") {
      continue;
    }
    ++num_files;
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const Cluster cluster = parse_cluster(text, entry.path().string());
    EXPECT_NO_THROW(verify(cluster)) << entry.path();
    EXPECT_EQ(cluster.name, entry.path().stem().string());
    EXPECT_EQ(parse_cluster(to_text(cluster), "printed"), cluster);
    // Every line with a number says where it comes from.
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t equals = line.find('=');
      const std::size_t comment = line.find('#');
      if (equals == std::string::npos || comment < equals || line.find('"') < comment) continue;
      EXPECT_NE(comment, std::string::npos) << entry.path().filename() << ": " << line;
    }
  }
  EXPECT_GE(num_files, 9);
}

Cluster shipped(const std::string& name) {
  const std::string path = fmt::format("{}/experiments/clusters/{}.toml", test::source_dir(), name);
  std::ifstream stream(path);
  return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
}

TEST(Cluster, TheTestbedsOfThePapers) {
  EXPECT_EQ(shipped("a800-ib").nodes * shipped("a800-ib").devices_per_node, 1024);
  EXPECT_EQ(shipped("a800-ib").nics_per_node, 4);
  EXPECT_EQ(shipped("titan-pcie").devices_per_node, 8);
  EXPECT_EQ(shipped("gcp-a100").devices_per_node, 16);
  EXPECT_EQ(shipped("rtx3090-nvlink").pairs.size(), 2U);
  Cluster without = shipped("rtx3090-nvlink");
  const Cluster pcie = shipped("rtx3090-pcie");
  without.pairs.clear();
  without.name = pcie.name;
  without.description = pcie.description;
  EXPECT_EQ(without, pcie) << "the two differ in nothing but the bridges";
  EXPECT_LT(shipped("daint-p100").inter_node.effective_bandwidth_bytes_per_second,
            shipped("daint-p100").inter_node.bandwidth_bytes_per_second);
}

TEST(Cluster, EffectiveNumbersStayBelowTheNameplate) {
  Cluster cluster = shipped("a800-ib");
  cluster.inter_node.effective_bandwidth_bytes_per_second = 26e9;
  EXPECT_THAT([&] { verify(cluster); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("inter_node.effective_bandwidth_bytes_per_second"),
                                             HasSubstr("26000000000"), HasSubstr("25000000000"))));
  cluster = shipped("daint-p100");
  cluster.effective_flops_per_second["f32"] = 1e13;
  EXPECT_THAT([&] { verify(cluster); },
              ThrowsMessage<UserError>(HasSubstr("more than peak_flops_per_second.f32 = 9300000000000")));
}

}  // namespace
}  // namespace strata::test_cluster

/// @file
/// What a run of each sharding mode measures, bytes sent by the transport and the arena's high-water mark, against the
/// formulas of the modes' file comments (Memory, Volume): every tensor divides by the ranks. Bytes sent and states
/// are compared to the byte, and so is what is there for a while, as far as the arena's gaps allow.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "mpi/exec/sharding.hpp"
#include "support/held_bytes.hpp"

namespace strata::test_sharding_formulas {
namespace {

constexpr std::int64_t c = 2, g = 2;  ///< bytes of a parameter and a gradient element: bf16
constexpr std::int64_t k = 12;        ///< of an element's optimizer states: master and two moments

/// Every tensor is a multiple of 4 ranks × 256 bytes, so that nothing is rounded up and no address padded.
Training training_of(int micro_batches) {
  const std::vector<std::int64_t> widths = {1024, 512, 512};
  Training training{.graph = build_model({.name = "mlp", .widths = widths}), .plan = {}};
  training.plan.global_batch = 32 * micro_batches;
  training.plan.schedule.micro_batches = micro_batches;
  training.plan.overlap.bucket_bytes = 400000;
  training.plan.dtypes = {DType::bf16, DType::bf16};
  training.classes = 512;
  training.learning_rate = 1e-3;
  training.steps = 2;
  return training;
}

/// One of the modes on N ranks with the factors that it stands for.
struct Case {
  std::string mode;
  std::map<std::string, OptionValue> options;
  StateFactors state;
  bool whole_tensors = false;  ///< dealt to owners, and broadcast
  bool scatters = false;       ///< gradients reach the parts of optimizer states by reduce-scatter
};

class Formulas : public Sharding {
 protected:
  int num_nodes() const { return grid().nodes; }

  std::vector<Case> cases() const {
    const Factor all = grid(), node{all.in_node, 1};
    const std::string reduce = "all_reduce", scatter = "reduce_scatter";
    std::vector<Case> result = {
        {"ddp", {}, {}},
        {"zero1", {{"gradients", scatter}}, {.os = all}, false, true},
        {"zero1", {{"gradients", reduce}}, {.os = all}},
        {"zero2", {{"gradients", scatter}}, {.g = all, .os = all}, false, true},
        {"zero2", {{"gradients", reduce}}, {.g = all, .os = all}},
        {"zero3", {}, {.p = all, .g = all, .os = all}},
        {"mics", {}, {.p = node, .g = node, .os = node}},
        {"zeropp", {}, {.p = all, .g = all, .os = all, .p_backward = node}},
    };
    for (const StateFactors& state : {StateFactors{.os = node},
                                      StateFactors{.os = all},
                                      {.g = all, .os = all},
                                      {.p = node, .g = node, .os = all},
                                      {.p = node, .g = all, .os = all},
                                      {.p = all, .g = all, .os = all}}) {
      for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
        result.push_back({"amsp",
                          {{"p", to_string(state.p)},
                           {"g", to_string(state.g)},
                           {"os", to_string(state.os)},
                           {"sharding", std::string(sharding)}},
                          state,
                          sharding == std::string_view("inter_tensor")});
      }
    }
    return result;
  }

  static std::string described(const Case& which, int micro_batches) {
    const StateFactors& s = which.state;
    return fmt::format("{}: p {} g {} os {}, {}, {}, {} micro-batches", which.mode, to_string(s.p), to_string(s.g),
                       to_string(s.os), which.whole_tensors ? "whole tensors" : "even parts",
                       which.scatters ? "scattered" : "reduced", micro_batches);
  }

  /// Elements that backward reads: matrices but the first layer's.
  static std::int64_t read_by_backward(const ModelGraph& graph) {
    std::int64_t sum = 0;
    for (const Parameter& p : graph.parameters) {
      if (p.shape.size() == 2 && !p.name.starts_with("block[0]")) sum += p.num_elements();
    }
    return sum;
  }

  /// Elements of the fullest owner, of those of one p shard.
  static std::int64_t updated_elements(const ModelGraph& graph, const Case& which) {
    const int q = which.state.os.total() / which.state.p.total();
    std::vector<std::int64_t> sizes;
    for (const Parameter& p : graph.parameters) sizes.push_back(p.num_elements() / which.state.p.total());
    if (!which.whole_tensors) return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) / q;
    std::vector<std::int64_t> loads(static_cast<std::size_t>(q), 0);
    std::ranges::sort(sizes, std::ranges::greater{});
    for (const std::int64_t size : sizes) *std::ranges::min_element(loads) += size;
    return *std::ranges::max_element(loads);
  }

  std::int64_t greatest(std::int64_t mine) const {
    double value[1] = {static_cast<double>(mine)};
    world.all_reduce_max(value);
    return std::llround(value[0]);
  }
  std::int64_t sum(std::int64_t mine) const {
    double value[1] = {static_cast<double>(mine)};
    world.all_reduce_sum(value);
    return std::llround(value[0]);
  }
};

TEST_F(Formulas, BytesSentAreTheVolume) {
  for (const int m : {1, 3}) {
    Training training = training_of(m);
    training.nodes = num_nodes();
    const std::int64_t phi = training.graph.num_parameters(), read = read_by_backward(training.graph);
    for (const Case& which : cases()) {
      SCOPED_TRACE(described(which, m));
      training.options = which.options;
      const Trained trained = train(training, which.mode, size(), world, engine);
      const auto sent = [&](Collective kind) { return trained.last_step.bytes_sent[static_cast<std::size_t>(kind)]; };
      const StateFactors& s = which.state;
      const int n = size(), p = s.p.total(), q = s.os.total() / p, replicas = n / p;
      const int second = s.p_backward ? s.p_backward->total() : p;
      const std::int64_t early = s.g == s.p ? 0 : m - 1;  // micro-batches after which gradients are reduced too

      std::int64_t scattered = m * (p - 1) * g * phi / p;
      std::int64_t gathered = m * ((p - 1) * c * phi / p + (second - 1) * c * read / second);
      std::int64_t reduced = 2 * (replicas - 1) * g * phi / p / replicas + early * 2 * (q - 1) * g * phi / p / q;
      if (which.scatters) {
        scattered += (1 + early) * (q - 1) * g * phi / p / q;
        reduced = 2 * (replicas / q - 1) * g * phi / p / replicas;
      }
      if (!which.whole_tensors) gathered += (q - 1) * c * phi / p / q;
      EXPECT_EQ(sent(Collective::reduce_scatter), scattered);
      EXPECT_EQ(sent(Collective::all_gather), gathered);
      EXPECT_EQ(sent(Collective::all_reduce), reduced);
      // Each p shard from its owner to the q - 1 others that hold it.
      const std::int64_t broadcast = which.whole_tensors ? replicas / q * p * (q - 1) * c * phi / p : 0;
      EXPECT_EQ(sum(sent(Collective::broadcast)), broadcast);
      EXPECT_EQ(sent(Collective::all_to_all) + sent(Collective::send), 0);
    }
  }
}

TEST_F(Formulas, MemoryIsTheStates) {
  for (const int m : {1, 3}) {
    Training training = training_of(m);
    training.nodes = num_nodes();
    const std::int64_t phi = training.graph.num_parameters();
    std::int64_t touched_beside_of_replica = 0;
    for (const Case& which : cases()) {
      SCOPED_TRACE(described(which, m));
      training.options = which.options;
      const Trained trained = train(training, which.mode, size(), world, engine);
      std::int64_t parameters = 0, optimizer = 0;
      for (const Buffer& buffer : trained.program.buffers) {
        if (!buffer.persistent) continue;
        if (buffer.category == Category::parameter) parameters += buffer.size_bytes();
        if (buffer.category == Category::optimizer) optimizer += buffer.size_bytes();
      }
      const StateFactors& s = which.state;
      const std::int64_t updated = updated_elements(training.graph, which);
      const bool cut_further = s.g != s.p;
      const std::int64_t gradients = g * (cut_further ? updated : phi / s.p.total());
      EXPECT_EQ(parameters, c * phi / s.p.total());
      EXPECT_EQ(greatest(optimizer), k * updated);

      const std::int64_t states = parameters + k * updated + gradients;
      const std::int64_t touched = greatest(trained.touched_bytes), touched_beside = touched - states;
      if (which.mode == "ddp") touched_beside_of_replica = touched_beside;
      if (s.p.total() == 1 && !cut_further && !which.scatters) {
        EXPECT_EQ(touched_beside, touched_beside_of_replica) << "optimizer states are all that is sharded";
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_sharding_formulas

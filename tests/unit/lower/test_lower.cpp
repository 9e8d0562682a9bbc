/// @file
/// Every mode lowered for many models, rank counts and options: verified, and equal to the formulas of its docstring.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "ir/program/happens_before.hpp"
#include "support/deep.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_lower {
namespace {

std::vector<ModelGraph> models() {
  return {build_model({.name = "gpt-nano", .dropout = 0.1}), build_model({.name = "llama-nano"}),
          build_model({.name = "vgg-nano"}), build_model({.name = "vit-nano", .dropout = 0.1}),
          build_model({.name = "mlp-tiny"})};
}

bool accepts(const Planner& planner, const ModelGraph& graph, int ranks) {
  try {
    planned(planner, graph, asked(24, ranks));
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

TEST(Lower, EveryModeOfEveryModelVerifiesOnAllRanks) {
  std::map<std::string_view, int> lowered;  // mode -> pairs of a model and a number of ranks
  for (const Planner* planner : all_planners()) {
    for (const ModelGraph& graph : models()) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        if (!accepts(*planner, graph, ranks)) continue;
        bool is_lowered = false;
        // Seven choices, in which every pair of bits differs somewhere; three on many ranks, in which every bit does.
        const int sampled = ranks == 8 ? 11 : 5;
        for (int choice = 0; choice < 32; choice += is_deep() ? 1 : sampled) {
          const auto chosen = [&](int bit) { return (choice >> bit & 1) != 0; };
          Plan base = asked(24 * 3, ranks);
          base.schedule.micro_batches = chosen(0) ? 3 : 1;
          base.recompute = chosen(1) ? Recompute::block : Recompute::none;
          const DType dtype = chosen(2) ? DType::bf16 : DType::f32;
          base.dtypes = {dtype, dtype};
          base.optimizer.kind = chosen(2) ? "adamw" : "sgd";
          base.optimizer.clip_norm = chosen(3) ? 1.0 : 0.0;
          base.overlap.all_reduce = chosen(4) ? "backward" : "none";
          base.overlap.bucket_bytes = 1 << (10 + ranks);
          Plan plan;
          std::vector<Program> programs;
          try {
            plan = planned(*planner, graph, base);
            programs = all_ranks(plan, graph, some_workspace);
          } catch (const Unsupported&) {
            // Their stages are updated one after the other: nothing is clipped, or, in cyclic ones, tied over them.
            if (!planner->name().starts_with("cdp") && planner->name() != "2bw") throw;
            continue;
          }
          is_lowered = true;
          EXPECT_NO_THROW(verify(programs)) << planner->name() << " " << graph.name << " on " << ranks;
          for (const Program& program : programs) {
            EXPECT_GE(program.arena_bytes, memory_peak(program).total_bytes);
          }
          EXPECT_EQ(parse_program(to_text(programs.back())), programs.back());
          EXPECT_EQ(lower(plan, graph, 0, some_workspace), programs.front());
        }
        lowered[planner->name()] += is_lowered ? 1 : 0;
      }
    }
  }
  // Five models on five counts. What searches needs to know the machine, unless there is one plan: on one rank, and
  // on three where nothing else is legal (pipelines of two blocks; tensor parallelism of llama-nano's four heads).
  // Cyclic ones take as many stages as ranks, and no head that is tied over them; interleaved ones two stages a rank;
  // 2bw no fewer micro-batches than stages.
  const std::map<std::string_view, int> expected = {
      {"single", 5},     {"ddp", 25},    {"zero1", 25},       {"zero2", 25},   {"zero3", 25}, {"zeropp", 25},
      {"mics", 25},      {"oases", 6},   {"osdp", 25},        {"gpipe", 25},   {"1f1b", 25},  {"osdp-base", 25},
      {"amsp", 5},       {"3d", 6},      {"3d+osdp", 9},      {"megatron", 6}, {"summa", 6},  {"autoddl", 5},
      {"cdp-v1", 11},    {"cdp-v2", 11}, {"interleaved", 22}, {"2bw", 9},      {"merak", 6},  {"alpa", 6},
      {"decomposed", 6}, {"auto", 5},
  };
  EXPECT_EQ(lowered, expected);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  std::ranges::sort(words);
  return words;
}

TEST(Lower, WeightDecayIsOfTheParametersThatTheModelLetsDecay) {
  for (const ModelGraph& graph : models()) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      Plan base = asked(8, 2);
      base.optimizer.kind = optimizer;
      base.optimizer.weight_decay = 0.125;
      const Program program = lower(planned(find_planner("ddp"), graph, base), graph, 1, no_workspace);
      std::size_t num_updates = 0;
      for (const Instruction& in : program.body) {
        if (in.phase != Phase::update || !in.attributes.has("weight_decay")) continue;
        const auto parameter = std::ranges::find(graph.parameters, in.name, &Parameter::name);
        ASSERT_NE(parameter, graph.parameters.end()) << in.name;
        EXPECT_EQ(in.attributes.real("weight_decay"), parameter->weight_decay ? 0.125 : 0.0) << in.name;
        ++num_updates;
      }
      EXPECT_EQ(num_updates, graph.parameters.size()) << graph.name << " " << optimizer;
    }
  }
}

TEST(Lower, KernelsCarryTheAttributesOfTheirSignature) {
  std::set<Kernel> seen;
  for (const ModelGraph& graph : models()) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      Plan base = asked(8, 1);
      base.schedule.micro_batches = 2;
      base.optimizer.kind = optimizer;
      base.optimizer.clip_norm = 1.0;
      base.dtypes = {DType::bf16, DType::f32};
      const Program program = lower(planned(find_planner("single"), graph, base), graph, 0, no_workspace);
      base.mesh.ranks_per_node = 2;
      const Program last = lower(planned(find_planner("gpipe"), graph, base), graph, 1, no_workspace);
      for (const auto* section : {&program.prologue, &program.body, &last.prologue, &last.body}) {
        for (const Instruction& in : *section) {
          if (in.is_collective()) continue;
          std::vector<std::string> given;
          for (const Attributes::Entry& entry : in.attributes.entries()) given.push_back(entry.key);
          std::vector<std::string> listed = split(kernel_signature(in.kernel).attributes);
          std::erase_if(listed, [](const std::string& key) { return key.ends_with('?'); });  // slices have these
          std::ranges::sort(given);
          EXPECT_EQ(given, listed) << kernel_signature(in.kernel).name << " of " << in.name;
          seen.insert(in.kernel);
        }
      }
    }
  }
  EXPECT_GE(seen.size(), 30U);
}

TEST(Lower, DdpSendsWhatItsDocstringSays) {
  for (const ModelGraph& graph : models()) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const DType gradient : {DType::f32, DType::bf16}) {
        Plan base = asked(24, ranks);
        base.dtypes = {DType::bf16, gradient};
        const Plan plan = planned(find_planner("ddp"), graph, base);
        std::int64_t total = 0;
        for (const Program& program : all_ranks(plan, graph, no_workspace)) {
          total += bytes_by_collective(program)[Collective::all_reduce];
        }
        // Over all ranks 2 (N-1) P g, whatever divides what.
        EXPECT_EQ(total, 2 * (ranks - 1) * graph.num_parameters() * size_of(gradient)) << graph.name;
      }
    }
  }
}

TEST(Lower, StatesTakeWhatTheDocstringsSay) {
  for (const ModelGraph& graph : models()) {
    const std::int64_t parameters = graph.num_parameters();
    for (const auto& [mode, ranks] : {std::pair{"single", 1}, {"ddp", 4}}) {
      Plan base = asked(24, ranks);
      base.optimizer.kind = "adamw";
      const Program full = lower(planned(find_planner(mode), graph, base), graph, 0, no_workspace);
      base.dtypes = {DType::bf16, DType::bf16};
      const Program mixed = lower(planned(find_planner(mode), graph, base), graph, 0, no_workspace);
      std::int64_t bytes[2][num_categories] = {};
      for (const auto& [program, into] : {std::pair{&full, bytes[0]}, {&mixed, bytes[1]}}) {
        for (const Buffer& buffer : program->buffers) {
          if (buffer.persistent || buffer.category == Category::gradient) {
            into[static_cast<int>(buffer.category)] += buffer.size_bytes();
          }
        }
      }
      const int p = static_cast<int>(Category::parameter);
      const int g = static_cast<int>(Category::gradient);
      const int o = static_cast<int>(Category::optimizer);
      EXPECT_EQ(bytes[0][p], 4 * parameters);
      EXPECT_EQ(bytes[0][g], 4 * parameters);
      EXPECT_EQ(bytes[0][o], 8 * parameters);
      EXPECT_EQ(bytes[1][p], 2 * parameters);
      EXPECT_EQ(bytes[1][g], 2 * parameters);
      EXPECT_EQ(bytes[1][o], 12 * parameters);
    }
  }
}

bool writes(const Instruction& in, int buffer) {
  return std::ranges::any_of(in.outputs, [&](const Operand& operand) { return operand.buffer == buffer; });
}

TEST(Lower, ABucketIsReducedAsSoonAsItIsCompleteOrAfterAllOfBackward) {
  for (const ModelGraph& graph : models()) {
    for (const int micro_batches : {1, 3}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        for (const std::string_view when : {"backward", "none"}) {
          Plan base = asked(6 * micro_batches, 2);
          base.schedule.micro_batches = micro_batches;
          base.recompute = recompute;
          base.overlap.bucket_bytes = 4096;
          base.overlap.all_reduce = when;
          const Program program = lower(planned(find_planner("ddp"), graph, base), graph, 0, no_workspace);
          const auto is_reduction = [&](std::size_t i) {
            return program.body[i].is_collective() && program.body[i].phase == Phase::reduce;
          };
          const HappensBefore order(program.body, static_cast<int>(program.streams.size()));
          std::size_t last_backward = 0;
          for (std::size_t i = 0; i < program.body.size(); ++i) {
            if (program.body[i].phase == Phase::backward) last_backward = i;
          }
          int reductions = 0;
          int under_backward = 0;
          for (std::size_t i = 0; i < program.body.size(); ++i) {
            if (!is_reduction(i)) continue;
            ++reductions;
            under_backward += i < last_backward ? 1 : 0;
            const int bucket = program.body[i].outputs[0].buffer;
            std::size_t last_write = 0;
            for (std::size_t j = 0; j <= last_backward; ++j) {
              if (!program.body[j].is_collective() && writes(program.body[j], bucket)) last_write = j;
            }
            ASSERT_LT(last_write, i) << graph.name << ": a gradient is added after its reduction";
            if (when == "backward") {
              for (std::size_t j = last_write + 1; j < i; ++j) {
                EXPECT_TRUE(is_reduction(j)) << graph.name << ": #" << i << " could start after #" << last_write;
              }
            } else {
              EXPECT_GT(i, last_backward) << graph.name;
              EXPECT_TRUE(order.ordered(static_cast<int>(last_backward), static_cast<int>(i)))
                  << graph.name << ": #" << i << " may run under backward on its own stream";
            }
          }
          ASSERT_GE(reductions, 3) << graph.name << ": too few buckets to see anything";
          // Those that the very last kernel completes (a table and its positions, a weight and its bias) come after it.
          if (when == "backward") {
            EXPECT_GE(under_backward, reductions - 2) << graph.name;
          }
        }
      }
    }
  }
}

TEST(Lower, BucketsAreTheSmallestThatHoldWhatWasAsked) {
  for (const ModelGraph& graph : models()) {
    for (const DType gradient : {DType::f32, DType::bf16}) {
      for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{20'000}, std::int64_t{1} << 30}) {
        Plan base = asked(8, 2);
        base.dtypes = {DType::bf16, gradient};
        base.overlap.bucket_bytes = bucket_bytes;
        const Program program = lower(planned(find_planner("ddp"), graph, base), graph, 0, no_workspace);
        std::vector<int> buckets;
        std::int64_t total = 0;
        for (std::size_t b = 0; b < program.buffers.size(); ++b) {
          if (program.buffers[b].category != Category::gradient) continue;
          buckets.push_back(static_cast<int>(b));
          total += program.buffers[b].num_elements;
        }
        EXPECT_EQ(total, graph.num_parameters()) << graph.name;
        const auto reductions = std::ranges::count_if(
            program.body, [](const Instruction& in) { return in.is_collective() && in.phase == Phase::reduce; });
        EXPECT_EQ(reductions, std::ssize(buckets)) << graph.name;
        for (const int bucket : buckets) {
          std::int64_t begin_of_last = 0;
          for (const Instruction& in : program.body) {
            if (in.phase == Phase::update && in.inputs[0].buffer == bucket) {
              begin_of_last = std::max(begin_of_last, in.inputs[0].begin);
            }
          }
          EXPECT_LT(begin_of_last * size_of(gradient), bucket_bytes) << graph.name << ": full before its last gradient";
          if (bucket != buckets.back()) {
            EXPECT_GE(program.buffers[static_cast<std::size_t>(bucket)].size_bytes(), bucket_bytes) << graph.name;
          }
        }
        if (bucket_bytes == 1) {
          EXPECT_EQ(std::ssize(buckets), std::ssize(graph.parameters)) << graph.name;
        }
        if (bucket_bytes == std::int64_t{1} << 30) {
          EXPECT_EQ(std::ssize(buckets), 1) << graph.name;
        }
      }
    }
  }
}

TEST(Lower, RecomputationTradesActivationsForKernels) {
  const ModelGraph graph = build_model({.name = "gpt-micro"});
  Plan plan = planned(find_planner("single"), graph, asked(4, 1));
  const Program kept = lower(plan, graph, 0, no_workspace);
  plan.recompute = Recompute::block;
  const Program again = lower(plan, graph, 0, no_workspace);
  const auto activations = [](const Program& program) {
    return memory_peak(program).bytes[static_cast<int>(Category::activation)];
  };
  EXPECT_LT(activations(again), activations(kept) / 2);
  EXPECT_GT(flops_per_step(again), 1.2 * flops_per_step(kept));
  EXPECT_LT(flops_per_step(again), 1.4 * flops_per_step(kept));
}

TEST(Lower, ProgramFlopsEqualTheGraphs) {
  for (const ModelGraph& graph : models()) {
    const Program program = lower(planned(find_planner("single"), graph, asked(6, 1)), graph, 0, no_workspace);
    double products = 0.0;
    for (const Instruction& in : program.body) {
      if (in.kernel == Kernel::linear_forward || in.kernel == Kernel::linear_backward_input ||
          in.kernel == Kernel::linear_backward_weight) {
        products += flops(in);
      }
    }
    double expected = 0.0;
    for (const Operator& op : graph.operators) {
      if (op.kind == OperatorKind::linear) expected += forward_flops(graph, op, 6) + backward_flops(graph, op, 6);
    }
    EXPECT_DOUBLE_EQ(products, expected) << graph.name;
  }
}

struct Refused {
  const char* name;
  std::function<void(Plan&)> asks;
  std::string what;
};

void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class LowerRefuses : public testing::TestWithParam<Refused> {};

/// Of two data ranks each.
void in_two_stages_without_a_flush(Plan& plan, int micro_batches) {
  plan.mesh.axes = {{"stage", 2}, {"data", 2}};
  plan.stages.count = 2;
  plan.schedule.kind = ScheduleKind::two_buffered_weights;
  plan.schedule.micro_batches = micro_batches;
}

OperatorRule rule(const char* match) { return {.match = match}; }

/// Of two data ranks each, all states as @p state.
void in_two_stages(Plan& plan, const StateFactors& state) {
  plan.mesh.axes = {{"stage", 2}, {"data", 2}};
  plan.stages.count = 2;
  plan.schedule.kind = ScheduleKind::gpipe;
  plan.operators = {rule("*")};
  plan.operators[0].state = state;
}

/// Well formed, and beyond what can be lowered today: a run must not carry the label of what it does not do.
TEST_P(LowerRefuses, ByName) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  Plan plan = planned(find_planner("ddp"), graph, asked(8, 4));
  GetParam().asks(plan);
  try {
    lower(plan, graph, 0, no_workspace);
    FAIL() << "not refused";
  } catch (const Unsupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("plan `ddp`: "), std::string::npos) << message;
    EXPECT_NE(message.find(GetParam().what + " cannot be lowered"), std::string::npos) << message;
  }
}

const std::vector<Refused> refused = {
    {"tensor_axis",
     [](Plan& p) {
       p.mesh.axes = {{"data", 2}, {"tensor", 2}};
     },
     "mesh axis tensor = 2"},
    {"stage_axis",
     [](Plan& p) {
       p.mesh.axes = {{"stage", 2}, {"data", 2}};
       p.stages.count = 2;
     },
     "stages.count = 2 with schedule.kind = simultaneous"},
    {"interleaved_stages",
     [](Plan& p) {
       p.mesh.axes = {{"stage", 2}, {"data", 2}};
       p.stages.count = 4;
       p.schedule.kind = ScheduleKind::gpipe;
     },
     "stages.count = 4 over mesh axis stage = 2"},
    {"an_axis_of_stages_without_stages",
     [](Plan& p) {
       p.mesh.axes = {{"stage", 1}, {"data", 4}};
       p.stages.count = 2;
       p.schedule.kind = ScheduleKind::gpipe;
     },
     "stages.count = 2 over mesh axis stage = 1"},
    {"without_a_flush_fewer_micro_batches_than_stages", [](Plan& p) { in_two_stages_without_a_flush(p, 1); },
     "schedule.kind = 2bw with 1 micro-batches and 2 stages, of which the first is 1 ahead of its backwards,"},
    {"without_a_flush_clipping",
     [](Plan& p) {
       in_two_stages_without_a_flush(p, 2);
       p.optimizer.clip_norm = 0.5;
     },
     "schedule.kind = 2bw with optimizer.clip_norm = 0.5: a stage is updated before the stages before it have all "
     "gradients,"},
    {"without_a_flush_updates_in_backward",
     [](Plan& p) {
       in_two_stages_without_a_flush(p, 2);
       p.overlap.update = "backward";
     },
     "schedule.kind = 2bw with overlap.update = backward, which its order does by itself,"},
    {"without_a_flush_sharded_states",
     [](Plan& p) {
       in_two_stages(p, {.p = {2, 1}, .g = {2, 1}, .os = {2, 1}});
       in_two_stages_without_a_flush(p, 2);
     },
     "schedule.kind = 2bw with sharded states"},
    {"cyclic_beside_replicas", [](Plan& p) { p.schedule.kind = ScheduleKind::cyclic; },
     "schedule.kind = cyclic with mesh axis data = 4"},
    {"cross_pass_of_one_sub_batch", [](Plan& p) { p.schedule.cross_pass = true; },
     "schedule.cross_pass = true with schedule.sub_batches = 1, of which none computes under another's collective,"},
    {"cross_pass_without_recomputation",
     [](Plan& p) {
       p.schedule.sub_batches = 2;
       p.schedule.cross_pass = true;
     },
     "schedule.cross_pass = true with recompute = none, so that there is one pass alone,"},
    {"placement", [](Plan& p) { p.mesh.placement = "zero-ring"; }, "mesh.placement = zero-ring"},
    {"leaves_under_stages",
     [](Plan& p) {
       p.mesh.axes = {{"stage", 2}, {"data", 2}};
       p.stages.count = 2;
       p.schedule.kind = ScheduleKind::gpipe;
       p.mesh.placement = "leaf-first";
       p.mesh.node_order = {0};
     },
     "mesh.placement = leaf-first in 2 stages"},
    {"whole_tensors_in_stages",
     [](Plan& p) {
       in_two_stages(p, {.os = {2, 1}});
       p.optimizer.sharding = "inter_tensor";
       p.optimizer.spread = "broadcast";
     },
     "optimizer.sharding = inter_tensor in 2 stages"},
    {"second_shards_in_stages",
     [](Plan& p) {
       in_two_stages(p, {.p = {2, 1}, .g = {2, 1}, .os = {2, 1}, .p_backward = Factor{1, 1}});
     },
     "embedding: state p_backward = 1x1 in 2 stages"},
    {"quantization_in_stages",
     [](Plan& p) {
       in_two_stages(p, {.p = {2, 1}, .g = {2, 1}, .os = {2, 1}});
       p.quantization.weights = "int8";
     },
     "quantization in 2 stages"},
    {"shards_in_stages_cut_at_operators",
     [](Plan& p) {
       in_two_stages(p, {.os = {2, 1}});
       p.stages.cut_at = "operator";
     },
     "stages.cut_at = operator with sharded states in 2 stages"},
    {"gradients_that_follow_nothing",
     [](Plan& p) {
       p.operators = {rule("block[0].mlp.fc1")};
       p.operators[0].state = StateFactors{.p = {1, 1}, .g = {2, 1}, .os = {4, 1}};
     },
     "block[0].mlp.fc1: state g = 2x1, neither p = 1x1 nor os = 4x1,"},
    {"shards_that_are_not_nested",
     [](Plan& p) {
       p.operators = {rule("block[0].mlp.fc1")};
       p.operators[0].state = StateFactors{.p = {4, 1}, .g = {4, 1}, .os = {2, 1}};
     },
     "block[0].mlp.fc1: state g = 4x1, which does not divide os = 2x1 in both dimensions,"},
    {"a_second_copy_over_more_ranks",
     [](Plan& p) {
       p.operators = {rule("*")};
       p.operators[0].state = StateFactors{.p = {2, 1}, .g = {2, 1}, .os = {2, 1}, .p_backward = Factor{4, 1}};
     },
     "embedding: state p_backward = 4x1, which does not divide p = 2x1 in both dimensions,"},
    {"whole_tensors_that_are_gathered",
     [](Plan& p) {
       p.operators = {rule("*")};
       p.operators[0].state = StateFactors{.p = {1, 1}, .g = {1, 1}, .os = {4, 1}};
       p.optimizer.sharding = "inter_tensor";
     },
     "optimizer.sharding = inter_tensor with spread = all_gather"},
    {"whole_tensors_that_are_scattered",
     [](Plan& p) {
       p.operators = {rule("*")};
       p.operators[0].state = StateFactors{.p = {1, 1}, .g = {1, 1}, .os = {4, 1}};
       p.optimizer.sharding = "inter_tensor";
       p.optimizer.spread = "broadcast";
       p.optimizer.gradients = "reduce_scatter";
     },
     "optimizer.sharding = inter_tensor with gradients = reduce_scatter"},
    {"slices",
     [](Plan& p) {
       p.operators = {rule("*.mlp.norm")};
       p.operators[0].slices = 4;
     },
     "block[0].mlp.norm: slices = 4"},
    {"recompute_after_communication", [](Plan& p) { p.recompute = Recompute::after_communication; },
     "embedding: recompute = after_communication on a mesh with axes, where no layout changes behind an operator,"},
};

INSTANTIATE_TEST_SUITE_P(, LowerRefuses, testing::ValuesIn(refused),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Lower, BlocksAndTheirPartsMayDifferInRecomputation) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  for (const std::string part : {"block[1].", "block[1].mlp."}) {
    Plan plan = planned(find_planner("single"), graph, asked(4, 1));
    plan.operators = {rule((part + "*").c_str())};
    plan.operators[0].recompute = Recompute::block;
    const Program program = lower(plan, graph, 0, no_workspace);
    int again = 0;
    for (const Instruction& in : program.body) {
      if (in.phase != Phase::recompute) continue;
      ++again;
      EXPECT_EQ(in.name.find(part), 0U) << in.name;
    }
    EXPECT_GT(again, 0);
  }
}

TEST(Lower, CapacityIsAskedOfTheProgram) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Program program = lower(planned(find_planner("single"), graph, asked(8, 1)), graph, 0, no_workspace);
  EXPECT_NO_THROW(check_capacity(program, 0));
  EXPECT_NO_THROW(check_capacity(program, program.arena_bytes));
  try {
    check_capacity(program, program.arena_bytes - 1);
    FAIL() << "one byte too few must be refused";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("needs"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::test_lower

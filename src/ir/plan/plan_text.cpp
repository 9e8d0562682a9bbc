/// @file
/// A plan as TOML: printed by `strata plan`, edited by hand, accepted by `--plan`. Short tables stand on one line, so
/// that a plan reads like the sentence a paper would write.

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/toml_value.hpp"
#include "ir/plan/plan.hpp"
#include "ir/plan/plan_words.hpp"

namespace strata {
namespace {

std::string in_quotes(std::string_view text) { return toml_string(text); }
std::string in_quotes(const Factor& factor) { return toml_string(to_string(factor)); }

std::string text_of(const StateFactors& state) {
  std::string text =
      fmt::format("{{ p = {}, g = {}, os = {}", in_quotes(state.p), in_quotes(state.g), in_quotes(state.os));
  if (state.p_backward) {
    text += fmt::format(", p_backward = {}", in_quotes(*state.p_backward));
  }
  return fmt::format("{}{} }}", text, state.walks ? ", walks = true" : "");
}

std::string text_of(const OperatorRule& rule) {
  std::string text = fmt::format("\n[[operators]]\nmatch = {}\n", in_quotes(rule.match));
  if (rule.state) {
    text += fmt::format("state = {}\n", text_of(*rule.state));
  }
  if (rule.layout) {
    text += fmt::format("layout = {{ p0 = {}, p1 = {}, p2 = {} }}\n", in_quotes(rule.layout->p0),
                        in_quotes(rule.layout->p1), in_quotes(rule.layout->p2));
  }
  if (rule.algorithm) {
    text += fmt::format("algorithm = {}\n", in_quotes(to_string(*rule.algorithm)));
  }
  if (rule.directions) {
    text += fmt::format("directions = {}\n", *rule.directions);
  }
  if (rule.sum) {
    text += fmt::format("sum = {}\n", in_quotes(to_string(*rule.sum)));
  }
  if (rule.slices) {
    text += fmt::format("slices = {}\n", *rule.slices);
  }
  if (!rule.slice_state.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : rule.slice_state) {
      words.push_back(in_quotes(word));
    }
    text += fmt::format("slice_state = [{}]\n", fmt::join(words, ", "));
  }
  if (rule.recompute) {
    text += fmt::format("recompute = {}\n", in_quotes(to_string(*rule.recompute)));
  }
  return text;
}

/// Runs @p parse on the string at @p key and puts file, line and key before what it has to say.
template <class Parse>
auto parse_at(TomlReader& reader, std::string_view key, const Parse& parse) {
  std::string text;
  reader.read(key, text);
  try {
    return parse(text);
  } catch (const UserError& error) {
    reader.fail(key, error.what());
  }
}

void read_factor(TomlReader& reader, std::string_view key, Factor& factor) {
  if (reader.has(key)) {
    factor = parse_at(reader, key, parse_factor);
  }
}

void read_recompute(TomlReader& reader, Recompute& value) {
  std::string word(to_string(value));
  reader.read_word("recompute", word, plan_words::recompute);
  value = parse_recompute(word);
}

Mesh read_mesh(TomlReader reader) {
  Mesh mesh;
  reader.read("nodes", mesh.nodes, 1);
  reader.read("ranks_per_node", mesh.ranks_per_node, 1);
  reader.read_word("placement", mesh.placement, plan_words::placement);
  if (const TomlValue* order = reader.array("node_order")) {
    for (const TomlValue& element : order->array()) {
      const auto* node = std::get_if<std::int64_t>(&element.data);
      if (node == nullptr || *node < 0 || *node >= mesh.nodes) {
        reader.fail("node_order", fmt::format("{} where a number of a node, >= 0 and < mesh.nodes = {}, is accepted",
                                              toml_text(element), mesh.nodes));
      }
      mesh.node_order.push_back(static_cast<int>(*node));
    }
  }
  if (const TomlValue* axes = reader.table("axes")) {
    TomlReader sizes = reader.child("axes", *axes);
    for (const std::string& name : split_words(plan_words::axes)) {
      sizes.has(name);
    }
    sizes.finish();
    for (const TomlEntry& axis : axes->table()) {  // in the order of the file
      mesh.axes.push_back({axis.key, 1});
      sizes.read(axis.key, mesh.axes.back().size, 1);
    }
  }
  reader.finish();
  return mesh;
}

Schedule read_schedule(TomlReader reader) {
  Schedule schedule;
  std::string kind(to_string(schedule.kind));
  reader.read_word("kind", kind, plan_words::schedule_kind);
  for (const ScheduleKind value : schedule_kinds) {
    schedule.kind = to_string(value) == kind ? value : schedule.kind;
  }
  reader.read("micro_batches", schedule.micro_batches, 1);
  reader.read("sub_batches", schedule.sub_batches, 1);
  reader.read("cross_pass", schedule.cross_pass);
  reader.read("fresh", schedule.fresh);
  reader.read_word("sum", schedule.sum, plan_words::gradient_sum);
  reader.read_word("spread", schedule.spread, plan_words::parameter_spread);
  reader.read("spare_stages", schedule.spare_stages, 0);
  reader.read_word("shift", schedule.shift, plan_words::ring_shift);
  reader.read_word("optimizer", schedule.updater, plan_words::ring_updater);
  reader.finish();
  return schedule;
}

void read_strings(TomlReader& reader, const char* key, std::vector<std::string>& into) {
  const TomlValue* lines = reader.array(key);
  if (lines == nullptr) return;
  for (const TomlValue& each : lines->array()) {
    const auto* words = std::get_if<std::string>(&each.data);
    if (words == nullptr) reader.fail(key, "a list of strings is accepted");
    into.push_back(*words);
  }
}

Stages read_stages(TomlReader reader) {
  Stages stages;
  reader.read("count", stages.count, 1);
  reader.read_word("cut_by", stages.cut_by, plan_words::cut_by);
  reader.read_word("cut_at", stages.cut_at, plan_words::cut_at);
  read_strings(reader, "begins", stages.begins);
  reader.finish();
  return stages;
}

StateFactors read_state(TomlReader reader) {
  StateFactors state;
  read_factor(reader, "p", state.p);
  read_factor(reader, "g", state.g);
  read_factor(reader, "os", state.os);
  if (reader.has("p_backward")) {
    read_factor(reader, "p_backward", state.p_backward.emplace());
  }
  reader.read("walks", state.walks);
  reader.finish();
  return state;
}

OperatorRule read_rule(TomlReader reader) {
  OperatorRule rule;
  reader.require("match");
  reader.read("match", rule.match);
  if (const TomlValue* state = reader.table("state")) {
    rule.state = read_state(reader.child("state", *state));
  }
  if (const TomlValue* layout = reader.table("layout")) {
    TomlReader factors = reader.child("layout", *layout);
    Layout& value = rule.layout.emplace();
    read_factor(factors, "p0", value.p0);
    read_factor(factors, "p1", value.p1);
    read_factor(factors, "p2", value.p2);
    factors.finish();
  }
  if (reader.has("algorithm")) {
    std::string word;
    reader.read_word("algorithm", word, plan_words::algorithm);
    for (const MatmulAlgorithm value : {MatmulAlgorithm::local, MatmulAlgorithm::summa, MatmulAlgorithm::ring}) {
      if (to_string(value) == word) {
        rule.algorithm = value;
      }
    }
  }
  if (reader.has("directions")) {
    reader.read("directions", rule.directions.emplace(), 1);
  }
  if (reader.has("sum")) {
    std::string word;
    reader.read_word("sum", word, plan_words::sum);
    rule.sum = word == to_string(PartialSums::scatter) ? PartialSums::scatter : PartialSums::all_reduce;
  }
  if (reader.has("slices")) {
    reader.read("slices", rule.slices.emplace(), 0);
  }
  if (const TomlValue* words = reader.array("slice_state")) {
    const std::vector<std::string> accepted = split_words(plan_words::slice_state);
    for (const TomlValue& element : words->array()) {
      const std::string* word = std::get_if<std::string>(&element.data);
      if (word == nullptr || std::find(accepted.begin(), accepted.end(), *word) == accepted.end()) {
        reader.fail("slice_state",
                    fmt::format("unknown word {}; accepted: {}", toml_text(element), plan_words::slice_state));
      }
      rule.slice_state.push_back(*word);
    }
  }
  if (reader.has("recompute")) {
    read_recompute(reader, rule.recompute.emplace(Recompute::none));
  }
  reader.finish();
  return rule;
}

Overlap read_overlap(TomlReader reader) {
  Overlap overlap;
  reader.read("bucket_bytes", overlap.bucket_bytes);
  reader.read_word("all_reduce", overlap.all_reduce, plan_words::all_reduce);
  reader.read_word("gather", overlap.gather, plan_words::gather);
  reader.read_word("gather_backward", overlap.gather_backward, plan_words::gather_backward);
  reader.read_word("reduce_scatter", overlap.reduce_scatter, plan_words::reduce_scatter);
  reader.read_word("broadcast", overlap.broadcast, plan_words::broadcast);
  reader.read("spread_bytes", overlap.spread_bytes);
  reader.read_word("update", overlap.update, plan_words::update);
  reader.read_word("layout", overlap.layout, plan_words::overlapped_layout);
  reader.read_word("panels", overlap.panels, plan_words::overlapped_panels);
  reader.read_word("replica_stream", overlap.replica_stream, plan_words::replica_stream);
  reader.finish();
  return overlap;
}

OptimizerPlan read_optimizer(TomlReader reader) {
  OptimizerPlan optimizer;
  reader.read_word("kind", optimizer.kind, plan_words::optimizer_kind);
  reader.read("momentum", optimizer.momentum);
  reader.read("beta1", optimizer.beta1);
  reader.read("beta2", optimizer.beta2);
  reader.read("epsilon", optimizer.epsilon);
  reader.read("weight_decay", optimizer.weight_decay);
  reader.read("clip_norm", optimizer.clip_norm);
  reader.read_word("sharding", optimizer.sharding, plan_words::optimizer_sharding);
  reader.read_word("spread", optimizer.spread, plan_words::optimizer_spread);
  reader.read_word("gradients", optimizer.gradients, plan_words::optimizer_gradients);
  reader.finish();
  return optimizer;
}

void read_dtype(TomlReader& reader, std::string_view key, DType& dtype) {
  std::string word(to_string(dtype));
  reader.read_word(key, word, plan_words::compute_dtype);
  dtype = parse_dtype(word);
}

std::string text_of(const Schedule& schedule) {
  std::string text = fmt::format("{{ kind = {}, micro_batches = {}, sub_batches = {}, cross_pass = {}",
                                 in_quotes(to_string(schedule.kind)), schedule.micro_batches, schedule.sub_batches,
                                 schedule.cross_pass);
  // Of other kinds they mean nothing; what somebody has written all the same is refused by verify(), not lost here.
  const Schedule plain{.kind = schedule.kind,
                       .micro_batches = schedule.micro_batches,
                       .sub_batches = schedule.sub_batches,
                       .cross_pass = schedule.cross_pass};
  if (schedule.kind == ScheduleKind::cyclic || schedule != plain) {
    text += fmt::format(", fresh = {}, sum = {}, spread = {}, spare_stages = {}, shift = {}, optimizer = {}",
                        in_quotes(schedule.fresh), in_quotes(schedule.sum), in_quotes(schedule.spread),
                        schedule.spare_stages, in_quotes(schedule.shift), in_quotes(schedule.updater));
  }
  return text + " }";
}

std::string text_of(const Stages& stages) {
  std::vector<std::string> begins;
  for (const std::string& name : stages.begins) begins.push_back(in_quotes(name));
  return fmt::format("{{ count = {}, cut_by = {}, cut_at = {}{} }}", stages.count, in_quotes(stages.cut_by),
                     in_quotes(stages.cut_at),
                     begins.empty() ? "" : fmt::format(", begins = [{}]", fmt::join(begins, ", ")));
}

}  // namespace

std::string to_text(const Plan& plan) {
  STRATA_INVARIANT(plan.seed <= INT64_MAX, "a seed of TOML is a signed 64-bit integer");
  std::vector<std::string> axes;
  for (const MeshAxis& axis : plan.mesh.axes) {
    axes.push_back(fmt::format("{} = {}", toml_key(axis.name), axis.size));
  }
  std::string text;
  const auto line = [&](const char* key, const std::string& value) { text += fmt::format("{} = {}\n", key, value); };
  line("strategy", in_quotes(plan.strategy));
  line("seed", fmt::format("{}", plan.seed));
  line("device_capacity_bytes", fmt::format("{}", plan.device_capacity_bytes));
  line("recompute", in_quotes(to_string(plan.recompute)));
  line("gathered_after_recompute", in_quotes(plan.gathered_after_recompute));
  const std::string order =
      plan.mesh.node_order.empty() ? "" : fmt::format(", node_order = [{}]", fmt::join(plan.mesh.node_order, ", "));
  line("mesh", fmt::format("{{ nodes = {}, ranks_per_node = {}, axes = {{ {} }}, placement = {}{} }}", plan.mesh.nodes,
                           plan.mesh.ranks_per_node, fmt::join(axes, ", "), in_quotes(plan.mesh.placement), order));
  line("batch", fmt::format("{{ global = {} }}", plan.global_batch));
  line("schedule", text_of(plan.schedule));
  line("stages", text_of(plan.stages));
  line("dtypes", fmt::format("{{ compute = {}, gradient = {} }}", in_quotes(to_string(plan.dtypes.compute)),
                             in_quotes(to_string(plan.dtypes.gradient))));
  line("quantization",
       fmt::format("{{ weights = {}, gradients = {}, block = {} }}", in_quotes(plan.quantization.weights),
                   in_quotes(plan.quantization.gradients), plan.quantization.block));

  text += "\n[optimizer]\n";
  line("kind", in_quotes(plan.optimizer.kind));
  line("momentum", toml_real(plan.optimizer.momentum));
  line("beta1", toml_real(plan.optimizer.beta1));
  line("beta2", toml_real(plan.optimizer.beta2));
  line("epsilon", toml_real(plan.optimizer.epsilon));
  line("weight_decay", toml_real(plan.optimizer.weight_decay));
  line("clip_norm", toml_real(plan.optimizer.clip_norm));
  line("sharding", in_quotes(plan.optimizer.sharding));
  line("spread", in_quotes(plan.optimizer.spread));
  line("gradients", in_quotes(plan.optimizer.gradients));

  text += "\n[overlap]\n";
  line("bucket_bytes", fmt::format("{}", plan.overlap.bucket_bytes));
  line("all_reduce", in_quotes(plan.overlap.all_reduce));
  line("gather", in_quotes(plan.overlap.gather));
  line("gather_backward", in_quotes(plan.overlap.gather_backward));
  line("reduce_scatter", in_quotes(plan.overlap.reduce_scatter));
  line("broadcast", in_quotes(plan.overlap.broadcast));
  line("spread_bytes", fmt::format("{}", plan.overlap.spread_bytes));
  line("update", in_quotes(plan.overlap.update));
  line("layout", in_quotes(plan.overlap.layout));
  line("panels", in_quotes(plan.overlap.panels));
  line("replica_stream", in_quotes(plan.overlap.replica_stream));

  for (const OperatorRule& rule : plan.operators) {
    text += text_of(rule);
  }

  // What was not predicted is not printed: a zero would read as a number.
  if (plan.why != Why{}) text += "\n[why]\n";
  if (plan.why.predicted_seconds != 0.0) line("predicted_seconds", toml_real(plan.why.predicted_seconds));
  if (plan.why.predicted_peak_bytes != 0)
    line("predicted_peak_bytes", fmt::format("{}", plan.why.predicted_peak_bytes));
  if (!plan.why.binding.empty()) line("binding", in_quotes(plan.why.binding));
  if (!plan.why.runner_up.empty()) line("runner_up", in_quotes(plan.why.runner_up));
  const auto lines = [&](std::string_view key, const std::vector<std::string>& values) {
    if (values.empty()) return;
    text += fmt::format("{} = [\n", key);
    for (const std::string& each : values) text += fmt::format("  {},\n", in_quotes(each));
    text += "]\n";
  };
  lines("decisions", plan.why.decisions);
  lines("singles", plan.why.singles);
  lines("ablation", plan.why.ablation);
  lines("frontier", plan.why.frontier);
  lines("trace", plan.why.trace);
  return text;
}

Plan parse_plan(const std::string& text, std::string_view file_name) {
  const TomlValue root = parse_toml(text, file_name);
  TomlReader reader(root, "", std::string(file_name));
  Plan plan;
  const auto child = [&](std::string_view key, auto& field, const auto& read) {
    if (const TomlValue* table = reader.table(key)) {
      field = read(reader.child(key, *table));
    }
  };

  reader.require("strategy");
  reader.read("strategy", plan.strategy);
  auto seed = static_cast<std::int64_t>(plan.seed);
  reader.read("seed", seed);
  plan.seed = static_cast<std::uint64_t>(seed);
  reader.read("device_capacity_bytes", plan.device_capacity_bytes);
  read_recompute(reader, plan.recompute);
  reader.read_word("gathered_after_recompute", plan.gathered_after_recompute, plan_words::gathered_after_recompute);
  child("mesh", plan.mesh, read_mesh);
  child("batch", plan.global_batch, [](TomlReader batch) {
    std::int64_t global = 1;
    batch.require("global");
    batch.read("global", global, 1);
    batch.finish();
    return global;
  });
  child("schedule", plan.schedule, read_schedule);
  child("stages", plan.stages, read_stages);
  child("dtypes", plan.dtypes, [](TomlReader table) {
    DTypes dtypes;
    read_dtype(table, "compute", dtypes.compute);
    read_dtype(table, "gradient", dtypes.gradient);
    table.finish();
    return dtypes;
  });
  child("quantization", plan.quantization, [](TomlReader table) {
    Quantization quantization;
    table.read_word("weights", quantization.weights, plan_words::quantized_weights);
    table.read_word("gradients", quantization.gradients, plan_words::quantized_gradients);
    table.read("block", quantization.block, 16);
    table.finish();
    return quantization;
  });
  child("optimizer", plan.optimizer, read_optimizer);
  child("overlap", plan.overlap, read_overlap);
  if (const TomlValue* rules = reader.array("operators")) {
    for (std::size_t i = 0; i < rules->array().size(); ++i) {
      if (!rules->array()[i].is_table()) {
        reader.fail("operators", "a list of tables [[operators]] is accepted");
      }
      plan.operators.push_back(read_rule(reader.child(fmt::format("operators[{}]", i), rules->array()[i])));
    }
  }
  child("why", plan.why, [](TomlReader table) {
    Why why;
    table.read("predicted_seconds", why.predicted_seconds);
    table.read("predicted_peak_bytes", why.predicted_peak_bytes);
    table.read("binding", why.binding);
    table.read("runner_up", why.runner_up);
    read_strings(table, "decisions", why.decisions);
    read_strings(table, "singles", why.singles);
    read_strings(table, "ablation", why.ablation);
    read_strings(table, "frontier", why.frontier);
    read_strings(table, "trace", why.trace);
    table.finish();
    return why;
  });
  reader.finish();
  return plan;
}

}  // namespace strata

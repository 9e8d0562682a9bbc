/// @file
/// A machine description as TOML. Every number has its unit in its key; where it comes from stands beside it, under
/// [sources].

#include "ir/machine/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/toml_value.hpp"

namespace strata {
namespace {

constexpr std::string_view peak_dtypes = "f32 | bf16 | tf32 | f16";

[[noreturn]] void fail(const Cluster& cluster, std::string_view key, const std::string& message) {
  throw UserError(fmt::format("cluster {}: {}: {}", cluster.name, key, message));
}

void check_link(const Cluster& cluster, const std::string& key, const Link& link, bool needed) {
  if (!(link.latency_seconds >= 0.0)) {
    fail(cluster, key + ".latency_seconds", fmt::format("{} is out of range; accepted: >= 0", link.latency_seconds));
  }
  if (!(link.bandwidth_bytes_per_second >= 0.0) || (needed && link.bandwidth_bytes_per_second == 0.0)) {
    fail(cluster, key + ".bandwidth_bytes_per_second",
         fmt::format("{} is out of range; accepted: > 0 with {} nodes of {} devices", link.bandwidth_bytes_per_second,
                     cluster.nodes, cluster.devices_per_node));
  }
  if (!(link.effective_bandwidth_bytes_per_second >= 0.0) ||
      link.effective_bandwidth_bytes_per_second > link.bandwidth_bytes_per_second) {
    fail(cluster, key + ".effective_bandwidth_bytes_per_second",
         fmt::format("{} is out of range; accepted: 0 … {}, the nameplate", link.effective_bandwidth_bytes_per_second,
                     link.bandwidth_bytes_per_second));
  }
}

/// @p rates by dtype. @p nameplate: none may be larger than its entry there; null: no such limit.
void check_rates(const Cluster& cluster, const std::string& key, const std::map<std::string, double>& rates,
                 const std::map<std::string, double>* nameplate) {
  for (const auto& [dtype, rate] : rates) {
    const std::vector<std::string> words = split_words(peak_dtypes);
    if (std::find(words.begin(), words.end(), dtype) == words.end()) {
      fail(cluster, key, fmt::format("unknown dtype \"{}\"; accepted: {}", dtype, peak_dtypes));
    }
    if (!(rate > 0.0)) {
      fail(cluster, key + "." + dtype, fmt::format("{} is out of range; accepted: > 0", rate));
    }
    if (nameplate == nullptr) continue;
    const auto peak = nameplate->find(dtype);
    if (peak == nameplate->end() || rate > peak->second) {
      fail(cluster, key + "." + dtype,
           fmt::format("{} is more than peak_flops_per_second.{} = {}", rate, dtype,
                       peak == nameplate->end() ? 0.0 : peak->second));
    }
  }
}

void check_pairs(const Cluster& cluster) {
  std::set<std::pair<int, int>> seen;
  for (std::size_t i = 0; i < cluster.pairs.size(); ++i) {
    const PairLink& pair = cluster.pairs[i];
    const std::string key = fmt::format("pairs[{}]", i);
    if (pair.first < 0 || pair.second < 0 || std::max(pair.first, pair.second) >= cluster.devices_per_node) {
      fail(cluster, key,
           fmt::format("devices {} and {}, but a node has {}, counted from 0", pair.first, pair.second,
                       cluster.devices_per_node));
    }
    if (pair.first == pair.second) {
      fail(cluster, key, fmt::format("device {} is paired with itself", pair.first));
    }
    if (!seen.insert(std::minmax(pair.first, pair.second)).second) {
      fail(cluster, key, fmt::format("devices {} and {} are listed twice", pair.first, pair.second));
    }
    check_link(cluster, key, pair.link, true);
  }
}

std::string text_of(const Link& link) {
  return fmt::format("latency_seconds = {}, bandwidth_bytes_per_second = {}, effective_bandwidth_bytes_per_second = {}",
                     toml_real(link.latency_seconds), toml_real(link.bandwidth_bytes_per_second),
                     toml_real(link.effective_bandwidth_bytes_per_second));
}

void read_link(TomlReader& reader, Link& link) {
  reader.read("latency_seconds", link.latency_seconds);
  reader.read("bandwidth_bytes_per_second", link.bandwidth_bytes_per_second);
  reader.read("effective_bandwidth_bytes_per_second", link.effective_bandwidth_bytes_per_second);
}

void read_link_table(TomlReader& reader, std::string_view key, Link& link) {
  if (const TomlValue* table = reader.table(key)) {
    TomlReader fields = reader.child(key, *table);
    read_link(fields, link);
    fields.finish();
  }
}

const std::vector<std::string>& keys() {
  static const std::vector<std::string> names = {"name",
                                                 "description",
                                                 "nodes",
                                                 "devices_per_node",
                                                 "device",
                                                 "device_memory_bytes",
                                                 "runtime_memory_bytes",
                                                 "nics_per_node",
                                                 "nodes_per_leaf",
                                                 "intra_node",
                                                 "inter_node",
                                                 "pairs",
                                                 "memory_bandwidth_bytes_per_second",
                                                 "sources",
                                                 "spine_oversubscription",
                                                 "ring_hop_seconds",
                                                 "step_overhead_seconds",
                                                 "compute_slowdown",
                                                 "communication_slowdown",
                                                 "peak_flops_per_second",
                                                 "effective_flops_per_second",
                                                 "transformer_costs"};
  return names;
}

}  // namespace

bool computes_on_cpus(const Cluster& cluster) { return cluster.device == "cpu"; }

std::vector<int> leaves_of(const Cluster& cluster, std::span<const int> nodes) {
  std::vector<int> leaves;
  for (const int node : nodes) {
    if (cluster.nodes_per_leaf > 0) leaves.push_back(node / cluster.nodes_per_leaf);
  }
  return leaves;
}

void verify(const Cluster& cluster) {
  const auto at_least = [&](std::string_view key, double value, double minimum) {
    if (!(value >= minimum)) {
      fail(cluster, key, fmt::format("{} is out of range; accepted: >= {}", value, minimum));
    }
  };
  if (cluster.name.empty()) {
    fail(cluster, "name", "empty");
  }
  at_least("nodes", cluster.nodes, 1);
  at_least("devices_per_node", cluster.devices_per_node, 1);
  at_least("device_memory_bytes", static_cast<double>(cluster.device_memory_bytes), 0);
  at_least("runtime_memory_bytes", static_cast<double>(cluster.runtime_memory_bytes), 0);
  if (cluster.runtime_memory_bytes > 0 && cluster.runtime_memory_bytes >= cluster.device_memory_bytes) {
    fail(cluster, "runtime_memory_bytes",
         fmt::format("{} leaves nothing of device_memory_bytes = {}", cluster.runtime_memory_bytes,
                     cluster.device_memory_bytes));
  }
  at_least("memory_bandwidth_bytes_per_second", cluster.memory_bandwidth_bytes_per_second, 0);
  at_least("nics_per_node", cluster.nics_per_node, 1);
  at_least("nodes_per_leaf", cluster.nodes_per_leaf, 0);
  at_least("spine_oversubscription", cluster.spine_oversubscription, 1);
  at_least("ring_hop_seconds", cluster.ring_hop_seconds, 0);
  at_least("step_overhead_seconds", cluster.step_overhead_seconds, 0);
  at_least("compute_slowdown", cluster.compute_slowdown, 1);
  at_least("communication_slowdown", cluster.communication_slowdown, 1);
  if (cluster.nics_per_node > 1 && cluster.devices_per_node % cluster.nics_per_node != 0) {
    fail(cluster, "nics_per_node",
         fmt::format("{} NICs do not divide {} devices of a node", cluster.nics_per_node, cluster.devices_per_node));
  }
  if (cluster.spine_oversubscription > 1.0 && cluster.nodes_per_leaf == 0) {
    fail(cluster, "spine_oversubscription",
         fmt::format("{} on a flat network; it needs nodes_per_leaf > 0", cluster.spine_oversubscription));
  }
  check_rates(cluster, "peak_flops_per_second", cluster.peak_flops_per_second, nullptr);
  check_rates(cluster, "effective_flops_per_second", cluster.effective_flops_per_second,
              &cluster.peak_flops_per_second);
  check_link(cluster, "intra_node", cluster.intra_node, cluster.devices_per_node > 1);
  check_link(cluster, "inter_node", cluster.inter_node, cluster.nodes > 1);
  check_pairs(cluster);
  for (const auto& [key, source] : cluster.sources) {
    const std::string head = key.substr(0, key.find('.'));
    if (std::find(keys().begin(), keys().end(), head) == keys().end()) {
      fail(cluster, "sources." + key, fmt::format("is the source of nothing{}", did_you_mean(head, keys())));
    }
  }
}

std::string to_text(const Cluster& cluster) {
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  const auto count = [](std::int64_t value) { return fmt::format("{}", value); };
  line("name", toml_string(cluster.name));
  line("description", toml_string(cluster.description));
  line("nodes", count(cluster.nodes));
  line("devices_per_node", count(cluster.devices_per_node));
  line("device", toml_string(cluster.device));
  line("device_memory_bytes", count(cluster.device_memory_bytes));
  if (cluster.runtime_memory_bytes > 0) line("runtime_memory_bytes", count(cluster.runtime_memory_bytes));
  line("memory_bandwidth_bytes_per_second", toml_real(cluster.memory_bandwidth_bytes_per_second));
  line("intra_node", fmt::format("{{ {} }}", text_of(cluster.intra_node)));
  line("inter_node", fmt::format("{{ {} }}", text_of(cluster.inter_node)));
  line("nics_per_node", count(cluster.nics_per_node));
  line("nodes_per_leaf", count(cluster.nodes_per_leaf));
  line("spine_oversubscription", toml_real(cluster.spine_oversubscription));
  if (cluster.ring_hop_seconds > 0.0) line("ring_hop_seconds", toml_real(cluster.ring_hop_seconds));
  if (cluster.step_overhead_seconds > 0.0) line("step_overhead_seconds", toml_real(cluster.step_overhead_seconds));
  if (cluster.compute_slowdown > 1.0) line("compute_slowdown", toml_real(cluster.compute_slowdown));
  if (cluster.communication_slowdown > 1.0) line("communication_slowdown", toml_real(cluster.communication_slowdown));

  for (const auto& [key, rates] : {std::pair("peak_flops_per_second", &cluster.peak_flops_per_second),
                                   std::pair("effective_flops_per_second", &cluster.effective_flops_per_second)}) {
    text += fmt::format("\n[{}]\n", key);
    for (const auto& [dtype, rate] : *rates) line(toml_key(dtype), toml_real(rate));
  }
  text += "\n[sources]\n";
  for (const auto& [key, source] : cluster.sources) {
    line(toml_key(key), toml_string(source));
  }
  for (const PairLink& pair : cluster.pairs) {
    text += fmt::format("\n[[pairs]]\nfirst = {}\nsecond = {}\nlink = {{ {} }}\n", pair.first, pair.second,
                        text_of(pair.link));
  }
  return text;
}

Cluster parse_cluster(const std::string& text, std::string_view file_name) {
  const TomlValue root = parse_toml(text, file_name);
  TomlReader reader(root, "", std::string(file_name));
  Cluster cluster;
  reader.require("name");
  reader.read("name", cluster.name);
  reader.read("description", cluster.description);
  reader.read("nodes", cluster.nodes, 1);
  reader.read("devices_per_node", cluster.devices_per_node, 1);
  reader.read("device", cluster.device);
  reader.read("device_memory_bytes", cluster.device_memory_bytes);
  reader.read("runtime_memory_bytes", cluster.runtime_memory_bytes);
  reader.read("memory_bandwidth_bytes_per_second", cluster.memory_bandwidth_bytes_per_second);
  read_link_table(reader, "intra_node", cluster.intra_node);
  read_link_table(reader, "inter_node", cluster.inter_node);
  reader.read("nics_per_node", cluster.nics_per_node, 1);
  reader.read("nodes_per_leaf", cluster.nodes_per_leaf);
  reader.read("spine_oversubscription", cluster.spine_oversubscription, 1.0);
  reader.read("ring_hop_seconds", cluster.ring_hop_seconds);
  reader.read("step_overhead_seconds", cluster.step_overhead_seconds);
  reader.read("compute_slowdown", cluster.compute_slowdown, 1.0);
  reader.read("communication_slowdown", cluster.communication_slowdown, 1.0);
  for (const auto& [key, rates] : {std::pair("peak_flops_per_second", &cluster.peak_flops_per_second),
                                   std::pair("effective_flops_per_second", &cluster.effective_flops_per_second)}) {
    if (const TomlValue* table = reader.table(key)) {
      TomlReader rate = reader.child(key, *table);
      for (const std::string& dtype : split_words(peak_dtypes)) {
        if (rate.has(dtype)) rate.read(dtype, (*rates)[dtype]);
      }
      rate.finish();
    }
  }
  if (const TomlValue* sources = reader.table("sources")) {
    TomlReader source = reader.child("sources", *sources);
    for (const TomlEntry& entry : sources->table()) {
      source.read(entry.key, cluster.sources[entry.key]);
    }
  }
  if (const TomlValue* pairs = reader.array("pairs")) {
    for (std::size_t i = 0; i < pairs->array().size(); ++i) {
      if (!pairs->array()[i].is_table()) {
        reader.fail("pairs", "a list of tables [[pairs]] is accepted");
      }
      TomlReader fields = reader.child(fmt::format("pairs[{}]", i), pairs->array()[i]);
      PairLink& pair = cluster.pairs.emplace_back();
      for (const std::string_view key : {"first", "second", "link"}) {
        fields.require(key);
      }
      fields.read("first", pair.first);
      fields.read("second", pair.second);
      read_link_table(fields, "link", pair.link);
      fields.finish();
    }
  }
  reader.table("transformer_costs");  // the Python package reads it, see analysis/strata_analysis/fitted_cluster.py
  reader.finish();
  return cluster;
}

}  // namespace strata

/// @file
/// A profile as TOML. Rows are inline tables, one a line, so that a diff of two profiles reads as a list of times.

#include "ir/machine/cost_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/toml_value.hpp"

namespace strata {
namespace {

constexpr std::array kinds = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                              Collective::all_to_all, Collective::broadcast,      Collective::reduce,
                              Collective::send};

std::string kind_words() {
  std::string words;
  for (const Collective kind : kinds) words += fmt::format("{}{}", words.empty() ? "" : " | ", to_string(kind));
  return words;
}

Collective kind_of(std::string_view word) {
  return *std::ranges::find_if(kinds, [&](Collective kind) { return to_string(kind) == word; });
}

std::string row_name(const KernelTime& row) {
  return fmt::format("kernel {} [{}] with {} ranks a node", row.kind, fmt::join(row.sizes, ", "), row.ranks_on_node);
}

std::string row_name(const CollectiveTime& row) {
  return fmt::format("{} of {} bytes on {} over {}", to_string(row.kind), row.bytes, to_string(row.group),
                     row.transport);
}

bool same(const KernelTime& a, const KernelTime& b) {
  return a.kind == b.kind && a.sizes == b.sizes && a.ranks_on_node == b.ranks_on_node;
}
bool same(const CollectiveTime& a, const CollectiveTime& b) {
  return a.kind == b.kind && a.group == b.group && a.transport == b.transport && a.bytes == b.bytes;
}
bool same(const AlphaBeta& a, const AlphaBeta& b) {
  return a.kind == b.kind && a.group == b.group && a.transport == b.transport;
}
bool same(const MeasuredRate& a, const MeasuredRate& b) {
  return a.dtype == b.dtype && a.ranks_on_node == b.ranks_on_node;
}
bool same(const Interference& a, const Interference& b) {
  return a.ranks_on_node == b.ranks_on_node && a.transport == b.transport;
}

template <class Row>
void merge_rows(std::vector<Row>& rows, const std::vector<Row>& newer) {
  for (const Row& row : newer) {
    const auto found = std::ranges::find_if(rows, [&](const Row& old) { return same(old, row); });
    if (found == rows.end()) {
      rows.push_back(row);
    } else {
      *found = row;
    }
  }
}

class Rows {
 public:
  Rows(TomlReader& root, std::string_view key) : root_(root), key_(key), rows_(root.array(key)) {}

  /// read(reader) for every row.
  template <class Read>
  void each(const Read& read) {
    if (rows_ == nullptr) return;
    for (std::size_t i = 0; i < rows_->array().size(); ++i) {
      const TomlValue& value = rows_->array()[i];
      if (!value.is_table()) root_.fail(key_, "a list of tables is accepted");
      TomlReader row = root_.child(fmt::format("{}[{}]", key_, i), value);
      read(row);
      row.finish();
    }
  }

 private:
  TomlReader& root_;
  std::string_view key_;
  const TomlValue* rows_;
};

Collective read_kind(TomlReader& row) {
  row.require("kind");
  std::string word = "all_reduce";
  row.read_word("kind", word, kind_words());
  return kind_of(word);
}

Factor read_group(TomlReader& row) {
  row.require("group");
  std::string text = "1x1";
  row.read("group", text);
  try {
    return parse_factor(text);
  } catch (const UserError& e) {
    row.fail("group", e.what());
  }
}

}  // namespace

void verify(const CostProfile& profile) {
  const auto fail = [](const std::string& row, const std::string& what) {
    throw UserError(fmt::format("profile: {}: {}", row, what));
  };
  std::map<std::string, std::size_t> num_sizes;
  for (const KernelTime& row : profile.kernels) {
    if (!(row.seconds > 0.0)) fail(row_name(row), fmt::format("{} seconds; accepted: > 0", row.seconds));
    if (!(row.work > 0.0)) fail(row_name(row), fmt::format("work {}; accepted: > 0", row.work));
    for (const double size : row.sizes) {
      if (!(size > 0.0)) fail(row_name(row), fmt::format("size {}; accepted: > 0", size));
    }
    const std::size_t expected = num_sizes.try_emplace(row.kind, row.sizes.size()).first->second;
    if (row.sizes.size() != expected) {
      fail(row_name(row), fmt::format("{} sizes, but other rows of this kind have {}", row.sizes.size(), expected));
    }
  }
  for (const CollectiveTime& row : profile.collectives) {
    if (!(row.seconds > 0.0)) fail(row_name(row), fmt::format("{} seconds; accepted: > 0", row.seconds));
    if (row.bytes <= 0) fail(row_name(row), "accepted: > 0 bytes");
  }
  for (const Interference& row : profile.interference) {
    if (!(row.compute_slowdown >= 1.0) || !(row.communication_slowdown >= 1.0)) {
      fail(fmt::format("interference with {} ranks a node", row.ranks_on_node),
           fmt::format("slowdowns {} and {}; accepted: >= 1", row.compute_slowdown, row.communication_slowdown));
    }
  }
}

void merge(CostProfile& profile, const CostProfile& newer) {
  if (profile.machine != newer.machine) {
    throw UserError(fmt::format("profiles of two machines cannot be one: {} and {}", profile.machine, newer.machine));
  }
  for (const auto& [key, value] : newer.provenance) profile.provenance[key] = value;
  merge_rows(profile.peaks, newer.peaks);
  merge_rows(profile.kernels, newer.kernels);
  merge_rows(profile.collectives, newer.collectives);
  merge_rows(profile.lines, newer.lines);
  merge_rows(profile.interference, newer.interference);
  for (const auto& [ranks, seconds] : newer.step_overhead_seconds) profile.step_overhead_seconds[ranks] = seconds;
}

std::string to_text(const CostProfile& profile) {
  std::string text = fmt::format("machine = {}\n\n[provenance]\n", toml_string(profile.machine));
  for (const auto& [key, value] : profile.provenance) {
    text += fmt::format("{} = {}\n", toml_key(key), toml_string(value));
  }
  text += "\n[step_overhead_seconds]  # by ranks on the node\n";
  for (const auto& [ranks, seconds] : profile.step_overhead_seconds) {
    text += fmt::format("{} = {}\n", toml_key(fmt::format("{}", ranks)), toml_real(seconds));
  }
  // Arrays of tables come last: TOML has no way back to the root.
  for (const MeasuredRate& row : profile.peaks) {
    text += fmt::format("\n[[peaks]]\ndtype = {}\nranks_on_node = {}\nflops_per_second = {}\n", toml_string(row.dtype),
                        row.ranks_on_node, toml_real(row.flops_per_second));
  }
  for (const Interference& row : profile.interference) {
    text += fmt::format(
        "\n[[interference]]\nranks_on_node = {}\ntransport = {}\ncompute_slowdown = {}\ncommunication_slowdown = {}\n",
        row.ranks_on_node, toml_string(row.transport), toml_real(row.compute_slowdown),
        toml_real(row.communication_slowdown));
  }
  for (const AlphaBeta& row : profile.lines) {
    text += fmt::format(
        "\n[[lines]]\nkind = {}\ngroup = {}\ntransport = {}\nalpha_seconds = {}\nbeta_seconds_per_byte = {}\n"
        "mean_relative_error = {}\n",
        toml_string(to_string(row.kind)), toml_string(to_string(row.group)), toml_string(row.transport),
        toml_real(row.alpha_seconds), toml_real(row.beta_seconds_per_byte), toml_real(row.mean_relative_error));
  }
  for (const CollectiveTime& row : profile.collectives) {
    text += fmt::format("\n[[collectives]]\nkind = {}\ngroup = {}\ntransport = {}\nbytes = {}\nseconds = {}\n",
                        toml_string(to_string(row.kind)), toml_string(to_string(row.group)), toml_string(row.transport),
                        row.bytes, toml_real(row.seconds));
  }
  for (const KernelTime& row : profile.kernels) {
    std::string sizes;
    for (const double size : row.sizes) sizes += (sizes.empty() ? "" : ", ") + toml_real(size);
    text += fmt::format(
        "\n[[kernels]]\nkind = {}\nsizes = [{}]\nwork = {}\nranks_on_node = {}\nseconds = {}\nnum_measured = {}\n",
        toml_string(row.kind), sizes, toml_real(row.work), row.ranks_on_node, toml_real(row.seconds), row.num_measured);
  }
  return text;
}

CostProfile parse_cost_profile(const std::string& text, std::string_view file_name) {
  const TomlValue root = parse_toml(text, file_name);
  TomlReader reader(root, "", std::string(file_name));
  CostProfile profile;
  reader.require("machine");
  reader.read("machine", profile.machine);
  if (const TomlValue* table = reader.table("provenance")) {
    TomlReader provenance = reader.child("provenance", *table);
    for (const TomlEntry& entry : table->table()) provenance.read(entry.key, profile.provenance[entry.key]);
  }
  if (const TomlValue* table = reader.table("step_overhead_seconds")) {
    TomlReader overhead = reader.child("step_overhead_seconds", *table);
    for (const TomlEntry& entry : table->table()) {
      int ranks = 0;
      const char* end = entry.key.data() + entry.key.size();
      const auto [stop, error] = std::from_chars(entry.key.data(), end, ranks);
      if (error != std::errc{} || stop != end || ranks < 1 || profile.step_overhead_seconds.contains(ranks)) {
        overhead.fail(entry.key, "accepted as key: a number of ranks >= 1, each once");
      }
      overhead.read(entry.key, profile.step_overhead_seconds[ranks]);
    }
  }
  Rows(reader, "peaks").each([&](TomlReader& row) {
    MeasuredRate& peak = profile.peaks.emplace_back();
    row.require("dtype");
    row.read("dtype", peak.dtype);
    row.read("ranks_on_node", peak.ranks_on_node, 1);
    row.read("flops_per_second", peak.flops_per_second);
  });
  Rows(reader, "interference").each([&](TomlReader& row) {
    Interference& i = profile.interference.emplace_back();
    row.read("ranks_on_node", i.ranks_on_node, 1);
    row.read("transport", i.transport);
    row.read("compute_slowdown", i.compute_slowdown, 1.0);
    row.read("communication_slowdown", i.communication_slowdown, 1.0);
  });
  Rows(reader, "lines").each([&](TomlReader& row) {
    AlphaBeta& line = profile.lines.emplace_back();
    line.kind = read_kind(row);
    line.group = read_group(row);
    row.read("transport", line.transport);
    row.read("alpha_seconds", line.alpha_seconds);
    row.read("beta_seconds_per_byte", line.beta_seconds_per_byte);
    row.read("mean_relative_error", line.mean_relative_error);
  });
  Rows(reader, "collectives").each([&](TomlReader& row) {
    CollectiveTime& time = profile.collectives.emplace_back();
    time.kind = read_kind(row);
    time.group = read_group(row);
    row.read("transport", time.transport);
    row.read("bytes", time.bytes, 1);
    row.require("seconds");
    row.read("seconds", time.seconds);
  });
  Rows(reader, "kernels").each([&](TomlReader& row) {
    KernelTime& time = profile.kernels.emplace_back();
    row.require("kind");
    row.read("kind", time.kind);
    if (const TomlValue* sizes = row.array("sizes")) {
      for (const TomlValue& size : sizes->array()) {
        const double* real = std::get_if<double>(&size.data);
        const auto* integer = std::get_if<std::int64_t>(&size.data);
        if (real == nullptr && integer == nullptr) row.fail("sizes", "a list of numbers is accepted");
        time.sizes.push_back(real != nullptr ? *real : static_cast<double>(*integer));
      }
    }
    row.read("work", time.work);
    row.read("ranks_on_node", time.ranks_on_node, 1);
    row.require("seconds");
    row.read("seconds", time.seconds);
    row.read("num_measured", time.num_measured);
  });
  reader.finish();
  try {
    verify(profile);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", file_name, error.what()));
  }
  return profile;
}

}  // namespace strata

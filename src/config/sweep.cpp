/// @file
/// An experiment file into an ExperimentFile: the tables flattened to dotted keys, [sweep] taken apart, overrides laid
/// over.

#include "config/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/utf8.hpp"
#include "config/expression.hpp"
#include "config/options.hpp"

namespace strata {
namespace {

/// A value that is no table, with its dotted key.
struct Leaf {
  std::string key;
  const TomlValue* value = nullptr;
  int line = 0;
};

void flatten(const TomlValue& table, const std::string& path, std::vector<Leaf>& leaves) {
  for (const TomlEntry& entry : table.table()) {
    const std::string key = path.empty() ? entry.key : fmt::format("{}.{}", path, entry.key);
    if (entry.value.is_table()) {
      flatten(entry.value, key, leaves);
    } else {
      leaves.push_back({key, &entry.value, entry.line});
    }
  }
}

/// True if some option lives below the table @p name.
bool is_section(std::string_view name) {
  const std::string prefix = fmt::format("{}.", name);
  return std::any_of(all_options().begin(), all_options().end(),
                     [&](const Option& o) { return o.key.starts_with(prefix); });
}

class SweepReader {
 public:
  SweepReader(ExperimentFile& file) : file_(file) {}

  void read(const TomlValue& sweep) {
    TomlReader reader(sweep, "sweep", file_.file_name);
    if (const TomlValue* product = reader.table("product")) {
      std::vector<Leaf> leaves;
      flatten(*product, "", leaves);
      if (leaves.empty()) {
        reader.fail("product", "no axis; accepted: \"key\" = [value, …]");
      }
      for (const Leaf& leaf : leaves) {
        file_.axes.push_back({{leaf.key}, {}, false});
        for (const TomlValue& value : values_of(leaf)) {
          file_.axes.back().rows.push_back({value});
        }
      }
    }
    if (const TomlValue* groups = reader.array("zip")) {
      for (const TomlValue& group : groups->array()) {
        if (!group.is_table()) {
          reader.fail("zip", fmt::format("{} where a table of equally long lists is accepted", group.kind()));
        }
        read_zip(group);
      }
    }
    if (const TomlValue* excludes = reader.array("exclude")) {
      for (std::size_t i = 0; i < excludes->array().size(); ++i) {
        read_exclude(reader, i, excludes->array()[i]);
      }
    }
    reader.finish();
  }

 private:
  std::string at(int line) const { return fmt::format("{}:{}", file_.file_name, line); }

  /// The values of an axis, each of which its option accepts.
  const TomlValue::Array& values_of(const Leaf& leaf) {
    const bool of_section = is_section(leaf.key);
    if (!of_section && !is_key(leaf.key)) {
      fail_unknown_key(leaf.key, at(leaf.line));
    }
    const std::vector<std::string> no_axes = {"name", "title", "expect"};
    if (std::find(no_axes.begin(), no_axes.end(), leaf.key) != no_axes.end()) {
      throw UserError(fmt::format("{}: {}: belongs to the whole file and cannot be an axis", at(leaf.line), leaf.key));
    }
    if (!of_section) take(leaf.key, leaf.line);
    if (!leaf.value->is_array() || leaf.value->array().empty()) {
      throw UserError(fmt::format("{}: {}: {} where a list of at least one value is accepted", at(leaf.line), leaf.key,
                                  leaf.value->is_array() ? "an empty list" : leaf.value->kind()));
    }
    std::vector<std::string> of_tables;
    for (const TomlValue& value : leaf.value->array()) {
      const int line = value.line > 0 ? value.line : leaf.line;
      if (of_section && (!value.is_table() || value.table().empty())) {
        throw UserError(fmt::format("{}: {}: {} where a table of options of [{}] is accepted", at(line), leaf.key,
                                    value.is_table() ? "an empty table" : value.kind(), leaf.key));
      }
      if (of_section) {
        for (const TomlEntry& entry : value.table()) {
          const std::string key = fmt::format("{}.{}", leaf.key, entry.key);
          if (!is_key(key)) fail_unknown_key(key, at(entry.line));
          if (std::find(of_tables.begin(), of_tables.end(), key) == of_tables.end()) {
            of_tables.push_back(key);
            take(key, entry.line);
          }
        }
      }
      Experiment scratch;
      assign_axis_value(scratch, leaf.key, value, at(line));
    }
    return leaf.value->array();
  }

  /// @p key belongs to one axis only.
  void take(const std::string& key, int line) {
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) {
      throw UserError(fmt::format("{}: {}: is an axis twice", at(line), key));
    }
    seen_.push_back(key);
  }

  void read_zip(const TomlValue& group) {
    std::vector<Leaf> leaves;
    flatten(group, "", leaves);
    if (leaves.empty()) {
      throw UserError(fmt::format("{}: sweep.zip: no axis; accepted: \"key\" = [value, …]", at(group.line)));
    }
    SweepAxis axis{{}, {}, true};
    axis.rows.resize(values_of(leaves[0]).size());
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const TomlValue::Array& values = i == 0 ? leaves[0].value->array() : values_of(leaves[i]);
      if (values.size() != axis.rows.size()) {
        throw UserError(fmt::format("{}: sweep.zip: {} has {} values, but {} has {}; accepted: lists of one length",
                                    at(leaves[i].line), leaves[i].key, values.size(), leaves[0].key, axis.rows.size()));
      }
      axis.keys.push_back(leaves[i].key);
      for (std::size_t row = 0; row < values.size(); ++row) {
        axis.rows[row].push_back(values[row]);
      }
    }
    file_.axes.push_back(std::move(axis));
  }

  void read_exclude(const TomlReader& sweep, std::size_t index, const TomlValue& table) {
    const std::string name = fmt::format("exclude[{}]", index);
    if (!table.is_table()) {
      sweep.fail("exclude", fmt::format("{} where a table {{ when = '…', reason = \"…\" }} is accepted", table.kind()));
    }
    TomlReader reader = sweep.child(name, table);
    SweepExclude exclude;
    reader.require("when");
    reader.require("reason");
    reader.read("when", exclude.when);
    reader.read("reason", exclude.reason);
    reader.finish();
    exclude.line = table.line;
    try {
      const Expression expression(exclude.when);
      for (const std::string& key : expression.keys()) {
        if (!is_key(key)) {
          fail_unknown_key(key, fmt::format("{}: sweep.{}.when", at(table.line), name));
        }
      }
    } catch (const UserError& error) {
      if (std::string_view(error.what()).starts_with("column")) {
        reader.fail("when", error.what());
      }
      throw;
    }
    file_.excludes.push_back(std::move(exclude));
  }

  ExperimentFile& file_;
  std::vector<std::string> seen_;
};

/// The value of `--set key=value`: as TOML, or as it stands where a string is meant.
TomlValue override_value(const std::string& key, const std::string& text) {
  const Option* option = find_option(key);
  const bool quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
  if (option != nullptr && !quoted) {
    const std::string_view type = type_name(*option);
    // A string, or the word of an `integer or "planner"`.
    if (type == "string" || type.find(fmt::format("\"{}\"", text)) != std::string_view::npos) return {text, 0};
  }
  try {
    return parse_toml_value(text, fmt::format("--set {}", key));
  } catch (const UserError&) {
    const bool bare = std::all_of(text.begin(), text.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '/' ||
             c == '+';
    });
    if (option == nullptr && bare && !text.empty()) {
      return {text, 0};  // a strategy's own option, whose type is not known here: "1f1b" is no TOML
    }
    throw;
  }
}

/// Whether some value of @p axis says something of @p key.
bool varies(const SweepAxis& axis, std::string_view key) {
  for (std::size_t k = 0; k < axis.keys.size(); ++k) {
    if (axis.keys[k] == key) return true;
    if (!axis.rows[0][k].is_table() || !key.starts_with(axis.keys[k] + ".")) continue;
    const std::string_view name = key.substr(axis.keys[k].size() + 1);
    const auto says = [&](const std::vector<TomlValue>& row) {
      return std::ranges::any_of(row[k].table(), [&](const TomlEntry& entry) { return entry.key == name; });
    };
    if (std::ranges::any_of(axis.rows, says)) return true;
  }
  return false;
}

void apply_override(ExperimentFile& file, const std::string& override_text) {
  const std::size_t equal = override_text.find('=');
  if (equal == std::string::npos || equal == 0) {
    throw UserError(fmt::format("--set {}: accepted: key=value", override_text));
  }
  const std::string key = override_text.substr(0, equal);
  if (!is_key(key)) {
    fail_unknown_key(key, "--set");
  }
  // A string without quotes is no TOML that the library has checked, and becomes some where points are written.
  if (const std::size_t valid = utf8_prefix(override_text); valid < override_text.size()) {
    throw UserError(fmt::format("--set {}: byte {:#04x} of the value; accepted: UTF-8", key,
                                static_cast<unsigned char>(override_text[valid])));
  }
  const TomlValue value = override_value(key, override_text.substr(equal + 1));
  assign(file.base, key, value, "--set");
  for (auto axis = file.axes.begin(); axis != file.axes.end(); ++axis) {
    if (!varies(*axis, key)) continue;
    if (axis->zipped || axis->keys[0] != key) {
      throw UserError(
          fmt::format("--set {}: is an axis of {}, whose values belong together; accepted: a key outside of it",
                      override_text, axis->zipped ? "sweep.zip" : "tables of options"));
    }
    file.axes.erase(axis);
    file.narrowed = true;
    return;
  }
}

void check_required(const ExperimentFile& file) {
  for (const Option& option : all_options()) {
    const bool is_axis =
        std::ranges::any_of(file.axes, [&](const SweepAxis& axis) { return varies(axis, option.key); });
    if (option.required && !is_axis && !file.base.given_at.contains(std::string(option.key))) {
      throw UserError(fmt::format("{}: {}: missing: {}", file.file_name, option.key, option.help));
    }
  }
}

}  // namespace

void assign_axis_value(Experiment& experiment, const std::string& key, const TomlValue& value,
                       const std::string& origin) {
  if (!value.is_table()) {
    assign(experiment, key, value, origin);
    return;
  }
  for (const TomlEntry& entry : value.table()) {
    assign(experiment, fmt::format("{}.{}", key, entry.key), entry.value, origin);
  }
}

ExperimentFile read_experiment(const std::string& text, std::string_view file_name,
                               const std::vector<std::string>& overrides) {
  ExperimentFile file;
  file.file_name = file_name;
  file.text = text;
  const TomlValue root = parse_toml(text, file_name);
  for (const TomlEntry& entry : root.table()) {
    const std::string at = fmt::format("{}:{}", file_name, entry.line);
    if (entry.key == "sweep") {
      if (!entry.value.is_table()) {
        throw UserError(fmt::format("{}: sweep: {} where a table is accepted", at, entry.value.kind()));
      }
      SweepReader(file).read(entry.value);
    } else if (!entry.value.is_table()) {
      if (is_section(entry.key)) {
        throw UserError(fmt::format("{}: {}: {} where a table is accepted", at, entry.key, entry.value.kind()));
      }
      assign(file.base, entry.key, entry.value, at);
    } else if (is_section(entry.key)) {
      std::vector<Leaf> leaves;
      flatten(entry.value, entry.key, leaves);
      for (const Leaf& leaf : leaves) {
        assign(file.base, leaf.key, *leaf.value, fmt::format("{}:{}", file_name, leaf.line));
      }
    } else if (find_option(entry.key) != nullptr) {
      assign(file.base, entry.key, entry.value, at);  // a table where a value belongs: says so
    } else {
      fail_unknown_key(entry.key, at);
    }
  }
  for (const std::string& override_text : overrides) {
    apply_override(file, override_text);
  }
  check_required(file);
  return file;
}

ExperimentFile load_experiment(const std::string& path, const std::vector<std::string>& overrides) {
  return read_experiment(read_file(path), path, overrides);
}

}  // namespace strata

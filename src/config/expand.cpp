/// @file
/// The points of an experiment file: an odometer over its axes, the first axis slowest.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "config/expression.hpp"
#include "config/options.hpp"
#include "config/sweep.hpp"

namespace strata {
namespace {

struct Exclude {
  Expression expression;
  const SweepExclude* source = nullptr;
  int num_matched = 0;
};

std::string describe(const std::vector<AxisValue>& axes) {
  std::vector<std::string> words;
  for (const AxisValue& axis : axes) {
    words.push_back(fmt::format("{} = {}", axis.key, axis.value));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// The exclude that matches, or null. Every matching one is counted, so that one shadowed by another is not called
/// useless.
const SweepExclude* matching(std::vector<Exclude>& excludes, const Experiment& experiment, const ExperimentFile& file) {
  const SweepExclude* found = nullptr;
  for (Exclude& exclude : excludes) {
    try {
      if (exclude.expression.evaluate([&](std::string_view key) { return value_of(experiment, key); })) {
        ++exclude.num_matched;
        found = found == nullptr ? exclude.source : found;
      }
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}:{}: sweep.exclude.when: {}", file.file_name, exclude.source->line, error.what()));
    }
  }
  return found;
}

/// Axis keys without their section where that is unambiguous.
std::string short_key(const std::string& key, const std::vector<AxisValue>& axes) {
  const std::string last = key.substr(key.rfind('.') + 1);
  const auto same = std::count_if(axes.begin(), axes.end(), [&](const AxisValue& other) {
    return other.key.substr(other.key.rfind('.') + 1) == last;
  });
  return same == 1 && last != "name" ? last : key;
}

std::string unquoted(const std::string& value) {
  const bool plain = value.size() > 2 && value.front() == '"' && value.find('\\') == std::string::npos;
  return plain ? value.substr(1, value.size() - 2) : value;
}

nlohmann::ordered_json json_of(const TomlValue& value) {
  return std::visit(
      [](const auto& held) -> nlohmann::ordered_json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, TomlValue::Array>) {
          auto list = nlohmann::ordered_json::array();
          for (const TomlValue& element : held) {
            list.push_back(json_of(element));
          }
          return list;
        } else if constexpr (std::is_same_v<T, TomlValue::Table>) {
          auto object = nlohmann::ordered_json::object();
          for (const TomlEntry& entry : held) object[entry.key] = json_of(entry.value);
          return object;
        } else {
          return held;
        }
      },
      value.data);
}

/// A sweep is made as a whole, with a text of every point.
constexpr std::int64_t most_points = 100'000;

void check_num_points(const ExperimentFile& file) {
  std::int64_t num_points = 1;
  std::vector<std::string> sizes;
  for (const SweepAxis& axis : file.axes) {
    const std::size_t size = axis.rows.size();
    sizes.push_back(fmt::format("{} of {}", size, axis.keys.front()));
    num_points = std::min(most_points + 1, num_points) * std::min(most_points + 1, static_cast<std::int64_t>(size));
  }
  if (num_points <= most_points) return;
  const SweepAxis& last = file.axes.back();
  throw UserError(fmt::format("{}:{}: sweep: {} are more points than are accepted: {} with those that are excluded",
                              file.file_name, last.rows.front().front().line, fmt::join(sizes, " x "), most_points));
}

/// What verify() says of an option that nobody gave names no file.
std::string with_file(const ExperimentFile& file, const std::string& message) {
  return message.starts_with("default: ") ? fmt::format("{}: {}", file.file_name, message) : message;
}

}  // namespace

Expansion expand(const ExperimentFile& file, std::string_view backend,
                 const std::function<void(Experiment&)>& prepare) {
  check_num_points(file);
  Expansion expansion;
  expansion.name = file.base.name;
  std::vector<Exclude> excludes;
  for (const SweepExclude& exclude : file.excludes) {
    excludes.push_back({Expression(exclude.when), &exclude, 0});
  }

  std::vector<std::size_t> row(file.axes.size(), 0);
  std::map<std::string, std::string> axes_of_id;
  for (bool more = true; more;) {
    Experiment experiment = file.base;
    std::vector<AxisValue> axes;
    for (std::size_t a = 0; a < file.axes.size(); ++a) {
      const SweepAxis& axis = file.axes[a];
      for (std::size_t k = 0; k < axis.keys.size(); ++k) {
        const TomlValue& value = axis.rows[row[a]][k];
        assign_axis_value(experiment, axis.keys[k], value, fmt::format("{}:{}", file.file_name, value.line));
        axes.push_back({axis.keys[k], toml_text(value)});
      }
    }
    experiment.backend = backend == device_backend ? experiment.resources.device : backend;
    if (const SweepExclude* exclude = matching(excludes, experiment, file)) {
      expansion.excluded.push_back({std::move(axes), exclude->reason});
    } else {
      try {
        verify(experiment);
        if (prepare) {
          prepare(experiment);
        }
      } catch (const UserError& error) {
        const std::string message = with_file(file, error.what());
        throw UserError(axes.empty() ? message : fmt::format("{} (at {})", message, describe(axes)));
      }
      const std::string id = point_id(experiment);
      const auto [first, is_new] = axes_of_id.emplace(id, describe(axes));
      if (!is_new) {
        throw UserError(fmt::format("{}: sweep: two points are the same experiment: {} and {}", file.file_name,
                                    first->second, describe(axes)));
      }
      expansion.points.push_back(
          {static_cast<int>(expansion.points.size()), id, std::move(experiment), std::move(axes)});
    }
    more = false;
    for (std::size_t a = file.axes.size(); a-- > 0 && !more;) {
      more = ++row[a] < file.axes[a].rows.size();
      if (!more) {
        row[a] = 0;
      }
    }
  }

  for (const Exclude& exclude : excludes) {
    if (exclude.num_matched == 0 && !file.narrowed) {
      throw UserError(fmt::format("{}:{}: sweep.exclude.when: `{}` matches no point", file.file_name,
                                  exclude.source->line, exclude.source->when));
    }
  }
  if (expansion.points.empty()) {
    throw UserError(
        fmt::format("{}: sweep.exclude: all {} points are excluded", file.file_name, expansion.excluded.size()));
  }
  return expansion;
}

std::string to_table(const Expansion& expansion) {
  std::vector<std::vector<std::string>> rows;
  const std::vector<AxisValue>& axes = expansion.points.empty() ? expansion.excluded[0].axes : expansion.points[0].axes;
  rows.push_back({"point", "id", "ranks"});
  for (const AxisValue& axis : axes) {
    rows[0].push_back(short_key(axis.key, axes));
  }
  const auto add = [&](std::vector<std::string> cells, const std::vector<AxisValue>& values) {
    for (const AxisValue& axis : values) {
      cells.push_back(unquoted(axis.value));
    }
    rows.push_back(std::move(cells));
  };
  for (const Point& point : expansion.points) {
    add({fmt::format("{}", point.index), point.id, fmt::format("{}", point.experiment.num_ranks())}, point.axes);
  }
  for (const ExcludedPoint& excluded : expansion.excluded) {
    add({"-", "excluded", "-"}, excluded.axes);
    rows.back().push_back(excluded.reason);
  }

  std::vector<std::size_t> widths(rows[0].size() + 1, 0);
  for (const auto& cells : rows) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  std::string text;
  for (const auto& cells : rows) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += i + 1 < cells.size() ? fmt::format("{:<{}}  ", cells[i], widths[i]) : cells[i];
    }
    text += line + "\n";
  }
  return text;
}

std::string to_json(const Expansion& expansion) {
  using Json = nlohmann::ordered_json;
  Json root = {{"name", expansion.name}, {"points", Json::array()}, {"excluded", Json::array()}};
  const auto axes_of = [](const std::vector<AxisValue>& axes) {
    Json object = Json::object();
    for (const AxisValue& axis : axes) {
      object[axis.key] = json_of(parse_toml_value(axis.value, axis.key));
    }
    return object;
  };
  for (const Point& point : expansion.points) {
    Json keys = Json::object();
    for (const CanonicalKey& key : canonical_keys(point.experiment)) {
      keys[key.key] = json_of(*value_of(point.experiment, key.key));
    }
    root["points"].push_back({{"index", point.index},
                              {"id", point.id},
                              {"ranks", point.experiment.num_ranks()},
                              {"axes", axes_of(point.axes)},
                              {"keys", std::move(keys)}});
  }
  for (const ExcludedPoint& excluded : expansion.excluded) {
    root["excluded"].push_back({{"axes", axes_of(excluded.axes)}, {"reason", excluded.reason}});
  }
  return root.dump(2) + "\n";
}

}  // namespace strata

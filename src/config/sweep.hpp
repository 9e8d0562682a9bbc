#pragma once

/// @file
/// An experiment file is one Experiment and the axes along which it varies; expand() makes the points. Every axis is
/// explicit: a list anywhere but under [sweep] is data. Points = product × each zip group, without what `exclude`
/// names.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/toml_value.hpp"
#include "config/experiment.hpp"

namespace strata {

/// One axis: a key of `product`, or the keys of one zip group, which vary together. A key is that of an option, or the
/// name of a section whose values are tables of some of its options.
struct SweepAxis {
  std::vector<std::string> keys;
  std::vector<std::vector<TomlValue>> rows;  ///< [value][key]
  bool zipped = false;
};

struct SweepExclude {
  std::string when;
  std::string reason;
  int line = 0;
};

struct ExperimentFile {
  std::string file_name;
  std::string text;
  Experiment base;
  std::vector<SweepAxis> axes;  ///< in the order of the file, product before zip; the first varies slowest
  std::vector<SweepExclude> excludes;
  bool narrowed = false;  ///< an override fixed an axis: excludes need not match any more
};

struct AxisValue {
  std::string key;
  std::string value;  ///< TOML spelling
  bool operator==(const AxisValue&) const = default;
};

struct Point {
  int index = 0;  ///< what --point names: 0 … among those that are not excluded
  std::string id;
  Experiment experiment;
  std::vector<AxisValue> axes;
};

struct ExcludedPoint {
  std::vector<AxisValue> axes;
  std::string reason;
};

struct Expansion {
  std::string name;
  std::vector<Point> points;
  std::vector<ExcludedPoint> excluded;
};

/// @param overrides each "key=value": the value is TOML; a string may stand without quotes. An override of a key that
/// is an axis of `product`
///        fixes the axis to that value.
/// @throws UserError with file, line, key and what is accepted: unknown keys, wrong types, values out of range, axes
/// that are empty, unequal
///         or named twice.
ExperimentFile read_experiment(const std::string& text, std::string_view file_name,
                               const std::vector<std::string>& overrides = {});

/// As read_experiment, from disk. @throws UserError if @p path cannot be read.
ExperimentFile load_experiment(const std::string& path, const std::vector<std::string>& overrides = {});

/// The backend of each point is its resources.device.
constexpr std::string_view device_backend = "device";

/// @param backend cpu | cuda | simulated, part of every id; or device_backend.
/// @param prepare called on every point before its id is computed: to check the strategy's own options and drop those
/// that equal the mode's default.
/// @throws UserError if a point breaks verify(Experiment), two points are the same, every point is excluded, or an
/// exclude matches nothing.
Expansion expand(const ExperimentFile& file, std::string_view backend,
                 const std::function<void(Experiment&)>& prepare = {});

/// Lays one value of an axis over @p experiment. @throws UserError as assign() does.
void assign_axis_value(Experiment& experiment, const std::string& key, const TomlValue& value,
                       const std::string& origin);

/// What `strata expand` prints.
std::string to_table(const Expansion& expansion);
std::string to_json(const Expansion& expansion);

}  // namespace strata

/// @file
/// TOML as such: any document, and any value on a command line.

#include <algorithm>
#include <cmath>

#include "base/toml_value.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::toml_text_form {
namespace {

/// Equal but for their lines; nan equals nan here.
bool same(const TomlValue& a, const TomlValue& b) {
  if (a.data.index() != b.data.index()) return false;
  if (a.is_array()) {
    return std::equal(a.array().begin(), a.array().end(), b.array().begin(), b.array().end(), same);
  }
  if (a.is_table()) {
    return std::equal(a.table().begin(), a.table().end(), b.table().begin(), b.table().end(),
                      [](const TomlEntry& x, const TomlEntry& y) { return x.key == y.key && same(x.value, y.value); });
  }
  const auto *x = std::get_if<double>(&a.data), *y = std::get_if<double>(&b.data);
  return x != nullptr ? *x == *y || (std::isnan(*x) && std::isnan(*y)) : toml_text(a) == toml_text(b);
}

void check_text_form(const TomlValue& value) {
  const std::string text = toml_text(value);
  require(same(parse_toml_value(text, "text form"), value), "a value and its text differ: " + text);
}

}  // namespace

STRATA_FUZZ_TARGET(toml) {
  const std::string text = text_of(bytes);
  if (const auto root = unless_refused("input.toml:", [&] { return parse_toml(text, "input.toml"); })) {
    for (const TomlEntry& entry : root->table()) check_text_form(entry.value);
  }
  if (const auto value = unless_refused("--set key", [&] { return parse_toml_value(text, "--set key"); })) {
    check_text_form(*value);
  }
}

}  // namespace strata::fuzz::toml_text_form

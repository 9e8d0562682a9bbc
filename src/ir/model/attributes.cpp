/// @file
/// A sorted vector: a dozen entries are found faster by walking than by hashing.

#include "ir/model/attributes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "base/error.hpp"
#include "base/toml_value.hpp"

namespace strata {
namespace {

void insert_or_replace(std::vector<Attributes::Entry>& entries, std::string_view key, Attributes::Value value) {
  if (entries.empty()) entries.reserve(4);  // most kernels have that many
  const auto place = std::lower_bound(entries.begin(), entries.end(), key,
                                      [](const Attributes::Entry& entry, std::string_view k) { return entry.key < k; });
  if (place != entries.end() && place->key == key) {
    place->value = value;
  } else {
    entries.insert(place, {std::string(key), value});
  }
}

/// A point, an exponent, or inf and nan: integers have none of these letters.
bool is_real(std::string_view text) { return text.find_first_of(".eEin") != std::string_view::npos; }

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// @param value of @p key among @p all, null: it has none.
template <class Number>
Number typed(const Attributes::Value* value, std::string_view key, const Attributes& all) {
  STRATA_INVARIANT(value != nullptr, fmt::format("no attribute `{}` in `{}`", key, to_text(all)));
  const auto* number = std::get_if<Number>(value);
  constexpr const char* kind = std::is_same_v<Number, double> ? "real number" : "integer";
  STRATA_INVARIANT(number != nullptr, fmt::format("attribute `{}` of `{}` is no {}", key, to_text(all), kind));
  return *number;
}

}  // namespace

Attributes::Attributes(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    STRATA_INVARIANT(!has(entry.key), fmt::format("attribute `{}` is given twice", entry.key));
    insert_or_replace(entries_, entry.key, entry.value);
  }
}

void Attributes::set(std::string_view key, std::int64_t value) { insert_or_replace(entries_, key, value); }
void Attributes::set(std::string_view key, double value) { insert_or_replace(entries_, key, value); }
void Attributes::set(const Entry& entry) { insert_or_replace(entries_, entry.key, entry.value); }

const Attributes::Value* Attributes::find(std::string_view key) const {
  for (const Entry& entry : entries_) {
    if (entry.key == key) {
      return &entry.value;
    }
  }
  return nullptr;
}

bool Attributes::has(std::string_view key) const { return find(key) != nullptr; }

std::int64_t Attributes::integer(std::string_view key) const { return typed<std::int64_t>(find(key), key, *this); }
double Attributes::real(std::string_view key) const { return typed<double>(find(key), key, *this); }

std::int64_t Attributes::integer_or(std::string_view key, std::int64_t fallback) const {
  const Value* value = find(key);
  return value == nullptr ? fallback : typed<std::int64_t>(value, key, *this);
}

double Attributes::real_or(std::string_view key, double fallback) const {
  const Value* value = find(key);
  return value == nullptr ? fallback : typed<double>(value, key, *this);
}

std::string to_text(const Attributes& attributes) {
  std::string text;
  for (const Attributes::Entry& entry : attributes.entries()) {
    const auto* integer = std::get_if<std::int64_t>(&entry.value);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", entry.key,
                        integer != nullptr ? fmt::format("{}", *integer) : toml_real(std::get<double>(entry.value)));
  }
  return text;
}

Attributes parse_attributes(std::string_view text) {
  Attributes attributes;
  while (true) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) {
      return attributes;
    }
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());

    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    std::int64_t integer = 0;
    double real = 0.0;
    const bool known = is_real(value) ? parse_number(value, real) : parse_number(value, integer);
    if (!is_key(key) || !known) {
      throw UserError(fmt::format("malformed attribute `{}`; accepted: key=integer or key=real", word));
    }
    if (attributes.has(key)) {
      throw UserError(fmt::format("attribute `{}` is given twice", key));
    }
    if (is_real(value)) {
      attributes.set(key, real);
    } else {
      attributes.set(key, integer);
    }
  }
}

}  // namespace strata

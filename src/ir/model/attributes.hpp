#pragma once

/// @file
/// Named numbers of an operator or a kernel: `in=768 out=3072 bias=1`. One small ordered list serves the graph, the
/// Program and both text forms, so that a new kernel needs no new struct; whoever executes reads them once, when
/// binding.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

/// Keeps its entries sorted by key. Integers and reals are distinct: text writes a real with a point or an exponent.
class Attributes {
 public:
  using Value = std::variant<std::int64_t, double>;
  struct Entry {
    std::string key;
    Value value;
    bool operator==(const Entry&) const = default;
  };

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries);

  void set(std::string_view key, std::int64_t value);
  void set(std::string_view key, int value) { set(key, std::int64_t{value}); }
  void set(std::string_view key, double value);
  void set(const Entry& entry);

  bool has(std::string_view key) const;
  /// @throws InternalError naming the key and what is there if it is missing or of the other type.
  std::int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;
  /// As above, with @p fallback where the key is absent.
  std::int64_t integer_or(std::string_view key, std::int64_t fallback) const;
  double real_or(std::string_view key, double fallback) const;

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  const Value* find(std::string_view key) const;
  std::vector<Entry> entries_;
};

/// `key=value key=value`, sorted; parse_attributes(to_text(a)) == a (reals are written with 17 significant digits at
/// most).
std::string to_text(const Attributes& attributes);
/// @throws UserError naming the malformed word.
Attributes parse_attributes(std::string_view text);

}  // namespace strata

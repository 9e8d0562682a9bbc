#pragma once

/// @file
/// The `when` of an exclude: comparisons of dotted keys with literals, joined by && || !. Parsed once, evaluated at
/// every point.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/toml_value.hpp"

namespace strata {

/// expression := and ("||" and)*        and := unary ("&&" unary)*       unary := "!" unary | comparison
/// comparison := operand [("==" | "!=" | "<" | "<=" | ">" | ">=" | "in") operand]
/// operand    := number | "text" | 'text' | true | false | [operand, …] | dotted.key | "(" expression ")"
class Expression {
 public:
  /// What a key holds; nothing where it is unset.
  using Lookup = std::function<std::optional<TomlValue>(std::string_view key)>;

  /// @throws UserError with the column (1-based) and what is accepted there.
  explicit Expression(std::string_view text);

  /// && and || do not look at their right side where the left decides.
  /// @throws UserError with the column: a key that is unset, values that cannot be compared, a result that is neither
  /// true nor false.
  bool evaluate(const Lookup& lookup) const;

  /// Keys that occur, in order, for checks against the known ones.
  const std::vector<std::string>& keys() const { return keys_; }

  struct Node {
    std::string operation;  ///< "literal", "key", "list" or the operator itself
    TomlValue value;        ///< literal; key: its name
    int column = 0;
    std::vector<Node> children;
  };

 private:
  Node root_;
  std::vector<std::string> keys_;
};

}  // namespace strata

/// @file
/// Recursive descent straight over the text; one function a line of the grammar. Operands joined by && or || are one
/// node, and levels are counted, so that no text can go deeper than the stack.

#include "config/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.hpp"

namespace strata {
namespace {

using Node = Expression::Node;

constexpr int most_levels = 64;

/// As much of what follows as a message needs.
std::string_view beginning(std::string_view text) { return text.substr(0, 40); }

[[noreturn]] void fail(int column, const std::string& message) {
  throw UserError(fmt::format("column {}: {}", column, message));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Node whole() {
    Node node = either();
    if (skip_spaces(); at_ < text_.size()) {
      fail(column(),
           fmt::format("`{}` where an operator is accepted: == != < <= > >= in && ||", beginning(text_.substr(at_))));
    }
    return node;
  }
  std::vector<std::string> take_keys() { return std::move(keys_); }

 private:
  /// One `!`, `(` or `[` around what is read while it lives.
  class Level {
   public:
    Level(Parser& parser, int column) : parser_(parser) {
      if (++parser_.level_ > most_levels) {
        fail(column, fmt::format("! ( and [ inside each other; accepted: {} at most", most_levels));
      }
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  Node either() {
    return chain("||", [this] { return both(); });
  }
  Node both() {
    return chain("&&", [this] { return unary(); });
  }

  template <class Operand>
  Node chain(std::string_view operation, const Operand& operand) {
    Node first = operand();
    skip_spaces();
    const int at = column();
    if (!accept(operation)) {
      return first;
    }
    Node all{std::string(operation), {}, at, {}};
    all.children.push_back(std::move(first));
    do {
      all.children.push_back(operand());
      skip_spaces();
    } while (accept(operation));
    return all;
  }

  Node unary() {
    skip_spaces();
    const int at = column();
    if (text_.substr(at_, 2) != "!=" && accept("!")) {
      const Level level(*this, at);
      return {"!", {}, at, {unary()}};
    }
    return comparison();
  }

  Node comparison() {
    Node left = operand();
    skip_spaces();
    const int at = column();
    for (const std::string_view operation : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (accept(operation)) {
        return join(std::string(operation), at, std::move(left), operand());
      }
    }
    if (text_.substr(at_, 2) == "in" && (at_ + 2 == text_.size() || !is_word(text_[at_ + 2]))) {
      at_ += 2;
      return join("in", at, std::move(left), operand());
    }
    return left;
  }

  Node operand() {
    skip_spaces();
    const int at = column();
    if (accept("(")) {
      const Level level(*this, at);
      Node inside = either();
      expect(")");
      return inside;
    }
    if (accept("[")) {
      const Level level(*this, at);
      return list(at);
    }
    const char first = at_ < text_.size() ? text_[at_] : '\0';
    if (first == '"' || first == '\'') {
      return text_literal(first, at);
    }
    if (std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '-' || first == '+' || first == '.') {
      return number(at);
    }
    if (is_word(first)) {
      return key_or_flag(at);
    }
    fail(at, at_ == text_.size()
                 ? "the expression ends where a key, a literal, ! or ( is accepted"
                 : fmt::format("`{}` where a key, a literal, ! or ( is accepted", beginning(text_.substr(at_))));
  }

  Node list(int at) {
    Node node{"list", {}, at, {}};
    skip_spaces();
    if (accept("]")) {
      return node;
    }
    do {
      node.children.push_back(operand());
      skip_spaces();
    } while (accept(","));
    expect("]");
    return node;
  }

  Node text_literal(char quote, int at) {
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      fail(at, "the text has no closing quote");
    }
    Node node{"literal", {std::string(text_.substr(at_ + 1, end - at_ - 1)), 0}, at, {}};
    at_ = end + 1;
    return node;
  }

  Node number(int at) {
    std::size_t end = at_ + 1;
    while (end < text_.size() &&
           (is_word(text_[end]) || text_[end] == '.' ||
            ((text_[end] == '-' || text_[end] == '+') && (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      ++end;
    }
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    const std::string_view digits = word.starts_with('+') ? word.substr(1) : word;
    const char* first = digits.data();
    const char* last = first + digits.size();
    std::int64_t integer = 0;
    if (const auto [stop, error] = std::from_chars(first, last, integer); error == std::errc{} && stop == last) {
      return {"literal", {integer, 0}, at, {}};
    }
    double real = 0.0;
    if (const auto [stop, error] = std::from_chars(first, last, real); error == std::errc{} && stop == last) {
      return {"literal", {real, 0}, at, {}};
    }
    fail(at, fmt::format("`{}` is not a number", beginning(word)));
  }

  Node key_or_flag(int at) {
    std::size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' || text_[end] == '-')) {
      ++end;
    }
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    if (word == "true" || word == "false") {
      return {"literal", {word == "true", 0}, at, {}};
    }
    if (std::find(keys_.begin(), keys_.end(), word) == keys_.end()) {
      keys_.push_back(word);
    }
    return {"key", {word, 0}, at, {}};
  }

  static Node join(std::string operation, int at, Node left, Node right) {
    Node node{std::move(operation), {}, at, {}};
    node.children.push_back(std::move(left));
    node.children.push_back(std::move(right));
    return node;
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
  int column() const { return static_cast<int>(at_) + 1; }
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }
  bool accept(std::string_view symbol) {
    if (text_.substr(at_, symbol.size()) != symbol) {
      return false;
    }
    at_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    skip_spaces();
    if (!accept(symbol)) {
      fail(column(), fmt::format("`{}` is missing", symbol));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::vector<std::string> keys_;
};

/// Equal values of comparable types; numbers compare by value. @throws UserError if the types cannot be compared.
bool equal(const TomlValue& left, const TomlValue& right, int column) {
  const auto *first = std::get_if<std::int64_t>(&left.data), *second = std::get_if<std::int64_t>(&right.data);
  if (first != nullptr && second != nullptr) {
    return *first == *second;  // beyond 2^53 too
  }
  if (const auto a = left.number(), b = right.number(); a && b) {
    return *a == *b;
  }
  if (left.data.index() != right.data.index()) {
    fail(column, fmt::format("{} and {} cannot be compared: {} and {}", left.kind(), right.kind(), toml_text(left),
                             toml_text(right)));
  }
  if (left.is_array()) {
    const TomlValue::Array &a = left.array(), &b = right.array();
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const TomlValue& x, const TomlValue& y) { return equal(x, y, column); });
  }
  return toml_text(left) == toml_text(right);
}

/// -1, 0 or 1; numbers with numbers, texts with texts.
int order(const TomlValue& left, const TomlValue& right, int column) {
  const auto *first = std::get_if<std::int64_t>(&left.data), *second = std::get_if<std::int64_t>(&right.data);
  if (first != nullptr && second != nullptr) {
    return *first < *second ? -1 : (*first > *second ? 1 : 0);
  }
  if (const auto a = left.number(), b = right.number(); a && b) {
    return *a < *b ? -1 : (*a > *b ? 1 : 0);
  }
  const auto* a = std::get_if<std::string>(&left.data);
  const auto* b = std::get_if<std::string>(&right.data);
  if (a == nullptr || b == nullptr) {
    fail(column, fmt::format("{} and {} have no order: {} and {}", left.kind(), right.kind(), toml_text(left),
                             toml_text(right)));
  }
  return a->compare(*b) < 0 ? -1 : (*a == *b ? 0 : 1);
}

TomlValue value_of_node(const Node& node, const Expression::Lookup& lookup);

bool truth(const Node& node, const Expression::Lookup& lookup) {
  const TomlValue value = value_of_node(node, lookup);
  const bool* flag = std::get_if<bool>(&value.data);
  if (flag == nullptr) {
    fail(node.column, fmt::format("{} where true or false is accepted: {}", value.kind(), toml_text(value)));
  }
  return *flag;
}

bool compare(const Node& node, const Expression::Lookup& lookup) {
  const TomlValue left = value_of_node(node.children[0], lookup);
  const TomlValue right = value_of_node(node.children[1], lookup);
  if (node.operation == "==" || node.operation == "!=") {
    return equal(left, right, node.column) == (node.operation == "==");
  }
  if (node.operation == "in") {
    if (!right.is_array()) {
      fail(node.column, fmt::format("{} where a list is accepted after `in`: {}", right.kind(), toml_text(right)));
    }
    return std::any_of(right.array().begin(), right.array().end(),
                       [&](const TomlValue& element) { return equal(left, element, node.column); });
  }
  const int sign = order(left, right, node.column);
  if (node.operation == "<") {
    return sign < 0;
  }
  if (node.operation == "<=") {
    return sign <= 0;
  }
  return node.operation == ">" ? sign > 0 : sign >= 0;
}

TomlValue value_of_node(const Node& node, const Expression::Lookup& lookup) {
  if (node.operation == "literal") {
    return node.value;
  }
  if (node.operation == "key") {
    const std::string& key = std::get<std::string>(node.value.data);
    auto value = lookup(key);
    if (!value) {
      fail(node.column, fmt::format("{} is unset at this point", key));
    }
    return *std::move(value);
  }
  if (node.operation == "list") {
    TomlValue::Array elements;
    for (const Node& child : node.children) {
      elements.push_back(value_of_node(child, lookup));
    }
    return {std::move(elements), 0};
  }
  if (node.operation == "!") {
    return {!truth(node.children[0], lookup), 0};
  }
  const auto is_true = [&](const Node& child) { return truth(child, lookup); };
  if (node.operation == "&&") {
    return {std::all_of(node.children.begin(), node.children.end(), is_true), 0};
  }
  if (node.operation == "||") {
    return {std::any_of(node.children.begin(), node.children.end(), is_true), 0};
  }
  return {compare(node, lookup), 0};
}

}  // namespace

Expression::Expression(std::string_view text) {
  Parser parser(text);
  root_ = parser.whole();
  keys_ = parser.take_keys();
}

bool Expression::evaluate(const Lookup& lookup) const { return truth(root_, lookup); }

}  // namespace strata

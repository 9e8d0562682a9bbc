/// @file
/// The only file that includes the TOML library. It sorts tables by key; source positions give the order of the file
/// back.

#include "base/toml_value.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/utf8.hpp"

namespace strata {
namespace {

/// Tables and lists inside each other, and parts of a dotted key. Everything that reads a document, the library too,
/// goes down by recursion, and nothing that strata reads is deeper than five.
constexpr int most_levels = 32;

/// Goes over a text before the library does, which takes any number of parts of a key, and whose own limit on brackets
/// leaves a stack for one of them alone. Of text that is no TOML it need only know as much as the library has read
/// when it gives up.
class LevelCheck {
 public:
  LevelCheck(std::string_view text, std::string_view file_name) : text_(text), file_name_(file_name) {}

  /// @throws UserError with file and line.
  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (c == '[' || c == '{') ++brackets_;
      if (c == ']' || c == '}') brackets_ = std::max(0, brackets_ - 1);
      if (c == '.') {
        ++dots_;
      } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
        dots_ = 0;
      }
      if (c == '\n') ++line_;
      if (brackets_ > most_levels || dots_ >= most_levels) {
        throw UserError(fmt::format(
            "{}:{}: {}; accepted: {} at most", file_name_, line_,
            brackets_ > most_levels ? "lists and tables inside each other" : "a key of many parts", most_levels));
      }
      ++at_;
    }
  }

 private:
  /// To behind its closing quotes; one that nothing closes ends with its line.
  void skip_string(char quote) {
    const bool has_many_lines = text_.substr(at_, 3) == std::string(3, quote);
    at_ += has_many_lines ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        if (!has_many_lines) return;
        ++line_;
      }
      if (text_[at_] == '\\' && quote == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
        continue;
      }
      if (text_[at_] != quote) continue;
      if (has_many_lines && text_.substr(at_, 3) != std::string(3, quote)) continue;
      at_ += has_many_lines ? 3 : 1;
      // Up to two quotes may stand before the three that close.
      while (has_many_lines && at_ < text_.size() && text_[at_] == quote) ++at_;
      return;
    }
  }

  std::string_view text_;
  std::string_view file_name_;
  std::size_t at_ = 0;
  int line_ = 1;
  int brackets_ = 0;
  int dots_ = 0;
};

toml::table parse_levels(std::string_view text, std::string_view file_name) {
  LevelCheck(text, file_name).run();
  return toml::parse(text, file_name);
}

TomlValue convert(const toml::node& node, std::string_view file_name, int level = 0) {
  const int line = static_cast<int>(node.source().begin.line);
  if (level > most_levels) {
    throw UserError(
        fmt::format("{}:{}: lists and tables inside each other; accepted: {} at most", file_name, line, most_levels));
  }
  if (const auto* value = node.as_boolean()) {
    return {value->get(), line};
  }
  if (const auto* value = node.as_integer()) {
    return {value->get(), line};
  }
  if (const auto* value = node.as_floating_point()) {
    return {value->get(), line};
  }
  if (const auto* value = node.as_string()) {
    return {value->get(), line};
  }
  if (const auto* array = node.as_array()) {
    TomlValue::Array elements;
    for (const toml::node& element : *array) {
      elements.push_back(convert(element, file_name, level + 1));
    }
    return {std::move(elements), line};
  }
  if (const auto* table = node.as_table()) {
    // The library sorts by key; the place in the text gives the order back.
    std::vector<std::pair<toml::source_position, TomlEntry>> entries;
    for (const auto& [key, value] : *table) {
      const toml::source_position at = key.source().begin;
      entries.emplace_back(
          at, TomlEntry{std::string(key.str()), convert(value, file_name, level + 1), static_cast<int>(at.line)});
    }
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    TomlValue::Table sorted;
    for (auto& [at, entry] : entries) {
      sorted.push_back(std::move(entry));
    }
    return {std::move(sorted), line};
  }
  throw UserError(fmt::format("{}:{}: dates and times are not accepted anywhere", file_name, line));
}

}  // namespace

std::optional<double> TomlValue::number() const {
  if (const auto* integer = std::get_if<std::int64_t>(&data)) return static_cast<double>(*integer);
  const auto* real = std::get_if<double>(&data);
  return real != nullptr ? std::optional(*real) : std::nullopt;
}

std::string_view TomlValue::kind() const {
  constexpr std::string_view names[] = {"a truth value", "an integer", "a real", "a string", "a list", "a table"};
  return names[data.index()];
}

namespace {

/// The library names the line alone. @throws UserError with file, line and the key that stands in it.
void check_utf8(std::string_view text, std::string_view file_name) {
  const std::size_t valid = utf8_prefix(text);
  if (valid == text.size()) return;
  const std::string_view before = text.substr(0, valid);
  const std::string_view line = before.substr(before.rfind('\n') + 1);  // from 0 where there is none
  const std::string_view key = line.find('=') == std::string_view::npos ? "" : line.substr(0, line.find('='));
  const auto is_of_keys = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("._-\"' ").find(static_cast<char>(c)) != std::string_view::npos;
  };
  throw UserError(fmt::format("{}:{}: {}byte {:#04x}; accepted: UTF-8", file_name,
                              1 + std::count(before.begin(), before.end(), '\n'),
                              !key.empty() && std::ranges::all_of(key, is_of_keys)
                                  ? fmt::format("{}: ", key.substr(0, key.find_last_not_of(' ') + 1))
                                  : "",
                              static_cast<unsigned char>(text[valid])));
}

}  // namespace

TomlValue parse_toml(std::string_view text, std::string_view file_name) {
  check_utf8(text, file_name);
  try {
    return convert(parse_levels(text, file_name), file_name);
  } catch (const toml::parse_error& error) {
    throw UserError(
        fmt::format("{}:{}: not TOML: {}", file_name, error.source().begin.line, std::string(error.description())));
  }
}

TomlValue parse_toml_value(std::string_view text, std::string_view origin) {
  TomlValue root = [&] {
    try {
      return convert(parse_levels(fmt::format("value = {}", text), origin), origin);
    } catch (const toml::parse_error& error) {
      throw UserError(fmt::format("{}: `{}` is not a TOML value: {}", origin, text, std::string(error.description())));
    }
  }();
  if (root.table().size() != 1) {
    throw UserError(fmt::format("{}: `{}` is more than one TOML value", origin, text));
  }
  return root.table()[0].value;
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\n': quoted += "\\n"; break;
      case '\t': quoted += "\\t"; break;
      case '\r': quoted += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20U || c == 0x7f) {
          quoted += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

std::string toml_real(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  std::string text = fmt::format("{}", value);  // shortest that reads back equal
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string toml_key(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : toml_string(key);
}

std::string toml_text(const TomlValue& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    return fmt::format("{}", *integer);
  }
  if (const auto* real = std::get_if<double>(&value.data)) {
    return toml_real(*real);
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    return toml_string(*text);
  }
  std::string joined;
  if (value.is_array()) {
    for (const TomlValue& element : value.array()) {
      joined += fmt::format("{}{}", joined.empty() ? "" : ", ", toml_text(element));
    }
    return fmt::format("[{}]", joined);
  }
  for (const TomlEntry& entry : value.table()) {
    joined += fmt::format("{}{} = {}", joined.empty() ? "" : ", ", toml_key(entry.key), toml_text(entry.value));
  }
  return joined.empty() ? "{}" : fmt::format("{{ {} }}", joined);
}

std::vector<std::string> split_words(std::string_view accepted) {
  std::vector<std::string> words;
  while (!accepted.empty()) {
    const std::size_t bar = accepted.find(" | ");
    words.emplace_back(accepted.substr(0, bar));
    accepted = bar == std::string_view::npos ? std::string_view{} : accepted.substr(bar + 3);
  }
  return words;
}

TomlReader::TomlReader(const TomlValue& table, std::string path, std::string file_name)
    : table_(&table), path_(std::move(path)), file_name_(std::move(file_name)) {
  STRATA_INVARIANT(table.is_table(), "a reader reads a table");
}

std::string TomlReader::full(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const TomlEntry* TomlReader::entry(std::string_view key) const {
  const TomlValue::Table& entries = table_->table();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const TomlEntry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

const TomlValue* TomlReader::find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
    known_.emplace_back(key);
  }
  const TomlEntry* found = entry(key);
  return found == nullptr ? nullptr : &found->value;
}

bool TomlReader::has(std::string_view key) { return find(key) != nullptr; }

void TomlReader::fail(std::string_view key, std::string_view message) const {
  const TomlEntry* found = entry(key);
  throw UserError(
      fmt::format("{}:{}: {}: {}", file_name_, found != nullptr ? found->line : table_->line, full(key), message));
}

void TomlReader::require(std::string_view key) {
  if (!has(key)) {
    fail(key, "missing");
  }
}

void TomlReader::read(std::string_view key, bool& value) {
  if (const TomlValue* found = find(key)) {
    const bool* flag = std::get_if<bool>(&found->data);
    if (flag == nullptr) {
      fail(key, fmt::format("{} where true or false is accepted", found->kind()));
    }
    value = *flag;
  }
}

void TomlReader::read(std::string_view key, std::int64_t& value, std::int64_t minimum) {
  if (const TomlValue* found = find(key)) {
    const std::int64_t* integer = std::get_if<std::int64_t>(&found->data);
    if (integer == nullptr) {
      fail(key, fmt::format("{} where an integer >= {} is accepted", found->kind(), minimum));
    }
    if (*integer < minimum) {
      fail(key, fmt::format("{} is out of range; accepted: >= {}", *integer, minimum));
    }
    value = *integer;
  }
}

void TomlReader::read(std::string_view key, int& value, std::int64_t minimum) {
  std::int64_t wide = value;
  read(key, wide, minimum);
  if (wide > std::int64_t{1} << 30) {
    fail(key, fmt::format("{} is out of range; accepted: <= 2^30", wide));
  }
  value = static_cast<int>(wide);
}

void TomlReader::read(std::string_view key, double& value, double minimum) {
  if (const TomlValue* found = find(key)) {
    double real = 0.0;
    if (const auto* integer = std::get_if<std::int64_t>(&found->data)) {
      real = static_cast<double>(*integer);
    } else if (const auto* exact = std::get_if<double>(&found->data)) {
      real = *exact;
    } else {
      fail(key, fmt::format("{} where a number >= {} is accepted", found->kind(), minimum));
    }
    if (!(real >= minimum) || std::isinf(real)) {
      fail(key, fmt::format("{} is out of range; accepted: a finite number >= {}", real, minimum));
    }
    value = real;
  }
}

void TomlReader::read(std::string_view key, std::string& value) {
  if (const TomlValue* found = find(key)) {
    const std::string* text = std::get_if<std::string>(&found->data);
    if (text == nullptr) {
      fail(key, fmt::format("{} where a string is accepted", found->kind()));
    }
    value = *text;
  }
}

void TomlReader::read_word(std::string_view key, std::string& value, std::string_view accepted) {
  std::string word = value;
  read(key, word);
  const std::vector<std::string> words = split_words(accepted);
  if (entry(key) != nullptr && std::find(words.begin(), words.end(), word) == words.end()) {
    fail(key, fmt::format("unknown word \"{}\"{}; accepted: {}", word, did_you_mean(word, words), accepted));
  }
  value = word;
}

const TomlValue* TomlReader::table(std::string_view key) {
  const TomlValue* found = find(key);
  if (found != nullptr && !found->is_table()) {
    fail(key, fmt::format("{} where a table is accepted", found->kind()));
  }
  return found;
}

const TomlValue* TomlReader::array(std::string_view key) {
  const TomlValue* found = find(key);
  if (found != nullptr && !found->is_array()) {
    fail(key, fmt::format("{} where a list is accepted", found->kind()));
  }
  return found;
}

TomlReader TomlReader::child(std::string_view key, const TomlValue& table) const {
  return {table, full(key), file_name_};
}

void TomlReader::finish() const {
  for (const TomlEntry& found : table_->table()) {
    if (std::find(known_.begin(), known_.end(), found.key) == known_.end()) {
      fail(found.key,
           fmt::format("unknown key{}; accepted: {}", did_you_mean(found.key, known_), fmt::join(known_, ", ")));
    }
  }
}

}  // namespace strata

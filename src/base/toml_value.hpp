#pragma once

/// @file
/// A TOML document as a value that knows its lines, and the reader that turns one table of it into fields. The library
/// that parses stays inside the .cpp; keys keep the order of the file, because axes and mesh dimensions have one.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

struct TomlEntry;

struct TomlValue {
  using Array = std::vector<TomlValue>;
  using Table = std::vector<TomlEntry>;
  std::variant<bool, std::int64_t, double, std::string, Array, Table> data;
  int line = 0;

  bool is_table() const { return std::holds_alternative<Table>(data); }
  bool is_array() const { return std::holds_alternative<Array>(data); }
  const Table& table() const { return std::get<Table>(data); }
  const Array& array() const { return std::get<Array>(data); }
  /// An integer's or a real's.
  std::optional<double> number() const;
  /// "a string", "a table", … for messages.
  std::string_view kind() const;
};

struct TomlEntry {
  std::string key;
  TomlValue value;
  int line = 0;  ///< of the key
};

/// @return the root table. @throws UserError "file:line: …" on malformed text.
TomlValue parse_toml(std::string_view text, std::string_view file_name);
/// One value alone, as on a command line. @throws UserError naming @p origin.
TomlValue parse_toml_value(std::string_view text, std::string_view origin);

/// Spellings that parse back to the same value: a quoted string; a real that is not mistaken for an integer, at full
/// precision.
std::string toml_string(std::string_view text);
std::string toml_real(double value);
std::string toml_text(const TomlValue& value);
/// A key, quoted where TOML needs it.
std::string toml_key(std::string_view key);

/// Reads the keys of one table, each at most once. Every error reads "file:line: path.key: what is wrong; what is
/// accepted". Call finish() at the end: what nobody asked for is an unknown key.
class TomlReader {
 public:
  /// @p table must be a table and outlive the reader. @p path is "" for the root.
  TomlReader(const TomlValue& table, std::string path, std::string file_name);

  bool has(std::string_view key);
  void read(std::string_view key, bool& value);
  void read(std::string_view key, int& value, std::int64_t minimum = 0);
  void read(std::string_view key, std::int64_t& value, std::int64_t minimum = 0);
  /// Accepts integers too.
  void read(std::string_view key, double& value, double minimum = 0.0);
  void read(std::string_view key, std::string& value);
  /// @p accepted: words separated by " | ".
  void read_word(std::string_view key, std::string& value, std::string_view accepted);
  /// @return null if absent; errors unless it is a table or an array of tables.
  const TomlValue* table(std::string_view key);
  const TomlValue* array(std::string_view key);
  const TomlValue* find(std::string_view key);
  TomlReader child(std::string_view key, const TomlValue& table) const;

  /// @throws UserError that @p key is missing, if it is.
  void require(std::string_view key);
  /// @throws UserError about the value of @p key, at its line.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;
  void finish() const;

 private:
  const TomlEntry* entry(std::string_view key) const;
  std::string full(std::string_view key) const;

  const TomlValue* table_;
  std::string path_;
  std::string file_name_;
  std::vector<std::string> known_;
};

/// The words of "a | b | c".
std::vector<std::string> split_words(std::string_view accepted);

}  // namespace strata

/// @file
/// A ModelGraph as lines of words, each thing by its name, so that a printed graph can be read and edited:
///
///   model gpt-nano positions_per_sample=64
///   tensor block[0].attn.qkv activation [64,192]
///   parameter block[0].attn.qkv.weight [192,64] normal(0,0.02) decay
///   operator block[0].attn.qkv linear block[0].attn.norm -> block[0].attn.qkv with a.weight,a.bias : in=64 out=192
///   block block[0] first=1 operators=10 class=0

#include <fmt/format.h>

#include <charconv>
#include <climits>
#include <map>

#include "base/error.hpp"
#include "ir/model/model_graph.hpp"

namespace strata {
namespace {

// ---- writing

template <class Entity>
std::string names_of(const std::vector<int>& ids, const std::vector<Entity>& entities) {
  std::string text;
  for (const int id : ids) {
    text += (text.empty() ? "" : ",") + entities.at(static_cast<std::size_t>(id)).name;
  }
  return text;
}

std::string text_of(const Initializer& initializer) {
  switch (initializer.kind) {
    case Initializer::Kind::constant: return fmt::format("constant({})", initializer.a);
    case Initializer::Kind::normal: return fmt::format("normal({},{})", initializer.a, initializer.b);
    case Initializer::Kind::uniform: return fmt::format("uniform({},{})", initializer.a, initializer.b);
  }
  throw InternalError("no such initializer");
}

std::string text_of(const ModelGraph& graph, const Operator& op) {
  std::string text = fmt::format("operator {} {} {} -> {}", op.name, to_string(op.kind),
                                 names_of(op.inputs, graph.tensors), names_of(op.outputs, graph.tensors));
  if (!op.parameters.empty()) {
    text += " with " + names_of(op.parameters, graph.parameters);
  }
  if (!op.attributes.entries().empty()) {
    text += " : " + to_text(op.attributes);
  }
  return text;
}

// ---- reading

using Ids = std::map<std::string, int, std::less<>>;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    if (end != 0 || separator != ' ') {  // runs of spaces separate once
      parts.push_back(text.substr(0, end));
    }
    if (end == std::string_view::npos) {
      break;
    }
    text.remove_prefix(end + 1);
  }
  if (separator == ' ' && !parts.empty() && parts.back().empty()) {
    parts.pop_back();
  }
  return parts;
}

/// Reads the words of one line; every error says which line it is on.
class Line {
 public:
  Line(std::string_view text, int number) : words_(split(text, ' ')), number_(number) {}

  /// Runs @p parse and puts the line before what it has to say.
  template <class Parse>
  auto at_line(const Parse& parse) const {
    try {
      return parse();
    } catch (const UserError& error) {
      fail(error.what());
    }
  }

  bool done() const { return next_ == words_.size(); }

  std::string_view word(std::string_view what) {
    if (done()) fail(fmt::format("{} is missing", what));
    return words_[next_++];
  }
  /// True, and past it, if the next word is @p word.
  bool accept(std::string_view word) {
    if (done() || words_[next_] != word) return false;
    ++next_;
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word))
      fail(fmt::format("`{}` is missing{}", word, done() ? "" : fmt::format(" before `{}`", words_[next_])));
  }
  void finish() {
    if (!done()) fail(fmt::format("unexpected `{}`", words_[next_]));
  }

  /// `key=integer`
  std::int64_t keyed(std::string_view key) {
    const std::string_view text = word(key);
    if (text.substr(0, key.size()) != key || text.substr(key.size(), 1) != "=") {
      fail(fmt::format("`{}` where `{}=<integer>` is accepted", text, key));
    }
    return number<std::int64_t>(text.substr(key.size() + 1));
  }
  int keyed_int(std::string_view key) {
    const std::int64_t value = keyed(key);
    if (value < 0 || value > INT_MAX) fail(fmt::format("{}={} out of range", key, value));
    return static_cast<int>(value);
  }

  std::vector<std::int64_t> shape() {
    const std::string_view text = word("shape");
    if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
      fail(fmt::format("malformed shape `{}`; accepted: [64,192] or []", text));
    }
    std::vector<std::int64_t> sizes;
    if (text.size() > 2) {
      for (const std::string_view size : split(text.substr(1, text.size() - 2), ',')) {
        sizes.push_back(number<std::int64_t>(size));
      }
    }
    return sizes;
  }

  Initializer initializer() {
    const std::string_view text = word("initializer");
    const std::size_t open = text.find('(');
    if (open != std::string_view::npos && text.back() == ')') {
      const std::string_view kind = text.substr(0, open);
      const std::vector<std::string_view> values = split(text.substr(open + 1, text.size() - open - 2), ',');
      if (kind == "constant" && values.size() == 1) {
        return {Initializer::Kind::constant, number<double>(values[0]), 0.0};
      }
      if ((kind == "normal" || kind == "uniform") && values.size() == 2) {
        return {kind == "normal" ? Initializer::Kind::normal : Initializer::Kind::uniform, number<double>(values[0]),
                number<double>(values[1])};
      }
    }
    fail(fmt::format("malformed initializer `{}`; accepted: constant(a), normal(mean,deviation), uniform(low,high)",
                     text));
  }

  std::vector<int> ids(std::string_view what, const Ids& known) {
    std::vector<int> found;
    for (const std::string_view name : split(word(what), ',')) {
      const auto entry = known.find(name);
      if (entry == known.end()) fail(fmt::format("no {} `{}` on a line above", what, name));
      found.push_back(entry->second);
    }
    return found;
  }

  Attributes attributes() {
    std::string text;
    while (!done()) text += fmt::format("{} ", word("attribute"));
    return at_line([&] { return parse_attributes(text); });
  }

  [[noreturn]] void fail(std::string_view message) const {
    throw UserError(fmt::format("model graph, line {}: {}", number_, message));
  }

 private:
  template <class Number>
  Number number(std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(fmt::format("`{}` is not a number", text));
    return value;
  }

  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
  int number_;
};

class Parser {
 public:
  void line(Line line) {
    const std::string_view word = line.word("statement");
    if (word != "model" && graph_.name.empty()) {
      line.fail("the first line must be `model <name> positions_per_sample=<integer>`");
    }
    if (word == "model") {
      if (!graph_.name.empty()) line.fail("a second `model` line");
      graph_.name = line.word("name");
      graph_.positions_per_sample = line.keyed("positions_per_sample");
    } else if (word == "tensor") {
      Tensor tensor;
      tensor.name = line.word("name");
      const std::string_view role = line.word("role");
      tensor.role = line.at_line([&] { return parse_tensor_role(role); });
      tensor.shape = line.shape();
      add(line, tensors_, graph_.tensors, std::move(tensor));
    } else if (word == "parameter") {
      Parameter parameter;
      parameter.name = line.word("name");
      parameter.shape = line.shape();
      parameter.initializer = line.initializer();
      parameter.weight_decay = line.accept("decay");
      add(line, parameters_, graph_.parameters, std::move(parameter));
    } else if (word == "operator") {
      graph_.operators.push_back(read_operator(line));
    } else if (word == "block") {
      Block block;
      block.name = line.word("name");
      block.first_operator = line.keyed_int("first");
      block.num_operators = line.keyed_int("operators");
      block.shape_class = line.keyed_int("class");
      graph_.blocks.push_back(std::move(block));
    } else {
      line.fail(fmt::format("unknown statement `{}`; accepted: model, tensor, parameter, operator, block", word));
    }
    line.finish();
  }

  ModelGraph finish() {
    if (graph_.name.empty()) {
      throw UserError("model graph: the text is empty; the first line must be `model <name> positions_per_sample=…`");
    }
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) {
      const Block& block = graph_.blocks[b];
      for (int i = 0; i < block.num_operators; ++i) {
        const std::size_t op = static_cast<std::size_t>(block.first_operator) + static_cast<std::size_t>(i);
        if (op >= graph_.operators.size()) break;  // verify names the block
        graph_.operators[op].block = static_cast<int>(b);
      }
    }
    try {
      verify(graph_);
    } catch (const InternalError& error) {
      throw UserError(error.what());  // whoever wrote the text broke the rule, not this program
    }
    return std::move(graph_);
  }

 private:
  template <class Entity>
  static void add(const Line& line, Ids& ids, std::vector<Entity>& entities, Entity entity) {
    if (!ids.emplace(entity.name, static_cast<int>(entities.size())).second) {
      line.fail(fmt::format("`{}` is defined twice", entity.name));
    }
    entities.push_back(std::move(entity));
  }

  Operator read_operator(Line& line) const {
    Operator op;
    op.name = line.word("name");
    const std::string_view kind = line.word("kind");
    op.kind = line.at_line([&] { return parse_operator_kind(kind); });
    op.inputs = line.ids("tensor", tensors_);
    line.expect("->");
    op.outputs = line.ids("tensor", tensors_);
    if (line.accept("with")) op.parameters = line.ids("parameter", parameters_);
    if (line.accept(":")) op.attributes = line.attributes();
    return op;
  }

  ModelGraph graph_;
  Ids tensors_;
  Ids parameters_;
};

}  // namespace

std::string to_text(const ModelGraph& graph) {
  std::string text = fmt::format("model {} positions_per_sample={}\n", graph.name, graph.positions_per_sample);
  for (const Tensor& tensor : graph.tensors) {
    text += fmt::format("tensor {} {} [{}]\n", tensor.name, to_string(tensor.role), fmt::join(tensor.shape, ","));
  }
  for (const Parameter& parameter : graph.parameters) {
    text += fmt::format("parameter {} [{}] {}{}\n", parameter.name, fmt::join(parameter.shape, ","),
                        text_of(parameter.initializer), parameter.weight_decay ? " decay" : "");
  }
  for (const Operator& op : graph.operators) {
    text += text_of(graph, op) + '\n';
  }
  for (const Block& block : graph.blocks) {
    text += fmt::format("block {} first={} operators={} class={}\n", block.name, block.first_operator,
                        block.num_operators, block.shape_class);
  }
  return text;
}

ModelGraph parse_model_graph(std::string_view text) {
  Parser parser;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(' ') != std::string_view::npos) {
      parser.line(Line(line, number));
    }
  }
  return parser.finish();
}

}  // namespace strata

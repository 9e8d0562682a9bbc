/// @file
/// The text of a Program: one line a buffer, one line an instruction, fields between bars. What `strata program`
/// prints, golden tests compare and parse_program reads back.
///
///   #12 communication all_reduce sum group=data %8 -> %8 | | reduce mb0 bucket[0] | wait #11
///   #14 compute linear_forward %0, %1, %2 -> %7 | in=64 out=256 rows=128 | forward mb0 block[0].mlp.fc1 | alloc %7 |
///   free %0

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "ir/program/program.hpp"

namespace strata {
namespace {

// ---- writing
// ---------------------------------------------------------------------------------------------------------

std::string operand_text(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
  std::string text = fmt::format("%{}", operand.buffer);
  if (operand.begin != 0 || operand.num_elements != buffer.num_elements) {
    text += fmt::format("[{}:{}]", operand.begin, operand.begin + operand.num_elements);
  }
  return text;
}

std::string operands_text(const Program& program, const std::vector<Operand>& operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += (text.empty() ? "" : ", ") + operand_text(program, operand);
  }
  return text;
}

std::string ids_text(std::string_view word, const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) {
    text += fmt::format(" %{}", id);
  }
  return text.empty() ? "" : fmt::format(" | {}{}", word, text);
}

/// ` | pieces 0,604,1204 -> 0,2,4 longest=604`.
std::string pieces_text(const Pieces& pieces) {
  if (pieces.empty()) return "";
  return fmt::format(" | pieces {}{}->{}{} longest={}", fmt::join(pieces.input, ","), pieces.input.empty() ? "" : " ",
                     pieces.output.empty() ? "" : " ", fmt::join(pieces.output, ","), pieces.longest);
}

std::string instruction_text(const Program& program, const Instruction& in, std::size_t index) {
  std::string text = fmt::format("#{} {} ", index, program.streams[static_cast<std::size_t>(in.stream)]);
  if (in.is_collective()) {
    text += to_string(in.collective);
    if (is_reduction(in.collective)) {
      text += in.reduction == Reduction::sum ? " sum" : " max";
    }
    text += fmt::format(" group={}", program.groups[static_cast<std::size_t>(in.group)].name);
    if (!in.roots.empty()) {
      text += fmt::format(" roots={}", fmt::join(in.roots, ","));
    } else if (is_rooted(in.collective)) {
      text += fmt::format(" root={}", in.root);
    }
    if (in.collective == Collective::send || in.collective == Collective::recv)
      text += fmt::format(" peer={}", in.root);
  } else {
    text += kernel_signature(in.kernel).name;
  }
  const std::string inputs = operands_text(program, in.inputs);
  text += (inputs.empty() ? "" : " ") + inputs + " -> " + operands_text(program, in.outputs);
  const std::string attributes = to_text(in.attributes);
  text += fmt::format(" |{}{} | {} mb{} {}", attributes.empty() ? "" : " ", attributes, to_string(in.phase),
                      in.micro_batch, in.name);
  if (in.step != 0) text += fmt::format(" | step {}", in.step);
  text += pieces_text(in.pieces);
  if (in.workspace >= 0) text += fmt::format(" | workspace %{}", in.workspace);
  text += ids_text("alloc", in.allocs) + ids_text("free", in.frees);
  if (!in.waits.empty()) {
    text += " | wait";
    for (const Wait& wait : in.waits) {
      text += fmt::format(" #{}", wait.instruction);
      if (wait.lag != 0) text += fmt::format("@-{}", wait.lag);
    }
  }
  return text;
}

std::string buffer_text(const Buffer& b, std::size_t index) {
  std::string text = fmt::format("buffer %{} {} {} {} {} at={}", index, b.name, b.num_elements, to_string(b.dtype),
                                 to_string(b.category), b.offset_bytes);
  if (b.persistent) text += " persistent";
  if (!b.parameter.empty() || b.parameter_begin != 0) text += fmt::format(" of={}+{}", b.parameter, b.parameter_begin);
  if (!b.block.is_whole()) {
    text += fmt::format(" block={}+{}", b.block.first, b.block.run);
    for (const StridedBlock::Level& level : b.block.levels) {
      text += fmt::format(",{}*{}", level.count, level.stride);
      if (level.period > 0) text += fmt::format("/{}", level.period);
    }
  }
  return text;
}

// ---- reading
// ---------------------------------------------------------------------------------------------------------

/// Elements and bytes of one thing, and bytes of all buffers or of all that collectives move: whoever adds and
/// multiplies these has room in 64 bits.
constexpr std::int64_t largest_size = std::int64_t{1} << 48;
constexpr double largest_total_bytes = 0x1p60;
constexpr int largest_number = 1 << 30;
/// A Program is looked at over as many repetitions as its steps lie apart.
constexpr int most_steps_apart = 64;

/// A cursor over the words of one line; every complaint names the line.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) { skip_spaces(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("program text, line {}: {}", number_, what));
  }

  bool empty() const { return rest_.empty(); }

  /// The next word, up to a space.
  std::string_view word() {
    if (rest_.empty()) fail("the line ends too early");
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view result = rest_.substr(0, end);
    rest_.remove_prefix(end);
    skip_spaces();
    return result;
  }

  std::string_view peek() const { return rest_.substr(0, std::min(rest_.find(' '), rest_.size())); }

  bool accept(std::string_view expected) {
    if (peek() != expected) return false;
    word();
    return true;
  }

  void expect(std::string_view expected) {
    if (!accept(expected)) fail(fmt::format("expected `{}` before `{}`", expected, rest_));
  }

  /// Value of `key=value`; the word must be there.
  std::string_view value_of(std::string_view key) {
    const std::string_view text = word();
    if (!text.starts_with(key) || text.size() <= key.size() || text[key.size()] != '=') {
      fail(fmt::format("expected `{}=…`, found `{}`", key, text));
    }
    return text.substr(key.size() + 1);
  }

  std::int64_t integer(std::string_view text) const {
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size())
      fail(fmt::format("`{}` is not an integer", text));
    if (value < -1 || value > largest_size) fail(fmt::format("{} is out of range; accepted: -1 to 2^48", value));
    return value;
  }

  /// Of a rank, a stream, a buffer, …
  int small_integer(std::string_view text) const {
    const std::int64_t value = integer(text);
    if (value > largest_number) fail(fmt::format("{} is out of range; accepted: -1 to 2^30", value));
    return static_cast<int>(value);
  }

  /// Of an instruction: a few steps before or after the first of its repetition.
  int relative_step(std::string_view text) const {
    int value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size() || std::abs(value) > most_steps_apart)
      fail(
          fmt::format("`{}` where a training step of -{} to {} is accepted", text, most_steps_apart, most_steps_apart));
    return value;
  }

  /// What @p parse returns, its complaints with the line.
  auto parsed(const auto& parse) const {
    try {
      return parse();
    } catch (const UserError& error) {
      fail(error.what());
    }
  }

  int number() const { return number_; }

  /// Number behind a mark: `%12`, `#12`, `mb0`.
  int marked(std::string_view mark, std::string_view text) const {
    if (!text.starts_with(mark)) fail(fmt::format("expected `{}…`, found `{}`", mark, text));
    return small_integer(text.substr(mark.size()));
  }

  /// Everything up to the next bar, which is consumed.
  std::string_view field() {
    std::size_t end = rest_.starts_with("| ") ? 0 : rest_.find(" |");
    if (rest_ == "|") end = 0;
    const std::string_view result = rest_.substr(0, std::min(end, rest_.size()));
    rest_.remove_prefix(std::min(result.size(), rest_.size()));
    skip_spaces();
    if (!rest_.empty()) expect("|");
    return result;
  }

 private:
  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
  int number_;
};

template <typename Enum>
Enum find_word(const Line& line, std::string_view text, int count, std::string_view what) {
  std::string accepted;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (to_string(value) == text) return value;
    accepted += fmt::format("{}{}", i == 0 ? "" : ", ", to_string(value));
  }
  line.fail(fmt::format("unknown {} `{}`; accepted: {}", what, text, accepted));
}

int index_of(const Line& line, std::string_view name, std::size_t count, const auto& name_at, std::string_view what) {
  for (std::size_t i = 0; i < count; ++i) {
    if (name_at(i) == name) return static_cast<int>(i);
  }
  line.fail(fmt::format("unknown {} `{}`", what, name));
}

Operand parse_operand(const Program& program, const Line& line, std::string_view text) {
  Operand operand;
  std::optional<std::string_view> range;
  if (const std::size_t open = text.find('['); open != std::string_view::npos) {
    if (!text.ends_with(']')) line.fail(fmt::format("`{}` is not [begin:end]", text.substr(open)));
    range = text.substr(open + 1, text.size() - open - 2);
    text = text.substr(0, open);
  }
  operand.buffer = line.marked("%", text);
  if (operand.buffer < 0 || operand.buffer >= static_cast<int>(program.buffers.size()))
    line.fail(fmt::format("no buffer {}", text));
  operand.num_elements = program.buffers[static_cast<std::size_t>(operand.buffer)].num_elements;
  if (range) {
    const std::size_t colon = range->find(':');
    if (colon == std::string_view::npos) line.fail(fmt::format("`[{}]` is not [begin:end]", *range));
    operand.begin = line.integer(range->substr(0, colon));
    operand.num_elements = line.integer(range->substr(colon + 1)) - operand.begin;
  }
  return operand;
}

std::vector<Operand> parse_operands(const Program& program, const Line& line, std::string_view text) {
  std::vector<Operand> operands;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(", "), text.size());
    operands.push_back(parse_operand(program, line, text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 2, text.size()));
  }
  return operands;
}

Wait parse_wait(const Line& line, std::string_view text) {
  Wait wait;
  if (const std::size_t at = text.find("@-"); at != std::string_view::npos) {
    wait.lag = line.small_integer(text.substr(at + 2));
    if (wait.lag < 1 || wait.lag > most_steps_apart)
      line.fail(fmt::format("a lag of {}; accepted: 1 to {}", wait.lag, most_steps_apart));
    text = text.substr(0, at);
  }
  wait.instruction = line.marked("#", text);
  return wait;
}

std::vector<int> parse_roots(const Line& line, std::string_view text) {
  std::vector<int> roots;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    roots.push_back(line.small_integer(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return roots;
}

void parse_operation(const Program& program, Line& line, Instruction& in) {
  const std::string_view name = line.word();
  for (int k = 1; k < num_kernels(); ++k) {
    if (kernel_signature(static_cast<Kernel>(k)).name == name) {
      in.kernel = static_cast<Kernel>(k);
      return;
    }
  }
  in.kernel = Kernel::none;
  in.collective = find_word<Collective>(line, name, num_collectives, "kernel or collective");
  if (is_reduction(in.collective)) {
    if (line.accept("max")) {
      in.reduction = Reduction::max;
    } else {
      line.accept("sum");
    }
  }
  const std::string_view group = line.value_of("group");
  in.group = index_of(
      line, group, program.groups.size(), [&](std::size_t i) { return std::string_view(program.groups[i].name); },
      "group");
  if (is_rooted(in.collective) && line.peek().starts_with("root=")) in.root = line.small_integer(line.value_of("root"));
  if (in.collective == Collective::broadcast && line.peek().starts_with("roots=")) {
    in.roots = parse_roots(line, line.value_of("roots"));
  }
  const bool has_peer = in.collective == Collective::send || in.collective == Collective::recv;
  if (has_peer && line.peek().starts_with("peer=")) in.root = line.small_integer(line.value_of("peer"));
}

std::vector<std::int64_t> parse_begins(const Line& line, std::string_view text) {
  std::vector<std::int64_t> begins;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    begins.push_back(line.integer(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  const bool rises = begins.size() > 1 && begins.front() == 0 && std::ranges::is_sorted(begins);
  if (!rises || begins.back() > largest_size) line.fail("pieces do not begin at 0 and rise to 2^48 at most");
  return begins;
}

Pieces parse_pieces(Line& line) {
  Pieces pieces;
  if (line.peek() != "->") pieces.input = parse_begins(line, line.word());
  line.expect("->");
  if (!line.peek().starts_with("longest=")) pieces.output = parse_begins(line, line.word());
  pieces.longest = line.integer(line.value_of("longest"));
  return pieces;
}

Instruction parse_instruction(const Program& program, Line& line, std::size_t index) {
  Instruction in;
  if (line.marked("#", line.word()) != static_cast<int>(index))
    line.fail(fmt::format("expected instruction #{}", index));
  const std::string_view stream = line.word();
  in.stream = index_of(
      line, stream, program.streams.size(), [&](std::size_t i) { return std::string_view(program.streams[i]); },
      "stream");
  parse_operation(program, line, in);

  std::string_view operands = line.field();
  const std::size_t arrow = operands.find("->");
  if (arrow == std::string_view::npos) line.fail("expected `inputs -> outputs`");
  const auto trimmed = [](std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
  };
  in.inputs = parse_operands(program, line, trimmed(operands.substr(0, arrow)));
  in.outputs = parse_operands(program, line, trimmed(operands.substr(arrow + 2)));
  if (!in.roots.empty() && static_cast<int>(in.roots.size()) != num_tensors(in)) {
    line.fail(fmt::format("{} roots of {} tensors", in.roots.size(), num_tensors(in)));
  }
  const std::string_view attributes = line.field();
  in.attributes = line.parsed([&] { return parse_attributes(attributes); });
  in.phase = find_word<Phase>(line, line.word(), static_cast<int>(Phase::metrics) + 1, "phase");
  in.micro_batch = line.marked("mb", line.word());
  in.name = line.field();
  while (!line.empty()) {
    Line field(line.field(), line.number());
    const std::string_view word = field.word();
    if (word == "pieces") {
      in.pieces = parse_pieces(field);
    } else if (word == "workspace") {
      in.workspace = line.marked("%", field.word());
    } else if (word == "step") {
      in.step = line.relative_step(field.word());
    } else if (word == "alloc" || word == "free") {
      while (!field.empty()) (word == "alloc" ? in.allocs : in.frees).push_back(line.marked("%", field.word()));
    } else if (word == "wait") {
      while (!field.empty()) in.waits.push_back(parse_wait(line, field.word()));
    } else {
      line.fail(fmt::format("unknown field `{}`; accepted: pieces, step, workspace, alloc, free, wait", word));
    }
  }
  return in;
}

Buffer parse_buffer(Line& line, std::size_t index) {
  Buffer b;
  if (line.marked("%", line.word()) != static_cast<int>(index)) line.fail(fmt::format("expected buffer %{}", index));
  b.name = line.word();
  b.num_elements = line.integer(line.word());
  const std::string_view dtype = line.word();
  b.dtype = line.parsed([&] { return parse_dtype(dtype); });
  b.category = find_word<Category>(line, line.word(), num_categories, "category");
  b.offset_bytes = line.integer(line.value_of("at"));
  b.persistent = line.accept("persistent");
  if (line.peek().starts_with("of=")) {
    const std::string_view of = line.value_of("of");
    const std::size_t plus = of.rfind('+');
    if (plus == std::string_view::npos) line.fail("expected `of=parameter+first_element`");
    b.parameter = of.substr(0, plus);
    b.parameter_begin = line.integer(of.substr(plus + 1));
  }
  if (line.peek().starts_with("block=")) {
    std::string_view block = line.value_of("block");
    const auto number_before = [&](char separator) {
      const std::size_t at = block.find(separator);
      if (at == std::string_view::npos) line.fail("expected `block=first+run,count*stride,…`");
      const std::int64_t number = line.integer(block.substr(0, at));
      block.remove_prefix(at + 1);
      return number;
    };
    const auto last_number = [&] {
      const std::size_t comma = std::min(block.find(','), block.size());
      const std::int64_t number = line.integer(block.substr(0, comma));
      block.remove_prefix(std::min(comma + 1, block.size()));
      return number;
    };
    b.block.first = number_before('+');
    b.block.run = last_number();
    while (!block.empty()) {
      const std::int64_t count = number_before('*');
      const bool is_cut_short = block.find('/') < block.find(',');
      const std::int64_t stride = is_cut_short ? number_before('/') : last_number();
      b.block.levels.push_back({count, stride, is_cut_short ? last_number() : 0});
      if (is_cut_short && b.block.levels.back().period < 1) line.fail("a block with a period below 1");
    }
    const bool is_cut = b.block.first >= 0 && b.block.run >= 1 &&
                        std::ranges::all_of(b.block.levels, [](const StridedBlock::Level& level) {
                          return level.count >= 1 && level.stride >= 0;
                        });
    if (!is_cut) line.fail("a block whose runs and counts are not >= 1, or whose first and strides are not >= 0");
    const double num_runs = static_cast<double>(b.parameter_begin + b.num_elements) / static_cast<double>(b.block.run);
    for (const StridedBlock::Level& level : b.block.levels) {
      if (num_runs * static_cast<double>(level.stride) > largest_total_bytes)
        line.fail("a block of more than 2^60 elements");
    }
  }
  if (b.num_elements < 0 || b.parameter_begin < 0) line.fail("a buffer of fewer than no elements");
  return b;
}

/// Of a collective, over all members of its group.
double most_bytes_sent(const Program& program, const Instruction& in) {
  if (!in.is_collective()) return 0.0;
  double bytes = 0.0;
  for (const auto* operands : {&in.inputs, &in.outputs}) {
    for (const Operand& operand : *operands) bytes = std::max(bytes, 4.0 * static_cast<double>(operand.num_elements));
  }
  return bytes * static_cast<double>(program.groups[static_cast<std::size_t>(in.group)].ranks.size());
}

Group parse_group(Line& line) {
  Group group;
  group.name = line.word();
  while (!line.empty()) group.ranks.push_back(line.small_integer(line.word()));
  return group;
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text = fmt::format("program rank {} of {} arena={} loss={} norm={}", program.rank, program.num_ranks,
                                 program.arena_bytes, program.loss_buffer, program.norm_buffer);
  if (program.correct_buffer >= 0) text += fmt::format(" correct={}", program.correct_buffer);
  text += '\n';
  for (const std::string& stream : program.streams) text += fmt::format("stream {}\n", stream);
  for (const Group& group : program.groups) {
    text += fmt::format("group {}", group.name);
    for (const int rank : group.ranks) text += fmt::format(" {}", rank);
    text += '\n';
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) text += buffer_text(program.buffers[i], i) + '\n';
  const auto section = [&](std::string_view name, const std::vector<Instruction>& instructions) {
    text += fmt::format("{}\n", name);
    for (std::size_t i = 0; i < instructions.size(); ++i) text += instruction_text(program, instructions[i], i) + '\n';
  };
  if (program.join) text += "join\n";
  if (program.steps_per_body != 1) text += fmt::format("steps_per_body {}\n", program.steps_per_body);
  section("prologue", program.prologue);
  section("body", program.body);
  return text;
}

Program parse_program(std::string_view text) {
  Program program;
  program.join = false;  // a line of its own says it
  std::vector<Instruction>* section = nullptr;
  double buffer_bytes = 0.0, collective_bytes = 0.0;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    if (line.peek().starts_with('#')) {
      if (section == nullptr) line.fail("an instruction before `prologue` or `body`");
      section->push_back(parse_instruction(program, line, section->size()));
      collective_bytes += most_bytes_sent(program, section->back());
      if (collective_bytes > largest_total_bytes) line.fail("collectives that move more than 2^60 bytes");
      continue;
    }
    const std::string_view word = line.word();
    if (word == "program") {
      line.expect("rank");
      program.rank = line.small_integer(line.word());
      line.expect("of");
      program.num_ranks = line.small_integer(line.word());
      program.arena_bytes = line.integer(line.value_of("arena"));
      program.loss_buffer = line.small_integer(line.value_of("loss"));
      program.norm_buffer = line.small_integer(line.value_of("norm"));
      if (!line.empty()) program.correct_buffer = line.small_integer(line.value_of("correct"));
    } else if (word == "stream") {
      program.streams.emplace_back(line.word());
    } else if (word == "group") {
      program.groups.push_back(parse_group(line));
    } else if (word == "buffer") {
      const Buffer& buffer = program.buffers.emplace_back(parse_buffer(line, program.buffers.size()));
      buffer_bytes += static_cast<double>(buffer.size_bytes());
      if (buffer_bytes > largest_total_bytes) line.fail("buffers of more than 2^60 bytes");
    } else if (word == "join") {
      program.join = true;
    } else if (word == "steps_per_body") {
      program.steps_per_body = line.small_integer(line.word());
      if (program.steps_per_body < 1 || program.steps_per_body > most_steps_apart)
        line.fail(
            fmt::format("a body of {} training steps; accepted: 1 to {}", program.steps_per_body, most_steps_apart));
    } else if (word == "prologue" || word == "body") {
      section = word == "prologue" ? &program.prologue : &program.body;
    } else {
      line.fail(fmt::format(
          "unknown word `{}`; accepted: program, stream, group, buffer, join, steps_per_body, prologue, body, #n",
          word));
    }
    if (!line.empty()) line.fail(fmt::format("unexpected `{}`", line.peek()));
  }
  return program;
}

}  // namespace strata

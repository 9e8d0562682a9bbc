/// @file
/// The text form of a StepOrder: the shape, then the items in order, a line for neighbouring segments of one pass.
///
///   order micro_batches=2 sub_batches=1 steps_per_body=1
///   segment 0 stage=0 operators=0..3 parameters=0..1
///   segment 1 stage=0 operators=4..15 parameters=2..9,0 recomputed
///   forward 0..1 micro_batch=0
///   recompute 1 micro_batch=0
///   backward 1..0 micro_batch=0 step=-1 version=1
///   update parameters=0..9
///
/// A segment may be `recomputed_with_previous` too, and ends, in the passes that
/// `communicates=forward,recompute,backward` names, with a collective that changes a layout. Behind `sub_batches`
/// stands `cross_pass`, behind an item `barrier`. Ranges include both ends. What is 0 is left out of items, but for the
/// micro-batch. Lines that begin with # say nothing.

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"

namespace strata {
namespace {

/// True where @p next is what @p item is, of the segment that comes next in the direction of the pass.
bool continues(const OrderItem& item, const OrderItem& next) {
  if (item.pass == Pass::update) return false;
  OrderItem expected = item;
  expected.barrier = false;
  expected.segment += item.pass == Pass::backward ? -1 : 1;
  return next == expected;
}

struct PassWithCollective {
  Pass pass;
  bool Segment::*communicates;
};
constexpr std::array<PassWithCollective, 3> passes_with_collectives = {
    {{Pass::forward, &Segment::communicates_forward},
     {Pass::recompute, &Segment::communicates_recompute},
     {Pass::backward, &Segment::communicates_backward}}};

std::string collectives_of(const Segment& segment) {
  std::string text;
  for (const auto& [pass, communicates] : passes_with_collectives) {
    if (segment.*communicates) text += fmt::format("{}{}", text.empty() ? " communicates=" : ",", to_string(pass));
  }
  return text;
}

constexpr int most = 1 << 24;  ///< of a number in the text, and of the items of an order

class Reader {
 public:
  explicit Reader(std::string_view text) : lines_(std::string(text)) {}

  StepOrder order() {
    StepOrder result;
    if (!next_line() || take_word() != "order") fail("an order begins with `order micro_batches=…`");
    read_keys();
    result.shape.micro_batches = number("micro_batches", 1, most);
    result.shape.sub_batches = number("sub_batches", 1, most);
    result.steps_per_body = number("steps_per_body", 1, most);
    result.shape.cross_pass = keys_.erase("cross_pass") > 0;
    result.shape.updates_in_backward = keys_.erase("updates_in_backward") > 0;
    finish_line();
    while (next_line()) {
      const std::string word = take_word();
      if (word == "segment") {
        segment(result);
      } else if (word == to_string(Pass::update)) {
        read_keys();
        OrderItem item{.pass = Pass::update, .parameters = numbers("parameters")};
        attributes(item);
        result.items.push_back(std::move(item));
      } else {
        pass(word, result);
      }
      finish_line();
    }
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("order, line {}: {}", line_number_, what));
  }
  bool next_line() {
    std::string line;
    while (std::getline(lines_, line)) {
      ++line_number_;
      words_ = std::istringstream(line);
      if (!line.empty() && !line.starts_with('#')) return true;
    }
    return false;
  }
  std::string take_word() {
    std::string word;
    words_ >> word;
    return word;
  }
  /// What is left of the line: `key=value`, or a word without a value.
  void read_keys() {
    keys_.clear();
    for (std::string word = take_word(); !word.empty(); word = take_word()) {
      const std::size_t at = word.find('=');
      const std::string key = word.substr(0, at);
      if (!keys_.emplace(key, at == std::string::npos ? "" : word.substr(at + 1)).second) {
        fail(fmt::format("{} stands twice", key));
      }
    }
  }
  void finish_line() const {
    if (!keys_.empty()) fail(fmt::format("unknown word \"{}\"", keys_.begin()->first));
  }
  std::string take_value(const std::string& key) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) fail(fmt::format("{} is missing", key));
    return std::move(keys_.extract(found).mapped());
  }
  int to_number(std::string_view text, int least, int greatest) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > greatest) {
      fail(fmt::format("\"{}\" is no number from {} to {}", text, least, greatest));
    }
    return value;
  }
  int number(const std::string& key, int least, int greatest) { return to_number(take_value(key), least, greatest); }
  int number_or_zero(const std::string& key, int least, int greatest) {
    return keys_.contains(key) ? number(key, least, greatest) : 0;
  }
  struct Range {
    int first = 0, last = 0;
  };
  Range range(std::string_view text) const {
    const std::size_t dots = text.find("..");
    const int first = to_number(text.substr(0, dots), 0, most);
    return {first, dots == std::string_view::npos ? first : to_number(text.substr(dots + 2), 0, most)};
  }
  std::vector<int> numbers(const std::string& key) {
    std::vector<int> result;
    std::istringstream parts(take_value(key));
    for (std::string part; std::getline(parts, part, ',');) {
      const auto [first, last] = range(part);
      if (last < first) fail(fmt::format("\"{}\" does not rise", part));
      for (int i = first; i <= last; ++i) result.push_back(i);
    }
    return result;
  }
  void attributes(OrderItem& item) {
    item.sub_batch = number_or_zero("sub_batch", 0, most);
    item.step = number_or_zero("step", -most, most);
    item.version = number_or_zero("version", 0, most);
    item.barrier = keys_.erase("barrier") > 0;
  }
  void collectives(Segment& segment) {
    if (!keys_.contains("communicates")) return;
    std::istringstream passes(take_value("communicates"));
    for (std::string pass; std::getline(passes, pass, ',');) {
      bool known = false;
      for (const auto& [of_pass, communicates] : passes_with_collectives) {
        if (pass != to_string(of_pass)) continue;
        segment.*communicates = known = true;
      }
      if (!known) fail(fmt::format("no pass is \"{}\"; accepted: forward | recompute | backward", pass));
    }
  }

  void segment(StepOrder& order) {
    const int index = to_number(take_word(), 0, most);
    if (index != static_cast<int>(order.shape.segments.size())) fail("segments are numbered from 0 on");
    read_keys();
    Segment segment{.stage = number("stage", 0, most)};
    const auto [first, last] = range(take_value("operators"));
    if (last < first) fail("a segment has an operator or more");
    segment.first_operator = first;
    segment.num_operators = last - first + 1;
    segment.parameters = numbers("parameters");
    segment.recomputed = keys_.erase("recomputed") > 0;
    segment.recomputed_with_previous = keys_.erase("recomputed_with_previous") > 0;
    collectives(segment);
    order.shape.segments.push_back(std::move(segment));
  }

  void pass(const std::string& word, StepOrder& order) {
    OrderItem item;
    bool known = false;
    for (const Pass pass : {Pass::forward, Pass::recompute, Pass::backward}) {
      if (word != to_string(pass)) continue;
      item.pass = pass;
      known = true;
    }
    if (!known) {
      fail(fmt::format("unknown word \"{}\"; accepted: segment | forward | recompute | backward | update", word));
    }
    const auto [first, last] = range(take_word());
    if (std::max(first, last) >= static_cast<int>(order.shape.segments.size())) fail("there is no such segment");
    read_keys();
    item.micro_batch = number("micro_batch", 0, most);
    attributes(item);
    for (int s = first;; s += first < last ? 1 : -1) {
      if (order.items.size() >= most) fail(fmt::format("more than {} items", most));
      item.segment = s;
      order.items.push_back(item);
      item.barrier = false;  // the first of them waits
      if (s == last) break;
    }
  }

  std::istringstream lines_;
  std::istringstream words_;
  int line_number_ = 0;
  std::map<std::string, std::string> keys_;
};

}  // namespace

std::string ranges(std::span<const int> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) text += fmt::format("..{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string to_text(const StepOrder& order) {
  std::string text =
      fmt::format("order micro_batches={} sub_batches={} steps_per_body={}{}{}\n", order.shape.micro_batches,
                  order.shape.sub_batches, order.steps_per_body, order.shape.cross_pass ? " cross_pass" : "",
                  order.shape.updates_in_backward ? " updates_in_backward" : "");
  for (std::size_t s = 0; s < order.shape.segments.size(); ++s) {
    const Segment& segment = order.shape.segments[s];
    text += fmt::format("segment {} stage={} operators={}..{} parameters={}{}{}{}\n", s, segment.stage,
                        segment.first_operator, segment.end() - 1, ranges(segment.parameters),
                        segment.recomputed ? " recomputed" : "",
                        segment.recomputed_with_previous ? " recomputed_with_previous" : "", collectives_of(segment));
  }
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    text += to_string(item.pass);
    if (item.pass == Pass::update) {
      text += fmt::format(" parameters={}", ranges(item.parameters));
    } else {
      std::size_t last = i;
      while (last + 1 < order.items.size() && continues(order.items[last], order.items[last + 1])) ++last;
      text += fmt::format(" {}", item.segment);
      if (last > i) text += fmt::format("..{}", order.items[last].segment);
      text += fmt::format(" micro_batch={}", item.micro_batch);
      i = last;
    }
    if (item.sub_batch != 0) text += fmt::format(" sub_batch={}", item.sub_batch);
    if (item.step != 0) text += fmt::format(" step={}", item.step);
    if (item.version != 0) text += fmt::format(" version={}", item.version);
    if (item.barrier) text += " barrier";
    text += '\n';
  }
  return text;
}

StepOrder parse_step_order(std::string_view text) { return Reader(text).order(); }

}  // namespace strata

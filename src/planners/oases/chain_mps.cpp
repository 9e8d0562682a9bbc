#include "planners/oases/chain_mps.hpp"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "planners/oases/chain_seconds.hpp"

namespace strata {
namespace {

/// One variable's coefficients, by row.
using Column = std::map<std::string, double>;

std::string written(const std::string& name, const Column& column) {
  std::string text;
  for (const auto& [row, value] : column) {
    if (value != 0.0) text += fmt::format("  {} {} {:.17g}\n", name, row, value);
  }
  return text;
}

class Writer {
 public:
  explicit Writer(const Chain& chain) : chain_(chain) {}

  std::string text(std::span<const std::string> node_names, std::span<const std::string> choice_names) {
    for (std::size_t i = 0; i < chain_.size(); ++i) add_node(i);
    for (std::size_t i = 0; i + 1 < chain_.size(); ++i) add_edge(i);
    std::string text =
        "* Degrees of a chain of sums; cost in seconds of a micro-batch, memory in shares of what a rank may hold.\n";
    for (std::size_t i = 0; i < node_names.size(); ++i) text += fmt::format("* node {}: {}\n", i, node_names[i]);
    for (std::size_t a = 0; a < choice_names.size(); ++a) text += fmt::format("* choice {}: {}\n", a, choice_names[a]);
    text += "NAME oases\nROWS\n N cost\n" + rows_ + "COLUMNS\n  m1 'MARKER' 'INTORG'\n" + nodes_ +
            "  m2 'MARKER' 'INTEND'\n" + edges_ + "RHS\n" + right_hand_sides_ + "BOUNDS\n" + bounds_ + "ENDATA\n";
    return text;
  }

 private:
  static std::string node_variable(std::size_t i, std::size_t a) { return fmt::format("x_{}_{}", i, a); }
  static std::string one_choice(std::size_t i) { return fmt::format("one_{}", i); }
  static std::string leaves(std::size_t i, std::size_t a) { return fmt::format("from_{}_{}", i, a); }
  static std::string arrives(std::size_t i, std::size_t b) { return fmt::format("to_{}_{}", i, b); }
  static std::string agrees(std::size_t a) { return fmt::format("ends_{}", a); }

  void add_node(std::size_t i) {
    const bool is_first = i == 0, is_last = i + 1 == chain_.size();
    rows_ += fmt::format(" E {}\n", one_choice(i));
    right_hand_sides_ += fmt::format("  rhs {} 1\n", one_choice(i));
    if (is_first && chain_.capacity_bytes > 0) {
      rows_ += " L memory\n";
      right_hand_sides_ += "  rhs memory 1\n";
    }
    for (std::size_t a = 0; a < chain_.nodes[i].size(); ++a) {
      const ChainChoice& choice = chain_.nodes[i][a];
      const int number = static_cast<int>(a);
      Column column{{one_choice(i), 1.0}};
      column["cost"] =
          (is_first ? first_seconds(chain_, number) : 0.0) + (is_last ? last_seconds(chain_, number) : 0.0);
      if (chain_.capacity_bytes > 0) {
        const std::int64_t bytes = choice.resident_bytes + (is_last ? choice.runtime_bytes : 0);
        column["memory"] = static_cast<double>(bytes) / static_cast<double>(chain_.capacity_bytes);
      }
      if (!is_last) column[leaves(i, a)] = -1.0;
      if (!is_first) column[arrives(i, a)] = -1.0;
      if (chain_.ends_agree && is_first != is_last && (is_first || is_last)) {
        if (is_first) rows_ += fmt::format(" E {}\n", agrees(a));
        column[agrees(a)] = is_first ? 1.0 : -1.0;
      }
      nodes_ += written(node_variable(i, a), column);
      bounds_ += fmt::format(" BV bound {}\n", node_variable(i, a));
    }
  }

  void add_edge(std::size_t i) {
    const std::size_t from = chain_.nodes[i].size(), to = chain_.nodes[i + 1].size();
    for (std::size_t a = 0; a < from; ++a) rows_ += fmt::format(" E {}\n", leaves(i, a));
    for (std::size_t b = 0; b < to; ++b) rows_ += fmt::format(" E {}\n", arrives(i + 1, b));
    for (std::size_t a = 0; a < from; ++a) {
      for (std::size_t b = 0; b < to; ++b) {
        const double seconds = pair_seconds(chain_, i, static_cast<int>(a), static_cast<int>(b));
        if (seconds >= impossible_seconds) continue;
        edges_ += written(fmt::format("y_{}_{}_{}", i, a, b),
                          {{"cost", seconds}, {leaves(i, a), 1.0}, {arrives(i + 1, b), 1.0}});
      }
    }
  }

  const Chain& chain_;
  std::string rows_, nodes_, edges_, right_hand_sides_, bounds_;
};

}  // namespace

std::string to_mps(const Chain& chain, std::span<const std::string> node_names,
                   std::span<const std::string> choice_names) {
  verify(chain);
  return Writer(chain).text(node_names, choice_names);
}

}  // namespace strata

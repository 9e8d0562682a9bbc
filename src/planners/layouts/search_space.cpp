#include "planners/layouts/search_space.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/infinity.hpp"

namespace strata {
namespace {

using Candidates = std::shared_ptr<const std::vector<Layout>>;
using Pair = std::pair<std::size_t, std::size_t>;

class SpaceBuilder {
 public:
  SpaceBuilder(const LayerChain& chain, const StepCosts& costs, const LastingBytes* memory, const LayoutLimits& limits,
               bool ties_repeats)
      : chain_(chain), costs_(costs), memory_(memory), limits_(limits), ties_repeats_(ties_repeats) {}

  LayoutSpace build() {
    assign_variables();
    for (std::size_t v = 0; v < layers_of_.size(); ++v) add_variable(v);
    for (const LayerLink& link : chain_.links) add_link(link);
    for (std::size_t l = 0; l < chain_.layers.size(); ++l) {
      if (chain_.layers[l].tied_weight >= 0) tie_weight(static_cast<std::size_t>(chain_.layers[l].tied_weight), l);
    }
    for (auto& [pair, tables] : tables_) {
      space_.problem.couplings.push_back({pair.first, pair.second, summed(tables)});
    }
    return std::move(space_);
  }

 private:
  /// What two layers must have in common for their numbers to be the same.
  using Alike = std::tuple<bool, bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, std::vector<std::int64_t>, bool>;
  static Alike alike(const Layer& layer) {
    std::vector<std::int64_t> sizes;
    for (const CutSize& each : layer.of_home) sizes.push_back(each.size);
    return {
        layer.is_searched, layer.is_embedding,       layer.reads_data,          layer.rows, layer.in,        layer.out,
        layer.parameters,  layer.forward_statistics, layer.backward_statistics, sizes,      layer.block >= 0};
  }

  void assign_variables() {
    std::map<int, std::size_t> of_repeats;
    for (std::size_t l = 0; l < chain_.layers.size(); ++l) {
      const int repeats = ties_repeats_ ? chain_.layers[l].repeats : static_cast<int>(l);
      const auto [found, is_new] = of_repeats.try_emplace(repeats, layers_of_.size());
      if (is_new) layers_of_.emplace_back();
      layers_of_[found->second].push_back(l);
      space_.variable_of_layer.push_back(found->second);
    }
  }

  struct Numbers {
    Candidates candidates;
    std::shared_ptr<const std::vector<double>> cost;
    std::shared_ptr<const std::vector<std::int64_t>> bytes;
  };

  Numbers numbers_of(const std::vector<std::size_t>& layers) {
    std::vector<Alike> key;
    for (const std::size_t l : layers) key.push_back(alike(chain_.layers[l]));
    Numbers& numbers = numbers_[key];
    if (numbers.candidates) return numbers;
    std::vector<Layout> left = all_;
    std::vector<double> cost;
    std::vector<std::int64_t> bytes;
    for (const std::size_t l : layers) left = candidates(chain_.layers[l], left, limits_);
    for (const Layout& layout : left) {
      cost.push_back(0.0);
      bytes.push_back(0);
      for (const std::size_t l : layers) {
        cost.back() += costs_.seconds(chain_.layers[l], layout);
        if (memory_ != nullptr) bytes.back() += memory_->of(chain_.layers[l], layout);
      }
    }
    Candidates& shared = shared_[key_of(left)];
    if (!shared) shared = std::make_shared<const std::vector<Layout>>(std::move(left));
    numbers = {shared, std::make_shared<const std::vector<double>>(std::move(cost)),
               std::make_shared<const std::vector<std::int64_t>>(std::move(bytes))};
    return numbers;
  }

  static std::string key_of(const std::vector<Layout>& layouts) {
    std::string key;
    for (const Layout& layout : layouts) key += to_string(layout) + ";";
    return key;
  }

  void add_variable(std::size_t v) {
    const Numbers numbers = numbers_of(layers_of_[v]);
    space_.candidates.push_back(numbers.candidates);
    space_.problem.variables.push_back(
        {chain_.layers[layers_of_[v].front()].name, numbers.cost, memory_ == nullptr ? nullptr : numbers.bytes});
  }

  void add_link(const LayerLink& link) {
    const Layer& to_layer = chain_.layers[static_cast<std::size_t>(link.to)];
    const std::size_t from = space_.variable_of_layer[static_cast<std::size_t>(link.from)];
    const std::size_t to = space_.variable_of_layer[static_cast<std::size_t>(link.to)];
    // A layer and the same layer of the next block have one layout: rows are cut alike.
    if (from == to) return;
    const bool is_swapped = from > to;
    auto& table = link_tables_[{space_.candidates[from].get(), space_.candidates[to].get(), link.elements,
                                link.is_unary, to_layer.block >= 0, is_swapped}];
    if (!table) {
      const std::vector<Layout>&a = *space_.candidates[from], &b = *space_.candidates[to];
      CostTable made = empty_table(is_swapped ? b.size() : a.size(), is_swapped ? a.size() : b.size());
      std::map<std::tuple<int, int, int, int>, double> exchanges;  // seconds by p0 and p0'
      for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b.size(); ++j) {
          if (!needs_exchange(a[i], b[j], link.is_unary)) continue;
          const Factor &p0 = a[i].p0, &q0 = b[j].p0;
          const auto [found, is_new] = exchanges.try_emplace({p0.in_node, p0.nodes, q0.in_node, q0.nodes});
          if (is_new) found->second = costs_.exchange_seconds(link, to_layer, p0, q0);
          made.values[is_swapped ? j * a.size() + i : i * b.size() + j] = found->second;
        }
      }
      table = std::make_shared<const CostTable>(std::move(made));
    }
    tables_[std::minmax(from, to)].push_back(table);
  }

  /// A weight that @p second uses transposed is held once: its rows are cut as the other's columns.
  void tie_weight(std::size_t first, std::size_t second) {
    const std::size_t u = space_.variable_of_layer[first], v = space_.variable_of_layer[second];
    const std::vector<Layout>&a = *space_.candidates[u], &b = *space_.candidates[v];
    CostTable table = empty_table(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        const bool agrees = a[i].p0 == b[j].p0 && a[i].p1 == b[j].p2 && a[i].p2 == b[j].p1;
        if (!agrees) table.values[i * b.size() + j] = infinity;
      }
    }
    tables_[{u, v}].push_back(std::make_shared<const CostTable>(std::move(table)));
  }

  static CostTable empty_table(std::size_t rows, std::size_t columns) {
    return {rows, columns, std::vector<double>(rows * columns, 0.0)};
  }

  /// Tables of one pair of variables, added up once for all pairs that have the same.
  std::shared_ptr<const CostTable> summed(const std::vector<std::shared_ptr<const CostTable>>& tables) {
    if (tables.size() == 1) return tables.front();
    auto& sum = sums_[tables];
    if (!sum) {
      CostTable made = *tables.front();
      for (std::size_t t = 1; t < tables.size(); ++t) {
        for (std::size_t i = 0; i < made.values.size(); ++i) made.values[i] += tables[t]->values[i];
      }
      sum = std::make_shared<const CostTable>(std::move(made));
    }
    return sum;
  }

  const LayerChain& chain_;
  const StepCosts& costs_;
  const LastingBytes* memory_;
  LayoutLimits limits_;
  bool ties_repeats_;
  std::vector<Layout> all_ = all_layouts(costs_.grid());
  LayoutSpace space_;
  std::vector<std::vector<std::size_t>> layers_of_;  ///< by variable
  std::map<std::vector<Alike>, Numbers> numbers_;
  std::map<std::string, Candidates> shared_;
  std::map<std::tuple<const void*, const void*, std::int64_t, bool, bool, bool>, std::shared_ptr<const CostTable>>
      link_tables_;
  std::map<Pair, std::vector<std::shared_ptr<const CostTable>>> tables_;
  std::map<std::vector<std::shared_ptr<const CostTable>>, std::shared_ptr<const CostTable>> sums_;
};

}  // namespace

std::vector<Layout> LayoutSpace::layouts(std::span<const int> choices) const {
  std::vector<Layout> result;
  for (const std::size_t v : variable_of_layer) {
    result.push_back((*candidates[v])[static_cast<std::size_t>(choices[v])]);
  }
  return result;
}

LayoutSpace layout_space(const LayerChain& chain, const StepCosts& costs, const LastingBytes* memory,
                         const LayoutLimits& limits, bool ties_repeats) {
  return SpaceBuilder(chain, costs, memory, limits, ties_repeats).build();
}

}  // namespace strata

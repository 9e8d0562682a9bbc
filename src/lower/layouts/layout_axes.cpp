#include "lower/layouts/layout_axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "partition/layout_rules.hpp"

namespace strata {
namespace {

constexpr int nobody = -1;

/// Reads and writes each element for itself: the layout passes through.
bool is_elementwise(const Operator& op) {
  return op.kind == OperatorKind::gelu || op.kind == OperatorKind::gelu_erf || op.kind == OperatorKind::relu ||
         op.kind == OperatorKind::dropout;
}

class Assignment {
 public:
  Assignment(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions)
      : plan_(plan),
        graph_(graph),
        decisions_(decisions),
        result_{.axes = AtomicAxes(plan.mesh),
                .products = std::vector<LayoutAxes>(graph.operators.size()),
                .weight_digits = std::vector<std::map<int, int>>(graph.operators.size()),
                .homes = std::vector<TensorLayout>(graph.tensors.size()),
                .gathered_along_samples = std::vector<bool>(graph.tensors.size(), false),
                .sections = std::vector<std::int64_t>(graph.tensors.size(), 1),
                .sample_order = {},
                .feature_orders = std::vector<AxisOrder>(graph.tensors.size()),
                .granules = std::vector<std::int64_t>(graph.tensors.size(), 1),
                .vocabulary_orders = std::vector<AxisOrder>(graph.operators.size())},
        producer_(graph.tensors.size(), nobody),
        reader_(graph.tensors.size(), nobody),
        num_readers_(graph.tensors.size(), 0),
        latest_product_(graph.tensors.size(), nobody),
        next_(graph.operators.size(), nobody),
        first_user_(graph.operators.size(), nobody),
        shares_weight_(graph.operators.size(), false) {}

  LayoutsOfModel run() && {
    read_chains();
    find_sections();
    for (int o = 0; o < num_operators(); ++o) assign(o);
    order_digits();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Unsupported(fmt::format("plan `{}`: {}: {} cannot be lowered", plan_.strategy, name, what));
  }
  int num_operators() const { return static_cast<int>(graph_.operators.size()); }
  const Operator& op_at(int o) const { return graph_.operators[static_cast<std::size_t>(o)]; }
  const Tensor& tensor_at(int t) const { return graph_.tensors[static_cast<std::size_t>(t)]; }
  const Layout& layout_of(int o) const { return *decisions_[static_cast<std::size_t>(o)].layout; }
  bool is_summa(int o) const { return decisions_[static_cast<std::size_t>(o)].algorithm == MatmulAlgorithm::summa; }
  bool is_ring(int o) const { return decisions_[static_cast<std::size_t>(o)].algorithm == MatmulAlgorithm::ring; }
  /// Of a product.
  bool leaves_whole_sums(int o) const { return decisions_[static_cast<std::size_t>(o)].sum == PartialSums::all_reduce; }
  LayoutAxes& product(int o) { return result_.products[static_cast<std::size_t>(o)]; }
  TensorLayout& home(int t) { return result_.homes[static_cast<std::size_t>(t)]; }
  template <typename T>
  static decltype(auto) at(T& values, int i) {
    return values[static_cast<std::size_t>(i)];
  }
  AxisSet rest(AxisSet set) const { return result_.axes.all() & ~set; }
  Factor factor(AxisSet set) const { return result_.axes.factor(set); }

  // ---- what follows what

  void read_chains() {
    std::map<int, int> user_of_weight;
    for (int o = 0; o < num_operators(); ++o) {
      const Operator& op = op_at(o);
      for (const int t : op.inputs) {
        ++at(num_readers_, t);
        at(reader_, t) = o;
      }
      for (const int t : op.outputs) at(producer_, t) = o;
      if (!is_product(op)) continue;
      STRATA_INVARIANT(decisions_[static_cast<std::size_t>(o)].layout.has_value(), op.name + " has no layout");
      const auto [first, is_new] = user_of_weight.try_emplace(op.parameters.front(), o);
      if (is_new) continue;
      at(first_user_, o) = first->second;
      at(shares_weight_, o) = at(shares_weight_, first->second) = true;
    }
    for (int o = 0; o < num_operators(); ++o) {
      if (!is_product(op_at(o))) continue;
      if (const int before = product_behind(op_at(o).inputs.front()); before != nobody) at(next_, before) = o;
    }
  }

  /// The product that computes @p tensor, with elementwise operators at most between, each read by the next one alone.
  int product_behind(int tensor) const {
    while (true) {
      const int producer = at(producer_, tensor);
      if (at(num_readers_, tensor) != 1 || producer == nobody) return nobody;
      if (is_product(op_at(producer))) return producer;
      if (!is_elementwise(op_at(producer))) return nobody;
      tensor = op_at(producer).inputs.front();
    }
  }

  void find_sections() {
    for (int o = num_operators(); o-- > 0;) {
      const Operator& op = op_at(o);
      const int x = op.inputs.front();
      if (op.kind == OperatorKind::attention) {
        at(result_.sections, x) = op.attributes.integer("heads") == op.attributes.integer("kv_heads") ? 3 : 0;
      } else if (op.kind == OperatorKind::swiglu) {
        at(result_.sections, x) = 2;
      } else if (op.kind == OperatorKind::rotary || is_elementwise(op)) {
        at(result_.sections, x) = at(result_.sections, op.outputs.front());
      }
    }
  }

  // ---- axes and homes

  bool spares_exchange(int o) const {
    const int next = at(next_, o);
    if (next == nobody || at(first_user_, next) != nobody || is_summa(o) || leaves_whole_sums(o)) return false;
    // Blocks on a ring are features.
    if (is_ring(o) || is_ring(next)) return false;
    return strata::spares_exchange(layout_of(o), layout_of(next));
  }

  AxisSet axes_of(const Factor& degree, AxisSet among, AxisSet preferred) const {
    const std::optional<AxisSet> axes = result_.axes.choose(degree, among, preferred);
    STRATA_INVARIANT(axes.has_value(), to_string(degree) + " is no product of axes that are left");
    return *axes;
  }

  /// Degrees nest wherever their sizes do: p0 takes the axes that split the samples of the input first.
  LayoutAxes chosen(int o) {
    const Layout& layout = layout_of(o);
    const int x = op_at(o).inputs.front();
    const int before = product_behind(x);
    const AxisSet p0_before = before != nobody ? product(before).samples() : home(x).samples;
    const MatmulAlgorithm algorithm = decisions_[static_cast<std::size_t>(o)].algorithm;
    if (before != nobody && spares_exchange(before)) {
      const AxisSet p2 = product(before).p1;
      const AxisSet p0 = axes_of(layout.p0, rest(p2), p0_before);
      return {.p0 = p0, .p1 = rest(p2 | p0), .p2 = p2, .algorithm = algorithm};
    }
    const AxisSet p0 = axes_of(layout.p0, result_.axes.all(), p0_before);
    if (is_summa(o)) {
      const AxisSet p1 = axes_of(layout.p1, rest(p0), p0_before);
      return {.p0 = p0, .p1 = p1, .p2 = rest(p0 | p1), .algorithm = algorithm};
    }
    // Outputs are split by other axes than those by which the next product, spared the exchange, splits samples.
    const AxisSet next_p0 =
        spares_exchange(o) ? axes_of(layout_of(at(next_, o)).p0, result_.axes.all(), p0) : AxisSet{0};
    const AxisSet p1 = axes_of(layout.p1, rest(p0), rest(p0 | next_p0));
    return {.p0 = p0, .p1 = p1, .p2 = rest(p0 | p1)};
  }

  /// A head tied to the embedding holds the same part of the table: its outputs are the embedding's inputs.
  LayoutAxes shared(int o) {
    const int first = at(first_user_, o);
    const Layout& layout = layout_of(o);
    const LayoutAxes& its = product(first);
    const bool is_turned = op_at(first).kind != op_at(o).kind;
    const AxisSet inputs = is_turned ? its.weight_outputs() : its.weight_inputs();
    const AxisSet outputs = is_turned ? its.weight_inputs() : its.weight_outputs();
    LayoutAxes same{.p0 = its.weight_copies(), .p1 = outputs, .p2 = inputs};
    if (is_summa(o)) {
      same = {.p0 = inputs, .p1 = its.weight_copies(), .p2 = outputs, .algorithm = MatmulAlgorithm::summa};
    }
    if (factor(same.p0) != layout.p0 || factor(same.p1) != layout.p1 || factor(same.p2) != layout.p2) {
      refuse(op_at(o).name,
             fmt::format("layout p0 = {}, p1 = {}, p2 = {} beside {}, which has another part of the same weight (it "
                         "takes p0 = {}, p1 = {}, p2 = {})",
                         to_string(layout.p0), to_string(layout.p1), to_string(layout.p2), op_at(first).name,
                         to_string(factor(same.p0)), to_string(factor(same.p1)), to_string(factor(same.p2))));
    }
    return same;
  }

  /// Of the product @p o, which reads what splits samples over @p p0_before.
  AxisSet samples_of(int o, AxisSet p0_before) {
    if (at(first_user_, o) != nobody) return shared(o).samples();
    return axes_of(layout_of(o).p0, result_.axes.all(), p0_before);
  }

  /// The product that alone reads @p norm, where sums before it and behind it are whole; else nobody.
  int product_behind_norm(const Operator& norm) const {
    const int before = at(latest_product_, norm.inputs.front());
    const int y = norm.outputs.front();
    if (before == nobody || !leaves_whole_sums(before) || at(num_readers_, y) != 1) return nobody;
    const int reader = at(reader_, y);
    return is_product(op_at(reader)) && leaves_whole_sums(reader) ? reader : nobody;
  }

  /// See LayoutsOfModel::weight_digits.
  std::map<int, int> digits_of_weight(int o) {
    const LayoutAxes& axes = product(o);
    std::map<int, int> digits;
    AxisSet taken = 0;
    for (int a = 0; a < result_.axes.count(); ++a) {
      if ((axes.p0 >> a & 1U) == 0) continue;
      int digit = a;
      for (int b = 0; b < result_.axes.count() && digit == a && !at(shares_weight_, o); ++b) {
        const bool is_free = ((axes.p2 & ~taken) >> b & 1U) != 0;
        if (is_free && result_.axes.size(b) == result_.axes.size(a)) digit = b;
      }
      digits[a] = digit;
      taken |= AxisSet{1} << digit;
    }
    return digits;
  }

  void assign(int o) {
    const Operator& op = op_at(o);
    const int x = op.inputs.front();
    TensorLayout out = home(x);
    int latest = at(latest_product_, x);
    if (is_product(op)) {
      const LayoutAxes axes = product(o) = at(first_user_, o) == nobody ? chosen(o) : shared(o);
      if (axes.is_summa()) {
        at(result_.weight_digits, o) = digits_of_weight(o);
        out = axes.output();
      } else if (leaves_whole_sums(o)) {
        out = {.samples = axes.p0, .features = axes.p1};
      } else {
        out = spares_exchange(o) ? TensorLayout{.samples = axes.p0 | axes.p2, .features = axes.p1}
                                 : TensorLayout{.samples = axes.p0, .features = axes.p1 | axes.p2};
      }
      const int before = product_behind(x);
      at(result_.gathered_along_samples, x) =
          before != nobody ? spares_exchange(before)
                           : at(producer_, x) != nobody && is_image(tensor_at(x)) && axes.p2 == 0 && !is_ring(o);
      // What the data set gives is loaded as the product wants it.
      if (at(producer_, x) == nobody) home(x) = {.samples = axes.samples()};
      latest = o;
    } else if (works_on_images(op)) {
      const std::optional<Layout>& layout = decisions_[static_cast<std::size_t>(o)].layout;
      if (op.kind == OperatorKind::convolution && layout && layout->p0 != factor(result_.axes.all())) {
        refuse(op.name, fmt::format("layout p0 = {} on {} of a convolution, which is data parallel,",
                                    to_string(layout->p0), to_string(factor(result_.axes.all()))));
      }
      out = {.samples = result_.axes.all()};
      if (at(producer_, x) == nobody) home(x) = out;
    } else if (op.kind == OperatorKind::cross_entropy) {
      home(op.inputs[1]) = {.samples = out.samples};
      out = {.samples = out.samples};
    } else if (op.kind == OperatorKind::attention && out.features != 0 && at(result_.sections, x) == 0) {
      refuse(op.name, fmt::format("{} query heads on {} key heads split over {} ranks", op.attributes.integer("heads"),
                                  op.attributes.integer("kv_heads"), result_.axes.num_ranks(out.features)));
    } else if (is_norm(op) && product_behind_norm(op) != nobody) {
      out = {.samples = samples_of(product_behind_norm(op), out.samples)};
    } else if (op.kind == OperatorKind::add && at(latest_product_, op.inputs[1]) > latest) {
      latest = at(latest_product_, op.inputs[1]);
      out = home(op.inputs[1]);
    }
    for (const int t : op.outputs) {
      home(t) = out;
      at(latest_product_, t) = latest;
    }
  }

  /// Whether a product's input, where samples are split otherwise, is exchanged before it is gathered.
  bool is_exchanged_first(int o) const {
    return strata::is_exchanged_first(result_.axes, at(result_.homes, op_at(o).inputs.front()),
                                      decisions_[static_cast<std::size_t>(o)]);
  }

  // ---- digits

  /// Sets of dims of features that have one order: tensors, and behind them the vocabularies of embeddings.
  int root(int dim) {
    while (at(leader_, dim) != dim) dim = at(leader_, dim) = at(leader_, at(leader_, dim));
    return dim;
  }
  void unite(int a, int b) { at(leader_, root(a)) = root(b); }
  int vocabulary(int o) const { return static_cast<int>(graph_.tensors.size()) + o; }

  /// Whether a rank would hold a part of a head if features, in the digits of @p order, were cut between any two.
  bool cuts_heads(const Operator& op, const AxisOrder& order) {
    const AxisSet split = home(op.outputs.front()).features;
    if (split == 0) return false;
    const std::int64_t heads = op.attributes.integer("heads");
    // Neighbours, as many on each rank: the axes that split them stand outermost, whatever others cut inside.
    AxisSet outermost = 0;
    for (std::size_t i = 0; i < order.size() && outermost != split; ++i) outermost |= AxisSet{1} << order[i];
    return outermost != split || heads % result_.axes.num_ranks(split) != 0 ||
           heads * op.attributes.integer("head_dim") % result_.axes.num_ranks(set_of(order)) != 0;
  }

  void order_digits() {
    leader_.resize(graph_.tensors.size() + graph_.operators.size());
    std::iota(leader_.begin(), leader_.end(), 0);
    for (int o = 0; o < num_operators(); ++o) {
      const Operator& op = op_at(o);
      if (!is_product(op)) {
        if (works_on_images(op) || op.kind == OperatorKind::cross_entropy) continue;
        for (const int t : op.inputs) unite(t, op.outputs.front());
        continue;
      }
      const int first = at(first_user_, o);
      if (first == nobody) continue;
      const auto inputs_of = [&](int p) {
        return op_at(p).kind == OperatorKind::embedding ? vocabulary(p) : op_at(p).inputs.front();
      };
      const bool is_turned = op_at(first).kind != op.kind;
      unite(inputs_of(o), is_turned ? op_at(first).outputs.front() : inputs_of(first));
      unite(op.outputs.front(), is_turned ? inputs_of(first) : op_at(first).outputs.front());
    }
    // Axes that split in most places stand outermost: where sets are nested, ranks then hold neighbours. A table's rows
    // have to be neighbours: an embedding looks tokens up by where its part begins.
    using Uses = std::vector<int>;
    const Uses none(static_cast<std::size_t>(result_.axes.count()), 0);
    Uses of_samples = none;
    std::vector<Uses> of_features(leader_.size(), none);
    const auto count = [](Uses& uses, AxisSet set, int times) {
      for (std::size_t a = 0; a < uses.size(); ++a) uses[a] += (set >> a & 1U) != 0 ? times : 0;
    };
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      count(of_samples, result_.homes[t].samples, 1);
      count(of_features[static_cast<std::size_t>(root(static_cast<int>(t)))], result_.homes[t].features, 1);
    }
    const int more_than_all = static_cast<int>(graph_.tensors.size() + graph_.operators.size());
    for (int o = 0; o < num_operators(); ++o) {
      if (!is_product(op_at(o))) continue;
      const LayoutAxes& axes = product(o);
      const int x = op_at(o).inputs.front();
      count(of_samples, axes.samples(), 1);
      count(at(of_features, root(op_at(o).outputs.front())), axes.weight_outputs(), 1);
      if (op_at(o).kind == OperatorKind::embedding) {
        count(at(of_features, root(vocabulary(o))), axes.p2, more_than_all);
        continue;
      }
      count(at(of_features, root(x)), is_ring(o) && at(producer_, x) != nobody ? axes.p1 | axes.p2 : axes.p2, 1);
      for (const auto& [_, digit] : at(result_.weight_digits, o)) {
        count(at(of_features, root(x)), AxisSet{1} << digit, 1);
      }
      // What arrives is split, before it is gathered.
      const bool is_at_home = home(x).samples == axes.samples() || at(result_.gathered_along_samples, x);
      if (!is_at_home && at(producer_, x) != nobody && is_exchanged_first(o))
        count(at(of_features, root(x)), rest(axes.samples()), 1);
    }
    const auto order = [](const Uses& uses) {
      AxisOrder axes;
      for (std::size_t a = 0; a < uses.size(); ++a) {
        if (uses[a] > 0) axes.push_back(static_cast<int>(a));
      }
      std::ranges::stable_sort(axes, std::ranges::greater{}, [&](int a) { return uses[static_cast<std::size_t>(a)]; });
      return axes;
    };
    result_.sample_order = order(of_samples);
    std::vector<std::int64_t> granules(leader_.size(), 1);
    for (const Operator& op : graph_.operators) {
      if (op.kind != OperatorKind::attention && op.kind != OperatorKind::rotary) continue;
      const int dim = root(op.inputs.front());
      if (cuts_heads(op, order(at(of_features, dim)))) {
        at(granules, dim) = std::lcm(at(granules, dim), op.attributes.integer("head_dim"));
      }
    }
    for (int t = 0; t < static_cast<int>(graph_.tensors.size()); ++t) {
      at(result_.feature_orders, t) = order(at(of_features, root(t)));
      at(result_.granules, t) = at(granules, root(t));
    }
    for (int o = 0; o < num_operators(); ++o) {
      at(result_.vocabulary_orders, o) = order(at(of_features, root(vocabulary(o))));
    }
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  std::span<const OperatorDecision> decisions_;
  LayoutsOfModel result_;
  std::vector<int> producer_, reader_;  ///< by tensor; of several readers the last
  std::vector<int> num_readers_;        ///< by tensor
  std::vector<int> latest_product_;     ///< by tensor: whose home it has
  std::vector<int> next_;               ///< by operator: the product of which this one is the product behind
  std::vector<int> first_user_;         ///< by operator: of the same weight, if it is another one
  std::vector<bool> shares_weight_;     ///< by operator: others have its weight too
  std::vector<int> leader_;             ///< of sets of dims
};

}  // namespace

bool is_product(const Operator& op) { return op.kind == OperatorKind::linear || op.kind == OperatorKind::embedding; }

bool is_norm(const Operator& op) { return op.kind == OperatorKind::layer_norm || op.kind == OperatorKind::rms_norm; }

bool works_on_images(const Operator& op) {
  return op.kind == OperatorKind::convolution || op.kind == OperatorKind::max_pool ||
         op.kind == OperatorKind::average_pool || op.kind == OperatorKind::class_token ||
         op.kind == OperatorKind::batch_norm;
}

bool is_exchanged_first(const AtomicAxes& axes, const TensorLayout& home, const OperatorDecision& decision) {
  return (home.samples | home.features) == axes.all() && decision.sum == PartialSums::scatter;
}

LayoutsOfModel layouts_of_model(const Plan& plan, const ModelGraph& graph,
                                std::span<const OperatorDecision> decisions) {
  return Assignment(plan, graph, decisions).run();
}

}  // namespace strata

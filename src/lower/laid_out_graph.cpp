#include "lower/laid_out_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

bool is_product(const Operator& op) { return op.kind == OperatorKind::linear || op.kind == OperatorKind::embedding; }

/// Reads and writes each element for itself: the layout passes through.
bool is_elementwise(const Operator& op) {
  return op.kind == OperatorKind::gelu || op.kind == OperatorKind::relu || op.kind == OperatorKind::dropout;
}

bool works_on_images(const Operator& op) {
  return op.kind == OperatorKind::convolution || op.kind == OperatorKind::max_pool ||
         op.kind == OperatorKind::average_pool || op.kind == OperatorKind::batch_norm;
}

/// What a dim of a local tensor is: one digit of samples or of features, or what is left of them.
struct LabelledDim {
  enum Kind : std::uint8_t { sample_digit, sample_rest, section, feature_digit, feature_rest };
  Kind kind = sample_rest;
  int axis = -1;
  std::int64_t size = 1;
  bool is(const LabelledDim& other) const { return kind == other.kind && axis == other.axis; }
};

class LayingOut {
 public:
  LayingOut(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions, int rank)
      : plan_(plan),
        whole_(graph),
        decisions_(decisions),
        rank_(rank),
        axes_(plan.mesh),
        micro_batch_(plan.global_batch / plan.schedule.micro_batches),
        roles_(graph.operators.size()),
        scatters_samples_(graph.operators.size(), false),
        homes_(graph.tensors.size()),
        sections_(graph.tensors.size(), 1),
        local_(graph.tensors.size(), -1),
        local_parameter_(graph.parameters.size(), -1) {}

  LaidOutGraph run() && {
    choose_axes();
    find_sections();
    find_homes();
    find_cuts();
    result_.graph.name = whole_.name;
    result_.graph.positions_per_sample = whole_.positions_per_sample;
    result_.graph.blocks = whole_.blocks;
    for (std::size_t o = 0; o < whole_.operators.size(); ++o) add_operator(o);
    number_blocks();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Unsupported(fmt::format("plan `{}`: {}: {} cannot be lowered", plan_.strategy, name, what));
  }
  const Operator& op_at(std::size_t o) const { return whole_.operators[o]; }
  const Tensor& tensor_at(int t) const { return whole_.tensors[static_cast<std::size_t>(t)]; }
  AxisSet rest(AxisSet set) const { return axes_.all() & ~set; }
  int ranks(AxisSet set) const { return axes_.num_ranks(set); }
  int ranks(const AxisOrder& order) const { return axes_.num_ranks(set_of(order)); }
  TensorLayout& home(int t) { return homes_[static_cast<std::size_t>(t)]; }

  // ---- which axes a product's degrees are

  /// The product that computes @p tensor, with elementwise operators at most between, each read by the next one alone.
  std::optional<std::size_t> product_behind(int tensor) const {
    while (true) {
      const auto reads = [&](const Operator& op) { return std::ranges::find(op.inputs, tensor) != op.inputs.end(); };
      if (std::ranges::count_if(whole_.operators, reads) != 1) return std::nullopt;
      const auto writes = [&](const Operator& op) { return std::ranges::find(op.outputs, tensor) != op.outputs.end(); };
      const auto producer = std::ranges::find_if(whole_.operators, writes);
      if (producer == whole_.operators.end()) return std::nullopt;
      if (is_product(*producer)) return static_cast<std::size_t>(producer - whole_.operators.begin());
      if (!is_elementwise(*producer)) return std::nullopt;
      tensor = producer->inputs.front();
    }
  }

  /// What stands before a gather along samples: partial sums that were scattered so, or images.
  bool is_scattered_along_samples(int tensor) const {
    const std::optional<std::size_t> before = product_behind(tensor);
    return before ? scatters_samples_[*before] : is_image(tensor_at(tensor));
  }

  void choose_axes() {
    std::map<int, std::size_t> user_of_weight;
    for (std::size_t o = 0; o < whole_.operators.size(); ++o) {
      const Operator& op = op_at(o);
      const std::optional<Layout>& layout = decisions_[o].layout;
      if (!is_product(op)) {
        if (op.kind == OperatorKind::convolution && layout && layout->p0.total() != ranks(axes_.all())) {
          refuse(op.name, fmt::format("layout p0 = {} on {} ranks of a convolution, which is data parallel,",
                                      to_string(layout->p0), ranks(axes_.all())));
        }
        continue;
      }
      STRATA_INVARIANT(layout.has_value(), op.name + " has no layout");
      roles_[o] = chosen(o, *layout);
      const auto [first, is_new] = user_of_weight.try_emplace(op.parameters.front(), o);
      if (!is_new) share_axes(first->second, o, *layout);
    }
  }

  /// The exchange between two products is spared: p0 changes, and p1 = p2'.
  static bool is_spared(const Layout& before, const Layout& layout) {
    return before.p0 != layout.p0 && before.p1 == layout.p2;
  }

  /// Degrees nest wherever their sizes do: p0 takes the axes of the p0 before it first, or the first of all.
  LayoutAxes chosen(std::size_t o, const Layout& layout) {
    const std::optional<std::size_t> before = product_behind(op_at(o).inputs.front());
    const AxisSet p0_before = before ? roles_[*before].p0 : 0;
    if (before && is_spared(*decisions_[*before].layout, layout)) {
      scatters_samples_[*before] = true;
      const AxisSet p2 = roles_[*before].p1;
      const AxisSet p0 = axes_of(layout.p0, rest(p2), p0_before);
      return {.p0 = p0, .p1 = rest(p2 | p0), .p2 = p2};
    }
    const AxisSet p0 = axes_of(layout.p0, axes_.all(), p0_before);
    // Outputs are split by other axes than those by which the next product, spared the exchange, splits samples.
    AxisSet next_p0 = 0;
    for (std::size_t n = o + 1; n < whole_.operators.size(); ++n) {
      if (!is_product(op_at(n)) || product_behind(op_at(n).inputs.front()) != o) continue;
      const Layout& next = *decisions_[n].layout;
      if (is_spared(layout, next)) next_p0 = axes_of(next.p0, axes_.all(), p0);
    }
    const AxisSet p1 = axes_of(layout.p1, rest(p0), rest(p0 | next_p0));
    return {.p0 = p0, .p1 = p1, .p2 = rest(p0 | p1)};
  }

  AxisSet axes_of(const Factor& degree, AxisSet among, AxisSet preferred) const {
    const std::optional<AxisSet> axes = axes_.choose(degree, among, preferred);
    STRATA_INVARIANT(axes.has_value(), to_string(degree) + " is no product of axes that are left");
    return *axes;
  }

  /// A head tied to the embedding holds the same part of the table: its outputs are the embedding's inputs.
  void share_axes(std::size_t first, std::size_t again, const Layout& layout) {
    const LayoutAxes& its = roles_[first];
    const bool is_turned = op_at(first).kind != op_at(again).kind;
    const LayoutAxes same{.p0 = its.p0, .p1 = is_turned ? its.p2 : its.p1, .p2 = is_turned ? its.p1 : its.p2};
    if (axes_.factor(same.p0) != layout.p0 || axes_.factor(same.p1) != layout.p1 ||
        axes_.factor(same.p2) != layout.p2) {
      refuse(op_at(again).name,
             fmt::format("layout p0 = {}, p1 = {}, p2 = {} beside {}, which has another part of the same weight (it "
                         "takes p0 = {}, p1 = {}, p2 = {})",
                         to_string(layout.p0), to_string(layout.p1), to_string(layout.p2), op_at(first).name,
                         to_string(axes_.factor(same.p0)), to_string(axes_.factor(same.p1)),
                         to_string(axes_.factor(same.p2))));
    }
    if (const auto before = product_behind(op_at(again).inputs.front())) scatters_samples_[*before] = false;
    roles_[again] = same;
  }

  // ---- layouts of tensors

  /// Fused tensors are split in each of their parts: q, k and v by heads, gate and up alike.
  void find_sections() {
    for (std::size_t o = whole_.operators.size(); o-- > 0;) {
      const Operator& op = op_at(o);
      const auto of = [&](int t) -> std::int64_t& { return sections_[static_cast<std::size_t>(t)]; };
      if (op.kind == OperatorKind::attention) {
        of(op.inputs[0]) = op.attributes.integer("heads") == op.attributes.integer("kv_heads") ? 3 : 0;
      } else if (op.kind == OperatorKind::swiglu) {
        of(op.inputs[0]) = 2;
      } else if (op.kind == OperatorKind::rotary || is_elementwise(op)) {
        of(op.inputs[0]) = of(op.outputs[0]);
      }
    }
  }

  void find_homes() {
    // The last product above a tensor; -1: it is data.
    std::vector<int> product(whole_.tensors.size(), -1);
    const auto latest = [&](int a, int b) {
      return product[static_cast<std::size_t>(a)] < product[static_cast<std::size_t>(b)];
    };
    for (std::size_t o = 0; o < whole_.operators.size(); ++o) {
      const Operator& op = op_at(o);
      const int x = op.inputs.front();
      // An addition is where the later of the two is: what is carried past a block comes to the block's home, once,
      // where elsewhere each block would go to and from the first home of all.
      const int read = *std::ranges::max_element(op.inputs, latest);
      for (const int t : op.outputs) {
        product[static_cast<std::size_t>(t)] =
            is_product(op) ? static_cast<int>(o) : product[static_cast<std::size_t>(read)];
      }
      TensorLayout out = home(read);
      if (is_product(op)) {
        const LayoutAxes& r = roles_[o];
        if (op.kind == OperatorKind::embedding) home(x) = {.samples = r.p0};
        out = scatters_samples_[o] ? TensorLayout{.samples = r.p0 | r.p2, .features = r.p1}
                                   : TensorLayout{.samples = r.p0, .features = r.p1 | r.p2};
      } else if (works_on_images(op)) {
        out = {.samples = axes_.all()};
        if (tensor_at(x).role == TensorRole::image) home(x) = out;
      } else if (op.kind == OperatorKind::cross_entropy) {
        home(op.inputs[1]) = {.samples = out.samples};
        out = {.samples = out.samples};
      } else if (op.kind == OperatorKind::attention) {
        const std::int64_t heads = op.attributes.integer("heads"), kv_heads = op.attributes.integer("kv_heads");
        if (out.features != 0 && heads != kv_heads) {
          refuse(op.name, fmt::format("{} query heads on {} key heads split over {} ranks", heads, kv_heads,
                                      ranks(out.features)));
        }
      }
      for (const int t : op.outputs) home(t) = out;
      // An image that a product reads first is the data set's: it is loaded as the product wants it.
      if (is_product(op) && tensor_at(x).role == TensorRole::image) home(x) = {.samples = roles_[o].p0};
    }
  }

  void find_cuts() {
    // Axes that split in most places stand outermost: where sets are nested, ranks then hold neighbours.
    std::vector<int> num_samples(static_cast<std::size_t>(axes_.count()), 0), num_features = num_samples;
    const auto add = [&](const TensorLayout& layout) {
      for (std::size_t a = 0; a < num_samples.size(); ++a) {
        num_samples[a] += (layout.samples >> a & 1U) != 0 ? 1 : 0;
        num_features[a] += (layout.features >> a & 1U) != 0 ? 1 : 0;
      }
    };
    for (const TensorLayout& layout : homes_) add(layout);
    for (std::size_t o = 0; o < roles_.size(); ++o) {
      if (!is_product(op_at(o))) continue;
      add(roles_[o].input());
      add(roles_[o].output());
      // What arrives is split before it is gathered, and what leaves when it has been scattered.
      add({.samples = roles_[o].p0, .features = rest(roles_[o].p0)});
    }
    const auto order = [](const std::vector<int>& uses) {
      AxisOrder axes;
      for (std::size_t a = 0; a < uses.size(); ++a) {
        if (uses[a] > 0) axes.push_back(static_cast<int>(a));
      }
      std::ranges::stable_sort(axes, std::ranges::greater{}, [&](int a) { return uses[static_cast<std::size_t>(a)]; });
      return axes;
    };
    // A table's rows must be neighbours: an embedding looks tokens up by where its part begins.
    for (std::size_t o = 0; o < roles_.size(); ++o) {
      if (op_at(o).kind != OperatorKind::embedding) continue;
      for (std::size_t a = 0; a < num_features.size(); ++a) {
        if ((roles_[o].p2 >> a & 1U) != 0) num_features[a] += static_cast<int>(homes_.size() + 3 * roles_.size());
      }
    }
    sample_order_ = order(num_samples);
    feature_order_ = order(num_features);
    if (micro_batch_ % ranks(sample_order_) != 0) {
      throw Unsupported(
          fmt::format("plan `{}`: {} samples a micro-batch cannot be split over {} ranks: they do not divide it",
                      plan_.strategy, micro_batch_, ranks(sample_order_)));
    }
  }

  // ---- sizes

  /// Of a tensor whose features somebody splits.
  const AxisOrder& cut_if(bool is_split) const { return is_split ? feature_order_ : uncut_; }

  void check_divides(const std::string& name, const char* what, std::int64_t size, const AxisOrder& cut) const {
    if (size % ranks(cut) == 0) return;
    refuse(name, fmt::format("{} {} split over {} ranks, which do not divide them,", size, what, ranks(cut)));
  }

  std::vector<Digit> feature_digits(const AxisOrder& cut, AxisSet held, std::int64_t sections,
                                    std::int64_t size) const {
    std::vector<Digit> digits = {{sections, -1}};
    std::ranges::copy(digits_of(axes_, cut, held, rank_, size / sections), std::back_inserter(digits));
    return digits;
  }

  std::int64_t sections_of(int t) const { return sections_[static_cast<std::size_t>(t)]; }

  /// A tensor of the rank, without its producer. @param width features of one row of the whole tensor as its reader
  /// sees it: of an image, all of it.
  int add_tensor(int t, const TensorLayout& layout, const std::string& suffix, bool flat = false) {
    Tensor local = tensor_at(t);
    local.name += suffix;
    if (flat && is_image(local)) local.shape = {local.elements_per_sample()};
    if (layout.features != 0) {
      const std::int64_t sections = sections_of(t);
      if (sections == 0) refuse(local.name, "fused query, key and value heads in unequal numbers, split,");
      const std::int64_t width = local.shape.back();
      check_divides(local.name, "features", width / sections, feature_order_);
      local.shape.back() = width / ranks(layout.features);
    }
    result_.graph.tensors.push_back(std::move(local));
    result_.layouts.push_back(layout);
    result_.num_samples.push_back(micro_batch_ / ranks(layout.samples));
    result_.samples.push_back(block_of(digits_of(axes_, sample_order_, layout.samples, rank_, micro_batch_)));
    return static_cast<int>(result_.graph.tensors.size()) - 1;
  }

  int add_parameter(int p, std::vector<Digit> rows, std::vector<Digit> columns, std::vector<std::int64_t> shape,
                    AxisSet replicas) {
    int& local = local_parameter_[static_cast<std::size_t>(p)];
    std::ranges::copy(columns, std::back_inserter(rows));
    Parameter part = whole_.parameters[static_cast<std::size_t>(p)];
    part.block = block_of(rows);
    part.shape = std::move(shape);
    if (local >= 0) {
      const auto& there = result_.graph.parameters[static_cast<std::size_t>(local)];
      STRATA_INVARIANT(there == part, part.name + ": two uses hold different parts");
      return local;
    }
    local = static_cast<int>(result_.graph.parameters.size());
    result_.graph.parameters.push_back(std::move(part));
    result_.replicas.push_back(replicas);
    return local;
  }

  // ---- redistributions

  std::vector<LabelledDim> dims_of(const TensorLayout& layout, std::int64_t positions, std::int64_t sections,
                                   std::int64_t width) const {
    using enum LabelledDim::Kind;
    std::vector<LabelledDim> dims;
    const auto digits = [&](LabelledDim::Kind kind, const AxisOrder& cut, AxisSet held) {
      for (const int a : cut) {
        if ((held >> a & 1U) == 0) dims.push_back({kind, a, axes_.size(a)});
      }
    };
    digits(sample_digit, sample_order_, layout.samples);
    dims.push_back({sample_rest, -1, micro_batch_ / ranks(sample_order_) * positions});
    dims.push_back({section, -1, sections});
    digits(feature_digit, feature_order_, layout.features);
    dims.push_back({feature_rest, -1, width / sections / ranks(feature_order_)});
    return dims;
  }

  static Permutation permutation(const std::vector<LabelledDim>& from, const std::vector<LabelledDim>& to) {
    Permutation p;
    for (const LabelledDim& dim : from) p.sizes.push_back(dim.size);
    for (const LabelledDim& dim : to) {
      const auto at = std::ranges::find_if(from, [&](const LabelledDim& d) { return d.is(dim); });
      STRATA_INVARIANT(at != from.end(), "a redistribution that loses a dim");
      p.order.push_back(static_cast<int>(at - from.begin()));
    }
    return p;
  }

  /// @p input, in its layout, comes into @p to by one collective. @return the new tensor.
  int redistribute(int whole_tensor, int input, const TensorLayout& to, const Operator& reader, Collective collective,
                   AxisSet over, bool flat) {
    using enum LabelledDim::Kind;
    const TensorLayout from = result_.layouts[static_cast<std::size_t>(input)];
    const Tensor& whole = tensor_at(whole_tensor);
    const bool is_flat = flat && is_image(whole);
    const std::int64_t width = is_flat ? whole.elements_per_sample() : whole.shape.back();
    const std::int64_t sections = sections_of(whole_tensor);
    if (sections == 0) refuse(whole.name, "fused query, key and value heads in unequal numbers, split,");
    const std::int64_t positions = whole.elements_per_sample() / width;
    check_divides(whole.name, "features", width / sections, feature_order_);
    const auto held = [&](const TensorLayout& layout) { return dims_of(layout, positions, sections, width); };
    // What the members of the group hold of the pieces that travel: a digit of the dim that each axis splits.
    const auto pieces = [&](const TensorLayout& split_by) {
      std::vector<LabelledDim> dims;
      for (int a = 0; a < axes_.count(); ++a) {
        if ((over >> a & 1U) == 0) continue;
        dims.push_back({(split_by.samples >> a & 1U) != 0 ? sample_digit : feature_digit, a, axes_.size(a)});
      }
      return dims;
    };
    const auto behind = [](std::vector<LabelledDim> dims, const std::vector<LabelledDim>& all) {
      const std::vector<LabelledDim> first = dims;
      for (const LabelledDim& dim : all) {
        if (std::ranges::none_of(first, [&](const LabelledDim& f) { return f.is(dim); })) dims.push_back(dim);
      }
      return dims;
    };
    Redistribution step{.collective = collective, .axes = over, .pack = {}, .unpack = {}};
    switch (collective) {
      case Collective::all_gather: {
        std::vector<LabelledDim> gathered = pieces(from);
        std::ranges::copy(held(from), std::back_inserter(gathered));
        step.unpack = permutation(gathered, held(to));
        break;
      }
      case Collective::reduce_scatter: step.pack = permutation(held(from), behind(pieces(to), held(from))); break;
      case Collective::all_to_all: {
        const std::vector<LabelledDim> packed = behind(pieces(to), held(from));
        step.pack = permutation(held(from), packed);
        std::vector<LabelledDim> received = pieces(from);
        std::copy(packed.begin() + static_cast<std::ptrdiff_t>(received.size()), packed.end(),
                  std::back_inserter(received));
        step.unpack = permutation(received, held(to));
        break;
      }
      default: throw InternalError("no redistribution");
    }
    return add_step(whole_tensor, input, to, reader, std::move(step), flat);
  }

  int add_step(int whole_tensor, int input, const TensorLayout& to, const Operator& reader, Redistribution step,
               bool flat) {
    const int output = add_tensor(whole_tensor, to, fmt::format("/{}", to_text(to, axes_)), flat);
    Operator op{.name = result_.graph.tensors[static_cast<std::size_t>(output)].name,
                .kind = OperatorKind::redistribute,
                .inputs = {input},
                .outputs = {output},
                .parameters = {},
                .attributes = {{"step", static_cast<std::int64_t>(result_.steps.size())}},
                .block = reader.block};
    result_.steps.push_back(std::move(step));
    push(std::move(op), {.recompute = current_->recompute});
    return output;
  }

  /// Of images that have been loaded whole, the features that @p to leaves.
  int take_part(int t, int input, const TensorLayout& to, const Operator& reader) {
    const std::int64_t width = tensor_at(t).elements_per_sample();
    check_divides(tensor_at(t).name, "features", width, feature_order_);
    const auto held = [&](const TensorLayout& layout) { return dims_of(layout, 1, 1, width); };
    const std::vector<LabelledDim> from = held(result_.layouts[static_cast<std::size_t>(input)]);
    Redistribution step{.pack = permutation(from, held(to)), .unpack = {}};
    std::int64_t stride = 1;
    for (std::size_t d = from.size(); d-- > 0; stride *= from[d].size) {
      const bool is_taken = from[d].kind == LabelledDim::feature_digit && (to.features >> from[d].axis & 1U) != 0;
      if (is_taken) step.pack.first += axes_.coordinate(from[d].axis, rank_) * stride;
    }
    return add_step(t, input, to, reader, std::move(step), true);
  }

  /// The rank's tensor that holds @p t as @p to, by what redistributions it takes.
  int in_layout(int t, const TensorLayout& to, const Operator& reader, bool flat = false) {
    const auto known = copies_.find({t, {to.samples, to.features, flat}});
    if (known != copies_.end()) return known->second;
    int at = local_[static_cast<std::size_t>(t)];
    if (at < 0) {  // an input of the model
      at = local_[static_cast<std::size_t>(t)] = add_tensor(t, home(t), "", flat);
    }
    const TensorLayout from = result_.layouts[static_cast<std::size_t>(at)];
    if (tensor_at(t).role == TensorRole::image && from.features == 0 && to.features != 0 &&
        from.samples == to.samples) {
      at = take_part(t, at, to, reader);
    } else if (from != to) {
      // Split, over all axes: what the gather begins with.
      const AxisSet gathered = rest(to.samples | to.features);
      const bool spares_exchange = from.features == to.features && is_scattered_along_samples(t);
      const TensorLayout split =
          spares_exchange ? from : TensorLayout{.samples = to.samples, .features = rest(to.samples)};
      if (from != split) {
        const AxisSet over = (from.samples ^ split.samples);
        at = redistribute(t, at, split, reader, Collective::all_to_all, over, flat);
      }
      if (gathered != 0) at = redistribute(t, at, to, reader, Collective::all_gather, gathered, flat);
    }
    copies_[{t, {to.samples, to.features, flat}}] = at;
    return at;
  }

  // ---- operators

  void push(Operator op, OperatorDecision decision) {
    decision.layout.reset();
    result_.graph.operators.push_back(std::move(op));
    result_.decisions.push_back(std::move(decision));
  }

  void add_operator(std::size_t o) {
    current_ = &decisions_[o];
    const Operator& whole = op_at(o);
    Operator op = whole;
    op.inputs.clear();
    op.outputs.clear();
    op.parameters.clear();
    if (is_product(whole)) {
      add_product(o, std::move(op));
      return;
    }
    const TensorLayout layout = home(whole.outputs.front());
    for (const int t : whole.inputs) {
      op.inputs.push_back(in_layout(t, whole.kind == OperatorKind::cross_entropy ? home(t) : layout, whole));
    }
    const AxisSet split = home(whole.inputs.front()).features & (works_on_images(whole) ? 0 : axes_.all());
    set_sizes(whole, op, split);
    if (whole.kind == OperatorKind::dropout) set_positions(whole, op);
    for (const int t : whole.outputs) {
      const bool is_statistic = tensor_at(t).role != TensorRole::activation;
      op.outputs.push_back(local_[static_cast<std::size_t>(t)] =
                               is_statistic ? add_statistic(whole, t, layout) : add_tensor(t, layout, ""));
    }
    add_parameters_of_rows(whole, op, layout);
    push(std::move(op), decisions_[o]);
  }

  /// Statistics are of rows, or, of attention, of heads.
  int add_statistic(const Operator& op, int t, const TensorLayout& layout) {
    const int local = add_tensor(t, {.samples = layout.samples}, "");
    if (op.kind == OperatorKind::attention) {
      result_.graph.tensors[static_cast<std::size_t>(local)].shape.front() /= ranks(layout.features);
    }
    return local;
  }

  void set_sizes(const Operator& whole, Operator& op, AxisSet split) {
    if (split == 0) return;
    const auto divide = [&](const char* key) {
      check_divides(whole.name, key, whole.attributes.integer(key), feature_order_);
      op.attributes.set(key, whole.attributes.integer(key) / ranks(split));
    };
    switch (whole.kind) {
      case OperatorKind::rotary:
      case OperatorKind::attention:
        divide("heads");
        divide("kv_heads");
        op.attributes.set("total_heads", whole.attributes.integer("heads"));
        if (whole.kind == OperatorKind::attention && whole.attributes.real("dropout") > 0.0) {
          op.attributes.set("first_head", first_of(whole.name, split, whole.attributes.integer("heads")));
        }
        break;
      case OperatorKind::swiglu:
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm: divide("width"); break;
      case OperatorKind::cross_entropy:
        divide("classes");
        set_runs(op, "first_class",
                 block_of(digits_of(axes_, feature_order_, split, rank_, whole.attributes.integer("classes"))));
        break;
      case OperatorKind::dropout:  // set_positions
      case OperatorKind::gelu:
      case OperatorKind::relu:
      case OperatorKind::add: break;
      default:
        refuse(whole.name, fmt::format("a {} of features split over {} ranks", to_string(whole.kind), ranks(split)));
    }
  }

  /// Random numbers are drawn by position in the whole: of a sample's elements, and of all samples before it.
  void set_positions(const Operator& whole, Operator& op) const {
    const Tensor& x = tensor_at(whole.inputs.front());
    const std::int64_t row = x.shape.back(), positions = x.elements_per_sample() / row;
    const TensorLayout& layout = homes_[static_cast<std::size_t>(whole.inputs.front())];
    std::vector<Digit> digits = digits_of(axes_, sample_order_, layout.samples, rank_, micro_batch_);
    digits.push_back({positions, -1});
    std::ranges::copy(digits_of(axes_, cut_if(layout.features != 0), layout.features, rank_, row),
                      std::back_inserter(digits));
    const StridedBlock block = block_of(digits);
    op.attributes.set("sample_elements", x.elements_per_sample());
    set_runs(op, "first", block);
  }

  /// Runs as the kernel `permute` takes them, the first of them beginning at @p first.
  static void set_runs(Operator& op, const char* first, const StridedBlock& block) {
    op.attributes.set(first, block.first);
    if (block.levels.empty()) return;
    op.attributes.set("run", block.run);
    for (std::size_t l = 0; l < block.levels.size(); ++l) {
      const StridedBlock::Level& level = block.levels[block.levels.size() - 1 - l];  // the outermost first
      op.attributes.set(fmt::format("size{}", l), level.count);
      op.attributes.set(fmt::format("stride{}", l), level.stride);
    }
  }

  /// Where the features of this rank begin, @p size in all, which have to be neighbours.
  std::int64_t first_of(const std::string& name, AxisSet split, std::int64_t size) const {
    check_divides(name, "features", size, feature_order_);
    const StridedBlock block = block_of(digits_of(axes_, feature_order_, split, rank_, size));
    if (!block.levels.empty()) {
      refuse(name, fmt::format("{} features of which a rank has {} apart", size, block.run));
    }
    return block.first;
  }

  /// Norms' weights lie as the rows that they scale; convolutions' are whole.
  void add_parameters_of_rows(const Operator& whole, Operator& op, const TensorLayout& layout) {
    for (const int p : whole.parameters) {
      const Parameter& parameter = whole_.parameters[static_cast<std::size_t>(p)];
      std::vector<std::int64_t> shape = parameter.shape;
      if (layout.features == 0 || works_on_images(whole)) {
        op.parameters.push_back(add_parameter(p, {{parameter.num_elements(), -1}}, {}, shape, axes_.all()));
        continue;
      }
      shape.back() /= ranks(layout.features);
      op.parameters.push_back(add_parameter(
          p, feature_digits(feature_order_, layout.features, 1, parameter.shape.back()), {}, shape, layout.samples));
    }
  }

  void add_product(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = roles_[o];
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const bool is_linear = whole.kind == OperatorKind::linear;
    const std::int64_t in = whole.attributes.integer(is_linear ? "in" : "vocabulary");
    const std::int64_t out = whole.attributes.integer(is_linear ? "out" : "width");
    const bool is_in_cut = is_linear ? (r.p1 | r.p2) != 0 : r.p2 != 0;
    const AxisOrder& in_cut = cut_if(is_in_cut);
    const AxisOrder& out_cut = cut_if((r.p1 | r.p2) != 0);
    check_divides(whole.name, is_linear ? "inputs" : "tokens of its vocabulary", in, in_cut);
    const std::int64_t sections = sections_of(y) == 0 && out_cut.empty() ? 1 : sections_of(y);
    if (sections == 0) refuse(whole.name, "fused query, key and value heads in unequal numbers, split,");
    check_divides(whole.name, "outputs", out / sections, out_cut);
    TensorLayout input = r.input();
    if (!is_linear) input.features = 0;
    op.inputs = {in_layout(x, input, whole, is_linear)};
    op.attributes.set(is_linear ? "in" : "table_rows", in / ranks(r.p2));
    op.attributes.set(is_linear ? "out" : "width", out / ranks(r.p1));
    if (!is_linear) {
      if (r.p2 == 0) {
        op.attributes = whole.attributes;
        op.attributes.set("width", out / ranks(r.p1));
      } else {
        op.attributes.set("first_token", first_of(whole.name, r.p2, in));
      }
    }
    const std::vector<Digit> outputs = feature_digits(out_cut, r.p1, sections, out);
    const std::vector<Digit> inputs = feature_digits(in_cut, r.p2, 1, in);
    if (whole.parameters.size() > 1 && r.p2 != 0) {
      op.attributes.set("adds", axes_.index(r.p2, rank_) == 0 ? 1 : 0);
    }
    for (const int p : whole.parameters) {
      const bool is_weight = p == whole.parameters.front();
      const std::vector<std::int64_t>& shape = whole_.parameters[static_cast<std::size_t>(p)].shape;
      if (is_weight && is_linear) {
        op.parameters.push_back(add_parameter(p, outputs, inputs, {out / ranks(r.p1), in / ranks(r.p2)}, r.p0));
      } else if (is_weight) {
        op.parameters.push_back(add_parameter(p, inputs, outputs, {in / ranks(r.p2), out / ranks(r.p1)}, r.p0));
      } else if (is_linear) {
        op.parameters.push_back(add_parameter(p, outputs, {}, {out / ranks(r.p1)}, r.p0));
      } else {
        op.parameters.push_back(
            add_parameter(p, {{shape.front(), -1}}, outputs, {shape.front(), out / ranks(r.p1)}, r.p0));
      }
    }
    const TensorLayout made = r.output();
    int local = add_tensor(y, made, r.p2 == 0 ? "" : "/partial");
    op.outputs = {local};
    push(std::move(op), decisions_[o]);
    if (r.p2 != 0) local = redistribute(y, local, home(y), whole, Collective::reduce_scatter, r.p2, false);
    local_[static_cast<std::size_t>(y)] = local;
    if (made.partial == 0 && made != home(y)) throw InternalError(whole.name + ": scattered without partial sums");
  }

  void number_blocks() {
    for (std::size_t b = 0; b < result_.graph.blocks.size(); ++b) {
      Block& block = result_.graph.blocks[b];
      const auto is_in = [&](const Operator& op) { return op.block == static_cast<int>(b); };
      const auto first = std::ranges::find_if(result_.graph.operators, is_in);
      block.first_operator = static_cast<int>(first - result_.graph.operators.begin());
      block.num_operators = static_cast<int>(std::ranges::count_if(result_.graph.operators, is_in));
    }
  }

  using Copy = std::pair<int, std::tuple<AxisSet, AxisSet, bool>>;
  const Plan& plan_;
  const ModelGraph& whole_;
  std::span<const OperatorDecision> decisions_;
  int rank_;
  AtomicAxes axes_;
  std::int64_t micro_batch_;                ///< samples
  AxisOrder sample_order_, feature_order_;  ///< of the digits into which samples and features are cut
  AxisOrder uncut_;
  std::vector<LayoutAxes> roles_;       ///< by operator, products only
  std::vector<bool> scatters_samples_;  ///< by operator: partial sums are scattered along samples
  std::vector<TensorLayout> homes_;     ///< by tensor of the whole graph: as it stands between operators
  std::vector<std::int64_t> sections_;  ///< by tensor: equal parts of a row that are split alike; 0: unequal ones
  std::vector<int> local_;              ///< by tensor: the rank's, at home; -1: not yet
  std::vector<int> local_parameter_;    ///< by parameter; -1: not held, or not yet
  std::map<Copy, int> copies_;          ///< the rank's tensors in other layouts
  const OperatorDecision* current_ = nullptr;
  LaidOutGraph result_;
};

}  // namespace

bool Permutation::is_identity() const {
  // Dims of one element move freely.
  int before = -1;
  for (const int d : order) {
    if (sizes[static_cast<std::size_t>(d)] == 1) continue;
    if (d < before) return false;
    before = d;
  }
  return true;
}

Permutation Permutation::inverse() const {
  Permutation result{.sizes = {}, .order = std::vector<int>(order.size())};
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.sizes.push_back(sizes[static_cast<std::size_t>(order[i])]);
    result.order[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  return result;
}

bool has_layouts(const Plan& plan) { return plan.mesh.axes.empty() && plan.mesh.num_ranks() > 1; }

std::vector<AxisSet> sets_of_replicas(const LaidOutGraph& model) {
  std::vector<AxisSet> sets;
  for (const AxisSet set : model.replicas) {
    if (std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
  }
  return sets;
}

ReplicaGrids grids_of(const Plan& plan, const LaidOutGraph& model, int rank) {
  if (!has_layouts(plan)) return whole_grids(plan.mesh, rank);
  const AtomicAxes axes(plan.mesh);
  const std::vector<AxisSet> sets = sets_of_replicas(model);
  ReplicaGrids grids;
  for (const AxisSet set : sets) {
    const Factor size = axes.factor(set);
    grids.grids.push_back({.mesh = {.nodes = size.nodes, .ranks_per_node = size.in_node, .axes = {}},
                           .ranks = axes.group(set, rank),
                           .place = axes.index(set, rank)});
  }
  for (const AxisSet set : model.replicas) {
    grids.of_parameter.push_back(static_cast<int>(std::ranges::find(sets, set) - sets.begin()));
  }
  return grids;
}

LaidOutGraph lay_out(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions, int rank) {
  return LayingOut(plan, graph, decisions, rank).run();
}

}  // namespace strata

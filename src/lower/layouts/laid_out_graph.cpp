#include "lower/layouts/laid_out_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "ir/program/kernel_runs.hpp"
#include "lower/layouts/layout_axes.hpp"

namespace strata {
namespace {

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
        model_(layouts_of_model(plan, graph, decisions)),
        axes_(model_.axes),
        micro_batch_(plan.global_batch / plan.schedule.micro_batches),
        local_(graph.tensors.size(), -1),
        local_parameter_(graph.parameters.size(), -1) {}

  LaidOutGraph run() && {
    result_.graph.name = whole_.name;
    result_.graph.positions_per_sample = whole_.positions_per_sample;
    result_.graph.blocks = whole_.blocks;
    for (std::size_t o = 0; o < whole_.operators.size(); ++o) add_operator(o);
    number_blocks();
    cut_stages();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Unsupported(fmt::format("{}: {} cannot be lowered", who(name), what));
  }
  std::string who(const std::string& name) const { return fmt::format("plan `{}`: {}", plan_.strategy, name); }
  const Operator& op_at(std::size_t o) const { return whole_.operators[o]; }
  const Tensor& tensor_at(int t) const { return whole_.tensors[static_cast<std::size_t>(t)]; }
  AxisSet rest(AxisSet set) const { return axes_.all() & ~set; }
  int ranks(AxisSet set) const { return axes_.num_ranks(set); }
  int ranks(const AxisOrder& order) const { return axes_.num_ranks(set_of(order)); }
  const TensorLayout& home(int t) const { return model_.homes[static_cast<std::size_t>(t)]; }
  std::int64_t sections_of(int t) const { return model_.sections[static_cast<std::size_t>(t)]; }
  const AxisOrder& features_of(int t) const { return model_.feature_orders[static_cast<std::size_t>(t)]; }

  // ---- sizes

  void check_divides(const std::string& name, const char* what, std::int64_t size, const AxisOrder& cut) const {
    if (size % ranks(cut) == 0) return;
    refuse(name, fmt::format("{} {} split over {} ranks, which do not divide them,", size, what, ranks(cut)));
  }

  /// What of @p size elements, @p sections of them split alike, a rank holds by @p held; all of them by none.
  std::vector<Digit> digits_held(const AxisOrder& cut, AxisSet held, std::int64_t sections, std::int64_t size) const {
    if (held == 0) return {{size, -1}};
    std::vector<Digit> digits = {{sections, -1}};
    std::ranges::copy(digits_of(axes_, cut, held, rank_, size / sections), std::back_inserter(digits));
    return digits;
  }
  std::vector<Digit> features_of_rank(int t, AxisSet held, std::int64_t size) const {
    return digits_held(features_of(t), held, sections_of(t), size);
  }

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
      check_divides(local.name, "features", width / sections, features_of(t));
      local.shape.back() = width / ranks(layout.features);
    }
    result_.graph.tensors.push_back(std::move(local));
    result_.layouts.push_back(layout);
    result_.num_samples.push_back(micro_batch_ / ranks(layout.samples));
    result_.samples.push_back(block_of(digits_of(axes_, model_.sample_order, layout.samples, rank_, micro_batch_)));
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
    const std::int64_t held = result_.graph.parameters.back().num_elements();
    const std::int64_t num_parts = whole_.parameters[static_cast<std::size_t>(p)].num_elements() / held;
    result_.num_copies.push_back(ranks(axes_.all()) / num_parts);
    return local;
  }

  // ---- redistributions

  /// Of rows of @p width features of tensor @p t.
  std::vector<LabelledDim> dims_of(int t, const TensorLayout& layout, std::int64_t width) const {
    using enum LabelledDim::Kind;
    const std::int64_t positions = tensor_at(t).elements_per_sample() / width, sections = sections_of(t);
    std::vector<LabelledDim> dims;
    const auto digits = [&](LabelledDim::Kind kind, const AxisOrder& cut, AxisSet held) {
      for (const int a : cut) {
        if ((held >> a & 1U) == 0) dims.push_back({kind, a, axes_.size(a)});
      }
    };
    digits(sample_digit, model_.sample_order, layout.samples);
    dims.push_back({sample_rest, -1, micro_batch_ / ranks(model_.sample_order) * positions});
    dims.push_back({section, -1, sections});
    digits(feature_digit, features_of(t), layout.features);
    dims.push_back({feature_rest, -1, width / sections / ranks(features_of(t))});
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
    check_divides(whole.name, "features", width / sections, features_of(whole_tensor));
    const auto held = [&](const TensorLayout& layout) { return dims_of(whole_tensor, layout, width); };
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
    check_divides(tensor_at(t).name, "features", width, features_of(t));
    const auto held = [&](const TensorLayout& layout) { return dims_of(t, layout, width); };
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
      const bool spares_exchange =
          from.features == to.features && model_.gathered_along_samples[static_cast<std::size_t>(t)];
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
    set_sizes(whole, op,
              whole.kind == OperatorKind::cross_entropy ? home(whole.inputs.front()).features : layout.features);
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
    const AxisOrder& cut = features_of(whole.inputs.front());
    const auto divide = [&](const char* key) {
      check_divides(whole.name, key, whole.attributes.integer(key), cut);
      op.attributes.set(key, whole.attributes.integer(key) / ranks(split));
    };
    switch (whole.kind) {
      case OperatorKind::rotary:
      case OperatorKind::attention:
        divide("heads");
        divide("kv_heads");
        op.attributes.set("total_heads", whole.attributes.integer("heads"));
        if (whole.kind == OperatorKind::attention && whole.attributes.real("dropout") > 0.0) {
          op.attributes.set("first_head", first_of(whole.name, cut, split, whole.attributes.integer("heads")));
        }
        break;
      case OperatorKind::swiglu:
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm: divide("width"); break;
      case OperatorKind::cross_entropy:
        divide("classes");
        set_runs(op.attributes, "first_class",
                 block_of(digits_of(axes_, cut, split, rank_, whole.attributes.integer("classes"))), who(whole.name));
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
    const TensorLayout& layout = home(whole.inputs.front());
    std::vector<Digit> digits = digits_of(axes_, model_.sample_order, layout.samples, rank_, micro_batch_);
    digits.push_back({positions, -1});
    if (layout.features == 0) {
      digits.push_back({row, -1});
    } else {
      std::ranges::copy(features_of_rank(whole.inputs.front(), layout.features, row), std::back_inserter(digits));
    }
    op.attributes.set("sample_elements", x.elements_per_sample());
    set_runs(op.attributes, "first", block_of(digits), who(whole.name));
  }

  /// Where the features of this rank begin, @p size in all, which have to be neighbours.
  std::int64_t first_of(const std::string& name, const AxisOrder& cut, AxisSet split, std::int64_t size) const {
    check_divides(name, "features", size, cut);
    const StridedBlock block = block_of(digits_of(axes_, cut, split, rank_, size));
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
      std::vector<std::int64_t> split_shape = shape;
      split_shape.back() /= ranks(layout.features);
      op.parameters.push_back(add_parameter(p, features_of_rank(whole.inputs.front(), layout.features, shape.back()),
                                            {}, std::move(split_shape), layout.samples));
    }
  }

  /// C = A·B of parts of inputs, weights and outputs: see lower/summa_panels.
  void add_summa(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = model_.products[o];
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const std::int64_t in = whole.attributes.integer("in"), out = whole.attributes.integer("out");
    check_divides(whole.name, "inputs", in, features_of(x));
    if (r.p2 != 0) {
      if (sections_of(y) == 0) refuse(whole.name, "fused query, key and value heads in unequal numbers, split,");
      check_divides(whole.name, "outputs", out / sections_of(y), features_of(y));
    }
    const int local_x = in_layout(x, r.input(), whole, true);
    op.inputs = {local_x};
    const std::int64_t in_held = in / ranks(r.p0), out_held = out / ranks(r.p2);
    op.attributes.set("in", in / ranks(r.p2));
    op.attributes.set("out", out_held);
    op.attributes.set("summa", static_cast<std::int64_t>(result_.panels.size()));
    const SummaCut cut{
        .rows = r.p0, .columns = r.p2, .inputs = features_of(x), .weight_digits = model_.weight_digits[o]};
    const std::int64_t rows =
        result_.num_samples[static_cast<std::size_t>(local_x)] * tensor_at(x).elements_per_sample() / in;
    result_.panels.push_back(summa_panels(axes_, cut, {.rows = rows, .in = in, .out = out_held}));
    const std::vector<Digit> outputs = features_of_rank(y, r.p2, out);
    const std::vector<Digit> inputs = weight_inputs(axes_, cut, rank_, in);
    for (const int p : whole.parameters) {
      op.parameters.push_back(p == whole.parameters.front()
                                  ? add_parameter(p, outputs, inputs, {out_held, in_held}, r.p1)
                                  : add_parameter(p, outputs, {}, {out_held}, r.p0 | r.p1));
    }
    op.outputs = {local_[static_cast<std::size_t>(y)] = add_tensor(y, r.output(), "")};
    push(std::move(op), decisions_[o]);
  }

  void add_product(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = model_.products[o];
    if (r.is_summa()) {
      add_summa(o, std::move(op));
      return;
    }
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const bool is_linear = whole.kind == OperatorKind::linear;
    const std::int64_t in = whole.attributes.integer(is_linear ? "in" : "vocabulary");
    const std::int64_t out = whole.attributes.integer(is_linear ? "out" : "width");
    const AxisOrder& in_cut = is_linear ? features_of(x) : model_.vocabulary_orders[o];
    if (r.p2 != 0) check_divides(whole.name, is_linear ? "inputs" : "tokens of its vocabulary", in, in_cut);
    if (home(y).features != 0) {
      if (sections_of(y) == 0) refuse(whole.name, "fused query, key and value heads in unequal numbers, split,");
      check_divides(whole.name, "outputs", out / sections_of(y), features_of(y));
    }
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
        op.attributes.set("first_token", first_of(whole.name, in_cut, r.p2, in));
      }
    }
    const std::vector<Digit> outputs = features_of_rank(y, r.p1, out);
    const std::vector<Digit> inputs = digits_held(in_cut, r.p2, 1, in);
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

  /// At the blocks at which the whole model is cut.
  void cut_stages() {
    for (const Stage& whole : cut_into_stages(whole_, plan_.stages)) {
      int begin = 0;
      for (std::size_t b = 0; b < whole_.blocks.size() && whole.first_operator > 0; ++b) {
        if (whole_.blocks[b].first_operator == whole.first_operator) begin = result_.graph.blocks[b].first_operator;
      }
      STRATA_INVARIANT((begin > 0) == (whole.first_operator > 0), "a stage begins with a block");
      if (!result_.stages.empty()) result_.stages.back().num_operators = begin - result_.stages.back().first_operator;
      result_.stages.push_back({begin, static_cast<int>(result_.graph.operators.size()) - begin});
    }
  }

  using Copy = std::pair<int, std::tuple<AxisSet, AxisSet, bool>>;
  const Plan& plan_;
  const ModelGraph& whole_;
  std::span<const OperatorDecision> decisions_;
  int rank_;
  LayoutsOfModel model_;
  const AtomicAxes& axes_;
  std::int64_t micro_batch_;          ///< samples
  std::vector<int> local_;            ///< by tensor: the rank's, at home; -1: not yet
  std::vector<int> local_parameter_;  ///< by parameter; -1: not held, or not yet
  std::map<Copy, int> copies_;        ///< the rank's tensors in other layouts
  const OperatorDecision* current_ = nullptr;
  LaidOutGraph result_;
};

}  // namespace

std::set<AxisSet> communicating_axes(const LaidOutGraph& model) {
  std::set<AxisSet> sets(model.replicas.begin(), model.replicas.end());
  for (const Redistribution& step : model.steps) sets.insert(step.axes);
  for (const SummaPanels& panels : model.panels) {
    sets.insert(panels.rows);
    sets.insert(panels.columns);
  }
  for (const Operator& op : model.graph.operators) {
    const bool needs_rows = op.kind == OperatorKind::layer_norm || op.kind == OperatorKind::rms_norm ||
                            op.kind == OperatorKind::cross_entropy;
    if (needs_rows) sets.insert(model.layouts[static_cast<std::size_t>(op.inputs.front())].features);
  }
  return sets;
}

std::vector<AxisSet> sets_of_replicas(const LaidOutGraph& model) {
  std::vector<AxisSet> sets;
  for (const AxisSet set : model.replicas) {
    if (std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
  }
  return sets;
}

ReplicaGrids grids_of(const Plan& plan, const LaidOutGraph& model, int rank) {
  if (!has_layouts(plan.mesh)) return whole_grids(plan.mesh, rank);
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

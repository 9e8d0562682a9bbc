#include "planners/oases/planned_degrees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/oases/chain_mps.hpp"
#include "planners/oases/chain_search.hpp"
#include "planners/oases/chain_seconds.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// What the paper and its authors' program leave of a device's memory, for what no account knows. Our account is the
/// Program's, which has everything, and so its search may use all.
constexpr double papers_share_of_memory = 0.95;

Chain without_steps(Chain chain) {
  for (auto& node : chain.nodes) {
    for (ChainChoice& choice : node) choice.step_seconds = 0.0;
  }
  return chain;
}

}  // namespace

DegreePlanning::DegreePlanning(const PlanRequest& request, const LayoutPlanning& planning,
                               std::span<const Factor> tensors, const PlanOfPart& plan_of)
    : request_(request),
      planning_(planning),
      plan_of_(plan_of),
      costs_(request.option<std::string>("cost") == "authors" ? ChainCosts::authors : ChainCosts::links),
      nodes_(chain_nodes(request.graph, planning.chain(), planning.grid())) {
  const bool selective = request.option<bool>("selective");
  for (const bool keeps : {false, true}) {
    if (keeps && !selective) break;
    for (const Factor& tensor : tensors) options_.push_back({.tensor = tensor, .keeps = keeps});
  }
}

Chain DegreePlanning::chain(int sub_batches) const {
  Chain chain = chain_of_model(request_, planning_, nodes_, options_, sub_batches, costs_, plan_of_);
  chain.reshard = request_.option<std::string>("reshard") == "blocking" ? Reshard::blocking : Reshard::pipelined;
  const auto& cost = request_.option<std::string>("cost");
  const double share = cost == "paper" || cost == "authors" ? papers_share_of_memory : 1.0;
  chain.capacity_bytes = static_cast<std::int64_t>(share * static_cast<double>(planning_.capacity_bytes()));
  return chain;
}

std::string DegreePlanning::name(std::span<const int> choices) const {
  const auto option_of = [&](std::size_t node) { return options_[static_cast<std::size_t>(choices[node])]; };
  std::vector<int> degrees, of_layers;
  int in_blocks = 0, kept = 0;
  bool is_by_layer = true;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_.block[i] < 0) continue;
    ++in_blocks;
    kept += option_of(i).keeps ? 1 : 0;
    degrees.push_back(option_of(i).tensor.total());
    const bool is_same_layer = i > 0 && nodes_.block[i] == nodes_.block[i - 1];
    if (!is_same_layer) of_layers.push_back(degrees.back());
    is_by_layer = is_by_layer && (!is_same_layer || degrees.back() == of_layers.back());
  }
  const std::string text = is_by_layer ? fmt::format("degrees {} of layers", degrees_text(of_layers))
                                       : fmt::format("degrees {} of attentions and MLPs", degrees_text(degrees));
  if (kept == 0) return text;
  return fmt::format("{}, {} of {} attentions and MLPs not computed again", text, kept, in_blocks);
}

std::int64_t DegreePlanning::peak_bytes(std::span<const int> choices, int sub_batches) const {
  const Plan plan = plan_of_(request_, planning_, node_plan(planning_, nodes_, options_, choices), sub_batches);
  return request_.evaluate->memory(plan).peak_bytes;
}

ChainAnswer DegreePlanning::search(const Chain& chain) const {
  const auto& search = request_.option<std::string>("search");
  if (search == "exhaustive") return search_exhaustively(chain);
  if (search == "authors") return search_two_in_order(chain);
  return search_exactly(chain);
}

ChainAnswer DegreePlanning::that_fits(Chain chain) const {
  constexpr int corrections = 8;
  for (int k = 0; k <= corrections; ++k) {
    ChainAnswer answer = search(chain);
    if (!answer.fits() || planning_.capacity_bytes() == 0) return answer;
    const std::int64_t too_many = peak_bytes(answer.choices, chain.sub_batches) - planning_.capacity_bytes();
    if (too_many <= 0) return answer;
    chain.capacity_bytes = answer.bytes - too_many;
    if (chain.capacity_bytes <= 0) return {};
  }
  return {};
}

std::string DegreePlanning::linear_program(int sub_batches) const {
  std::vector<std::string> names;
  for (const NodeChoice& option : options_) {
    names.push_back(fmt::format("tensor {}{}", to_string(option.tensor), option.keeps ? ", not computed again" : ""));
  }
  const Chain whole = chain(sub_batches);
  const ChainAnswer own = search(whole);
  const std::string found = own.fits() ? fmt::format("{:.12g} s, {}", own.seconds, name(own.choices)) : "nothing fits";
  return fmt::format("* strata's own search: {}\n{}", found, to_mps(whole, nodes_.names, names));
}

std::string DegreePlanning::binding(const Chain& chain, const ChainAnswer& answer) const {
  Chain unlimited = chain;
  unlimited.capacity_bytes = 0;
  const ChainAnswer fastest = search(unlimited);
  const std::string taken = fmt::format("{:.6g} s a micro-batch by the chain", answer.seconds);
  if (fastest.choices == answer.choices) return taken + ", binds nothing";
  return fmt::format("{}, binds memory: {}; of more, {} would take {:.6g} s", taken, gib(planning_.capacity_bytes()),
                     name(fastest.choices), fastest.seconds);
}

std::vector<ChainAnswer> DegreePlanning::best_uniform(const Chain& chain) const {
  std::vector<ChainAnswer> all, best;
  for (std::size_t t = 0; t < options_.size(); ++t) {
    all.push_back(answer_of(chain, std::vector<int>(chain.size(), static_cast<int>(t))));
  }
  std::ranges::stable_sort(all, {}, &ChainAnswer::seconds);
  constexpr std::size_t enough = 2;
  for (ChainAnswer& answer : all) {
    const bool fits =
        planning_.capacity_bytes() == 0 || peak_bytes(answer.choices, chain.sub_batches) <= planning_.capacity_bytes();
    if (fits) best.push_back(std::move(answer));
    if (best.size() == enough) break;
  }
  return best;
}

std::vector<PlannedDegrees> DegreePlanning::ways(int sub_batches) const {
  // What gradients take once a step runs under the backward in part. How much, the simulator says: one chain has all of
  // it, the paper's has none.
  const Chain of_step = chain(sub_batches), of_passes = without_steps(of_step);
  std::vector<PlannedDegrees> ways;
  std::vector<std::vector<int>> known;
  const auto add = [&](const ChainAnswer& answer, const std::string& why) {
    if (!answer.fits() || std::ranges::find(known, answer.choices) != known.end()) return;
    known.push_back(answer.choices);
    ways.push_back({.name = name(answer.choices),
                    .nodes = node_plan(planning_, nodes_, options_, answer.choices),
                    .sub_batches = sub_batches,
                    .binding = why});
  };
  for (const Chain& by : {of_step, of_passes}) {
    if (const ChainAnswer best = that_fits(by); best.fits()) add(best, binding(by, best));
  }
  for (const ChainAnswer& answer : best_uniform(of_step)) add(answer, "the chain's own are simulated slower");
  return ways;
}

}  // namespace strata

#include "planners/pipelines/stage_prices.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace strata {
namespace {

/// Adds what the instructions of @p step take to the prices of what they belong to.
void add_instructions(const PricedStep& step, int sub_batches, OperatorsPrices& prices,
                      std::map<std::string, double, std::less<>>& updates) {
  std::optional<int> stream;  // of collectives
  for (const PricedInstruction& in : step.instructions) {
    if (in.phase == Phase::update) updates[in.name] += in.seconds;
    const bool is_pass = in.phase == Phase::forward || in.phase == Phase::recompute || in.phase == Phase::backward;
    if (!is_pass || (in.is_collective && !in.holds_up_kernels)) continue;
    if (in.is_collective) {
      prices.has_one_stream = prices.has_one_stream && stream.value_or(in.stream) == in.stream;
      stream = in.stream;
    }
    PassPrices& passes = prices.passes[in.name.substr(0, in.name.find('/'))];
    auto& of_phase = in.phase == Phase::forward     ? passes.forward
                     : in.phase == Phase::recompute ? passes.again
                                                    : passes.backward;
    const int micro_batch = in.micro_batch / sub_batches;
    of_phase[static_cast<std::size_t>(micro_batch)].append(in.seconds, in.is_collective);
  }
}

void add_kept(const PricedStep& step, const ModelGraph& part, OperatorsPrices& prices) {
  std::map<std::string, int, std::less<>> position;
  for (std::size_t o = 0; o < part.operators.size(); ++o) position.emplace(part.operators[o].name, o);
  for (const KeptTensor& tensor : step.kept) {
    const auto maker = position.find(tensor.made_by);
    if (maker == position.end()) continue;
    KeptForBackward& kept = prices.kept[tensor.made_by].emplace_back(KeptForBackward{.bytes = tensor.bytes});
    for (const std::string& name : tensor.read_by) {
      if (const auto reader = position.find(name); reader != position.end()) {
        kept.readers.push_back(reader->second - maker->second);
      }
    }
  }
}

/// Looked up once, and not for every stage of every combination of degrees.
void look_up(const ModelGraph& graph, const FewBlocks& blocks,
             const std::map<std::string, double, std::less<>>& updates, OperatorsPrices& prices) {
  const auto value_of = [](const auto& by_name, const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : &found->second;
  };
  prices.update_seconds.resize(graph.parameters.size());
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& stand_in = blocks.stands_for(static_cast<int>(o));
    prices.passes_of.push_back(value_of(prices.passes, stand_in.name));
    prices.kept_of.push_back(value_of(prices.kept, stand_in.name));
    for (std::size_t i = 0; i < stand_in.parameters.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(stand_in.parameters[i]);
      const double* seconds = value_of(updates, graph.parameters[parameter].name);
      const int own = graph.operators[o].parameters[i];
      if (seconds != nullptr) prices.update_seconds[static_cast<std::size_t>(own)] = *seconds;
    }
  }
}

}  // namespace

OperatorsPrices prices_of_operators(const PlanRequest& request, const FewBlocks& blocks, const ModelGraph& part,
                                    const Plan& place) {
  OperatorsPrices prices;
  const PricedStep step = request.evaluate->price(place, part);
  if (!step.missing.empty()) return prices;
  prices.is_known = true;
  prices.overhead_seconds = step.overhead_seconds;
  std::map<std::string, double, std::less<>> updates;  // by parameter of the part
  add_instructions(step, place.schedule.sub_batches, prices, updates);
  if (place.schedule.micro_batches == 1) {
    for (auto& [_, passes] : prices.passes) {
      for (auto* of_phase : {&passes.forward, &passes.again, &passes.backward}) (*of_phase)[1] = (*of_phase)[0];
    }
  }
  add_kept(step, part, prices);
  look_up(request.graph, blocks, updates, prices);
  return prices;
}

std::vector<StagePrice> prices_of_stages(const ModelGraph& graph, const Plan& plan, const OperatorsPrices& operators) {
  std::vector<StagePrice> prices;
  for (const Stage& stage : cut_into_stages(graph, plan.stages)) {
    StagePrice& price = prices.emplace_back();
    price.parameters.resize(graph.parameters.size());
    const auto append = [&](int o, auto member, std::array<PassPrice, 2>& to) {
      const PassPrices* passes = operators.passes_of[static_cast<std::size_t>(o)];
      if (passes == nullptr) return;
      for (std::size_t m = 0; m < 2; ++m) to[m].append((passes->*member)[m]);
    };
    for (int o = stage.first_operator; o < stage.end(); ++o) {
      append(o, &PassPrices::forward, price.passes.forward);
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) {
        const auto parameter = static_cast<std::size_t>(p);
        if (price.parameters[parameter]) continue;
        price.parameters[parameter] = true;
        price.update_seconds += operators.update_seconds[parameter];
      }
    }
    for (int o = stage.end(); o-- > stage.first_operator;) {
      append(o, &PassPrices::again, price.passes.again);
      append(o, &PassPrices::backward, price.passes.backward);
    }
  }
  return prices;
}

std::int64_t kept_bytes(const OperatorsPrices& operators, const Stage& stage) {
  std::int64_t bytes = 0;
  for (int o = stage.first_operator; o < stage.end(); ++o) {
    const std::vector<KeptForBackward>* made_here = operators.kept_of[static_cast<std::size_t>(o)];
    if (made_here == nullptr) continue;
    for (const KeptForBackward& kept : *made_here) {
      const bool is_read_here = std::ranges::any_of(kept.readers, [&](int behind) { return o + behind < stage.end(); });
      if (is_read_here) bytes += kept.bytes;
    }
  }
  return bytes;
}

}  // namespace strata

#include "lower/states/quantized_reduction.hpp"

#include <utility>

#include "base/ceil_div.hpp"
#include "base/quantization.hpp"

namespace strata {

void QuantizedReductions::begin(int parameter, const std::string& name, const Operand& full, const Factor& factor,
                                const ShardGroups::Set& groups, const Operand& own, bool accumulate) {
  Pending pending{.parameter = parameter,
                  .name = name,
                  .own = own,
                  .accumulate = accumulate,
                  .chunk = ceil_div(full.num_elements, factor.total())};
  const bool two_hops = groups.on_node >= 0 && groups.across_nodes >= 0;
  pending.pieces = groups.on_node >= 0 ? factor.in_node : factor.nodes;
  pending.chunks = two_hops ? factor.nodes : 1;
  pending.next_group = two_hops ? groups.across_nodes : -1;
  pending.received =
      send(pending, full, factor.total(), factor.nodes, groups.on_node >= 0 ? groups.on_node : groups.across_nodes);
  if (!overlaps_) {
    while (!advance(pending)) {
    }
    return;
  }
  pending_.push_back(std::move(pending));
}

int QuantizedReductions::add_buffer(std::string name, std::int64_t num_elements, DType dtype) {
  sums_.buffers.push_back(
      {.name = std::move(name), .num_elements = num_elements, .dtype = dtype, .category = Category::communication});
  return static_cast<int>(sums_.buffers.size()) - 1;
}

int QuantizedReductions::send(const Pending& pending, const Operand& x, std::int64_t chunks, std::int64_t nodes,
                              int group) {
  const std::int64_t bytes = chunks * quantized_bytes(pending.chunk, bits(), quantization_.block);
  const int packed = add_buffer(pending.name + "/gradient_quantized", bytes, DType::u8);
  const int received = add_buffer(pending.name + "/gradient_received", bytes, DType::u8);
  sums_.actions.push_back({.kind = GradientAction::Kind::quantize,
                           .parameter = pending.parameter,
                           .from = x,
                           .to = sums_.whole(packed),
                           .chunks = {.size = pending.chunk, .number = chunks, .nodes = nodes}});
  sums_.actions.push_back({.kind = GradientAction::Kind::all_to_all,
                           .parameter = pending.parameter,
                           .from = sums_.whole(packed),
                           .to = sums_.whole(received),
                           .group = group});
  return received;
}

bool QuantizedReductions::advance(Pending& pending) {
  const bool is_last = pending.next_group < 0;
  const Operand sum =
      is_last ? pending.own
              : sums_.whole(add_buffer(pending.name + "/gradient_of_node", pending.chunks * pending.chunk, DType::f32));
  if (sum.num_elements == 0) return true;  // nothing of it is this rank's
  sums_.actions.push_back({.kind = GradientAction::Kind::dequantize,
                           .parameter = pending.parameter,
                           .from = sums_.whole(pending.received),
                           .to = sum,
                           .chunks = {.size = pending.chunk,
                                      .number = pending.chunks,
                                      .pieces = pending.pieces,
                                      .accumulate = is_last && pending.accumulate}});
  if (is_last) return true;
  pending.pieces = static_cast<int>(pending.chunks);
  pending.received = send(pending, sum, pending.chunks, 1, std::exchange(pending.next_group, -1));
  pending.chunks = 1;
  return false;
}

void QuantizedReductions::after_operator() {
  const bool any_new = !pending_.empty() && pending_.back().is_new;
  if (any_new) advance_all(false);
}

void QuantizedReductions::finish() {
  while (!pending_.empty()) advance_all(true);
}

void QuantizedReductions::advance_all(bool new_ones_too) {
  std::vector<Pending> left;
  for (Pending& pending : pending_) {
    const bool waits = std::exchange(pending.is_new, false) && !new_ones_too;
    if (waits || !advance(pending)) left.push_back(std::move(pending));
  }
  pending_ = std::move(left);
}

}  // namespace strata

#include "lower/states/quantized_collectives.hpp"

#include <utility>

#include "base/ceil_div.hpp"
#include "base/quantization.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

Attributes quantized_attributes(std::int64_t elements, std::int64_t chunk, std::int64_t chunks, int block, int bits) {
  return {{"elements", elements},
          {"chunk", chunk},
          {"chunks", chunks},
          {"block", std::int64_t{block}},
          {"bits", std::int64_t{bits}}};
}

Operand add_bytes(ProgramBuilder& builder, std::string name, std::int64_t num_bytes) {
  return builder.whole(builder.add_buffer(
      {.name = std::move(name), .num_elements = num_bytes, .dtype = DType::u8, .category = Category::communication}));
}

constexpr int weight_bits = 8;

}  // namespace

int QuantizedGather::start(const Parameter& parameter, const Operand& shard, const ShardGroups::Set& groups,
                           Phase phase, int micro_batch) {
  const int ranks = groups.num_parameter;
  const std::int64_t chunk = ceil_div(parameter.num_elements(), ranks);
  const std::int64_t bytes = quantized_bytes(chunk, weight_bits, quantization_.block);
  const Operand all = add_bytes(builder_, parameter.name + "/quantized", ranks * bytes);
  const Operand own{all.buffer, groups.parameter_index * bytes, bytes};
  Instruction pack{.kernel = Kernel::quantize,
                   .phase = phase,
                   .micro_batch = micro_batch,
                   .name = parameter.name,
                   .inputs = {shard},
                   .outputs = {own},
                   .attributes = quantized_attributes(shard.num_elements, chunk, 1, quantization_.block, weight_bits)};
  pack.attributes.set("nodes", std::int64_t{1});
  builder_.emit(std::move(pack));
  builder_.emit({.kernel = Kernel::none,
                 .collective = Collective::all_gather,
                 .group = groups.parameter,
                 .stream = communication_stream,
                 .phase = phase,
                 .micro_batch = micro_batch,
                 .name = parameter.name,
                 .inputs = {own},
                 .outputs = {all}});
  return all.buffer;
}

void QuantizedGather::finish(const Parameter& parameter, int packed, const Operand& gathered,
                             const ShardGroups::Set& groups, Phase phase, int micro_batch) {
  const int ranks = groups.num_parameter;
  Instruction unpack{.kernel = Kernel::dequantize,
                     .phase = phase,
                     .micro_batch = micro_batch,
                     .name = parameter.name,
                     .inputs = {builder_.whole(packed)},
                     .outputs = {gathered},
                     .attributes = quantized_attributes(gathered.num_elements, ceil_div(gathered.num_elements, ranks),
                                                        ranks, quantization_.block, weight_bits)};
  unpack.attributes.set("pieces", std::int64_t{1});
  unpack.attributes.set("accumulate", std::int64_t{0});
  builder_.emit(std::move(unpack));
}

void QuantizedReduction::reduce(const std::string& name, const Operand& full, const Factor& factor,
                                const ShardGroups::Set& groups, const Operand& own, bool accumulate) {
  Pending pending{
      .name = name, .own = own, .accumulate = accumulate, .chunk = ceil_div(full.num_elements, factor.total())};
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

int QuantizedReduction::send(const Pending& pending, const Operand& x, std::int64_t chunks, std::int64_t nodes,
                             int group) {
  const std::int64_t bytes = chunks * quantized_bytes(pending.chunk, bits(), quantization_.block);
  const Operand packed = add_bytes(builder_, pending.name + "/gradient_quantized", bytes);
  const Operand received = add_bytes(builder_, pending.name + "/gradient_received", bytes);
  Instruction pack{
      .kernel = Kernel::quantize,
      .phase = Phase::reduce,
      .name = pending.name,
      .inputs = {x},
      .outputs = {packed},
      .attributes = quantized_attributes(x.num_elements, pending.chunk, chunks, quantization_.block, bits())};
  pack.attributes.set("nodes", nodes);
  builder_.emit(std::move(pack));
  builder_.emit({.kernel = Kernel::none,
                 .collective = Collective::all_to_all,
                 .group = group,
                 .stream = communication_stream,
                 .phase = Phase::reduce,
                 .name = pending.name,
                 .inputs = {packed},
                 .outputs = {received}});
  return received.buffer;
}

bool QuantizedReduction::advance(Pending& pending) {
  const bool is_last = pending.next_group < 0;
  Operand sum = pending.own;
  if (!is_last) {
    sum = builder_.whole(builder_.add_buffer({.name = pending.name + "/gradient_of_node",
                                              .num_elements = pending.chunks * pending.chunk,
                                              .dtype = DType::f32,
                                              .category = Category::communication}));
  }
  if (sum.num_elements == 0) return true;  // nothing of it is this rank's
  Instruction add{
      .kernel = Kernel::dequantize,
      .phase = Phase::reduce,
      .name = pending.name,
      .inputs = {builder_.whole(pending.received)},
      .outputs = {sum},
      .attributes = quantized_attributes(sum.num_elements, pending.chunk, pending.chunks, quantization_.block, bits())};
  add.attributes.set("pieces", std::int64_t{pending.pieces});
  add.attributes.set("accumulate", std::int64_t{is_last && pending.accumulate ? 1 : 0});
  builder_.emit(std::move(add));
  if (is_last) return true;
  pending.pieces = static_cast<int>(pending.chunks);
  pending.received = send(pending, sum, pending.chunks, 1, std::exchange(pending.next_group, -1));
  pending.chunks = 1;
  return false;
}

void QuantizedReduction::after_operator() {
  const bool any_new = !pending_.empty() && pending_.back().is_new;
  if (any_new) advance_all(false);
}

void QuantizedReduction::finish() {
  while (!pending_.empty()) advance_all(true);
}

void QuantizedReduction::advance_all(bool new_ones_too) {
  std::vector<Pending> left;
  for (Pending& pending : pending_) {
    const bool waits = std::exchange(pending.is_new, false) && !new_ones_too;
    if (waits || !advance(pending)) left.push_back(std::move(pending));
  }
  pending_ = std::move(left);
}

}  // namespace strata

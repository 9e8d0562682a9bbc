#include "lower/states/quantized_gather.hpp"

#include <utility>

#include "base/ceil_div.hpp"
#include "base/quantization.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

constexpr int weight_bits = 8;

}  // namespace

Attributes quantized_attributes(std::int64_t elements, std::int64_t chunk, std::int64_t chunks, int block, int bits) {
  return {{"elements", elements},
          {"chunk", chunk},
          {"chunks", chunks},
          {"block", std::int64_t{block}},
          {"bits", std::int64_t{bits}}};
}

int QuantizedGather::start(const Place& here, const Parameter& parameter, const Operand& shard,
                           const ShardGroups::Set& groups, Phase phase, int micro_batch) {
  const int ranks = groups.num_parameter;
  const std::int64_t chunk = ceil_div(parameter.num_elements(), ranks);
  const std::int64_t bytes = quantized_bytes(chunk, weight_bits, quantization_.block);
  const Operand all = builder_.whole(builder_.add_buffer({.name = parameter.name + "/quantized",
                                                          .num_elements = ranks * bytes,
                                                          .dtype = DType::u8,
                                                          .category = Category::communication}));
  const Operand own{all.buffer, groups.parameter_index * bytes, bytes};
  Instruction pack{.kernel = Kernel::quantize,
                   .phase = phase,
                   .micro_batch = micro_batch,
                   .name = parameter.name,
                   .inputs = {shard},
                   .outputs = {own},
                   .attributes = quantized_attributes(shard.num_elements, chunk, 1, quantization_.block, weight_bits)};
  pack.attributes.set("nodes", std::int64_t{1});
  here.emit(std::move(pack));
  here.emit({.kernel = Kernel::none,
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

void QuantizedGather::finish(const Place& here, const Parameter& parameter, int packed, const Operand& gathered,
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
  here.emit(std::move(unpack));
}

}  // namespace strata

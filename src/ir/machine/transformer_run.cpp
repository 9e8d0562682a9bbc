#include "ir/machine/transformer_run.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"

namespace strata {

std::string_view to_string(Recomputation recomputation) {
  switch (recomputation) {
    case Recomputation::none: return "none";
    case Recomputation::selective: return "selective";
    case Recomputation::full: return "full";
  }
  throw InternalError("no such recomputation");
}

void verify(const TransformerRun& run) {
  for (const auto& [name, value] :
       {std::pair("hidden_size", run.hidden_size), std::pair("attention_heads", run.attention_heads),
        std::pair("layers", run.layers), std::pair("sequence_length", run.sequence_length),
        std::pair("vocabulary_size", run.vocabulary_size), std::pair("global_batch", run.global_batch),
        std::pair("micro_batch", run.micro_batch), std::pair("tensor_parallelism", run.tensor),
        std::pair("data_parallelism", run.data), std::pair("pipeline_parallelism", run.pipeline),
        std::pair("virtual_stages", run.virtual_stages)}) {
    if (value < 1 || value > largest_run_count) {
      throw UserError(fmt::format("{}: {} is out of range; accepted: 1 to {}", name, value, largest_run_count));
    }
  }
  if (run.global_batch % (run.micro_batch * run.data) != 0) {
    throw UserError(fmt::format("global_batch: {} is no multiple of micro_batch x data_parallelism = {} x {}",
                                run.global_batch, run.micro_batch, run.data));
  }
  if (run.hidden_size % run.attention_heads != 0) {
    throw UserError(
        fmt::format("hidden_size: {} is no multiple of attention_heads = {}", run.hidden_size, run.attention_heads));
  }
  if (run.attention_heads % run.tensor != 0) {
    throw UserError(
        fmt::format("attention_heads: {} is no multiple of tensor_parallelism = {}", run.attention_heads, run.tensor));
  }
  if (run.layers % (run.pipeline * run.virtual_stages) != 0) {
    throw UserError(fmt::format("layers: {} is no multiple of pipeline_parallelism x virtual_stages = {} x {}",
                                run.layers, run.pipeline, run.virtual_stages));
  }
  if (run.pipeline == 1 && run.virtual_stages > 1) {
    throw UserError(
        fmt::format("virtual_stages: {} with one stage; they need pipeline_parallelism > 1", run.virtual_stages));
  }
}

}  // namespace strata

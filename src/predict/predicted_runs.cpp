#include "predict/predicted_runs.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "cost/transformer_iteration.hpp"

namespace strata::predict {
namespace {

/// What the table does not say comes from the cluster, whose campaign measured it.
TransformerRun completed(const MeasuredRun& row, const Cluster& cluster, const std::string& file) {
  TransformerRun run = row.run;
  if (cluster.transformer_costs) {
    const TransformerCosts& costs = *cluster.transformer_costs;
    if (run.vocabulary_size == 0) run.vocabulary_size = costs.vocabulary_size;
    if (!row.recomputation) {
      run.recomputation = run.num_ranks() > cluster.devices_per_node ? costs.recomputation_on_many_nodes
                                                                     : costs.recomputation_on_one_node;
    }
  }
  try {
    verify(run);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}:{}: {}", file, row.line, error.what()));
  }
  return run;
}

double predicted(const TransformerRun& run, const Cluster& cluster, MeasuredQuantity quantity) {
  switch (quantity) {
    case MeasuredQuantity::iteration_time_ms: return 1e3 * transformer_iteration(run, cluster).seconds;
    case MeasuredQuantity::activation_bytes_per_layer: return layer_activation_bytes(run);
    case MeasuredQuantity::activation_bytes: return first_stage_activation_bytes(run);
  }
  throw InternalError("no such quantity");
}

/// d ln(seconds) / d ln(parameter), by central differences.
double sensitivity(const TransformerRun& run, Cluster cluster, const TransformerCostField& field) {
  constexpr double step = 1e-5;
  double& value = *cluster.transformer_costs.*field.value;
  const double center = value;
  value = center * std::exp(step);
  const double above = transformer_iteration(run, cluster).seconds;
  value = center * std::exp(-step);
  return (std::log(above) - std::log(transformer_iteration(run, cluster).seconds)) / (2.0 * step);
}

std::string header(MeasuredQuantity quantity, bool sensitivities) {
  std::string line =
      "quantity,line,num_gpus,global_batch,micro_batch,hidden_size,attention_heads,layers,sequence_length,"
      "tensor_parallelism,data_parallelism,pipeline_parallelism,vocabulary_size,virtual_stages,recomputation,"
      "sequence_parallel,measured,predicted,basis";
  if (quantity == MeasuredQuantity::iteration_time_ms) {
    line += ",layers_share";
    if (sensitivities) {
      for (const TransformerCostField& field : transformer_cost_fields()) line += fmt::format(",{}", field.key);
    }
  }
  return line + "\n";
}

std::string line_of(const MeasuredRun& row, const TransformerRun& run, const Cluster& cluster,
                    MeasuredQuantity quantity, bool sensitivities) {
  std::string line = fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", to_string(quantity), row.line,
                                 run.num_ranks(), run.global_batch, run.micro_batch, run.hidden_size,
                                 run.attention_heads, run.layers, run.sequence_length, run.tensor, run.data,
                                 run.pipeline, run.vocabulary_size, run.virtual_stages, to_string(run.recomputation),
                                 run.sequence_parallel ? "yes" : "no", row.measured, predicted(run, cluster, quantity));
  if (quantity != MeasuredQuantity::iteration_time_ms) {
    return line + fmt::format(",{}\n", to_string(Basis::formula));
  }
  const IterationEstimate estimate = transformer_iteration(run, cluster);
  line += fmt::format(",{},{}", to_string(estimate.basis), estimate.layers_seconds / estimate.seconds);
  if (sensitivities) {
    for (const TransformerCostField& field : transformer_cost_fields()) {
      line += fmt::format(",{}", sensitivity(run, cluster, field));
    }
  }
  return line + "\n";
}

}  // namespace

std::string predicted_runs(const MeasuredRuns& runs, const Cluster& cluster, const std::string& file,
                           bool sensitivities) {
  std::string text = header(runs.quantity, sensitivities);
  for (const MeasuredRun& row : runs.rows) {
    text += line_of(row, completed(row, cluster, file), cluster, runs.quantity, sensitivities);
  }
  return text;
}

}  // namespace strata::predict

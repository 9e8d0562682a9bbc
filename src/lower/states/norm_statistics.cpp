#include "lower/states/norm_statistics.hpp"

#include <cmath>
#include <optional>

#include "ir/plan/stage_pyramid.hpp"

namespace strata {
namespace {

bool is_first_replica(const Plan& plan, const RankPlace& place, int rank) {
  const std::optional<StagePyramid> pyramid = pyramid_of(plan.mesh);
  return pyramid ? pyramid->replica_of(rank) == 0 : place.first_micro_batch == 0;
}

}  // namespace

NormStatistics::NormStatistics(const Plan& plan, const LaidOutGraph& model, const RankPlace& place,
                               ProgramBuilder& builder)
    : graph_(model.graph),
      builder_(builder),
      micro_batches_(plan.schedule.micro_batches),
      parts_(graph_.operators.size()),
      kept_(graph_.operators.size()),
      is_first_(is_first_replica(plan, place, builder.rank())) {
  for (const Stage& part : place.parts) {
    for (int o = part.first_operator; o < part.end(); ++o) {
      const Operator& op = graph_.operators[static_cast<std::size_t>(o)];
      if (op.kind != OperatorKind::batch_norm) continue;
      parts_[static_cast<std::size_t>(o)] = model.norm_parts.at(o);
      if (!model.norm_parts.at(o).is_kept) continue;
      const Parameter& weight = graph_.parameters[static_cast<std::size_t>(op.parameters.front())];
      const auto add = [&](const char* name) {
        return builder_.add_buffer({.name = weight.name + name,
                                    .num_elements = weight.num_elements(),
                                    .category = Category::optimizer,
                                    .persistent = true});
      };
      kept_[static_cast<std::size_t>(o)] = {add("/running_mean"), add("/running_variance")};
    }
  }
}

void NormStatistics::initialize(const Place& here) const {
  for (std::size_t o = 0; o < kept_.size(); ++o) {
    if (kept_[o].mean < 0) continue;
    const bool has_first_samples = is_first_ && parts_[o].index == 0;
    const auto fill = [&](int buffer, double value) {
      here.emit({.kernel = Kernel::fill,
                 .phase = Phase::setup,
                 .name = graph_.operators[o].name,
                 .outputs = {builder_.whole(buffer)},
                 .attributes = {{"elements", builder_.buffer(buffer).num_elements}, {"value", value}}});
    };
    fill(kept_[o].mean, 0.0);
    fill(kept_[o].variance, has_first_samples ? 1.0 : 0.0);
  }
}

void NormStatistics::behind_forward(const Place& here, int op, int micro_batch, bool is_first, std::int64_t rows,
                                    const Operand& statistics) const {
  const auto o = static_cast<std::size_t>(op);
  if (kept_[o].mean < 0) return;
  const Operator& norm = graph_.operators[o];
  const double momentum = norm.attributes.real("momentum");
  const int num = micro_batches_ * parts_[o].count;
  const int behind = num - 1 - (micro_batch * parts_[o].count + parts_[o].index);
  here.emit({.kernel = Kernel::running_statistics,
             .phase = Phase::metrics,
             .micro_batch = micro_batch,
             .name = norm.name,
             .inputs = {statistics},
             .outputs = {builder_.whole(kept_[o].mean), builder_.whole(kept_[o].variance)},
             .attributes = {{"rows", rows},
                            {"channels", norm.attributes.integer("channels")},
                            {"epsilon", norm.attributes.real("epsilon")},
                            {"decay", is_first ? std::pow(1.0 - momentum, num) : 1.0},
                            {"weight", momentum * std::pow(1.0 - momentum, behind)}}});
}

}  // namespace strata

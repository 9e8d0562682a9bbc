#include "ir/program/training_state.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

/// Outputs of an update that hold f32 state: the master value, then the optimizer's. A further one is the weight in the
/// dtype of the compute.
std::size_t num_states(Kernel kernel) {
  switch (kernel) {
    case Kernel::sgd: return 1;
    case Kernel::sgd_momentum: return 2;
    case Kernel::adam: return 3;
    default: return 0;
  }
}

/// "layer.weight/m", of a slice "layer.weight/slice[2]/m" → "m".
std::string state_name(const Buffer& buffer, const std::string& parameter) {
  STRATA_INVARIANT(buffer.name.starts_with(parameter + "/"), buffer.name + " is no state of " + parameter);
  return buffer.name.substr(buffer.name.rfind('/') + 1);
}

/// What the update of training step @p step makes where that of another one, @p other, makes the same part of the same
/// parameter: none if both make it in one place.
std::optional<Operand> made_before(const Program& program, const Instruction& other, std::int64_t step) {
  // The weight that kernels read is the last output: the master value itself, or behind all states.
  const auto weight = [&](const Instruction& in) {
    return in.outputs[in.outputs.size() > num_states(in.kernel) ? num_states(in.kernel) : 0];
  };
  for (const Instruction& in : program.body) {
    if (num_states(in.kernel) == 0 || !belongs_to(program, in, step)) continue;
    if (in.name == other.name && weight(in) != weight(other)) return weight(in);
  }
  return std::nullopt;
}

bool touches(const std::vector<Operand>& operands, int buffer) {
  return std::ranges::find(operands, buffer, &Operand::buffer) != operands.end();
}

/// True where another rank sends what @p buffer holds, to be read as the version before the last, and kernels of
/// training step @p step read it.
bool is_received_and_read_as_older(const Program& program, int buffer, std::int64_t step) {
  const bool is_received = std::ranges::any_of(program.body, [&](const Instruction& in) {
    return in.is_collective() && in.collective == Collective::recv && in.attributes.integer_or("version", 0) == 1 &&
           touches(in.outputs, buffer);
  });
  return is_received && std::ranges::any_of(program.body, [&](const Instruction& in) {
           return !in.is_collective() && belongs_to(program, in, step) && touches(in.inputs, buffer);
         });
}

}  // namespace

std::vector<KeptPart> kept_parts(const Program& program, std::int64_t last_step) {
  std::vector<KeptPart> parts;
  for (const Instruction& in : program.body) {
    const std::size_t count = num_states(in.kernel);
    if (count == 0 || in.outputs.front().num_elements == 0 || !belongs_to(program, in, last_step)) continue;
    const Operand& master = in.outputs.front();
    const Buffer& holder = program.buffers[static_cast<std::size_t>(master.buffer)];
    STRATA_INVARIANT(!holder.parameter.empty(), in.name + ": the update of no parameter");
    KeptPart part{.parameter = holder.parameter,
                  .begin = holder.parameter_begin + master.begin,
                  .block = holder.block,
                  .states = {},
                  .previous = made_before(program, in, last_step - 1)};
    part.states.push_back({"value", master});
    for (std::size_t i = 1; i < count; ++i) {
      const Buffer& state = program.buffers[static_cast<std::size_t>(in.outputs[i].buffer)];
      part.states.push_back({state_name(state, holder.parameter), in.outputs[i]});
    }
    parts.push_back(std::move(part));
  }
  for (const HeldWeight& weight : held_weights(program)) {
    if (!is_received_and_read_as_older(program, weight.buffer, last_step + 1)) continue;
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(weight.buffer)];
    parts.push_back({.parameter = weight.parameter,
                     .begin = buffer.parameter_begin,
                     .block = buffer.block,
                     .states = {},
                     .previous = Operand{weight.buffer, 0, buffer.num_elements}});
  }
  return parts;
}

bool is_older_version(const Program& program, int buffer, std::int64_t step) {
  bool is_updated = false;
  for (const Instruction& in : program.body) {
    if (num_states(in.kernel) == 0) continue;
    if (std::ranges::find(in.outputs, buffer, &Operand::buffer) == in.outputs.end()) continue;
    if (belongs_to(program, in, step)) return false;
    is_updated = true;
  }
  return is_updated;
}

std::vector<KeptStatistics> kept_statistics(const Program& program) {
  constexpr std::string_view mean = "/running_mean", variance = "/running_variance";
  std::vector<KeptStatistics> all;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const std::string& name = program.buffers[b].name;
    if (!program.buffers[b].persistent || !name.ends_with(mean)) continue;
    KeptStatistics kept{.weight = name.substr(0, name.size() - mean.size()), .mean = static_cast<int>(b)};
    const auto other = std::ranges::find(program.buffers, kept.weight + std::string(variance), &Buffer::name);
    STRATA_INVARIANT(other != program.buffers.end(), name + ": a mean without a variance");
    kept.variance = static_cast<int>(other - program.buffers.begin());
    kept.has_first_samples = std::ranges::any_of(program.prologue, [&](const Instruction& in) {
      return in.kernel == Kernel::fill && touches(in.outputs, kept.variance) && in.attributes.real("value") == 1.0;
    });
    all.push_back(std::move(kept));
  }
  return all;
}

std::vector<HeldWeight> held_weights(const Program& program) {
  std::vector<HeldWeight> weights;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (!buffer.persistent || buffer.category != Category::parameter) continue;
    weights.push_back({buffer.name.substr(0, buffer.name.find('/')), static_cast<int>(b)});  // without "/slice[2]"
  }
  return weights;
}

}  // namespace strata

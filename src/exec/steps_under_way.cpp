#include "exec/steps_under_way.hpp"

namespace strata {

int last_writer(const Program& program, int buffer) {
  int last = -1;
  for (int i = 0; i < static_cast<int>(program.body.size()); ++i) {
    const Instruction& in = program.body[static_cast<std::size_t>(i)];
    if (std::ranges::find(in.outputs, buffer, &Operand::buffer) == in.outputs.end()) continue;
    const auto late = [&](int j) { return repetitions_late(program, program.body[static_cast<std::size_t>(j)]); };
    if (last < 0 || late(i) >= late(last)) last = i;
  }
  return last;
}

}  // namespace strata

#include "exec/steps_under_way.hpp"

#include <algorithm>
#include <ranges>

namespace strata {

std::vector<int> last_writers(const Program& program, int buffer) {
  std::vector<int> last(static_cast<std::size_t>(program.steps_per_body), -1);  // by step of the body
  const auto at = [&](int i) -> const Instruction& { return program.body[static_cast<std::size_t>(i)]; };
  for (int i = 0; i < std::ssize(program.body); ++i) {
    if (std::ranges::find(at(i).outputs, buffer, &Operand::buffer) == at(i).outputs.end()) continue;
    for (int step = 0; step < program.steps_per_body; ++step) {
      int& of_step = last[static_cast<std::size_t>(step)];
      if (!belongs_to(program, at(i), step)) continue;
      if (of_step < 0 || repetitions_late(program, at(i)) >= repetitions_late(program, at(of_step))) of_step = i;
    }
  }
  std::erase(last, -1);
  return last;
}

}  // namespace strata

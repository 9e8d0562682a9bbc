#pragma once

/// @file
/// Which instructions of a Program's body run when. Repetition r of a body that holds K training steps runs an
/// instruction of relative step s for training step r·K + s. How many steps there will be is not known when a Program
/// is made: to begin, to end and to go on after a pause, the body is run as ever, without the instructions whose
/// training step is not one of those that are trained. A wait for an instruction that did not run is void. Executors,
/// the simulator, exports and verify() all ask here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Training steps [first, last].
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = -1;
  bool contains(std::int64_t step) const { return first <= step && step <= last; }
  bool operator==(const StepRange&) const = default;
};

/// Of an instruction in repetition @p repetition of the body.
inline std::int64_t training_step(const Program& program, const Instruction& instruction, std::int64_t repetition) {
  return repetition * program.steps_per_body + instruction.step;
}

/// True if @p instruction runs for training step @p step, in some repetition.
inline bool belongs_to(const Program& program, const Instruction& instruction, std::int64_t step) {
  return (step - instruction.step) % program.steps_per_body == 0;
}

/// The repetition of the body that holds training step @p step as one of its own, not as a rest of an earlier one.
inline std::int64_t repetition_of(const Program& program, std::int64_t step) { return step / program.steps_per_body; }

/// How many repetitions later than the one that training step @p step, relative, belongs to.
inline int repetitions_late(const Program& program, int step) {
  return step >= 0 ? 0 : (program.steps_per_body - 1 - step) / program.steps_per_body;
}
inline int repetitions_late(const Program& program, const Instruction& instruction) {
  return repetitions_late(program, instruction.step);
}

/// The most that any instruction is late: this many repetitions follow the last step's own, to end it.
int depth(const Program& program);

/// The largest lag of a wait of the body.
int largest_lag(const Program& program);

/// True if nothing of a repetition touches another one: it is enough to look at one.
bool is_repeated_alone(const Program& program);

/// True if a repetition holds one training step and leaves some of it to the next one at most. Then whatever an
/// instruction shares with one two or more repetitions earlier it shares with the same one of the repetition before its
/// own, which comes behind that one on its stream: it is enough to look at neighbours.
bool touches_neighbours_alone(const Program& program);

/// How many training steps before one, and behind it, may have something under way at the same time: none where nothing
/// of a repetition touches another one.
std::int64_t steps_beside(const Program& program);

/// Training steps that differ from those between them where steps overlap.
struct FillAndDrain {
  std::int64_t fill = 0;   ///< the first ones, and the first behind a pause
  std::int64_t drain = 0;  ///< the last ones, and the last before a pause
};
/// A step fills as long as there would be a step before the first one that has instructions beside its own, or that
/// they would wait for; it drains where there would be one behind the last that begins before it ends. None does where
/// nothing of a repetition touches another one, or, of those that drain, where nothing is left to later repetitions.
FillAndDrain fill_and_drain(const Program& program);

/// Steps from 0 on in which all that can meet does: a beginning, as many repetitions as may overlap, an end.
StepRange steps_that_meet(const Program& program);
/// Of the Programs of all ranks. @throws InternalError where their bodies hold unlike numbers of training steps.
StepRange steps_that_meet(const std::vector<Program>& programs);

/// Runs of steps, from where nothing is under way to where nothing is, that together have all that can meet: the one of
/// steps_that_meet(), and the shortest ones that begin with each step of a body. Two instructions that another step's
/// puts in order are not ordered in a run without that step.
std::vector<StepRange> runs_that_meet(const Program& program);

/// An instruction of a body in one of its repetitions.
struct Instance {
  int instruction = 0;  ///< index in the body
  std::int64_t repetition = 0;
  bool operator==(const Instance&) const = default;
};

/// Instructions one after the other: a section of a Program as it stands, or what runs of its body in some repetitions.
/// It refers to the Program's own instructions, which must not move.
class InstructionList {
 public:
  /// A section.
  InstructionList(const std::vector<Instruction>& section) : section_(section) {}
  InstructionList(std::vector<Instruction>&&) = delete;

  std::size_t size() const { return is_section() ? section_.size() : origin_.size(); }
  const Instruction& operator[](std::size_t i) const {
    return is_section() ? section_[i] : section_[static_cast<std::size_t>(origin_[i].instruction)];
  }
  /// What instruction @p i of the list waits for. Of repetitions they are without lag and count in this list, those of
  /// a join included: the waits of the instruction itself count in the body.
  std::span<const Wait> waits(std::size_t i) const {
    if (is_section()) return section_[i].waits;
    return std::span(waits_).subspan(first_wait_[i], first_wait_[i + 1] - first_wait_[i]);
  }
  bool is_section() const { return first_wait_.empty(); }
  /// Of repetitions: where instruction @p i of the list stands in the body.
  const Instance& origin(std::size_t i) const { return origin_[i]; }

 private:
  friend InstructionList unrolled(const Program& program, StepRange steps);

  std::span<const Instruction> section_;
  std::vector<Instance> origin_;
  std::vector<std::size_t> first_wait_;  ///< of each instruction of repetitions, and one behind the last
  std::vector<Wait> waits_;
};

/// The repetitions that train @p steps, as one list.
InstructionList unrolled(const Program& program, StepRange steps);

/// All of a body that can meet: the body itself where it is repeated alone, else the steps that meet, of which those of
/// neighbours are enough where it touches nothing else.
InstructionList body_as_it_meets(const Program& program);

/// The same Program with that list for its body, all of it one training step: for those who know no repetitions.
Program in_one_list(const Program& program, StepRange steps);

}  // namespace strata

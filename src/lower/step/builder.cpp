#include "lower/step/builder.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"
#include "lower/step/fusion.hpp"
#include "lower/step/logit_rows.hpp"
#include "lower/step/wait_finder.hpp"

namespace strata {

int Place::emit(Instruction&& instruction, std::span<const int> after) const {
  STRATA_INVARIANT(instruction.waits.empty(), "waits are found in finish()");
  ProgramBuilder::Section& section = builder_->of(position_.section);
  STRATA_INVARIANT(section.positions.empty() || section.positions.back().training_step <= position_.training_step,
                   "training steps are emitted one after the other");
  std::vector<Instruction>& instructions = builder_->instructions_of(position_.section);
  instruction.step += position_.step;
  section.positions.push_back(position_);
  section.after.emplace_back(after.begin(), after.end());
  instructions.push_back(std::move(instruction));
  return static_cast<int>(instructions.size()) - 1;
}

void Place::hold(int stream, int instruction) const {
  ProgramBuilder::Section& section = builder_->of(position_.section);
  section.holds.push_back({position_.training_step, static_cast<int>(section.positions.size()), stream, instruction});
}

void Place::reserve(int id) const {
  ProgramBuilder::Section& section = builder_->of(position_.section);
  section.reserved.emplace_back(static_cast<int>(section.positions.size()), id);
}

int Place::last_on(int stream) const {
  const ProgramBuilder::Section& section = builder_->of(position_.section);
  const std::vector<Instruction>& instructions = builder_->instructions_of(position_.section);
  for (std::size_t i = instructions.size(); i-- > 0;) {
    if (section.positions[i].training_step != position_.training_step) break;
    if (instructions[i].stream == stream) return static_cast<int>(i);
  }
  return -1;
}

ProgramBuilder::ProgramBuilder(int rank, int num_ranks, std::vector<std::string> streams) {
  program_.rank = rank;
  program_.num_ranks = num_ranks;
  program_.streams = std::move(streams);
}

void ProgramBuilder::make_room(std::size_t num_instructions) {
  program_.body.reserve(num_instructions);
  program_.buffers.reserve(num_instructions);
  body_.positions.reserve(num_instructions);
  body_.after.reserve(num_instructions);
}

int ProgramBuilder::add_buffer(Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  return static_cast<int>(program_.buffers.size()) - 1;
}

int ProgramBuilder::shared_buffer(const Buffer& buffer) {
  const auto known = std::ranges::find(program_.buffers, buffer.name, &Buffer::name);
  if (known == program_.buffers.end()) return add_buffer(buffer);
  STRATA_INVARIANT(*known == buffer && buffer.persistent, buffer.name + " is two buffers");
  return static_cast<int>(known - program_.buffers.begin());
}

int ProgramBuilder::add_group(Group group) {
  program_.groups.push_back(std::move(group));
  return static_cast<int>(program_.groups.size()) - 1;
}

/// Whether nothing of the order comes between @p before and the kernel emitted next, @p i. Of two items it does not
/// where the first ends and the second begins with kernels of one stream: no other instruction stands there to be
/// overtaken.
bool ProgramBuilder::is_same_work(const Section& section, std::size_t before, std::size_t i) const {
  const Place::Position& a = section.positions[before];
  const Place::Position& b = section.positions[i];
  if (a == b) return true;
  const Instruction& last = program_.body[before];
  const Instruction& first = program_.body[i];
  return a.training_step == b.training_step && a.step == b.step && last.stream == first.stream &&
         !last.is_collective() && !first.is_collective();
}

/// As emitted: whatever was said by an instruction's number is said of the one that computes it now.
void ProgramBuilder::fuse_body(const Fusions& fusions) {
  if (fusions == Fusions{}) return;
  std::vector<Instruction>& body = program_.body;
  Section& section = body_;
  std::vector<bool> begins(body.size() + 1, false);
  for (const Section::Hold& hold : section.holds) begins[static_cast<std::size_t>(hold.first)] = true;
  for (const auto& [instruction, buffer] : section.reserved) begins[static_cast<std::size_t>(instruction)] = true;
  std::vector<int> spans(body.size(), 0);
  for (std::size_t i = 1; i < body.size(); ++i) {
    const bool is_apart = begins[i] || !section.after[i].empty() || !is_same_work(section, i - 1, i);
    spans[i] = spans[i - 1] + (is_apart ? 1 : 0);
  }
  const std::vector<int> computed_by = fuse(fusions, body, spans);
  const auto is_left_out = [&](std::size_t i) { return computed_by[i] != static_cast<int>(i); };
  std::vector<int> num_before(body.size() + 1, 0);  // instructions that stay, before each number
  for (std::size_t i = 0; i < body.size(); ++i) num_before[i + 1] = num_before[i] + (is_left_out(i) ? 0 : 1);
  const auto now = [&](int instruction) {
    return num_before[static_cast<std::size_t>(computed_by[static_cast<std::size_t>(instruction)])];
  };
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (!is_left_out(i)) continue;
    std::vector<int>& after = section.after[static_cast<std::size_t>(computed_by[i])];
    after.insert(after.end(), section.after[i].begin(), section.after[i].end());
  }
  for (std::vector<int>& all : section.after) std::ranges::transform(all, all.begin(), now);
  for (Section::Hold& hold : section.holds) {
    hold.first = num_before[static_cast<std::size_t>(hold.first)];
    hold.instruction = now(hold.instruction);
  }
  for (auto& [instruction, buffer] : section.reserved) {
    instruction = num_before[static_cast<std::size_t>(instruction)];
  }
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (is_left_out(i)) continue;
    if (num_kept != i) {
      body[num_kept] = std::move(body[i]);
      section.positions[num_kept] = section.positions[i];
      section.after[num_kept] = std::move(section.after[i]);
    }
    ++num_kept;
  }
  body.resize(num_kept);
  section.positions.resize(num_kept);
  section.after.resize(num_kept);
  remove_unused_buffers();
}

/// What fused instructions handed to each other, and nothing else has to do with, is no buffer any more.
void ProgramBuilder::remove_unused_buffers() {
  const auto for_ids = [&](const auto& body) {
    for (auto* instructions : {&program_.prologue, &program_.body}) {
      for (Instruction& in : *instructions) {
        for (auto* operands : {&in.inputs, &in.outputs}) {
          for (Operand& operand : *operands) body(operand.buffer);
        }
      }
    }
    for (Section* section : {&prologue_, &body_}) {
      for (auto& [instruction, id] : section->reserved) body(id);
    }
    for (int* id : {&program_.loss_buffer, &program_.correct_buffer, &program_.norm_buffer}) {
      if (*id >= 0) body(*id);
    }
  };
  std::vector<Buffer>& buffers = program_.buffers;
  std::vector<bool> is_kept;
  for (const Buffer& buffer : buffers) is_kept.push_back(buffer.persistent);
  for_ids([&](int id) { is_kept[static_cast<std::size_t>(id)] = true; });
  std::vector<int> now(buffers.size());
  std::size_t num_kept = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!is_kept[b]) continue;
    now[b] = static_cast<int>(num_kept);
    if (num_kept != b) buffers[num_kept] = std::move(buffers[b]);
    ++num_kept;
  }
  buffers.resize(num_kept);
  for_ids([&](int& id) { id = now[static_cast<std::size_t>(id)]; });
}

/// Goes along a section as it was emitted, by itself for each of its training steps.
void ProgramBuilder::find_waits(Place::Section which) {
  const Section& section = of(which);
  std::vector<Instruction>& instructions = instructions_of(which);
  const auto num_streams = static_cast<int>(program_.streams.size());
  auto hold = section.holds.begin();
  for (std::size_t first = 0, end = 0; first < instructions.size(); first = end) {
    const int training_step = section.positions[first].training_step;
    WaitFinder finder(num_streams, program_.buffers.size());
    std::vector<std::vector<int>> held(program_.streams.size());  // by stream: what its next instruction waits for
    for (end = first; end < instructions.size() && section.positions[end].training_step == training_step; ++end) {
      for (; hold != section.holds.end() && hold->first <= static_cast<int>(end); ++hold) {
        if (hold->training_step == training_step) {
          held[static_cast<std::size_t>(hold->stream)].push_back(hold->instruction);
        }
      }
      Instruction& in = instructions[end];
      std::vector<int>& complete = held[static_cast<std::size_t>(in.stream)];
      complete.insert(complete.end(), section.after[end].begin(), section.after[end].end());
      for (int& before : complete) before -= static_cast<int>(first);
      for (const int before : finder.missing(in, complete)) in.waits.push_back({before, 0});
      complete.clear();
      finder.append(in, in.waits);
      for (Wait& wait : in.waits) wait.instruction += static_cast<int>(first);
    }
  }
}

void ProgramBuilder::add_reserved(Place::Section which) {
  std::vector<Instruction>& instructions = instructions_of(which);
  for (const auto& [instruction, buffer] : of(which).reserved) {
    if (instruction < std::ssize(instructions)) {
      instructions[static_cast<std::size_t>(instruction)].allocs.push_back(buffer);
    }
  }
}

/// Instructions were emitted step by step; a repetition has those of several steps, item by item. Who waits for one of
/// its own step that stands in an earlier repetition does so with the lag between the two.
void ProgramBuilder::put_items_in_order() {
  std::vector<Place::Position>& positions = body_.positions;
  const bool none_is_late = std::ranges::all_of(positions, [](const Place::Position& at) { return at.step >= 0; });
  if (none_is_late && std::ranges::is_sorted(positions, {}, &Place::Position::item)) return;
  std::vector<Instruction>& body = program_.body;
  std::vector<std::size_t> order(body.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) { return std::pair(positions[i].item, positions[i].is_behind); });
  std::vector<int> now(body.size());  // by number of emission
  for (std::size_t i = 0; i < order.size(); ++i) now[order[i]] = static_cast<int>(i);
  const auto late = [&](std::size_t i) { return repetitions_late(program_, positions[i].step); };
  std::vector<Instruction> sorted;
  sorted.reserve(body.size());
  std::vector<Place::Position> sorted_positions;
  for (const std::size_t i : order) {
    sorted_positions.push_back(positions[i]);
    Instruction& in = sorted.emplace_back(std::move(body[i]));
    for (Wait& wait : in.waits) {
      const auto before = static_cast<std::size_t>(wait.instruction);
      wait = {now[before], late(i) - late(before)};
    }
  }
  body = std::move(sorted);
  positions = std::move(sorted_positions);
}

namespace {

/// Of @p instructions on one stream, ascending, those that an instruction of relative training step @p own waits for to
/// come behind all that stand before number @p end of the body, or of the body @p lag repetitions earlier. The last of
/// them does not do where its step is none of a run's: so there is one of each step that is not between a later one's
/// and @p own.
std::vector<Wait> last_before(const Program& program, const std::vector<int>& instructions, int end, int lag, int own) {
  std::vector<Wait> waits;
  std::vector<int> steps;
  const auto visit = [&](int instruction, int late) {
    const int step = program.body[static_cast<std::size_t>(instruction)].step - late * program.steps_per_body;
    const auto [least, most] = std::minmax(step, own);
    if (std::ranges::any_of(steps, [&](int later) { return least <= later && later <= most; })) return;
    waits.push_back({instruction, late});
    steps.push_back(step);
  };
  const auto has_own = [&] { return !steps.empty() && steps.back() == own; };  // no other is needed then
  const auto behind = std::ranges::lower_bound(instructions, end);
  for (auto i = behind; i != instructions.begin() && !has_own();) visit(*--i, lag);
  for (auto i = instructions.end(); i != instructions.begin() && !has_own();) visit(*--i, lag + 1);
  return waits;
}

}  // namespace

/// What keep_messages_close() says, of a body whose items are in order.
void ProgramBuilder::wait_for_close_messages() {
  std::vector<Instruction>& body = program_.body;
  const int size = static_cast<int>(body.size());
  std::vector<int> kernels;
  std::vector<std::vector<int>> sent(program_.streams.size());  // by stream
  for (int i = 0; i < size; ++i) {
    const Instruction& in = body[static_cast<std::size_t>(i)];
    if (!in.is_collective()) kernels.push_back(i);
    if (in.is_collective() && in.collective == Collective::send) sent[static_cast<std::size_t>(in.stream)].push_back(i);
  }
  const auto come_behind = [&](int instruction, const std::vector<int>& others, int end, int lag) {
    Instruction& in = body[static_cast<std::size_t>(instruction)];
    for (const Wait& wait : last_before(program_, others, end, lag, in.step)) {
      if (std::ranges::find(in.waits, wait) == in.waits.end()) in.waits.push_back(wait);
    }
  };
  for (int i = 0; i < size; ++i) {
    const Instruction& in = body[static_cast<std::size_t>(i)];
    if (in.is_collective() && in.collective == Collective::recv) come_behind(i, kernels, i, 0);
  }
  const auto begin_of = [&](std::size_t pass) {
    const std::vector<Place::Position>& positions = body_.positions;
    return static_cast<int>(std::ranges::lower_bound(positions, passes_[pass], {}, &Place::Position::item) -
                            positions.begin());
  };
  for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
    const auto kernel = std::ranges::lower_bound(kernels, begin_of(pass));
    if (kernel == kernels.end()) continue;
    const std::size_t one_before = pass == 0 ? passes_.size() - 1 : pass - 1;
    for (const std::vector<int>& of_stream : sent) {
      come_behind(*kernel, of_stream, begin_of(one_before), pass == 0 ? 1 : 0);
    }
  }
}

namespace {

/// Goes along @p run, repetitions of the body of @p program, and adds to the body what is missing there.
/// @param complete the first repetitions of the run, so many, in which nothing is missing.  @return something was.
bool add_waits_of_a_run(Program& program, const InstructionList& run, std::int64_t complete) {
  bool has_grown = false;
  WaitFinder finder(static_cast<int>(program.streams.size()), program.buffers.size());
  std::vector<Wait> now;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const Instruction& in = run[i];
    const Instance& here = run.origin(i);
    if (here.repetition < complete) {
      finder.append(in, run.waits(i));
      continue;
    }
    std::vector<Wait>& waits = program.body[static_cast<std::size_t>(here.instruction)].waits;
    now.assign(run.waits(i).begin(), run.waits(i).end());
    for (const int before : finder.missing(in, {}, run.waits(i))) {
      now.push_back({before, 0});
      const Instance& there = run.origin(static_cast<std::size_t>(before));
      const Wait wait{there.instruction, static_cast<int>(here.repetition - there.repetition)};
      if (std::ranges::find(waits, wait) != waits.end()) continue;
      waits.push_back(wait);
      has_grown = true;
    }
    finder.append(in, now);
  }
  return has_grown;
}

}  // namespace

/// Of repetitions that meet, in runs that begin and end with any training step of the body. A run in which nothing is
/// missing any more stays so: waits are only added.
void ProgramBuilder::find_waits_across_repetitions() {
  Program& program = program_;
  const bool neighbours_are_enough = touches_neighbours_alone(program);
  // Of the first repetition of a run only its own step runs then, and find_waits() went along that.
  const std::int64_t complete_repetitions = neighbours_are_enough ? 1 : 0;
  std::vector<StepRange> complete;
  for (bool more_meet = true; more_meet;) {
    more_meet = false;
    for (const StepRange& steps : runs_that_meet(program)) {
      if (std::ranges::find(complete, steps) != complete.end()) continue;
      complete.push_back(steps);
      const bool has_grown = add_waits_of_a_run(program, unrolled(program, steps), complete_repetitions);
      if (has_grown && !neighbours_are_enough) more_meet = true;  // as lags are larger now
    }
  }
}

namespace {

/// Alloc at the first use, or where it was reserved before that; free at the last one. Uses follow each other as they
/// run for one training step: instructions of earlier steps stand in the list before some that run before them.
void add_lifetimes(const Program& program, std::vector<Instruction>& section) {
  const std::vector<Buffer>& buffers = program.buffers;
  std::vector<std::size_t> order(section.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto late = [&](std::size_t i) { return repetitions_late(program, section[i]); };
  if (!std::ranges::is_sorted(order, {}, late)) std::ranges::stable_sort(order, {}, late);  // mostly none is late
  std::vector<int> last(buffers.size(), -1);
  std::vector<bool> seen(buffers.size(), false);
  for (const std::size_t i : order) {
    Instruction& in = section[i];
    const auto lives = [&](int id) {
      const auto b = static_cast<std::size_t>(id);
      return buffers[b].persistent || seen[b];
    };
    std::erase_if(in.allocs, lives);
    for (const int id : in.allocs) seen[static_cast<std::size_t>(id)] = true;
    const auto visit = [&](int id) {
      const auto b = static_cast<std::size_t>(id);
      if (buffers[b].persistent) return;
      if (!seen[b]) in.allocs.push_back(id);
      seen[b] = true;
      last[b] = static_cast<int>(i);
    };
    // The workspace lies below the outputs: a kernel need not write all of it, so that only a top made of outputs shows
    // the arena's high-water mark to the byte.
    if (in.workspace >= 0) visit(in.workspace);
    for (const Operand& operand : in.outputs) visit(operand.buffer);
    for (const Operand& operand : in.inputs) visit(operand.buffer);
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (last[b] >= 0) section[static_cast<std::size_t>(last[b])].frees.push_back(static_cast<int>(b));
  }
}

}  // namespace

Program ProgramBuilder::finish(const KernelTraits& kernels) && {
  STRATA_INVARIANT(kernels.finds_waits || !kernels.assigns_addresses, "addresses are handed on by order");
  fuse_body(kernels.fusions);
  if (kernels.fusions.logit_rows_in_vectors) put_logit_rows_in_vectors(program_.body, program_.buffers);
  for (const Place::Section section : {Place::Section::prologue, Place::Section::body}) {
    if (kernels.finds_waits) find_waits(section);
    add_reserved(section);
  }
  for (auto* instructions : {&program_.prologue, &program_.body}) {
    for (Instruction& in : *instructions) {
      const std::int64_t bytes = in.is_collective() ? 0 : kernels.workspace_bytes(program_, in);
      if (bytes > 0) {
        in.workspace = add_buffer({.name = in.name + "/workspace",
                                   .num_elements = bytes,
                                   .dtype = DType::u8,
                                   .category = Category::workspace});
      }
    }
  }
  put_items_in_order();
  if (kernels.finds_waits && !passes_.empty()) wait_for_close_messages();
  for (auto* instructions : {&program_.prologue, &program_.body}) add_lifetimes(program_, *instructions);
  if (kernels.finds_waits && !program_.join) find_waits_across_repetitions();
  if (kernels.assigns_addresses) assign_addresses(program_);
  if (kernels.assigns_addresses && kernels.verifies) verify(program_);
  return std::move(program_);
}

}  // namespace strata

/// @file
/// What must hold before anything runs: a mistake found here is a message, found later it is a hang or a wrong number.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "ir/program/program.hpp"
#include "ir/program/races.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

/// Instructions that run one after the other: those of the prologue, of the body, or of repetitions of the body.
struct Section {
  std::string_view name;
  InstructionList instructions;
};

/// "#12", and of repetitions "#12 in repetition 1".
std::string place(const Section& section, std::size_t index) {
  if (section.instructions.is_section()) return fmt::format("#{}", index);
  const Instance& origin = section.instructions.origin(index);
  return fmt::format("#{} in repetition {}", origin.instruction, origin.repetition);
}

[[noreturn]] void fail(const Program& program, const Section& section, std::size_t index, const std::string& what) {
  const Instruction& in = section.instructions[index];
  throw InternalError(
      fmt::format("program of rank {}: {} {} {} of {}: {}", program.rank, section.name, place(section, index),
                  in.is_collective() ? to_string(in.collective) : kernel_signature(in.kernel).name, in.name, what));
}

/// Number of roles in a signature's list, and how many of them must be there.
struct Arity {
  int most = 0;
  int least = 0;
};
Arity arity(std::string_view roles) {
  Arity result;
  while (!roles.empty()) {
    const std::size_t comma = std::min(roles.find(','), roles.size());
    ++result.most;
    result.least += roles[comma - 1] == '?' ? 0 : 1;
    roles.remove_prefix(std::min(comma + 1, roles.size()));
  }
  return result;
}

struct Arities {
  Arity inputs, outputs;
};
/// As its signature says, which is read once and not for every instruction.
const Arities& arities(Kernel kernel) {
  static const std::vector<Arities> all = [] {
    std::vector<Arities> of_kernels;
    for (int k = 0; k < num_kernels(); ++k) {
      const KernelSignature& signature = kernel_signature(static_cast<Kernel>(k));
      of_kernels.push_back({arity(signature.inputs), arity(signature.outputs)});
    }
    return of_kernels;
  }();
  return all[static_cast<std::size_t>(kernel)];
}

/// Messages of a group from one rank to another are matched in one order, so both ends have them on one stream.
void verify_links(const Program& program, const Section& section) {
  std::map<std::tuple<int, Collective, int>, int> streams;  // by group, direction and peer
  for (std::size_t i = 0; i < section.instructions.size(); ++i) {
    const Instruction& in = section.instructions[i];
    if (!in.is_collective() || (in.collective != Collective::send && in.collective != Collective::recv)) continue;
    const auto [known, is_new] = streams.try_emplace({in.group, in.collective, in.root}, in.stream);
    if (known->second == in.stream) continue;
    fail(program, section, i,
         fmt::format("messages of group {} with member {} are on stream {} too",
                     program.groups[static_cast<std::size_t>(in.group)].name, in.root,
                     program.streams[static_cast<std::size_t>(known->second)]));
  }
}

/// An output where nothing is written would be read as if something were.
void verify_reduce(const Program& program, const Section& section, std::size_t index) {
  const Instruction& in = section.instructions[index];
  const Group& group = program.groups[static_cast<std::size_t>(in.group)];
  const bool is_root = group.ranks[static_cast<std::size_t>(in.root)] == program.rank;
  if (in.inputs.size() != 1 || in.outputs.size() != (is_root ? 1 : 0)) {
    fail(program, section, index,
         fmt::format("{} inputs and {} outputs {}; a reduce has an input, and at its root alone an output",
                     in.inputs.size(), in.outputs.size(), is_root ? "at the root" : "beside the root"));
  }
  if (!is_root) return;
  const auto describe_side = [&](const Operand& operand) {
    return fmt::format("{} {}", operand.num_elements,
                       to_string(program.buffers[static_cast<std::size_t>(operand.buffer)].dtype));
  };
  const std::string input = describe_side(in.inputs.front());
  const std::string output = describe_side(in.outputs.front());
  if (input != output) fail(program, section, index, fmt::format("reduces {} to {}", input, output));
}

/// Several tensors of one dtype that are gathered, scattered or broadcast together, each with an input and an output.
void verify_tensors(const Program& program, const Section& section, std::size_t index) {
  const Instruction& in = section.instructions[index];
  const auto num_members = static_cast<int>(program.groups[static_cast<std::size_t>(in.group)].ranks.size());
  const auto check = [&](bool condition, const char* what) {
    if (!condition) fail(program, section, index, what);
  };
  check(in.collective == Collective::all_gather || in.collective == Collective::reduce_scatter ||
            in.collective == Collective::broadcast,
        "several tensors in a collective that takes one");
  check(in.inputs.size() == in.outputs.size(), "several tensors, not each with an input and an output");
  check(in.pieces.empty(), "several tensors in pieces");
  check(in.roots.empty() || in.collective == Collective::broadcast, "roots of a collective that has none");
  check(in.roots.empty() || in.roots.size() == in.inputs.size(), "not as many roots as tensors");
  check(std::ranges::all_of(in.roots, [&](int root) { return root >= 0 && root < num_members; }),
        "a root outside of the group");
  const auto dtype_of = [&](const Operand& operand) {
    return program.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
  };
  for (const auto* operands : {&in.inputs, &in.outputs}) {
    check(std::ranges::all_of(*operands, [&](const Operand& o) { return dtype_of(o) == dtype_of(in.inputs.front()); }),
          "tensors of several dtypes in one collective");
  }
}

/// Pieces are of whom the group has, make up the operands, and are cut where the collective has several.
void verify_pieces(const Program& program, const Section& section, std::size_t index) {
  const Instruction& in = section.instructions[index];
  const Pieces& pieces = in.pieces;
  const std::size_t num_members = program.groups[static_cast<std::size_t>(in.group)].ranks.size();
  const auto member = std::ranges::find(program.groups[static_cast<std::size_t>(in.group)].ranks, program.rank) -
                      program.groups[static_cast<std::size_t>(in.group)].ranks.begin();
  const bool has_input = in.collective == Collective::reduce_scatter || in.collective == Collective::all_to_all;
  const bool has_output = in.collective == Collective::all_gather || in.collective == Collective::all_to_all;
  const auto check_side = [&](const std::vector<std::int64_t>& begins, bool is_cut, const char* side,
                              const std::vector<Operand>& operands, std::int64_t own) {
    const std::int64_t elements = operands.size() == 1 ? operands.front().num_elements : -1;
    const bool holds = is_cut ? begins.size() == num_members + 1 && begins.front() == 0 &&
                                    std::ranges::is_sorted(begins) && begins.back() == elements
                              : begins.empty() && elements == own;
    if (!holds) {
      fail(program, section, index,
           fmt::format("{} of {} elements with pieces that begin at {}, of {} members", side, elements,
                       fmt::join(begins, ","), num_members));
    }
    for (std::size_t m = 0; is_cut && m < num_members; ++m) {
      if (begins[m + 1] - begins[m] <= pieces.longest) continue;
      fail(program, section, index, fmt::format("a piece of more elements than the longest, {}", pieces.longest));
    }
  };
  const auto own_of = [&](const std::vector<std::int64_t>& begins) {
    return begins.size() == num_members + 1 ? piece_of(begins, static_cast<int>(member)).size() : -1;
  };
  check_side(pieces.input, has_input, "input", in.inputs, own_of(pieces.output));
  check_side(pieces.output, has_output, "output", in.outputs, own_of(pieces.input));
}

/// By group: the rank is one of its members, and only one.
std::vector<bool> memberships(const Program& program) {
  std::vector<bool> is_member;
  for (const Group& group : program.groups) is_member.push_back(std::ranges::count(group.ranks, program.rank) == 1);
  return is_member;
}

/// @param is_member by group: memberships(), looked up once for all collectives because a group may be all ranks.
void verify_operands(const Program& program, const Section& section, std::size_t index,
                     const std::vector<bool>& is_member) {
  const Instruction& in = section.instructions[index];
  const auto check = [&]<class... Args>(bool condition, fmt::format_string<const Args&...> what, const Args&... args) {
    if (!condition) fail(program, section, index, fmt::format(what, args...));
  };
  check(in.step < program.steps_per_body && (in.step == 0 || section.name == "body"), "training step {} in a {} of {}",
        in.step, section.name, program.steps_per_body);
  check(!in.is_collective() || section.name == "body",
        "a collective in the prologue, which gives initial values alone");
  check(in.stream >= 0 && in.stream < static_cast<int>(program.streams.size()), "no such stream");
  for (const auto* operands : {&in.inputs, &in.outputs}) {
    for (const Operand& operand : *operands) {
      check(operand.buffer >= 0 && operand.buffer < static_cast<int>(program.buffers.size()), "no such buffer");
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
      check(operand.begin >= 0 && operand.num_elements >= 0 &&
                operand.begin + operand.num_elements <= buffer.num_elements,
            "elements [{}, {}) of {}, which has {}", operand.begin, operand.begin + operand.num_elements, buffer.name,
            buffer.num_elements);
    }
  }
  const auto is_buffer = [&](int id) { return id >= 0 && id < static_cast<int>(program.buffers.size()); };
  check(in.workspace == -1 || is_buffer(in.workspace), "no such workspace buffer");
  check(std::ranges::all_of(in.allocs, is_buffer), "allocates a buffer that does not exist");
  check(std::ranges::all_of(in.frees, is_buffer), "frees a buffer that does not exist");
  for (const Wait& wait : in.waits) {
    // An earlier repetition has instructions behind this one too; only the body repeats.
    const std::size_t end = wait.lag > 0 && section.name == "body" ? section.instructions.size() : index;
    check(wait.lag >= 0 && (wait.lag == 0 || section.name == "body") && wait.instruction >= 0 &&
              wait.instruction < static_cast<int>(end),
          "dangling wait for #{}@-{}", wait.instruction, wait.lag);
  }
  if (in.is_collective()) {
    check(in.group >= 0 && in.group < static_cast<int>(program.groups.size()), "no such group");
    const auto& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
    check(is_member[static_cast<std::size_t>(in.group)], "this rank is not a member of the group");
    check(in.root >= 0 && in.root < static_cast<int>(ranks.size()), "root or peer outside of the group");
    const bool is_message = in.collective == Collective::send || in.collective == Collective::recv;
    check(!is_message || ranks[static_cast<std::size_t>(in.root)] != program.rank, "its peer is itself");
    check(in.inputs.size() + in.outputs.size() >= 1, "a collective without operands");
    if (num_tensors(in) > 1 || !in.roots.empty()) verify_tensors(program, section, index);
    if (in.collective == Collective::reduce) verify_reduce(program, section, index);
    if (!in.pieces.empty()) verify_pieces(program, section, index);
    return;
  }
  const KernelSignature& signature = kernel_signature(in.kernel);
  const auto within = [](std::size_t count, Arity a) {
    return static_cast<int>(count) >= a.least && static_cast<int>(count) <= a.most;
  };
  check(within(in.inputs.size(), arities(in.kernel).inputs), "{} inputs where ({}) are expected", in.inputs.size(),
        signature.inputs);
  check(within(in.outputs.size(), arities(in.kernel).outputs), "{} outputs where ({}) are expected", in.outputs.size(),
        signature.outputs);
}

/// Who holds which bytes of the arena. Ordered streams hide nothing here: two buffers that are alive at once may never
/// share a byte, even where every access is ordered.
class Occupancy {
 public:
  /// @return the buffer that is in the way, -1: none.
  int insert(const Buffer& buffer, int id) {
    const std::int64_t bytes = buffer.size_bytes();
    if (bytes == 0) return -1;
    const auto after = by_begin_.lower_bound(buffer.offset_bytes);
    if (after != by_begin_.end() && after->first < buffer.offset_bytes + bytes) return after->second.id;
    if (after != by_begin_.begin() && std::prev(after)->second.end > buffer.offset_bytes) {
      return std::prev(after)->second.id;
    }
    by_begin_.emplace(buffer.offset_bytes, Held{buffer.offset_bytes + bytes, id});
    return -1;
  }
  void erase(const Buffer& buffer) {
    if (buffer.size_bytes() > 0) by_begin_.erase(buffer.offset_bytes);
  }

 private:
  struct Held {
    std::int64_t end;
    int id;
  };
  std::map<std::int64_t, Held> by_begin_;
};

/// Every buffer has a place in the arena, and persistent ones each their own. @return what the persistent ones hold.
Occupancy verify_places(const Program& program) {
  Occupancy held;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.offset_bytes < 0 || buffer.offset_bytes % arena_alignment_bytes != 0 ||
        (buffer.size_bytes() > 0 && buffer.offset_bytes + buffer.size_bytes() > program.arena_bytes)) {
      throw InternalError(
          fmt::format("program of rank {}: buffer {} has no place in the arena", program.rank, buffer.name));
    }
    if (!buffer.persistent) continue;
    if (const int other = held.insert(buffer, static_cast<int>(id)); other >= 0) {
      throw InternalError(fmt::format("program of rank {}: persistent buffers {} and {} share an address", program.rank,
                                      program.buffers[static_cast<std::size_t>(other)].name, buffer.name));
    }
  }
  return held;
}

/// No two instructions, of the prologue or the body, allocate the same buffer. @return by buffer: one does.
std::vector<bool> verify_owners(const Program& program) {
  std::vector<bool> allocated(program.buffers.size(), false);
  for (const Section& section : {Section{"prologue", program.prologue}, Section{"body", program.body}}) {
    for (std::size_t i = 0; i < section.instructions.size(); ++i) {
      for (const int id : section.instructions[i].allocs) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
        if (allocated[static_cast<std::size_t>(id)] || buffer.persistent) {
          fail(program, section, i, fmt::format("{} is allocated twice or is persistent", buffer.name));
        }
        allocated[static_cast<std::size_t>(id)] = true;
      }
    }
  }
  return allocated;
}

/// Use only between alloc and free, no two at one address, nothing left at the end.
/// @param held by the persistent buffers.
void verify_lifetimes(const Program& program, const Section& section, Occupancy held) {
  std::vector<bool> alive(program.buffers.size(), false);
  const auto name = [&](int id) -> const std::string& { return program.buffers[static_cast<std::size_t>(id)].name; };
  for (std::size_t i = 0; i < section.instructions.size(); ++i) {
    const Instruction& in = section.instructions[i];
    for (const int id : in.allocs) {
      if (alive[static_cast<std::size_t>(id)]) {
        fail(program, section, i, fmt::format("{} is allocated while it lives", name(id)));
      }
      if (const int other = held.insert(program.buffers[static_cast<std::size_t>(id)], id); other >= 0) {
        fail(program, section, i, fmt::format("{} and {} are alive at one address", name(id), name(other)));
      }
      alive[static_cast<std::size_t>(id)] = true;
    }
    const auto use = [&](int id) {
      if (!program.buffers[static_cast<std::size_t>(id)].persistent && !alive[static_cast<std::size_t>(id)]) {
        fail(program, section, i, fmt::format("{} is used before it is allocated or after it is freed", name(id)));
      }
    };
    for (const Operand& operand : in.inputs) use(operand.buffer);
    for (const Operand& operand : in.outputs) use(operand.buffer);
    if (in.workspace >= 0) use(in.workspace);
    for (const int id : in.frees) {
      use(id);
      if (program.buffers[static_cast<std::size_t>(id)].persistent) {
        fail(program, section, i, fmt::format("{} is persistent and is freed", name(id)));
      }
      alive[static_cast<std::size_t>(id)] = false;
      held.erase(program.buffers[static_cast<std::size_t>(id)]);
    }
  }
  const auto left = std::ranges::find(alive, true);
  if (left == alive.end()) return;
  throw InternalError(fmt::format("program of rank {}: {} never frees {}", program.rank, section.name,
                                  name(static_cast<int>(left - alive.begin()))));
}

/// Any two accesses to common bytes, at least one of them a write, must be ordered.
void verify_races(const Program& program, const Section& section) {
  const std::optional<Race> race = find_race(program, section.instructions);
  if (!race) return;
  const auto name = [&](int id) -> const std::string& { return program.buffers[static_cast<std::size_t>(id)].name; };
  fail(program, section, static_cast<std::size_t>(race->later),
       fmt::format("not ordered after {}, which touches the same bytes ({} and {})",
                   place(section, static_cast<std::size_t>(race->earlier)), name(race->later_buffer),
                   name(race->earlier_buffer)));
}

/// Elements of one buffer that have been written: most buffers as one.
class Written {
 public:
  void add(std::int64_t begin, std::int64_t end) {
    const auto first = std::ranges::lower_bound(runs_, begin, {}, &Run::end);
    auto behind = first;
    for (; behind != runs_.end() && behind->begin <= end; ++behind) {
      begin = std::min(begin, behind->begin);
      end = std::max(end, behind->end);
    }
    if (first == behind) {
      runs_.insert(first, Run{begin, end});
    } else {
      *first = {begin, end};
      runs_.erase(std::next(first), behind);
    }
  }
  bool covers(std::int64_t begin, std::int64_t end) const {
    const auto run = std::ranges::lower_bound(runs_, end, {}, &Run::end);
    return begin == end || (run != runs_.end() && run->begin <= begin);
  }
  void clear() { runs_.clear(); }

 private:
  struct Run {
    std::int64_t begin, end;
  };
  std::vector<Run> runs_;  ///< ascending, disjoint, not touching
};

/// Nothing is read that nothing has written: a buffer's elements are defined from their first write in its lifetime,
/// those of persistent buffers from the prologue on. Order between streams is verify_races' concern.
/// @param written by buffer; persistent ones keep theirs from section to section.
void verify_definitions(const Program& program, const Section& section, std::vector<Written>& written) {
  for (std::size_t i = 0; i < section.instructions.size(); ++i) {
    const Instruction& in = section.instructions[i];
    for (const int id : in.allocs) written[static_cast<std::size_t>(id)].clear();
    const auto read = [&](const Operand& operand) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
      if (!written[static_cast<std::size_t>(operand.buffer)].covers(operand.begin,
                                                                    operand.begin + operand.num_elements)) {
        fail(program, section, i, fmt::format("{} is read before it is written", buffer.name));
      }
    };
    for (std::size_t o = 0; o < in.inputs.size(); ++o) {
      const bool is_root = !in.is_collective() || in.collective != Collective::broadcast ||
                           program.groups[static_cast<std::size_t>(in.group)]
                                   .ranks[static_cast<std::size_t>(root_of(in, static_cast<int>(o)))] == program.rank;
      if (is_root) read(in.inputs[o]);
    }
    const std::int64_t accumulates = in.attributes.integer_or("accumulate", 0);
    for (std::size_t o = 0; o < in.outputs.size(); ++o) {
      if (!in.is_collective() && (accumulates >> o & 1) != 0) read(in.outputs[o]);
      written[static_cast<std::size_t>(in.outputs[o].buffer)].add(in.outputs[o].begin,
                                                                  in.outputs[o].begin + in.outputs[o].num_elements);
    }
  }
}

bool on_one_stream(const InstructionList& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].stream != 0) return false;
  }
  return true;
}

}  // namespace

void verify(const Program& program) {
  const auto twice = [&](const auto& named, std::string_view what, const auto& name_of) {
    std::set<std::string_view> seen;
    for (const auto& one : named) {
      if (!seen.insert(name_of(one)).second) {
        throw InternalError(fmt::format("program of rank {}: two {}s are named {}", program.rank, what, name_of(one)));
      }
    }
  };
  twice(program.streams, "stream", [](const std::string& name) -> std::string_view { return name; });
  twice(program.groups, "group", [](const Group& group) -> std::string_view { return group.name; });
  const Occupancy held = verify_places(program);
  const std::vector<bool> is_member = memberships(program);
  const auto check_operands = [&](const Section& section) {
    for (std::size_t i = 0; i < section.instructions.size(); ++i) verify_operands(program, section, i, is_member);
  };
  if (program.steps_per_body < 1) {
    throw InternalError(
        fmt::format("program of rank {}: a body of {} training steps", program.rank, program.steps_per_body));
  }
  check_operands({"prologue", program.prologue});
  check_operands({"body", program.body});
  verify_links(program, {"body", program.body});
  const std::vector<bool> allocated = verify_owners(program);
  std::vector<Written> written(program.buffers.size());
  const auto check_order = [&](const Section& section) {
    verify_lifetimes(program, section, held);
    verify_definitions(program, section, written);
    if (!on_one_stream(section.instructions)) verify_races(program, section);
  };
  check_order({"prologue", program.prologue});
  if (is_repeated_alone(program)) {
    check_order({"body", program.body});
  } else {
    for (const StepRange& steps : runs_that_meet(program)) check_order({"body", unrolled(program, steps)});
  }
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].persistent || allocated[id]) continue;
    throw InternalError(
        fmt::format("program of rank {}: nothing allocates {}", program.rank, program.buffers[id].name));
  }
}

}  // namespace strata

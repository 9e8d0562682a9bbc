/// @file
/// Arena addresses: persistent buffers at the bottom, the others first fit in order of allocation. Streams run at their
/// own pace, so an address is handed on only to an instruction that starts after every access of its former owner has
/// completed.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ir/program/happens_before.hpp"
#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + arena_alignment_bytes - 1) / arena_alignment_bytes * arena_alignment_bytes;
}

/// One life of a buffer. It holds its address until all its accesses have completed.
struct Life {
  int buffer = -1;
  std::int64_t step = 0;  ///< the training step that it belongs to
  bool is_freed = false;  ///< by an instruction that has been passed
  int next = -1;          ///< the next life of its buffer, -1: none
};

/// Goes along a list of instructions and gives each buffer an address when it is first allocated. Where repetitions of
/// the body meet they are the list, and lifetimes lie on a circle: a buffer may be born in one repetition and die in a
/// later one, and it lives again in the next. Where such a later life meets another buffer that is not known to be
/// gone, the two are kept apart, and all begins again.
class Allocator {
 public:
  Allocator(Program& program, const InstructionList& list, std::int64_t base)
      : program_(program),
        list_(list),
        order_(list, static_cast<int>(program.streams.size())),
        base_(base),
        num_streams_(program.streams.size()),
        first_lives_(program.buffers.size(), -1) {
    find_lives();
  }

  /// @return the end of the highest address used.
  std::int64_t run() {
    while (!place_all()) {
    }
    return highest_;
  }

 private:
  struct Occupant {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    int life = -1;
  };

  Buffer& buffer(int id) { return program_.buffers[static_cast<std::size_t>(id)]; }
  Life& life(int id) { return lives_[static_cast<std::size_t>(id)]; }
  const Instruction& instruction(int i) const { return list_[static_cast<std::size_t>(i)]; }

  /// The life of buffer @p id in the training step of instruction @p i, -1: none, which verify() names.
  int life_at(int id, int i) const {
    const std::int64_t step = step_of(i);
    int l = first_lives_[static_cast<std::size_t>(id)];
    while (l >= 0 && lives_[static_cast<std::size_t>(l)].step != step) l = lives_[static_cast<std::size_t>(l)].next;
    return l;
  }
  /// The last one on each stream that touches life @p id, -1: none.
  std::span<int> accesses(int id) {
    return std::span(accesses_).subspan(static_cast<std::size_t>(id) * num_streams_, num_streams_);
  }
  /// The training step of an instruction. A section that is repeated alone may be looked at as a single one.
  std::int64_t step_of(int i) const {
    if (list_.is_section()) return 0;
    return training_step(program_, instruction(i), list_.origin(static_cast<std::size_t>(i)).repetition);
  }

  void find_lives() {
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      for (const int id : instruction(i).allocs) {
        int* end = &first_lives_[static_cast<std::size_t>(id)];
        while (*end >= 0) end = &life(*end).next;
        *end = static_cast<int>(lives_.size());
        lives_.push_back({.buffer = id, .step = step_of(i)});
      }
    }
    accesses_.assign(lives_.size() * num_streams_, -1);
    std::vector<int> alive(program_.buffers.size(), -1);
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      const Instruction& in = instruction(i);
      for (const int id : in.allocs) {
        if (std::exchange(alive[static_cast<std::size_t>(id)], i) < 0) continue;
        throw InternalError(fmt::format("program of rank {}: {} lives longer than a repetition of the body",
                                        program_.rank, buffer(id).name));
      }
      const auto touch = [&](int id) {
        const int l = life_at(id, i);
        // Only the last access of each stream matters: streams are in order.
        if (l >= 0) accesses(l)[static_cast<std::size_t>(in.stream)] = i;
      };
      for (const Operand& operand : in.inputs) touch(operand.buffer);
      for (const Operand& operand : in.outputs) touch(operand.buffer);
      if (in.workspace >= 0) touch(in.workspace);
      for (const int id : in.frees) {
        touch(id);
        alive[static_cast<std::size_t>(id)] = -1;
      }
    }
  }

  /// @return false where two buffers have to be kept apart that were not.
  bool place_all() {
    highest_ = base_;
    occupants_.assign(program_.streams.size(), {});
    is_placed_.assign(program_.buffers.size(), false);
    for (Life& one : lives_) one.is_freed = false;
    bool is_sound = true;
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      forget(i);
      for (const int id : instruction(i).allocs) {
        const int l = life_at(id, i);
        if (l == first_lives_[static_cast<std::size_t>(id)]) {
          buffer(id).offset_bytes = first_fit(id, i);
          is_placed_[static_cast<std::size_t>(id)] = true;
          // Nobody touches the place of what has no bytes.
          if (buffer(id).size_bytes() > 0) {
            highest_ = std::max(highest_, buffer(id).offset_bytes + buffer(id).size_bytes());
          }
        } else if (!stays_apart(id, i)) {
          is_sound = false;
        }
        const Occupant occupant{buffer(id).offset_bytes, buffer(id).offset_bytes + aligned(buffer(id).size_bytes()), l};
        for (std::vector<Occupant>& seen : occupants_) {
          seen.insert(std::ranges::upper_bound(seen, occupant.begin, {}, &Occupant::begin), occupant);
        }
      }
      for (const int id : instruction(i).frees) {
        if (const int l = life_at(id, i); l >= 0) life(l).is_freed = true;
      }
    }
    return is_sound;
  }

  /// What is gone for an instruction is gone for all later ones of its stream.
  void forget(int i) {
    std::erase_if(occupants_[static_cast<std::size_t>(instruction(i).stream)], [&](const Occupant& o) {
      const Life& one = life(o.life);
      return one.is_freed &&
             std::ranges::all_of(accesses(o.life), [&](int a) { return a < 0 || (a < i && order_.ordered(a, i)); });
    });
  }

  std::int64_t first_fit(int id, int i) {
    std::vector<Occupant> in_the_way = occupants_[static_cast<std::size_t>(instruction(i).stream)];
    const auto apart = apart_.find(id);
    for (const int other : apart == apart_.end() ? std::set<int>{} : apart->second) {
      if (!is_placed_[static_cast<std::size_t>(other)]) continue;  // it will keep away from this one
      const std::int64_t begin = buffer(other).offset_bytes;
      in_the_way.insert(std::ranges::upper_bound(in_the_way, begin, {}, &Occupant::begin),
                        {begin, begin + aligned(buffer(other).size_bytes()), -1});
    }
    std::int64_t candidate = base_;
    for (const Occupant& o : in_the_way) {
      if (candidate < o.end && o.begin < candidate + aligned(buffer(id).size_bytes())) candidate = o.end;
    }
    return candidate;
  }

  /// Of a buffer that has its address: nobody else is there. Whoever is will be kept apart in the next round.
  bool stays_apart(int id, int i) {
    const std::int64_t begin = buffer(id).offset_bytes;
    const std::int64_t end = begin + aligned(buffer(id).size_bytes());
    bool is_apart = true;
    for (const Occupant& o : occupants_[static_cast<std::size_t>(instruction(i).stream)]) {
      const int other = life(o.life).buffer;
      if (other == id || o.end <= begin || end <= o.begin) continue;
      apart_[id].insert(other);
      apart_[other].insert(id);
      is_apart = false;
    }
    return is_apart;
  }

  Program& program_;
  const InstructionList& list_;
  HappensBefore order_;
  std::int64_t base_;
  std::size_t num_streams_;
  std::int64_t highest_ = 0;
  std::vector<Life> lives_;
  std::vector<int> accesses_;                     ///< [life][stream]
  std::vector<int> first_lives_;                  ///< by buffer, -1: none
  std::map<int, std::set<int>> apart_{};          ///< by buffer that is kept apart from others
  std::vector<bool> is_placed_;                   ///< by buffer, in this round
  std::vector<std::vector<Occupant>> occupants_;  ///< by stream, sorted by begin: not known to be gone for its next
};

}  // namespace

void assign_addresses(Program& program) {
  std::int64_t base = 0;
  std::int64_t highest = 0;
  for (Buffer& buffer : program.buffers) {
    if (buffer.persistent) {
      buffer.offset_bytes = base;
      if (buffer.size_bytes() > 0) highest = base + buffer.size_bytes();
      base += aligned(buffer.size_bytes());
    }
  }
  const auto allocate = [&](const InstructionList& list) { return Allocator(program, list, base).run(); };
  const std::int64_t end_of_prologue = allocate(program.prologue);
  const std::int64_t end_of_body = allocate(body_as_it_meets(program));
  program.arena_bytes = std::max({highest, end_of_prologue, end_of_body});
}

}  // namespace strata

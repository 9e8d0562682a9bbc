/// @file
/// Arena addresses: persistent buffers at the bottom, the others first fit in order of allocation. Streams run at their
/// own pace, so an address is handed on only to an instruction that starts after every access of its former owner has
/// completed.

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <ranges>
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
  int born = 0;           ///< instruction that allocates it
  int number = 0;         ///< of its buffer's lives
  std::int64_t step = 0;  ///< the training step that it belongs to
  int next = -1;          ///< the next life of its buffer, -1: none
};

/// Goes along a list of instructions and gives each buffer an address when it is first allocated. Where repetitions of
/// the body meet they are the list, and lifetimes lie on a circle: a buffer may be born in one repetition and die in a
/// later one, and it lives again in the next. Where such a later life meets another buffer that is not known to be
/// gone, the two are kept apart, and all begins again. When a life is known to be gone does not depend on addresses: it
/// is found once, before the first round.
class Allocator {
 public:
  Allocator(Program& program, const InstructionList& list, std::int64_t base)
      : program_(program),
        list_(list),
        order_(list, static_cast<int>(program.streams.size())),
        base_(base),
        num_streams_(program.streams.size()),
        first_lives_(program.buffers.size(), -1),
        apart_(program.buffers.size()) {
    constexpr std::size_t most_streams = std::numeric_limits<Streams>::digits;
    if (num_streams_ > most_streams) {
      throw InternalError(
          fmt::format("program of rank {}: {} streams; {} at most", program.rank, num_streams_, most_streams));
    }
    find_lives();
    find_gone();
  }

  /// @return the end of the highest address used.
  std::int64_t run() {
    while (!place_all()) {
      for (std::vector<int>& others : apart_) {
        std::ranges::sort(others);
        others.erase(std::ranges::unique(others).begin(), others.end());
      }
      ++round_;
    }
    return highest_;
  }

 private:
  using Streams = std::uint64_t;  ///< a bit each
  static Streams bit_of(int stream) { return Streams{1} << stream; }

  struct Occupant {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    int life = -1;
    int number = 0;       ///< of the life
    Streams seen_by = 0;  ///< that do not know it to be gone, and allocate before they do

    bool is_seen_by(int stream) const { return (seen_by & bit_of(stream)) != 0; }
    bool is_gone() const { return seen_by == 0; }
  };

  /// What the next instructions of streams have to stay away from: of deep models thousands.
  class Occupants {
   public:
    Occupants() = default;
    Occupants(std::int64_t base, std::size_t num_streams) : base_(base), of_streams_(num_streams) {}

    void add(const Occupant& occupant) {
      const auto behind = std::ranges::upper_bound(sorted_, occupant.begin, {}, &Occupant::begin);
      if (behind != sorted_.begin() && std::prev(behind)->is_gone()) {
        *std::prev(behind) = occupant;
        --num_gone_;
      } else if (behind != sorted_.end() && behind->is_gone()) {
        *behind = occupant;
        --num_gone_;
      } else {
        sorted_.insert(behind, occupant);
      }
      most_bytes_ = std::max(most_bytes_, occupant.end - occupant.begin);
      for (int stream = 0; stream < static_cast<int>(of_streams_.size()); ++stream) {
        if (occupant.is_seen_by(stream)) ++num_seen(stream, occupant.number);
      }
    }

    /// @p stream knows that @p life is gone, which begins at @p begin.
    void remove(std::int64_t begin, int life, int stream) {
      const auto gone = std::find_if(std::ranges::lower_bound(sorted_, begin, {}, &Occupant::begin), sorted_.end(),
                                     [&](const Occupant& o) { return o.life == life; });
      gone->seen_by &= ~bit_of(stream);
      --num_seen(stream, gone->number);
      // What has room now and had none before lies between the one that begins before what went and the first that
      // begins behind it: others may stand in between, as streams know of each other late.
      const auto before = std::find_if(std::reverse_iterator(gone), sorted_.rend(),
                                       [&](const Occupant& o) { return o.is_seen_by(stream); });
      const auto behind = std::find_if(std::next(gone), sorted_.end(),
                                       [&](const Occupant& o) { return o.begin >= gone->end && o.is_seen_by(stream); });
      const std::int64_t least_free = before == sorted_.rend() ? base_ : std::min(begin, before->end);
      const std::int64_t end_of_room =
          behind == sorted_.end() ? std::numeric_limits<std::int64_t>::max() : behind->begin;
      for (LeastBegin& least : of_stream(stream).least_begins) {
        if (least.bytes <= end_of_room - least_free) least.begin = std::min(least.begin, least_free);
      }
      if (gone->is_gone() && 2 * ++num_gone_ > std::ssize(sorted_)) {
        std::erase_if(sorted_, [](const Occupant& o) { return o.is_gone(); });
        num_gone_ = 0;
      }
    }

    /// Lives of other numbers than @p number.
    std::int64_t num_seen_but(int number, int stream) {
      std::int64_t all = -num_seen(stream, number);
      for (const std::int64_t of_one : of_stream(stream).num_seen) all += of_one;
      return all;
    }

    /// By begin, those that @p stream sees, but for the first ones, of which all end at @p address or before. They may
    /// overlap, as streams know of each other late.
    auto seen_by(int stream, std::int64_t address) const {
      const auto first = std::ranges::upper_bound(sorted_, address - most_bytes_, {}, &Occupant::begin);
      return std::ranges::subrange(first, sorted_.end()) |
             std::views::filter([stream](const Occupant& o) { return o.is_seen_by(stream); });
    }
    auto seen_by(int stream) const { return seen_by(stream, base_ - 1); }

    /// Below it nothing of @p bytes has room for @p stream. It is for who finds room to raise it.
    std::int64_t& least_begin_of(std::int64_t bytes, int stream) {
      std::vector<LeastBegin>& least = of_stream(stream).least_begins;
      const auto known = std::ranges::find(least, bytes, &LeastBegin::bytes);
      return known != least.end() ? known->begin : least.emplace_back(LeastBegin{bytes, base_}).begin;
    }

   private:
    struct LeastBegin {
      std::int64_t bytes = 0;
      std::int64_t begin = 0;
    };
    struct OfStream {
      std::vector<std::int64_t> num_seen{};    ///< by number of the life
      std::vector<LeastBegin> least_begins{};  ///< of each size that was placed; a Program has few
    };

    std::int64_t& num_seen(int stream, int number) {
      std::vector<std::int64_t>& by_number = of_stream(stream).num_seen;
      const auto n = static_cast<std::size_t>(number);
      if (n >= by_number.size()) by_number.resize(n + 1);
      return by_number[n];
    }
    OfStream& of_stream(int stream) { return of_streams_[static_cast<std::size_t>(stream)]; }

    std::int64_t base_ = 0;  ///< where the first may begin
    std::int64_t most_bytes_ = 0;
    /// By begin. What is gone stays until another one comes to its place, mostly to the same address, or most are gone:
    /// to move all that stand behind one that comes or goes takes longer than anything else here.
    std::vector<Occupant> sorted_;
    std::int64_t num_gone_ = 0;
    std::vector<OfStream> of_streams_;
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
        int number = 0;
        for (; *end >= 0; ++number) end = &life(*end).next;
        *end = static_cast<int>(lives_.size());
        lives_.push_back({.buffer = id, .born = i, .number = number, .step = step_of(i)});
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

  /// What is gone for an instruction is gone for all later ones of its stream. A stream that allocates nothing between
  /// a life's birth and its end never meets it.
  void find_gone() {
    Streams allocating = 0;
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      if (!instruction(i).allocs.empty()) allocating |= bit_of(instruction(i).stream);
    }
    gone_.resize(list_.size());
    seen_by_.assign(lives_.size(), allocating);
    std::vector<int> last_alloc(num_streams_, -1);  // by stream: the last instruction so far that allocates
    const auto meets = [&](int stream, int l) { return last_alloc[static_cast<std::size_t>(stream)] >= life(l).born; };
    // By stream: freed by an instruction that has been passed, and not known to be gone for the stream's next one.
    std::vector<std::vector<int>> freed(num_streams_);
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      const int stream = instruction(i).stream;
      std::erase_if(freed[static_cast<std::size_t>(stream)], [&](int l) {
        const bool is_gone =
            std::ranges::all_of(accesses(l), [&](int a) { return a < 0 || (a < i && order_.ordered(a, i)); });
        if (!is_gone) return false;
        if (meets(stream, l)) {
          gone_[static_cast<std::size_t>(i)].push_back(l);
        } else {
          seen_by_[static_cast<std::size_t>(l)] &= ~bit_of(stream);
        }
        return true;
      });
      if (!instruction(i).allocs.empty()) last_alloc[static_cast<std::size_t>(stream)] = i;
      for (const int id : instruction(i).frees) {
        const int l = life_at(id, i);
        for (std::size_t s = 0; l >= 0 && s < num_streams_; ++s) {
          if ((allocating & bit_of(static_cast<int>(s))) != 0) freed[s].push_back(l);
        }
      }
    }
    for (int stream = 0; stream < static_cast<int>(num_streams_); ++stream) {
      for (int l = 0; l < static_cast<int>(lives_.size()); ++l) {
        if (!meets(stream, l)) seen_by_[static_cast<std::size_t>(l)] &= ~bit_of(stream);
      }
    }
  }

  /// @return false where two buffers have to be kept apart that were not.
  bool place_all() {
    highest_ = base_;
    occupants_ = Occupants(base_, num_streams_);
    is_placed_.assign(program_.buffers.size(), false);
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
        } else if (!stays_apart(l, i)) {
          is_sound = false;
        }
        occupants_.add(occupant_of(id, l));
      }
    }
    return is_sound;
  }

  Occupant occupant_of(int id, int l) {
    const std::int64_t begin = buffer(id).offset_bytes;
    return {.begin = begin,
            .end = begin + aligned(buffer(id).size_bytes()),
            .life = l,
            .number = l < 0 ? 0 : life(l).number,
            .seen_by = l < 0 ? 0 : seen_by_[static_cast<std::size_t>(l)]};
  }

  void forget(int i) {
    for (const int l : gone_[static_cast<std::size_t>(i)]) {
      occupants_.remove(buffer(life(l).buffer).offset_bytes, l, instruction(i).stream);
    }
  }

  std::int64_t first_fit(int id, int i) {
    kept_apart_.clear();
    for (const int other : apart_[static_cast<std::size_t>(id)]) {
      // What has no address yet will keep away from this one.
      if (is_placed_[static_cast<std::size_t>(other)]) kept_apart_.push_back(occupant_of(other, -1));
    }
    std::ranges::sort(kept_apart_, {}, &Occupant::begin);
    // What has no bytes is put where there would be room for some.
    const std::int64_t bytes = std::max(aligned(buffer(id).size_bytes()), arena_alignment_bytes);
    std::int64_t& least_begin = occupants_.least_begin_of(bytes, instruction(i).stream);
    std::int64_t candidate = least_begin;
    // Both are in order of their begins: behind one that begins behind the candidate so do all.
    const auto pass = [&](auto& next, auto end) {
      for (; next != end && next->begin < candidate + bytes; ++next) candidate = std::max(candidate, next->end);
    };
    auto seen = occupants_.seen_by(instruction(i).stream, candidate);
    auto next = seen.begin();
    auto next_apart = kept_apart_.begin();
    std::int64_t before = -1;
    while (std::exchange(before, candidate) != candidate) {
      pass(next, seen.end());
      pass(next_apart, kept_apart_.end());
    }
    if (kept_apart_.empty()) least_begin = candidate;
    return candidate;
  }

  /// Of a later life of a buffer, which has its address: nobody else is there. Where somebody is, the next round keeps
  /// the buffer apart from all that live when it does, not only from who is there now; and where that was not enough,
  /// the third round every buffer, unless those are too many to note. The address that a buffer has in the end keeps
  /// away from all of them either way, and is found in fewer rounds. Two of which each lives for the second time also
  /// met when they lived for the first, and were kept apart as they were placed: nothing is noted of them, unless they
  /// were not.
  bool stays_apart(int l, int i) {
    const int id = life(l).buffer, number = life(l).number;
    constexpr std::int64_t most_noted = std::int64_t{1} << 24;
    const std::int64_t begin = buffer(id).offset_bytes;
    const std::int64_t end = begin + aligned(buffer(id).size_bytes());
    const int stream = instruction(i).stream;
    bool is_apart = true;
    for (const Occupant& o : occupants_.seen_by(stream, begin)) {
      if (!is_apart || o.begin >= end) break;
      is_apart = o.end <= begin || life(o.life).buffer == id;
    }
    const std::int64_t num_others = occupants_.num_seen_but(number, stream);
    if (round_ == 0) num_met_ += num_others;
    if (is_apart && (round_ != 1 || num_met_ > most_noted || num_others == 0)) return true;
    for (const Occupant& o : occupants_.seen_by(stream)) {
      const int other = life(o.life).buffer;
      const bool is_here = o.begin < end && begin < o.end;
      if (other == id || (o.number == number && !is_here)) continue;
      apart_[static_cast<std::size_t>(id)].push_back(other);
      apart_[static_cast<std::size_t>(other)].push_back(id);
    }
    return is_apart;
  }

  Program& program_;
  const InstructionList& list_;
  HappensBefore order_;
  std::int64_t base_;
  std::size_t num_streams_;
  std::int64_t highest_ = 0;
  int round_ = 0;
  std::int64_t num_met_ = 0;  ///< lives of other numbers that later lives meet
  std::vector<Life> lives_;
  std::vector<int> accesses_;            ///< [life][stream]
  std::vector<int> first_lives_;         ///< by buffer, -1: none
  std::vector<Streams> seen_by_;         ///< by life: see Occupant
  std::vector<std::vector<int>> gone_;   ///< by instruction: lives, first known to be gone on its stream
  std::vector<std::vector<int>> apart_;  ///< by buffer: those that it is kept apart from
  std::vector<Occupant> kept_apart_;     ///< those, as the buffer is placed
  std::vector<bool> is_placed_;          ///< by buffer, in this round
  Occupants occupants_;
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

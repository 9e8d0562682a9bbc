#include "ir/program/races.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "ir/program/happens_before.hpp"

namespace strata {
namespace {

struct Access {
  int instruction = -1, buffer = -1;
};

/// Bytes [begin, end) of the arena.
struct Range {
  std::int64_t begin = 0, end = 0;
};

Range range_of(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
  const std::int64_t begin = buffer.offset_bytes + operand.begin * size_of(buffer.dtype);
  return {begin, begin + operand.num_elements * size_of(buffer.dtype)};
}

/// By byte, the accesses that a later one may not be ordered after: the last write, and of each stream its last read
/// since. What came before them is ordered before them, or was found to be a race.
class LastAccesses {
 public:
  LastAccesses(const InstructionList& list, const HappensBefore& order) : list_(list), order_(order) {}

  /// @return what @p access, a read, is not ordered after.
  std::optional<Access> read(Range range, Access access) {
    if (range.begin == range.end) return std::nullopt;
    std::int64_t known = range.begin;  // up to here
    auto next = first_within(range);
    while (known < range.end) {
      if (next == pieces_.end() || next->first > known) {
        const std::int64_t end = next == pieces_.end() ? range.end : std::min(range.end, next->first);
        next = pieces_.emplace_hint(next, known, Piece{.end = end});
      }
      Piece& piece = next->second;
      if (races(piece.write, access)) return piece.write;
      add_read(piece, access);
      known = piece.end;
      ++next;
    }
    return std::nullopt;
  }

  /// @return what @p access, a write, is not ordered after.
  std::optional<Access> write(Range range, Access access) {
    if (range.begin == range.end) return std::nullopt;
    const auto first = first_within(range);
    auto last = first;
    for (; last != pieces_.end() && last->first < range.end; ++last) {
      const Piece& piece = last->second;
      if (races(piece.write, access)) return piece.write;
      for (const Access& before : piece.reads) {
        if (races(before, access)) return before;
      }
    }
    if (first == last || first->first != range.begin) {
      pieces_.emplace_hint(pieces_.erase(first, last), range.begin, Piece{.end = range.end, .write = access});
      return std::nullopt;
    }
    pieces_.erase(std::next(first), last);
    Piece& piece = first->second;
    piece.end = range.end;
    piece.write = access;
    piece.reads.clear();
    return std::nullopt;
  }

 private:
  /// Bytes from its key on, all with the same accesses.
  struct Piece {
    std::int64_t end = 0;
    Access write{};
    std::vector<Access> reads{};  ///< of different streams
  };

  /// An instruction is in no race with itself: kernels say which of their operands may share bytes.
  bool races(const Access& before, const Access& now) const {
    return before.instruction >= 0 && before.instruction != now.instruction &&
           !order_.ordered(before.instruction, now.instruction);
  }

  int stream_of(const Access& access) const { return list_[static_cast<std::size_t>(access.instruction)].stream; }

  void add_read(Piece& piece, const Access& access) const {
    const auto same = std::ranges::find(piece.reads, stream_of(access), [&](const Access& a) { return stream_of(a); });
    if (same == piece.reads.end()) {
      piece.reads.push_back(access);
    } else {
      *same = access;
    }
  }

  /// The first piece that begins in @p range or behind it, once none reaches over either end of the range.
  std::map<std::int64_t, Piece>::iterator first_within(Range range) {
    const auto first = pieces_.lower_bound(range.begin);
    // Most accesses are to what has been accessed as one before.
    if (first != pieces_.end() && first->first == range.begin && first->second.end == range.end) return first;
    split_at(range.begin);
    split_at(range.end);
    return pieces_.lower_bound(range.begin);
  }

  void split_at(std::int64_t at) {
    const auto behind = pieces_.lower_bound(at);
    if (behind == pieces_.begin()) return;
    const auto piece = std::prev(behind);
    if (piece->second.end <= at) return;
    Piece second = piece->second;
    piece->second.end = at;
    pieces_.emplace_hint(behind, at, std::move(second));
  }

  const InstructionList& list_;
  const HappensBefore& order_;
  std::map<std::int64_t, Piece> pieces_;  ///< by the first byte; they do not overlap
};

}  // namespace

std::optional<Race> find_race(const Program& program, const InstructionList& list) {
  const HappensBefore order(list, static_cast<int>(program.streams.size()));
  LastAccesses last(list, order);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Instruction& in = list[i];
    std::optional<Race> race;
    const auto access = [&](const Operand& operand, bool writes) {
      const Access now{static_cast<int>(i), operand.buffer};
      const Range range = range_of(program, operand);
      const std::optional<Access> before = writes ? last.write(range, now) : last.read(range, now);
      if (before) race = Race{before->instruction, now.instruction, before->buffer, now.buffer};
      return race.has_value();
    };
    for (const Operand& operand : in.inputs) {
      if (access(operand, false)) return race;
    }
    for (const Operand& operand : in.outputs) {
      if (access(operand, true)) return race;
    }
    if (in.workspace < 0) continue;
    const Buffer& workspace = program.buffers[static_cast<std::size_t>(in.workspace)];
    if (access({in.workspace, 0, workspace.num_elements}, true)) return race;
  }
  return std::nullopt;
}

}  // namespace strata

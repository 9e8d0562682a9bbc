/// @file
/// What must hold of all ranks' Programs together, found by running through them under rendezvous: nothing is buffered.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

std::string describe(const Instruction& in, int index) {
  return fmt::format("body #{} {} of {}", index,
                     in.is_collective() ? to_string(in.collective) : kernel_signature(in.kernel).name, in.name);
}

bool is_point_to_point(const Instruction& in) {
  return in.is_collective() && (in.collective == Collective::send || in.collective == Collective::recv);
}

/// What all ranks run one after the other, executed in lock step under rendezvous: an instruction runs when it heads
/// its stream, its waits are complete and, for a collective, all members stand at the matching one.
class Rendezvous {
 public:
  /// @param lists of each rank, waits without lag.
  Rendezvous(const std::vector<Program>& programs, std::vector<InstructionList> lists)
      : programs_(programs), lists_(std::move(lists)) {}

  void run() {
    const auto num_ranks = programs_.size();
    heads_.resize(num_ranks);
    complete_.resize(num_ranks);
    queues_.resize(num_ranks);
    for (std::size_t r = 0; r < num_ranks; ++r) {
      const InstructionList& instructions = lists_[r];
      queues_[r].resize(programs_[r].streams.size());
      heads_[r].assign(programs_[r].streams.size(), 0);
      complete_[r].assign(instructions.size(), false);
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        queues_[r][static_cast<std::size_t>(instructions[i].stream)].push_back(static_cast<int>(i));
      }
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t r = 0; r < num_ranks; ++r) {
        for (std::size_t s = 0; s < queues_[r].size(); ++s) {
          while (try_head(r, s)) progress = true;
        }
      }
    }
    report_stuck();
  }

 private:
  const Instruction& at(std::size_t rank, int index) const { return lists_[rank][static_cast<std::size_t>(index)]; }

  /// Index of the instruction that heads the stream if its waits are complete, else -1.
  int ready_head(std::size_t rank, std::size_t stream) const {
    const auto& queue = queues_[rank][stream];
    const std::size_t head = heads_[rank][stream];
    if (head >= queue.size()) return -1;
    const int index = queue[head];
    for (const Wait& wait : lists_[rank].waits(static_cast<std::size_t>(index))) {
      if (!complete_[rank][static_cast<std::size_t>(wait.instruction)]) return -1;
    }
    return index;
  }

  void finish(std::size_t rank, std::size_t stream, int index) {
    complete_[rank][static_cast<std::size_t>(index)] = true;
    ++heads_[rank][stream];
  }

  /// A ready head of @p rank that belongs to the same operation as @p in of rank @p asker. @return its stream, or npos.
  std::size_t partner(std::size_t rank, const Instruction& in, const Group& group, std::size_t asker) const {
    const Program& other = programs_[rank];
    for (std::size_t s = 0; s < queues_[rank].size(); ++s) {
      const int index = ready_head(rank, s);
      if (index < 0) continue;
      const Instruction& candidate = at(rank, index);
      if (!candidate.is_collective() || other.groups[static_cast<std::size_t>(candidate.group)].name != group.name ||
          other.streams[s] != programs_[asker].streams[static_cast<std::size_t>(in.stream)]) {
        continue;
      }
      // A message to or from somebody else has to pass first: its members may still come to this operation.
      if (is_point_to_point(in) != is_point_to_point(candidate)) continue;
      if (is_point_to_point(in) && (candidate.collective == in.collective ||
                                    group.ranks[static_cast<std::size_t>(candidate.root)] != static_cast<int>(asker))) {
        continue;
      }
      return s;
    }
    return npos;
  }

  /// Full tensors: the larger sides of a gather or scatter. Equal bytes of another dtype are another tensor. Of an
  /// exchange in pieces members have unequal tensors: what they agree on is the longest piece.
  struct Payload {
    std::vector<std::int64_t> num_elements;  ///< by tensor
    DType dtype = DType::f32;
    std::int64_t longest_piece = 0;
    bool operator==(const Payload&) const = default;
    std::string text() const {
      return longest_piece == 0 ? fmt::format("{} {}", fmt::join(num_elements, " + "), to_string(dtype))
                                : fmt::format("{} {} in pieces of {} at most", fmt::join(num_elements, " + "),
                                              to_string(dtype), longest_piece);
    }
  };
  /// What two members of an exchange in pieces send is what they receive.
  static bool pieces_agree(const Instruction& a, int index_of_a, const Instruction& b, int index_of_b) {
    if (a.pieces.empty() || b.pieces.empty()) return a.pieces.empty() == b.pieces.empty();
    if (a.collective != Collective::all_to_all) return a.pieces == b.pieces;
    const auto has_all = [&](const Pieces& pieces) {
      const auto least = static_cast<std::size_t>(std::max(index_of_a, index_of_b)) + 2;
      return pieces.input.size() >= least && pieces.output.size() >= least;
    };
    if (!has_all(a.pieces) || !has_all(b.pieces)) return false;
    return piece_of(a.pieces.input, index_of_b).size() == piece_of(b.pieces.output, index_of_a).size() &&
           piece_of(b.pieces.input, index_of_a).size() == piece_of(a.pieces.output, index_of_b).size();
  }
  Payload payload(std::size_t rank, const Instruction& in) const {
    Payload result;
    for (int t = 0; t < num_tensors(in); ++t) {
      const Operand& full = full_operand(in, t);
      result.num_elements.push_back(full.num_elements);
      result.dtype = programs_[rank].buffers[static_cast<std::size_t>(full.buffer)].dtype;
    }
    result.longest_piece = in.pieces.longest;
    if (in.collective == Collective::all_to_all && !in.pieces.empty()) result.num_elements = {0};
    return result;
  }

  bool try_head(std::size_t rank, std::size_t stream) {
    const int index = ready_head(rank, stream);
    if (index < 0) return false;
    const Instruction& in = at(rank, index);
    if (!in.is_collective()) {
      finish(rank, stream, index);
      return true;
    }
    const Group& group = programs_[rank].groups[static_cast<std::size_t>(in.group)];
    std::vector<int> members = group.ranks;
    const bool point_to_point = is_point_to_point(in);
    if (point_to_point) {
      members = {static_cast<int>(rank), group.ranks[static_cast<std::size_t>(in.root)]};
    }
    std::vector<std::pair<std::size_t, std::size_t>> heads;
    for (const int member : members) {
      const auto m = static_cast<std::size_t>(member);
      const std::size_t s = m == rank ? stream : partner(m, in, group, rank);
      if (s == npos) return false;
      const int other_index = ready_head(m, s);
      const Instruction& other = at(m, other_index);
      const auto index_of = [&](int r) { return static_cast<int>(std::ranges::find(members, r) - members.begin()); };
      const bool kinds_agree =
          point_to_point || (in.collective == other.collective && in.root == other.root && in.roots == other.roots &&
                             in.reduction == other.reduction &&
                             pieces_agree(in, index_of(static_cast<int>(rank)), other, index_of(member)));
      if (!kinds_agree || payload(rank, in) != payload(m, other)) {
        throw InternalError(fmt::format("mismatched collectives in group {}: rank {} {} ({}), rank {} {} ({})",
                                        group.name, rank, describe(in, index), payload(rank, in).text(), m,
                                        describe(other, other_index), payload(m, other).text()));
      }
      heads.emplace_back(m, s);
    }
    for (const auto& [m, s] : heads) {
      finish(m, s, ready_head(m, s));
    }
    return true;
  }

  void report_stuck() const {
    std::string stuck;
    for (std::size_t r = 0; r < queues_.size(); ++r) {
      for (std::size_t s = 0; s < queues_[r].size(); ++s) {
        if (heads_[r][s] < queues_[r][s].size() && stuck.size() < 600) {
          const int index = queues_[r][s][heads_[r][s]];
          stuck += fmt::format("\n  rank {} on {}: {}", r, programs_[r].streams[s], describe(at(r, index), index));
        }
      }
    }
    if (!stuck.empty()) {
      throw InternalError("deadlock: these instructions wait for ever" + stuck);
    }
  }

  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  const std::vector<Program>& programs_;
  std::vector<InstructionList> lists_;
  std::vector<std::vector<std::vector<int>>> queues_;  ///< [rank][stream] instruction indices
  std::vector<std::vector<std::size_t>> heads_;        ///< [rank][stream]
  std::vector<std::vector<bool>> complete_;            ///< [rank][instruction]
};

}  // namespace

void verify(const std::vector<Program>& programs) {
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (programs[r].rank != static_cast<int>(r) || programs[r].num_ranks != static_cast<int>(programs.size())) {
      throw InternalError(fmt::format("program {} of {} says it is rank {} of {}", r, programs.size(), programs[r].rank,
                                      programs[r].num_ranks));
    }
    for (const Group& group : programs[r].groups) {
      for (const int member : group.ranks) {
        if (member < 0 || member >= static_cast<int>(programs.size())) {
          throw InternalError(
              fmt::format("rank {}: group {} = {} in a world of {}", r, group.name, group.ranks, programs.size()));
        }
        const auto& theirs = programs.at(static_cast<std::size_t>(member)).groups;
        if (std::ranges::find(theirs, group) == theirs.end()) {
          throw InternalError(
              fmt::format("rank {} has group {} = {}, rank {} has not", r, group.name, group.ranks, member));
        }
      }
    }
  }
  const bool are_repeated_alone = std::ranges::all_of(programs, is_repeated_alone);
  const StepRange steps = steps_that_meet(programs);
  std::vector<InstructionList> lists;
  for (const Program& program : programs) {
    lists.push_back(are_repeated_alone ? InstructionList(program.body) : unrolled(program, steps));
  }
  Rendezvous(programs, std::move(lists)).run();
}

}  // namespace strata

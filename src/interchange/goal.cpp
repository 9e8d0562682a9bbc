#include "interchange/goal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"

namespace strata {
namespace {

/// Writes the schedule of one rank. Every instruction has a label that stands for its end. Messages require what the
/// instruction waited for themselves: of operations that become free at once LogGOPSim takes sends before calculations,
/// but a calculation of no length between them would queue behind a kernel, and the send behind the next one.
class RankWriter {
 public:
  /// @p tags numbers the operations of a group, equal on all members; shared by all ranks.
  RankWriter(const Program& program, const KernelSeconds& kernel_seconds,
             std::map<std::pair<std::string, std::vector<int>>, int>& groups)
      : program_(program), kernel_seconds_(kernel_seconds), groups_(groups) {}

  std::string run() && {
    const std::vector<std::vector<int>> dependencies = body_dependencies(program_);
    for (std::size_t i = 0; i < program_.body.size(); ++i) {
      const Instruction& in = program_.body[i];
      std::vector<int> before;
      for (const int d : dependencies[i]) before.push_back(ends_[static_cast<std::size_t>(d)]);
      ends_.push_back(in.is_collective() ? collective(in, before) : calculation(in, before));
    }
    return fmt::format("rank {} {{\n{}}}\n", program_.rank, text_);
  }

 private:
  int emit(const std::string& operation, const std::vector<int>& before) {
    const int label = ++num_labels_;
    text_ += fmt::format("l{}: {}\n", label, operation);
    for (const int b : before) text_ += fmt::format("l{} requires l{}\n", label, b);
    return label;
  }

  int calculation(const Instruction& in, const std::vector<int>& before) {
    return emit(fmt::format("calc {}", std::llround(kernel_seconds_(program_, in) * 1e9)), before);
  }

  int collective(const Instruction& in, const std::vector<int>& before) {
    std::vector<int> parts;
    for (int tensor = 0; tensor < num_tensors(in); ++tensor) add_tensor(in, tensor, before, parts);
    return end_of(parts, before);
  }

  void add_tensor(const Instruction& in, int tensor, const std::vector<int>& before, std::vector<int>& parts) {
    const Group& group = program_.groups[static_cast<std::size_t>(in.group)];
    const int size = static_cast<int>(group.ranks.size());
    const int index = static_cast<int>(std::ranges::find(group.ranks, program_.rank) - group.ranks.begin());
    const Operand& full = full_operand(in, tensor);
    const int root = root_of(in, tensor);
    const DType dtype = program_.buffers[static_cast<std::size_t>(full.buffer)].dtype;
    const std::int64_t elements = full.num_elements;
    const auto bytes = [&](std::int64_t count) { return count * size_of(dtype); };
    const auto between = [&](Collective kind, int sender, int receiver) {
      if (kind == Collective::all_to_all) {
        if (in.pieces.empty()) return bytes(elements / size);
        return bytes(sender == index ? piece_of(in.pieces.input, receiver).size()
                                     : piece_of(in.pieces.output, sender).size());
      }
      const int owner = kind == Collective::all_gather ? sender : receiver;
      if (in.pieces.empty()) return bytes(chunk_of(elements, size, owner).size());
      return bytes(piece_of(kind == Collective::all_gather ? in.pieces.output : in.pieces.input, owner).size());
    };
    switch (in.collective) {
      case Collective::send:
      case Collective::recv: {
        const bool sends = in.collective == Collective::send;
        const int peer = group.ranks[static_cast<std::size_t>(root)];
        const int tag = message_tag(group, sends ? program_.rank : peer, sends ? peer : program_.rank);
        message(sends, peer, bytes(elements), tag, before, parts);
        break;
      }
      case Collective::broadcast:
      case Collective::reduce: {
        const bool is_root = index == root;
        const int tag = next_tag(group);
        for (int member = 0; member < size; ++member) {
          if (member == root || (!is_root && member != index)) continue;
          const int peer = group.ranks[static_cast<std::size_t>(is_root ? member : root)];
          message(is_root == (in.collective == Collective::broadcast), peer, bytes(elements), tag, before, parts);
        }
        break;
      }
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::all_to_all: exchange(in.collective, group, index, between, before, parts); break;
      case Collective::all_reduce: {
        std::vector<int> of_chunks;
        exchange(Collective::reduce_scatter, group, index, between, before, of_chunks);
        const std::vector<int> reduced = {end_of(of_chunks, before)};
        exchange(Collective::all_gather, group, index, between, reduced, parts);
        if (parts.empty()) parts = reduced;
        break;
      }
    }
  }

  /// One label for the end of all @p parts; of nothing: for that of what was before.
  int end_of(const std::vector<int>& parts, const std::vector<int>& before) {
    if (parts.size() == 1) return parts.front();
    return emit("calc 0", parts.empty() ? before : parts);
  }

  /// To index + s, from index - s, for s = 1 … p-1.
  /// @param between bytes from a sender to a receiver, members of the group of which one is @p index.
  template <class BytesBetween>
  void exchange(Collective kind, const Group& group, int index, const BytesBetween& between,
                const std::vector<int>& before, std::vector<int>& parts) {
    const int size = static_cast<int>(group.ranks.size());
    const int tag = next_tag(group);
    for (int s = 1; s < size; ++s) {
      const int to = (index + s) % size;
      const int from = (index - s + size) % size;
      message(true, group.ranks[static_cast<std::size_t>(to)], between(kind, index, to), tag, before, parts);
      message(false, group.ranks[static_cast<std::size_t>(from)], between(kind, from, index), tag, before, parts);
    }
  }

  /// Nothing travels where there is nothing: a short tensor leaves the last chunks empty.
  void message(bool sends, int peer, std::int64_t num_bytes, int tag, const std::vector<int>& before,
               std::vector<int>& parts) {
    if (num_bytes == 0) return;
    parts.push_back(
        emit(fmt::format("{} {}b {} {} tag {}", sends ? "send" : "recv", num_bytes, sends ? "to" : "from", peer, tag),
             before));
  }

  /// Groups are numbered as they are first seen; a group's operations follow one another on all its members alike.
  int next_tag(const Group& group) {
    const int number = num_operations_[group.name]++;
    return tag_of(groups_.try_emplace({group.name, group.ranks}, static_cast<int>(groups_.size())).first->second,
                  number);
  }
  int message_tag(const Group& group, int from, int to) {
    const std::string name = fmt::format("{} {} {}", group.name, from, to);
    const int number = num_operations_[name]++;
    return tag_of(groups_.try_emplace({name, {from, to}}, static_cast<int>(groups_.size())).first->second, number);
  }
  static int tag_of(int group, int number) {
    STRATA_INVARIANT(number < operations_per_group && group < std::numeric_limits<int>::max() / operations_per_group,
                     fmt::format("no tag is left for operation {} of group {}", number, group));
    return group * operations_per_group + number;
  }

  static constexpr int operations_per_group = 100'000;
  const Program& program_;
  const KernelSeconds& kernel_seconds_;
  std::map<std::pair<std::string, std::vector<int>>, int>& groups_;
  std::map<std::string, int> num_operations_;
  std::vector<int> ends_;  ///< label by instruction
  int num_labels_ = 0;
  std::string text_;
};

}  // namespace

std::string to_goal(const std::vector<Program>& programs, const KernelSeconds& kernel_seconds) {
  std::string text = fmt::format("num_ranks {}\n\n", programs.size());
  std::map<std::pair<std::string, std::vector<int>>, int> groups;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    STRATA_INVARIANT(programs[r].rank == static_cast<int>(r),
                     fmt::format("program of rank {} stands at {}", programs[r].rank, r));
    STRATA_INVARIANT(is_repeated_alone(programs[r]), "steps that overlap are written as one list");
    text += RankWriter(programs[r], kernel_seconds, groups).run() + "\n";
  }
  return text;
}

}  // namespace strata

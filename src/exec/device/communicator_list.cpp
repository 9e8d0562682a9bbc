#include "exec/device/communicator_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace strata {
namespace {

bool is_message(const Instruction& in) {
  return in.collective == Collective::send || in.collective == Collective::recv;
}

std::int64_t address(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(operand.buffer)];
  return buffer.offset_bytes + operand.begin * size_of(buffer.dtype);
}

/// Full tensors' addresses, and the other sides' unless these are own chunks of them, which differ by their nature.
std::uint64_t add_addresses(const Program& program, const Instruction& in, std::uint64_t hash) {
  std::vector<std::int64_t> addresses;
  for (int tensor = 0; tensor < num_tensors(in); ++tensor) {
    const Operand& full = full_operand(in, tensor);
    const std::int64_t begin = address(program, full);
    const std::int64_t end =
        begin + full.num_elements * size_of(program.buffers[static_cast<std::size_t>(full.buffer)].dtype);
    addresses.push_back(begin);
    for (const auto* operands : {&in.inputs, &in.outputs}) {
      if (static_cast<std::size_t>(tensor) >= operands->size()) continue;
      const std::int64_t other = address(program, (*operands)[static_cast<std::size_t>(tensor)]);
      addresses.push_back(other >= begin && other < end ? -1 : other);
    }
  }
  return hash_bytes(std::as_bytes(std::span(addresses)), hash);
}

template <typename Integer>
Integer parse(std::string_view text) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  STRATA_INVARIANT(error == std::errc() && end == text.data() + text.size(), fmt::format("no number: {}", text));
  return value;
}

std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::vector<CommunicatorUse> parse_uses(std::string_view text) {
  std::vector<CommunicatorUse> uses;
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    CommunicatorUse& use = uses.emplace_back();
    use.addresses = parse<std::uint64_t>(take(line, '\t'));
    use.key.messages = take(line, '\t') == "messages";
    std::string_view ranks = take(line, '\t');
    while (!ranks.empty()) use.key.ranks.push_back(parse<int>(take(ranks, ' ')));
    use.key.group = line;
  }
  return uses;
}

}  // namespace

CommunicatorKey communicator_key(const Program& program, const Instruction& collective) {
  const Group& group = program.groups[static_cast<std::size_t>(collective.group)];
  if (!is_message(collective)) return {.ranks = group.ranks, .group = group.name};
  const int peer = group.ranks[static_cast<std::size_t>(collective.root)];
  const bool sends = collective.collective == Collective::send;
  return {.ranks = sends ? std::vector{program.rank, peer} : std::vector{peer, program.rank},
          .group = group.name,
          .messages = true};
}

std::vector<CommunicatorUse> communicators_of(const Program& program) {
  std::map<CommunicatorKey, std::uint64_t> uses;
  for (const auto* section : {&program.prologue, &program.body}) {
    for (const Instruction& in : *section) {
      if (!in.is_collective()) continue;
      std::uint64_t& hash = uses[communicator_key(program, in)];
      hash = add_addresses(program, in, hash);
    }
  }
  std::vector<CommunicatorUse> result;
  for (const auto& [key, addresses] : uses) result.push_back({key, addresses});
  return result;
}

std::string to_text(const std::vector<CommunicatorUse>& uses) {
  std::string text;
  for (const CommunicatorUse& use : uses) {
    text += fmt::format("{}\t{}\t{}\t{}\n", use.addresses, use.key.messages ? "messages" : "collectives",
                        fmt::join(use.key.ranks, " "), use.key.group);
  }
  return text;
}

std::vector<AgreedCommunicator> agree(std::span<const std::string> texts) {
  std::map<CommunicatorKey, std::map<int, std::uint64_t>> addresses_of_members;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (CommunicatorUse& use : parse_uses(texts[rank])) {
      addresses_of_members[std::move(use.key)][static_cast<int>(rank)] = use.addresses;
    }
  }
  std::vector<AgreedCommunicator> result;
  for (const auto& [key, members] : addresses_of_members) {
    for (const int rank : key.ranks) {
      STRATA_INVARIANT(members.contains(rank), fmt::format("group {} of ranks {}: rank {} has no collective in it",
                                                           key.group, fmt::join(key.ranks, ", "), rank));
    }
    STRATA_INVARIANT(members.size() == key.ranks.size(),
                     fmt::format("group {}: {} ranks use it, its members are {}", key.group, members.size(),
                                 fmt::join(key.ranks, ", ")));
    const auto same = [&](const auto& member) { return member.second == members.begin()->second; };
    result.push_back({key, std::ranges::all_of(members, same)});
  }
  return result;
}

}  // namespace strata

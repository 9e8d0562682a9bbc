#include "run/parameter_checksum.hpp"

#include <fmt/core.h>

#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace strata::run {

std::string to_text(const std::vector<ParameterChecksum>& list) {
  std::string text;
  for (const ParameterChecksum& one : list) {
    text += fmt::format("{} {} {}\n", one.parameter, one.begin, one.checksum);
  }
  return text;
}

std::vector<ParameterChecksum> parse_checksums(std::string_view text) {
  std::vector<ParameterChecksum> list;
  std::istringstream stream{std::string(text)};
  for (ParameterChecksum one; stream >> one.parameter >> one.begin >> one.checksum;) list.push_back(one);
  return list;
}

JointChecksum join_checksums(const ModelGraph& graph, const std::vector<std::vector<ParameterChecksum>>& by_rank) {
  struct Held {
    std::size_t rank = 0;
    std::uint64_t checksum = 0;
  };
  std::map<std::string, std::map<std::int64_t, Held>, std::less<>> parts;
  JointChecksum joint;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const ParameterChecksum& mine : by_rank[rank]) {
      const auto [place, is_new] = parts[mine.parameter].try_emplace(mine.begin, Held{rank, mine.checksum});
      const Held& first = place->second;
      if (!is_new && first.checksum != mine.checksum && joint.difference.empty()) {
        joint.difference = fmt::format("{} of rank {} ({:016x}) differs from that of rank {} ({:016x})", mine.parameter,
                                       rank, mine.checksum, first.rank, first.checksum);
      }
    }
  }
  std::uint64_t checksum = 0;
  for (const Parameter& parameter : graph.parameters) {
    const auto found = parts.find(parameter.name);
    STRATA_INVARIANT(found != parts.end(), "no rank holds " + parameter.name);
    for (const auto& [begin, held] : found->second) {
      checksum = hash_bytes(std::as_bytes(std::span(&held.checksum, 1)), checksum);
    }
  }
  joint.text = fmt::format("{:016x}", checksum);
  return joint;
}

}  // namespace strata::run

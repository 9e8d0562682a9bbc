#pragma once

/// @file
/// One checksum of all parameters, wherever they are: a rank may hold some of them, and several ranks may hold one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata::run {

/// Of the elements of one parameter that a rank holds.
struct ParameterChecksum {
  std::string parameter;
  std::int64_t begin = 0;  ///< its first element, within the flattened parameter
  std::uint64_t checksum = 0;
  bool operator==(const ParameterChecksum&) const = default;
};

/// How a rank's list travels: a line each. parse_checksums(to_text(list)) == list.
std::string to_text(const std::vector<ParameterChecksum>& list);
std::vector<ParameterChecksum> parse_checksums(std::string_view text);

struct JointChecksum {
  std::string text;        ///< of all parameters in the graph's order, whatever rank holds them: 16 hexadecimal digits
  std::string difference;  ///< which ranks disagree about which parameter, empty: copies are equal
};
/// @param by_rank what each rank holds. @throws InternalError if nobody holds a parameter.
JointChecksum join_checksums(const ModelGraph& graph, const std::vector<std::vector<ParameterChecksum>>& by_rank);

}  // namespace strata::run

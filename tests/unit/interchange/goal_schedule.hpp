#pragma once

/// @file
/// GOAL schedules read back by a parser of their grammar.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace strata::test {

struct GoalOperation {
  std::string kind;  ///< calc, send, recv
  std::int64_t amount = 0;
  int peer = -1;
  int tag = 0;
  std::vector<std::string> before;
};
using GoalSchedule = std::vector<std::map<std::string, GoalOperation>>;  ///< by rank, by label

/// The grammar that the LogGOPSim tools read; anything else is a failure.
inline GoalSchedule parse_goal(const std::string& text) {
  static const std::regex head("num_ranks ([0-9]+)");
  static const std::regex rank("rank ([0-9]+) \\{");
  static const std::regex calc("(l[0-9]+): calc ([0-9]+)");
  static const std::regex message("(l[0-9]+): (send|recv) ([0-9]+)b (to|from) ([0-9]+) tag ([0-9]+)");
  static const std::regex needs("(l[0-9]+) requires (l[0-9]+)");
  GoalSchedule schedule;
  int current = -1;
  std::istringstream lines(text);
  std::smatch m;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (std::regex_match(line, m, head)) {
      schedule.resize(std::stoul(m[1]));
    } else if (std::regex_match(line, m, rank)) {
      current = std::stoi(m[1]);
    } else if (line == "}") {
      current = -1;
    } else if (current < 0) {
      ADD_FAILURE() << "outside of a rank: " << line;
    } else if (std::regex_match(line, m, calc)) {
      schedule.at(static_cast<std::size_t>(current))[m[1]] = {"calc", std::stoll(m[2]), -1, 0, {}};
    } else if (std::regex_match(line, m, message)) {
      EXPECT_EQ(m[2] == "send", m[4] == "to") << line;
      schedule.at(static_cast<std::size_t>(current))[m[1]] = {
          m[2], std::stoll(m[3]), std::stoi(m[5]), std::stoi(m[6]), {}};
    } else if (std::regex_match(line, m, needs)) {
      auto& operations = schedule.at(static_cast<std::size_t>(current));
      EXPECT_TRUE(operations.contains(m[2])) << line;
      operations.at(m[1]).before.push_back(m[2]);
    } else {
      ADD_FAILURE() << "not GOAL: " << line;
    }
  }
  return schedule;
}

}  // namespace strata::test

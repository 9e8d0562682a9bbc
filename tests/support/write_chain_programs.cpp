/// @file
/// Writes chains of Oases' planner with made-up numbers as linear programs, and what our exact search finds.
///
///   write_chain_programs FOLDER COUNT    FOLDER/0.mps …, FOLDER/answers.json: a number of seconds each, null: none
///   fits

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "planners/oases/chain_mps.hpp"
#include "planners/oases/chain_search.hpp"
#include "support/random_chains.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} FOLDER COUNT\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  std::mt19937 generator(8);
  nlohmann::json answers = nlohmann::json::array();
  for (int k = 0; k < std::atoi(argv[2]); ++k) {
    const strata::Chain chain = strata::random_chain(generator, 2 + k % 15, 2 + k % 4);
    std::ofstream(fmt::format("{}/{}.mps", folder, k)) << strata::to_mps(chain, {}, {});
    const strata::ChainAnswer answer = strata::search_exactly(chain);
    answers.push_back(answer.fits() ? nlohmann::json(answer.seconds) : nlohmann::json(nullptr));
  }
  std::ofstream(folder + "/answers.json") << answers.dump();
  return 0;
}

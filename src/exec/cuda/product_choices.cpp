#include "exec/cuda/product_choices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

namespace strata::cuda {

bool ProductChoice::choose_fastest() {
  chosen = static_cast<std::size_t>(std::ranges::min_element(nanoseconds) - nanoseconds.begin());
  return nanoseconds[chosen] != refused;
}

std::string ProductChoices::to_text() const {
  std::string text;
  for (const auto& [shape, choice] : choices_) {
    if (!choice.nanoseconds.empty() && !choice.kernels.empty()) text += fmt::format("{} {}\n", choice.chosen, shape);
  }
  return text;
}

void ProductChoices::agree(std::span<const std::string> texts) {
  std::map<std::string, std::size_t> agreed;
  for (const std::string& of_rank : texts) {
    std::istringstream lines(of_rank);
    std::size_t kernel = 0;
    for (std::string shape; lines >> kernel && std::getline(lines >> std::ws, shape);) agreed.emplace(shape, kernel);
  }
  for (auto& [shape, mine] : choices_) {
    const auto at = agreed.find(shape);
    if (at == agreed.end() || at->second >= mine.nanoseconds.size()) continue;
    if (mine.nanoseconds[at->second] != ProductChoice::refused) mine.chosen = at->second;
  }
}

}  // namespace strata::cuda

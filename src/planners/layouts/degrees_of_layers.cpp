#include "planners/layouts/degrees_of_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr int most_layers = 1 << 16;

std::optional<int> positive_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

std::vector<int> parse_degrees(const std::string& text) {
  std::vector<int> degrees;
  std::string packed = text;
  std::erase(packed, ' ');
  if (packed.empty() || packed.back() == '+') packed += '+';  // an empty term, which is refused as others are
  std::istringstream terms(packed);
  for (std::string term; std::getline(terms, term, '+');) {
    const std::size_t star = term.find('*');
    const std::optional<int> degree = positive_number(term.substr(0, star));
    const std::optional<int> count = star == std::string::npos ? 1 : positive_number(term.substr(star + 1));
    if (!degree || !count || *count > most_layers - std::ssize(degrees)) {
      throw UserError(
          fmt::format("strategy.degrees = \"{}\": \"{}\" is no degree of layers; accepted: such as 2*8+4*16, "
                      "degree 2 in the first 8 layers and 4 in the next 16",
                      text, term));
    }
    degrees.insert(degrees.end(), static_cast<std::size_t>(*count), *degree);
  }
  return degrees;
}

std::string degrees_text(const std::vector<int>& degrees) {
  std::string text;
  for (auto at = degrees.begin(); at != degrees.end();) {
    const auto end = std::find_if(at, degrees.end(), [&](int degree) { return degree != *at; });
    text += fmt::format("{}{}*{}", text.empty() ? "" : "+", *at, end - at);
    at = end;
  }
  return text;
}

Factor nearest_ranks(const Factor& grid, int degree) {
  const int in_node = std::min(degree, grid.in_node), nodes = degree / in_node;
  if (grid.in_node % in_node != 0 || degree % in_node != 0 || grid.nodes % nodes != 0) {
    throw Unsupported(
        fmt::format("a tensor degree of {} is neither an even part of {} ranks a node nor of {} nodes of "
                    "them",
                    degree, grid.in_node, grid.nodes));
  }
  return {in_node, nodes};
}

std::vector<Factor> tensor_of_layers(const LayerChain& chain, const Factor& grid, const std::vector<int>& degrees) {
  int num_blocks = 0;
  for (const Layer& layer : chain.layers) num_blocks = std::max(num_blocks, layer.block + 1);
  if (num_blocks != std::ssize(degrees)) {
    throw Unsupported(
        fmt::format("{} degrees for a model of {} layers: {}", degrees.size(), num_blocks, degrees_text(degrees)));
  }
  std::vector<Factor> tensors;
  int block = 0;
  for (const Layer& layer : chain.layers) {
    block = std::max(block, layer.block);
    const bool is_tied = layer.tied_weight >= 0;
    tensors.push_back(is_tied ? tensors[static_cast<std::size_t>(layer.tied_weight)]
                              : nearest_ranks(grid, degrees[static_cast<std::size_t>(block)]));
  }
  return tensors;
}

}  // namespace strata

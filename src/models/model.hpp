#pragma once

/// @file
/// Which model: a preset or a family by name, and what differs from it. One file a family turns this into a ModelGraph;
/// presets are rows of one table, so that "gpt2-small" means the same everywhere.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

/// What a family takes beyond its name; unset: the preset's value, else the family's default. An option that the family
/// does not know is an error, not ignored.
struct ModelOptions {
  std::string name{};  ///< a preset ("gpt2-small") or a family ("gpt")

  std::optional<std::int64_t> layers{};      ///< transformer blocks; vgg: 11, 13 or 16; resnet: 18 or 50
  std::optional<std::int64_t> hidden{};      ///< width of the residual stream; vgg: of the two hidden dense layers
  std::optional<std::int64_t> heads{};       ///< divides hidden; with widths: of the first layer, heads of one size
  std::optional<std::int64_t> kv_heads{};    ///< llama: divides heads (default: heads)
  std::optional<std::int64_t> ffn_hidden{};  ///< gpt, vit: default 4 h; llama: default 8/3 h, down to a multiple of 32
  std::optional<std::int64_t> vocabulary{};  ///< tokens, as stored: not padded
  std::optional<std::int64_t> sequence_length{};  ///< tokens a sample; gpt: also the rows of the position table
  std::optional<double> dropout{};                ///< probability in [0, 1)
  std::optional<bool> tied_head{};                ///< the head's weight is the embedding table
  std::optional<std::int64_t> image_size{};       ///< pixels a side; vgg: a multiple of 32; resnet below 64: CIFAR form
  std::optional<std::int64_t> patch_size{};       ///< vit: pixels a side of a token, divides image_size; default 16
  std::optional<std::int64_t> num_classes{};      ///< of an image
  std::vector<std::int64_t> widths{};  ///< mlp: inputs, hidden layers …, classes; gpt: the hidden size of each
                                       ///< layer, instead of layers and hidden; vgg, resnet: channels of the
                                       ///< five, four stages
  bool operator==(const ModelOptions&) const = default;
};

/// A named set of options and where its numbers come from.
struct Preset {
  std::string name;
  std::string family;       ///< gpt, llama, vgg, resnet, vit, mlp
  std::string description;  ///< one line for `strata list models`
  std::string source;       ///< of the numbers
  ModelOptions options;     ///< every option that has no family default; options.name == name
};

/// All presets, families together, small before large.
std::span<const Preset> presets();
/// @throws UserError naming the nearest and listing all names.
const Preset& find_preset(std::string_view name);

struct ResolvedModel {
  std::string family;
  ModelOptions options;
};
/// The options of the named preset with those that @p options gives put over them; a family's name stands alone.
/// @throws UserError as find_preset.
ResolvedModel resolve_model(const ModelOptions& options);

/// @return a graph for which verify() holds. @throws UserError naming the option, its value and what is accepted.
ModelGraph build_model(const ModelOptions& options);

}  // namespace strata

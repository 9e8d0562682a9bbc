/// @file
/// A model's name is looked up among presets, then among families, whose builder makes its graph.

#include "models/model.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "models/family.hpp"

namespace strata {
namespace {

struct Family {
  std::string_view name;
  ModelGraph (*build)(const ModelOptions&);
};
constexpr std::array families = {Family{"gpt", build_gpt}, Family{"llama", build_llama},
                                 Family{"vgg", build_vgg}, Family{"resnet", build_resnet},
                                 Family{"vit", build_vit}, Family{"mlp", build_mlp}};

bool is_family(std::string_view name) {
  for (const Family& family : families) {
    if (family.name == name) return true;
  }
  return false;
}

/// What is counted later, in bytes and over ranks, has room in 64 bits.
void check_size(const ModelOptions& options, const ModelGraph& graph) {
  constexpr double most_elements = 0x1p50;
  double num_elements = 0.0;
  for (const Parameter& parameter : graph.parameters) num_elements += static_cast<double>(parameter.num_elements());
  if (num_elements > most_elements) {
    throw UserError(fmt::format("model `{}`: its widths and layers make {:.2g} parameters; accepted: {:.2g} at most",
                                options.name, num_elements, most_elements));
  }
}

template <class Value>
void override_with(Value& value, const Value& given) {
  if (given) value = given;
}

}  // namespace

const Preset& find_preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) {
      return preset;
    }
    names.push_back(preset.name);
  }
  for (const Family& family : families) {
    names.emplace_back(family.name);
  }
  throw UserError(
      fmt::format("unknown model `{}`{}; accepted: {}", name, did_you_mean(name, names), fmt::join(names, ", ")));
}

ResolvedModel resolve_model(const ModelOptions& options) {
  if (is_family(options.name)) {
    return {options.name, options};
  }
  const Preset& preset = find_preset(options.name);
  ModelOptions merged = preset.options;
  override_with(merged.layers, options.layers);
  override_with(merged.hidden, options.hidden);
  override_with(merged.heads, options.heads);
  override_with(merged.kv_heads, options.kv_heads);
  override_with(merged.ffn_hidden, options.ffn_hidden);
  override_with(merged.vocabulary, options.vocabulary);
  override_with(merged.sequence_length, options.sequence_length);
  override_with(merged.dropout, options.dropout);
  override_with(merged.tied_head, options.tied_head);
  override_with(merged.image_size, options.image_size);
  override_with(merged.patch_size, options.patch_size);
  override_with(merged.num_classes, options.num_classes);
  if (!options.widths.empty()) merged.widths = options.widths;
  return {preset.family, merged};
}

ModelGraph build_model(const ModelOptions& options) {
  const ResolvedModel model = resolve_model(options);
  for (const Family& family : families) {
    if (family.name == model.family) {
      ModelGraph graph = family.build(model.options);
      check_size(options, graph);
      return graph;
    }
  }
  throw InternalError(fmt::format("preset `{}` is of no known family `{}`", options.name, model.family));
}

}  // namespace strata

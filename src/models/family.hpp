#pragma once

/// @file
/// What a family file implements, and how it asks for its options: every error names the model, the option and what is
/// accepted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/model/model_graph.hpp"
#include "models/model.hpp"

namespace strata {

/// Each builds the family's graph from resolved options. @throws UserError.
ModelGraph build_gpt(const ModelOptions& options);
ModelGraph build_llama(const ModelOptions& options);
ModelGraph build_vgg(const ModelOptions& options);
ModelGraph build_resnet(const ModelOptions& options);
ModelGraph build_vit(const ModelOptions& options);
ModelGraph build_mlp(const ModelOptions& options);

/// The options that are set and not among @p accepted (separated by " | ") are refused.
void accept_only(const ModelOptions& options, std::string_view accepted);

/// @return the value of option @p key. @throws UserError if it is unset or less than @p minimum.
std::int64_t required(const ModelOptions& options, std::string_view key, const std::optional<std::int64_t>& value,
                      std::int64_t minimum = 1);
/// As required, with @p fallback where it is unset.
std::int64_t value_or(const ModelOptions& options, std::string_view key, const std::optional<std::int64_t>& value,
                      std::int64_t fallback, std::int64_t minimum = 1);
/// @throws UserError unless it is in [0, 1).
double dropout_of(const ModelOptions& options, double fallback);

[[noreturn]] void refuse(const ModelOptions& options, std::string_view key, std::string_view message);

}  // namespace strata

#pragma once

/// @file
/// What goes wrong on some ranks, agreed on by all. The decision: an error keeps its type on its way to the other
/// ranks, so that each of them handles it as if it were its own, and nobody waits for a rank that has given up.

#include <functional>
#include <optional>
#include <string>

#include "base/error_kind.hpp"
#include "comm/world.hpp"

namespace strata::comm {

/// Equal on all ranks: the error of the lowest rank that has one.
struct CollectiveError {
  ErrorKind kind = ErrorKind::internal_error;
  std::string message;
};

/// Calls @p action on every rank. Collective. An action may exchange something itself if none of its ranks can fail
/// alone while the others still wait for it there.
std::optional<CollectiveError> collective_error(const World& world, const std::function<void()>& action);

/// The same, but throws the error on all ranks, with its type and text.
void on_all_ranks(const World& world, const std::function<void()>& action);

/// Calls @p action on rank 0 alone, and throws its error on all ranks.
void on_rank_0(const World& world, const std::function<void()>& action);

}  // namespace strata::comm

#include "comm/collective_error.hpp"

#include <span>

namespace strata::comm {
namespace {

/// The kind is the first character, so that the message needs no escapes.
std::string packed(const CollectiveError& error) {
  return std::string(1, static_cast<char>('0' + static_cast<int>(error.kind))) + error.message;
}

CollectiveError unpacked(const std::string& text) {
  return {static_cast<ErrorKind>(text.front() - '0'), text.substr(1)};
}

}  // namespace

std::optional<CollectiveError> collective_error(const World& world, const std::function<void()>& action) {
  std::string mine;
  try {
    action();
  } catch (const std::exception& e) {
    mine = packed({kind_of(e), e.what()});
  }
  double first[1] = {static_cast<double>(mine.empty() ? world.size() : world.rank())};
  world.all_reduce_min(first);
  const int failed = static_cast<int>(first[0]);
  if (failed == world.size()) return std::nullopt;
  return unpacked(world.broadcast(mine, failed));
}

void on_all_ranks(const World& world, const std::function<void()>& action) {
  if (const auto error = collective_error(world, action)) throw_error(error->kind, error->message);
}

void on_rank_0(const World& world, const std::function<void()>& action) {
  on_all_ranks(world, [&] {
    if (world.rank() == 0) action();
  });
}

}  // namespace strata::comm

/// @file
/// When instructions began and ended, as text.

#include "fuzz/fuzz_target.hpp"
#include "interchange/chrome.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata::fuzz::timeline_text {
namespace {

bool is_sound(const Timeline& timeline) {
  try {
    verify(timeline);
  } catch (const InternalError& error) {
    require(names(error.what(), "timeline event "), error.what());
    return false;
  }
  return true;
}

}  // namespace

STRATA_FUZZ_TARGET(timeline) {
  const auto timeline = unless_refused("timeline:", [&] { return parse_timeline(text_of(bytes)); });
  if (!timeline) return;
  const std::string text = to_text(*timeline);
  require(parse_timeline(text) == *timeline, "a timeline and its text differ:\n" + text);
  if (is_sound(*timeline)) to_chrome_trace(*timeline);
}

}  // namespace strata::fuzz::timeline_text

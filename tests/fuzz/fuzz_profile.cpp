/// @file
/// What `strata profile` wrote.

#include "fuzz/fuzz_target.hpp"
#include "ir/machine/cost_profile.hpp"

namespace strata::fuzz::profile_file {

STRATA_FUZZ_TARGET(profile) {
  const auto profile = unless_refused("input.toml", [&] { return parse_cost_profile(text_of(bytes), "input.toml"); });
  if (!profile) return;
  const std::string text = to_text(*profile);
  require(parse_cost_profile(text, "text form") == *profile, "a profile and its text differ:\n" + text);
}

}  // namespace strata::fuzz::profile_file

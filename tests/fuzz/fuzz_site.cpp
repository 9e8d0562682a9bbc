/// @file
/// What job scripts must know about a cluster.

#include "fuzz/fuzz_target.hpp"
#include "harness/site.hpp"

namespace strata::fuzz::site_file {

STRATA_FUZZ_TARGET(site) {
  const FileInMemory file(bytes);
  const auto site = unless_refused(file.path() + ":", [&] { return harness::read_site(file.path()); });
  if (!site) return;
  require(!site->launcher.empty() || text_of(bytes).find("launcher") != std::string::npos, "no launcher");
  require(site->time_limit_margin_seconds >= 1 && site->gpus_per_node >= 0, "a number out of its range");
}

}  // namespace strata::fuzz::site_file

/// @file
/// What an array was asked to do.

#include "fuzz/fuzz_target.hpp"
#include "harness/manifest.hpp"

namespace strata::fuzz::manifest_file {

STRATA_FUZZ_TARGET(manifest) {
  const FileInMemory file(bytes);
  const auto manifest = unless_refused(file.path(), [&] { return harness::read_manifest(file.path()); });
  if (!manifest) return;
  const std::string text = to_json(*manifest);
  require(harness::parse_manifest(text, "text form") == *manifest, "a manifest and its text differ:\n" + text);
}

}  // namespace strata::fuzz::manifest_file

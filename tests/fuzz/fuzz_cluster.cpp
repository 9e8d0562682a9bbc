/// @file
/// A cluster's description, from its file.

#include <array>

#include "config/cluster_files.hpp"
#include "fuzz/fuzz_target.hpp"
#include "ir/machine/cluster.hpp"

namespace strata::fuzz::cluster_file {

STRATA_FUZZ_TARGET(cluster) {
  const FileInMemory file(bytes);
  const auto cluster = unless_refused(file.path(), [&] { return read_cluster(file.path()); });
  if (!cluster) return;
  const std::string text = to_text(*cluster);
  require(parse_cluster(text, "text form") == *cluster, "a cluster and its text differ:\n" + text);
  const std::array nodes = {0, cluster->nodes - 1};
  require(leaves_of(*cluster, nodes).size() == (cluster->nodes_per_leaf > 0 ? 2 : 0), "a leaf for every node");
}

}  // namespace strata::fuzz::cluster_file

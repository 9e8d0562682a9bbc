/// @file
/// A checkpoint, of the model and optimizer that made the seeds or of others.
///
/// Known and not ours: texts of variable length lie in HDF5's global heap, whose damage libhdf5 1.10.8 does not see.
/// Where an object's size is such that the next one begins where it does, reading the collection never ends
/// (H5HG__cache_heap_deserialize); where an object is longer than the reference to it says, it is copied past the end
/// of the text, and where it has no object of the reference's number, one is read beyond its list (both H5HG_read). The
/// library's interface shows none of them before. run.sh counts these apart.

#include <fstream>
#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "results/checkpoint_file.hpp"

namespace strata::fuzz::checkpoint_file {

STRATA_FUZZ_TARGET(checkpoint) {
  static const std::vector<results::CheckpointParameter> parameters = {{"fc.weight", 12}, {"fc.bias", 3}};
  static const std::vector<std::string> states = {"value", "momentum"};
  // HDF5 asks for the real path of what it opens, which a file in memory has not.
  static const TemporaryFolder folder;
  const std::string path = folder.path() / "step_1.h5";
  std::ofstream(path, std::ios::binary) << text_of(bytes);
  unless_refused(path, [&] { return results::read_checkpoint_facts(path); });
  const auto is_read = unless_refused(path, [&] {
    const results::CheckpointFile checkpoint(path, parameters, states, false);
    for (const auto& [name, num_elements] : parameters) {
      std::vector<float> values(static_cast<std::size_t>(num_elements));
      for (const std::string& state : states) checkpoint.read(name, state, 0, values);
    }
    return true;
  });
  static_cast<void>(is_read);
}

}  // namespace strata::fuzz::checkpoint_file

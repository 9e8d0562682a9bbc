#pragma once

/// @file
/// A checkpoint on disk: one HDF5 file with every parameter and optimizer state whole, whatever shards it was written
/// from, so that any other sharding reads its own.
///
/// HDF5 lays the file out, on one rank: `/<parameter>/<state>`, contiguous little-endian f32 of the flattened
/// parameter: its value, the optimizer's states and, where the training reads parameters of two steps, the one before
/// as `previous`. With the weight of a batch norm stand its `running_mean` and `running_variance`. Every rank then
/// writes its elements where the layout says, all at once and without HDF5. The file has its name only when all are
/// done: `<name>.<attempt>.part` until then, so that a killed run leaves the last complete one, and two attempts that
/// no lock keeps apart do not write into one file.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/file_descriptor.hpp"

namespace strata::results {

inline constexpr std::string_view checkpoint_schema_name = "strata-checkpoint";
inline constexpr std::string_view checkpoint_schema_version = "1.1";

struct CheckpointFacts {
  std::int64_t step = 0;  ///< steps trained; the next one has this number, which is also its place in the data
  std::string creator_version;
  std::string experiment_toml;
  std::string plan_text;
  /// What another run must share to go on from here: key of an option → value, as TOML.
  std::map<std::string, std::string> identity;
  bool operator==(const CheckpointFacts&) const = default;
};

struct CheckpointParameter {
  std::string name;
  std::int64_t num_elements = 0;
};

/// Of one dataset, in a sum over its elements that is the same however they are cut: the sum of its parts' checksums.
/// @param begin of @p values in the flattened parameter.
std::uint64_t checksum_of_elements(std::int64_t begin, std::span<const float> values);

/// Parameter and state.
using CheckpointKey = std::pair<std::string, std::string>;

/// Make @p path with its facts and all of its datasets, whose content is not defined yet. @throws UserError.
/// @param states of every parameter.  @param more that some have besides: those that are read in two versions, and
/// weights of batch norms.
void create_checkpoint(const std::string& path, const CheckpointFacts& facts,
                       std::span<const CheckpointParameter> parameters, std::span<const std::string> states,
                       std::span<const CheckpointKey> more = {});

/// When all elements are written: what verification holds them against. @throws UserError.
void write_checksums(const std::string& path, const std::map<CheckpointKey, std::uint64_t>& checksums);

class CheckpointFile {
 public:
  struct Place {
    std::int64_t offset_bytes = 0;
    std::int64_t num_elements = 0;
    std::optional<std::uint64_t> checksum;  ///< of files from schema version 1.1 on
  };

  /// To read all that is there, whatever model it is of. @throws UserError: missing, no checkpoint, of a version this
  /// program does not know, cut short.
  explicit CheckpointFile(const std::string& path);
  /// A file that create_checkpoint made. @throws UserError: missing, no checkpoint, of a version this program does not
  /// know, cut short.
  CheckpointFile(const std::string& path, std::span<const CheckpointParameter> parameters,
                 std::span<const std::string> states, bool writable, std::span<const CheckpointKey> more = {});

  /// Elements [begin, begin + values.size()) of the flattened parameter. @throws UserError naming the file.
  void write(const std::string& parameter, const std::string& state, std::int64_t begin,
             std::span<const float> values) const;
  void read(const std::string& parameter, const std::string& state, std::int64_t begin, std::span<float> values) const;
  /// What this process wrote is on the disk. @throws UserError.
  void sync() const { file_.sync(); }

  const std::map<CheckpointKey, Place>& places() const { return places_; }

 private:
  std::int64_t offset_bytes(const std::string& parameter, const std::string& state, std::int64_t begin,
                            std::size_t count) const;
  FileDescriptor file_;
  std::map<CheckpointKey, Place> places_;
};

/// @throws UserError: missing, no checkpoint, of a version this program does not know.
CheckpointFacts read_checkpoint_facts(const std::string& path);

/// `<folder>/step_<step>.h5`.
std::string checkpoint_path(const std::string& folder, std::int64_t step);
/// `<folder>/step_<step>.h5.<attempt>.part`: the same while @p attempt writes it.
std::string unfinished_checkpoint_path(const std::string& folder, std::int64_t step, int attempt);
/// Steps of the complete checkpoints of a folder, ascending; none where there is no folder.
std::vector<std::int64_t> checkpoints_in(const std::string& folder);
/// Remove the oldest until @p keep are left, but not @p newest; 0: all are kept. @throws UserError.
void remove_old_checkpoints(const std::string& folder, std::int64_t keep, std::int64_t newest);
/// Remove what killed runs left unfinished. The caller is the folder's only writer. @throws UserError.
void remove_unfinished_checkpoints(const std::string& folder);

}  // namespace strata::results

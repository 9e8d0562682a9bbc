#include "results/checkpoint_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.hpp"
#include "results/hdf5.hpp"

namespace strata::results {

static_assert(std::endian::native == std::endian::little, "elements go to the file as they are in memory");

namespace {

namespace fs = std::filesystem;

constexpr std::string_view identity_group = "identity";
constexpr std::string_view parameters_group = "parameters";
constexpr std::string_view name_prefix = "step_";
constexpr std::string_view name_suffix = ".h5";
constexpr std::string_view unfinished_suffix = ".part";
constexpr const char* checksum_attribute = "checksum";

std::string named(const std::string& path) { return fmt::format("checkpoint {}: ", path); }

[[noreturn]] void fail(const std::string& path, const std::string& message) { throw UserError(named(path) + message); }

[[noreturn]] void fail_with(const std::string& path, int error_number, std::string_view action) {
  fail(path, fmt::format("{} ({})", std::generic_category().message(error_number), action));
}

/// What HDF5 says of a file that somebody gave us is about that file, not about this program.
template <typename Action>
auto about_the_file(const std::string& path, const Action& action) {
  try {
    return action();
  } catch (const InternalError& error) {
    fail(path, fmt::format("not a complete checkpoint ({})", error.what()));
  } catch (const UserError& error) {
    // The system's reason for a failed read, which names no file.
    if (std::string_view(error.what()).starts_with(named(path))) throw;
    fail(path, error.what());
  }
}

/// Of this file: places are offsets in it, and a link may lead into another one.
Handle open_object(hid_t parent, const std::string& name) {
  H5L_info_t link;
  check_hdf5(H5Lget_info(parent, name.c_str(), &link, H5P_DEFAULT), "H5Lget_info " + name);
  if (link.type != H5L_TYPE_HARD) throw InternalError(name + " is a link to elsewhere");
  return {check_hdf5(H5Oopen(parent, name.c_str(), H5P_DEFAULT), "H5Oopen " + name), H5Oclose};
}

/// Opened, and of our schema.
Handle open_checkpoint(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) fail_with(path, errno, "opening");
  if (fs::is_directory(path)) fail(path, "a folder; a checkpoint is a file");
  return about_the_file(path, [&] {
    Handle file = open_hdf5_file(path);
    const std::string name = read_text_attribute(file.get(), "schema_name");
    const std::string version = read_text_attribute(file.get(), "schema_version");
    if (name != checkpoint_schema_name) fail(path, fmt::format("{} instead of {}", name, checkpoint_schema_name));
    if (version.substr(0, version.find('.')) != checkpoint_schema_version.substr(0, 1)) {
      fail(path, fmt::format("version {}, but this program reads {}", version, checkpoint_schema_version));
    }
    return file;
  });
}

std::vector<std::string> states_of(const CheckpointParameter& parameter, std::span<const std::string> of_all,
                                   std::span<const CheckpointKey> more) {
  std::vector<std::string> states(of_all.begin(), of_all.end());
  for (const auto& [name, state] : more) {
    if (name == parameter.name) states.push_back(state);
  }
  return states;
}

/// Everything but the elements.
void lay_out(hid_t file, const CheckpointFacts& facts, std::span<const CheckpointParameter> parameters,
             std::span<const std::string> states, std::span<const CheckpointKey> more) {
  write_attribute(file, "schema_name", std::string(checkpoint_schema_name));
  write_attribute(file, "schema_version", std::string(checkpoint_schema_version));
  write_attribute(file, "creator", std::string("strata"));
  write_attribute(file, "creator_version", facts.creator_version);
  write_attribute(file, "step", facts.step);
  write_attribute(file, "experiment_toml", facts.experiment_toml);
  write_attribute(file, "plan_text", facts.plan_text);
  const Handle identity = create_group(file, std::string(identity_group));
  for (const auto& [key, value] : facts.identity) write_attribute(identity.get(), key, value);
  const Handle all = create_group(file, std::string(parameters_group));
  // Contiguous and allocated at once, so that every dataset has its place before anything is written.
  const Handle creation(check_hdf5(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate"), H5Pclose);
  check_hdf5(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), "H5Pset_layout");
  check_hdf5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
  check_hdf5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
  for (const CheckpointParameter& parameter : parameters) {
    const Handle group = create_group(all.get(), parameter.name);
    const auto extent = static_cast<hsize_t>(parameter.num_elements);
    const Handle space(check_hdf5(H5Screate_simple(1, &extent, nullptr), "H5Screate_simple"), H5Sclose);
    for (const std::string& state : states_of(parameter, states, more)) {
      const Handle dataset(check_hdf5(H5Dcreate2(group.get(), state.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                                 creation.get(), H5P_DEFAULT),
                                      "H5Dcreate2 " + parameter.name),
                           H5Dclose);
      write_attribute(dataset.get(), "units", std::string("1"));
      write_attribute(dataset.get(), checksum_attribute, std::int64_t{0});  // its place, for write_checksums()
    }
  }
  check_hdf5(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush");
}

std::optional<std::int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(name_prefix) || !name.ends_with(name_suffix)) return std::nullopt;
  const char* end = name.data() + name.size() - name_suffix.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(name.data() + name_prefix.size(), end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  if (!fs::remove(path, error) && error) fail(path.string(), fmt::format("{} (removing)", error.message()));
}

CheckpointFile::Place place_of(const std::string& path, const Handle& dataset, const std::string& name) {
  const Handle space(check_hdf5(H5Dget_space(dataset.get()), "H5Dget_space"), H5Sclose);
  const auto num_elements =
      check_hdf5(static_cast<Identifier>(H5Sget_simple_extent_npoints(space.get())), "H5Sget_simple_extent");
  const Handle type(check_hdf5(H5Dget_type(dataset.get()), "H5Dget_type"), H5Tclose);
  if (check_hdf5(H5Tequal(type.get(), H5T_IEEE_F32LE), "H5Tequal") == 0) {
    fail(path, fmt::format("{} is not of 32-bit little-endian floats", name));
  }
  const haddr_t offset = H5Dget_offset(dataset.get());
  // Without elements there is no place.
  if (offset == HADDR_UNDEF && num_elements > 0) fail(path, fmt::format("{} is not contiguous", name));
  CheckpointFile::Place place{.offset_bytes = static_cast<std::int64_t>(offset), .num_elements = num_elements};
  if (check_hdf5(H5Aexists(dataset.get(), checksum_attribute), "H5Aexists") > 0) {
    place.checksum = static_cast<std::uint64_t>(read_integer_attribute(dataset.get(), checksum_attribute));
  }
  return place;
}

/// Names of the links of a group, in their order.
std::vector<std::string> link_names(hid_t group) {
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  check_hdf5(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names), "H5Literate");
  return names;
}

}  // namespace

std::uint64_t checksum_of_elements(std::int64_t begin, std::span<const float> values) {
  std::uint64_t sum = 0;
  auto place = static_cast<std::uint64_t>(begin);
  for (const float value : values) {
    // The finaliser of splitmix64: every bit of place and value counts, and equal values have unequal terms.
    std::uint64_t term = ++place * 0x9e3779b97f4a7c15ULL ^ std::bit_cast<std::uint32_t>(value);
    term = (term ^ (term >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    term = (term ^ (term >> 27U)) * 0x94d049bb133111ebULL;
    sum += term ^ (term >> 31U);
  }
  return sum;
}

void create_checkpoint(const std::string& path, const CheckpointFacts& facts,
                       std::span<const CheckpointParameter> parameters, std::span<const std::string> states,
                       std::span<const CheckpointKey> more) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) fail(path, fmt::format("{} (creating its folder)", error.message()));
  if (::access(fs::path(path).parent_path().c_str(), W_OK) != 0) fail_with(path, errno, "creating");
  const std::scoped_lock lock(hdf5_mutex());
  try {
    Handle file = create_hdf5_file(path);
    lay_out(file.get(), facts, parameters, states, more);
    file.close("H5Fclose");
  } catch (const UserError& reason) {
    fail(path, reason.what());
  }
}

void write_checksums(const std::string& path, const std::map<CheckpointKey, std::uint64_t>& checksums) {
  const std::scoped_lock lock(hdf5_mutex());
  try {
    Handle file = open_hdf5_file(path, true);
    for (const auto& [key, checksum] : checksums) {
      const std::string name = fmt::format("{}/{}/{}", parameters_group, key.first, key.second);
      const Handle dataset(check_hdf5(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), "H5Dopen2 " + name), H5Dclose);
      write_attribute(dataset.get(), checksum_attribute, static_cast<std::int64_t>(checksum));
    }
    check_hdf5(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "H5Fflush");
    file.close("H5Fclose");
    FileDescriptor(path, O_RDWR).sync();
  } catch (const UserError& reason) {
    fail(path, reason.what());
  }
}

CheckpointFile::CheckpointFile(const std::string& path, std::span<const CheckpointParameter> parameters,
                               std::span<const std::string> states, bool writable,
                               std::span<const CheckpointKey> more) {
  const std::scoped_lock lock(hdf5_mutex());
  const Handle file = open_checkpoint(path);
  about_the_file(path, [&] {
    const Handle all = open_object(file.get(), std::string(parameters_group));
    H5G_info_t info;
    check_hdf5(H5Gget_info(all.get(), &info), "H5Gget_info");
    if (info.nlinks != parameters.size()) {
      fail(path, fmt::format("{} parameters, the model has {}", info.nlinks, parameters.size()));
    }
    for (const CheckpointParameter& parameter : parameters) {
      if (check_hdf5(H5Lexists(all.get(), parameter.name.c_str(), H5P_DEFAULT), "H5Lexists") == 0) {
        fail(path, fmt::format("no parameter {}, which the model has", parameter.name));
      }
      const Handle group = open_object(all.get(), parameter.name);
      for (const std::string& state : states_of(parameter, states, more)) {
        if (check_hdf5(H5Lexists(group.get(), state.c_str(), H5P_DEFAULT), "H5Lexists") == 0) {
          fail(path, fmt::format("no {} of {}, which the training needs", state, parameter.name));
        }
        const Handle dataset = open_object(group.get(), state);
        const Place place = place_of(path, dataset, fmt::format("{} of {}", state, parameter.name));
        if (place.num_elements != parameter.num_elements) {
          fail(path, fmt::format("{} has {} elements, in the model it has {}", parameter.name, place.num_elements,
                                 parameter.num_elements));
        }
        places_[{parameter.name, state}] = place;
      }
    }
  });
  file_ = FileDescriptor(path, writable ? O_RDWR : O_RDONLY);
}

CheckpointFile::CheckpointFile(const std::string& path) {
  const std::scoped_lock lock(hdf5_mutex());
  const Handle file = open_checkpoint(path);
  about_the_file(path, [&] {
    const Handle all = open_object(file.get(), std::string(parameters_group));
    for (const std::string& parameter : link_names(all.get())) {
      const Handle group = open_object(all.get(), parameter);
      for (const std::string& state : link_names(group.get())) {
        const Handle dataset = open_object(group.get(), state);
        places_[{parameter, state}] = place_of(path, dataset, fmt::format("{} of {}", state, parameter));
      }
    }
  });
  file_ = FileDescriptor(path, O_RDONLY);
}

std::int64_t CheckpointFile::offset_bytes(const std::string& parameter, const std::string& state, std::int64_t begin,
                                          std::size_t count) const {
  const auto found = places_.find({parameter, state});
  STRATA_INVARIANT(found != places_.end(), fmt::format("{} of {} was not asked for", state, parameter));
  STRATA_INVARIANT(begin >= 0 && begin + static_cast<std::int64_t>(count) <= found->second.num_elements,
                   fmt::format("{}: elements {} + {} of {}", parameter, begin, count, found->second.num_elements));
  return found->second.offset_bytes + begin * static_cast<std::int64_t>(sizeof(float));
}

void CheckpointFile::write(const std::string& parameter, const std::string& state, std::int64_t begin,
                           std::span<const float> values) const {
  std::int64_t at = offset_bytes(parameter, state, begin, values.size());
  for (std::span<const std::byte> rest = std::as_bytes(values); !rest.empty();) {
    const ssize_t written = ::pwrite(file_.get(), rest.data(), rest.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with(file_.path(), errno, "writing");
    rest = rest.subspan(static_cast<std::size_t>(written));
    at += written;
  }
}

void CheckpointFile::read(const std::string& parameter, const std::string& state, std::int64_t begin,
                          std::span<float> values) const {
  std::int64_t at = offset_bytes(parameter, state, begin, values.size());
  for (std::span<std::byte> rest = std::as_writable_bytes(values); !rest.empty();) {
    const ssize_t count = ::pread(file_.get(), rest.data(), rest.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with(file_.path(), errno, "reading");
    if (count == 0) fail(file_.path(), "cut short");
    rest = rest.subspan(static_cast<std::size_t>(count));
    at += count;
  }
}

CheckpointFacts read_checkpoint_facts(const std::string& path) {
  const std::scoped_lock lock(hdf5_mutex());
  const Handle file = open_checkpoint(path);
  return about_the_file(path, [&] {
    CheckpointFacts facts;
    facts.step = read_integer_attribute(file.get(), "step");
    facts.creator_version = read_text_attribute(file.get(), "creator_version");
    facts.experiment_toml = read_text_attribute(file.get(), "experiment_toml");
    facts.plan_text = read_text_attribute(file.get(), "plan_text");
    const Handle identity = open_object(file.get(), std::string(identity_group));
    for (const std::string& key : attribute_names(identity.get())) {
      facts.identity[key] = read_text_attribute(identity.get(), key);
    }
    return facts;
  });
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return (fs::path(folder) / fmt::format("{}{}{}", name_prefix, step, name_suffix)).string();
}

std::string unfinished_checkpoint_path(const std::string& folder, std::int64_t step, int attempt) {
  return fmt::format("{}.{}{}", checkpoint_path(folder, step), attempt, unfinished_suffix);
}

std::vector<std::int64_t> checkpoints_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (const auto step = step_of_name(entry.path().filename().string())) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

void remove_old_checkpoints(const std::string& folder, std::int64_t keep, std::int64_t newest) {
  const std::vector<std::int64_t> steps = checkpoints_in(folder);
  const auto num_surplus = keep == 0 ? 0 : std::max<std::int64_t>(0, std::ssize(steps) - keep);
  for (const std::int64_t step : std::span(steps).first(static_cast<std::size_t>(num_surplus))) {
    if (step != newest) remove_file(checkpoint_path(folder, step));
  }
}

void remove_unfinished_checkpoints(const std::string& folder) {
  std::vector<fs::path> unfinished;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    const bool is_step = step_of_name(name.substr(0, name.find(name_suffix) + name_suffix.size())).has_value();
    if (is_step && name.ends_with(unfinished_suffix)) unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) remove_file(path);
}

}  // namespace strata::results

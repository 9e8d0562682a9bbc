/// @file
/// Checked HDF5 calls. An error carries the library's stack in one line, and the system's reason where there is one.

#include "results/hdf5.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <cerrno>
#include <charconv>
#include <system_error>
#include <type_traits>

#include "base/error.hpp"
#include "results/hdf5_version.hpp"

namespace strata::results {

static_assert(std::is_same_v<Identifier, hid_t> && std::is_same_v<Result, herr_t>);

namespace {

struct ErrorStack {
  std::string text;
  int error_number = 0;
};

herr_t collect(unsigned /*depth*/, const H5E_error2_t* error, void* data) {
  auto& stack = *static_cast<ErrorStack*>(data);
  const std::string_view description = error->desc != nullptr ? error->desc : "";
  stack.text += fmt::format("{}{}: {}", stack.text.empty() ? "" : "; ",
                            error->func_name != nullptr ? error->func_name : "?", description);
  constexpr std::string_view key = "errno = ";
  if (const auto at = description.find(key); at != std::string_view::npos && stack.error_number == 0) {
    const char* begin = description.data() + at + key.size();
    std::from_chars(begin, description.data() + description.size(), stack.error_number);
  }
  return 0;
}

hid_t replace_attribute(hid_t object, const std::string& name, hid_t type, hid_t space) {
  if (check_hdf5(H5Aexists(object, name.c_str()), "H5Aexists " + name) > 0) {
    return check_hdf5(H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen " + name);
  }
  return check_hdf5(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), "H5Acreate2 " + name);
}

void write_scalar_attribute(hid_t object, const std::string& name, hid_t file_type, hid_t memory_type,
                            const void* value) {
  const Handle space(check_hdf5(H5Screate(H5S_SCALAR), "H5Screate"), H5Sclose);
  const Handle attribute(replace_attribute(object, name, file_type, space.get()), H5Aclose);
  check_hdf5(H5Awrite(attribute.get(), memory_type, value), "H5Awrite " + name);
}

/// One value of @p type_class: reading writes as many as there are, wherever it is told to. @throws InternalError.
void check_scalar(hid_t attribute, H5T_class_t type_class, const std::string& name) {
  const Handle space(check_hdf5(H5Aget_space(attribute), "H5Aget_space " + name), H5Sclose);
  const auto count = check_hdf5(H5Sget_simple_extent_npoints(space.get()), "H5Sget_simple_extent_npoints " + name);
  const Handle type(check_hdf5(H5Aget_type(attribute), "H5Aget_type " + name), H5Tclose);
  if (count == 1 && H5Tget_class(type.get()) == type_class) return;
  throw InternalError(
      fmt::format("HDF5: attribute {} is not one {}", name, type_class == H5T_STRING ? "text" : "integer"));
}

/// Before the first call of the library. Its exit handler closes what is still open, and crashes in version 1.10 when a
/// file could not be closed because the disk was full. We close our files ourselves, so we want no handler.
void start_library() {
  static const bool started = H5dont_atexit() >= 0;
  static_cast<void>(started);  // refused when somebody else has started the library: then the handler is theirs
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors become exceptions, nothing is printed
}

}  // namespace

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string hdf5_version() {
  start_library();
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  check_hdf5(H5get_libversion(&major, &minor, &release), "H5get_libversion");
  return fmt::format("{}.{}.{}", major, minor, release);
}

hid_t check_hdf5(hid_t result, std::string_view call) {
  if (result >= 0) {
    return result;
  }
  ErrorStack stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &stack);
  H5Eclear2(H5E_DEFAULT);
  if (stack.error_number != 0) {
    throw UserError(fmt::format("{} ({})", std::generic_category().message(stack.error_number), call));
  }
  throw InternalError(fmt::format("HDF5: {} failed: {}", call, stack.text));
}

Handle create_hdf5_file(const std::string& path) {
  start_library();
  const Handle access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate"), H5Pclose);
  check_hdf5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110), "H5Pset_libver_bounds");
  check_hdf5(H5Pset_file_locking(access.get(), 0, 1), "H5Pset_file_locking");
  // An attribute of 64 KiB or more, a name for each of 4096 ranks say, has no place in an object's header, and the
  // first format has no other. Tracking their order gives the root group the header that keeps attributes in a heap.
  const Handle creation(check_hdf5(H5Pcreate(H5P_FILE_CREATE), "H5Pcreate"), H5Pclose);
  check_hdf5(H5Pset_attr_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED), "H5Pset_attr_creation_order");
  return {check_hdf5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "H5Fcreate " + path),
          H5Fclose};
}

Handle open_hdf5_file(const std::string& path, bool writable) {
  start_library();
  const Handle access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate"), H5Pclose);
  check_hdf5(H5Pset_file_locking(access.get(), 0, 1), "H5Pset_file_locking");
  return {check_hdf5(H5Fopen(path.c_str(), writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access.get()), "H5Fopen " + path),
          H5Fclose};
}

Handle text_type() {
  Handle type(check_hdf5(H5Tcopy(H5T_C_S1), "H5Tcopy"), H5Tclose);
  check_hdf5(H5Tset_size(type.get(), H5T_VARIABLE), "H5Tset_size");
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

Handle create_group(hid_t parent, const std::string& name) {
  return {check_hdf5(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Gcreate2 " + name),
          H5Gclose};
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const Handle type = text_type();
  const char* text = value.c_str();
  write_scalar_attribute(object, name, type.get(), type.get(), static_cast<const void*>(&text));
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  write_scalar_attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void write_attribute(hid_t object, const std::string& name, double value) {
  write_scalar_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

std::string read_text_attribute(hid_t object, const std::string& name) {
  const Handle attribute(check_hdf5(H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen " + name), H5Aclose);
  check_scalar(attribute.get(), H5T_STRING, name);
  const Handle type = text_type();
  char* text = nullptr;
  check_hdf5(H5Aread(attribute.get(), type.get(), static_cast<void*>(&text)), "H5Aread " + name);
  std::string result = text == nullptr ? "" : text;
  H5free_memory(text);
  return result;
}

std::int64_t read_integer_attribute(hid_t object, const std::string& name) {
  const Handle attribute(check_hdf5(H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen " + name), H5Aclose);
  check_scalar(attribute.get(), H5T_INTEGER, name);
  std::int64_t value = 0;
  check_hdf5(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "H5Aread " + name);
  return value;
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  check_hdf5(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names), "H5Aiterate2");
  return names;
}

}  // namespace strata::results

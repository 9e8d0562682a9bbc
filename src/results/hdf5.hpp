#pragma once

/// @file
/// The HDF5 C library behind owning handles and checked calls. Private to this folder: no other header includes it.
/// The serial library is not thread-safe, so whoever calls anything here holds hdf5_mutex().

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::results {

/// HDF5's hid_t and herr_t, spelled out so that this header stands without HDF5's; hdf5.cpp asserts that they agree.
using Identifier = std::int64_t;
using Result = int;

std::mutex& hdf5_mutex();

/// Throw unless @p result is non-negative. @p call names the function and the object.
/// @throws UserError with the system's reason where the error stack holds an errno (disk full, quota), else
/// InternalError with the library's own words.
Identifier check_hdf5(Identifier result, std::string_view call);

/// An identifier and the function that closes it.
class Handle {
 public:
  using Close = Result (*)(Identifier);
  Handle() = default;
  Handle(Identifier id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) {
      close_(id_);
    }
  }
  Identifier get() const { return id_; }
  /// What the destructor does, and says: a network file system may tell only now that there was no place.
  /// @throws as check_hdf5().
  void close(std::string_view call) {
    const Identifier id = std::exchange(id_, -1);
    if (id >= 0) check_hdf5(close_(id), call);
  }
  explicit operator bool() const { return id_ >= 0; }

 private:
  Identifier id_ = -1;
  Close close_ = nullptr;
};

/// Make @p path an empty HDF5 file, with the format bounds (earliest, 1.10) and without HDF5's own file lock, so that a
/// reader can look at it while it is written. Attributes of its root may be of any size. The caller has claimed the
/// name. @throws UserError.
Handle create_hdf5_file(const std::string& path);

/// To read, or to change in place. @throws UserError, InternalError where it is none or is damaged.
Handle open_hdf5_file(const std::string& path, bool writable = false);

/// Variable-length UTF-8.
Handle text_type();

Handle create_group(Identifier parent, const std::string& name);

/// Attributes; a second write of the same name replaces the value in place.
void write_attribute(Identifier object, const std::string& name, const std::string& value);
void write_attribute(Identifier object, const std::string& name, std::int64_t value);
void write_attribute(Identifier object, const std::string& name, double value);

/// @throws InternalError if there is none of that name or it has another type.
std::string read_text_attribute(Identifier object, const std::string& name);
std::int64_t read_integer_attribute(Identifier object, const std::string& name);
/// In the order of their names.
std::vector<std::string> attribute_names(Identifier object);

}  // namespace strata::results

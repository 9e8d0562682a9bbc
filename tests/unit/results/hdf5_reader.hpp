#pragma once

/// @file
/// Reading back with plain HDF5 calls, written apart from the writer so that they cannot share a mistake.

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "unit/results/sample_attempt.hpp"

namespace strata::results::test {

/// Reads a copy: within one process HDF5 would otherwise show what the writer holds in memory, not what is on the disk.
/// Every identifier is closed when the reader goes: H5F_CLOSE_STRONG.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::string& original) {
    const std::string path = copies_ / "copy.h5";
    std::filesystem::copy_file(original, path);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_file_locking(access, 0, 1);
    file_ = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (file_ < 0) {
      throw std::runtime_error("cannot open a copy of " + original);
    }
  }
  ~Hdf5Reader() { H5Fclose(file_); }
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  hid_t file() const { return file_; }

  std::int64_t num_rows(const std::string& path) const {
    const hid_t space = H5Dget_space(dataset(path));
    return H5Sget_simple_extent_npoints(space);
  }

  /// Rows of a column up to the first chunk that the file does not have: a writer killed in the middle of a flush may
  /// have written the new length before the index of chunks, and HDF5 gives zeros for what lies between.
  std::int64_t num_rows_written(const std::string& path) const {
    const hid_t data = dataset(path);
    hsize_t rows_per_chunk = 0;
    if (H5Pget_chunk(H5Dget_create_plist(data), 1, &rows_per_chunk) != 1) {
      throw std::runtime_error(path + " is no column in chunks");
    }
    const std::int64_t num_rows = this->num_rows(path);
    for (hsize_t first = 0; first < static_cast<hsize_t>(num_rows); first += rows_per_chunk) {
      haddr_t address = HADDR_UNDEF;
      unsigned filters = 0;
      hsize_t bytes = 0;
      if (H5Dget_chunk_info_by_coord(data, &first, &filters, &address, &bytes) < 0) {
        throw std::runtime_error("cannot look up the chunks of " + path);
      }
      if (address == HADDR_UNDEF) {
        return static_cast<std::int64_t>(first);
      }
    }
    return num_rows;
  }

  std::vector<double> numbers(const std::string& path) const {
    const hid_t data = dataset(path);
    std::vector<double> values(static_cast<std::size_t>(num_rows(path)));
    if (!values.empty() && H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
      throw std::runtime_error("cannot read " + path);
    }
    return values;
  }

  std::vector<std::string> texts(const std::string& path) const {
    const hid_t data = dataset(path);
    std::vector<char*> raw(static_cast<std::size_t>(num_rows(path)));
    const hid_t type = H5Dget_type(data);
    if (!raw.empty() && H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, static_cast<void*>(raw.data())) < 0) {
      throw std::runtime_error("cannot read " + path);
    }
    return copy(raw, type, H5Dget_space(data));
  }

  std::vector<std::string> text_attribute(const std::string& object, const std::string& name) const {
    const hid_t attribute = H5Aopen_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0) {
      throw std::runtime_error("no attribute " + name + " of " + object);
    }
    const hid_t type = H5Aget_type(attribute);
    const hid_t space = H5Aget_space(attribute);
    std::vector<char*> raw(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    if (!raw.empty()) {
      H5Aread(attribute, type, static_cast<void*>(raw.data()));
    }
    auto values = copy(raw, type, space);
    H5Aclose(attribute);
    return values;
  }

  /// "int64", "float64", "text", or the members of an enum as "name=value,...".
  static std::string type_name(hid_t type) {
    switch (H5Tget_class(type)) {
      case H5T_INTEGER: return H5Tequal(type, H5T_STD_I64LE) > 0 ? "int64" : "other integer";
      case H5T_FLOAT: return H5Tequal(type, H5T_IEEE_F64LE) > 0 ? "float64" : "other float";
      case H5T_STRING:
        return H5Tis_variable_str(type) > 0 && H5Tget_cset(type) == H5T_CSET_UTF8 ? "text" : "other string";
      case H5T_ENUM: {
        std::string members;
        for (int i = 0; i < H5Tget_nmembers(type); ++i) {
          char* name = H5Tget_member_name(type, static_cast<unsigned>(i));
          std::int8_t value = -1;
          H5Tget_member_value(type, static_cast<unsigned>(i), &value);
          members += std::string(name) + "=" + std::to_string(value) + ",";
          H5free_memory(name);
        }
        return members;
      }
      case H5T_NO_CLASS:
      case H5T_TIME:
      case H5T_BITFIELD:
      case H5T_OPAQUE:
      case H5T_COMPOUND:
      case H5T_REFERENCE:
      case H5T_VLEN:
      case H5T_ARRAY:
      case H5T_NCLASSES: break;
    }
    return "other";
  }

  hid_t dataset(const std::string& path) const {
    const hid_t id = H5Dopen2(file_, path.c_str(), H5P_DEFAULT);
    if (id < 0) {
      throw std::runtime_error("no dataset " + path);
    }
    return id;
  }

 private:
  static std::vector<std::string> copy(std::vector<char*>& raw, hid_t type, hid_t space) {
    std::vector<std::string> values;
    for (const char* text : raw) {
      values.emplace_back(text != nullptr ? text : "");
    }
    if (!raw.empty()) {
      H5Dvlen_reclaim(type, space, H5P_DEFAULT, static_cast<void*>(raw.data()));
    }
    return values;
  }

  TemporaryFolder copies_;
  hid_t file_ = -1;
};

}  // namespace strata::results::test

/// @file
/// Layout and writing of an attempt's HDF5 file: one 1-D dataset a column, a dimension scale a table.

#include "results/attempt_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <functional>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "results/announced_end.hpp"
#include "results/file_descriptor.hpp"
#include "results/hdf5.hpp"
#include "results/space_reserve.hpp"

namespace strata::results {
namespace {

/// Committed under @p name, as netCDF-4 readers want enums.
template <class Enum>
Handle commit_enum(hid_t file, const std::string& name, std::span<const std::pair<std::string_view, Enum>> members) {
  Handle type(check_hdf5(H5Tenum_create(H5T_STD_I8LE), "H5Tenum_create"), H5Tclose);
  for (const auto& [word, value] : members) {
    const auto number = static_cast<std::int8_t>(value);
    check_hdf5(H5Tenum_insert(type.get(), std::string(word).c_str(), &number), "H5Tenum_insert");
  }
  check_hdf5(H5Tcommit2(file, name.c_str(), type.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Tcommit2 " + name);
  return type;
}

/// HDF5 types by C++ type. The enum types are those of the file.
struct Types {
  Handle text;
  Handle phase;
  Handle status;

  explicit Types(hid_t file) : text(text_type()) {
    std::vector<std::pair<std::string_view, StepPhase>> phases;
    for (int i = 0; i < num_step_phases; ++i) {
      phases.emplace_back(to_string(static_cast<StepPhase>(i)), static_cast<StepPhase>(i));
    }
    phase = commit_enum<StepPhase>(file, "step_phase_t", phases);
    std::vector<std::pair<std::string_view, Status>> statuses;
    for (int i = 0; i < num_statuses; ++i) {
      statuses.emplace_back(to_string(static_cast<Status>(i)), static_cast<Status>(i));
    }
    status = commit_enum<Status>(file, "status_t", statuses);
  }

  template <class Value>
  hid_t of() const {
    if constexpr (std::is_same_v<Value, double>) {
      return H5T_IEEE_F64LE;
    } else if constexpr (std::is_same_v<Value, std::int64_t>) {
      return H5T_STD_I64LE;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return text.get();
    } else if constexpr (std::is_same_v<Value, StepPhase>) {
      return phase.get();
    } else {
      static_assert(std::is_same_v<Value, Status>);
      return status.get();
    }
  }
};

/// Bytes of @p values as HDF5 wants them in memory: text as pointers, all else as it is.
template <class Value>
void write_values(hid_t dataset, hid_t memory_space, hid_t file_space, const Types& types,
                  const std::vector<Value>& values, const std::string& name) {
  const void* data = values.data();
  std::vector<const char*> pointers;
  if constexpr (std::is_same_v<Value, std::string>) {
    for (const std::string& text : values) {
      pointers.push_back(text.c_str());
    }
    data = static_cast<const void*>(pointers.data());
  }
  check_hdf5(H5Dwrite(dataset, types.of<Value>(), memory_space, file_space, H5P_DEFAULT, data), "H5Dwrite " + name);
}

/// The group of one row type. Its index dataset is the dimension scale of all columns: the column of that name, or row
/// numbers where there is none.
template <class Row>
class Table {
 public:
  Table(hid_t file, const Types& types, const std::string& group, const std::string& index,
        std::span<const Column<Row>> columns, hsize_t rows_per_chunk)
      : types_(types), group_(group), columns_(columns) {
    const Handle parent = create_group(file, group);
    const auto is_index = [&](const Column<Row>& column) { return column.name == index; };
    if (std::none_of(columns.begin(), columns.end(), is_index)) {
      row_numbers_ = create(parent.get(), index, "1", H5T_STD_I64LE, rows_per_chunk);
    }
    for (const Column<Row>& column : columns) {
      const hid_t type =
          std::visit([&]<class Member>(const Member&) { return types_.of<ColumnValue<Row, Member>>(); }, column.member);
      datasets_.push_back(create(parent.get(), column.name, std::string(column.units), type, rows_per_chunk));
    }
    const auto column_index =
        static_cast<std::size_t>(std::find_if(columns.begin(), columns.end(), is_index) - columns.begin());
    const hid_t scale = row_numbers_ ? row_numbers_.get() : datasets_[column_index].get();
    check_hdf5(H5DSset_scale(scale, index.c_str()), "H5DSset_scale " + index);
    for (const Handle& dataset : datasets_) {
      if (dataset.get() != scale) {
        check_hdf5(H5DSattach_scale(dataset.get(), scale, 0), "H5DSattach_scale " + index);
      }
    }
  }

  void append(std::span<const Row> rows) {
    if (rows.empty()) {
      return;
    }
    const hsize_t size = num_rows_ + rows.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::visit(
          [&]<class Member>(const Member& member) {
            std::vector<ColumnValue<Row, Member>> values;
            values.reserve(rows.size());
            for (const Row& row : rows) {
              values.push_back(std::invoke(member, row));
            }
            append(datasets_[i].get(), values, size, columns_[i].name);
          },
          columns_[i].member);
    }
    if (row_numbers_) {
      std::vector<std::int64_t> numbers(rows.size());
      std::iota(numbers.begin(), numbers.end(), static_cast<std::int64_t>(num_rows_));
      append(row_numbers_.get(), numbers, size, "row numbers");
    }
    num_rows_ = size;
  }

 private:
  static Handle create(hid_t parent, const std::string& name, const std::string& units, hid_t type,
                       hsize_t rows_per_chunk) {
    const hsize_t none = 0;
    const hsize_t unlimited = H5S_UNLIMITED;
    const Handle space(check_hdf5(H5Screate_simple(1, &none, &unlimited), "H5Screate_simple"), H5Sclose);
    const Handle creation(check_hdf5(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate"), H5Pclose);
    check_hdf5(H5Pset_chunk(creation.get(), 1, &rows_per_chunk), "H5Pset_chunk");
    Handle dataset(
        check_hdf5(H5Dcreate2(parent, name.c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                   "H5Dcreate2 " + name),
        H5Dclose);
    if (!units.empty()) {
      write_attribute(dataset.get(), "units", units);
    }
    return dataset;
  }

  template <class Value>
  void append(hid_t dataset, const std::vector<Value>& values, hsize_t size, const std::string& name) {
    const std::string where = group_ + "/" + name;
    check_hdf5(H5Dset_extent(dataset, &size), "H5Dset_extent " + where);
    const Handle file_space(check_hdf5(H5Dget_space(dataset), "H5Dget_space"), H5Sclose);
    const hsize_t count = values.size();
    const hsize_t begin = size - count;
    check_hdf5(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &begin, nullptr, &count, nullptr),
               "H5Sselect_hyperslab");
    const Handle memory_space(check_hdf5(H5Screate_simple(1, &count, nullptr), "H5Screate_simple"), H5Sclose);
    write_values(dataset, memory_space.get(), file_space.get(), types_, values, where);
  }

  const Types& types_;
  std::string group_;
  std::span<const Column<Row>> columns_;
  std::vector<Handle> datasets_;  ///< in the order of columns_
  Handle row_numbers_;
  hsize_t num_rows_ = 0;
};

/// One scalar dataset a member. Created with the values of an attempt that has not ended.
class SummaryGroup {
 public:
  SummaryGroup(hid_t file, const Types& types) : types_(types) {
    const Handle group = create_group(file, "summary");
    const Handle scalar(check_hdf5(H5Screate(H5S_SCALAR), "H5Screate"), H5Sclose);
    for (const Column<Summary>& column : summary_columns()) {
      const std::string& name = column.name;
      const hid_t type = std::visit(
          [&]<class Member>(const Member&) { return types_.of<ColumnValue<Summary, Member>>(); }, column.member);
      datasets_.emplace_back(
          check_hdf5(H5Dcreate2(group.get(), name.c_str(), type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                     "H5Dcreate2 summary/" + name),
          H5Dclose);
      if (!column.units.empty()) {
        write_attribute(datasets_.back().get(), "units", std::string(column.units));
      }
    }
  }

  void write(const Summary& summary) const {
    for (std::size_t i = 0; i < datasets_.size(); ++i) {
      const Column<Summary>& column = summary_columns()[i];
      std::visit(
          [&]<class Member>(const Member& member) {
            const std::vector<ColumnValue<Summary, Member>> value = {std::invoke(member, summary)};
            write_values(datasets_[i].get(), H5S_ALL, H5S_ALL, types_, value, "summary/" + column.name);
          },
          column.member);
    }
  }

 private:
  const Types& types_;
  std::vector<Handle> datasets_;
};

void write_root_attribute(hid_t file, const Attribute& attribute) {
  const std::string name(attribute.name);
  std::visit(
      [&]<class Value>(const Value& value) {
        if constexpr (std::is_same_v<Value, bool>) {
          write_attribute(file, name, static_cast<std::int64_t>(value));
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          const Handle type = text_type();
          const hsize_t count = value.size();
          const Handle space(check_hdf5(H5Screate_simple(1, &count, nullptr), "H5Screate_simple"), H5Sclose);
          const Handle list(
              check_hdf5(H5Acreate2(file, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         "H5Acreate2 " + name),
              H5Aclose);
          std::vector<const char*> pointers;
          for (const std::string& text : value) {
            pointers.push_back(text.c_str());
          }
          if (!value.empty()) {
            check_hdf5(H5Awrite(list.get(), type.get(), static_cast<const void*>(pointers.data())), "H5Awrite " + name);
          }
        } else {
          write_attribute(file, name, value);
        }
      },
      attribute.value);
}

/// Bytes that a first write may add besides the rows: a chunk and a B-tree node a column, object headers, heaps.
constexpr std::int64_t metadata_bytes = std::int64_t{768} << 10;
/// Claimed ahead for rows that wait to be written when the disk is full.
constexpr std::int64_t next_rows_bytes = std::int64_t{256} << 10;
constexpr hsize_t step_rows_per_chunk = 256;
constexpr hsize_t event_rows_per_chunk = 1024;
constexpr hsize_t prediction_rows_per_chunk = 64;

/// A text is a 16-byte reference and a heap object with a 16-byte header, padded to 8.
std::int64_t text_bytes(const std::string& text) { return static_cast<std::int64_t>(text.size()) + 40; }

std::int64_t bytes_of(std::span<const Attribute> attributes) {
  std::int64_t bytes = 0;
  for (const Attribute& attribute : attributes) {
    if (const auto* text = std::get_if<std::string>(&attribute.value)) bytes += text_bytes(*text);
    if (const auto* texts = std::get_if<std::vector<std::string>>(&attribute.value)) {
      for (const std::string& text : *texts) bytes += text_bytes(text);
    }
  }
  return bytes;
}

std::int64_t bytes_of(const PendingRows& rows) {
  auto bytes = static_cast<std::int64_t>(rows.steps.size() * sizeof(StepRow) +
                                         rows.memory.size() * (sizeof(MemoryRow) + sizeof(std::int64_t)) +
                                         rows.evaluations.size() * (sizeof(EvaluationRow) + sizeof(std::int64_t)));
  for (const EventRow& row : rows.events) {
    bytes += 80 + text_bytes(row.name) + text_bytes(row.phase);
  }
  for (const PredictionRow& row : rows.predictions) {
    bytes += 24 + text_bytes(row.metric) + text_bytes(row.unit) + text_bytes(row.source);
  }
  return 2 * bytes;  // chunks that are not full
}

}  // namespace

/// Members are destroyed from the last to the first: tables, then types, then the file.
class AttemptFile::Open {
 public:
  Open(const std::string& path, std::span<const Attribute> attributes, SpaceReserve& reserve)
      : reserve_(reserve),
        file_(create_hdf5_file(path)),
        types_(file_.get()),
        steps_(file_.get(), types_, "steps", "step", step_columns(), step_rows_per_chunk),
        events_(file_.get(), types_, "events", "event", event_columns(), event_rows_per_chunk),
        predictions_(file_.get(), types_, "predictions", "prediction", prediction_columns(), prediction_rows_per_chunk),
        memory_(file_.get(), types_, "memory", "sample", memory_columns(), event_rows_per_chunk),
        evaluations_(file_.get(), types_, "evaluations", "evaluation", evaluation_columns(), prediction_rows_per_chunk),
        summary_(file_.get(), types_) {
    for (const Attribute& attribute : attributes) {
      write_root_attribute(file_.get(), attribute);
    }
    summary_.write(Summary{});
    flush();
    claim(metadata_bytes + next_rows_bytes);
  }

  /// Gives back what was claimed.
  ~Open() {
    if (!file_) return;
    try {
      announce_end(reserve_.file(), size());
    } catch (const std::exception&) {
      // The file is longer than it need be, and as readable.
    }
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  void append(const PendingRows& rows) {
    claim(metadata_bytes + bytes_of(rows));
    steps_.append(rows.steps);
    events_.append(rows.events);
    predictions_.append(rows.predictions);
    memory_.append(rows.memory);
    evaluations_.append(rows.evaluations);
    flush();
    claim(metadata_bytes + next_rows_bytes);  // the ending and its status are less
  }

  void end(const Summary& summary, const std::string& end_time) {
    summary_.write(summary);
    write_attribute(file_.get(), "end_time", end_time);
    flush();
  }

  /// The file last, after all that refers to it. @throws UserError where the system takes something only now, or does
  /// not.
  static void close(std::unique_ptr<Open> open) {
    announce_end(open->reserve_.file(), open->size());
    Handle file = std::move(open->file_);
    open.reset();
    file.close("H5Fclose");
  }

 private:
  /// Before HDF5 writes so many bytes more.
  void claim(std::int64_t bytes) {
    const std::int64_t end = size();
    reserve_.claim(end, bytes);
    announce_end(reserve_.file(), end + bytes);
  }
  std::int64_t size() const {
    hsize_t bytes = 0;
    check_hdf5(H5Fget_filesize(file_.get(), &bytes), "H5Fget_filesize");
    return static_cast<std::int64_t>(bytes);
  }

  void flush() const { check_hdf5(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "H5Fflush"); }

  SpaceReserve& reserve_;
  Handle file_;
  Types types_;
  Table<StepRow> steps_;
  Table<EventRow> events_;
  Table<PredictionRow> predictions_;
  Table<MemoryRow> memory_;
  Table<EvaluationRow> evaluations_;
  SummaryGroup summary_;
};

namespace {

/// HDF5's own messages do not name our folder.
template <class Function>
void with_folder_named(const std::string& path, Function&& function) {
  try {
    function();
  } catch (const UserError& error) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const std::string message = error.what();
    if (message.find(folder) != std::string::npos) {
      throw;
    }
    throw UserError(fmt::format("results folder {}: {}", folder, message));
  }
}

}  // namespace

AttemptFile::AttemptFile(const std::string& path, std::span<const Attribute> attributes, std::int64_t reserve_bytes)
    : path_(path) {
  const std::scoped_lock lock(hdf5_mutex());
  // The file must exist before space can be claimed for it, and be empty for HDF5: H5F_ACC_EXCL would refuse it, so the
  // exclusive creation happens here.
  auto created = FileDescriptor::create(path, O_RDWR);
  if (!created) {
    throw_file_error(path, EEXIST, "creating");
  }
  reserve_ = std::make_unique<SpaceReserve>(*std::move(created), reserve_bytes);
  with_folder_named(path, [&] {
    reserve_->claim(0, metadata_bytes + bytes_of(attributes));
    open_ = std::make_unique<Open>(path, attributes, *reserve_);
  });
}

AttemptFile::~AttemptFile() { abandon(); }

void AttemptFile::abandon() noexcept {
  const std::scoped_lock lock(hdf5_mutex());
  open_.reset();
  reserve_->release();
}

void AttemptFile::append(const PendingRows& rows) {
  const std::scoped_lock lock(hdf5_mutex());
  STRATA_INVARIANT(open_ != nullptr, "rows for a file that has ended");
  with_folder_named(path_, [&] { open_->append(rows); });
}

void AttemptFile::end(const Summary& summary, const std::string& end_time) {
  const std::scoped_lock lock(hdf5_mutex());
  STRATA_INVARIANT(open_ != nullptr, "a file ends once");
  with_folder_named(path_, [&] {
    open_->end(summary, end_time);
    Open::close(std::move(open_));
    reserve_->release();
    reserve_->file().sync();
  });
}

}  // namespace strata::results

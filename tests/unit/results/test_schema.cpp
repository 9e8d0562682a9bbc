/// @file
/// The file that the writer really makes has exactly the names, types, units and enums of results-schema/.

#include <gmock/gmock.h>
#include <hdf5.h>
#include <toml++/toml.h>

#include <map>
#include <set>
#include <string>

#include "results/columns.hpp"
#include "results/recorder.hpp"
#include "support/source_dir.hpp"
#include "unit/results/hdf5_reader.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_schema {
namespace {

const toml::table& schema() {
  static const toml::table table = toml::parse_file(strata::test::source_dir() + "/results-schema/schema-1.toml");
  return table;
}

std::string text(const toml::table& table, std::string_view key) { return table[key].value_or(std::string()); }

/// "a=0,b=1," in the order of values, as Hdf5Reader::type_name spells an enum.
std::string enum_members(const std::string& name) {
  for (const auto& node : *schema()["enum"].as_array()) {
    if (text(*node.as_table(), "name") == name) {
      std::map<std::int64_t, std::string> by_value;
      for (const auto& [member, value] : *(*node.as_table())["values"].as_table()) {
        by_value[value.value_or(std::int64_t{-1})] = std::string(member.str());
      }
      std::string members;
      for (const auto& [value, member] : by_value) {
        members += member + "=" + std::to_string(value) + ",";
      }
      return members;
    }
  }
  return "";
}

std::string hdf5_type(const std::string& schema_type) {
  if (schema_type == "flag") {
    return "int64";
  }
  if (schema_type == "texts") {
    return "text";
  }
  const std::string members = enum_members(schema_type);
  return members.empty() ? schema_type : members;
}

/// path -> "type [units]"
std::map<std::string, std::string> datasets_of_schema() {
  std::map<std::string, std::string> datasets;
  for (const auto& node : *schema()["table"].as_array()) {
    const toml::table& table = *node.as_table();
    for (const auto& column_node : *table["column"].as_array()) {
      const toml::table& column = *column_node.as_table();
      EXPECT_NE(text(column, "meaning"), "") << text(column, "name");
      datasets[text(table, "group") + "/" + text(column, "name")] =
          hdf5_type(text(column, "type")) + " [" + text(column, "units") + "]";
    }
  }
  for (const auto& node : *schema()["scalar"].as_array()) {
    const toml::table& scalar = *node.as_table();
    EXPECT_NE(text(scalar, "meaning"), "") << text(scalar, "name");
    datasets["summary/" + text(scalar, "name")] = hdf5_type(text(scalar, "type")) + " [" + text(scalar, "units") + "]";
  }
  return datasets;
}

struct Found {
  std::map<std::string, std::string> datasets;
  std::set<std::string> groups;
  std::set<std::string> named_types;
};

herr_t visit(hid_t file, const char* name, const H5O_info_t* info, void* data) {
  auto& found = *static_cast<Found*>(data);
  if (info->type == H5O_TYPE_GROUP) {
    found.groups.insert(name);
  } else if (info->type == H5O_TYPE_NAMED_DATATYPE) {
    found.named_types.insert(name);
  } else if (info->type == H5O_TYPE_DATASET) {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t type = H5Dget_type(dataset);
    std::string units;
    if (H5Aexists(dataset, "units") > 0) {
      const hid_t attribute = H5Aopen(dataset, "units", H5P_DEFAULT);
      const hid_t attribute_type = H5Aget_type(attribute);
      char* raw = nullptr;
      H5Aread(attribute, attribute_type, static_cast<void*>(&raw));
      units = raw;
      H5free_memory(raw);
      H5Tclose(attribute_type);
      H5Aclose(attribute);
    }
    found.datasets[name] = Hdf5Reader::type_name(type) + " [" + units + "]";
    H5Tclose(type);
    H5Dclose(dataset);
  }
  return 0;
}

Found contents(const Hdf5Reader& reader) {
  Found found;
  EXPECT_GE(H5Ovisit2(reader.file(), H5_INDEX_NAME, H5_ITER_NATIVE, visit, &found, H5O_INFO_BASIC), 0);
  return found;
}

TEST(Schema, NamesAndVersionAgree) {
  EXPECT_EQ(text(*schema()["schema"].as_table(), "name"), schema_name);
  EXPECT_EQ(text(*schema()["schema"].as_table(), "version"), schema_version);
}

TEST(Schema, DatasetsOfAFreshAndOfAFinishedFile) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  const auto expected = datasets_of_schema();
  ASSERT_EQ(expected.size(), step_columns().size() + event_columns().size() + 1 + prediction_columns().size() + 1 +
                                 memory_columns().size() + 1 + evaluation_columns().size() + 1 +
                                 summary_columns().size());
  {
    const Found fresh = contents(Hdf5Reader(recorder.path()));
    EXPECT_THAT(fresh.datasets, testing::ContainerEq(expected)) << "everything exists before the first row";
    EXPECT_THAT(fresh.groups,
                testing::ElementsAre(".", "evaluations", "events", "memory", "predictions", "steps", "summary"));
    EXPECT_THAT(fresh.named_types, testing::ElementsAre("status_t", "step_phase_t"));
  }
  recorder.add_step(sample_step(0));
  recorder.finish(Status::ok, "");
  EXPECT_THAT(contents(Hdf5Reader(recorder.path())).datasets, testing::ContainerEq(expected));
}

TEST(Schema, RootAttributesInOrder) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  recorder.finish(Status::ok, "");
  const Hdf5Reader reader(recorder.path());
  std::map<std::string, std::string> expected;
  for (const auto& node : *schema()["attribute"].as_array()) {
    const toml::table& attribute = *node.as_table();
    EXPECT_NE(text(attribute, "meaning"), "") << text(attribute, "name");
    const std::string type = text(attribute, "type");
    EXPECT_EQ(text(attribute, "units").empty(), type == "text" || type == "texts" || type == "flag")
        << text(attribute, "name");
    expected[text(attribute, "name")] = hdf5_type(type) + (type == "texts" ? " list" : " scalar");
  }
  std::map<std::string, std::string> found;
  const auto collect = [](hid_t object, const char* name, const H5A_info_t*, void* data) -> herr_t {
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute);
    const hid_t space = H5Aget_space(attribute);
    (*static_cast<std::map<std::string, std::string>*>(data))[name] =
        Hdf5Reader::type_name(type) + (H5Sget_simple_extent_ndims(space) == 1 ? " list" : " scalar");
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return 0;
  };
  hsize_t position = 0;
  ASSERT_GE(H5Aiterate2(reader.file(), H5_INDEX_NAME, H5_ITER_INC, &position, collect, &found), 0);
  EXPECT_THAT(found, testing::ContainerEq(expected));
}

}  // namespace
}  // namespace strata::results::test::test_schema

/// @file
/// Elements come back from wherever they were written; HDF5 reads what went past it; what is no checkpoint is said.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.hpp"
#include "results/checkpoint_file.hpp"
#include "unit/results/hdf5_reader.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_checkpoint_file {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<CheckpointParameter> parameters = {{"block.weight", 1000}, {"block.bias", 7}};
const std::vector<std::string> states = {"value", "m", "v"};

CheckpointFacts facts() {
  return {.step = 40,
          .creator_version = "0.1.0",
          .experiment_toml = std::string(100000, '#'),  // larger than what HDF5 holds in place
          .plan_text = "strategy = \"zero3\"",
          .identity = {{"train.seed", "1"}, {"model.name", "\"gpt-nano\""}}};
}

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CheckpointFile, ShardsOfOneCutAreReadInAnother) {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoints/step_40.h5.part";
  create_checkpoint(path, facts(), parameters, states);
  std::vector<float> whole(1000);
  std::iota(whole.begin(), whole.end(), 1.0F);
  for (const auto& [begin, end] : {std::pair{700, 1000}, std::pair{0, 333}, std::pair{333, 700}}) {
    const CheckpointFile writer(path, parameters, states, true);
    writer.write("block.weight", "m", begin,
                 std::span(whole).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    writer.sync();
  }
  const CheckpointFile reader(path, parameters, states, false);
  for (const std::size_t size : {1UL, 250UL, 1000UL}) {
    for (std::size_t begin = 0; begin + size <= 1000; begin += size) {
      std::vector<float> part(size);
      reader.read("block.weight", "m", static_cast<std::int64_t>(begin), part);
      EXPECT_TRUE(std::ranges::equal(part, std::span(whole).subspan(begin, size))) << begin << " " << size;
    }
  }
  EXPECT_EQ(read_checkpoint_facts(path), facts());
  // Past HDF5 they went, through HDF5 they come.
  const Hdf5Reader hdf5(path);
  const auto values = hdf5.numbers("parameters/block.weight/m");
  EXPECT_TRUE(std::ranges::equal(values, whole));
}

TEST(CheckpointFile, AChecksumIsTheSumOfItsParts) {
  std::vector<float> values(100);
  std::iota(values.begin(), values.end(), -50.0F);
  const std::uint64_t whole = checksum_of_elements(7, values);
  EXPECT_EQ(whole, checksum_of_elements(7, std::span(values).first(33)) +
                       checksum_of_elements(40, std::span(values).subspan(33)));
  std::swap(values[3], values[70]);
  EXPECT_NE(whole, checksum_of_elements(7, values)) << "places count";
  EXPECT_NE(checksum_of_elements(0, std::vector<float>(8, 0.0F)), 0U);
}

TEST(CheckpointFile, ChecksumsAreKept) {
  const TemporaryFolder folder;
  create_checkpoint(folder / "c.h5", facts(), parameters, states);
  write_checksums(folder / "c.h5", {{{"block.weight", "m"}, 0xfedcba9876543210U}});
  const CheckpointFile file(folder / "c.h5");
  EXPECT_EQ(file.places().size(), parameters.size() * states.size());
  EXPECT_EQ(file.places().at({"block.weight", "m"}).checksum, 0xfedcba9876543210U);
  EXPECT_EQ(file.places().at({"block.weight", "m"}).num_elements, 1000);
}

TEST(CheckpointFile, ElementsThatAreNotThereAreOurMistake) {
  const TemporaryFolder folder;
  create_checkpoint(folder / "c.h5", facts(), parameters, states);
  const CheckpointFile file(folder / "c.h5", parameters, states, true);
  const std::vector<float> values(8);
  EXPECT_THROW(file.write("block.bias", "m", 0, values), InternalError);
  EXPECT_THROW(file.write("block.weight", "m", -1, values), InternalError);
  EXPECT_THROW(file.write("block.weight", "momentum", 0, values), InternalError);
}

TEST(CheckpointFile, AnotherModelOrOptimizerIsSaid) {
  const TemporaryFolder folder;
  const std::string path = folder / "c.h5";
  create_checkpoint(path, facts(), parameters, states);
  const auto refusal = [&](const std::vector<CheckpointParameter>& model, const std::vector<std::string>& needed) {
    return error_of([&] { CheckpointFile(path, model, needed, false); });
  };
  EXPECT_EQ(refusal(parameters, {"value"}), "no error") << "what is not needed may be there";
  EXPECT_THAT(refusal(parameters, {"value", "momentum"}),
              HasSubstr("c.h5: no momentum of block.weight, which the training needs"));
  EXPECT_THAT(refusal({{"block.weight", 999}, {"block.bias", 7}}, states),
              HasSubstr("block.weight has 1000 elements, in the model it has 999"));
  EXPECT_THAT(refusal({{"head.weight", 1000}, {"block.bias", 7}}, states), HasSubstr("no parameter head.weight"));
  EXPECT_THAT(refusal({{"block.bias", 7}}, states), HasSubstr("2 parameters, the model has 1"));
}

TEST(CheckpointFile, SomeParametersHaveMore) {
  const TemporaryFolder folder;
  const std::string path = folder / "c.h5";
  const std::vector<CheckpointKey> more = {{"block.bias", "previous"}};
  create_checkpoint(path, facts(), parameters, states, more);
  EXPECT_EQ(CheckpointFile(path).places().size(), parameters.size() * states.size() + 1);
  EXPECT_EQ(CheckpointFile(path, parameters, states, false, more).places().count({"block.bias", "previous"}), 1U);
  const std::vector<CheckpointKey> another = {{"block.weight", "previous"}};
  EXPECT_THAT(error_of([&] { CheckpointFile(path, parameters, states, false, another); }),
              HasSubstr("c.h5: no previous of block.weight, which the training needs"));
}

TEST(CheckpointFile, WhatIsNoneIsSaid) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) { return error_of([&] { read_checkpoint_facts(path); }); };
  EXPECT_THAT(refusal(folder / "missing.h5"), HasSubstr("missing.h5: No such file or directory"));
  EXPECT_THAT(refusal(folder / "."), HasSubstr("a folder"));
  std::ofstream(folder / "text.h5") << "not HDF5";
  EXPECT_THAT(refusal(folder / "text.h5"), HasSubstr("text.h5: not a complete checkpoint"));
  create_checkpoint(folder / "c.h5", facts(), parameters, states);
  EXPECT_EQ(refusal(folder / "c.h5"), "no error");
  fs::resize_file(folder / "c.h5", fs::file_size(folder / "c.h5") - 1);
  EXPECT_THAT(refusal(folder / "c.h5"), HasSubstr("c.h5: not a complete checkpoint"));
}

TEST(CheckpointFile, AFolderThatIsNoneIsSaid) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "no folder";
  EXPECT_THAT(error_of([&] { create_checkpoint(folder / "file/step_1.h5", facts(), parameters, states); }),
              HasSubstr("file/step_1.h5: "));
}

TEST(CheckpointFile, TheOldestGo) {
  const TemporaryFolder folder;
  const std::string place = folder / "checkpoints";
  EXPECT_THAT(checkpoints_in(place), ElementsAre());
  fs::create_directories(place);
  for (const std::int64_t step : {9, 100, 20}) std::ofstream(checkpoint_path(place, step)) << "c";
  for (const char* other : {"/step_.h5", "/step_7.h5.2.part", "/step_8.h5.part", "/step_7x.h5", "/notes"})
    std::ofstream(place + other) << "c";
  EXPECT_THAT(checkpoints_in(place), ElementsAre(9, 20, 100));
  remove_old_checkpoints(place, 0, 100);
  EXPECT_THAT(checkpoints_in(place), ElementsAre(9, 20, 100)) << "0 keeps all";
  EXPECT_TRUE(fs::exists(place + "/step_7.h5.2.part")) << "another attempt may be writing it";
  remove_unfinished_checkpoints(place);
  EXPECT_FALSE(fs::exists(place + "/step_7.h5.2.part")) << "nobody will finish it";
  EXPECT_FALSE(fs::exists(place + "/step_8.h5.part")) << "of an older version";
  remove_old_checkpoints(place, 2, 100);
  EXPECT_THAT(checkpoints_in(place), ElementsAre(20, 100));
  remove_old_checkpoints(place, 1, 20);
  EXPECT_THAT(checkpoints_in(place), testing::Contains(20)) << "the one just written stays";
  EXPECT_TRUE(fs::exists(place + "/notes"));
}

}  // namespace
}  // namespace strata::results::test::test_checkpoint_file

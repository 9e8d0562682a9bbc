/// @file
/// Token files of every format, written here byte by byte: the ids and windows they give, and what is said of bad ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/dataset.hpp"
#include "support/source_dir.hpp"
#include "temporary_folder.hpp"

namespace strata::data::test_token_files {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

struct Window {
  Ids input;
  Ids target;
  bool operator==(const Window&) const = default;
};

Window window(const TokenDataset& dataset, std::int64_t sample) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  Window result{Ids(length, -1), Ids(length, -1)};
  dataset.tokens(sample, result.input, result.target);
  return result;
}

/// llm.c's file: int32[256] of magic, version, count, then the tokens.
template <typename T>
std::string llmc_bytes(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<T>& tokens) {
  Ids header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T));
  return bytes;
}

const std::vector<std::uint16_t> small_tokens = {5, 50256, 7, 65535, 9, 10, 11};
const std::vector<std::uint32_t> wide_tokens = {5, 128255, 7, 2147483646, 9, 10, 11};

class TokenFiles : public testing::Test {
 protected:
  static std::unique_ptr<TokenDataset> open(const std::string& path, Format format, std::int64_t length,
                                            std::int64_t vocabulary) {
    return make_token_dataset({.format = format, .paths = {path}, .sequence_length = length, .vocabulary = vocabulary});
  }
  TemporaryFolder folder_;
};

TEST_F(TokenFiles, RawU16) {
  const auto dataset = open(folder_.write("a.bin", small_tokens), Format::raw_u16, 2, 65536);
  ASSERT_EQ(dataset->num_samples(), 2);  // 7 tokens, windows of 3, one dropped
  EXPECT_EQ(window(*dataset, 0), (Window{{5, 50256}, {50256, 7}}));
  EXPECT_EQ(window(*dataset, 1), (Window{{65535, 9}, {9, 10}}));
}

TEST_F(TokenFiles, RawU32) {
  const auto dataset = open(folder_.write("a.bin", wide_tokens), Format::raw_u32, 2, 2147483647);
  ASSERT_EQ(dataset->num_samples(), 2);
  EXPECT_EQ(window(*dataset, 0), (Window{{5, 128255}, {128255, 7}}));
  EXPECT_EQ(window(*dataset, 1), (Window{{2147483646, 9}, {9, 10}}));
}

TEST_F(TokenFiles, LlmcU16AndU32AreRecognised) {
  const std::string small = folder_.write("small.bin", llmc_bytes(20240520, 1, 7, small_tokens));
  const std::string wide = folder_.write("wide.bin", llmc_bytes(20240801, 7, 7, wide_tokens));
  for (const Format format : {Format::llmc, Format::automatic}) {
    const auto from_small = open(small, format, 6, 65536);
    ASSERT_EQ(from_small->num_samples(), 1);
    EXPECT_EQ(window(*from_small, 0), (Window{{5, 50256, 7, 65535, 9, 10}, {50256, 7, 65535, 9, 10, 11}}));
    EXPECT_EQ(from_small->describe().format, Format::llmc);
    const auto from_wide = open(wide, format, 6, 2147483647);
    EXPECT_EQ(window(*from_wide, 0), (Window{{5, 128255, 7, 2147483646, 9, 10}, {128255, 7, 2147483646, 9, 10, 11}}));
  }
}

TEST_F(TokenFiles, TextIsItsBytes) {
  const std::string path = folder_.write("a.txt", std::string("ab\n\xc3\xa9\xff\0z", 8));
  for (const Format format : {Format::text, Format::automatic}) {
    const auto dataset = open(path, format, 3, 256);
    ASSERT_EQ(dataset->num_samples(), 2);
    EXPECT_EQ(window(*dataset, 0), (Window{{97, 98, 10}, {98, 10, 0xc3}}));
    EXPECT_EQ(window(*dataset, 1), (Window{{0xa9, 0xff, 0}, {0xff, 0, 122}}));
    EXPECT_EQ(dataset->describe().format, Format::text);
  }
}

TEST_F(TokenFiles, EndOfTextFollowsEachFile) {
  const auto dataset = make_token_dataset({.format = Format::text,
                                           .paths = {folder_.write("a", "abc"), folder_.write("b", "defgh")},
                                           .sequence_length = 1,
                                           .vocabulary = 257,
                                           .end_of_text = true});
  ASSERT_EQ(dataset->num_samples(), 5);
  EXPECT_EQ(window(*dataset, 0), (Window{{'a'}, {'b'}}));
  EXPECT_EQ(window(*dataset, 1), (Window{{'c'}, {256}}));
  EXPECT_EQ(window(*dataset, 4), (Window{{'h'}, {256}}));
}

TEST_F(TokenFiles, NoWindowCrossesFiles) {
  std::vector<std::uint16_t> first(10);
  std::vector<std::uint16_t> second(7);
  std::iota(first.begin(), first.end(), std::uint16_t{0});
  std::iota(second.begin(), second.end(), std::uint16_t{100});
  const auto dataset = make_token_dataset({.format = Format::raw_u16,
                                           .paths = {folder_.write("a.bin", first), folder_.write("b.bin", second)},
                                           .sequence_length = 2,
                                           .vocabulary = 200});
  ASSERT_EQ(dataset->num_samples(), 5);
  EXPECT_EQ(window(*dataset, 2), (Window{{6, 7}, {7, 8}}));
  EXPECT_EQ(window(*dataset, 3), (Window{{100, 101}, {101, 102}}));
  EXPECT_EQ(window(*dataset, 4), (Window{{103, 104}, {104, 105}}));
}

TEST_F(TokenFiles, DescribeNamesFilesSizesAndContent) {
  const std::string path = folder_.write("a.txt", std::string("abcdefghij"));
  const Provenance before = open(path, Format::text, 3, 256)->describe();
  EXPECT_EQ(before.num_samples, 2);
  ASSERT_EQ(before.files.size(), 1U);
  EXPECT_EQ(before.files[0].path, path);
  EXPECT_EQ(before.files[0].size_bytes, 10);
  EXPECT_THAT(to_string(before), HasSubstr("text: 2 samples, 10 tokens, windows of 3 + 1, 2 tokens of tails dropped"));
  EXPECT_THAT(to_string(before), HasSubstr(path + " (10 bytes, checksum "));
  EXPECT_EQ(open(path, Format::text, 3, 256)->describe(), before);
  folder_.write("a.txt", std::string("abcdefghiJ"));
  EXPECT_NE(open(path, Format::text, 3, 256)->describe().files[0].checksum, before.files[0].checksum);
}

TEST_F(TokenFiles, ChecksumOfALargeFileSeesItsEndsAndItsSize) {
  std::string bytes(3'000'001, 'x');
  const auto checksum = [&] {
    return open(folder_.write("a.txt", bytes), Format::text, 3, 256)->describe().files[0].checksum;
  };
  const std::uint64_t before = checksum();
  bytes.front() = 'y';
  const std::uint64_t other_front = checksum();
  bytes.front() = 'x';
  bytes.back() = 'y';
  const std::uint64_t other_back = checksum();
  bytes.back() = 'x';
  EXPECT_EQ(checksum(), before);
  bytes.push_back('x');
  EXPECT_NE(checksum(), before);
  EXPECT_NE(other_front, before);
  EXPECT_NE(other_back, before);
}

TEST_F(TokenFiles, ShippedTextTrainsAsItIs) {
  const std::string path = test::source_dir() + "/experiments/data/king_james_new_testament.txt";
  const auto dataset = open(path, Format::automatic, 256, 256);
  EXPECT_EQ(dataset->num_samples(), 952513 / 257);
  const Window first = window(*dataset, 0);
  EXPECT_EQ(std::string(first.input.begin(), first.input.begin() + 27), "Matthew 1\nThe book of the g");
}

// ---- bad input ----

TEST_F(TokenFiles, MissingEmptyAndIrregularFiles) {
  const std::string missing = folder_.path("missing.bin");
  EXPECT_EQ(user_error([&] { open(missing, Format::raw_u16, 2, 10); }),
            "cannot open data file " + missing + ": No such file or directory");
  const std::string empty = folder_.write("empty.txt", std::string());
  EXPECT_EQ(user_error([&] { open(empty, Format::automatic, 2, 256); }), "data file " + empty + " is empty (0 bytes)");
  EXPECT_EQ(user_error([&] { open(folder_.path(""), Format::text, 2, 256); }),
            "data file " + folder_.path("") + " is not a regular file");
  const std::string fifo = folder_.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(user_error([&] { open(fifo, Format::text, 2, 256); }), "data file " + fifo + " is not a regular file");
}

TEST_F(TokenFiles, PartialTokens) {
  const std::string path = folder_.write("a.bin", std::string(21, 'x'));
  EXPECT_EQ(user_error([&] { open(path, Format::raw_u16, 2, 10); }),
            "token file " + path + " has 21 bytes, which is no multiple of the 2 bytes of a raw_u16 token");
  EXPECT_EQ(user_error([&] { open(path, Format::raw_u32, 2, 10); }),
            "token file " + path + " has 21 bytes, which is no multiple of the 4 bytes of a raw_u32 token");
}

TEST_F(TokenFiles, LlmcHeaderAndSizeDisagree) {
  const std::string truncated = folder_.write("a.bin", llmc_bytes(20240520, 1, 9, small_tokens));
  EXPECT_EQ(user_error([&] { open(truncated, Format::automatic, 2, 65536); }),
            "token file " + truncated +
                " has 1038 bytes, but its header announces 9 tokens of 2 bytes, 1042 bytes in all: it is truncated");
  const std::string longer = folder_.write("b.bin", llmc_bytes(20240801, 7, 6, wide_tokens));
  EXPECT_EQ(
      user_error([&] { open(longer, Format::llmc, 2, 65536); }),
      "token file " + longer +
          " has 1052 bytes, but its header announces 6 tokens of 4 bytes, 1048 bytes in all: its header is wrong");
  const std::string negative = folder_.write("c.bin", llmc_bytes(20240520, 1, -512, std::vector<std::uint16_t>{}));
  EXPECT_THAT(user_error([&] { open(negative, Format::llmc, 2, 65536); }), HasSubstr("announces -512 tokens"));
}

TEST_F(TokenFiles, LlmcHeaderIsNone) {
  const std::string brief = folder_.write("a.bin", llmc_bytes(20240520, 1, 7, small_tokens).substr(0, 100));
  EXPECT_EQ(user_error([&] { open(brief, Format::automatic, 2, 65536); }),
            "token file " + brief + " has 100 bytes, fewer than llm.c's header of 1024");
  const std::string magic = folder_.write("b.bin", llmc_bytes(20240521, 1, 7, small_tokens));
  EXPECT_EQ(user_error([&] { open(magic, Format::llmc, 2, 65536); }),
            "token file " + magic +
                " begins with 20240521, which is not llm.c's magic number 20240520 (uint16) or 20240801 (uint32)");
  const std::string version = folder_.write("c.bin", llmc_bytes(20240520, 2, 7, small_tokens));
  EXPECT_EQ(user_error([&] { open(version, Format::automatic, 2, 65536); }),
            "token file " + version + " has version 2 under llm.c's magic number 20240520; only version 1 is known");
}

TEST_F(TokenFiles, AutoDoesNotGuessAWidth) {
  const std::string path = folder_.write("a.bin", small_tokens);
  EXPECT_EQ(user_error([&] { open(path, Format::automatic, 2, 65536); }),
            "token file " + path +
                " has no llm.c header, so its format cannot be told: set data.format to raw_u16, raw_u32 or text");
}

TEST_F(TokenFiles, AutoRefusesMixedFormats) {
  const std::string text = folder_.write("a.txt", std::string("abcdefgh"));
  const std::string tokens = folder_.write("b.bin", llmc_bytes(20240520, 1, 7, small_tokens));
  EXPECT_EQ(user_error([&] {
              make_token_dataset({.paths = {text, tokens}, .sequence_length = 2, .vocabulary = 65536});
            }),
            "data.paths: " + text + " is text but " + tokens + " is llmc; all files must have one format");
}

TEST_F(TokenFiles, TooShortForOneWindow) {
  const std::string path = folder_.write("a.bin", small_tokens);
  EXPECT_EQ(open(path, Format::raw_u16, 6, 65536)->num_samples(), 1);
  EXPECT_EQ(
      user_error([&] { open(path, Format::raw_u16, 7, 65536); }),
      "token file " + path + " (14 bytes, raw_u16) holds 7 tokens, fewer than one window of sequence length 7 + 1 = 8");
}

TEST_F(TokenFiles, IdOutsideTheVocabularyIsNamedWhenRead) {
  const std::string path = folder_.write("a.bin", small_tokens);
  const auto dataset = open(path, Format::raw_u16, 2, 50257);
  EXPECT_EQ(window(*dataset, 0), (Window{{5, 50256}, {50256, 7}}));
  EXPECT_EQ(user_error([&] { window(*dataset, 1); }),
            "token file " + path + ": token 3 of 7 has id 65535, but model.vocabulary = 50257 (ids 0 to 50256)");
  // An id above int32's range is no negative one, and the last token of a window counts too.
  const std::string huge = folder_.write("b.bin", std::vector<std::uint32_t>{1, 2, 4294967295U});
  EXPECT_EQ(user_error([&] { window(*open(huge, Format::raw_u32, 2, 2147483647), 0); }),
            "token file " + huge +
                ": token 2 of 3 has id 4294967295, but model.vocabulary = 2147483647 (ids 0 to 2147483646)");
}

TEST_F(TokenFiles, TextNeedsTheVocabularyOfBytes) {
  const std::string path = folder_.write("a.txt", std::string("abcdefgh"));
  EXPECT_EQ(user_error([&] { open(path, Format::text, 2, 255); }),
            "text " + path + " is read byte by byte and needs model.vocabulary of at least 256, but it is 255");
  EXPECT_EQ(user_error([&] {
              make_token_dataset({.paths = {path}, .sequence_length = 2, .vocabulary = 256, .end_of_text = true});
            }),
            "text " + path +
                " is read byte by byte and needs model.vocabulary of at least 257 (256 bytes and end of text), but it "
                "is 256");
}

TEST_F(TokenFiles, OptionsThatMakeNoSense) {
  const std::string path = folder_.write("a.bin", small_tokens);
  EXPECT_EQ(user_error([&] { open(path, Format::raw_u16, 0, 10); }),
            "model.sequence_length = 0; accepted: 1 to 2147483646");
  EXPECT_EQ(user_error([&] { open(path, Format::raw_u16, 2, 0); }), "model.vocabulary = 0; accepted: 1 to 2147483647");
  EXPECT_EQ(user_error([&] { make_token_dataset({.sequence_length = 2, .vocabulary = 256}); }),
            "data.paths is empty, but data.format = \"auto\" needs at least one file (\"synthetic\" needs none)");
  EXPECT_EQ(user_error([&] { open(path, Format::synthetic, 2, 256); }),
            "data.format = \"synthetic\" reads no file, but data.paths names " + path);
  EXPECT_THAT(user_error([&] { open(path, Format::cifar10, 2, 256); }),
              HasSubstr("data.format = \"cifar10\" holds images, but the model reads tokens"));
  EXPECT_EQ(user_error([&] {
              make_token_dataset({.format = Format::raw_u16,
                                  .paths = {path},
                                  .sequence_length = 2,
                                  .vocabulary = 65536,
                                  .end_of_text = true});
            }),
            "data.end_of_text is for text, but the format is raw_u16");
  EXPECT_EQ(user_error([&] { parse_format("parquet"); }),
            "unknown data format \"parquet\"; accepted: auto, text, raw_u16, raw_u32, llmc, cifar10, image_folder, "
            "synthetic");
  for (const char* name : {"auto", "text", "raw_u16", "raw_u32", "llmc", "cifar10", "image_folder", "synthetic"}) {
    EXPECT_EQ(to_string(parse_format(name)), name);
  }
}

TEST_F(TokenFiles, SamplesAndSpansOutOfRangeAreOurBugs) {
  const auto dataset = open(folder_.write("a.bin", small_tokens), Format::raw_u16, 2, 65536);
  Ids two(2);
  Ids three(3);
  EXPECT_THROW(dataset->tokens(2, two, two), InternalError);
  EXPECT_THROW(dataset->tokens(-1, two, two), InternalError);
  EXPECT_THROW(dataset->tokens(0, two, three), InternalError);
}

}  // namespace
}  // namespace strata::data::test_token_files

/// @file
/// Tables of measured runs: columns by name in any order, and messages with file, line and column.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "config/measured_runs.hpp"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view header =
    "num_gpus,global_batch,micro_batch,hidden_size,attention_heads,layers,sequence_length,tensor_parallelism,"
    "data_parallelism,pipeline_parallelism,iteration_time_ms\n";

std::string error_of(const std::string& text) {
  try {
    parse_measured_runs(text, "t.csv");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MeasuredRuns, ReadsRowsAndTheirLines) {
  const MeasuredRuns runs = parse_measured_runs(
      fmt::format("# a remark\n\n{}16,32,1,64,4,8,128,2,2,4,12.5\r\n1,1,1,64,4,8,128,1,1,1,3e2\n", header), "t.csv");
  EXPECT_EQ(runs.quantity, MeasuredQuantity::iteration_time_ms);
  ASSERT_EQ(runs.rows.size(), 2U);
  const TransformerRun expected = {.hidden_size = 64,
                                   .attention_heads = 4,
                                   .layers = 8,
                                   .sequence_length = 128,
                                   .global_batch = 32,
                                   .micro_batch = 1,
                                   .tensor = 2,
                                   .data = 2,
                                   .pipeline = 4};
  EXPECT_EQ(runs.rows[0].run, expected);
  EXPECT_EQ(runs.rows[0].measured, 12.5);
  EXPECT_EQ(runs.rows[0].line, 4);
  EXPECT_FALSE(runs.rows[0].recomputation.has_value());
  EXPECT_EQ(runs.rows[1].measured, 300.0);
}

TEST(MeasuredRuns, ColumnsStandInAnyOrder) {
  const MeasuredRuns runs = parse_measured_runs(
      "activation_bytes,sequence_parallel,recomputation,virtual_stages,vocabulary_size,name,pipeline_parallelism,"
      "data_parallelism,tensor_parallelism,sequence_length,layers,attention_heads,hidden_size,micro_batch,global_batch,"
      "num_gpus\n"
      "1024,yes,full,2,512,a remark,4,2,2,128,8,4,64,1,32,16\n",
      "t.csv");
  EXPECT_EQ(runs.quantity, MeasuredQuantity::activation_bytes);
  const TransformerRun& run = runs.rows[0].run;
  EXPECT_TRUE(run.sequence_parallel);
  EXPECT_EQ(run.recomputation, Recomputation::full);
  EXPECT_EQ(runs.rows[0].recomputation, Recomputation::full);
  EXPECT_EQ(run.virtual_stages, 2);
  EXPECT_EQ(run.vocabulary_size, 512);
  EXPECT_EQ(run.pipeline, 4);
  EXPECT_EQ(run.global_batch, 32);
}

TEST(MeasuredRuns, BadRowsAreNamed) {
  const auto row = [](const std::string& cells) { return error_of(std::string(header) + cells + "\n"); };
  EXPECT_THAT(row("8,32,1,64,4,8,128,2,2,4,12.5"),
              StartsWith("t.csv:2: num_gpus: 8, but tensor_parallelism x data_parallelism x pipeline_parallelism = "
                         "2 x 2 x 4"));
  EXPECT_THAT(row("1,1,1,64,4,8,128,1,1,1"), HasSubstr("t.csv:2: 10 values under 11 columns"));
  EXPECT_THAT(row("1,1,one,64,4,8,128,1,1,1,3"), StartsWith("t.csv:2: micro_batch: \"one\""));
  EXPECT_THAT(row("1,1,1.5,64,4,8,128,1,1,1,3"), StartsWith("t.csv:2: micro_batch: \"1.5\""));
  EXPECT_THAT(row("1,1,,64,4,8,128,1,1,1,3"), StartsWith("t.csv:2: micro_batch: empty"));
  EXPECT_THAT(row("1,1,0,64,4,8,128,1,1,1,3"), StartsWith("t.csv:2: micro_batch: 0 is out of range"));
  EXPECT_THAT(row("1,1,99999999,64,4,8,128,1,1,1,3"), StartsWith("t.csv:2: micro_batch: 99999999 is out of range"));
  EXPECT_THAT(row("1,1,1,64,4,8,128,1,1,1,0"), StartsWith("t.csv:2: iteration_time_ms: 0"));
  EXPECT_THAT(row("1,1,1,64,4,8,128,1,1,1,nan"), StartsWith("t.csv:2: iteration_time_ms: nan"));
  EXPECT_THAT(row("1,1,1,64,4,8,128,1,1,1,inf"), StartsWith("t.csv:2: iteration_time_ms: inf"));
}

TEST(MeasuredRuns, BadHeadersAreNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("t.csv: no rows"));
  EXPECT_THAT(error_of(std::string(header)), HasSubstr("t.csv: no rows"));
  EXPECT_THAT(error_of(std::string("ELF\0", 4)), HasSubstr("t.csv: not a text file"));
  EXPECT_THAT(error_of("num_gpuz,layers\n"), AllOf(HasSubstr("t.csv:1: num_gpuz"), HasSubstr("num_gpus")));
  EXPECT_THAT(error_of("layers,layers\n"), HasSubstr("t.csv:1: layers: a column of this name stands before it"));
  EXPECT_THAT(error_of("num_gpus,layers\n"), HasSubstr("global_batch: missing column"));
  EXPECT_THAT(error_of("activation_bytes," + std::string(header)), HasSubstr("2 columns; accepted: one of"));
}

}  // namespace
}  // namespace strata

/// @file
/// Files of tokens. The first byte says of which format, whether texts end in a token of their own, and how long
/// sequences are; the rest is the file.

#include <algorithm>
#include <array>
#include <vector>

#include "data/dataset.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::token_file {

STRATA_FUZZ_TARGET(tokens) {
  constexpr std::array formats = {data::Format::automatic, data::Format::text, data::Format::raw_u16,
                                  data::Format::raw_u32, data::Format::llmc};
  Choices choices(bytes);
  const int choice = choices.of(60);
  const FileInMemory file(choices.rest());
  const data::TokenOptions options{.format = formats[static_cast<std::size_t>(choice % 5)],
                                   .paths = {file.path()},
                                   .sequence_length = 1 + choice / 10 * 7,
                                   .vocabulary = 260,
                                   .end_of_text = choice / 5 % 2 == 1};
  const auto dataset =
      unless_refused(options.end_of_text ? "" : file.path(), [&] { return make_token_dataset(options); });
  if (!dataset) return;
  const data::TokenDataset& tokens = **dataset;
  require(tokens.num_samples() >= 1 && tokens.describe().num_samples == tokens.num_samples(), "an epoch of nothing");
  std::vector<std::int32_t> input(static_cast<std::size_t>(options.sequence_length)), target = input;
  for (const std::int64_t sample : {std::int64_t{0}, tokens.num_samples() / 2, tokens.num_samples() - 1}) {
    const auto is_read = unless_refused(file.path(), [&] {
      tokens.tokens(sample, input, target);
      return true;
    });
    if (!is_read) continue;
    require(std::equal(input.begin() + 1, input.end(), target.begin()), "a target is the next token");
    for (const std::int32_t id : target) require(id >= 0 && id < options.vocabulary, "a token that nobody knows");
  }
}

}  // namespace strata::fuzz::token_file

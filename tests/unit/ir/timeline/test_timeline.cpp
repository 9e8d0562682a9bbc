/// @file
/// Timelines: round trip, verify's rules.

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "ir/timeline/timeline.hpp"
#include "support/refusal.hpp"
#include "support/sample_timeline.hpp"

namespace strata::test_timeline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Timeline, ReadsBackEqual) {
  Timeline timeline = test::sample_timeline();
  EXPECT_NO_THROW(verify(timeline));
  EXPECT_EQ(parse_timeline(to_text(timeline)), timeline);
  timeline.simulated = true;
  EXPECT_EQ(parse_timeline(to_text(timeline)), timeline);
  EXPECT_EQ(parse_timeline(to_text(Timeline{})), Timeline{});
}

TEST(Timeline, TextIsOneLineAnEvent) {
  Timeline timeline;
  timeline.streams = {"compute"};
  timeline.instructions = {"adam"};
  timeline.events = {{2, 1, 0, 0, 5, 9, 0}};
  EXPECT_EQ(to_text(timeline), "timeline measured\nstream 0 compute\ninstruction 0 adam\nevent 2 1 0 0 5 9 0\n");
}

TEST(Timeline, VerifyNamesTheEvent) {
  const std::pair<const char*, void (*)(Timeline&)> cases[] = {
      {"2 streams", [](Timeline& t) { t.events[0].stream = 2; }},
      {"2 streams", [](Timeline& t) { t.events[0].stream = -1; }},
      {"3 instructions", [](Timeline& t) { t.events[0].instruction = 3; }},
      {"begins at 1000 ns and ends at 999 ns", [](Timeline& t) { t.events[1].end_ns = 999; }},
      {"begins at -1 ns", [](Timeline& t) { t.events[0].begin_ns = -1; }},
      {"sent -1 bytes", [](Timeline& t) { t.events[0].bytes_sent = -1; }},
      {"negative rank or step", [](Timeline& t) { t.events[0].rank = -1; }},
      {"sorted by rank, step and begin", [](Timeline& t) { std::swap(t.events[3], t.events[4]); }},
      {"before instruction 0 of the stream ends at 1501 ns", [](Timeline& t) { t.events[0].end_ns = 1501; }},
  };
  for (const auto& [expected, apply] : cases) {
    Timeline timeline = test::sample_timeline();
    apply(timeline);
    EXPECT_THAT(words_of<InternalError>([&] { verify(timeline); }), HasSubstr(expected));
  }
}

TEST(Timeline, ParserNamesTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "timeline:1: empty"},
      {"timelin measured\n", "timeline:1: accepted"},
      {"timeline predicted\n", "timeline:1: accepted"},
      {"timeline measured\nstream 1 a\n", "timeline:2: streams are numbered in order; accepted: 0"},
      {"timeline measured\nstream x a\n", "timeline:2: `x` where the integer number is accepted"},
      {"timeline measured\n\n", "timeline:2: ``; accepted: stream, instruction, event"},
      {"timeline measured\nevent 0 0 0 0 1 2\n", "timeline:2: `` where the integer bytes_sent is accepted"},
      {"timeline measured\nevent 0 0 0 0 1 2 3 4\n", "timeline:2: `4` after the end"},
      {"timeline measured\nevent 0 0 0 0 1.5 2 3\n", "timeline:2: `1.5` where the integer begin_ns is accepted"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(words_of<UserError>([&, t = text] { parse_timeline(t); }), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace strata::test_timeline

/// @file
/// Chrome traces of timelines.

#include <gmock/gmock.h>

#include "interchange/chrome.hpp"
#include "support/sample_timeline.hpp"

namespace strata::test_chrome {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChromeTrace, HasAProcessARankAThreadAStreamAndStepsInTurn) {
  const std::string trace = to_chrome_trace(test::sample_timeline());
  EXPECT_THAT(trace, HasSubstr(R"({"name":"process_name","ph":"M","pid":3,"args":{"name":"rank 3"}})"));
  EXPECT_THAT(trace, Not(HasSubstr("rank 1")));
  EXPECT_THAT(trace, HasSubstr(R"({"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"data \"reduce\""}})"));
  EXPECT_THAT(
      trace,
      HasSubstr(R"({"name":"all_reduce bucket\\0","cat":"measured","ph":"X","ts":1.000,"dur":1.001,"pid":0,"tid":1,)"
                R"("args":{"step":4,"instruction":2,"bytes_sent":4096}})"));
  // Step 5 follows the slowest rank's step 4, which took 3000 ns.
  EXPECT_THAT(trace, HasSubstr(R"("ph":"X","ts":3.010,"dur":0.010,"pid":0,"tid":0,"args":{"step":5)"));
}

/// The JSON object form of the Trace Event Format: metadata events name every pid and (pid, tid) that the complete
/// events use; ts and dur are microseconds with the nanoseconds as decimals; bytes are in args.
TEST(ChromeTrace, IsOneDocumentOfTheTraceEventFormat) {
  Timeline timeline;
  timeline.simulated = true;
  timeline.streams = {"compute", "unused", "data\tgroup"};
  timeline.instructions = {"adam", "all_reduce"};
  timeline.events = {{2, 0, 0, 0, 5, 1234567, 0}, {2, 0, 2, 1, 1000, 1001, 64}};
  EXPECT_EQ(to_chrome_trace(timeline),
            R"({"displayTimeUnit":"ns","traceEvents":[
{"name":"process_name","ph":"M","pid":2,"args":{"name":"rank 2"}},
{"name":"thread_name","ph":"M","pid":2,"tid":0,"args":{"name":"compute"}},
{"name":"thread_name","ph":"M","pid":2,"tid":2,"args":{"name":"data\u0009group"}},
{"name":"adam","cat":"simulated","ph":"X","ts":0.005,"dur":1234.562,"pid":2,"tid":0,"args":{"step":0,"instruction":0,"bytes_sent":0}},
{"name":"all_reduce","cat":"simulated","ph":"X","ts":1.000,"dur":0.001,"pid":2,"tid":2,"args":{"step":0,"instruction":1,"bytes_sent":64}}
]}
)");
  EXPECT_EQ(to_chrome_trace(Timeline{}), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n");
}

TEST(ChromeTrace, HasACounterWhereSamplesOfMemoryAreGiven) {
  const Timeline timeline{.simulated = true, .streams = {"compute"}, .instructions = {"a", "b", "c"}, .events = {}};
  const std::vector<MemorySample> samples = {{.rank = 3, .time_ns = 5}};
  EXPECT_THAT(to_chrome_trace(timeline, samples), HasSubstr(R"("ph":"C")"));
  EXPECT_THAT(to_chrome_trace(timeline), Not(HasSubstr(R"("ph":"C")")));
}

}  // namespace
}  // namespace strata::test_chrome

/// @file
/// Every collective over shared memory and over MPI, with and without a communication thread: equal to the value every
/// rank can compute by itself, bit for bit, and as many bytes on the wire as the formula says.

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mpi/comm/payload.hpp"
#include "mpi/comm/pieces.hpp"

namespace strata::comm::test_collectives {
namespace {

/// Not multiples of vector widths, chunks, slices or segments; 1,000,003 elements are several of each.
const std::vector<std::int64_t> kSizes{0, 1, 2, 7, 64, 1000, 65537, 1000003};

struct Case {
  const char* transport;
  ProgressMode progress;
};

class Collectives : public testing::TestWithParam<Case> {};

TEST_P(Collectives, EqualTheLocallyComputedValue) {
  const World world;
  EngineOptions options;
  options.transport = GetParam().transport;
  options.progress = GetParam().progress;
  options.watchdog_seconds = 60;
  Engine engine(world, options);
  const int group = engine.create_group(all_ranks(world));
  EXPECT_EQ(engine.transport_name(group), world.size() == 1 ? "none" : GetParam().transport);
  check_all_collectives(world, engine, group, all_ranks(world), kSizes);
  check_pieces(world, engine, group, all_ranks(world));
}

/// Real values: the float sum has an order, and all ranks must have used the same one.
TEST_P(Collectives, RealSumsAreBitIdenticalOnAllRanks) {
  const World world;
  EngineOptions options;
  options.transport = GetParam().transport;
  options.progress = GetParam().progress;
  Engine engine(world, options);
  const int group = engine.create_group(all_ranks(world));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t kElements = 300007;
    std::vector<float> values(kElements);
    std::vector<double> exact(kElements, 0.0);
    std::vector<double> magnitude(kElements, 0.0);
    std::vector<bf16> narrow(kElements);
    for (int rank = 0; rank < world.size(); ++rank) {
      for (std::int64_t i = 0; i < kElements; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float value = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(rank)) * 3.0F;
        const float stored = dtype == DType::f32 ? value : static_cast<float>(bf16(value));
        exact[at] += stored;
        magnitude[at] += std::abs(stored);
        if (rank == world.rank()) {
          values[at] = value;
          narrow[at] = bf16(value);
        }
      }
    }
    Request request;
    request.num_elements = kElements;
    request.dtype = dtype;
    request.output = dtype == DType::f32 ? static_cast<void*>(values.data()) : static_cast<void*>(narrow.data());
    request.input = request.output;
    request.group = group;
    engine.wait(engine.post(request));
    const std::string bytes(static_cast<const char*>(request.output),
                            static_cast<std::size_t>(kElements * size_of(dtype)));
    EXPECT_TRUE(world.broadcast(bytes) == bytes) << "differs from rank 0's";
    const double unit = dtype == DType::f32 ? 0x1p-24 : 0x1p-8;  // rounding of one addition, relative
    for (std::int64_t i = 0; i < kElements; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double got = dtype == DType::f32 ? static_cast<double>(values[at]) : static_cast<float>(narrow[at]);
      ASSERT_LE(std::abs(got - exact[at]), (world.size() - 1) * unit * magnitude[at]) << "element " << i;
      if (world.size() > 2) continue;
      // One addition, in float, and one rounding of it to nearest even.
      const auto sum = static_cast<float>(exact[at]);
      ASSERT_EQ(static_cast<float>(got), dtype == DType::f32 ? sum : static_cast<float>(bf16(sum))) << "element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Collectives,
                         testing::Values(Case{"shm", ProgressMode::thread}, Case{"shm", ProgressMode::polling},
                                         Case{"mpi", ProgressMode::thread}, Case{"mpi", ProgressMode::polling}),
                         [](const testing::TestParamInfo<Case>& entry) {
                           return std::string(entry.param.transport) +
                                  (entry.param.progress == ProgressMode::thread ? "_thread" : "_polling");
                         });

}  // namespace
}  // namespace strata::comm::test_collectives

/// @file
/// Time of all-reduce and all-gather by size, dtype and transport, beside what memory allows *in the same run*: the
/// bound of an all-reduce of v bytes over p ranks is that each reads its own v, the others' parts of its share and the
/// shares that they reduced, (p-1)/p · v each, and writes v, at the rate at which a streaming copy of v by all ranks at
/// once reads v and writes v.
///
/// mpiexec -n 2 bench_collectives [--transport auto|mpi|shm] [--progress thread|polling] [--max-mib 64]

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "comm/reduce.hpp"
#include "comm/session.hpp"
#include "comm/shm/doorbell.hpp"
#include "comm/world.hpp"

namespace {

using namespace strata;
using namespace strata::comm;

constexpr std::array<std::int64_t, 9> kSizesBytes{8,       64,      1 << 10,  16 << 10, 256 << 10,
                                                  1 << 20, 4 << 20, 16 << 20, 64 << 20};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Of the slowest rank, medians over repetitions that all ranks begin together. On a machine with other work the CPU
/// time (of the whole process) says more than the time.
struct Cost {
  double seconds = 0.0;
  double cpu_seconds = 0.0;
};

/// @p num_in_a_row: small operations are repeated, because a barrier's exit is less exact than one operation.
template <class Action>
Cost cost_of(const World& world, int num_repetitions, int num_in_a_row, const Action& action) {
  std::vector<double> times;
  std::vector<double> cpu_times;
  for (int i = 0; i < num_repetitions; ++i) {
    world.barrier();
    const std::int64_t begin = now_ns();
    const double cpu_begin = cpu_seconds();
    for (int k = 0; k < num_in_a_row; ++k) {
      action();
    }
    std::array<double, 2> costs{static_cast<double>(now_ns() - begin) * 1e-9, cpu_seconds() - cpu_begin};
    world.all_reduce_max(costs);
    times.push_back(costs[0] / num_in_a_row);
    cpu_times.push_back(costs[1] / num_in_a_row);
  }
  return {median(times), median(cpu_times)};
}

void run(const World& world, const EngineOptions& options, std::int64_t max_bytes) {
  Engine engine(world, options);
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    ranks.push_back(rank);
  }
  const int group = engine.create_group(ranks);
  std::vector<float> input(static_cast<std::size_t>(max_bytes / 4));
  std::vector<float> output(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<float>(i % 1021) * 0.25F;
    output[i] = 1.0F;
  }
  if (world.rank() == 0) {
    fmt::print("{} ranks on {} nodes, transport {}, {}\n", world.size(), world.num_nodes(),
               engine.transport_name(group), engine.has_thread() ? "communication thread" : "polling");
    fmt::print("{:>10} {:>6} {:>11} {:>11} {:>11} {:>10} {:>7} {:>11} {:>9}\n", "bytes", "dtype", "time us", "alg GB/s",
               "bus GB/s", "bound us", "ratio", "cpu us", "cpu ratio");
  }
  for (const std::int64_t num_bytes : kSizesBytes) {
    if (num_bytes > max_bytes) {
      break;
    }
    const auto bytes = static_cast<double>(num_bytes);
    const Cost streaming_copy = cost_of(world, 7, num_bytes < 1 << 20 ? 50 : 1, [&] {
      copy(reinterpret_cast<std::byte*>(output.data()), reinterpret_cast<const std::byte*>(input.data()), num_bytes,
           num_bytes >= 4 << 20 ? Store::streaming : Store::cached);
      finish_streaming();
    });
    const double traffic = 1.0 + static_cast<double>(world.size() - 1) / world.size();  // in copies
    const Cost bound{traffic * streaming_copy.seconds, traffic * streaming_copy.cpu_seconds};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Request request;
      request.num_elements = num_bytes / size_of(dtype);
      request.dtype = dtype;
      request.input = input.data();
      request.output = output.data();
      request.group = group;
      const auto once = [&] { engine.wait(engine.post(request)); };
      once();
      const Cost cost = cost_of(world, num_bytes < 32 << 20 ? 11 : 7, num_bytes < 1 << 20 ? 50 : 1, once);
      if (world.rank() == 0) {
        const double bus = 2.0 * (world.size() - 1) / world.size();
        fmt::print("{:>10} {:>6} {:>11.1f} {:>11.3f} {:>11.3f} {:>10.1f} {:>7.2f} {:>11.1f} {:>9.2f}\n", num_bytes,
                   to_string(dtype), cost.seconds * 1e6, bytes / cost.seconds * 1e-9, bus * bytes / cost.seconds * 1e-9,
                   bound.seconds * 1e6, cost.seconds / bound.seconds, cost.cpu_seconds * 1e6,
                   cost.cpu_seconds / bound.cpu_seconds);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Session session(argc, argv);
    EngineOptions options;
    std::int64_t max_bytes = 64 << 20;
    for (int i = 1; i + 1 < argc; i += 2) {
      if (std::strcmp(argv[i], "--transport") == 0) {
        options.transport = argv[i + 1];
      } else if (std::strcmp(argv[i], "--progress") == 0) {
        options.progress = std::strcmp(argv[i + 1], "polling") == 0 ? ProgressMode::polling : ProgressMode::thread;
      } else if (std::strcmp(argv[i], "--max-mib") == 0) {
        max_bytes = std::atoll(argv[i + 1]) << 20;
      }
    }
    const World world;
    run(world, options, max_bytes);
    return 0;
  } catch (const std::exception& error) {
    abort_all(1, error.what());
  }
}

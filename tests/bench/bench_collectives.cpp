/// @file
/// Time of all-reduce by size, dtype and transport, beside MPI's own in turn and what memory allows *in the same run*:
/// the bound of an all-reduce of v bytes over p ranks is that each reads its own v, the others' parts of its share and
/// the shares that they reduced, (p-1)/p · v each, and writes v, at the rate at which a streaming copy of v by all
/// ranks at once reads v and writes v. MPI has no bf16 sum.
///
/// mpiexec -n 2 bench_collectives [--transport auto|mpi|shm] [--progress thread|polling] [--max-mib 64] [--json yes|no]
/// With --json a line of JSON for each size and dtype instead of the table; times in seconds.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "comm/mpi/mpi_check.hpp"
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

/// What follows is measured in turn, so that what disturbs the machine disturbs all of it.
using Action = std::function<void()>;

/// Small operations are repeated: a barrier's exit is less exact than one operation. Equal on all ranks.
int num_in_a_row(const World& world, const Action& action) {
  constexpr double turn_seconds = 2e-3;
  action();
  const std::int64_t begin = now_ns();
  action();
  std::array<double, 1> seconds{static_cast<double>(now_ns() - begin) * 1e-9};
  world.all_reduce_max(seconds);
  return static_cast<int>(std::clamp(turn_seconds / seconds[0], 1.0, 50.0));
}

std::vector<Cost> costs_of(const World& world, int num_repetitions, const std::vector<Action>& actions) {
  std::vector<int> in_a_row;
  for (const Action& action : actions) in_a_row.push_back(num_in_a_row(world, action));
  std::vector<std::vector<double>> times(actions.size());
  std::vector<std::vector<double>> cpu_times(actions.size());
  for (int i = 0; i < num_repetitions; ++i) {
    for (std::size_t a = 0; a < actions.size(); ++a) {
      world.barrier();
      const std::int64_t begin = now_ns();
      const double cpu_begin = cpu_seconds();
      for (int k = 0; k < in_a_row[a]; ++k) actions[a]();
      std::array<double, 2> costs{static_cast<double>(now_ns() - begin) * 1e-9, cpu_seconds() - cpu_begin};
      world.all_reduce_max(costs);
      times[a].push_back(costs[0] / in_a_row[a]);
      cpu_times[a].push_back(costs[1] / in_a_row[a]);
    }
  }
  std::vector<Cost> costs;
  for (std::size_t a = 0; a < actions.size(); ++a) costs.push_back({median(times[a]), median(cpu_times[a])});
  return costs;
}

struct Row {
  std::int64_t num_bytes = 0;
  DType dtype = DType::f32;
  Cost cost, bound;
  Cost mpi{std::nan(""), std::nan("")};
};

void print(const Row& row, int num_ranks) {
  const auto bytes = static_cast<double>(row.num_bytes);
  const double bus = 2.0 * (num_ranks - 1) / num_ranks;
  fmt::print("{:>10} {:>6} {:>11.1f} {:>11.3f} {:>11.3f} {:>10.1f} {:>7.2f} {:>11.1f} {:>9.2f} {:>11.1f} {:>7.2f}\n",
             row.num_bytes, to_string(row.dtype), row.cost.seconds * 1e6, bytes / row.cost.seconds * 1e-9,
             bus * bytes / row.cost.seconds * 1e-9, row.bound.seconds * 1e6, row.cost.seconds / row.bound.seconds,
             row.cost.cpu_seconds * 1e6, row.cost.cpu_seconds / row.bound.cpu_seconds, row.mpi.seconds * 1e6,
             row.mpi.seconds / row.cost.seconds);
}

void print_json(const Row& row, int num_ranks, const std::string& transport) {
  const std::string mpi = std::isnan(row.mpi.seconds) ? "null" : fmt::format("{}", row.mpi.seconds);
  fmt::print(
      R"({{"ranks":{},"transport":"{}","bytes":{},"dtype":"{}","seconds":{},"mpi_seconds":{},"bound_seconds":{}}})"
      "\n",
      num_ranks, transport, row.num_bytes, to_string(row.dtype), row.cost.seconds, mpi, row.bound.seconds);
}

void run(const World& world, const EngineOptions& options, std::int64_t max_bytes, bool is_json) {
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
  if (world.rank() == 0 && !is_json) {
    fmt::print("{} ranks on {} nodes, transport {}, {}\n", world.size(), world.num_nodes(),
               engine.transport_name(group), engine.has_thread() ? "communication thread" : "polling");
    fmt::print("{:>10} {:>6} {:>11} {:>11} {:>11} {:>10} {:>7} {:>11} {:>9} {:>11} {:>7}\n", "bytes", "dtype",
               "time us", "alg GB/s", "bus GB/s", "bound us", "ratio", "cpu us", "cpu ratio", "mpi us", "mpi/us");
  }
  for (const std::int64_t num_bytes : kSizesBytes) {
    if (num_bytes > max_bytes) {
      break;
    }
    const Action streaming_copy = [&] {
      copy(reinterpret_cast<std::byte*>(output.data()), reinterpret_cast<const std::byte*>(input.data()), num_bytes,
           num_bytes >= 4 << 20 ? Store::streaming : Store::cached);
      finish_streaming();
    };
    const Action mpi_all_reduce = [&] {
      check(MPI_Allreduce(input.data(), output.data(), static_cast<int>(num_bytes / 4), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD),
            "MPI_Allreduce");
    };
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Request request;
      request.num_elements = num_bytes / size_of(dtype);
      request.dtype = dtype;
      request.input = input.data();
      request.output = output.data();
      request.group = group;
      std::vector<Action> actions{[&] { engine.wait(engine.post(request)); }, streaming_copy};
      if (dtype == DType::f32) actions.push_back(mpi_all_reduce);
      const std::vector<Cost> costs = costs_of(world, 11, actions);
      const double traffic = 1.0 + static_cast<double>(world.size() - 1) / world.size();  // in copies
      Row row{.num_bytes = num_bytes,
              .dtype = dtype,
              .cost = costs[0],
              .bound = {traffic * costs[1].seconds, traffic * costs[1].cpu_seconds}};
      if (costs.size() > 2) row.mpi = costs[2];
      if (world.rank() != 0) continue;
      if (is_json) {
        print_json(row, world.size(), engine.transport_name(group));
      } else {
        print(row, world.size());
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
    bool is_json = false;
    for (int i = 1; i + 1 < argc; i += 2) {
      if (std::strcmp(argv[i], "--transport") == 0) {
        options.transport = argv[i + 1];
      } else if (std::strcmp(argv[i], "--progress") == 0) {
        options.progress = std::strcmp(argv[i + 1], "polling") == 0 ? ProgressMode::polling : ProgressMode::thread;
      } else if (std::strcmp(argv[i], "--max-mib") == 0) {
        max_bytes = std::atoll(argv[i + 1]) << 20;
      } else if (std::strcmp(argv[i], "--json") == 0) {
        is_json = std::strcmp(argv[i + 1], "yes") == 0;
      }
    }
    const World world;
    run(world, options, max_bytes, is_json);
    return 0;
  } catch (const std::exception& error) {
    abort_all(1, error.what());
  }
}

/// @file
/// Rank 1 kills itself in the middle of a job; the others must fail with its name, soon. Not a gtest program: it ends
/// without MPI_Finalize, which cannot succeed any more. Started with hydra's clean-up off (see tests.cmake).

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/engine.hpp"
#include "comm/session.hpp"
#include "comm/shm/doorbell.hpp"
#include "comm/world.hpp"

int main(int argc, char** argv) {
  using namespace strata;
  using namespace strata::comm;
  if (argc != 4) {
    fmt::print(stderr, "usage: dead_peer TRANSPORT thread|polling FILE\n");
    return 2;
  }
  const std::string transport = argv[1];
  const bool polling = std::string(argv[2]) == "polling";
  signal(SIGUSR1, SIG_IGN);  // what hydra sends to the survivors
  const Session session(argc, argv);
  const World world;
  EngineOptions options;
  options.transport = transport;
  options.progress = polling ? ProgressMode::polling : ProgressMode::thread;
  Engine engine(world, options);
  const int group = engine.create_group({0, 1, 2});
  std::vector<float> values(100000, 1.0F);
  Request request;
  request.num_elements = 100000;
  request.group = group;
  request.input = values.data();
  request.output = values.data();
  request.label = "#7 doomed";
  engine.wait(engine.post(request));
  const std::int64_t begin = now_ns();
  if (world.rank() == 1) {
    kill(getpid(), SIGKILL);
  }
  try {
    engine.wait(engine.post(request));
    fmt::print(stderr, "rank {} did not notice\n", world.rank());
  } catch (const CommunicationError& error) {
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    // Into a file: the launcher has closed its pipes by now.
    if (std::FILE* said = std::fopen(argv[3], "a")) {
      fmt::print(said, "rank {} noticed {}: {}\n", world.rank(), seconds < 2.0 ? "in time" : "late", error.what());
      std::fclose(said);
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));  // or the other survivor would find this one dead too
  }
  std::_Exit(0);
}

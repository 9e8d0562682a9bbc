/// @file
/// Rank 1 kills itself in the middle of a job; the others must fail with its name, soon. Not a gtest program: it ends
/// without MPI_Finalize, which cannot succeed any more. Started with hydra's clean-up off (see tests.cmake).

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/doorbell.hpp"
#include "comm/engine.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"

int main(int argc, char** argv) {
  using namespace strata;
  using namespace strata::comm;
  const std::string transport = argc > 1 ? argv[1] : "shm";
  const bool polling = argc > 2 && std::string(argv[2]) == "polling";
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
    fmt::print(stderr, "rank {} noticed {}: {}\n", world.rank(), seconds < 2.0 ? "in time" : "late", error.what());
  }
  std::fflush(nullptr);
  std::_Exit(0);
}

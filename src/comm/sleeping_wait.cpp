/// @file
/// The sleeping poll of the control plane.

#include "comm/sleeping_wait.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/world.hpp"

namespace strata::comm {

void wait_sleeping(std::span<MPI_Request> requests, const World* world) {
  using std::chrono::microseconds;
  using Clock = std::chrono::steady_clock;
  constexpr microseconds kLongest{1000};
  constexpr auto kCheckEvery = std::chrono::milliseconds(100);
  microseconds pause{10};
  auto next_check = Clock::now() + kCheckEvery;
  const auto complete = [&] {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    return done != 0;
  };
  while (!complete()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongest);
    if (world != nullptr && Clock::now() >= next_check) {
      next_check = Clock::now() + kCheckEvery;
      try {
        world->check_peers();
      } catch (const CommunicationError&) {
        if (!complete()) {
          throw;
        }
        return;
      }
    }
  }
}

void wait_sleeping(MPI_Request& request, const World* world) { wait_sleeping(std::span(&request, 1), world); }

}  // namespace strata::comm

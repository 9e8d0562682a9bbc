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
  // A pause that doubled would find what is complete up to twice too late; the many short agreements of a run add up.
  constexpr int kPausesInWhatWasWaited = 8;
  constexpr Clock::duration kShortest = microseconds(10);
  constexpr Clock::duration kLongest = microseconds(1000);
  constexpr auto kCheckEvery = std::chrono::milliseconds(100);
  const auto begin = Clock::now();
  auto next_check = begin + kCheckEvery;
  const auto complete = [&] {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    return done != 0;
  };
  while (!complete()) {
    std::this_thread::sleep_for(std::clamp((Clock::now() - begin) / kPausesInWhatWasWaited, kShortest, kLongest));
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

MPI_Comm duplicate_sleeping(MPI_Comm communicator, const World* world) {
  MPI_Comm result = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(communicator, &result, &request), "MPI_Comm_idup");
  wait_sleeping(request, world);
  check(MPI_Comm_set_errhandler(result, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return result;
}

}  // namespace strata::comm

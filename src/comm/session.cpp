/// @file
/// MPI is started, ended and aborted here, and nowhere else.

#include "comm/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>

#include "comm/mpi/mpi_check.hpp"

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
/// MPICH before 4.2 over UCX hangs in MPI_Finalize on a TCP network, in about every second run of four ranks: a rank
/// waits in ucp_disconnect_nb for answers of peers that sit in the PMI barrier after it and answer nobody. MPICH 4.2
/// has dropped the barrier (its pull request 6596). Here the call does nothing, in place of UCX's own: past the barrier
/// in ~Session nobody waits for data, and MPICH destroys the connections with their worker right after its barrier.
extern "C" __attribute__((visibility("default"))) void* ucp_disconnect_nb(void* endpoint);
extern "C" void* ucp_disconnect_nb(void* /*endpoint*/) { return nullptr; }
#endif

namespace strata::comm {

namespace {

/// MPICH takes SIGUSR1 for its launcher's word that a process has died, and asks the launcher which. Without a launcher
/// it starts one to ask, whose call it waits for in vain and for ever. A process alone has no others that could die:
/// there the signal keeps the meaning that it had before MPI was started.
class UserSignal {
 public:
  /// The signal waits from here on, so that MPI sees none while it may be MPI's.
  UserSignal() {
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &one, &mask_);
    ::sigaction(SIGUSR1, nullptr, &action_);
  }
  ~UserSignal() { ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  UserSignal(const UserSignal&) = delete;
  UserSignal& operator=(const UserSignal&) = delete;

  void take_back() const { ::sigaction(SIGUSR1, &action_, nullptr); }

 private:
  struct sigaction action_ {};
  sigset_t mask_{};
};

}  // namespace

Session::Session(int& argc, char**& argv) : num_exceptions_at_start_(std::uncaught_exceptions()) {
  const UserSignal user_signal;
  int provided = 0;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  int num_ranks = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &num_ranks), "MPI_Comm_size");
  if (num_ranks == 1) user_signal.take_back();
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw CommunicationError(
        fmt::format("this MPI provides thread level {} and MPI_THREAD_MULTIPLE is {}: use an MPI built with threads",
                    provided, MPI_THREAD_MULTIPLE));
  }
}

Session::~Session() {
  if (std::uncaught_exceptions() == num_exceptions_at_start_) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
  }
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find('\n')));
}

void abort_all(int exit_code, const std::string& message) noexcept {
  static std::atomic<bool> already{false};
  if (already.exchange(true)) {
    while (true) {  // the first caller ends the process
      pause();
    }
  }
  int initialized = 0;
  int finalized = 0;
  int rank = -1;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  const bool running = initialized != 0 && finalized == 0;
  if (running) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "strata: rank %d: %s\n", rank, message.c_str());
  } else {
    std::fprintf(stderr, "strata: %s\n", message.c_str());
  }
  std::fflush(nullptr);
  if (running) {
    // The launcher passes on what is said, and of what it has not read when it is told to kill the ranks nothing.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

}  // namespace strata::comm

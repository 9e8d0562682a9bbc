/// @file
/// MPI is started, ended and aborted here, and nowhere else.

#include "comm/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

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

Session::Session(int& argc, char**& argv) : num_exceptions_at_start_(std::uncaught_exceptions()) {
  int provided = 0;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
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
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

}  // namespace strata::comm

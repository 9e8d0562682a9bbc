/// @file
/// MPI's error codes become a CommunicationError with MPI's own text.

#include "comm/mpi/mpi_check.hpp"

#include <fmt/format.h>

#include <array>

#include "base/one_line.hpp"

namespace strata::comm {

void check(int code, const char* call, Where where) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  // MPICH's is a stack of lines.
  throw CommunicationError(fmt::format("{} failed: {} ({}:{})", call,
                                       one_line({text.data(), static_cast<std::size_t>(length)}), where.file,
                                       where.line));
}

}  // namespace strata::comm

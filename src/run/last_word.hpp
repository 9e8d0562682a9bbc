#pragma once

/// @file
/// What is said when nobody can speak any more. SIGKILL leaves a process no last word, and MPICH's launcher kills the
/// other ranks a few milliseconds after the first. So every rank has a small process beside it, in a session of its
/// own, that sees the rank disappear and then writes how the attempt ended.

#include <string>

#include "results/outcome.hpp"

namespace strata::run {

class LastWord {
 public:
  /// Forks; to be called before there are threads and before MPI starts. The child keeps nothing open but its end of a
  /// socket, so that no launcher waits for it. @throws InternalError if the system has no process or socket left.
  LastWord();
  /// A process that lives until here has said for itself what there was to say.
  ~LastWord();
  LastWord(const LastWord&) = delete;
  LastWord& operator=(const LastWord&) = delete;

  /// From now on a sudden end is recorded as `killed` in this status file, unless an ending stands there already.
  void watch(const std::string& status_path, int rank);
  /// The attempt has ended properly.
  void release();

 private:
  void tell(const std::string& message);
  int socket_ = -1;
  int child_ = -1;
};

/// How an attempt ended that fails here with @p failure. A transport also fails where a rank at its other end has died,
/// which is then how the attempt ended: a communication error gives the last word of the dead a second to be written,
/// and yields to whatever ending stands in the status file by then. Every other failure is its own ending, at once.
/// @throws UserError when the status file cannot be read.
results::Outcome ending_of_failure(const results::Outcome& failure, const std::string& status_path);

}  // namespace strata::run

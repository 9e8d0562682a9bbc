#pragma once

/// @file
/// Independent pieces of work in several processes at once, whose output reads as if one had followed the other. Each
/// process is a copy of this one (fork), so that libraries that know of no threads, as HDF5, need not know of any.

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace strata {

/// work(0) … work(@p count - 1), each once, in at most @p num_processes at a time; in this process where that is one or
/// there is only one piece. What a piece says (base/console.hpp) is said here as soon as all before it have been.
///
/// Before any thread is started and without MPI. What work() changes in memory stays in its own process.
/// @param name of a piece, for the message that its process died: "point".
/// @param is_done called here with the number of pieces that are done, before the first and after each.
/// @param is_said called here before something is said.
/// @return what work() returned, by piece.
/// @throws the first error of work(), by piece, as UserError, Unsupported, OutOfMemory or std::runtime_error, once all
/// pieces before it have been done and none is running; pieces behind it may have been done too. Of a process that died
/// it names the piece and the signal.
std::vector<int> in_processes(std::string_view name, std::size_t count, int num_processes,
                              const std::function<int(std::size_t)>& work,
                              const std::function<void(std::size_t)>& is_done, const std::function<void()>& is_said);

}  // namespace strata

#pragma once

/// @file
/// Signals by which a scheduler asks for an end: USR1 before the time limit, TERM on preemption or cancellation. A run
/// finishes its step, closes its file and says which it was.

namespace strata::run {

/// From now on the signals are remembered instead of ending the process; to be called before anything that takes time,
/// since Slurm may send USR1 up to a minute earlier than asked, which is right at the start of a short job.
void remember_stop_signals();

/// SIGUSR1 or SIGTERM, whichever came first; 0 if neither has come.
int stop_signal();

}  // namespace strata::run

#include "run/stop_signal.hpp"

#include <csignal>

namespace strata::run {
namespace {

volatile std::sig_atomic_t received = 0;

void remember(int signal) {
  if (received == 0) received = signal;
}

}  // namespace

void remember_stop_signals() {
  std::signal(SIGUSR1, remember);
  std::signal(SIGTERM, remember);
}

int stop_signal() { return received; }

}  // namespace strata::run

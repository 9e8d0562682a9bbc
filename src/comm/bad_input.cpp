#include "comm/bad_input.hpp"

#include "base/console.hpp"
#include "base/exit_code.hpp"

namespace strata::comm {

int report_bad_input(const UserError& error, const comm::World& world, const Environment& environment) {
  const bool stray_world = world.rank() == 0 && environment.launcher_rank != 0;
  if (stray_world) return exit_ok;
  if (world.rank() == 0) say_error("strata: {}\n", error.what());
  return exit_bad_input;
}

}  // namespace strata::comm

#include "predict/provenance.hpp"

#include <fmt/core.h>

#include "base/instruction_set.hpp"
#include "comm/session.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/cpu/onednn_version.hpp"
#include "predict/build_facts.hpp"
#include "results/hdf5_version.hpp"

namespace strata::predict {

std::string version_and_commit() { return STRATA_VERSION " (" STRATA_GIT_COMMIT ")"; }

results::AttemptFacts provenance_of(const Environment& environment) {
  results::AttemptFacts facts;
  facts.creator_version = STRATA_VERSION;
  facts.git_commit = STRATA_GIT_COMMIT;
  facts.binary_hash = fmt::format("{:016x}", binary_hash());
  facts.launcher = environment.launcher;
  facts.topology_address = environment.topology_address;
  facts.modules_loaded = environment.modules_loaded;
  facts.environment = environment.relevant;
  facts.library_versions = {
      {"mpi", comm::mpi_version()},
      {"hdf5", results::hdf5_version()},
      {"onednn", cpu::onednn_version()},
      {"bf16_products", std::string(cpu::kernel_library().bf16_products())},
      {"instruction_set", std::string(to_string(instruction_set()))},
      {"compiler", STRATA_COMPILER},
  };
  return facts;
}

}  // namespace strata::predict

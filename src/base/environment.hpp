#pragma once

/// @file
/// Everything the process learns from outside its command line: variables of the launcher and of Slurm, its own binary,
/// the host. Read here once, handed on as data.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata {

struct Environment {
  int launcher_num_ranks = 0;               ///< 0: the launcher says nothing
  int launcher_rank = 0;                    ///< before MPI knows it; 0 without a launcher
  std::string launcher_variable;            ///< where it says it
  std::string launcher;                     ///< "srun", "mpiexec", "mpirun", "sbatch" (no launcher in a job), "none"
  std::string node_name;                    ///< SLURMD_NODENAME; empty: the host name
  std::string topology_address;             ///< SLURM_TOPOLOGY_ADDR
  std::vector<std::string> modules_loaded;  ///< LOADEDMODULES
  std::map<std::string, std::string> relevant;  ///< variables that change how a run behaves, for the record
  std::vector<std::string> variables;           ///< all of them, "NAME=value", for programs that are started
  bool colour = false;    ///< standard output is a terminal, and NO_COLOR is unset or empty (no-color.org)
  bool terminal = false;  ///< standard error is a terminal
};

Environment read_environment();

/// Of the running executable's bytes: equal binaries have equal hashes.
std::uint64_t binary_hash();

/// Model name of the first processor in /proc/cpuinfo.
std::string cpu_name();
/// Bytes of memory of this host.
std::int64_t host_memory_bytes();
/// Cores this process may run on.
int available_cores();

}  // namespace strata

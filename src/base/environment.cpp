#include "base/environment.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/hash.hpp"

namespace strata {
namespace {

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Environment read_environment() {
  Environment e;
  e.launcher = "none";
  // What spoke to MPI itself comes first: mpiexec inside a Slurm job starts its helpers with srun, whose task count is
  // theirs. Without any of these a Slurm job of several tasks still says how many it should have been.
  struct Launcher {
    const char* num_ranks;
    const char* rank;
    const char* name;
  };
  for (const Launcher& launcher : {Launcher{"PMI_SIZE", "PMI_RANK", "mpiexec"},
                                   {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
                                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"},
                                   {"SLURM_NTASKS", "SLURM_PROCID", "sbatch"}}) {
    if (const std::string value = value_of(launcher.num_ranks); !value.empty()) {
      e.launcher_num_ranks = std::atoi(value.c_str());
      e.launcher_rank = std::atoi(value_of(launcher.rank).c_str());
      e.launcher_variable = launcher.num_ranks;
      e.launcher = launcher.name;
      break;
    }
  }
  // srun --mpi=pmi2 speaks PMI as mpiexec does, and alone names the job in it.
  if (e.launcher == "mpiexec" && !value_of("PMI_JOBID").empty() && !value_of("SLURM_STEP_ID").empty()) {
    e.launcher = "srun";
  }
  e.node_name = value_of("SLURMD_NODENAME");
  e.topology_address = value_of("SLURM_TOPOLOGY_ADDR");
  std::stringstream modules(value_of("LOADEDMODULES"));
  for (std::string module; std::getline(modules, module, ':');) {
    e.modules_loaded.push_back(module);
  }
  for (const char* name : {"OMP_NUM_THREADS",
                           "OMP_PROC_BIND",
                           "OMP_WAIT_POLICY",
                           "GOMP_SPINCOUNT",
                           "UCX_TLS",
                           "UCX_NET_DEVICES",
                           "MPIR_CVAR_NOLOCAL",
                           "MPIR_CVAR_ASYNC_PROGRESS",
                           "STRATA_MAX_CPU_ISA",
                           "ONEDNN_MAX_CPU_ISA",
                           "DNNL_MAX_CPU_ISA",
                           "CUDA_VISIBLE_DEVICES",
                           "CUDA_DEVICE_MAX_CONNECTIONS",
                           "NCCL_ALGO",
                           "NCCL_PROTO",
                           "NCCL_NET",
                           "NCCL_IB_HCA",
                           "NCCL_SOCKET_IFNAME",
                           "NCCL_P2P_DISABLE",
                           "NCCL_NVLS_ENABLE",
                           "SLURM_JOB_ID",
                           "SLURM_ARRAY_JOB_ID",
                           "SLURM_ARRAY_TASK_ID",
                           "SLURM_JOB_NODELIST",
                           "SLURM_RESTART_COUNT"}) {
    if (const std::string value = value_of(name); !value.empty()) {
      e.relevant[name] = value;
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) e.variables.emplace_back(*entry);
  e.terminal = isatty(STDERR_FILENO) == 1;
  e.colour = isatty(STDOUT_FILENO) == 1 && value_of("NO_COLOR").empty();
  return e;
}

namespace {

std::uint64_t hash_of_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  std::uint64_t hash = hash_bytes({});
  while (file.read(block.data(), std::ssize(block)) || file.gcount() > 0) {
    hash = hash_bytes(std::as_bytes(std::span(block)).first(static_cast<std::size_t>(file.gcount())), hash);
  }
  return hash;
}

}  // namespace

std::uint64_t binary_hash() {
  // What runs is not written to: every attempt of a sweep is told of the same bytes.
  static const std::uint64_t hash = hash_of_file("/proc/self/exe");
  return hash;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "cpu";
}

std::int64_t host_memory_bytes() { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace strata

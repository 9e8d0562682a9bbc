#pragma once

/// @file
/// A stand-in for the driver's NVML: a shared library whose answers a test sets. Built a second time, as an older
/// driver's, without the query of clock event reasons.

struct FakeNvml {
  int init_status = 0;
  int handle_status = 0;
  int energy_status = 0;  ///< 3: not supported
  unsigned long long energy_millijoules = 0;
  char pci_bus_id[32] = {};  ///< what was asked for
  int num_initialized = 0;   ///< nvmlInit_v2 less nvmlShutdown
  int num_energy_queries = 0;
};

/// `fake_nvml` in the library.
using FakeNvmlFunction = FakeNvml*();

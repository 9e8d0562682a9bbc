# Sanitizers would build half of src for these alone. The memory that a run handles is that of executors and of results, which
# mpi.exec and unit.results look at.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  return()
endif()
strata_mpi_tests(run LIBRARIES strata_run)
strata_mpi_test(run/test_checkpoint RANKS 2 4 TIMEOUT 360)
strata_mpi_test(run/test_matrix RANKS 4 TIMEOUT 1440 COST 900)
strata_mpi_test(run/test_device_meter RANKS 1 2 4)
strata_mpi_test(run/test_evaluation RANKS 3 4 TIMEOUT 360)

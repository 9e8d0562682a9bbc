strata_mpi_test(run/test_checkpoint RANKS 2 4 SANITIZED_RANKS none LIBRARIES strata_run TIMEOUT 360)
strata_mpi_test(run/test_matrix RANKS 4 SANITIZED_RANKS none LIBRARIES strata_run TIMEOUT 1440 COST 900)
strata_mpi_test(run/test_device_meter RANKS 1 2 4 SANITIZED_RANKS none LIBRARIES strata_run)
strata_mpi_test(run/test_evaluation RANKS 3 4 SANITIZED_RANKS 3 LIBRARIES strata_run TIMEOUT 360)

strata_mpi_test(app/test_checkpoint RANKS 2 4 LIBRARIES strata_app TIMEOUT 900)
strata_mpi_test(app/test_matrix RANKS 4 SANITIZED_RANKS none LIBRARIES strata_app TIMEOUT 900)
strata_mpi_test(app/test_device_meter RANKS 1 2 4 LIBRARIES strata_app)

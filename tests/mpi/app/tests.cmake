strata_mpi_test(app/test_checkpoint RANKS 2 4 SANITIZED_RANKS none LIBRARIES strata_app TIMEOUT 120)
strata_mpi_test(app/test_matrix RANKS 4 SANITIZED_RANKS none LIBRARIES strata_app TIMEOUT 480)
strata_mpi_test(app/test_device_meter RANKS 1 2 4 SANITIZED_RANKS none LIBRARIES strata_app)

strata_mpi_test(exec/test_equality RANKS 1 2 3 4 8 LIBRARIES strata_exec strata_lower strata_planners strata_models TIMEOUT 300)
strata_mpi_test(exec/test_executor RANKS 1 2 3 LIBRARIES strata_exec strata_lower strata_planners strata_models TIMEOUT 300)
strata_mpi_test(exec/test_gradients RANKS 1 LIBRARIES strata_exec strata_lower strata_planners strata_models TIMEOUT 300)
strata_mpi_test(exec/test_pipeline RANKS 1 2 3 4 LIBRARIES strata_exec strata_lower strata_planners strata_models TIMEOUT 300)

# Where STRATA_CUDA is on: executables cuda.<file>, label "cuda". Without a GPU every test reports that it was skipped.
add_custom_target(tier_cuda)
add_executable(cuda.test_operators cuda/test_operators.cpp)
target_include_directories(cuda.test_operators PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(cuda.test_operators PRIVATE strata_flags strata_exec_cuda GTest::gtest_main)
target_compile_options(cuda.test_operators PRIVATE -O1 -Wno-maybe-uninitialized)
add_dependencies(tier_cuda cuda.test_operators)
gtest_discover_tests(cuda.test_operators TEST_PREFIX cuda.test_operators. DISCOVERY_TIMEOUT 60
                     PROPERTIES LABELS cuda TIMEOUT 240 RESOURCE_LOCK gpu)

add_executable(cuda.test_modes cuda/test_modes.cpp)
target_include_directories(cuda.test_modes PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(cuda.test_modes PRIVATE strata_flags strata_test_main strata_exec_cuda strata_lower strata_planners strata_models
                      OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda cuda.test_modes)
foreach(ranks IN ITEMS 1 2 4)
  add_test(NAME cuda.test_modes.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:cuda.test_modes>)
  set_tests_properties(cuda.test_modes.np${ranks} PROPERTIES LABELS cuda PROCESSORS ${ranks} TIMEOUT 300 RESOURCE_LOCK gpu
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endforeach()

# For a person or run_on_gpu.sh to run.
add_executable(bench_cuda cuda/bench_cuda.cpp)
target_include_directories(bench_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(bench_cuda PRIVATE strata_flags strata_exec_cuda strata_lower strata_planners strata_models strata_comm
                      OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda bench_cuda)

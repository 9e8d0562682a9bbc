# Where STRATA_CUDA is on: executables cuda.<file>, label "cuda". Without a GPU every test reports that it was skipped.
add_custom_target(tier_cuda)
add_executable(cuda.test_operators cuda/test_operators.cpp)
target_include_directories(cuda.test_operators PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(cuda.test_operators PRIVATE strata_flags strata_exec_cuda GTest::gtest_main)
target_compile_options(cuda.test_operators PRIVATE -O1 -Wno-maybe-uninitialized)
add_dependencies(tier_cuda cuda.test_operators)
gtest_discover_tests(cuda.test_operators TEST_PREFIX cuda.test_operators. DISCOVERY_TIMEOUT 60
                     PROPERTIES LABELS cuda TIMEOUT 240 RESOURCE_LOCK gpu)

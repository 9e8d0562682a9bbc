# A failure on one rank alone ends its job: the test passes when that rank's words are there, within seconds.
add_executable(mpi.support.failing_rank ${CMAKE_CURRENT_LIST_DIR}/failing_rank.cpp)
add_dependencies(tier_mpi mpi.support.failing_rank)
target_link_libraries(mpi.support.failing_rank PRIVATE strata_test_flags strata_test_main)
strata_precompile(mpi.support.failing_rank strata_test_main HEADERS ${test_headers})
foreach(way IN ITEMS Expectation Exception)
  add_test(NAME mpi.support.failing_rank.${way}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 4 ${MPIEXEC_PREFLAGS} $<TARGET_FILE:mpi.support.failing_rank>
                   --gtest_filter=FailingRank.${way} ${MPIEXEC_POSTFLAGS})
  set_tests_properties(mpi.support.failing_rank.${way} PROPERTIES LABELS mpi PROCESSORS 4 TIMEOUT 60
    PASS_REGULAR_EXPRESSION "\\[rank 2\\] FailingRank.${way}: .*planted"
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endforeach()

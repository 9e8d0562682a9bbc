strata_mpi_test(comm/test_world RANKS 1 2 3 4)
strata_mpi_test(comm/test_collectives RANKS 1 2 3 4 5 TIMEOUT 300)
strata_mpi_test(comm/test_two_level RANKS 4 6 TIMEOUT 300)
strata_mpi_test(comm/test_engine RANKS 1 2 3 4)
strata_mpi_test(comm/test_emulated_link RANKS 2 3 4)
strata_mpi_test(comm/test_watchdog RANKS 3)

# A rank that kills itself. Hydra would kill the others at once; without its cleanup they live on and must notice. It then
# reports failure, because a rank was killed, whatever the others do: the survivors' line is the result.
add_executable(mpi.comm.dead_peer ${CMAKE_CURRENT_LIST_DIR}/dead_peer.cpp)
target_link_libraries(mpi.comm.dead_peer PRIVATE strata_flags strata_comm)
foreach(transport IN ITEMS shm mpi)
  foreach(progress IN ITEMS thread polling)
    add_test(NAME mpi.comm.dead_peer.${transport}.${progress}
             COMMAND ${MPIEXEC_EXECUTABLE} -disable-auto-cleanup ${MPIEXEC_NUMPROC_FLAG} 3
                     $<TARGET_FILE:mpi.comm.dead_peer> ${transport} ${progress})
    set_tests_properties(mpi.comm.dead_peer.${transport}.${progress} PROPERTIES LABELS mpi PROCESSORS 3 TIMEOUT 30
                         PASS_REGULAR_EXPRESSION "rank 0 noticed in time: rank 1 on node .* is gone.*while this rank is in .*#7 doomed")
  endforeach()
endforeach()

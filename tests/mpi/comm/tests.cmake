strata_mpi_tests(comm)
strata_mpi_test(comm/test_world RANKS 1 2 3 4)
strata_mpi_test(comm/test_collective_error RANKS 1 3)
strata_mpi_test(comm/test_collectives RANKS 3 4 DEEP_RANKS 2 5 TIMEOUT 360)
strata_mpi_test(comm/test_reduce RANKS 3 5 AVX2_RANKS 3 DEEP_RANKS 2 8 TIMEOUT 360)
strata_mpi_test(comm/test_two_level RANKS 4 DEEP_RANKS 6 TIMEOUT 270)
strata_mpi_test(comm/test_engine RANKS 1 3 DEEP_RANKS 2 4 TIMEOUT 270)
strata_mpi_test(comm/test_emulated_link RANKS 3 DEEP_RANKS 2 4)
strata_mpi_test(comm/test_emulated_nodes RANKS 4)
strata_mpi_test(comm/test_watchdog RANKS 3 SANITIZED_RANKS none TIMEOUT 720)
if(TEST mpi.comm.test_watchdog.np3)
  set_tests_properties(mpi.comm.test_watchdog.np3 PROPERTIES PROCESSORS 1)  # it waits most of the time
endif()

# As between real nodes on Ethernet: MPI talks TCP and takes every rank for a node. Several times, because what can go wrong there,
# MPI_Finalize, does so now and then.
foreach(repeat RANGE 1 4)
  add_test(NAME mpi.comm.test_world.tcp.${repeat}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 4 ${MPIEXEC_PREFLAGS} $<TARGET_FILE:mpi.comm>
                   --gtest_filter=World.ControlPlane ${MPIEXEC_POSTFLAGS})
  set_tests_properties(mpi.comm.test_world.tcp.${repeat} PROPERTIES LABELS mpi PROCESSORS 4 TIMEOUT 180
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;UCX_TLS=tcp,self;MPIR_CVAR_NOLOCAL=1")
endforeach()

# A rank that kills itself. The launcher reports failure whatever the survivors do: what they wrote is the result.
add_executable(mpi.comm.dead_peer ${CMAKE_CURRENT_LIST_DIR}/dead_peer.cpp)
add_dependencies(tier_mpi mpi.comm.dead_peer)
target_link_libraries(mpi.comm.dead_peer PRIVATE strata_flags strata_comm)
foreach(transport IN ITEMS shm mpi)
  foreach(progress IN ITEMS thread polling)
    add_test(NAME mpi.comm.dead_peer.${transport}.${progress}
             COMMAND ${CMAKE_CURRENT_LIST_DIR}/dead_peer.sh ${MPIEXEC_EXECUTABLE} $<TARGET_FILE:mpi.comm.dead_peer> ${transport} ${progress})
    set_tests_properties(mpi.comm.dead_peer.${transport}.${progress} PROPERTIES LABELS mpi PROCESSORS 3 TIMEOUT 180
                         ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  endforeach()
endforeach()

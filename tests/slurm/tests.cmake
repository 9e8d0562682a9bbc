# On a Slurm cluster that the tests start on this machine (jobscripts/testbed.py), each file a ctest test with a cluster of its own.
# Alone: while its nodes' network devices come and go, MPI elsewhere on the machine may not find those it counted.
add_dependencies(tier_slurm mpi.comm.test_world mpi.comm.test_two_level)
foreach(file IN ITEMS test_launch test_submit test_sweep test_testbed test_up_and_down)
  add_test(NAME slurm.${file}
           COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                   --junitxml=${CMAKE_BINARY_DIR}/reports/slurm.${file}.xml ${CMAKE_CURRENT_LIST_DIR}/${file}.py)
  set_tests_properties(slurm.${file} PROPERTIES LABELS slurm TIMEOUT 900 RUN_SERIAL ON
                       ENVIRONMENT "STRATA=$<TARGET_FILE:strata>;STRATA_BUILD=${CMAKE_BINARY_DIR}")
endforeach()

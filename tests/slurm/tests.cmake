# On a Slurm cluster that the tests start on this machine (jobscripts/testbed.py), each file a ctest test with a cluster of its own.
# A machine has one at a time (RESOURCE_LOCK), in a network of its own (conftest.py). They mostly wait, for minutes: so they begin
# first (COST), and other tests run beside them.
add_dependencies(tier_slurm mpi.comm)
foreach(file IN ITEMS test_launch test_submit test_sweep test_testbed test_up_and_down)
  add_test(NAME slurm.${file}
           COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                   --junitxml=${CMAKE_BINARY_DIR}/reports/slurm.${file}.xml ${CMAKE_CURRENT_LIST_DIR}/${file}.py)
  set_tests_properties(slurm.${file} PROPERTIES LABELS slurm TIMEOUT 1500 RESOURCE_LOCK testbed COST 1000
                       ENVIRONMENT "STRATA=$<TARGET_FILE:strata>;STRATA_BUILD=${CMAKE_BINARY_DIR}")
endforeach()

# Whole runs of the binary, each file a ctest test. Two run beside each other on two cores: while one plans, reads or waits for ranks
# to start, the other computes.
foreach(file IN ITEMS test_bad_input test_checkpoint test_command_line test_cyclic test_devices test_disk_faults test_evaluation test_image_folder test_install test_interchange test_kill test_machine test_metadata_calls test_operator_splitting test_osdp test_plan test_simulate test_spack_recipe test_stage_construction test_step_against_pytorch test_submit test_sweep_folder test_testbed_trust test_text_step_against_pytorch test_train
                  test_validation)
  add_test(NAME e2e.${file}
           COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                   --junitxml=${CMAKE_BINARY_DIR}/reports/e2e.${file}.xml ${CMAKE_CURRENT_LIST_DIR}/${file}.py)
  set_tests_properties(e2e.${file} PROPERTIES LABELS e2e TIMEOUT 1200
                       ENVIRONMENT "STRATA=$<TARGET_FILE:strata>;STRATA_BUILD=${CMAKE_BINARY_DIR};MPIEXEC=${MPIEXEC_EXECUTABLE}")
endforeach()

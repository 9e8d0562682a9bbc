add_test(NAME lint.layers COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/lint/check_layers.py ${PROJECT_SOURCE_DIR}/src)
add_test(NAME lint.names COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/lint/check_names.py WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(lint.layers lint.names PROPERTIES LABELS unit TIMEOUT 60)

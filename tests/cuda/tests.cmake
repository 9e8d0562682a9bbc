# Where STRATA_CUDA is on: executables cuda.<file>, label "cuda". Without a GPU every test reports that it was skipped.
add_custom_target(tier_cuda)
foreach(name IN ITEMS operators real_shapes)
  add_executable(cuda.test_${name} cuda/test_${name}.cpp)
  target_include_directories(cuda.test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  # The narrowest set of instructions, whatever this machine has: it is packed for others (pack.sh).
  target_link_libraries(cuda.test_${name} PRIVATE strata_flags strata_exec_cuda strata_cpu_kernels_avx2 GTest::gtest_main)
  target_compile_options(cuda.test_${name} PRIVATE -O1 -Wno-maybe-uninitialized)
  add_dependencies(tier_cuda cuda.test_${name})
  gtest_discover_tests(cuda.test_${name} TEST_PREFIX cuda.test_${name}. DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS cuda TIMEOUT 720 RESOURCE_LOCK gpu)
endforeach()

add_executable(cuda.test_modes cuda/test_modes.cpp)
target_include_directories(cuda.test_modes PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(cuda.test_modes PRIVATE strata_flags strata_test_main strata_exec_cuda strata_lower strata_planners strata_models
                      strata_sim OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda cuda.test_modes)
foreach(ranks IN ITEMS 1 2 4)
  add_test(NAME cuda.test_modes.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:cuda.test_modes>)
  strata_has_ranks(cuda.test_modes.np${ranks} ${ranks})
  set_tests_properties(cuda.test_modes.np${ranks} PROPERTIES LABELS cuda TIMEOUT 900 RESOURCE_LOCK gpu
    SKIP_REGULAR_EXPRESSION "Skipped\nno GPU")
  add_test(NAME cuda.test_modes.nccl.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:cuda.test_modes>)
  strata_has_ranks(cuda.test_modes.nccl.np${ranks} ${ranks})
  set_tests_properties(cuda.test_modes.nccl.np${ranks} PROPERTIES LABELS cuda TIMEOUT 900
    RESOURCE_LOCK gpu ENVIRONMENT STRATA_TRANSPORT=nccl SKIP_REGULAR_EXPRESSION "Skipped\nno GPU")
endforeach()

add_executable(cuda.test_nccl cuda/test_nccl.cpp)
target_include_directories(cuda.test_nccl PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(cuda.test_nccl PRIVATE strata_flags strata_test_main strata_exec_cuda)
add_dependencies(tier_cuda cuda.test_nccl)
foreach(ranks IN ITEMS 1 2 4)
  add_test(NAME cuda.test_nccl.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:cuda.test_nccl>)
  strata_has_ranks(cuda.test_nccl.np${ranks} ${ranks})
  set_tests_properties(cuda.test_nccl.np${ranks} PROPERTIES LABELS cuda TIMEOUT 900 RESOURCE_LOCK gpu
    SKIP_REGULAR_EXPRESSION "Skipped\nno GPU")
endforeach()

# The driver's management library is not on every machine: a stand-in, and one of an older driver. Tests look for them
# beside themselves.
foreach(name IN ITEMS fake_nvml fake_old_nvml)
  add_library(${name} MODULE cuda/fake_nvml.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE strata_flags)
endforeach()
target_compile_definitions(fake_old_nvml PRIVATE STRATA_OLD_NVML)
function(strata_monitor_test target prefix)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE strata_flags GTest::gmock GTest::gtest_main ${CMAKE_DL_LIBS})
  add_dependencies(${target} fake_nvml fake_old_nvml)
  add_dependencies(tier_cuda ${target})
  gtest_discover_tests(${target} TEST_PREFIX ${prefix}. DISCOVERY_TIMEOUT 60 PROPERTIES LABELS cuda TIMEOUT 180 ${ARGN})
endfunction()
add_executable(cuda.test_monitor cuda/test_monitor.cpp cuda/test_driver_counters.cpp)
target_link_libraries(cuda.test_monitor PRIVATE strata_exec_cuda)
strata_monitor_test(cuda.test_monitor cuda.test_monitor RESOURCE_LOCK gpu)

# cuDNN plans for GPUs that are described to it, and asks the driver for little: one that is none serves.
add_library(fake_cuda_driver MODULE cuda/fake_cuda_driver.cpp)
target_link_libraries(fake_cuda_driver PRIVATE strata_flags)
set_target_properties(fake_cuda_driver PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cuda_driver)
foreach(subject IN ITEMS attention convolution)
  set(name cuda.test_${subject}_plan)
  add_executable(${name} cuda/test_${subject}_plan.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE strata_flags strata_exec_cuda GTest::gmock GTest::gtest_main)
  add_dependencies(${name} fake_cuda_driver)
  add_dependencies(tier_cuda ${name})
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES LABELS cuda TIMEOUT 1800
                       ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${CMAKE_CURRENT_BINARY_DIR}/fake_cuda_driver)
endforeach()

# For a person or run_on_gpu.sh to run. The first has no NVIDIA library linked to it: it says which one is missing.
add_executable(library_versions cuda/library_versions.cpp)
target_include_directories(library_versions SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(library_versions PRIVATE strata_flags ${CMAKE_DL_LIBS})
add_dependencies(tier_cuda library_versions)
add_executable(bench_cuda cuda/bench_cuda.cpp)
target_include_directories(bench_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(bench_cuda PRIVATE strata_flags strata_exec_cuda strata_lower strata_planners strata_models strata_comm
                      OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda bench_cuda)

# The scripts by themselves, with stand-ins for what they pack and run.
add_test(NAME cuda.scripts COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                                   ${CMAKE_CURRENT_SOURCE_DIR}/cuda/test_scripts.py)
set_tests_properties(cuda.scripts PROPERTIES LABELS cuda TIMEOUT 360
  ENVIRONMENT "LIBRARY_VERSIONS=$<TARGET_FILE:library_versions>;CUDA_LIBRARIES=${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib")

# The same kernels, bindings and executor on the CPU (emulation/emulation.hpp): these run everywhere.
set(emulated ${CMAKE_BINARY_DIR}/generated/emulated)
file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/exec/cuda/kernels/*.cu
     ${PROJECT_SOURCE_DIR}/src/exec/cuda/kernels/*.cuh)
set(translated)
foreach(kernel IN LISTS kernels)
  string(REGEX REPLACE "\\.cu$" ".cpp" to ${emulated}/${kernel})
  get_filename_component(folder ${to} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${to} VERBATIM DEPENDS ${PROJECT_SOURCE_DIR}/src/${kernel} cuda/emulation/translate.py
    COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulation/translate.py ${PROJECT_SOURCE_DIR}/src/${kernel} ${to})
  list(APPEND translated ${to})
endforeach()
add_library(cuda_emulation STATIC ${translated} cuda/emulation/convolutions.cpp cuda/emulation/emulation.cpp
            cuda/emulation/fused_attention.cpp cuda/emulation/graphs.cpp cuda/emulation/nccl.cpp cuda/emulation/products.cpp
            cuda/emulation/streams.cpp)
foreach(file IN ITEMS backend check communicators cuda_executor device_arena device_info environment gpu_monitor graph input_load kernel_binding
        libraries managed_memory matmul nccl_collective nccl_probe nvml overlapping_steps product_choices product_parts
        step_values)
  target_sources(cuda_emulation PRIVATE ${PROJECT_SOURCE_DIR}/src/exec/cuda/${file}.cpp)
endforeach()
set_target_properties(cuda_emulation PROPERTIES UNITY_BUILD ${STRATA_UNITY} UNITY_BUILD_BATCH_SIZE 8)  # of what is no kernel
target_include_directories(cuda_emulation BEFORE PUBLIC ${emulated} ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(cuda_emulation SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS} ${nccl_INCLUDE_DIR})
target_link_libraries(cuda_emulation PUBLIC strata_exec PRIVATE ${CMAKE_DL_LIBS})
# Contraction would round otherwise than the kernels' own fused operations; what a .cu file may leave unused is nvcc's to say.
# Fibers jump between stacks, which fortified longjmp takes for an error.
target_compile_options(cuda_emulation PRIVATE -O2 -U_FORTIFY_SOURCE -ffp-contract=off)
# A misaligned vector, which a GPU does not read, ends the program.
set_source_files_properties(${translated} PROPERTIES COMPILE_OPTIONS
  "-w;-fsanitize=alignment;-fsanitize-undefined-trap-on-error")
target_link_libraries(cuda_emulation PRIVATE strata_flags)

foreach(name IN ITEMS operators real_shapes)
  add_executable(cuda.emulated_${name} cuda/test_${name}.cpp)
  target_link_libraries(cuda.emulated_${name} PRIVATE strata_flags cuda_emulation ${native_kernels} GTest::gtest_main)
  target_compile_options(cuda.emulated_${name} PRIVATE -O1 -Wno-maybe-uninitialized)
  add_dependencies(tier_cuda cuda.emulated_${name})
  gtest_discover_tests(cuda.emulated_${name} TEST_PREFIX emulated_cuda. DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS cuda TIMEOUT 720)
endforeach()

add_executable(cuda.emulated_monitor cuda/test_monitor.cpp)
target_link_libraries(cuda.emulated_monitor PRIVATE cuda_emulation)
strata_monitor_test(cuda.emulated_monitor emulated_cuda)

# What a profiler and the device's account of its memory see of a run.
add_executable(cuda.emulated_observed_run cuda/test_trace_ranges.cpp cuda/test_device_memory.cpp cuda/test_environment.cpp cuda/test_input_load.cpp)
target_link_libraries(cuda.emulated_observed_run PRIVATE strata_flags strata_test_main cuda_emulation strata_lower
                      strata_planners strata_models OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda cuda.emulated_observed_run)
add_test(NAME emulated_cuda.observed_run COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 1 ${MPIEXEC_PREFLAGS}
                                                 $<TARGET_FILE:cuda.emulated_observed_run>)
set_tests_properties(emulated_cuda.observed_run PROPERTIES LABELS cuda TIMEOUT 360)

# Every mode on exact inputs, one step of every model, transformers in parts, every mode of the smallest model: all models
# in all modes would take an hour.
add_executable(cuda.emulated_modes cuda/test_modes.cpp)
target_link_libraries(cuda.emulated_modes PRIVATE strata_flags strata_test_main cuda_emulation strata_lower strata_planners
                      strata_models strata_sim OpenMP::OpenMP_CXX)
add_dependencies(tier_cuda cuda.emulated_modes)
set(emulated_host_on_1 Modes.EveryMode*:Modes.GradientsAreTheCpus:Modes.GraphsRead*:Modes.FusedAttention*)
set(emulated_host_on_2 Modes.EveryMode*:Modes.TransformersInParts*:*EveryMode*/mlp:Modes.GraphsWith*:Modes.Late*)
set(emulated_nccl_on_4 Modes.EveryMode*:Modes.TransformersInParts*:Modes.GraphsGive*:Modes.FusedAttention*:Modes.Late*)
foreach(run IN ITEMS host_on_1 host_on_2 nccl_on_4)
  string(REGEX MATCH "[0-9]+" ranks ${run})
  string(REGEX MATCH "^[a-z]+" transport ${run})
  add_test(NAME emulated_cuda.modes.${transport}.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:cuda.emulated_modes>
                   --gtest_filter=${emulated_${run}})
  strata_has_ranks(emulated_cuda.modes.${transport}.np${ranks} ${ranks})
  set_tests_properties(emulated_cuda.modes.${transport}.np${ranks} PROPERTIES LABELS cuda TIMEOUT 1800
    ENVIRONMENT STRATA_TRANSPORT=${transport})
endforeach()

# Small Programs whose steps overlap, by both ways that collectives go.
add_executable(cuda.emulated_overlapping_programs cuda/test_overlapping_programs.cpp)
target_link_libraries(cuda.emulated_overlapping_programs PRIVATE strata_test_flags strata_test_main cuda_emulation strata_lower)
add_dependencies(tier_cuda cuda.emulated_overlapping_programs)
foreach(transport IN ITEMS host nccl)
  add_test(NAME emulated_cuda.overlapping_programs.${transport}.np2
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 ${MPIEXEC_PREFLAGS}
                   $<TARGET_FILE:cuda.emulated_overlapping_programs>)
  set_tests_properties(emulated_cuda.overlapping_programs.${transport}.np2 PROPERTIES LABELS cuda PROCESSORS 2 TIMEOUT 180
    ENVIRONMENT STRATA_TRANSPORT=${transport})
endforeach()

# Graphs that the device refuses, by one rank and by one of two; what one launch does of a Program, of one rank and of two.
foreach(subject IN ITEMS refused_graphs joined_updates fused_programs timed_products)
  add_executable(cuda.emulated_${subject} cuda/emulation/test_${subject}.cpp)
  target_link_libraries(cuda.emulated_${subject} PRIVATE strata_flags strata_test_main cuda_emulation strata_lower strata_planners
                                                         strata_models OpenMP::OpenMP_CXX)
  add_dependencies(tier_cuda cuda.emulated_${subject})
  foreach(ranks IN ITEMS 1 2)
    add_test(NAME emulated_cuda.${subject}.np${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                     $<TARGET_FILE:cuda.emulated_${subject}>)
    strata_has_ranks(emulated_cuda.${subject}.np${ranks} ${ranks})
    set_tests_properties(emulated_cuda.${subject}.np${ranks} PROPERTIES LABELS cuda TIMEOUT 180)
  endforeach()
endforeach()

# NCCL emulated over MPI: what goes right, and what is said where it goes wrong.
add_executable(cuda.emulated_nccl cuda/test_nccl.cpp cuda/emulation/test_nccl_failures.cpp)
target_link_libraries(cuda.emulated_nccl PRIVATE strata_flags strata_test_main cuda_emulation)
add_dependencies(tier_cuda cuda.emulated_nccl)
foreach(ranks IN ITEMS 1 2 4)
  add_test(NAME emulated_cuda.nccl.np${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                   $<TARGET_FILE:cuda.emulated_nccl>)
  strata_has_ranks(emulated_cuda.nccl.np${ranks} ${ranks})
  set_tests_properties(emulated_cuda.nccl.np${ranks} PROPERTIES LABELS cuda TIMEOUT 900)
endforeach()

# The whole program on emulated GPUs: what it links first is what it calls.
add_executable(strata_emulated ${PROJECT_SOURCE_DIR}/src/cli/main.cpp cuda/emulation/rates.cpp)
target_link_libraries(strata_emulated PRIVATE strata_flags $<LINK_LIBRARY:WHOLE_ARCHIVE,cuda_emulation> strata_cli)
add_dependencies(tier_cuda strata_emulated)
add_test(NAME emulated_cuda.e2e
         COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -m pytest -q -p no:cacheprovider
                 ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_devices.py)
set_tests_properties(emulated_cuda.e2e PROPERTIES LABELS cuda TIMEOUT 1800 PROCESSORS 2
  ENVIRONMENT "STRATA=$<TARGET_FILE:strata>;STRATA_EMULATED=$<TARGET_FILE:strata_emulated>;MPIEXEC=${MPIEXEC_EXECUTABLE}")

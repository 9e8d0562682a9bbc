# Benchmarks: executables for a person to run, not tests. ctest knows nothing of them, `all` leaves them out, and sanitizers have no
# use for them. The target benchmarks is all of them.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  return()
endif()

find_package(benchmark REQUIRED)

add_custom_target(benchmarks)

# strata_bench(<name> LIBRARIES lib...): the executable <name> from bench/<name>.cpp.
function(strata_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES")
  add_executable(${name} EXCLUDE_FROM_ALL bench/${name}.cpp)
  add_dependencies(benchmarks ${name})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE strata_flags ${arg_LIBRARIES})
endfunction()

strata_bench(bench_overlap LIBRARIES strata_predict)
strata_bench(bench_collectives LIBRARIES strata_comm)
strata_bench(bench_dense LIBRARIES strata_exec ${native_kernels} OpenMP::OpenMP_CXX)
strata_bench(bench_memory_bound LIBRARIES strata_exec ${native_kernels} OpenMP::OpenMP_CXX)
strata_bench(bench_simulator LIBRARIES strata_sim strata_lower strata_planners strata_models benchmark::benchmark)
strata_bench(bench_planners LIBRARIES strata_predict benchmark::benchmark)
target_compile_definitions(bench_planners PRIVATE STRATA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

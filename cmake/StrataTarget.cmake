# Flags and the two functions every target of ours is made with. Nothing here leaks to dependencies.

set(STRATA_CPU_ARCH "native" CACHE STRING
    "-march of the CPU kernels; every node that runs the binary must support it; empty: as the compiler is called")

add_library(strata_flags INTERFACE)
target_compile_features(strata_flags INTERFACE cxx_std_20)
target_compile_options(strata_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers  # designated initialisers leave the rest to its default on purpose
    # Vectors wider than the machine's are passed between inlined functions alone; where it lacks AVX-512 GCC says so at
    # the end of a file, where no pragma reaches.
    -Wno-psabi
    -Wno-stringop-overflow>  # GCC 12 sees overflows inside inlined libfmt that are none
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STRATA_WERROR}>>:-Werror>)

# Vector code: kernels and reductions. -ffp-contract is explicit so that every build type rounds alike.
add_library(strata_vector_flags INTERFACE)
target_compile_options(strata_vector_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:$<$<BOOL:${STRATA_CPU_ARCH}>:-march=${STRATA_CPU_ARCH}> -ffp-contract=fast -fno-math-errno>)

# strata_library(<folder> [PUBLIC lib...] [PRIVATE lib...])
#
# One static library strata_<folder> from every source below src/<folder>. A new file needs no edit here.
# Headers form a file set, so that the target all_verify_interface_header_sets compiles each one alone.
function(strata_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.hpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/|/without_cuda/|/main\\.cpp$|/interpose_malloc\\.cpp$")
  list(FILTER headers EXCLUDE REGEX "/cuda/")
  add_library(strata_${folder} STATIC ${sources})
  target_compile_features(strata_${folder} PUBLIC cxx_std_20)
  target_sources(strata_${folder} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${headers})
  target_link_libraries(strata_${folder} PUBLIC ${arg_PUBLIC} PRIVATE strata_flags ${arg_PRIVATE})
  if(STRATA_PCH)
    strata_precompile(strata_${folder} strata_base LIBRARIES ${arg_PRIVATE})
  endif()
endfunction()

# Flags and the two functions every target of ours is made with. Nothing here leaks to dependencies.

add_library(strata_flags INTERFACE)
target_compile_features(strata_flags INTERFACE cxx_std_20)
target_compile_options(strata_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers  # designated initialisers leave the rest to its default on purpose
    # Vectors wider than the machine's are passed between inlined functions alone; where it lacks AVX-512 GCC says so at
    # the end of a file, where no pragma reaches.
    -Wno-psabi
    # What is compiled together with others is an included file, whose anonymous namespace GCC takes for a header's.
    $<$<BOOL:${STRATA_UNITY}>:-Wno-subobject-linkage>
    -Wno-stringop-overflow>  # GCC 12 sees overflows inside inlined libfmt that are none
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STRATA_WERROR}>>:-Werror>
  # GCC collects its garbage when what it holds has grown by this many percent and is this many KiB: a tenth to a fifth of the time of
  # a compilation, for a tenth to a fifth of memory.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=1000 --param=ggc-min-heapsize=1500000>)

# strata_library(<folder> [PUBLIC lib...] [PRIVATE lib...] [WITHOUT file...])
#
# One static library strata_<folder> from every source below src/<folder> but those named. A new file needs no edit here.
# Headers form a file set, so that the target all_verify_interface_header_sets compiles each one alone.
function(strata_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PUBLIC;PRIVATE;WITHOUT")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.hpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/|/without_cuda/|/main\\.cpp$|/interpose_malloc\\.cpp$")
  list(FILTER headers EXCLUDE REGEX "/cuda/")
  list(REMOVE_ITEM sources "" ${arg_WITHOUT})
  add_library(strata_${folder} STATIC ${sources})
  target_compile_features(strata_${folder} PUBLIC cxx_std_20)
  target_include_directories(strata_${folder} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  target_sources(strata_${folder} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${headers})
  target_link_libraries(strata_${folder} PUBLIC ${arg_PUBLIC} PRIVATE strata_flags ${arg_PRIVATE})
  if(STRATA_PCH)
    strata_precompile(strata_${folder} strata_base LIBRARIES ${arg_PRIVATE})
  endif()
endfunction()

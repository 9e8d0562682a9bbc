# Precompiled headers: the standard library and fmt, with which most files begin, are parsed once a set of flags instead of
# once a file. The tests' are always precompiled; those of src only where STRATA_PCH says so, because what a precompiled
# header brings is not missed by a file that forgets to include it.
option(STRATA_PCH "Precompile the headers that most sources of src include" ON)

set(precompiled_headers
    <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <limits> <map>
    <memory> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector>
    <fmt/format.h> <fmt/ranges.h>)

# strata_precompile(<target> <owner> [HEADERS <header>...] [LIBRARIES <what the target links>...])
#
# The target uses the precompiled header of the target <owner>. One that is its own owner, or is compiled for OpenMP,
# which a precompiled header depends on, has its own, with the headers named besides those above.
function(strata_precompile target owner)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;LIBRARIES")
  if(target STREQUAL owner OR OpenMP::OpenMP_CXX IN_LIST arg_LIBRARIES)
    target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${arg_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

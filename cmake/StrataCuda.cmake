# The CUDA executor: src/exec/cuda as the library strata_exec_cuda. Included where STRATA_CUDA is on.
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
find_library(cudnn_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib REQUIRED)
find_library(nccl_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib REQUIRED)
find_path(nccl_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/exec/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/exec/cuda/*.cu)
add_library(strata_exec_cuda STATIC ${cuda_sources})
target_include_directories(strata_exec_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_include_directories(strata_exec_cuda SYSTEM PUBLIC ${nccl_INCLUDE_DIR})
target_compile_features(strata_exec_cuda PUBLIC cxx_std_20)
# base/random.hpp's constexpr functions are the device's too: one definition of the random numbers.
target_compile_options(strata_exec_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20  # CMake 3.25 does not know it of this nvcc
    --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${STRATA_WERROR}>:-Werror=all-warnings>>)
target_link_libraries(strata_exec_cuda PUBLIC strata_exec CUDA::cudart
                      PRIVATE strata_flags CUDA::cublasLt ${cudnn_LIBRARY} ${nccl_LIBRARY} ${CMAKE_DL_LIBS})

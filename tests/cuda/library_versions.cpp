/// @file
/// Which of NVIDIA's libraries a process finds here, and whether cuDNN's is one that strata was built for. They are
/// opened by name, so that one that is missing is named and does not keep this program from starting.
///
///   library_versions          a line a library: name, version, file; exits 2 where one is missing or too old

#include <cudnn_version.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

/// Where the search goes, for messages.
const char* search_path() {
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  return path == nullptr || *path == '\0' ? "the loader's own folders" : path;
}

/// @return null where the library or the function is not there, having said so.
template <typename Function>
Function* find(const char* library, const char* function) {
  void* const handle = dlopen(library, RTLD_NOW);
  if (handle == nullptr) {
    std::printf("no %s in %s: %s\n", library, search_path(), dlerror());
    return nullptr;
  }
  auto* const found = reinterpret_cast<Function*>(dlsym(handle, function));
  if (found == nullptr) std::printf("%s has no %s\n", library, function);
  return found;
}

/// A version that a function writes to where it is told. @return success
bool print_written(const char* library, const char* function) {
  auto* const version_of = find<int(int*)>(library, function);
  if (version_of == nullptr) return false;
  int version = 0;
  if (const int status = version_of(&version); status != 0) {
    std::printf("%s: %s: error %d\n", library, function, status);
    return false;
  }
  std::printf("%s %d\n", library, version);
  return true;
}

/// One that a function returns; 0: it failed, having said so.
std::size_t print_returned(const char* library, const char* function) {
  auto* const version_of = find<std::size_t()>(library, function);
  if (version_of == nullptr) return 0;
  const std::size_t version = version_of();
  std::printf("%s %zu\n", library, version);
  return version;
}

/// Without the patch: 91900 → 919.
constexpr std::size_t release_of(std::size_t cudnn_version) { return cudnn_version / 100; }

}  // namespace

int main() {
  bool all = print_written("libcudart.so.13", "cudaRuntimeGetVersion");
  all = print_returned("libcublasLt.so.13", "cublasLtGetVersion") > 0 && all;
  const std::size_t cudnn = print_returned("libcudnn.so.9", "cudnnGetVersion");
  all = cudnn > 0 && all;
  if (cudnn > 0 && release_of(cudnn) < release_of(CUDNN_VERSION)) {
    std::printf("cuDNN %zu.%zu is older than %d.%d, which strata was built with\n", cudnn / 10000, cudnn / 100 % 100,
                CUDNN_MAJOR, CUDNN_MINOR);
    all = false;
  }
  all = print_written("libnccl.so.2", "ncclGetVersion") && all;
  return all ? 0 : 2;
}

/// @file
/// Stands for the driver's library, libcuda.so.1, where cuDNN plans kernels without a GPU: it compiles them, and gives
/// them to the driver, which takes what it is given. Nothing can be run.

namespace {

int anything;  // its address is every handle
constexpr int success = 0;
constexpr int not_initialized = 3;
constexpr int stub_library = 34;

}  // namespace

extern "C" {
int cuInit(unsigned) { return stub_library; }  // the compiler then asks no more of it
int cuDriverGetVersion(int* version) { return *version = 13000, success; }
int cuDeviceGetCount(int* count) { return *count = 0, success; }
int cuGetErrorName(int, const char** text) { return *text = "CUDA_ERROR", success; }
int cuGetErrorString(int, const char** text) { return *text = "said by a driver that is none", success; }
int cuLibraryLoadData(void** library, ...) { return *library = &anything, success; }
int cuLibraryGetKernel(void** kernel, void*, const char*) { return *kernel = &anything, success; }
int cuLibraryUnload(void*) { return success; }

// cuDNN looks for these before it begins, and needs none of them to plan.
#define STRATA_NOT_HERE(name) \
  int name() { return not_initialized; }
STRATA_NOT_HERE(cuCtxGetCurrent)
STRATA_NOT_HERE(cuCtxGetDevice)
STRATA_NOT_HERE(cuCtxGetLimit)
STRATA_NOT_HERE(cuCtxPopCurrent)
STRATA_NOT_HERE(cuCtxPushCurrent)
STRATA_NOT_HERE(cuDeviceGet)
STRATA_NOT_HERE(cuDeviceGetAttribute)
STRATA_NOT_HERE(cuDevicePrimaryCtxRelease)
STRATA_NOT_HERE(cuDevicePrimaryCtxReset)
STRATA_NOT_HERE(cuDevicePrimaryCtxRetain)
STRATA_NOT_HERE(cuFuncGetAttribute)
STRATA_NOT_HERE(cuFuncSetAttribute)
STRATA_NOT_HERE(cuKernelGetAttribute)
STRATA_NOT_HERE(cuKernelSetAttribute)
STRATA_NOT_HERE(cuLaunchCooperativeKernel)
STRATA_NOT_HERE(cuLaunchKernel)
STRATA_NOT_HERE(cuLaunchKernelEx)
STRATA_NOT_HERE(cuLibraryLoadFromFile)
STRATA_NOT_HERE(cuLinkAddData)
STRATA_NOT_HERE(cuLinkAddData_v2)
STRATA_NOT_HERE(cuLinkAddFile_v2)
STRATA_NOT_HERE(cuLinkComplete)
STRATA_NOT_HERE(cuLinkCreate)
STRATA_NOT_HERE(cuLinkCreate_v2)
STRATA_NOT_HERE(cuLinkDestroy)
STRATA_NOT_HERE(cuMemcpyDtoH_v2)
STRATA_NOT_HERE(cuModuleGetFunction)
STRATA_NOT_HERE(cuModuleGetGlobal_v2)
STRATA_NOT_HERE(cuModuleLoadData)
STRATA_NOT_HERE(cuModuleLoadDataEx)
STRATA_NOT_HERE(cuModuleLoadFatBinary)
STRATA_NOT_HERE(cuModuleUnload)
STRATA_NOT_HERE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
STRATA_NOT_HERE(cuOccupancyMaxPotentialClusterSize)
STRATA_NOT_HERE(cuStreamGetCtx)
STRATA_NOT_HERE(cuStreamSynchronize)
STRATA_NOT_HERE(cuTensorMapEncodeTiled)
}

/// @file
/// Fibers, and the part of the CUDA runtime that our code calls: everything is done at once, on host memory.

#include "cuda/emulation/emulation.hpp"

#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "cuda/emulation/streams.hpp"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulation {
namespace {

constexpr std::size_t stack_bytes = 64 << 10;

/// ucontext makes the stacks; turns are passed by _setjmp and _longjmp, which make no system call.
struct Fiber {
  ucontext_t context{};
  jmp_buf place_in_code{};
  bool started = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(stack_bytes);
  bool finished = false;
  int place = 0;
  float value = 0.0F;
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<float> shared;
jmp_buf scheduler;
std::size_t current = 0;
const std::function<void()>* running = nullptr;

void enter() {
  (*running)();
  fibers[current]->finished = true;
  _longjmp(scheduler, 1);
}

/// Runs the fiber until it waits or is finished.
void resume(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.place_in_code, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

std::int64_t launches = 0;

void run_block(std::size_t num_threads) {
  for (std::size_t t = 0; t < num_threads; ++t) {
    Fiber& fiber = *fibers[t];
    fiber.finished = false;
    fiber.started = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  for (bool any = true; any;) {
    any = false;
    int place = -1;
    for (current = 0; current < num_threads; ++current) {
      Fiber& fiber = *fibers[current];
      if (fiber.finished) continue;
      threadIdx = {static_cast<unsigned>(current), 0, 0};
      resume(fiber);
      if (fiber.finished) continue;
      any = true;
      if (place >= 0 && place != fiber.place) {
        std::fprintf(stderr, "emulation: threads of one block wait at different places\n");
        std::abort();
      }
      place = fiber.place;
    }
  }
}

void run(const LaunchShape& shape, const std::function<void()>& kernel) {
  const std::size_t num_threads = shape.block.x;
  while (fibers.size() < num_threads) fibers.push_back(std::make_unique<Fiber>());
  // What nobody writes is NaN.
  shared.assign(shape.shared_bytes / sizeof(float) + 1, std::nanf(""));
  running = &kernel;
  gridDim = shape.grid;
  blockDim = shape.block;
  for (unsigned y = 0; y < shape.grid.y; ++y) {
    for (unsigned x = 0; x < shape.grid.x; ++x) {
      blockIdx = {x, y, 0};
      run_block(num_threads);
    }
  }
}

}  // namespace

void launch(const LaunchShape& shape, const std::function<void()>& kernel) {
  submit(shape.stream, [shape, kernel] {
    ++launches;
    run(shape, kernel);
  });
}

std::int64_t num_launches() { return launches; }

float* dynamic_shared() { return shared.data(); }

void meet(int place) {
  Fiber& fiber = *fibers[current];
  fiber.place = place;
  if (_setjmp(fiber.place_in_code) == 0) _longjmp(scheduler, 1);
}

float exchange(float value, int mask) {
  fibers[current]->value = value;
  meet(1);
  const float other = fibers[current ^ static_cast<std::size_t>(mask)]->value;
  meet(2);
  return other;
}

}  // namespace emulation

namespace {

std::map<void*, std::size_t> allocated;  // bytes of the device's memory

}  // namespace

extern "C" {
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "?"; }
const char* cudaGetErrorString(cudaError_t) { return "?"; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
/// Every process has a GPU of its own.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated");
  const int process = getpid();
  std::memcpy(properties->uuid.bytes, &process, sizeof process);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 227 << 10 : 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  return std::snprintf(id, static_cast<std::size_t>(size), "0000:00:00.0"), cudaSuccess;
}
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  *to = ::operator new (bytes, std::align_val_t{256});
  allocated[*to] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  allocated.erase(memory);
  return ::operator delete (memory, std::align_val_t{256}), cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = std::size_t{1} << 36;
  *free_bytes = *total_bytes;
  for (const auto& [memory, bytes] : allocated) *free_bytes -= bytes;
  return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** to, std::size_t bytes, unsigned) { return cudaMalloc(to, bytes); }
cudaError_t cudaMallocHost(void** to, std::size_t bytes) {
  return *to = ::operator new (bytes, std::align_val_t{256}), cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return ::operator delete (memory, std::align_val_t{256}), cudaSuccess; }
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return std::memset(to, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  emulation::submit(stream, [=] { cudaMemset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  // The host that queues it goes on, whatever the stream waits for.
  emulation::submit_operations(stream, [=](cudaStream_t on) {
    const auto copy = std::make_shared<emulation::Operation>();
    copy->after = emulation::pending(on);
    copy->begin = [=] { cudaMemcpy(to, from, bytes, kind); };
    copy->poll = [] { return true; };
    emulation::queue(on, {copy});
  });
  return cudaSuccess;
}
}

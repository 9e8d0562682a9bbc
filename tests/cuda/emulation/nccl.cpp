/// @file
/// The part of NCCL that our code calls, over non-blocking MPI operations: one after the other on a communicator, side
/// by side on several, the operations of a group at once. Inputs are read when an operation begins and outputs are
/// written when it is complete, so that what does not wait for it finds other values.

#include "cuda/emulation/nccl.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "cuda/emulation/streams.hpp"

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  bool connected = false;
  std::vector<std::shared_ptr<emulation::Operation>> last;  ///< what the next operation follows
};

namespace emulation {
namespace {

ncclResult_t async_error = ncclSuccess;
int registered = 0;
int aborted = 0;

constexpr int first_tag = 20000;

void require(int result) {
  if (result != MPI_SUCCESS) std::abort();
}

MPI_Datatype mpi_type(ncclDataType_t type) {
  static const MPI_Datatype bf16 = [] {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    require(MPI_Type_contiguous(2, MPI_BYTE, &made));
    require(MPI_Type_commit(&made));
    return made;
  }();
  switch (type) {
    case ncclFloat32: return MPI_FLOAT;
    case ncclBfloat16: return bf16;
    case ncclInt32: return MPI_INT32_T;
    case ncclUint8: return MPI_UINT8_T;
    default: std::abort();
  }
}

std::size_t size_of(ncclDataType_t type) {
  int size = 0;
  require(MPI_Type_size(mpi_type(type), &size));
  return static_cast<std::size_t>(size);
}

template <bool is_sum>
void combine_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const a = static_cast<const strata::bf16*>(in);
  auto* const b = static_cast<strata::bf16*>(inout);
  for (int i = 0; i < *count; ++i) {
    const float x = static_cast<float>(a[i]);
    const float y = static_cast<float>(b[i]);
    b[i] = strata::bf16(is_sum ? x + y : std::max(x, y));
  }
}

MPI_Op mpi_operation(ncclRedOp_t operation, ncclDataType_t type) {
  if (type != ncclBfloat16) return operation == ncclSum ? MPI_SUM : MPI_MAX;
  const auto make = [](MPI_User_function* function) {
    MPI_Op made = MPI_OP_NULL;
    require(MPI_Op_create(function, 1, &made));
    return made;
  };
  static const MPI_Op sum = make(combine_bf16<true>);
  static const MPI_Op max = make(combine_bf16<false>);
  return operation == ncclSum ? sum : max;
}

/// A call that waits for its group's end.
struct Queued {
  ncclComm* communicator;
  cudaStream_t stream;
  std::function<std::shared_ptr<Operation>()> make;
};
int depth = 0;
std::vector<Queued> group;

/// Operations of one group begin together; those of a communicator follow its last ones.
void end_group() {
  while (!group.empty()) {
    const cudaStream_t stream = group.front().stream;
    std::vector<Queued> calls;
    std::erase_if(group, [&](const Queued& queued) {
      if (queued.stream == stream) calls.push_back(queued);
      return queued.stream == stream;
    });
    submit_operations(stream, [calls](cudaStream_t on) {
      Operations operations;
      Operations before = pending(on);
      for (const Queued& call : calls) {
        operations.push_back(call.make());
        before.insert(before.end(), call.communicator->last.begin(), call.communicator->last.end());
      }
      for (const auto& operation : operations) operation->after = before;
      for (const Queued& call : calls) call.communicator->last = operations;
      queue(on, operations);
    });
  }
}

/// @p start posts the operation from the copied input to the staged output.
template <typename Start>
ncclResult_t add(ncclComm* communicator, cudaStream_t stream, const void* input, std::size_t input_bytes, void* output,
                 std::size_t output_bytes, Start start) {
  struct Staged {
    std::vector<char> in, out;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  const auto make = [=] {
    const auto staged = std::make_shared<Staged>();
    const auto operation = std::make_shared<Operation>();
    operation->begin = [=] {
      const char* const bytes = static_cast<const char*>(input);
      if (input_bytes > 0) staged->in.assign(bytes, bytes + input_bytes);
      staged->out.resize(output_bytes);
      start(staged->in.data(), staged->out.data(), &staged->request);
    };
    operation->poll = [=] {
      int done = 0;
      require(MPI_Test(&staged->request, &done, MPI_STATUS_IGNORE));
      if (done != 0 && output_bytes > 0) std::memcpy(output, staged->out.data(), output_bytes);
      return done != 0;
    };
    return operation;
  };
  group.push_back({communicator, stream, make});
  if (depth == 0) end_group();
  return ncclSuccess;
}

/// The hosts of two ranks meet when these first speak: who queues messages in a circle waits here for ever.
void connect(ncclComm* c, int peer) {
  if (depth > 0 || std::exchange(c->connected, true)) return;
  require(MPI_Sendrecv(nullptr, 0, MPI_BYTE, peer, 1, nullptr, 0, MPI_BYTE, peer, 1, c->mpi, MPI_STATUS_IGNORE));
}

}  // namespace

void set_async_error(ncclResult_t error) { async_error = error; }
int num_registered() { return registered; }
int num_aborted() { return aborted; }

}  // namespace emulation

using emulation::require;

namespace {

std::size_t bytes(std::size_t count, ncclDataType_t type) { return count * emulation::size_of(type); }

struct Id {
  int leader;
  int tag;
};

}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "emulated error";
}
const char* ncclGetLastError(ncclComm_t) { return "emulated"; }
ncclResult_t ncclMemAlloc(void** to, std::size_t size) { return cudaMalloc(to, size), ncclSuccess; }
ncclResult_t ncclMemFree(void* memory) { return cudaFree(memory), ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* to) {
  static int num_made = 0;
  Id id{.leader = 0, .tag = emulation::first_tag + 2 * (num_made++ % 1000)};
  require(MPI_Comm_rank(MPI_COMM_WORLD, &id.leader));
  std::memcpy(to->internal, &id, sizeof id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* to, int size, ncclUniqueId unique, int rank, ncclConfig_t*) {
  Id id{};
  std::memcpy(&id, unique.internal, sizeof id);
  int me = 0;
  require(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  // Who is who, told by the leader.
  std::vector<int> ranks(static_cast<std::size_t>(size));
  if (me == id.leader) {
    ranks[static_cast<std::size_t>(rank)] = me;
    for (int i = 1; i < size; ++i) {
      int other = 0;
      MPI_Status status;
      require(MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, id.tag, MPI_COMM_WORLD, &status));
      ranks[static_cast<std::size_t>(other)] = status.MPI_SOURCE;
    }
    for (const int other : ranks) {
      if (other != me) require(MPI_Send(ranks.data(), size, MPI_INT, other, id.tag, MPI_COMM_WORLD));
    }
  } else {
    require(MPI_Send(&rank, 1, MPI_INT, id.leader, id.tag, MPI_COMM_WORLD));
    require(MPI_Recv(ranks.data(), size, MPI_INT, id.leader, id.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  require(MPI_Comm_group(MPI_COMM_WORLD, &world));
  require(MPI_Group_incl(world, size, ranks.data(), &members));
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->size = size;
  require(MPI_Comm_create_group(MPI_COMM_WORLD, members, id.tag + 1, &made->mpi));
  require(MPI_Group_free(&members));
  require(MPI_Group_free(&world));
  *to = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  require(MPI_Comm_free(&communicator->mpi));
  delete communicator;
  return ncclSuccess;
}
/// What is under way may be awaited by others for ever: it is left to MPI, and so is the communicator.
ncclResult_t ncclCommAbort(ncclComm_t) {
  emulation::drop_operations();
  ++emulation::aborted;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  // Who watches may do nothing else meanwhile: what is under way goes on.
  emulation::Operations none;
  for (int i = 0; i < 100; ++i) emulation::is_complete(none);
  return *error = emulation::async_error, ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void*, std::size_t, void** handle) {
  return *handle = &++emulation::registered, ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclGroupStart() { return ++emulation::depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--emulation::depth == 0) emulation::end_group();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream) {
  const std::size_t size = bytes(count, type);
  return emulation::add(c, stream, input, size, output, size, [=](void* in, void* out, MPI_Request* request) {
    require(MPI_Iallreduce(in, out, static_cast<int>(count), emulation::mpi_type(type),
                           emulation::mpi_operation(op, type), c->mpi, request));
  });
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream) {
  const std::size_t size = bytes(count, type);
  const std::size_t all = size * static_cast<std::size_t>(c->size);
  return emulation::add(c, stream, input, all, output, size, [=](void* in, void* out, MPI_Request* request) {
    require(MPI_Ireduce_scatter_block(in, out, static_cast<int>(count), emulation::mpi_type(type),
                                      emulation::mpi_operation(op, type), c->mpi, request));
  });
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream) {
  const std::size_t size = bytes(count, type);
  const std::size_t all = size * static_cast<std::size_t>(c->size);
  return emulation::add(c, stream, input, size, output, all, [=](void* in, void* out, MPI_Request* request) {
    const MPI_Datatype mpi = emulation::mpi_type(type);
    require(MPI_Iallgather(in, static_cast<int>(count), mpi, out, static_cast<int>(count), mpi, c->mpi, request));
  });
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream) {
  const std::size_t size = bytes(count, type);
  const std::size_t read = c->rank == root ? size : 0;
  return emulation::add(c, stream, input, read, output, size, [=](void* in, void* out, MPI_Request* request) {
    if (c->rank == root && size > 0) std::memcpy(out, in, size);
    require(MPI_Ibcast(out, static_cast<int>(count), emulation::mpi_type(type), root, c->mpi, request));
  });
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t stream) {
  const std::size_t size = bytes(count, type);
  const std::size_t written = c->rank == root ? size : 0;
  return emulation::add(c, stream, input, size, output, written, [=](void* in, void* out, MPI_Request* request) {
    require(MPI_Ireduce(in, out, static_cast<int>(count), emulation::mpi_type(type), emulation::mpi_operation(op, type),
                        root, c->mpi, request));
  });
}

ncclResult_t ncclSend(const void* input, std::size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream) {
  emulation::connect(c, peer);
  return emulation::add(c, stream, input, bytes(count, type), nullptr, 0, [=](void* in, void*, MPI_Request* request) {
    // Nothing is buffered on a GPU: the receiver must be there.
    require(MPI_Issend(in, static_cast<int>(count), emulation::mpi_type(type), peer, 0, c->mpi, request));
  });
}

ncclResult_t ncclRecv(void* output, std::size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream) {
  emulation::connect(c, peer);
  return emulation::add(c, stream, nullptr, 0, output, bytes(count, type), [=](void*, void* out, MPI_Request* request) {
    require(MPI_Irecv(out, static_cast<int>(count), emulation::mpi_type(type), peer, 0, c->mpi, request));
  });
}
}

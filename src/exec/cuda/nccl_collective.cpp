#include "exec/cuda/nccl_collective.hpp"

#include <fmt/format.h>

#include <numeric>

#include "base/error.hpp"
#include "exec/collective_request.hpp"

namespace strata::cuda {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  return ncclUint8;
}

/// @p call for each of @p count members as one operation.
template <typename Call>
ncclResult_t grouped(int count, const Call& call) {
  ncclResult_t result = ncclGroupStart();
  for (int j = 0; j < count && result == ncclSuccess; ++j) result = call(j);
  const ncclResult_t end = ncclGroupEnd();  // after a failure too
  return result != ncclSuccess ? result : end;
}

/// The arguments of NCCL's calls; null where a side is not used.
struct Call {
  comm::Request request;
  ncclComm_t communicator = nullptr;
  int size = 1;
  int index = 0;

  ncclResult_t operator()(cudaStream_t stream) const;

 private:
  std::size_t count() const { return static_cast<std::size_t>(request.num_elements); }
  ncclDataType_t type() const { return nccl_type(request.dtype); }
  ncclRedOp_t operation() const { return request.reduction == Reduction::sum ? ncclSum : ncclMax; }
  bool divides() const { return request.pieces == nullptr && request.num_elements % size == 0; }
  Chunk chunk(int member) const {
    if (request.pieces == nullptr) return chunk_of(request.num_elements, size, member);
    return piece_of(request.kind == Collective::all_gather ? request.pieces->output : request.pieces->input, member);
  }
  const std::byte* input(std::int64_t element) const {
    return static_cast<const std::byte*>(request.input) + element * size_of(request.dtype);
  }
  std::byte* output(std::int64_t element) const {
    return static_cast<std::byte*>(request.output) + element * size_of(request.dtype);
  }
  ncclResult_t all_gather(cudaStream_t stream) const;
  ncclResult_t reduce_scatter(cudaStream_t stream) const;
  ncclResult_t all_to_all(cudaStream_t stream) const;
};

ncclResult_t Call::all_gather(cudaStream_t stream) const {
  const std::size_t each = count() / static_cast<std::size_t>(size);
  if (divides()) return ncclAllGather(request.input, request.output, each, type(), communicator, stream);
  return grouped(size, [&](int j) {
    const Chunk c = chunk(j);
    if (c.size() == 0) return ncclSuccess;
    const void* const from = j == index ? request.input : output(c.begin);
    return ncclBroadcast(from, output(c.begin), static_cast<std::size_t>(c.size()), type(), j, communicator, stream);
  });
}

ncclResult_t Call::reduce_scatter(cudaStream_t stream) const {
  const std::size_t each = count() / static_cast<std::size_t>(size);
  if (divides()) {
    return ncclReduceScatter(request.input, request.output, each, type(), operation(), communicator, stream);
  }
  return grouped(size, [&](int j) {
    const Chunk c = chunk(j);
    if (c.size() == 0) return ncclSuccess;
    void* const to = j == index ? request.output : nullptr;
    return ncclReduce(input(c.begin), to, static_cast<std::size_t>(c.size()), type(), operation(), j, communicator,
                      stream);
  });
}

ncclResult_t Call::all_to_all(cudaStream_t stream) const {
  return grouped(size, [&](int j) {
    const Chunk sent = chunk(j);
    const Chunk received = request.pieces == nullptr ? sent : piece_of(request.pieces->output, j);
    ncclResult_t result = ncclSuccess;
    if (sent.size() > 0) {
      result = ncclSend(input(sent.begin), static_cast<std::size_t>(sent.size()), type(), j, communicator, stream);
    }
    if (result != ncclSuccess || received.size() == 0) return result;
    return ncclRecv(output(received.begin), static_cast<std::size_t>(received.size()), type(), j, communicator, stream);
  });
}

ncclResult_t Call::operator()(cudaStream_t stream) const {
  const comm::Request& r = request;
  switch (r.kind) {
    case Collective::all_reduce:
      return ncclAllReduce(r.input, r.output, count(), type(), operation(), communicator, stream);
    case Collective::reduce_scatter: return reduce_scatter(stream);
    case Collective::all_gather: return all_gather(stream);
    case Collective::all_to_all: return all_to_all(stream);
    case Collective::broadcast:
      return ncclBroadcast(index == r.peer ? r.input : r.output, r.output, count(), type(), r.peer, communicator,
                           stream);
    case Collective::reduce:
      return ncclReduce(r.input, r.output, count(), type(), operation(), r.peer, communicator, stream);
    // A communicator of messages is sender, receiver.
    case Collective::send: return ncclSend(r.input, count(), type(), 1, communicator, stream);
    case Collective::recv: return ncclRecv(r.output, count(), type(), 0, communicator, stream);
  }
  return ncclInvalidArgument;
}

Call call_of(const comm::Request& request, const Communicators& communicators, int number) {
  return {.request = request,
          .communicator = communicators.get(number),
          .size = static_cast<int>(communicators.ranks(number).size()),
          .index = communicators.index(number)};
}

}  // namespace

void queue_collective(const comm::Request& request, Communicators& communicators, int number, const std::string& label,
                      cudaStream_t stream) {
  communicators.check_call(call_of(request, communicators, number)(stream), label, number);
}

BoundKernel bind_collective(const Program& program, const Arguments& arguments, Communicators& communicators,
                            const std::string& label) {
  const Instruction& in = arguments.instruction();
  std::vector<int> groups(program.groups.size());
  std::iota(groups.begin(), groups.end(), 0);
  const int number = communicators.number(communicator_key(program, in));
  const Call call = call_of(collective_request(program, in, arguments, groups, label), communicators, number);
  const comm::Request& request = call.request;
  if (is_reduction(request.kind) && request.dtype != DType::f32 && request.dtype != DType::bf16) {
    throw Unsupported(fmt::format("{}: reductions are of f32 and bf16, not {}", label, to_string(request.dtype)));
  }
  STRATA_INVARIANT(
      request.kind != Collective::all_to_all || request.pieces != nullptr || request.num_elements % call.size == 0,
      fmt::format("{}: {} elements over {} ranks", label, request.num_elements, call.size));
  return [call, number, &communicators, &label](cudaStream_t stream) {
    communicators.check_call(call(stream), label, number);
  };
}

}  // namespace strata::cuda

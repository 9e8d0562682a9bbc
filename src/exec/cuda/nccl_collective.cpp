#include "exec/cuda/nccl_collective.hpp"

#include <fmt/format.h>

#include <memory>
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

/// NCCL's operations on one communicator and stream. NCCL tells nobody what it sends: every operation is counted as it
/// is handed over, by its own arguments.
class Operations {
 public:
  Operations(ncclComm_t communicator, int size, int index, DType dtype, cudaStream_t stream)
      : communicator_(communicator), size_(size), index_(index), dtype_(dtype), stream_(stream) {}

  ncclResult_t all_reduce(const void* input, void* output, std::int64_t count, ncclRedOp_t operation) {
    add(Collective::all_reduce, count);
    return ncclAllReduce(input, output, unsigned_of(count), nccl_type(dtype_), operation, communicator_, stream_);
  }
  /// @param count of each member, as below.
  ncclResult_t all_gather(const void* input, void* output, std::int64_t count) {
    add(Collective::all_gather, count * size_);
    return ncclAllGather(input, output, unsigned_of(count), nccl_type(dtype_), communicator_, stream_);
  }
  ncclResult_t reduce_scatter(const void* input, void* output, std::int64_t count, ncclRedOp_t operation) {
    add(Collective::reduce_scatter, count * size_);
    return ncclReduceScatter(input, output, unsigned_of(count), nccl_type(dtype_), operation, communicator_, stream_);
  }
  ncclResult_t broadcast(const void* input, void* output, std::int64_t count, int root) {
    add(Collective::broadcast, count, root);
    return ncclBroadcast(input, output, unsigned_of(count), nccl_type(dtype_), root, communicator_, stream_);
  }
  ncclResult_t reduce(const void* input, void* output, std::int64_t count, ncclRedOp_t operation, int root) {
    add(Collective::reduce, count, root);
    return ncclReduce(input, output, unsigned_of(count), nccl_type(dtype_), operation, root, communicator_, stream_);
  }
  /// To itself a rank sends nothing that leaves it.
  ncclResult_t send(const void* input, std::int64_t count, int peer) {
    if (peer != index_) add(Collective::send, count);
    return ncclSend(input, unsigned_of(count), nccl_type(dtype_), peer, communicator_, stream_);
  }
  ncclResult_t receive(void* output, std::int64_t count, int peer) {
    return ncclRecv(output, unsigned_of(count), nccl_type(dtype_), peer, communicator_, stream_);
  }

  /// Bytes that this rank sends in all of them, see elements_sent().
  std::int64_t sent_bytes() const { return sent_elements_ * size_of(dtype_); }

 private:
  static std::size_t unsigned_of(std::int64_t count) { return static_cast<std::size_t>(count); }
  void add(Collective kind, std::int64_t num_elements, int root = 0) {
    sent_elements_ += elements_sent(kind, num_elements, size_, index_, root);
  }

  ncclComm_t communicator_;
  int size_;
  int index_;
  DType dtype_;
  cudaStream_t stream_;
  std::int64_t sent_elements_ = 0;
};

/// A collective as operations of NCCL.
struct Call {
  comm::Request request;
  ncclComm_t communicator = nullptr;
  int size = 1;
  int index = 0;

  Operations on(cudaStream_t stream) const { return {communicator, size, index, request.dtype, stream}; }
  ncclResult_t operator()(Operations& operations) const;

 private:
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
  ncclResult_t all_gather(Operations& operations) const;
  ncclResult_t reduce_scatter(Operations& operations) const;
  ncclResult_t all_to_all(Operations& operations) const;
};

ncclResult_t Call::all_gather(Operations& operations) const {
  if (divides()) return operations.all_gather(request.input, request.output, request.num_elements / size);
  return grouped(size, [&](int j) {
    const Chunk c = chunk(j);
    if (c.size() == 0) return ncclSuccess;
    return operations.broadcast(j == index ? request.input : output(c.begin), output(c.begin), c.size(), j);
  });
}

ncclResult_t Call::reduce_scatter(Operations& operations) const {
  if (divides()) {
    return operations.reduce_scatter(request.input, request.output, request.num_elements / size, operation());
  }
  return grouped(size, [&](int j) {
    const Chunk c = chunk(j);
    if (c.size() == 0) return ncclSuccess;
    return operations.reduce(input(c.begin), j == index ? request.output : nullptr, c.size(), operation(), j);
  });
}

ncclResult_t Call::all_to_all(Operations& operations) const {
  return grouped(size, [&](int j) {
    const Chunk sent = chunk(j);
    const Chunk received = request.pieces == nullptr ? sent : piece_of(request.pieces->output, j);
    ncclResult_t result = ncclSuccess;
    if (sent.size() > 0) result = operations.send(input(sent.begin), sent.size(), j);
    if (result != ncclSuccess || received.size() == 0) return result;
    return operations.receive(output(received.begin), received.size(), j);
  });
}

ncclResult_t Call::operator()(Operations& operations) const {
  const comm::Request& r = request;
  switch (r.kind) {
    case Collective::all_reduce: return operations.all_reduce(r.input, r.output, r.num_elements, operation());
    case Collective::reduce_scatter: return reduce_scatter(operations);
    case Collective::all_gather: return all_gather(operations);
    case Collective::all_to_all: return all_to_all(operations);
    case Collective::broadcast:
      return operations.broadcast(index == r.peer ? r.input : r.output, r.output, r.num_elements, r.peer);
    case Collective::reduce: return operations.reduce(r.input, r.output, r.num_elements, operation(), r.peer);
    // A communicator of messages is sender, receiver.
    case Collective::send: return operations.send(r.input, r.num_elements, 1);
    case Collective::recv: return operations.receive(r.output, r.num_elements, 0);
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
  const Call call = call_of(request, communicators, number);
  Operations operations = call.on(stream);
  communicators.check_call(call(operations), label, number);
}

BoundCollective bind_collective(const Program& program, const Arguments& arguments, Communicators& communicators,
                                const std::string& label) {
  const Instruction& in = arguments.instruction();
  std::vector<int> groups(program.groups.size());
  std::iota(groups.begin(), groups.end(), 0);
  const int number = communicators.number(communicator_key(program, in));
  std::vector<Call> calls;
  for (const comm::Request& request : collective_requests(program, in, arguments, groups, label)) {
    if (is_reduction(request.kind) && request.dtype != DType::f32 && request.dtype != DType::bf16) {
      throw Unsupported(fmt::format("{}: reductions are of f32 and bf16, not {}", label, to_string(request.dtype)));
    }
    calls.push_back(call_of(request, communicators, number));
    STRATA_INVARIANT(request.kind != Collective::all_to_all || request.pieces != nullptr ||
                         request.num_elements % calls.back().size == 0,
                     fmt::format("{}: {} elements over {} ranks", label, request.num_elements, calls.back().size));
  }
  auto sent_bytes = std::make_shared<std::int64_t>(0);
  return {.queue =
              [calls, number, &communicators, &label, sent_bytes](cudaStream_t stream) {
                // Operations of one communicator and dtype, whichever tensor they are of.
                Operations operations = calls.front().on(stream);
                const auto queued = [&](int tensor) { return calls[static_cast<std::size_t>(tensor)](operations); };
                communicators.check_call(
                    calls.size() == 1 ? queued(0) : grouped(static_cast<int>(calls.size()), queued), label, number);
                *sent_bytes = operations.sent_bytes();
              },
          .sent_bytes = sent_bytes};
}

}  // namespace strata::cuda

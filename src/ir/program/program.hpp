#pragma once

/// @file
/// What one rank executes: buffers and a flat instruction list on a few in-order streams with explicit waits. This is
/// the contract: executor, simulator, memory account, byte counts and golden tests read the same list.
///
/// A Program is a prologue, which gives initial values once, and a body that is repeated; see repetition.hpp for which
/// training step an instruction of it belongs to. Every non-persistent buffer is allocated by one instruction and freed
/// by a later one of the same training step, perhaps in a later repetition; addresses in the arena are part of the
/// Program, so that predicted memory is what runs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"
#include "base/dtype.hpp"
#include "ir/model/attributes.hpp"
#include "ir/model/strided_block.hpp"

namespace strata {

enum class Category : std::uint8_t { parameter, gradient, optimizer, activation, workspace, communication };
constexpr int num_categories = 6;

struct Buffer {
  std::string name{};
  std::int64_t num_elements = 0;
  DType dtype = DType::f32;
  Category category = Category::activation;
  bool persistent = false;         ///< lives for the whole run: parameters, optimizer states
  std::int64_t offset_bytes = -1;  ///< in the arena, set by assign_addresses
  std::string
      parameter{};  ///< graph parameter whose elements these are, if any: what checkpoints and checksums collect
  std::int64_t parameter_begin = 0;  ///< first element within the flattened parameter, or within `block` of it
  StridedBlock block{};              ///< of the parameter
  bool operator==(const Buffer&) const = default;
  std::int64_t size_bytes() const { return num_elements * size_of(dtype); }
};

/// A contiguous part of a buffer.
struct Operand {
  int buffer = -1;
  std::int64_t begin = 0;  ///< first element
  std::int64_t num_elements = 0;
  bool operator==(const Operand&) const = default;
};

/// What a kernel computes; see kernel_signature() for operands and attributes of each.
enum class Kernel : std::uint8_t {
  none,  ///< the instruction is a collective
  load_tokens,
  load_images,
  load_targets,
  embedding_forward,
  embedding_backward,
  linear_forward,
  linear_backward_input,
  linear_backward_weight,
  layer_norm_forward,
  layer_norm_backward,
  rms_norm_forward,
  rms_norm_backward,
  rotary_forward,
  rotary_backward,
  attention_forward,
  attention_backward,
  gelu_forward,
  gelu_backward,
  gelu_erf_forward,
  gelu_erf_backward,
  relu_forward,
  relu_backward,
  swiglu_forward,
  swiglu_backward,
  add,
  dropout_forward,
  dropout_backward,
  convolution_forward,
  convolution_backward_input,
  convolution_backward_weight,
  max_pool_forward,
  max_pool_backward,
  average_pool_forward,
  average_pool_backward,
  class_token_forward,
  class_token_backward,
  first_row_forward,
  first_row_backward,
  batch_norm_forward,
  batch_norm_backward,
  batch_norm_inference,
  running_statistics,
  cross_entropy,
  top_k,
  permute,
  norm_partial,
  norm_apply,
  norm_backward_partial,
  norm_backward_apply,
  cross_entropy_partial,
  cross_entropy_apply,
  accumulate,
  copy,
  fill,
  initialize,
  quantize,
  dequantize,
  sum_of_squares,
  clip_factor,
  sum_loss,
  sgd,
  sgd_momentum,
  adam,
};

enum class Phase : std::uint8_t { setup, forward, recompute, backward, reduce, update, metrics };

/// Completion of instruction `instruction` of this section; with lag k > 0, of the body k repetitions earlier.
struct Wait {
  int instruction = 0;
  int lag = 0;
  bool operator==(const Wait&) const = default;
};

struct Instruction {
  Kernel kernel = Kernel::none;  ///< none: `collective` says what is done
  Collective collective = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  int group = -1;            ///< index into Program::groups, collectives only
  int root = 0;              ///< broadcast, reduce: index in the group; send, recv: the peer's index in the group
  std::vector<int> roots{};  ///< of a broadcast of several tensors, one each; otherwise empty
  int stream = 0;            ///< index into Program::streams
  Phase phase = Phase::forward;
  int micro_batch = 0;
  int step = 0;        ///< training step, relative to the first that the repetition of the body holds: 0, or -1, …
  std::string name{};  ///< the graph operator or bucket this belongs to
  /// Of gathers, scatters and broadcasts several tensors may go as one, the i-th input to the i-th output: see
  /// num_tensors().
  std::vector<Operand> inputs{};
  std::vector<Operand> outputs{};
  Pieces pieces{};     ///< all_gather, reduce_scatter, all_to_all; empty: chunk_of cuts
  int workspace = -1;  ///< buffer of the library's scratch bytes, -1: none
  Attributes attributes{};
  std::vector<Wait> waits{};  ///< on other streams; order on the own stream is implied
  std::vector<int> allocs{};  ///< buffers that begin to live here
  std::vector<int> frees{};   ///< buffers that die when this is complete
  bool operator==(const Instruction&) const = default;
  bool is_collective() const { return kernel == Kernel::none; }
};

struct Group {
  std::string name{};
  std::vector<int> ranks{};  ///< world ranks in group order
  bool operator==(const Group&) const = default;
};

struct Program {
  int rank = 0;
  int num_ranks = 1;
  std::vector<std::string> streams{};  ///< stream 0 is compute
  std::vector<Group> groups{};         ///< those this rank is a member of
  std::vector<Buffer> buffers{};
  /// Every repetition of the body begins after all of the one before it: each stream waits for the others' last
  /// instruction. Without it a stream goes on where it ended, and only waits with a lag hold it back.
  bool join = true;
  int steps_per_body = 1;  ///< training steps that one repetition of the body holds
  std::vector<Instruction> prologue{};
  std::vector<Instruction> body{};
  int loss_buffer =
      -1;  ///< one f32: this rank's part of the step's mean loss, whose sum over all ranks it is; -1: none
  int norm_buffer = -1;          ///< one f32: the global gradient norm before clipping, -1 without clipping
  int correct_buffer = -1;       ///< two f32, of evaluation: this rank's rows whose target is the largest logit, and
                                 ///< among the five largest; -1: none
  std::int64_t arena_bytes = 0;  ///< highest address ever used, set by assign_addresses
  bool operator==(const Program&) const = default;
};

/// Operand roles and attribute keys of a kernel, for the text form, verify and whoever executes it. A `?` suffix marks
/// an optional operand; optional operands may only be left out from the end.
struct KernelSignature {
  Kernel kernel;
  std::string_view name;
  std::string_view inputs;  ///< comma-separated roles
  std::string_view outputs;
  std::string_view attributes;  ///< comma-separated keys, `?` behind optional ones; bit i of `accumulate` adds to
                                ///< output i instead of writing it
};
const KernelSignature& kernel_signature(Kernel kernel);
/// Number of values of Kernel, for loops over all of them.
int num_kernels();

std::string_view to_string(Category category);
std::string_view to_string(Phase phase);

/// Floating-point operations of one kernel, from its attributes. Collectives: 0.
double flops(const Instruction& instruction);
/// How many tensors a collective moves. Several are handed over together, as NCCL's groups are: latency is paid once
/// and not once a tensor, and a cost model knows the sum of their bytes alone.
int num_tensors(const Instruction& collective);
/// Of its number @p tensor: whose it is, in the group.
int root_of(const Instruction& collective, int tensor);
/// A full tensor of a collective, or its message: the output of a gather, the input of a scatter, either side of the
/// others. @throws InternalError for a kernel.
const Operand& full_operand(const Instruction& collective, int tensor = 0);
/// Bytes of full_operand(), of all tensors.
std::int64_t full_bytes(const Program& program, const Instruction& collective);
/// Bytes of which a cost model tells how long they take, equal on all members: full_bytes(), or, of an all-to-all in
/// pieces, as if every piece were the longest, for whom all wait.
std::int64_t priced_bytes(const Program& program, const Instruction& collective);
/// Bytes that the rank sends in a collective instruction; see elements_sent. Kernels: 0.
std::int64_t bytes_sent(const Program& program, const Instruction& instruction);

/// By instruction of the body: those of the same body that are complete before it starts, that is the one before it on
/// its stream and those it waits for, ascending, each once. Of earlier repetitions nothing is said.
std::vector<std::vector<int>> body_dependencies(const Program& program);

/// Folds over the body, for one training step. All are what the executor measures too.
struct BytesByCollective {
  std::int64_t bytes[num_collectives] = {};  ///< index: Collective
  std::int64_t operator[](Collective kind) const { return bytes[static_cast<int>(kind)]; }
  std::int64_t total() const;
};
BytesByCollective bytes_by_collective(const Program& program);
double flops_per_step(const Program& program);

/// Live bytes by category at the moment of the largest total, in the order of instructions, over all repetitions;
/// `arena_bytes` is at least its sum.
struct MemoryPeak {
  std::int64_t bytes[num_categories] = {};
  std::int64_t total_bytes = 0;
  int instruction = -1;  ///< of the body; -1: the persistent buffers alone
};
MemoryPeak memory_peak(const Program& program);

/// One past the highest byte of a buffer that is no workspace, at most arena_bytes. What lies between the two is a
/// library's scratch, which it need not write to the end.
std::int64_t own_arena_bytes(const Program& program);

/// Addresses start at multiples of this: what cudaMalloc aligns to, which cuBLASLt takes for granted of its workspace.
constexpr std::int64_t arena_alignment_bytes = 256;

/// Give every buffer an arena offset: persistent buffers first, then first fit in the order of allocation. A freed
/// address is used again only by an instruction that happens after the freeing one completed, across streams and, where
/// steps overlap, across repetitions too. Sets arena_bytes.
void assign_addresses(Program& program);

/// Human-readable sizes and the place of the peak, for "OOM at <operator>, needs X of Y".
/// @throws OutOfMemory if arena_bytes exceeds @p capacity_bytes (0: no limit).
void check_capacity(const Program& program, std::int64_t capacity_bytes);

/// Check one rank's Program on its own: operand ranges and dtypes, waits that exist, no use before allocation or after
/// free, no two live buffers at one address, unordered conflicting accesses between streams. Where steps overlap, over
/// as many repetitions as can meet, from the first step to what the last one leaves. @throws InternalError naming the
/// instruction.
void verify(const Program& program);
/// Check Programs of all ranks together: members of a group issue the same collectives in the same order with the same
/// sizes; sends meet receives; no deadlock under rendezvous (nothing is buffered). @throws InternalError naming
/// instruction, group and ranks.
void verify(const std::vector<Program>& programs);

/// Stable text; parse_program(to_text(p)) == p.
std::string to_text(const Program& program);
/// @throws UserError with line and what is accepted.
Program parse_program(std::string_view text);

}  // namespace strata

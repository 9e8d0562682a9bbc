#pragma once

/// @file
/// What ZeRO++ puts in the place of a reduce-scatter of gradients (qgZ): blocks of codes (base/quantization.hpp)
/// travel, kernels of the compute stream pack them and add them up. The one decision: a hop is added up, and the next
/// one begun, behind a later operator that has gradients, so that the transfer runs under that one's backward.
///
/// Source: Wang et al., ZeRO++, sec. 4.3. With n elements over R ranks a node × N nodes, L = ⌈n/(R·N)⌉, q(L) bytes of a
/// packed chunk: the chunks of all ranks are packed in the order (place in the node, node); all-to-all in the node of
/// R·N·q(L) bytes, each rank R pieces of the N chunks of its place; their sum in f32, packed again; all-to-all over the
/// nodes of N·q(L) bytes, each rank N pieces of its own chunk; their sum. A hop of one rank is left out.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/states/gradient_sums.hpp"

namespace strata {

/// Those that are on their way while gradient_sums goes along the order: adds their actions to the sums.
class QuantizedReductions {
 public:
  /// @param overlaps a transfer runs under the backward of later operators; otherwise it is waited for where it stands.
  QuantizedReductions(const Quantization& quantization, bool overlaps, GradientSums& sums)
      : quantization_(quantization), overlaps_(overlaps), sums_(sums) {}

  /// The sum of @p full over the ranks of @p factor, of which @p own is this rank's part, (+)= into @p own: added up by
  /// and by, complete after finish(). @p name of @p parameter.
  void begin(int parameter, const std::string& name, const Operand& full, const Factor& factor,
             const ShardGroups::Set& groups, const Operand& own, bool accumulate);
  /// Behind an operator: if it began a reduction, those of earlier operators go a hop further.
  void after_operator();
  void finish();

 private:
  struct Pending {
    int parameter = -1;
    std::string name;
    Operand own;
    bool accumulate = false;
    std::int64_t chunk = 0;   ///< elements
    std::int64_t chunks = 0;  ///< a piece, of what `received` holds
    int pieces = 0;           ///< in `received`
    int received = -1;        ///< buffer
    int next_group = -1;      ///< of the hop across nodes, -1: there is none left
    bool is_new = true;       ///< begun by the operator whose backward is gone along
  };
  int bits() const { return quantization_.gradients == "int4" ? 4 : 8; }
  int add_buffer(std::string name, std::int64_t num_elements, DType dtype);
  /// Packs @p x and exchanges it; @return the buffer of what was received.
  int send(const Pending& pending, const Operand& x, std::int64_t chunks, std::int64_t nodes, int group);
  /// The next hop of @p pending. @return true if it was the last.
  bool advance(Pending& pending);
  void advance_all(bool new_ones_too);

  const Quantization& quantization_;
  bool overlaps_;
  GradientSums& sums_;
  std::vector<Pending> pending_;  ///< in the order in which they began
};

}  // namespace strata

#pragma once

/// @file
/// A model as a layout search sees it: layers, whose weights are cut, and what flows between them. Read off the graph
/// by operator kinds alone, whatever family the model is of. Sizes only; no ranks.
///
/// Operators without a layer of their own (norms, activations, residual additions, dropout, attention, loss) work where
/// the last of the layers above them leaves its output, its *home*: rows over p0, features over p1·p2.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// What a degree cuts, and how a message says it.
struct CutSize {
  std::int64_t size = 0;
  std::string what;  ///< "8 heads of block[0].attn.core"
};

struct Layer {
  int op = -1;  ///< of the graph
  std::string name;
  /// Its layout is searched: a linear, or an embedding as a product with one-hot rows (in: vocabulary, out: width).
  /// Other operators that stand alone (convolutions, batch norms) keep whole samples and weights: p0 is everything.
  bool is_searched = true;
  bool is_embedding = false;
  /// summa: its layout is a grid, p0 rows and p2 columns, and p1 replicas of it. ring: as local, but what it gathers or
  /// scatters goes round block by block.
  MatmulAlgorithm algorithm = MatmulAlgorithm::local;
  int directions = 1;  ///< of algorithm ring
  /// all_reduce: its home has copies, on the ranks of a sum, and so has, cut by columns, its input, which comes from
  /// such a sum. Not so behind convolutions, whose samples are gathered.
  PartialSums sum = PartialSums::scatter;
  bool is_behind_images = false;  ///< it reads what works on images has left
  bool reads_data = false;  ///< ranks load their own part of its input: nothing is gathered, nobody wants its gradient
  std::int64_t rows = 1;    ///< of a sample
  std::int64_t in = 0, out = 0;
  std::int64_t parameters = 0;  ///< elements, those of operators at its home included; tied weights with the first user
  std::int64_t forward_statistics = 0;   ///< f32 a sample that its home's norms and losses join over p1·p2 in forward
  std::int64_t backward_statistics = 0;  ///< as above, in backward
  std::vector<CutSize> of_home{};        ///< p1·p2 cuts each
  int block = -1;
  /// Of its weight, without what goes with it; a tied one is with its first user.
  std::int64_t matrix_elements() const { return is_searched && tied_weight < 0 ? in * out : 0; }
  int repeats = -1;            ///< equal for the same place in blocks of one shape class; unique outside of blocks
  int tied_weight = -1;        ///< an earlier layer whose weight it uses, transposed
  bool shares_weight = false;  ///< another layer uses its weight, too
};

/// A tensor that goes from one layer's home to another layer.
struct LayerLink {
  int from = 0, to = 0;       ///< layers, from < to
  std::int64_t elements = 0;  ///< a sample
  bool gathers = false;       ///< `to` reads it as its input; else it is added to what `to` leaves (a residual)
  bool is_unary = false;      ///< nothing but elementwise operators of one input stands between
  bool is_branch = false;     ///< no norm, sum or other reader stands between: attention and gates may
  bool operator==(const LayerLink&) const = default;
};

struct LayerChain {
  std::vector<Layer> layers;     ///< forward order
  std::vector<LayerLink> links;  ///< by `to`
  std::vector<int> home;         ///< by operator of the graph: the layer where its output is
};

/// @throws Unsupported naming an operator that no layer stands above.
LayerChain layer_chain(const ModelGraph& graph);

/// Linears compute by @p algorithm, on a ring in so many @p directions; embeddings look up.
void multiply_by(MatmulAlgorithm algorithm, int directions, LayerChain& chain);

/// Sums of all products, of algorithm local, come together as @p sum says.
void sum_by(PartialSums sum, LayerChain& chain);

/// The local layout that reads the same part of an input as @p layout does and has the same home. Links between two
/// such are priced as local ones, which they are where all linears compute alike.
Layout local_layout(const Layer& layer, const Layout& layout);

}  // namespace strata

#pragma once

/// @file
/// Writes a ModelGraph operator by operator: tensors take the name of the operator that writes them, parameters the
/// operator's name and their own, shapes follow from the input. Families say what a model is; this says how it is
/// spelled.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

Initializer constant(double value);
Initializer normal(double standard_deviation);

/// Every operator function returns the id of the tensor it writes. Inside a block, names are relative to the block's.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string model_name);

  int input(std::string name, std::vector<std::int64_t> shape, TensorRole role);
  void begin_block(std::string name);
  void end_block();

  struct Linear {
    std::int64_t in = 0;  ///< the input's last dim, or all of its elements
    std::int64_t out = 0;
    bool bias = true;
    Initializer weight{};
  };
  struct Convolution {
    std::int64_t out = 0;
    std::int64_t kernel = 3;
    std::int64_t stride = 1;
    std::int64_t padding = 1;
    bool bias = true;
    Initializer weight{};
  };
  /// Windows that lie apart by `stride`.
  struct Pool {
    std::int64_t kernel = 2;
    std::int64_t stride = 2;
    std::int64_t padding = 0;
  };
  struct Heads {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
  };

  /// @param positions rows of a learned position table, 0: none.
  int embedding(std::string_view name, int tokens, std::int64_t vocabulary, std::int64_t width, std::int64_t positions,
                const Initializer& initializer);
  int linear(std::string_view name, int x, const Linear& shape);
  /// A head without bias whose weight is the table of the graph's embedding.
  int tied_linear(std::string_view name, int x, int table_parameter);
  int layer_norm(std::string_view name, int x, double epsilon);
  int rms_norm(std::string_view name, int x, double epsilon);
  int rotary(std::string_view name, int qkv, const Heads& heads, double theta);
  int causal_attention(std::string_view name, int qkv, const Heads& heads, double dropout);
  /// Every position sees all.
  int full_attention(std::string_view name, int qkv, const Heads& heads, double dropout);
  int gelu(std::string_view name, int x);
  int gelu_erf(std::string_view name, int x);
  int relu(std::string_view name, int x);
  int swiglu(std::string_view name, int x);
  int add(std::string_view name, int a, int b);
  /// @return x itself where @p probability is 0: no operator that does nothing.
  int dropout(std::string_view name, int x, double probability);
  int convolution(std::string_view name, int x, const Convolution& shape);
  int max_pool(std::string_view name, int x, const Pool& shape);
  /// The mean over all positions of an image: [h, w, c] -> [c].
  int global_average_pool(std::string_view name, int x);
  /// The rows of an image behind a learned one, and learned positions added to all: [h, w, c] -> [h w + 1, c].
  int class_token(std::string_view name, int x, const Initializer& initializer);
  /// [s, width] -> [width].
  int first_row(std::string_view name, int x);
  /// By the statistics of a micro-batch. @param epsilon is added to the variance.
  int batch_norm(std::string_view name, int x, double epsilon, double momentum);
  int cross_entropy(std::string_view name, int logits, int targets);

  /// @return the parameter named @p name. @throws InternalError if there is none.
  int parameter(std::string_view name) const;
  const std::vector<std::int64_t>& shape(int tensor) const;

  /// Assigns shape classes and verifies.
  ModelGraph finish(std::int64_t positions_per_sample);

 private:
  int attention(std::string_view name, int qkv, const Heads& heads, double dropout, bool is_causal);
  std::string full(std::string_view name) const;
  int add_tensor(std::string name, std::vector<std::int64_t> shape, TensorRole role);
  int add_parameter(const std::string& owner, std::string_view name, std::vector<std::int64_t> shape,
                    const Initializer& initializer);
  int add_operator(std::string_view name, OperatorKind kind, std::vector<int> inputs, std::vector<std::int64_t> shape,
                   std::vector<int> parameters, Attributes attributes);

  ModelGraph graph_;
  bool in_block_ = false;
};

}  // namespace strata

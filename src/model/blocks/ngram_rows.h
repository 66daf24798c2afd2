// Rows of hashed n-grams, which a layer adds to all residual streams before its attention (Qwen4):
//   e = the token's rows, joined;  k = norm(key e) per stream;  q = norm of each stream;
//   g = sigmoid(s), s the signed root of k . q / sqrt(model_dim);  v = g * value e;
//   stream += v + silu(conv(norm(v))), a convolution with taps `ngram_size` tokens apart.
// The tables stay in their files. A layer's state has the inputs of the convolution and the last
// tokens, behind its mixer's.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// GGUF's kNgramTable is outside of the layers. kNgramConstants is the prefix of what directories
// have beside it.
inline constexpr TensorName kNgramTable{"per_layer_token_embd",
                                        "ple.ple_embedding.ngram_embedding"};
inline constexpr TensorName kNgramConstants{"", "ple.ple_embedding"};
inline constexpr TensorName kNgramKey{"ple_key", "ple.key_proj"};
inline constexpr TensorName kNgramValue{"ple_value", "ple.value_proj"};
inline constexpr TensorName kNgramKeyNorm{"ple_norm_key", "ple.norm_key"};
inline constexpr TensorName kNgramQueryNorm{"ple_norm_query", "ple.norm_query"};
inline constexpr TensorName kNgramConvNorm{"ple_norm_conv", "ple.norm_conv"};
inline constexpr TensorName kNgramConv{"ple_conv1d", "ple.conv1d"};
}  // namespace tensor

// Constants of one layer's hashes (NgramParams).
struct NgramHashes {
  std::vector<int64_t> multipliers, sizes, offsets;
  int64_t n_rows() const { return offsets.back() + sizes.back(); }  // of the table
  bool operator==(const NgramHashes&) const = default;
};

struct NgramConfig {
  // Longest n-gram; 0 = no layer has rows of n-grams.
  int ngram_size = 0;
  int heads_per_ngram = 0;
  // Features of the rows of a token together.
  int dim = 0;
  int taps = 0;  // of the convolution, ngram_size tokens apart
  TokenId end_token = 0;
  std::vector<NgramHashes> hashes;  // indexed by LayerConfig::ngrams
  bool operator==(const NgramConfig&) const = default;

  // values of all tables
  int64_t n_values() const {
    int64_t rows = 0;
    for (const NgramHashes& table : hashes) rows += table.n_rows();
    return rows > 0 ? rows * (dim / n_rows()) : 0;
  }
  int n_rows() const { return (ngram_size - 1) * heads_per_ngram; }  // of a token
  int reach() const { return (taps - 1) * ngram_size; }  // tokens before one that it reads
  // Number of values of a layer's state. width: of all streams.
  int64_t state_values(int width) const {
    return int64_t{reach()} * width + NgramParams::state_values(ngram_size);
  }
};

struct NgramWeights {
  RowTable table;
  LinearWeights key;                            // [count * model_dim, dim]
  LinearWeights value;                          // [model_dim, dim]
  NormWeights key_norm, query_norm, conv_norm;  // [count * model_dim], of each stream
  std::unique_ptr<Vector> conv;                 // [reach + 1, count * model_dim]
};

// Every rank has all of it.
void visit(TensorVisitor& v, NgramWeights& w);

class NgramRows {
 public:
  // Takes scratch memory for n tokens.
  NgramRows(const ModelConfig& config, const ModelWeights& weights, int n, Ops& ops);
  // Adds the layer's rows to the streams [n, count * model_dim].
  void add(int layer, KvCache& cache, Tensor streams);

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  Tensor rows_;                       // [n, dim]
  Tensor keys_, values_, convolved_;  // [n, count * model_dim]
  Tensor value_;                      // [n, model_dim]
  Tensor gates_;                      // [n, count]
};

}  // namespace penstock

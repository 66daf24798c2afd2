// Gated delta networks (Qwen3-Next): x += out(norm(delta rule of silu(conv(q, k, v))) * silu(z)), where q, k, v, z and two numbers for
// each value head are projections of h. Kimi Delta Attention (arXiv 2510.26692): decays by key, and sigmoid(z).
#pragma once
#include <memory>
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"
#include "ops/ops.h"

namespace penstock {

namespace tensor {
// Projections are apart or fused by key head (qkvz_rows()). kDeltaRate and kDeltaBias are whole names. With decays by key, queries,
// keys and values are those of attention, of each a convolution kDeltaConv with {} for "q", "k" or "v".
inline constexpr TensorName kDeltaQkvz{"ssm_in", "linear_attn.in_proj_qkvz"};
inline constexpr TensorName kDeltaBa{"ssm_ba", "linear_attn.in_proj_ba"};
inline constexpr TensorName kDeltaQkv{"attn_qkv", "linear_attn.in_proj_qkv"};
inline constexpr TensorName kDeltaZ{"attn_gate", "linear_attn.in_proj_z"};
inline constexpr TensorName kDeltaA{"ssm_alpha", "linear_attn.in_proj_a"};
inline constexpr TensorName kDeltaB{"ssm_beta", "linear_attn.in_proj_b"};
inline constexpr TensorName kDeltaConv{"ssm_conv1d", "linear_attn.conv1d"};
inline constexpr TensorName kDeltaRate{"ssm_a", "linear_attn.A_log"};
inline constexpr TensorName kDeltaBias{"ssm_dt.bias", "linear_attn.dt_bias"};
inline constexpr TensorName kDeltaNorm{"ssm_norm", "linear_attn.norm"};
inline constexpr TensorName kDeltaOut{"ssm_out", "linear_attn.out_proj"};
inline constexpr TensorName kDeltaAIn{"", ""};
inline constexpr TensorName kDeltaZIn{"", ""};
}  // namespace tensor

// Of gated delta networks, and in the same words of Mamba 2's scans, whose groups are key heads with a C (query) and a B (key)
// of state_dim = key_dim: a convolution over queries, keys and values, and a matrix [key_dim, value_dim] for every value
// head, which tokens read and write (DeltaParams).
struct DeltaConfig {
  int n_key_heads = 0;             // and as many of queries
  int n_value_heads = 0;           // a multiple of it
  int key_dim = 0, value_dim = 0;  // of a head
  bool key_heads_in_turn = false;  // DeltaParams; so in GGUF files of Qwen3.5
  // Kimi Delta Attention: a decay for each row of a head's matrix, and gates that are sigmoids, both through a projection to
  // key_dim; queries, keys and values have tensors of their own.
  bool decay_by_key = false;
  int keys() const { return n_key_heads * key_dim; }
  int decays() const { return n_value_heads * (decay_by_key ? key_dim : 1); }
  int values() const { return n_value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }  // of the convolution
  // In a layer's state, where the matrices are: behind the convolution's, in whole groups.
  int64_t state_offset(int taps) const {
    constexpr int64_t kGroup = DeltaParams::kFeatureGroup;
    return ((taps - int64_t{1}) * channels() + kGroup - 1) / kGroup * kGroup;
  }
  bool operator==(const DeltaConfig&) const = default;
};

// Of a gated delta network or a scan of Mamba 2 (DeltaConfig), which has no b, and x, B and C in the place of q, k and v.
struct DeltaNetWeights {
  LinearWeights qkv;         // [channels, model_dim]: queries, keys and values of all heads
  LinearWeights q, k, v;     // or each by itself (decays by key, a rank's heads)
  LinearWeights a_in, z_in;  // [key_dim, model_dim]: what a and z read instead of the stream, or empty
  LinearWeights z;           // [values, model_dim]: gates of what comes out
  LinearWeights a,
      b;  // [decays, model_dim], [n_value_heads, model_dim]: how fast is forgotten, how much learned
  std::unique_ptr<Vector> conv;        // [taps, channels]
  std::unique_ptr<Vector> conv_bias;   // [channels] or null
  std::unique_ptr<Vector> rate, bias;  // [n_value_heads]; [decays]
  std::unique_ptr<Vector> norm;        // [value_dim]; of scans [values], in groups
  std::unique_ptr<Vector> skip;        // [n_value_heads], of scans
  LinearWeights out;                   // [model_dim, values]
};

// Row r of queries, keys, values and z one after the other is row qkvz_rows()[r] of a projection that lies by key head; of b
// and a likewise.
std::vector<int> qkvz_rows(const DeltaConfig& delta);
std::vector<int> ba_rows(const DeltaConfig& delta);

void visit_delta_net(TensorVisitor& v, DeltaNetWeights& w);

// What delta networks and scans compute in.
struct DeltaScratch {
  explicit DeltaScratch(Sublayer& sublayer);
  Tensor in, convolved;  // [n, channels]
  Tensor z, out;         // [n, values]
  Tensor a, b;           // [n, decays], [n, n_value_heads]
};

class DeltaNetBlock {
 public:
  DeltaNetBlock(Sublayer& sublayer, const DeltaScratch& scratch);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void project(const DeltaNetWeights& net, const NormedInput& h);

  Sublayer& s_;
  const DeltaScratch& scratch_;
  Tensor a_in_, z_in_;  // [n, key_dim]
};

}  // namespace penstock

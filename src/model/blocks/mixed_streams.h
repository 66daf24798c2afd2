// Several residual streams that are mixed around every sub-layer (manifold-constrained
// hyper-connections, arXiv 2512.24880; GLM-5.3):
//   z = weights * norm(all streams);  read, write, C = shares of z (Ops::mix_streams);
//   y = f(norm(sum of read_i X_i));  X_k = write_k y + sum over j of C[j, k] X_j.
// Without a mixture (Hy4) C is the identity. The streams begin as copies of the embedding and end as
// their mean, or as a sum by shares like those that are read.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// All are whole names in directories.
inline constexpr TensorName kAttnMixWeights{"hc_attn_fn", "hc_attn_fn"};
inline constexpr TensorName kAttnMixBase{"hc_attn_base.weight", "hc_attn_base"};
inline constexpr TensorName kAttnMixScale{"hc_attn_scale.weight", "hc_attn_scale"};
inline constexpr TensorName kFfnMixWeights{"hc_ffn_fn", "hc_ffn_fn"};
inline constexpr TensorName kFfnMixBase{"hc_ffn_base.weight", "hc_ffn_base"};
inline constexpr TensorName kFfnMixScale{"hc_ffn_scale.weight", "hc_ffn_scale"};
// Outside of the layers.
inline constexpr TensorName kLastMixWeights{"output_hc_fn", "hc_head_fn"};
inline constexpr TensorName kLastMixBase{"output_hc_base.weight", "hc_head_base"};
inline constexpr TensorName kLastMixScale{"output_hc_scale.weight", "hc_head_scale"};
}  // namespace tensor

struct MixedStreamsConfig {
  int count = 0;  // residual streams; 0 = the one stream of other models
  float eps = 1e-6f;
  // See StreamMixParams.
  int iterations = 1;
  float magnitude = 2.0f, write_eps = 0.0f;
  bool mixes = true;
  bool ends_by_shares = false;  // false: by the mean
  int shares() const { return mixes ? (2 + count) * count : 2 * count; }
  bool operator==(const MixedStreamsConfig&) const = default;
};

struct StreamMixWeights {
  LinearWeights weights;                // [shares, count * model_dim]
  std::unique_ptr<Vector> base, scale;  // [shares]; [1 to 3], see StreamMixParams
};
struct MixedStreamsWeights {
  StreamMixWeights attention, feed_forward;
};

void visit(TensorVisitor& v, MixedStreamsWeights& w);
// Visits the weights of the sum at the end, of MixedStreamsConfig::ends_by_shares.
void visit_last(TensorVisitor& v, StreamMixWeights& w);

class MixedStreams {
 public:
  // Takes scratch memory for n tokens.
  MixedStreams(const ModelConfig& config, int n, Ops& ops);

  void begin(Tensor x);  // all streams = x [n, model_dim]
  // Continues with the streams that another pipeline stage computed.
  void go_on(Tensor streams) { ops_.copy(streams, streams_); }
  Tensor all() const { return streams_; }  // [n, count * model_dim]

  // Returns what a sub-layer reads, normed; valid until the next call.
  NormedInput enter(const StreamMixWeights& w, const NormWeights& norm);
  // Tensor for the output of that sub-layer, which is added to zeros.
  Tensor cleared();
  // Mixes the streams and adds the sub-layer's output to them.
  void leave(Tensor y);
  // Writes the streams' sum by shares, or without weights their mean, to `out`.
  void end(const StreamMixWeights& last, Tensor out);

 private:
  void add_read(const StreamMixWeights& w, Tensor shares, Tensor to);
  void mean(Tensor out);

  const ModelConfig& config_;
  Ops& ops_;
  Tensor streams_, other_;  // [n, count * model_dim]; other_: scratch of the same size
  Tensor shares_;           // [n, MixedStreamsConfig::shares()]
  Tensor in_, out_;         // [n, model_dim]
  Tensor normed_;           // [n, model_dim]
};

}  // namespace penstock

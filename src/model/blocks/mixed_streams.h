// Several residual streams that are mixed around every sub-layer (manifold-constrained
// hyper-connections, arXiv 2512.24880; GLM-5.3):
//   z = weights * norm(all streams);  read, write, C = shares of z (Ops::mix_streams);
//   y = f(norm(sum of read_i X_i));  X_k = write_k y + sum over j of C[j, k] X_j.
// The streams begin as copies of the embedding and end as their mean.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// All are whole names in directories.
inline constexpr TensorName kAttnMixWeights{"hc_attn_fn", "hc_attn_fn"};
inline constexpr TensorName kAttnMixBase{"hc_attn_base", "hc_attn_base"};
inline constexpr TensorName kAttnMixScale{"hc_attn_scale", "hc_attn_scale"};
inline constexpr TensorName kFfnMixWeights{"hc_ffn_fn", "hc_ffn_fn"};
inline constexpr TensorName kFfnMixBase{"hc_ffn_base", "hc_ffn_base"};
inline constexpr TensorName kFfnMixScale{"hc_ffn_scale", "hc_ffn_scale"};
}  // namespace tensor

struct MixedStreamsConfig {
  int count = 0;  // residual streams; 0 = the one stream of other models
  float eps = 1e-6f;
  int iterations = 1;  // see StreamMixParams
  int shares() const { return (2 + count) * count; }
  bool operator==(const MixedStreamsConfig&) const = default;
};

struct StreamMixWeights {
  LinearWeights weights;                // [shares, count * model_dim]
  std::unique_ptr<Vector> base, scale;  // [shares]; [3]
};
struct MixedStreamsWeights {
  StreamMixWeights attention, feed_forward;
};

void visit(TensorVisitor& v, MixedStreamsWeights& w);

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
  // Writes the mean of the streams to `out`.
  void mean(Tensor out);

 private:
  const ModelConfig& config_;
  Ops& ops_;
  Tensor streams_, other_;  // [n, count * model_dim]; other_: scratch of the same size
  Tensor shares_;           // [n, MixedStreamsConfig::shares()]
  Tensor in_, out_;         // [n, model_dim]
  Tensor normed_;           // [n, model_dim]
};

}  // namespace penstock

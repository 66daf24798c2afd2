// Several residual streams of which every sub-layer reads a gated mean and to which it adds its
// output (Qwen4):
//   n = norm of each stream;  g = sigmoid(up(silu(down(n) / count)));  y = f(mean of g * n);
//   stream i += 2 sigmoid(inject(n)_i / count) y.
// The streams begin as copies of the embedding. A mean without an injection is the final norm.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kAttnStreamsNorm{"hc_attn_norm", "attn_hyper_connection.hc_norm"};
inline constexpr TensorName kAttnStreamsDown{"hc_attn_down",
                                             "attn_hyper_connection.input_mix_weight_down"};
inline constexpr TensorName kAttnStreamsUp{"hc_attn_up",
                                           "attn_hyper_connection.input_mix_weight_up"};
inline constexpr TensorName kAttnStreamsInject{"hc_attn_inject",
                                               "attn_hyper_connection.block_inject_weight"};
inline constexpr TensorName kFfnStreamsNorm{"hc_ffn_norm", "mlp_hyper_connection.hc_norm"};
inline constexpr TensorName kFfnStreamsDown{"hc_ffn_down",
                                            "mlp_hyper_connection.input_mix_weight_down"};
inline constexpr TensorName kFfnStreamsUp{"hc_ffn_up", "mlp_hyper_connection.input_mix_weight_up"};
inline constexpr TensorName kFfnStreamsInject{"hc_ffn_inject",
                                              "mlp_hyper_connection.block_inject_weight"};
// Outside of the layers.
inline constexpr TensorName kLastStreamsNorm{"output_hc_norm", "hyper_connection_mixer.hc_norm"};
inline constexpr TensorName kLastStreamsDown{"output_hc_down",
                                             "hyper_connection_mixer.input_mix_weight_down"};
inline constexpr TensorName kLastStreamsUp{"output_hc_up",
                                           "hyper_connection_mixer.input_mix_weight_up"};
}  // namespace tensor

struct GatedStreamsConfig {
  int count = 0;  // residual streams; 0 = the one stream of other models
  int rank = 0;   // features between the two projections of gates
  bool operator==(const GatedStreamsConfig&) const = default;
};

struct StreamGateWeights {
  NormWeights norm;      // [count * model_dim], of each stream
  LinearWeights down;    // [rank, count * model_dim]
  LinearWeights up;      // [count * model_dim, rank]
  LinearWeights inject;  // [count, count * model_dim] or empty
};
struct GatedStreamsWeights {
  StreamGateWeights attention, feed_forward;
};

void visit(TensorVisitor& v, GatedStreamsWeights& w);
// Visits the gates before the output layer.
void visit_last(TensorVisitor& v, StreamGateWeights& w);

class GatedStreams {
 public:
  // Takes scratch memory for n tokens.
  GatedStreams(const ModelConfig& config, int n, Ops& ops);

  void begin(Tensor x);  // all streams = x [n, model_dim]
  // Continues with the streams that another pipeline stage computed.
  void go_on(Tensor streams) { ops_.copy(streams, streams_); }
  Tensor all() const { return streams_; }  // [n, count * model_dim]

  // Returns the input of a sub-layer, valid until the next call.
  NormedInput enter(const StreamGateWeights& w);
  // Tensor for the output of that sub-layer, which is added to zeros.
  Tensor cleared();
  // Adds the sub-layer's output to the streams.
  void leave(Tensor y);
  // Writes the gated means of the rows of `streams` to `out`: at most n rows.
  void mean(Tensor streams, const StreamGateWeights& w, Tensor out);

 private:
  const ModelConfig& config_;
  Ops& ops_;
  Tensor streams_;
  Tensor normed_, gates_;  // [n, count * model_dim]
  Tensor narrow_;          // [n, rank]
  Tensor shares_;          // [n, count]: of the output in each stream
  Tensor in_, out_;        // [n, model_dim]
};

}  // namespace penstock

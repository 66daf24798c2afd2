// Several residual streams of which a layer computes on one (AltUp), and a low-rank path beside
// attention (Laurel): Gemma 3n.
#pragma once
#include <memory>
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// Names of the streams' matrices contain {} for the index of the stream, or nothing where all are
// one tensor. kAltupScale is a whole name.
inline constexpr TensorName kAltupRouter{"", ""};
inline constexpr TensorName kAltupRouterNorm{"", ""};
inline constexpr TensorName kAltupPredict{"", ""};
inline constexpr TensorName kAltupCorrect{"", ""};
inline constexpr TensorName kAltupScale{"", ""};
inline constexpr TensorName kLaurelIn{"", ""};
inline constexpr TensorName kLaurelOut{"", ""};
inline constexpr TensorName kLaurelNorm{"", ""};
inline constexpr TensorName kStreamsIn{"", ""};
inline constexpr TensorName kStreamsOut{"", ""};
}  // namespace tensor

// AltUp of Gemma 3n. A layer predicts all streams from all of them, computes on the active one, and
// corrects all streams by the difference between the computed and the predicted active stream.
struct AltUpConfig {
  // Residual streams; 0 = the one stream of other models.
  int n_streams = 0;
  // Stream that a layer computes on: 0..n_streams - 1.
  int active = 0;
  // Scale, by feature, of the corrected active stream that the per-layer inputs read.
  bool correct_scale = true;
  // Rank of the projections beside attention.
  int laurel_rank = 0;
};

std::string_view difference(const AltUpConfig& a, const AltUpConfig& b);

// Weights of one layer of a model with several streams (AltUpConfig).
struct AltUpWeights {
  NormWeights router_norm;  // [model_dim]
  LinearWeights router;     // [n_streams, model_dim]
  // [n_streams^2, n_streams]: row q * n_streams + p for p's share of q
  LinearWeights predict;
  LinearWeights correct;                  // [n_streams, n_streams], with biases of one
  std::unique_ptr<Vector> correct_scale;  // [model_dim] or null
  LinearWeights laurel_in, laurel_out;    // [laurel_rank, model_dim] and back
  NormWeights laurel_norm;                // [model_dim]
};

void visit(TensorVisitor& v, AltUpWeights& w);

class AltUp {
 public:
  // Takes scratch memory for n tokens.
  AltUp(const ModelConfig& config, const ModelWeights& weights, int n, Ops& ops);

  // Makes all streams from x [n, model_dim], which becomes the first one.
  void begin(Tensor x);
  // Continues with the streams that another pipeline stage computed: [n, n_streams * model_dim].
  void go_on(Tensor streams) { ops_.copy(streams, streams_); }
  Tensor all() const { return streams_; }

  // Replaces all streams by the layer's prediction and writes the active one, on which the layer
  // computes, to x.
  void predict(int layer, Tensor x);
  // Returns h + norm(out in h): [n, model_dim], valid until the next call.
  Tensor laurel(int layer, const NormedInput& h);
  // Corrects all streams by x, the active stream as the layer computed it. Returns the corrected
  // active stream, scaled if configured: [n, model_dim], valid until the next call.
  Tensor correct(int layer, Tensor x);
  void add_to_others(Tensor delta);  // adds delta to all streams but the first
  // x = mean of the streams, each projected first
  void merge(Tensor x);

 private:
  void route(const AltUpWeights& layer, Tensor x);
  Tensor stream(int index) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  Tensor streams_, predicted_;  // [n, n_streams * model_dim]
  Tensor other_, projected_;    // [n, model_dim]
  Tensor routed_;               // [n, n_streams]
  Tensor mixing_, correction_;  // [n, n_streams^2], [n, n_streams]
  Tensor narrow_;               // [n, laurel_rank]
};

}  // namespace penstock

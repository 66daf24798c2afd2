// Several residual streams of which a layer computes on one (AltUp), and a low-rank path beside attention (Laurel): Gemma 3n.
#pragma once
#include <memory>
#include <vector>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// Names of the streams' matrices have {} for the stream, or none when all are one tensor; kAltupScale is a whole name.
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

// Gemma 3n's streams: a layer predicts all of them from all, computes on the active one, and corrects all by what came of that.
struct AltUpConfig {
  // Residual streams; 0 = the one stream of other models.
  int n_streams = 0;
  // Stream that a layer computes on: 0..n_streams - 1.
  int active = 0;
  // Scale by feature of what features beside the stream are for.
  bool correct_scale = true;
  // Rank of the projections beside attention.
  int laurel_rank = 0;
};

std::string_view difference(const AltUpConfig& a, const AltUpConfig& b);

// Of a layer over several streams (AltUpConfig).
struct AltUpWeights {
  NormWeights router_norm;  // [model_dim]
  LinearWeights router;     // [n_streams, model_dim]
  LinearWeights predict;    // [n_streams^2, n_streams]: row q * n_streams + p for p's share of q
  LinearWeights correct;    // [n_streams, n_streams], with biases of one
  std::unique_ptr<Vector> correct_scale;  // [model_dim] or null
  LinearWeights laurel_in, laurel_out;    // [laurel_rank, model_dim] and back
  NormWeights laurel_norm;                // [model_dim]
};

void visit(TensorVisitor& v, AltUpWeights& w);

class AltUp {
 public:
  // Of n tokens.
  AltUp(const ModelConfig& config, const ModelWeights& weights, int n, Ops& ops);

  // x: [n, model_dim], the first stream, from which the others are made.
  void begin(Tensor x);
  // The streams as another stage has left them: [n, n_streams * model_dim].
  void go_on(Tensor streams) { ops_.copy(streams, streams_); }
  Tensor all() const { return streams_; }

  // All streams become what the layer predicts; x = the active one, on which it computes.
  void predict(int layer, Tensor x);
  // h + norm(out in h): [n, model_dim], valid until the next call.
  Tensor laurel(int layer, const NormedInput& h);
  // All streams are corrected by what the layer made of x; the active one, scaled: [n, model_dim], valid until the next call.
  Tensor correct(int layer, Tensor x);
  void add_to_others(Tensor delta);  // to all streams but the first
  void merge(Tensor x);              // x = their mean, each projected

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

// Several residual streams of which a layer computes on one (AltUp), and a low-rank path beside attention (Laurel): Gemma 3n.
#pragma once
#include "model/arch/archs.h"

namespace penstock {

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
  Tensor stream(int index) const { return streams_.columns(index * config_.model_dim, config_.model_dim); }

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

#include "model/blocks/cross_attention.h"

#include <cmath>

#include "base/check.h"
#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct CrossWeights final : MixerWeights {
  NormWeights norm;
  LinearWeights q, k, v, o;  // [model_dim, model_dim]
};

class CrossAttention final : public Mixer {
 public:
  explicit CrossAttention(int n_rows) : n_rows_(n_rows) {}

  std::string_view name() const override { return "cross-attention"; }
  bool follows_attention() const override { return true; }
  int64_t state_values(const ModelConfig& config) const override {
    return params(config, 0).state_values();
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* cross = dynamic_cast<const CrossAttention*>(&other);
    if (cross == nullptr) return "mixers";
    return cross->n_rows_ == n_rows_ ? "" : "rows of the encoder";
  }
  // Several ranks are refused where weights are loaded.
  std::shared_ptr<const Mixer> of_rank(const ModelCuts&) const override {
    return std::make_shared<CrossAttention>(n_rows_);
  }
  int widest_input(const ModelConfig& config) const override { return config.model_dim; }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<CrossWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Place : uint8_t { kNormed, kQ, kOut, kRows, kK, kV };  // in the scratch
  EncodedParams params(const ModelConfig& config, int layer) const {
    return {layer, n_rows_, config.n_heads, config.head_dim, config.attention.scale};
  }
  void store(Sublayer& s, const MixerScratch& scratch, const EncodedParams& params,
             const CrossWeights& w) const;

  int n_rows_;
};

void CrossAttention::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<CrossWeights&>(weights);
  const int dim = v.config().model_dim;
  v.norm({&tensor::kCrossNorm, dim}, w.norm);
  v.linear({&tensor::kCrossQ, WeightRole::kQ, dim, dim}, w.q);
  v.linear({&tensor::kCrossK, WeightRole::kK, dim, dim}, w.k);
  v.linear({&tensor::kCrossV, WeightRole::kV, dim, dim}, w.v);
  v.linear({&tensor::kCrossO, WeightRole::kO, dim, dim}, w.o);
}

// Norm, queries and output [n, model_dim]; rows of one sequence's encoder, their keys and values
// [n_rows, model_dim], if any sequence begins.
MixerScratch CrossAttention::scratch(Sublayer& s) const {
  const int dim = s.config.model_dim;
  MixerScratch scratch;
  for (const Place place : {kNormed, kQ, kOut}) scratch[place] = s.ops.new_tensor(s.n, dim);
  if (s.n_encoded == 0) return scratch;
  for (const Place place : {kRows, kK, kV}) scratch[place] = s.ops.new_tensor(n_rows_, dim);
  return scratch;
}

// Makes the state of the sequences that begin. Adapters do not change it: their terms belong to the
// step's tokens.
void CrossAttention::store(Sublayer& s, const MixerScratch& scratch, const EncodedParams& params,
                           const CrossWeights& w) const {
  LinearTarget targets[] = {w.k.into(scratch[kK]), w.v.into(scratch[kV])};
  for (LinearTarget& target : targets) target.adapters = nullptr;
  for (int i = 0; i < s.n_encoded; ++i) {
    s.ops.put_encoded(i, scratch[kRows]);
    s.ops.linear(scratch[kRows], targets);
    s.ops.store_encoded(i, scratch[kK], scratch[kV], params, s.cache);
  }
}

void CrossAttention::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput&,
                             Tensor x, const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const CrossWeights&>(*layer.mixer);
  const EncodedParams params = this->params(s.config, i);
  store(s, scratch, params, w);
  s.ops.norm(x, norm_params(s.config, w.norm), scratch[kNormed]);
  const LinearTarget q = w.q.into(scratch[kQ]);
  s.ops.linear(scratch[kNormed], {&q, 1});
  s.ops.attend_encoded(scratch[kQ], params, s.cache, scratch[kOut]);
  s.add_product(scratch[kOut], w.o, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> cross_attention(int encoder_rows) {
  return std::make_shared<CrossAttention>(encoder_rows);
}

}  // namespace penstock

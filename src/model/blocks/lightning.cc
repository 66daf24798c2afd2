#include "model/blocks/lightning.h"

#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

constexpr float kLightningNormEps = 1e-6f;  // independent of the other norms

struct LightningWeights final : MixerWeights {
  LinearWeights in;    // [3 * values, model_dim]: values, keys and queries of all heads
  LinearWeights gate;  // [values, model_dim]
  NormWeights norm;    // [values]
  LinearWeights out;   // [model_dim, values]
  std::unique_ptr<Vector> rate, skip;  // [n_heads]: negative rates, and zeros
};

class Lightning final : public Mixer {
 public:
  Lightning(int n_heads, int head_dim) : n_heads_(n_heads), head_dim_(head_dim) {}

  std::string_view name() const override { return "lightning attention"; }
  int64_t state_values(const ModelConfig&) const override {
    return DeltaParams::state_values(n_heads_, head_dim_, head_dim_);
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* same = dynamic_cast<const Lightning*>(&other);
    if (same == nullptr) return "mixers";
    return same->n_heads_ == n_heads_ && same->head_dim_ == head_dim_ ? "" : "sizes of heads";
  }
  std::shared_ptr<const Mixer> of_rank(const ModelCuts&) const override {
    return lightning(n_heads_, head_dim_);
  }
  int widest_input(const ModelConfig&) const override { return values(); }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<LightningWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Scratch : uint8_t { kIn, kGate, kOut, kStep, kDecays };

  int values() const { return n_heads_ * head_dim_; }

  int n_heads_, head_dim_;
};

void Lightning::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<LightningWeights&>(weights);
  const int dim = v.config().model_dim;
  JoinedSpec all{&tensor::kLightningQkv, WeightRole::kQkv};
  for (const int place : {2, 1, 0})  // a head has queries, keys and values
    for (int h = 0; h < n_heads_; ++h)
      for (int d = 0; d < head_dim_; ++d) all.order.push_back((h * 3 + place) * head_dim_ + d);
  v.joined(all, {{{kNoName, WeightRole::kQkv, 3 * values(), dim, {}, Site::kAttention}, &w.in}});
  v.linear({&tensor::kLightningGate, WeightRole::kLatent, values(), dim, {}, Site::kAttention},
           w.gate);
  v.norm({&tensor::kLightningNorm, values()}, w.norm);
  v.linear({&tensor::kLightningOut, WeightRole::kO, dim, values(), {}, Site::kAttentionOut}, w.out);
  std::vector<float> rates = lightning_rates(n_heads_, v.layer(), v.config().n_layers);
  for (float& rate : rates) rate = -rate;
  v.constants(std::move(rates), w.rate);
  v.constants(std::vector<float>(static_cast<size_t>(n_heads_)), w.skip);
}

MixerScratch Lightning::scratch(Sublayer& s) const {
  MixerScratch scratch;
  scratch[kIn] = s.ops.new_tensor(s.n, 3 * values());
  for (const Scratch each : {kGate, kOut}) scratch[each] = s.ops.new_tensor(s.n, values());
  for (const Scratch each : {kStep, kDecays})
    scratch[each] = s.ops.new_tensor(s.n, n_heads_, TensorRole::kLogits);
  return scratch;
}

void Lightning::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h,
                        Tensor x, const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const LightningWeights&>(*layer.mixer);
  const Tensor out = scratch[kOut];
  const LinearTarget both[] = {w.in.into(scratch[kIn]), w.gate.into(scratch[kGate])};
  s.ops.norm_linear(s.rounded(h), both);
  s.ops.activate(scratch[kIn], Activation::kSilu);
  s.ops.clear(scratch[kStep]);
  StateSpaceParams params;
  params.rate = w.rate.get(), params.skip = w.skip.get();
  params.n_groups = params.n_heads = n_heads_;
  params.state_dim = params.head_dim = head_dim_;
  params.min_step = params.max_step = 1.0f;
  params.layer = i;
  s.ops.state_space(scratch[kIn], scratch[kStep], scratch[kDecays], params, s.cache, out);
  s.ops.norm(out, {w.norm.weight.get(), nullptr, kLightningNormEps}, out);
  s.ops.activate_mul(scratch[kGate], out, Activation::kSigmoid, out);
  s.add_product(out, w.out, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> lightning(int n_heads, int head_dim) {
  return std::make_shared<Lightning>(n_heads, head_dim);
}

std::vector<float> lightning_rates(int n_heads, int layer, int n_layers) {
  const double of_layer = 1.0 - layer / (n_layers - 1 + 1e-5) + 1e-5;
  std::vector<float> rates;
  for (int h = 1; h <= n_heads; ++h)
    rates.push_back(static_cast<float>(std::exp2(-8.0 * h / n_heads) * of_layer));
  return rates;
}

}  // namespace penstock

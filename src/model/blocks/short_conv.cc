#include "model/blocks/short_conv.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct ShortConvWeights final : MixerWeights {
  // [3 * model_dim, model_dim]: input gate, output gate, and values
  LinearWeights in;
  LinearWeights before, behind, values;  // or separately (a rank's channels)
  std::unique_ptr<Vector> weight, bias;  // [taps, model_dim]; [model_dim] or null
  LinearWeights out;                     // [model_dim, model_dim]
};

class ShortConv final : public Mixer {
 public:
  // channels: of this rank; 0: model_dim
  ShortConv(int taps, int channels) : taps_(taps), channels_(channels) {}
  int taps() const { return taps_; }

  std::string_view name() const override { return "short convolution"; }
  int64_t state_values(const ModelConfig& config) const override {
    return (taps_ - int64_t{1}) * channels(config);
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* conv = dynamic_cast<const ShortConv*>(&other);
    if (conv == nullptr) return "mixers";
    return conv->taps_ == taps_ && conv->channels_ == channels_ ? "" : "convolutions";
  }
  std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const override {
    return std::make_shared<ShortConv>(taps_, cuts.features(cuts.whole().model_dim).count);
  }
  int widest_input(const ModelConfig& config) const override { return channels(config); }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<ShortConvWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  int channels(const ModelConfig& config) const {
    return channels_ > 0 ? channels_ : config.model_dim;
  }
  int taps_, channels_;
};

void ShortConv::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<ShortConvWeights&>(weights);
  const int dim = v.config().model_dim;
  const Shard::Range own = v.cuts().features(dim);
  const LinearSpec all{&tensor::kConvIn, WeightRole::kQ, 3 * dim, dim, {}, Site::kAttention};
  const LinearSpec each{kNoName, WeightRole::kQ, dim, dim, rows_of(own), Site::kAttention};
  if (own.count == dim) {
    v.linear(all, w.in);
  } else {
    v.joined({all.name, all.role}, {{each, &w.before}, {each, &w.behind}, {each, &w.values}});
  }
  v.linear({&tensor::kConvOut, WeightRole::kO, dim, dim, columns_of(own), Site::kAttentionOut},
           w.out);
  v.conv({&tensor::kConv, {dim}, "", taps_, {own}}, w.weight, &w.bias);
}

// Scratch: the projection [n, 3 * channels], and the output of the convolution [n, channels].
MixerScratch ShortConv::scratch(Sublayer& s) const {
  const int dim = channels(s.config);
  return {s.ops.new_tensor(s.n, 3 * dim), s.ops.new_tensor(s.n, dim)};
}

void ShortConv::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h,
                        Tensor x, const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& conv = static_cast<const ShortConvWeights&>(*layer.mixer);
  const int dim = channels(s.config);
  const Tensor in = scratch[0], convolved = scratch[1];
  const Tensor before = in.columns(0, dim), behind = in.columns(dim, dim),
               values = in.columns(2 * dim, dim);
  const LinearTarget together[] = {conv.in.into(in)},
                     each[] = {conv.before.into(before), conv.behind.into(behind),
                               conv.values.into(values)};
  s.ops.norm_linear(s.rounded(h), conv.in.weight ? std::span<const LinearTarget>(together) : each);
  s.ops.multiply(values, before);
  s.ops.causal_conv(values, {conv.weight.get(), conv.bias.get(), taps_, i}, s.cache, convolved);
  s.ops.multiply(convolved, behind);
  s.add_product(convolved, conv.out, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> short_conv(int taps) { return std::make_shared<ShortConv>(taps, 0); }

int short_conv_taps(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* conv = dynamic_cast<const ShortConv*>(layer.mixer.get())) return conv->taps();
  return 0;
}

}  // namespace penstock

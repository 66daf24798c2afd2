#include "model/blocks/rg_lru.h"

#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct LruWeights final : MixerWeights {
  LinearWeights x, y;                              // [channels, model_dim]
  std::unique_ptr<Vector> conv, conv_bias;         // [taps, channels]; [channels] or null
  ByHead input_gate, decay_gate;                   // [n_blocks], [block_size, block_size]
  std::unique_ptr<Vector> input_bias, decay_bias;  // [channels]
  std::unique_ptr<Vector> rate, ones, zeros;       // [channels]
  LinearWeights out;                               // [model_dim, channels]
};

class RgLru final : public Mixer {
 public:
  explicit RgLru(const LruConfig& config) : c_(config) {}

  std::string_view name() const override { return "RG-LRU"; }
  int64_t state_values(const ModelConfig&) const override {
    return state_offset() + DeltaParams::state_values(1, 1, c_.channels());
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* lru = dynamic_cast<const RgLru*>(&other);
    if (lru == nullptr) return "mixers";
    if (lru->c_.taps != c_.taps) return "convolutions";
    return lru->c_.n_blocks == c_.n_blocks && lru->c_.block_size == c_.block_size
               ? ""
               : "channels of recurrences";
  }
  std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const override {
    LruConfig own = c_;
    own.n_blocks = own_blocks(cuts).count;
    return std::make_shared<RgLru>(own);
  }
  int widest_input(const ModelConfig&) const override { return c_.channels(); }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<LruWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Scratch : uint8_t { kIn, kY, kConvolved, kGate, kGated, kAll, kStep, kUnused };

  Shard::Range own_blocks(const ModelCuts& cuts) const {
    return cuts.cut_groups(c_.n_blocks, c_.n_blocks).heads;
  }
  // Offset of the recurrence's state in a layer's state: after the convolution's part, rounded up to
  // whole groups.
  int64_t state_offset() const {
    constexpr int64_t kGroup = DeltaParams::kFeatureGroup;
    return ((c_.taps - int64_t{1}) * c_.channels() + kGroup - 1) / kGroup * kGroup;
  }
  void visit_gates(TensorVisitor& v, LruWeights& w) const;
  void gate(Sublayer& s, const LruWeights& w, const MixerScratch& scratch, int layer) const;

  LruConfig c_;
};

void RgLru::visit_gates(TensorVisitor& v, LruWeights& w) const {
  const int n = c_.channels(), each = c_.block_size;
  const Shard::Range own = times(own_blocks(v.cuts()), each);
  const auto matrices = [&](const TensorName* name, ByHead& to) {
    v.diagonal({.name = name,
                .role = WeightRole::kLatent,
                .rows = n,
                .cols = each,
                .cut = rows_of(own),
                .bare = true,
                .inputs_first = true},
               c_.n_blocks, to);
  };
  const auto biases = [&](const TensorName* name, std::unique_ptr<Vector>& to) {
    v.vector({.name = name,
              .size = n,
              .part = own,
              .shape = VectorSpec::Shape::kMatrix,
              .per_row = each,
              .is_bias = true},
             to);
  };
  matrices(&tensor::kLruInputGate, w.input_gate);
  biases(&tensor::kLruInputBias, w.input_bias);
  matrices(&tensor::kLruDecayGate, w.decay_gate);
  biases(&tensor::kLruDecayBias, w.decay_bias);
  std::vector<float> stored, rates;
  v.values({.name = &tensor::kLruDecay, .size = n, .part = {0, n}}, stored);
  if (stored.empty()) return;
  for (int c = own.first; c < own.first + own.count; ++c)
    rates.push_back(-8.0f * std::log1p(std::exp(stored[static_cast<size_t>(c)])));
  v.constants(std::move(rates), w.rate);
  v.constants(std::vector<float>(static_cast<size_t>(own.count)), w.zeros);
  v.ones(own.count, w.ones);
}

void RgLru::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<LruWeights&>(weights);
  const int n = c_.channels(), dim = v.config().model_dim;
  const Shard::Range own = times(own_blocks(v.cuts()), c_.block_size);
  const Site site = Site::kAttention;
  v.linear({&tensor::kLruX, WeightRole::kQkv, n, dim, rows_of(own), site}, w.x);
  v.linear({&tensor::kLruY, WeightRole::kLatent, n, dim, rows_of(own), site}, w.y);
  v.conv({&tensor::kLruConv, {n}, "", c_.taps, {own}, true}, w.conv, &w.conv_bias);
  visit_gates(v, w);
  v.linear({&tensor::kLruOut, WeightRole::kLatent, dim, n, columns_of(own), Site::kAttentionOut},
           w.out);
}

// Scratch: inputs of the convolution, later the recurrence's outputs; gates of the output; outputs of
// the convolution; input gates, and with their biases [n, channels]; gated inputs beside two ones;
// decay gates.
MixerScratch RgLru::scratch(Sublayer& s) const {
  MixerScratch scratch;
  for (const Scratch each : {kIn, kY, kConvolved, kGate, kGated})
    scratch[each] = s.ops.new_tensor(s.n, c_.channels());
  scratch[kAll] = s.ops.new_tensor(s.n, c_.channels() + 2);
  for (const Scratch each : {kStep, kUnused})
    scratch[each] = s.ops.new_tensor(s.n, c_.channels(), TensorRole::kLogits);
  return scratch;
}

// Input gates multiply the inputs; decay gates become kStep.
void RgLru::gate(Sublayer& s, const LruWeights& w, const MixerScratch& scratch, int i) const {
  const int each = c_.block_size;
  const Tensor in = scratch[kConvolved], gated = scratch[kGated];
  s.ops.linear_by_head(in.reshaped(each), w.input_gate, scratch[kGate].reshaped(each));
  s.ops.linear_by_head(in.reshaped(each), w.decay_gate, scratch[kStep].reshaped(each));
  // A convolution over the token alone adds the biases.
  s.ops.causal_conv(scratch[kGate], {w.ones.get(), w.input_bias.get(), 1, i}, s.cache, gated);
  s.ops.activate_mul(gated, in, Activation::kSigmoid, gated);
  s.ops.copy(gated, scratch[kAll].columns(0, c_.channels()));
  const Tensor ones = scratch[kAll].columns(c_.channels(), 2);
  s.ops.clear(ones);
  s.ops.activate(ones, Activation::kSigmoid);
  s.ops.scale(ones, 2.0f, 0.0f);
}

void RgLru::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h, Tensor x,
                    const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const LruWeights&>(*layer.mixer);
  const Tensor out = scratch[kIn];
  const LinearTarget both[] = {w.x.into(scratch[kIn]), w.y.into(scratch[kY])};
  s.ops.norm_linear(s.rounded(h), both);
  s.ops.causal_conv(scratch[kIn], {w.conv.get(), w.conv_bias.get(), c_.taps, i}, s.cache,
                    scratch[kConvolved]);
  gate(s, w, scratch, i);
  StateSpaceParams params;
  params.rate = w.rate.get(), params.bias = w.decay_bias.get(), params.skip = w.zeros.get();
  params.n_groups = params.state_dim = params.head_dim = 1;
  params.n_heads = c_.channels();
  params.layer = i, params.state_offset = state_offset();
  params.by_channel = params.gated_levels = true;
  s.ops.state_space(scratch[kAll], scratch[kStep], scratch[kUnused], params, s.cache, out);
  s.ops.activate_mul(scratch[kY], out, s.config.ffn.activation, out);
  s.add_product(out, w.out, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> rg_lru(const LruConfig& config) {
  return std::make_shared<RgLru>(config);
}

}  // namespace penstock

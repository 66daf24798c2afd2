#include "model/blocks/channel_scan.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

using Norms = ChannelScanConfig::Norms;

struct ChannelScanWeights final : MixerWeights {
  LinearWeights x, z;                       // [channels, model_dim] each
  LinearWeights step_in, bc;                // [step_rank, channels]; [2 * state_dim, channels]
  LinearWeights step;                       // [channels or n_heads, step_rank]
  NormWeights step_norm, b_norm, c_norm;    // [step_rank]; [state_dim]; [state_dim]; or empty
  std::unique_ptr<Vector> conv, conv_bias;  // [taps, channels]; [channels] or null
  std::unique_ptr<Vector> rate, skip;       // [channels, state_dim]; [channels]; or [n_heads] each
  LinearWeights out;                        // [model_dim, channels]
};

// All ranks compute all channels, because every time step, B and C depend on all of them.
class ChannelScan final : public Mixer {
 public:
  explicit ChannelScan(const ChannelScanConfig& config) : c_(config) {}
  const ChannelScanConfig& config() const { return c_; }

  std::string_view name() const override { return "channel scan"; }
  int64_t state_values(const ModelConfig&) const override {
    return state_offset() +
           (c_.n_heads > 0 ? DeltaParams::state_values(c_.n_heads, c_.state_dim, c_.head_dim())
                           : DeltaParams::state_values(1, c_.state_dim, c_.channels));
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* scan = dynamic_cast<const ChannelScan*>(&other);
    if (scan == nullptr) return "mixers";
    const ChannelScanConfig &a = c_, &b = scan->c_;
    if (a.taps != b.taps) return "convolutions";
    if (a.channels != b.channels || a.state_dim != b.state_dim || a.step_rank != b.step_rank ||
        a.n_heads != b.n_heads)
      return "sizes of scans";
    return a.norms == b.norms && (a.norms == Norms::kNone || a.eps == b.eps) ? ""
                                                                             : "norms of scans";
  }
  std::shared_ptr<const Mixer> of_rank(const ModelCuts&) const override {
    return std::make_shared<ChannelScan>(c_);
  }
  int widest_input(const ModelConfig&) const override { return c_.channels; }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<ChannelScanWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Scratch : uint8_t { kIn, kZ, kConvolved, kAll, kStepIn, kStep, kDecays, kOut };

  // Offset of the scan's state in a layer's state: after the convolution's part, rounded up to whole
  // groups.
  int64_t state_offset() const {
    constexpr int64_t kGroup = DeltaParams::kFeatureGroup;
    return ((c_.taps - int64_t{1}) * c_.channels + kGroup - 1) / kGroup * kGroup;
  }
  void norm(Sublayer& s, Tensor x, const NormWeights& weights) const;
  void visit_steps(TensorVisitor& v, ChannelScanWeights& w) const;

  ChannelScanConfig c_;
};

// Channels, then gates, in a projection that has gates and channels of a head after one another.
std::vector<int> rows_by_head(int n_heads, int head_dim) {
  std::vector<int> rows;
  for (const int place : {1, 0})
    for (int r = 0; r < n_heads * head_dim; ++r)
      rows.push_back((r / head_dim * 2 + place) * head_dim + r % head_dim);
  return rows;
}

// From what was convolved to time steps, and what becomes of them.
void ChannelScan::visit_steps(TensorVisitor& v, ChannelScanWeights& w) const {
  const int n = c_.channels, steps = c_.n_steps();
  const bool by_head = c_.n_heads > 0;
  using Shape = VectorSpec::Shape;
  const JoinedPart low{{kNoName, WeightRole::kLatent, c_.step_rank, n}, &w.step_in},
      bc{{kNoName, WeightRole::kLatent, 2 * c_.state_dim, n}, &w.bc};
  const JoinedSpec all{&tensor::kSsmX, WeightRole::kLatent};
  if (by_head) v.joined(all, {bc, low});
  if (!by_head) v.joined(all, {low, bc});
  if (c_.norms == Norms::kWeights) {
    v.norm({&tensor::kSsmStepNorm, c_.step_rank}, w.step_norm);
    v.norm({&tensor::kSsmBNorm, c_.state_dim}, w.b_norm);
    v.norm({&tensor::kSsmCNorm, c_.state_dim}, w.c_norm);
  }
  LinearSpec step{&tensor::kSsmStep, WeightRole::kLatent, steps, c_.step_rank};
  step.bias_apart = by_head;
  v.linear(step, w.step);
  if (by_head)
    v.vector({.name = &tensor::kSsmBias, .size = steps, .part = {0, steps}}, w.step.bias);
  const int per_step = by_head ? 1 : c_.state_dim;
  v.vector({.name = &tensor::kSsmRate,
            .size = steps * per_step,
            .part = {0, steps * per_step},
            .shape = by_head ? Shape::kLine : Shape::kMatrix,
            .per_row = per_step,
            .form = VectorSpec::Form::kRate},
           w.rate);
  v.vector({.name = &tensor::kSsmSkip, .size = steps, .part = {0, steps}}, w.skip);
}

void ChannelScan::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<ChannelScanWeights&>(weights);
  const int dim = v.config().model_dim, n = c_.channels;
  const LinearSpec half{kNoName, WeightRole::kQkv, n, dim, {}, Site::kAttention};
  JoinedSpec in{&tensor::kSsmIn, WeightRole::kQkv};
  if (c_.n_heads > 0) in.order = rows_by_head(c_.n_heads, c_.head_dim());
  v.joined(in, {{half, &w.x}, {half, &w.z}});
  v.conv({&tensor::kSsmConv, {n}, "", c_.taps, {{0, n}}, true}, w.conv, &w.conv_bias);
  visit_steps(v, w);
  v.linear({.name = &tensor::kSsmOut,
            .role = WeightRole::kLatent,
            .rows = dim,
            .cols = n,
            .site = Site::kAttentionOut},
           w.out);
}

// Scratch: input, gates and output of the convolution [n, channels]; that output beside B and C
// [n, channels + 2 * state_dim]; low-rank time steps [n, step_rank]; time steps and decays, which scans
// by channel leave unchanged, [n, channels or n_heads]; the output of the scan [n, channels].
MixerScratch ChannelScan::scratch(Sublayer& s) const {
  MixerScratch scratch;
  for (const Scratch each : {kIn, kZ, kConvolved, kOut})
    scratch[each] = s.ops.new_tensor(s.n, c_.channels);
  scratch[kAll] = s.ops.new_tensor(s.n, c_.channels + 2 * c_.state_dim);
  scratch[kStepIn] = s.ops.new_tensor(s.n, c_.step_rank);
  for (const Scratch each : {kStep, kDecays})
    scratch[each] = s.ops.new_tensor(s.n, c_.n_steps(), TensorRole::kLogits);
  return scratch;
}

void ChannelScan::norm(Sublayer& s, Tensor x, const NormWeights& weights) const {
  if (c_.norms != Norms::kNone) s.ops.norm(x, {weights.weight.get(), nullptr, c_.eps}, x);
}

void ChannelScan::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h,
                          Tensor x, const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const ChannelScanWeights&>(*layer.mixer);
  const int n = c_.channels, dim = c_.state_dim;
  const Tensor convolved = scratch[kConvolved], all = scratch[kAll], steps = scratch[kStepIn],
               step = scratch[kStep], out = scratch[kOut];
  const LinearTarget halves[] = {w.x.into(scratch[kIn]), w.z.into(scratch[kZ])};
  s.ops.norm_linear(s.rounded(h), halves);
  s.ops.causal_conv(scratch[kIn], {w.conv.get(), w.conv_bias.get(), c_.taps, i}, s.cache,
                    convolved);
  s.ops.activate(convolved, Activation::kSilu);
  const LinearTarget parts[] = {w.step_in.into(steps), w.bc.into(all.columns(n, 2 * dim))};
  s.ops.linear(convolved, parts);
  norm(s, steps, w.step_norm);
  norm(s, all.columns(n, dim), w.b_norm);
  norm(s, all.columns(n + dim, dim), w.c_norm);
  const LinearTarget of_step = w.step.into(step);
  s.ops.linear(steps, {&of_step, 1});
  s.ops.copy(convolved, all.columns(0, n));
  StateSpaceParams params;
  params.rate = w.rate.get(), params.skip = w.skip.get();
  params.n_groups = 1, params.n_heads = c_.n_steps(), params.state_dim = dim;
  params.head_dim = c_.head_dim();
  params.max_step = std::numeric_limits<float>::infinity();
  params.layer = i, params.state_offset = state_offset();
  params.by_channel = c_.n_heads == 0;
  s.ops.state_space(all, step, scratch[kDecays], params, s.cache, out);
  s.ops.activate_mul(scratch[kZ], out, Activation::kSilu, out);
  s.add_product(out, w.out, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> channel_scan(const ChannelScanConfig& config) {
  return std::make_shared<ChannelScan>(config);
}

const ChannelScanConfig* channel_scan_config(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const auto* scan = dynamic_cast<const ChannelScan*>(layer.mixer.get());
    if (scan != nullptr) return &scan->config();
  }
  return nullptr;
}

}  // namespace penstock

#include "model/blocks/state_space.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct ScanWeights final : MixerWeights {
  LinearWeights z;                           // [values, model_dim]: output gates
  LinearWeights xbc;                         // [channels, model_dim]: x, B and C of all heads
  LinearWeights x, b, c;                     // or separately (a rank's heads)
  LinearWeights step;                        // [n_heads, model_dim]
  std::unique_ptr<Vector> conv, conv_bias;   // [taps, channels]; [channels] or null
  std::unique_ptr<Vector> rate, skip, bias;  // [n_heads] each
  std::unique_ptr<Vector> norm;              // [values], in groups, or null
  LinearWeights out;                         // [model_dim, values]
};

class Scan final : public Mixer {
 public:
  explicit Scan(const ScanConfig& config) : c_(config) {}
  const ScanConfig& config() const { return c_; }

  std::string_view name() const override { return "scan"; }
  int64_t state_values(const ModelConfig&) const override {
    return state_offset() + DeltaParams::state_values(c_.n_heads, c_.state_dim, c_.head_dim);
  }
  std::string_view difference(const Mixer& other) const override;
  std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const override {
    ScanConfig own = c_;
    const ModelCuts::HeadCut cut = own_heads(cuts);
    own.n_heads = cut.heads.count, own.n_groups = cut.groups.count;
    return std::make_shared<Scan>(own);
  }
  std::shared_ptr<const Mixer> unmultiplied() const override {
    ScanConfig plain = c_;
    plain.factors = {};
    return std::make_shared<Scan>(plain);
  }
  float input_factor() const override { return c_.factors.in; }
  int widest_input(const ModelConfig&) const override { return c_.values(); }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<ScanWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Scratch : uint8_t { kIn, kConvolved, kZ, kOut, kStep, kDecays };

  // Not cut if a norm would read heads of several ranks.
  ModelCuts::HeadCut own_heads(const ModelCuts& cuts) const {
    const bool reads_all = c_.norm && cuts.shard().n_ranks > c_.n_groups;
    return reads_all ? ModelCuts::HeadCut{{0, c_.n_heads}, {0, c_.n_groups}}
                     : cuts.cut_groups(c_.n_heads, c_.n_groups);
  }
  // Offset of the matrices in a layer's state: after the convolution's part, rounded up to whole
  // groups.
  int64_t state_offset() const {
    constexpr int64_t kGroup = DeltaParams::kFeatureGroup;
    return ((c_.taps - int64_t{1}) * c_.channels() + kGroup - 1) / kGroup * kGroup;
  }
  void visit_projections(TensorVisitor& v, ScanWeights& w) const;
  void project(Sublayer& s, const ScanWeights& w, const MixerScratch& scratch,
               const NormedInput& h) const;

  ScanConfig c_;
};

std::string_view Scan::difference(const Mixer& other) const {
  const auto* scan = dynamic_cast<const Scan*>(&other);
  if (scan == nullptr) return "mixers";
  const ScanConfig &a = c_, &b = scan->c_;
  if (a.taps != b.taps) return "convolutions";
  if (a.n_groups != b.n_groups || a.n_heads != b.n_heads || a.state_dim != b.state_dim ||
      a.head_dim != b.head_dim)
    return "sizes of scans";
  if (a.norm != b.norm || a.norm_before_gate != b.norm_before_gate || a.norm_eps != b.norm_eps)
    return "norms of scans";
  if (a.factors != b.factors) return "multipliers";
  return a.min_step == b.min_step && a.max_step == b.max_step ? "" : "limits of time steps";
}

void Scan::visit_projections(TensorVisitor& v, ScanWeights& w) const {
  const ModelCuts::HeadCut own = own_heads(v.cuts());
  const int dim = v.config().model_dim, values = c_.values(), groups = c_.group_values();
  const ScanConfig::Factors& by = c_.factors;
  const Cut own_groups = rows_of(times(own.groups, c_.state_dim)),
            own_values = rows_of(times(own.heads, c_.head_dim));
  const auto rows = [&](Cut cut, std::vector<RowFactor> factors) {
    LinearSpec spec{kNoName, WeightRole::kQkv, 0, dim, cut, Site::kAttention};
    for (const RowFactor& factor : factors) spec.rows += factor.rows;
    spec.in_factor = by.in, spec.out_factors = std::move(factors);
    return spec;
  };
  const RowFactor z{values, by.z}, x{values, by.x}, b{groups, by.b}, c{groups, by.c},
      step{c_.n_heads, by.step};
  const JoinedSpec all{&tensor::kSsmIn, WeightRole::kQkv};
  if (own.heads.count < c_.n_heads)
    return v.joined(all, {{rows(own_values, {z}), &w.z},
                          {rows(own_values, {x}), &w.x},
                          {rows(own_groups, {b}), &w.b},
                          {rows(own_groups, {c}), &w.c},
                          {rows(rows_of(own.heads), {step}), &w.step}});
  v.joined(all,
           {{rows({}, {z}), &w.z}, {rows({}, {x, b, c}), &w.xbc}, {rows({}, {step}), &w.step}});
}

void Scan::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<ScanWeights&>(weights);
  const int heads = c_.n_heads, values = c_.values(), groups = c_.group_values();
  const ModelCuts::HeadCut own = own_heads(v.cuts());
  const Shard::Range own_groups = times(own.groups, c_.state_dim),
                     own_values = times(own.heads, c_.head_dim);
  using Shape = VectorSpec::Shape;
  visit_projections(v, w);
  v.conv({&tensor::kSsmConv,
          {c_.channels()},
          "",
          c_.taps,
          {own_values, behind(values, own_groups), behind(values + groups, own_groups)},
          true},
         w.conv, &w.conv_bias);
  v.vector({.name = &tensor::kSsmRate,
            .size = heads,
            .part = own.heads,
            .shape = Shape::kMatrix,
            .form = VectorSpec::Form::kRate},
           w.rate);
  v.vector({.name = &tensor::kSsmSkip, .size = heads, .part = own.heads, .shape = Shape::kMatrix},
           w.skip);
  v.vector({.name = &tensor::kSsmBias, .size = heads, .part = own.heads}, w.bias);
  if (c_.norm)
    v.vector({.name = &tensor::kSsmNorm,
              .size = values,
              .part = own_values,
              .suffix = ".weight",
              .shape = Shape::kMatrix,
              .per_row = values / c_.n_groups},
             w.norm);
  v.linear({.name = &tensor::kSsmOut,
            .role = WeightRole::kLatent,
            .rows = v.config().model_dim,
            .cols = values,
            .cut = columns_of(own_values),
            .site = Site::kAttentionOut,
            .out_factors = {{v.config().model_dim, c_.factors.out}}},
           w.out);
}

// Scratch: input and output of the convolution [n, channels]; gates and output [n, values]; time
// steps and decays [n, n_heads].
MixerScratch Scan::scratch(Sublayer& s) const {
  MixerScratch scratch;
  for (const Scratch each : {kIn, kConvolved}) scratch[each] = s.ops.new_tensor(s.n, c_.channels());
  for (const Scratch each : {kZ, kOut}) scratch[each] = s.ops.new_tensor(s.n, c_.values());
  for (const Scratch each : {kStep, kDecays})
    scratch[each] = s.ops.new_tensor(s.n, c_.n_heads, TensorRole::kLogits);
  return scratch;
}

void Scan::project(Sublayer& s, const ScanWeights& w, const MixerScratch& scratch,
                   const NormedInput& h) const {
  const int values = c_.values(), groups = c_.group_values();
  const Tensor in = scratch[kIn], x = in.columns(0, values), b = in.columns(values, groups),
               c = in.columns(values + groups, groups);
  const LinearTarget z = w.z.into(scratch[kZ]), step = w.step.into(scratch[kStep]);
  const LinearTarget together[] = {z, w.xbc.into(in), step},
                     each[] = {z, w.x.into(x), w.b.into(b), w.c.into(c), step};
  s.ops.norm_linear(s.rounded(h), w.xbc.weight ? std::span<const LinearTarget>(together) : each);
  s.multiply(scratch[kZ], c_.factors.z);
  s.multiply(x, c_.factors.x);
  s.multiply(b, c_.factors.b);
  s.multiply(c, c_.factors.c);
  s.multiply(scratch[kStep], c_.factors.step);
}

void Scan::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h, Tensor x,
                   const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const ScanWeights&>(*layer.mixer);
  const Tensor out = scratch[kOut];
  project(s, w, scratch, h);
  s.ops.causal_conv(scratch[kIn], {w.conv.get(), w.conv_bias.get(), c_.taps, i}, s.cache,
                    scratch[kConvolved]);
  s.ops.activate(scratch[kConvolved], Activation::kSilu);
  StateSpaceParams params;
  params.rate = w.rate.get(), params.bias = w.bias.get(), params.skip = w.skip.get();
  params.n_groups = c_.n_groups, params.n_heads = c_.n_heads;
  params.state_dim = c_.state_dim, params.head_dim = c_.head_dim;
  params.min_step = c_.min_step, params.max_step = c_.max_step;
  params.layer = i, params.state_offset = state_offset();
  s.ops.state_space(scratch[kConvolved], scratch[kStep], scratch[kDecays], params, s.cache, out);
  const float eps = c_.norm_eps > 0 ? c_.norm_eps : s.config.norm.eps;
  const auto norm = [&] {
    const Tensor groups = out.reshaped(c_.values() / c_.n_groups);
    if (c_.norm) s.ops.norm(groups, {w.norm.get(), nullptr, eps}, groups);
  };
  if (c_.norm_before_gate) norm();
  s.ops.activate_mul(scratch[kZ], out, Activation::kSilu, out);
  if (!c_.norm_before_gate) norm();
  s.add_product(out, w.out, x, layer.attn_post_norm, next, c_.factors.out);
}

}  // namespace

std::shared_ptr<const Mixer> scan(const ScanConfig& config) {
  return std::make_shared<Scan>(config);
}

const ScanConfig* scan_config(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* scan = dynamic_cast<const Scan*>(layer.mixer.get())) return &scan->config();
  return nullptr;
}

}  // namespace penstock

#include "model/blocks/delta_net.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct DeltaNetWeights final : MixerWeights {
  LinearWeights qkv;  // queries, keys and values of all heads
  // or separately (decays by key, or a rank's heads)
  LinearWeights q, k, v;
  // [key_dim, model_dim]: low-rank input projections of a and z, or empty
  LinearWeights a_in, z_in;
  LinearWeights z;  // [values, model_dim]: output gates
  // Projections of decays [decays, model_dim] and of write strengths [n_value_heads, model_dim].
  LinearWeights a, b;
  std::unique_ptr<Vector> conv;        // [taps, channels]
  std::unique_ptr<Vector> rate, bias;  // [n_value_heads]; [decays]
  std::unique_ptr<Vector> norm;        // [value_dim]
  LinearWeights out;                   // [model_dim, values]
};

// Maps rows of concatenated queries, keys, values and z to rows of a projection stored by key head;
// the second function does so for b and a.
std::vector<int> qkvz_rows(const DeltaConfig& delta) {
  const int shared = delta.n_value_heads / delta.n_key_heads * delta.value_dim;
  const int each = 2 * delta.key_dim + 2 * shared;
  std::vector<int> rows;
  const auto add = [&](int first, int count) {
    for (int h = 0; h < delta.n_key_heads; ++h) {
      for (int d = 0; d < count; ++d) rows.push_back(h * each + first + d);
    }
  };
  add(0, delta.key_dim);
  add(delta.key_dim, delta.key_dim);
  add(2 * delta.key_dim, shared);
  add(2 * delta.key_dim + shared, shared);
  return rows;
}

std::vector<int> ba_rows(const DeltaConfig& delta) {
  const int shared = delta.n_value_heads / delta.n_key_heads;
  std::vector<int> rows;
  for (const int part : {0, 1}) {
    for (int h = 0; h < delta.n_value_heads; ++h)
      rows.push_back((h / shared * 2 + part) * shared + h % shared);
  }
  return rows;
}

class DeltaNet final : public Mixer {
 public:
  explicit DeltaNet(const DeltaConfig& config) : c_(config) {}
  const DeltaConfig& config() const { return c_; }

  std::string_view name() const override { return "delta network"; }
  int64_t state_values(const ModelConfig&) const override {
    return state_offset() + DeltaParams::state_values(c_.n_value_heads, c_.key_dim, c_.value_dim);
  }
  std::string_view difference(const Mixer& other) const override;
  std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const override {
    DeltaConfig own = c_;
    const ModelCuts::HeadCut cut = own_heads(cuts);
    own.n_value_heads = cut.heads.count, own.n_key_heads = cut.groups.count;
    return std::make_shared<DeltaNet>(own);
  }
  int widest_input(const ModelConfig&) const override { return c_.values(); }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<DeltaNetWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  enum Scratch : uint8_t { kIn, kConvolved, kZ, kOut, kA, kB, kAIn, kZIn };

  // Not cut if adjacent value heads have different key heads.
  ModelCuts::HeadCut own_heads(const ModelCuts& cuts) const {
    const bool whole = c_.key_heads_in_turn && c_.n_value_heads > c_.n_key_heads;
    return whole ? ModelCuts::HeadCut{{0, c_.n_value_heads}, {0, c_.n_key_heads}}
                 : cuts.cut_groups(c_.n_value_heads, c_.n_key_heads);
  }
  // Offset of the matrices in a layer's state: after the convolution's part, rounded up to whole
  // groups.
  int64_t state_offset() const {
    constexpr int64_t kGroup = DeltaParams::kFeatureGroup;
    return ((c_.taps - int64_t{1}) * c_.channels() + kGroup - 1) / kGroup * kGroup;
  }
  GroupedHeads value_heads(int before, int each) const {
    if (c_.decay_by_key || c_.separate) return {};
    return {before, each, c_.n_key_heads, c_.n_value_heads};
  }
  void visit_by_key(TensorVisitor& v, DeltaNetWeights& w) const;
  void visit_by_head(TensorVisitor& v, DeltaNetWeights& w) const;
  void visit_vectors(TensorVisitor& v, DeltaNetWeights& w) const;
  void project(Sublayer& s, const DeltaNetWeights& w, const MixerScratch& scratch,
               const NormedInput& h) const;

  DeltaConfig c_;
};

std::string_view DeltaNet::difference(const Mixer& other) const {
  const auto* net = dynamic_cast<const DeltaNet*>(&other);
  if (net == nullptr) return "mixers";
  const DeltaConfig &a = c_, &b = net->c_;
  if (a.taps != b.taps) return "convolutions";
  return a.n_key_heads == b.n_key_heads && a.n_value_heads == b.n_value_heads &&
                 a.key_dim == b.key_dim && a.value_dim == b.value_dim &&
                 a.decay_by_key == b.decay_by_key && a.sigmoid_gate == b.sigmoid_gate &&
                 a.write_factor == b.write_factor && a.norm_eps == b.norm_eps &&
                 a.lowest_log_decay == b.lowest_log_decay && a.full_rank == b.full_rank
             ? ""
             : "delta networks";
}

// Visits the separate projections of Kimi Delta Attention.
void DeltaNet::visit_by_key(TensorVisitor& v, DeltaNetWeights& w) const {
  const int dim = v.config().model_dim, inner = c_.full_rank ? dim : c_.key_dim, keys = c_.keys(),
            values = c_.values();
  const ModelCuts::HeadCut own = own_heads(v.cuts());
  const Shard::Range own_keys = times(own.groups, c_.key_dim),
                     own_values = times(own.heads, c_.value_dim);
  const WeightRole role = WeightRole::kLatent;
  const Site site = Site::kAttention;
  v.linear({&tensor::kQ, WeightRole::kQ, keys, dim, rows_of(own_keys), site}, w.q);
  v.linear({&tensor::kK, WeightRole::kK, keys, dim, rows_of(own_keys), site}, w.k);
  v.linear({&tensor::kV, WeightRole::kV, values, dim, rows_of(own_values), site}, w.v);
  if (!c_.full_rank) {
    v.linear({&tensor::kDeltaAIn, role, inner, dim, {}, site}, w.a_in);
    v.linear({&tensor::kDeltaZIn, role, inner, dim, {}, site}, w.z_in);
  }
  v.linear({&tensor::kDeltaB, role, c_.n_value_heads, dim, rows_of(own.heads), site}, w.b);
  const Site inner_site = c_.full_rank ? site : Site::kNone;
  v.linear({&tensor::kDeltaA, role, c_.decays(), inner, rows_of(times(own.heads, c_.key_dim)),
            inner_site},
           w.a);
  v.linear({&tensor::kDeltaZ, role, values, inner, rows_of(own_values), inner_site}, w.z);
}

void DeltaNet::visit_by_head(TensorVisitor& v, DeltaNetWeights& w) const {
  const int dim = v.config().model_dim, keys = c_.keys(), values = c_.values(),
            heads = c_.n_value_heads;
  const ModelCuts::HeadCut own = own_heads(v.cuts());
  const Cut own_keys = rows_of(times(own.groups, c_.key_dim)),
            own_values = rows_of(times(own.heads, c_.value_dim));
  const auto rows = [&](const TensorName* name, WeightRole role, int count, Cut cut,
                        GroupedHeads in_heads = {}) {
    return LinearSpec{.name = name,
                      .role = role,
                      .rows = count,
                      .cols = dim,
                      .cut = cut,
                      .site = Site::kAttention,
                      .row_heads = in_heads};
  };
  const WeightRole role = WeightRole::kQkv, small = WeightRole::kLatent;
  const LinearSpec z =
      rows(&tensor::kDeltaZ, small, values, own_values, value_heads(0, c_.value_dim));
  if (c_.separate) {
    v.linear(rows(&tensor::kDeltaQ, WeightRole::kQ, keys, own_keys), w.q);
    v.linear(rows(&tensor::kDeltaK, WeightRole::kK, keys, own_keys), w.k);
    v.linear(rows(&tensor::kDeltaV, WeightRole::kV, values, own_values), w.v);
    v.linear(z, w.z);
    v.linear(rows(&tensor::kDeltaB, small, heads, rows_of(own.heads)), w.b);
    return v.linear(rows(&tensor::kDeltaA, small, heads, rows_of(own.heads)), w.a);
  }
  if (c_.one_projection) {
    const LinearSpec q = rows(kNoName, role, keys, own_keys),
                     b = rows(kNoName, small, heads, rows_of(own.heads));
    return v.joined({.name = &tensor::kDeltaQkvz, .role = role},
                    {{q, &w.q},
                     {q, &w.k},
                     {rows(kNoName, role, values, own_values), &w.v},
                     {rows(kNoName, small, values, own_values), &w.z},
                     {b, &w.b},
                     {b, &w.a}});
  }
  JoinedSpec all{
      .name = &tensor::kDeltaQkvz, .role = role, .order = qkvz_rows(c_), .apart_across = true};
  if (own.heads.count < heads) {
    all.inner = &tensor::kDeltaQkv, all.n_inner = 3;
    v.joined(all, {{rows(kNoName, role, keys, own_keys), &w.q},
                   {rows(kNoName, role, keys, own_keys), &w.k},
                   {rows(kNoName, role, values, own_values), &w.v},
                   {z, &w.z}});
  } else {
    const GroupedHeads of_values = value_heads(2 * keys, c_.value_dim);
    v.joined(all,
             {{rows(&tensor::kDeltaQkv, role, c_.channels(), {}, of_values), &w.qkv}, {z, &w.z}});
  }
  v.joined({.name = &tensor::kDeltaBa, .role = small, .order = ba_rows(c_)},
           {{rows(&tensor::kDeltaB, small, heads, rows_of(own.heads), value_heads(0, 1)), &w.b},
            {rows(&tensor::kDeltaA, small, heads, rows_of(own.heads), value_heads(0, 1)), &w.a}});
}

void DeltaNet::visit_vectors(TensorVisitor& v, DeltaNetWeights& w) const {
  const int keys = c_.keys(), values = c_.values();
  const ModelCuts::HeadCut own = own_heads(v.cuts());
  const Shard::Range own_keys = times(own.groups, c_.key_dim),
                     own_values = times(own.heads, c_.value_dim);
  const bool by_head = !c_.decay_by_key;
  ConvSpec conv{.name = &tensor::kDeltaConv, .channels = {c_.channels()}, .taps = c_.taps};
  conv.heads = value_heads(2 * keys, c_.value_dim);
  if (!by_head || c_.separate) conv.channels = {keys, keys, values}, conv.letters = "qkv";
  conv.own = {own_keys, behind(keys, own_keys), behind(2 * keys, own_values)};
  v.conv(conv, w.conv, nullptr);
  v.vector({.name = &tensor::kDeltaRate,
            .size = c_.n_value_heads,
            .part = own.heads,
            .shape = by_head ? VectorSpec::Shape::kLine : VectorSpec::Shape::kDeepColumn,
            .form = c_.positive_rates ? VectorSpec::Form::kPositiveRate : VectorSpec::Form::kRate,
            .heads = value_heads(0, 1)},
           w.rate);
  v.vector({.name = &tensor::kDeltaBias,
            .size = c_.decays(),
            .part = times(own.heads, c_.decays() / c_.n_value_heads),
            .heads = value_heads(0, 1)},
           w.bias);
  v.vector({.name = &tensor::kDeltaNorm,
            .size = c_.value_dim,
            .part = {0, c_.value_dim},
            .suffix = ".weight"},
           w.norm);
}

void DeltaNet::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<DeltaNetWeights&>(weights);
  if (c_.decay_by_key) visit_by_key(v, w);
  if (!c_.decay_by_key) visit_by_head(v, w);
  visit_vectors(v, w);
  v.linear({.name = &tensor::kDeltaOut,
            .role = WeightRole::kLatent,
            .rows = v.config().model_dim,
            .cols = c_.values(),
            .cut = columns_of(times(own_heads(v.cuts()).heads, c_.value_dim)),
            .site = Site::kAttentionOut,
            .col_heads = {0, c_.value_dim, c_.n_key_heads, c_.n_value_heads}},
           w.out);
}

// Scratch: input and output of the convolution [n, channels]; gates and output [n, values]; [n,
// decays] and [n, n_value_heads]; inputs of decays and gates by key [n, key_dim].
MixerScratch DeltaNet::scratch(Sublayer& s) const {
  MixerScratch scratch;
  for (const Scratch each : {kIn, kConvolved}) scratch[each] = s.ops.new_tensor(s.n, c_.channels());
  for (const Scratch each : {kZ, kOut}) scratch[each] = s.ops.new_tensor(s.n, c_.values());
  scratch[kA] = s.ops.new_tensor(s.n, c_.decays(), TensorRole::kLogits);
  scratch[kB] = s.ops.new_tensor(s.n, c_.n_value_heads, TensorRole::kLogits);
  if (!c_.decay_by_key || c_.full_rank) return scratch;
  for (const Scratch each : {kAIn, kZIn}) scratch[each] = s.ops.new_tensor(s.n, c_.key_dim);
  return scratch;
}

// Projects the input of the convolution, decays, write strengths and gates from h.
void DeltaNet::project(Sublayer& s, const DeltaNetWeights& w, const MixerScratch& scratch,
                       const NormedInput& h) const {
  const int keys = c_.keys();
  const Tensor in = scratch[kIn], q = in.columns(0, keys), k = in.columns(keys, keys),
               v = in.columns(2 * keys, c_.values());
  if (!c_.decay_by_key) {
    const LinearTarget rest[] = {w.z.into(scratch[kZ]), w.a.into(scratch[kA]),
                                 w.b.into(scratch[kB])};
    if (w.qkv.weight) {
      const LinearTarget all[] = {w.qkv.into(in), rest[0], rest[1], rest[2]};
      return s.ops.norm_linear(s.rounded(h), all);
    }
    const LinearTarget all[] = {w.q.into(q), w.k.into(k), w.v.into(v), rest[0], rest[1], rest[2]};
    return s.ops.norm_linear(s.rounded(h), all);
  }
  const LinearTarget decays = w.a.into(scratch[kA]), gates = w.z.into(scratch[kZ]);
  if (c_.full_rank) {
    const LinearTarget all[] = {w.q.into(q), w.k.into(k), w.v.into(v),
                                decays,      gates,       w.b.into(scratch[kB])};
    return s.ops.norm_linear(s.rounded(h), all);
  }
  const LinearTarget projections[] = {w.q.into(q),
                                      w.k.into(k),
                                      w.v.into(v),
                                      w.a_in.into(scratch[kAIn]),
                                      w.z_in.into(scratch[kZIn]),
                                      w.b.into(scratch[kB])};
  s.ops.norm_linear(s.rounded(h), projections);
  s.ops.linear(scratch[kAIn], {&decays, 1});
  s.ops.linear(scratch[kZIn], {&gates, 1});
}

void DeltaNet::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h,
                       Tensor x, const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const auto& w = static_cast<const DeltaNetWeights&>(*layer.mixer);
  const Tensor out = scratch[kOut];
  project(s, w, scratch, h);
  s.ops.causal_conv(scratch[kIn], {w.conv.get(), nullptr, c_.taps, i}, s.cache,
                    scratch[kConvolved]);
  s.ops.activate(scratch[kConvolved], s.config.ffn.activation);
  const DeltaParams params{w.rate.get(),         w.bias.get(),    c_.n_key_heads,
                           c_.n_value_heads,     c_.key_dim,      c_.value_dim,
                           c_.key_heads_in_turn, c_.decay_by_key, i,
                           state_offset(),       c_.write_factor, c_.lowest_log_decay};
  s.ops.gated_delta(scratch[kConvolved], scratch[kA], scratch[kB], params, s.cache, out);
  const Tensor heads = out.reshaped(c_.value_dim);
  const float eps = c_.norm_eps > 0 ? c_.norm_eps : s.config.norm.eps;
  s.ops.norm(heads, {w.norm.get(), nullptr, eps}, heads);
  s.ops.activate_mul(scratch[kZ], out,
                     c_.decay_by_key || c_.sigmoid_gate ? Activation::kSigmoid : Activation::kSilu,
                     out);
  s.add_product(out, w.out, x, layer.attn_post_norm, next);
}

}  // namespace

std::shared_ptr<const Mixer> delta_net(const DeltaConfig& config) {
  return std::make_shared<DeltaNet>(config);
}

const DeltaConfig* delta_config(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* net = dynamic_cast<const DeltaNet*>(layer.mixer.get())) return &net->config();
  return nullptr;
}

}  // namespace penstock

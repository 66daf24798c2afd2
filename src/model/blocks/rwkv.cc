#include "model/blocks/rwkv.h"

#include <array>
#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

// A product of low rank, up f(down x).
struct LowRank {
  LinearWeights down, up;
};

// The inputs of r, w, k, v, a and g.
enum Input : uint8_t { kR, kW, kK, kV, kA, kG, kNumInputs };

struct RwkvWeights final : MixerWeights {
  // Token shifts [2, model_dim], of 7; of 6 shares that are learned for each token.
  std::array<std::unique_ptr<Vector>, kNumInputs> shifts;
  std::unique_ptr<Vector> share, shares;  // [model_dim], [5 * model_dim]: w, k, v, r, g
  std::unique_ptr<Vector> difference;     // [2, model_dim]: the token before less the token
  LinearWeights shares_down;              // [5 * share_rank, model_dim]
  ByHead shares_up;                       // [5], [model_dim, share_rank] each
  LinearWeights r, k, v, g, out;          // [model_dim, model_dim]; g of 6
  LowRank decay, rate, first, gate;       // the last three of 7
  std::unique_ptr<Vector> decay_base, rate_base, first_base;  // [model_dim]
  std::unique_ptr<Vector> removed, kept;                      // [model_dim], of 7
  std::unique_ptr<Vector> bonus;                              // [model_dim]
  NormWeights head_norm, ffn_norm;                            // [model_dim]
  std::unique_ptr<Vector> ffn_shift_k, ffn_shift_r;           // [2, model_dim]; the second of 6
  LinearWeights ffn_k, ffn_v, ffn_r;  // [ffn_dim, model_dim], back, [model_dim, model_dim] of 6
};

constexpr int kNumShares = 5;

class Rwkv final : public Mixer {
 public:
  explicit Rwkv(const RwkvConfig& config) : c_(config) {}
  const RwkvConfig& config() const { return c_; }

  std::string_view name() const override { return "RWKV"; }
  int64_t state_values(const ModelConfig& config) const override {
    return matrix_values() + int64_t{n_shifts()} * config.model_dim;
  }
  std::string_view difference(const Mixer& other) const override {
    const auto* same = dynamic_cast<const Rwkv*>(&other);
    if (same == nullptr) return "mixers";
    return same->c_ == c_ ? "" : "sizes of RWKV";
  }
  std::shared_ptr<const Mixer> of_rank(const ModelCuts&) const override { return rwkv(c_); }
  bool needs_all() const override { return true; }
  int widest_input(const ModelConfig& config) const override {
    return std::max(c_.ffn_dim, config.model_dim);
  }
  std::unique_ptr<MixerWeights> empty_weights() const override {
    return std::make_unique<RwkvWeights>();
  }
  void visit(TensorVisitor& v, MixerWeights& weights) const override;
  MixerScratch scratch(Sublayer& s) const override;
  void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
               const NormedInput* next) const override;

 private:
  // kRemovals and kOut have rows of heads.
  enum Scratch : uint8_t { kNormed, kMixed, kParts, kRemovals, kOut, kLow, kHidden };
  // Columns of kParts, model_dim each.
  enum Part : uint8_t {
    kPartR,
    kPartW,
    kPartK,
    kPartV,
    kPartG,
    kPartRate,
    kPartRemoved,
    kPartBonus,
    kPartOther,
    kNumParts
  };
  enum class Low : uint8_t { kPlain, kTanh, kSigmoid };
  // One step of one layer.
  struct Step {
    Sublayer& s;
    const RwkvWeights& w;
    const MixerScratch& scratch;
    int layer;
    Tensor part(Part which) const { return columns(kParts, which); }
    Tensor mixed(int which) const { return columns(kMixed, which); }
    Tensor columns(Scratch of, int which) const {
      const int dim = s.config.model_dim;
      return scratch[of].columns(which * dim, dim);
    }
  };

  bool is_6() const { return c_.version == 6; }
  int64_t matrix_values() const { return int64_t{c_.n_heads} * c_.head_dim * c_.head_dim; }
  int n_shifts() const { return is_6() ? 3 : kNumInputs + 1; }
  int widest_rank() const {
    return std::max(
        {kNumShares * c_.share_rank, c_.decay_rank, c_.rate_rank, c_.first_rank, c_.gate_rank});
  }
  void visit_6(TensorVisitor& v, RwkvWeights& w) const;
  void visit_7(TensorVisitor& v, RwkvWeights& w) const;
  void shift(const Step& step, const Vector& taps, int index, Tensor to) const;
  void low_rank(const Step& step, Tensor in, const LowRank& w, Low f, Tensor out) const;
  void mix_6(const Step& step) const;
  void mix_7(const Step& step) const;
  void add_first_values(const Step& step) const;
  void remove_and_keep(const Step& step) const;
  void time_mix(const Step& step, const NormWeights& post, Tensor x) const;
  void channel_mix(const Step& step, Tensor x) const;

  RwkvConfig c_;
};

void visit_matrix(TensorVisitor& v, const TensorName& name, WeightRole role, int rows, int cols,
                  LinearWeights& w) {
  v.linear({&name, role, rows, cols}, w);
}

void visit_vector(TensorVisitor& v, const TensorName& name, int size, std::unique_ptr<Vector>& w) {
  v.vector({.name = &name, .size = size, .part = {0, size}, .shape = VectorSpec::Shape::kDeepRow},
           w);
}

// inputs_first: in directories.
void visit_low_rank(TensorVisitor& v, const TensorName& down, const TensorName& up, int rank,
                    bool inputs_first, LowRank& w) {
  const int dim = v.config().model_dim;
  const auto one = [&](const TensorName& name, int rows, int cols, LinearWeights& into) {
    v.linear({.name = &name,
              .role = WeightRole::kRouter,
              .rows = rows,
              .cols = cols,
              .bare = true,
              .inputs_first = inputs_first},
             into);
  };
  one(down, rank, dim, w.down);
  one(up, dim, rank, w.up);
}

void Rwkv::visit_6(TensorVisitor& v, RwkvWeights& w) const {
  const int dim = v.config().model_dim;
  visit_vector(v, tensor::kRwkvShareX, dim, w.share);
  v.token_shifts({&tensor::kRwkvShares,
                  {&tensor::kRwkvShareW, &tensor::kRwkvShareK, &tensor::kRwkvShareV,
                   &tensor::kRwkvShareR, &tensor::kRwkvShareG},
                  dim},
                 {}, &w.shares);
  std::vector<float> difference(2 * static_cast<size_t>(dim), 1.0f);
  std::fill_n(difference.begin() + dim, dim, -1.0f);
  v.constants(std::move(difference), w.difference);
  v.linear({.name = &tensor::kRwkvShareDown,
            .role = WeightRole::kRouter,
            .rows = kNumShares * c_.share_rank,
            .cols = dim,
            .bare = true,
            .inputs_first = true},
           w.shares_down);
  v.diagonal({.name = &tensor::kRwkvShareUp,
              .role = WeightRole::kRouter,
              .rows = kNumShares * dim,
              .cols = c_.share_rank,
              .bare = true,
              .inputs_first = true},
             kNumShares, w.shares_up);
  visit_matrix(v, tensor::kRwkvG, WeightRole::kLatent, dim, dim, w.g);
  visit_vector(v, tensor::kRwkvDecay, dim, w.decay_base);
  visit_low_rank(v, tensor::kRwkvDecayDown, tensor::kRwkvDecayUp, c_.decay_rank, true, w.decay);
  std::unique_ptr<Vector>* const of_r[] = {&w.ffn_shift_r};
  v.token_shifts({&tensor::kRwkvFfnShareR, {&tensor::kRwkvFfnShareR}, dim}, of_r, nullptr);
  visit_matrix(v, tensor::kRwkvFfnR, WeightRole::kLatent, dim, dim, w.ffn_r);
}

void Rwkv::visit_7(TensorVisitor& v, RwkvWeights& w) const {
  const int dim = v.config().model_dim;
  std::array<std::unique_ptr<Vector>*, kNumInputs> shifts;
  for (size_t i = 0; i < kNumInputs; ++i) shifts[i] = &w.shifts[i];
  v.token_shifts({&tensor::kRwkvShares,
                  {&tensor::kRwkvShareR, &tensor::kRwkvShareW, &tensor::kRwkvShareK,
                   &tensor::kRwkvShareV, &tensor::kRwkvShareA, &tensor::kRwkvShareG},
                  dim},
                 shifts, nullptr);
  visit_vector(v, tensor::kRwkvDecay, dim, w.decay_base);
  visit_low_rank(v, tensor::kRwkvDecayDown, tensor::kRwkvDecayUp, c_.decay_rank, false, w.decay);
  visit_vector(v, tensor::kRwkvRate, dim, w.rate_base);
  visit_low_rank(v, tensor::kRwkvRateDown, tensor::kRwkvRateUp, c_.rate_rank, false, w.rate);
  if (v.layer() > 0) {
    visit_vector(v, tensor::kRwkvFirst, dim, w.first_base);
    visit_low_rank(v, tensor::kRwkvFirstDown, tensor::kRwkvFirstUp, c_.first_rank, false, w.first);
  } else {
    for (const TensorName* name :
         {&tensor::kRwkvNoFirst, &tensor::kRwkvNoFirstDown, &tensor::kRwkvNoFirstUp})
      v.unused(name);
  }
  visit_low_rank(v, tensor::kRwkvGateDown, tensor::kRwkvGateUp, c_.gate_rank, false, w.gate);
  visit_vector(v, tensor::kRwkvRemoved, dim, w.removed);
  visit_vector(v, tensor::kRwkvKept, dim, w.kept);
}

void Rwkv::visit(TensorVisitor& v, MixerWeights& weights) const {
  auto& w = static_cast<RwkvWeights&>(weights);
  const int dim = v.config().model_dim;
  is_6() ? visit_6(v, w) : visit_7(v, w);
  visit_matrix(v, tensor::kRwkvR, WeightRole::kQ, dim, dim, w.r);
  visit_matrix(v, tensor::kRwkvK, WeightRole::kK, dim, dim, w.k);
  visit_matrix(v, tensor::kRwkvV, WeightRole::kV, dim, dim, w.v);
  visit_matrix(v, tensor::kRwkvOut, WeightRole::kO, dim, dim, w.out);
  v.vector({.name = &tensor::kRwkvBonus,
            .size = dim,
            .part = {0, dim},
            .shape = VectorSpec::Shape::kMatrix,
            .per_row = c_.head_dim},
           w.bonus);
  v.norm({&tensor::kRwkvHeadNorm, dim}, w.head_norm);
  v.norm({&tensor::kRwkvFfnNorm, dim}, w.ffn_norm);
  std::unique_ptr<Vector>* const of_k[] = {&w.ffn_shift_k};
  v.token_shifts({&tensor::kRwkvFfnShareK, {&tensor::kRwkvFfnShareK}, dim}, of_k, nullptr);
  visit_matrix(v, tensor::kRwkvFfnK, WeightRole::kGateUp, c_.ffn_dim, dim, w.ffn_k);
  visit_matrix(v, tensor::kRwkvFfnV, WeightRole::kDown, dim, c_.ffn_dim, w.ffn_v);
}

MixerScratch Rwkv::scratch(Sublayer& s) const {
  const int dim = s.config.model_dim;
  MixerScratch scratch;
  scratch[kNormed] = s.ops.new_tensor(s.n, dim);
  scratch[kMixed] = s.ops.new_tensor(s.n, (is_6() ? int{kNumShares} : int{kNumInputs}) * dim);
  scratch[kParts] = s.ops.new_tensor(s.n, kNumParts * dim);
  for (const Scratch each : {kRemovals, kOut}) scratch[each] = s.ops.new_tensor(s.n, dim);
  scratch[kLow] = s.ops.new_tensor(s.n, widest_rank());
  scratch[kHidden] = s.ops.new_tensor(s.n, c_.ffn_dim);
  return scratch;
}

// to = a mixture of kNormed and that of the token before. index: of the shift in the state.
void Rwkv::shift(const Step& step, const Vector& taps, int index, Tensor to) const {
  const int64_t offset = matrix_values() + int64_t{index} * step.s.config.model_dim;
  step.s.ops.causal_conv(step.scratch[kNormed], {&taps, nullptr, 2, step.layer, offset},
                         step.s.cache, to);
}

// out = up f(down in).
void Rwkv::low_rank(const Step& step, Tensor in, const LowRank& w, Low f, Tensor out) const {
  Ops& ops = step.s.ops;
  const Tensor low = step.scratch[kLow].narrowed(w.down.weight->rows());
  const LinearTarget down = w.down.into(low), up = w.up.into(out);
  ops.linear(in, {&down, 1});
  if (f == Low::kTanh) ops.scale(low, 1.0f, 1.0f);
  if (f == Low::kSigmoid) ops.activate(low, Activation::kSigmoid);
  ops.linear(low, {&up, 1});
}

void project(Ops& ops, Tensor in, const LinearWeights& w, Tensor out) {
  const LinearTarget target = w.into(out);
  ops.linear(in, {&target, 1});
}

// The parts of 6: each input has shares of its own, which are learned for each token.
void Rwkv::mix_6(const Step& step) const {
  enum Place : uint8_t { kOfW, kOfK, kOfV, kOfR, kOfG };
  Ops& ops = step.s.ops;
  const RwkvWeights& w = step.w;
  const int dim = step.s.config.model_dim;
  const Tensor x = step.scratch[kNormed], change = step.part(kPartOther),
               mean = step.part(kPartRemoved), all = step.scratch[kMixed],
               low = step.scratch[kLow].narrowed(kNumShares * c_.share_rank);
  shift(step, *w.difference, 0, change);
  ops.copy(change, mean);
  ops.scale_columns(mean, *w.share);
  ops.add(mean, x, 1.0f);
  project(ops, mean, w.shares_down, low);
  ops.scale(low, 1.0f, 1.0f);  // tanh
  ops.linear_by_head(low.reshaped(c_.share_rank), w.shares_up, all.reshaped(dim));
  ops.add_columns(all, *w.shares);
  for (int i = 0; i < kNumShares; ++i) {
    ops.multiply(step.mixed(i), change);
    ops.add(step.mixed(i), x, 1.0f);
  }
  project(ops, step.mixed(kOfR), w.r, step.part(kPartR));
  project(ops, step.mixed(kOfK), w.k, step.part(kPartK));
  project(ops, step.mixed(kOfV), w.v, step.part(kPartV));
  project(ops, step.mixed(kOfG), w.g, step.part(kPartG));
  ops.activate(step.part(kPartG), Activation::kSilu);
  low_rank(step, step.mixed(kOfW), w.decay, Low::kTanh, step.part(kPartW));
}

void Rwkv::mix_7(const Step& step) const {
  Ops& ops = step.s.ops;
  const RwkvWeights& w = step.w;
  for (int i = 0; i < kNumInputs; ++i)
    shift(step, *w.shifts[static_cast<size_t>(i)], i, step.mixed(i));
  project(ops, step.mixed(kR), w.r, step.part(kPartR));
  project(ops, step.mixed(kK), w.k, step.part(kPartK));
  project(ops, step.mixed(kV), w.v, step.part(kPartV));
  low_rank(step, step.mixed(kW), w.decay, Low::kTanh, step.part(kPartW));
  low_rank(step, step.mixed(kA), w.rate, Low::kPlain, step.part(kPartRate));
  ops.add_columns(step.part(kPartRate), *w.rate_base);
  ops.activate(step.part(kPartRate), Activation::kSigmoid);
  low_rank(step, step.mixed(kG), w.gate, Low::kSigmoid, step.part(kPartG));
  add_first_values(step);
  remove_and_keep(step);
}

// v = v + share (the first layer's v - v).
void Rwkv::add_first_values(const Step& step) const {
  Ops& ops = step.s.ops;
  const Tensor v = step.part(kPartV), first = step.s.carried, share = step.part(kPartRemoved),
               change = step.part(kPartOther);
  if (step.layer == 0) return ops.copy(v, first);
  low_rank(step, step.mixed(kV), step.w.first, Low::kPlain, share);
  ops.add_columns(share, *step.w.first_base);
  ops.activate(share, Activation::kSigmoid);
  ops.copy(first, change);
  ops.add(change, v, -1.0f);
  ops.multiply(change, share);
  ops.add(v, change, 1.0f);
}

// kRemovals = -u, kPartRemoved = rate u, where u is k removed, of unit length by head; k = k (1 + kept
// (rate - 1)).
void Rwkv::remove_and_keep(const Step& step) const {
  constexpr float kLeastSquare = 1e-24f;
  Ops& ops = step.s.ops;
  const Tensor k = step.part(kPartK), rate = step.part(kPartRate), unit = step.scratch[kRemovals],
               removed = step.part(kPartRemoved), kept = step.part(kPartOther);
  ops.copy(k, unit);
  ops.scale_columns(unit, *step.w.removed);
  const Tensor heads = unit.reshaped(c_.head_dim);
  ops.norm(heads, {nullptr, nullptr, kLeastSquare}, heads);
  ops.scale(unit, -1.0f / std::sqrt(static_cast<float>(c_.head_dim)), 0.0f);
  ops.copy(unit, removed);
  ops.multiply(removed, rate);
  ops.scale(removed, -1.0f, 0.0f);
  ops.copy(k, kept);
  ops.scale_columns(kept, *step.w.kept);
  ops.add(k, kept, -1.0f);
  ops.multiply(kept, rate);
  ops.add(k, kept, 1.0f);
}

void Rwkv::time_mix(const Step& step, const NormWeights& post, Tensor x) const {
  Sublayer& s = step.s;
  const RwkvWeights& w = step.w;
  const Tensor out = step.scratch[kOut], bonus = step.part(kPartBonus),
               heads = out.reshaped(c_.head_dim);
  is_6() ? mix_6(step) : mix_7(step);
  s.ops.add_columns(step.part(kPartW), *w.decay_base);
  WkvTensors tensors{step.part(kPartR),
                     step.part(kPartW),
                     step.part(kPartK),
                     step.part(kPartV),
                     {},
                     {},
                     out,
                     bonus};
  if (!is_6()) tensors.a = step.scratch[kRemovals], tensors.b = step.part(kPartRemoved);
  s.ops.wkv(tensors, {w.bonus.get(), c_.n_heads, c_.head_dim, is_6(), !is_6(), step.layer},
            s.cache);
  if (is_6()) s.ops.add(out, bonus, 1.0f);
  s.ops.norm(heads, {nullptr, nullptr, c_.head_eps, true}, heads);
  s.ops.scale_columns(out, *w.head_norm.weight);
  s.ops.add_columns(out, *w.head_norm.bias);
  if (!is_6()) s.ops.add(out, bonus, 1.0f);
  s.ops.multiply(out, step.part(kPartG));
  s.add_product(out, w.out, x, post, nullptr);
}

void Rwkv::channel_mix(const Step& step, Tensor x) const {
  Sublayer& s = step.s;
  const RwkvWeights& w = step.w;
  const Tensor hidden = step.scratch[kHidden], out = step.scratch[kOut];
  s.ops.norm(x, norm_params(s.config, w.ffn_norm), step.scratch[kNormed]);
  shift(step, *w.ffn_shift_k, is_6() ? 1 : int{kNumInputs}, step.mixed(0));
  project(s.ops, step.mixed(0), w.ffn_k, hidden);
  s.ops.activate(hidden, Activation::kRelu2);
  if (!is_6()) return s.add_product(hidden, w.ffn_v, x, {}, nullptr);
  const Tensor gates = step.part(kPartR);
  shift(step, *w.ffn_shift_r, 2, step.mixed(1));
  project(s.ops, step.mixed(1), w.ffn_r, gates);
  project(s.ops, hidden, w.ffn_v, out);
  s.ops.activate_mul(gates, out, Activation::kSigmoid, out);
  s.ops.add(x, out, 1.0f);
}

void Rwkv::forward(Sublayer& s, const MixerScratch& scratch, int i, const NormedInput& h, Tensor x,
                   const NormedInput* next) const {
  const LayerWeights& layer = s.weights.layers[static_cast<size_t>(i)];
  const Step step{s, static_cast<const RwkvWeights&>(*layer.mixer), scratch, i};
  s.ops.copy(s.ops.materialize(h), scratch[kNormed]);
  time_mix(step, layer.attn_post_norm, x);
  channel_mix(step, x);
  if (c_.halve_every > 0 && (i + 1) % c_.halve_every == 0) s.ops.scale(x, 0.5f, 0.0f);
  if (next != nullptr) s.ops.prepare(*next);
}

}  // namespace

std::shared_ptr<const Mixer> rwkv(const RwkvConfig& config) {
  return std::make_shared<Rwkv>(config);
}

const RwkvConfig* rwkv_config(const ModelConfig& config) {
  const auto* mixer = dynamic_cast<const Rwkv*>(config.layers[0].mixer.get());
  return mixer == nullptr ? nullptr : &mixer->config();
}

}  // namespace penstock

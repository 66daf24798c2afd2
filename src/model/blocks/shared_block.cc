#include "model/blocks/shared_block.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <deque>

#include "model/blocks/weights.h"

namespace penstock {
namespace {

// Names of the adapters of one use: of q, k, v, and of gates and values.
using AdapterNames = std::array<std::array<TensorName, 2>, 4>;

const AdapterNames& names_of(int use) {
  static const std::deque<AdapterNames> kAll = [] {
    constexpr int kMostUses = 1024;
    static std::deque<std::string> texts;  // which the names refer to
    std::deque<AdapterNames> all;
    for (int u = 0; u < kMostUses; ++u) {
      AdapterNames& names = all.emplace_back();
      for (size_t part = 0; part < names.size(); ++part) {
        static constexpr const char* kParts[] = {"self_attn.linear_q", "self_attn.linear_k",
                                                 "self_attn.linear_v", "feed_forward.gate_up_proj"};
        for (size_t step = 0; step < 2; ++step) {
          const std::string& gguf =
              texts.emplace_back(fmt::format("shared_{}_{}_{}", part, step, u));
          const std::string& hf = texts.emplace_back(
              fmt::format("shared_transformer.{}_adapter_list.{}.{}", kParts[part], u, step));
          names[part][step] = {gguf, hf};
        }
      }
    }
    return all;
  }();
  return kAll[static_cast<size_t>(use)];
}

LinearSpec plain(const TensorName* name, WeightRole role, int rows, int cols,
                 Site site = Site::kNone) {
  return {name, role, rows, cols, {}, site};
}

void visit_adapters(TensorVisitor& v, int use, SharedAdapters& w) {
  const ModelConfig& c = v.config();
  const int wide = 2 * c.model_dim, kv = c.n_kv_heads * c.head_dim, rank = c.shared.rank;
  const AdapterNames& names = names_of(use);
  const auto both = [&](size_t part, int rows, int cols, LowRankWeights& to) {
    v.linear(plain(&names[part][0], WeightRole::kLatent, rank, cols), to.in);
    v.linear(plain(&names[part][1], WeightRole::kLatent, rows, rank), to.out);
  };
  if (c.shared.adapts_attention) {
    both(0, c.n_heads * c.head_dim, wide, w.q);
    both(1, kv, wide, w.k);
    both(2, kv, wide, w.v);
  }
  both(3, 2 * c.shared.ffn_dim, c.model_dim, w.gate_up);
}

}  // namespace

int use_of_shared(const ModelConfig& config, int layer) {
  return static_cast<int>(
      std::count_if(config.layers.begin(), config.layers.begin() + layer,
                    [](const LayerConfig& other) { return other.shared_layer >= 0; }));
}

void visit(TensorVisitor& v, SharedWeights& w) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), dim = c.model_dim, q = c.n_heads * c.head_dim,
            kv = c.n_kv_heads * c.head_dim, ffn = c.shared.ffn_dim;
  v.linear(plain(&tensor::kCommonResult, WeightRole::kOther, dim, dim), w.result);
  if (c.layers[static_cast<size_t>(i)].shared_layer != i) return v.unused(&tensor::kCommonAgain);
  v.norm({&tensor::kCommonNorm, 2 * dim}, w.norm);
  v.linear(plain(&tensor::kCommonQ, WeightRole::kQ, q, 2 * dim), w.q);
  v.linear(plain(&tensor::kCommonK, WeightRole::kK, kv, 2 * dim), w.k);
  v.linear(plain(&tensor::kCommonV, WeightRole::kV, kv, 2 * dim), w.v);
  v.linear(plain(&tensor::kCommonO, WeightRole::kO, dim, q), w.o);
  v.norm({&tensor::kCommonFfnNorm, dim}, w.ffn_norm);
  v.linear(plain(&tensor::kCommonGateUp, WeightRole::kGateUp, 2 * ffn, dim), w.gate_up);
  v.linear(plain(&tensor::kCommonDown, WeightRole::kDown, dim, ffn), w.down);
  w.adapters.resize(static_cast<size_t>(use_of_shared(c, c.n_layers)));
  for (int other = i; other < c.n_layers; ++other) {
    if (c.layers[static_cast<size_t>(other)].shared_layer != i) continue;
    const int use = use_of_shared(c, other);
    visit_adapters(v, use, w.adapters[static_cast<size_t>(use)]);
  }
}

SharedBlock::SharedBlock(Sublayer& sublayer, Tensor first) : s_(sublayer), first_(first) {
  const ModelConfig& c = s_.config;
  const int q = c.n_heads * c.head_dim, kv = c.n_kv_heads * c.head_dim, ffn = c.shared.ffn_dim;
  wide_ = s_.ops.new_tensor(s_.n, 2 * c.model_dim);
  for (Tensor* each : {&q_, &attended_}) *each = s_.ops.new_tensor(s_.n, q);
  for (Tensor* each : {&k_, &v_}) *each = s_.ops.new_tensor(s_.n, kv);
  low_ = s_.ops.new_tensor(s_.n, c.shared.rank);
  added_ = s_.ops.new_tensor(s_.n, std::max({q, kv, 2 * ffn}));
  for (Tensor* each : {&inner_, &sum_}) *each = s_.ops.new_tensor(s_.n, c.model_dim);
  gate_up_ = s_.ops.new_tensor(s_.n, 2 * ffn);
  ffn_ = s_.ops.new_tensor(s_.n, ffn);
}

// out += adapter(in)
void SharedBlock::adapt(const LowRankWeights& adapter, Tensor in, Tensor out) {
  const Tensor added = added_.narrowed(out.cols);
  const LinearTarget low = adapter.in.into(low_), high = adapter.out.into(added);
  s_.ops.linear(in, {&low, 1});
  s_.ops.linear(low_, {&high, 1});
  s_.ops.add(out, added, 1.0f);
}

// inner_ = attention(wide_)
void SharedBlock::attend(int i, const SharedWeights& w, const SharedAdapters& adapters) {
  const LinearTarget all[] = {w.q.into(q_), w.k.into(k_), w.v.into(v_)};
  s_.ops.linear(wide_, all);
  if (s_.config.shared.adapts_attention) {
    adapt(adapters.q, wide_, q_);
    adapt(adapters.k, wide_, k_);
    adapt(adapters.v, wide_, v_);
  }
  const int rope = s_.config.layers[static_cast<size_t>(i)].rope;
  const AttentionParams params{
      .layer = i, .n_heads = s_.config.n_heads, .scale = s_.config.attention.scale};
  s_.ops.store_and_attend(q_, k_, v_,
                          rope < 0 ? nullptr : &s_.weights.ropes[static_cast<size_t>(rope)],
                          s_.cache, params, attended_);
  const LinearTarget out = w.o.into(inner_);
  s_.ops.linear(attended_, {&out, 1});
}

// inner_ = feed-forward(inner_)
void SharedBlock::feed(const SharedWeights& w, const SharedAdapters& adapters) {
  const LinearTarget both = w.gate_up.into(gate_up_), out = w.down.into(inner_);
  s_.ops.linear(inner_, {&both, 1});
  adapt(adapters.gate_up, inner_, gate_up_);
  s_.ops.activate_mul(gate_up_.columns(0, ffn_.cols), gate_up_.columns(ffn_.cols, ffn_.cols),
                      s_.config.ffn.activation, ffn_);
  s_.ops.linear(ffn_, {&out, 1});
}

Tensor SharedBlock::forward(int i, Tensor x) {
  const ModelConfig& c = s_.config;
  const auto of = [&](int layer) -> const SharedWeights& {
    return s_.weights.layers[static_cast<size_t>(layer)].shared;
  };
  const SharedWeights& w = of(c.layers[static_cast<size_t>(i)].shared_layer);
  const SharedAdapters& adapters = w.adapters[static_cast<size_t>(use_of_shared(c, i))];
  s_.ops.copy(x, wide_.columns(0, x.cols));
  s_.ops.copy(first_, wide_.columns(x.cols, x.cols));
  s_.ops.norm(wide_, norm_params(c, w.norm), wide_);
  attend(i, w, adapters);
  s_.ops.norm(inner_, norm_params(c, w.ffn_norm), inner_);
  feed(w, adapters);
  const LinearTarget result = of(i).result.into(sum_);
  s_.ops.linear(inner_, {&result, 1});
  s_.ops.add(sum_, x, 1.0f);
  return sum_;
}

}  // namespace penstock

// RWKV 6 (Finch, arXiv 2404.05892) and 7 (Goose, arXiv 2503.14456): layers without attention whose
// inputs are mixtures of a token's and the one before it (token shifts). Both halves of a layer carry a
// state, so that the mixer computes the whole layer:
//   x += output(g * (norm(wkv(r, w, k, v)) + bonus)), of token shifts of norm(x);
//   x += value(relu(key s)^2), of a token shift s of another norm(x); in 6 times a sigmoid.
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
// kRwkv...Shift..., kRwkvShare..., vectors and the matrices of low rank are whole names in directories;
// so are vectors in GGUF files.
inline constexpr TensorName kRwkvShares{"time_mix_lerp_fused.weight", "attn.x_x"};
inline constexpr TensorName kRwkvShareR{"time_mix_lerp_r.weight", "attn.x_r"};
inline constexpr TensorName kRwkvShareW{"time_mix_lerp_w.weight", "attn.x_w"};
inline constexpr TensorName kRwkvShareK{"time_mix_lerp_k.weight", "attn.x_k"};
inline constexpr TensorName kRwkvShareV{"time_mix_lerp_v.weight", "attn.x_v"};
inline constexpr TensorName kRwkvShareA{"time_mix_lerp_a.weight", "attn.x_a"};
inline constexpr TensorName kRwkvShareG{"time_mix_lerp_g.weight", "attn.x_g"};
inline constexpr TensorName kRwkvShareX{"time_mix_lerp_x.weight", "attention.time_maa_x"};
inline constexpr TensorName kRwkvShareDown{"time_mix_w1", "attention.time_maa_w1"};
inline constexpr TensorName kRwkvShareUp{"time_mix_w2", "attention.time_maa_w2"};
inline constexpr TensorName kRwkvR{"time_mix_receptance", "attn.r_proj"};
inline constexpr TensorName kRwkvK{"time_mix_key", "attn.k_proj"};
inline constexpr TensorName kRwkvV{"time_mix_value", "attn.v_proj"};
inline constexpr TensorName kRwkvG{"time_mix_gate", "attention.gate"};
inline constexpr TensorName kRwkvOut{"time_mix_output", "attn.o_proj"};
inline constexpr TensorName kRwkvDecay{"time_mix_w0.weight", "attn.w_lora.lora.2.bias"};
inline constexpr TensorName kRwkvDecayDown{"time_mix_w1", "attn.w_lora.lora.0.weight"};
inline constexpr TensorName kRwkvDecayUp{"time_mix_w2", "attn.w_lora.lora.2.weight"};
inline constexpr TensorName kRwkvRate{"time_mix_a0.weight", "attn.a_lora.lora.2.bias"};
inline constexpr TensorName kRwkvRateDown{"time_mix_a1", "attn.a_lora.lora.0.weight"};
inline constexpr TensorName kRwkvRateUp{"time_mix_a2", "attn.a_lora.lora.2.weight"};
inline constexpr TensorName kRwkvFirst{"time_mix_v0.weight", "attn.v_lora.lora.2.bias"};
inline constexpr TensorName kRwkvFirstDown{"time_mix_v1", "attn.v_lora.lora.0.weight"};
inline constexpr TensorName kRwkvFirstUp{"time_mix_v2", "attn.v_lora.lora.2.weight"};
// What the first layer has of these, and does not use.
inline constexpr TensorName kRwkvNoFirst{"time_mix_v0", "attn.v_lora"};
inline constexpr TensorName kRwkvNoFirstDown{"time_mix_v1", "attn.v_lora"};
inline constexpr TensorName kRwkvNoFirstUp{"time_mix_v2", "attn.v_lora"};
inline constexpr TensorName kRwkvGateDown{"time_mix_g1", "attn.g_lora.lora.0.weight"};
inline constexpr TensorName kRwkvGateUp{"time_mix_g2", "attn.g_lora.lora.2.weight"};
inline constexpr TensorName kRwkvRemoved{"time_mix_k_k.weight", "attn.k_k"};
inline constexpr TensorName kRwkvKept{"time_mix_k_a.weight", "attn.k_a"};
inline constexpr TensorName kRwkvBonus{"time_mix_r_k.weight", "attn.r_k"};
inline constexpr TensorName kRwkvHeadNorm{"time_mix_ln", "attn.g_norm"};
inline constexpr TensorName kRwkvFfnNorm{"attn_norm_2", "ffn_norm"};
inline constexpr TensorName kRwkvFfnShareK{"channel_mix_lerp_k.weight", "ffn.x_k"};
inline constexpr TensorName kRwkvFfnShareR{"channel_mix_lerp_r.weight", "feed_forward.time_maa_r"};
inline constexpr TensorName kRwkvFfnK{"channel_mix_key", "ffn.key"};
inline constexpr TensorName kRwkvFfnV{"channel_mix_value", "ffn.value"};
inline constexpr TensorName kRwkvFfnR{"channel_mix_receptance", "feed_forward.receptance"};
}  // namespace tensor

struct RwkvConfig {
  int version = 7;  // 6 or 7
  int n_heads = 0, head_dim = 0;
  int ffn_dim = 0;
  // Ranks: of shares (6), decays, rates of removal, shares of the first layer's values, gates (7).
  int share_rank = 0, decay_rank = 0, rate_rank = 0, first_rank = 0, gate_rank = 0;
  float head_eps = 64e-5f;  // of the norms of heads
  // > 0: the stream is halved behind so many layers, and the file's matrices are made for that.
  int halve_every = 0;
  bool operator==(const RwkvConfig&) const = default;
};

// Every rank has all of it. REQUIRES: ModelConfig::carried_dim is model_dim with version 7, whose layers
// read the first one's values.
std::shared_ptr<const Mixer> rwkv(const RwkvConfig& config);

const RwkvConfig* rwkv_config(const ModelConfig& config);  // of the first layer, or null

}  // namespace penstock

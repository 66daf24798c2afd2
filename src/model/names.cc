// The names of weights in files, and which of them a source uses.
#include "model/names.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

NameTable gguf_names() {
  NameTable n;
  n.embedding = "token_embd", n.positions = "position_embd", n.final_norm = "output_norm",
  n.lm_head = "output";
  n.layer = "blk.{}.";
  n.attn_norm = "attn_norm", n.q = "attn_q", n.k = "attn_k", n.v = "attn_v", n.qkv = "attn_qkv",
  n.o = "attn_output";
  n.q_norm = "attn_q_norm", n.k_norm = "attn_k_norm", n.attn_sub_norm = "attn_sub_norm";
  n.attn_post_norm = "post_attention_norm", n.ffn_norm = "ffn_norm", n.ffn_post_norm = "post_ffw_norm";
  n.gate = "ffn_gate", n.up = "ffn_up", n.gate_up = "ffn_up", n.down = "ffn_down",
  n.ffn_sub_norm = "ffn_sub_norm";
  n.router = "ffn_gate_inp";
  n.expert_gate = "ffn_gate_exps", n.expert_up = "ffn_up_exps", n.expert_down = "ffn_down_exps";
  return n;
}

NameTable hf_names(const ModelConfig& config) {
  NameTable n;
  n.prefixes = {"model."};
  n.embedding = "embed_tokens", n.final_norm = "norm", n.lm_head = "lm_head", n.layer = "layers.{}.";
  n.attn_norm = "input_layernorm";
  n.q = "self_attn.q_proj", n.k = "self_attn.k_proj", n.v = "self_attn.v_proj", n.qkv = "self_attn.qkv_proj";
  n.o = "self_attn.o_proj", n.q_norm = "self_attn.q_norm", n.k_norm = "self_attn.k_norm";
  n.attn_sub_norm = "self_attn.attn_sub_norm", n.ffn_sub_norm = "mlp.ffn_sub_norm";
  // With one norm per sub-layer, "post_attention" is the one before the feed-forward.
  n.attn_post_norm = "post_attention_layernorm", n.ffn_post_norm = "post_feedforward_layernorm";
  n.ffn_norm = config.norms == NormPlacement::kPre ? "post_attention_layernorm" : "pre_feedforward_layernorm";
  n.gate = "mlp.gate_proj", n.up = "mlp.up_proj", n.gate_up = "mlp.gate_up_proj", n.down = "mlp.down_proj";
  n.router = "mlp.gate";
  n.expert_gate = "mlp.experts.{}.gate_proj", n.expert_up = "mlp.experts.{}.up_proj";
  n.expert_down = "mlp.experts.{}.down_proj";
  return n;
}

}  // namespace

NameTable tensor_names(const ModelConfig& config, Naming naming) {
  if (naming == Naming::kGguf) return gguf_names();
  NameTable names = hf_names(config);
  const Architecture* architecture = find_architecture(config.arch);
  if (architecture != nullptr && architecture->hf_names != nullptr) architecture->hf_names(names);
  return names;
}

bool is_ignorable_tensor(std::string_view name) {
  for (const std::string_view part :
       {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", "vision_tower.", "multi_modal_projector.",
        "rope_freqs.weight", "rope_factors_"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace penstock

// What Hugging Face's config.json files of a type leave unsaid or say in words of their own: the defaults of transformers'
// configuration classes, and other names of the usual keys. JSON objects.
#pragma once
#include <string_view>

namespace penstock {

inline constexpr std::string_view kGemmaDefaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"})";
inline constexpr std::string_view kGemma2Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
        "num_attention_heads": 8, "num_key_value_heads": 4})";
inline constexpr std::string_view kGemma3Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256})";
inline constexpr std::string_view kGemma3nDefaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 262400, "max_position_embeddings": 32768,
        "intermediate_size": 16384, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
        "num_kv_shared_layers": 15, "final_logit_softcapping": 30.0, "laurel_rank": 64})";
inline constexpr std::string_view kGemma4Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262144, "max_position_embeddings": 131072,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144})";
inline constexpr std::string_view kMistralDefaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})";
inline constexpr std::string_view kGpt2Defaults =
    R"({"tie_word_embeddings": true, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})";
inline constexpr std::string_view kStarcoderDefaults =
    R"({"tie_word_embeddings": true, "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5})";
inline constexpr std::string_view kGptJDefaults = R"({"hidden_act": "gelu_new", "rotary_dim": 64})";
inline constexpr std::string_view kOptDefaults =
    R"({"tie_word_embeddings": true, "hidden_act": "relu", "intermediate_size": 3072})";
inline constexpr std::string_view kBitnetDefaults =
    R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5, "rope_theta": 500000.0})";
inline constexpr std::string_view kInternLm3Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5})";
inline constexpr std::string_view kIQuestCoderDefaults =
    R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5})";
inline constexpr std::string_view kYoutuDefaults = R"({"tie_word_embeddings": true, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})";
inline constexpr std::string_view kExaoneDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})";
inline constexpr std::string_view kGptNeoDefaults =
    R"({"tie_word_embeddings": true, "hidden_act": "gelu_new", "layer_norm_epsilon": 1e-5})";
inline constexpr std::string_view kPersimmonDefaults =
    R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})";
inline constexpr std::string_view kBioGptDefaults =
    R"({"tie_word_embeddings": true, "hidden_act": "gelu", "intermediate_size": 4096})";
inline constexpr std::string_view kMixtralDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2})";
inline constexpr std::string_view kPhi3Defaults = R"({"rms_norm_eps": 1e-5})";
inline constexpr std::string_view kQwen3Defaults = R"({"head_dim": 128})";
inline constexpr std::string_view kQwen2VlDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})";
inline constexpr std::string_view kQwen3VlDefaults = R"({"head_dim": 128, "rope_theta": 5e5})";
inline constexpr std::string_view kQwen3VlMoeDefaults = R"({"rope_theta": 5e5})";
inline constexpr std::string_view kMinistral3Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5})";
inline constexpr std::string_view kSmolLm3Defaults =
    R"({"tie_word_embeddings": true, "rope_theta": 2e6, "num_key_value_heads": 4})";
inline constexpr std::string_view kArceeDefaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5})";
inline constexpr std::string_view kSeedOssDefaults = R"({"head_dim": 128, "num_key_value_heads": 8})";
inline constexpr std::string_view kErnie45Defaults = R"({"tie_word_embeddings": true, "head_dim": 128,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e5})";
inline constexpr std::string_view kApertusDefaults =
    R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12e6})";
inline constexpr std::string_view kOlmo2Defaults = R"({"rms_norm_eps": 1e-5})";
inline constexpr std::string_view kOlmo3Defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 5e5})";
inline constexpr std::string_view kExaone4Defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096})";
inline constexpr std::string_view kGlm4Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5})";
inline constexpr std::string_view kGlm4vDefaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5})";
inline constexpr std::string_view kGlm4MoeDefaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
    "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "num_key_value_heads": 8})";
inline constexpr std::string_view kGraniteMoeDefaults =
    R"({"num_local_experts": 8, "num_experts_per_tok": 2})";
inline constexpr std::string_view kBambaDefaults =
    R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "partial_rotary_factor": 0.5})";
inline constexpr std::string_view kMiniMaxM2Defaults =
    R"({"head_dim": 128, "rope_theta": 5e6, "num_key_value_heads": 8,
    "num_experts_per_tok": 8, "num_local_experts": 256})";
inline constexpr std::string_view kErnie45MoeDefaults =
    R"({"tie_word_embeddings": true, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5, "rope_theta": 5e5, "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64,
    "moe_num_shared_experts": 2})";
inline constexpr std::string_view kPhiMoeDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
    "num_local_experts": 16, "num_experts_per_tok": 2})";
inline constexpr std::string_view kDeepSeek2Defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
    "moe_intermediate_size": 1407, "topk_method": "greedy"})";
inline constexpr std::string_view kDeepSeek3Defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3})";
inline constexpr std::string_view kGlm4MoeLiteDefaults =
    R"({"q_lora_rank": 768, "kv_lora_rank": 512, "rms_norm_eps": 1e-5,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "routed_scaling_factor": 1.8,
    "first_k_dense_replace": 1})";
inline constexpr std::string_view kGptOssDefaults =
    R"({"rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64,
    "num_key_value_heads": 8, "num_experts_per_tok": 4, "num_local_experts": 128})";
inline constexpr std::string_view kHunyuanDefaults = R"({"rms_norm_eps": 1e-5})";
inline constexpr std::string_view kCohereDefaults = R"({"tie_word_embeddings": true, "rope_theta": 5e5})";
inline constexpr std::string_view kCohere2Defaults = R"({"tie_word_embeddings": true})";
inline constexpr std::string_view kGptNeoXDefaults =
    R"({"hidden_act": "gelu", "partial_rotary_factor": 0.25})";
inline constexpr std::string_view kFalconDefaults =
    R"({"tie_word_embeddings": true, "activation_function": "gelu"})";
inline constexpr std::string_view kStableLmDefaults = R"({"partial_rotary_factor": 0.25})";
inline constexpr std::string_view kStarcoder2Defaults =
    R"({"tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 2})";
inline constexpr std::string_view kPhi2Defaults =
    R"({"hidden_act": "gelu_new", "partial_rotary_factor": 0.5})";
inline constexpr std::string_view kLfm2Defaults =
    R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8,
    "block_ffn_dim_multiplier": 1.0})";
inline constexpr std::string_view kLlama4Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "intermediate_size": 8192, "num_local_experts": 16, "num_experts_per_tok": 1})";
inline constexpr std::string_view kQwen3NextDefaults = R"({"head_dim": 256, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})";
inline constexpr std::string_view kQwen35Defaults =
    R"({"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25})";
inline constexpr std::string_view kQwen35MoeDefaults = R"({"head_dim": 256, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})";
inline constexpr std::string_view kBertDefaults =
    R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "intermediate_size": 3072, "max_position_embeddings": 512})";
inline constexpr std::string_view kDistilBertDefaults =
    R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "type_vocab_size": 0})";
inline constexpr std::string_view kElectraDefaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "intermediate_size": 1024, "max_position_embeddings": 512})";
inline constexpr std::string_view kJinaV3Defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-5,
    "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1, "rope_theta": 2e4})";
inline constexpr std::string_view kGteDefaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "intermediate_size": 3072, "max_position_embeddings": 8192, "type_vocab_size": 1, "rope_theta": 1.6e5})";
inline constexpr std::string_view kEuroBertDefaults =
    R"({"rms_norm_eps": 1e-5, "intermediate_size": 3072, "max_position_embeddings": 8192})";
inline constexpr std::string_view kNomicBertDefaults =
    R"({"layer_norm_eps": 1e-12, "rope_theta": 1000.0, "intermediate_size": 3072, "max_position_embeddings": 2048})";
inline constexpr std::string_view kModernBertDefaults =
    R"({"layer_norm_eps": 1e-5, "intermediate_size": 1152, "max_position_embeddings": 8192})";
inline constexpr std::string_view kMamba2Defaults = R"({"num_attention_heads": 1, "intermediate_size": 1,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "mamba_n_heads": 128, "mamba_d_head": 64,
    "mamba_n_groups": 8, "mamba_d_state": 128})";
inline constexpr std::string_view kNemotronHDefaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "hidden_act": "relu2", "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 8,
    "mamba_d_state": 128, "max_position_embeddings": 4096, "intermediate_size": 21504, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688})";
inline constexpr std::string_view kFalconH1Defaults =
    R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_d_state": 256,
    "max_position_embeddings": 8192})";
inline constexpr std::string_view kTiedDefaults = R"({"tie_word_embeddings": true})";

inline constexpr std::string_view kKimiLinearDefaults =
    R"({"rms_norm_eps": 1e-5, "first_k_dense_replace": 1, "n_shared_experts": 1, "routed_scaling_factor": 2.446,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128})";

inline constexpr std::string_view kMistral4Defaults = R"({"q_lora_rank": 1024, "kv_lora_rank": 256,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "moe_intermediate_size": 2048, "first_k_dense_replace": 0})";
inline constexpr std::string_view kSolarOpenDefaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 1280})";
inline constexpr std::string_view kDots1Defaults =
    R"({"sliding_window": 4096, "norm_topk_prob": false, "moe_intermediate_size": 1408})";
inline constexpr std::string_view kExaoneMoeDefaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096,
    "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "n_shared_experts": 1,
    "routed_scaling_factor": 2.5})";
inline constexpr std::string_view kHyV3Defaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 1536, "routed_scaling_factor": 2.826})";
inline constexpr std::string_view kOlmoeDefaults =
    R"({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8})";
inline constexpr std::string_view kFlexOlmoDefaults =
    R"({"rope_theta": 5e5, "num_experts": 7, "num_experts_per_tok": 5})";
inline constexpr std::string_view kAfmoeDefaults = R"({"head_dim": 128, "rms_norm_eps": 1e-5,
    "moe_intermediate_size": 1408, "num_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "sliding_window": 1024})";
inline constexpr std::string_view kNanoChatDefaults =
    R"({"hidden_act": "relu2", "final_logit_softcapping": 15.0})";
inline constexpr std::string_view kMiniCpm3Defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-5,
    "q_lora_rank": 768, "kv_lora_rank": 256, "qk_rope_head_dim": 32, "head_dim": 32, "qk_nope_head_dim": 64,
    "scale_depth": 1.4, "dim_model_base": 256})";
inline constexpr std::string_view kXglmDefaults =
    R"({"tie_word_embeddings": true, "hidden_act": "gelu", "intermediate_size": 4096})";
inline constexpr std::string_view kGraniteSwaDefaults =
    R"({"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "num_key_value_heads": 4})";
inline constexpr std::string_view kNemotronDefaults =
    R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})";
inline constexpr std::string_view kJais2Defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5})";
inline constexpr std::string_view kHeliumDefaults =
    R"({"head_dim": 128, "rms_norm_eps": 1e-8, "rope_theta": 1e5})";
inline constexpr std::string_view kMinistralDefaults =
    R"({"num_key_value_heads": 8, "sliding_window": 4096})";
inline constexpr std::string_view kCwmDefaults =
    R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6, "sliding_window": 8192})";
inline constexpr std::string_view kLfm3Defaults =
    R"({"head_dim": 128, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5}}})";

// Names that config.json files of some types have for the usual keys.
inline constexpr std::string_view kMamba2Aliases =
    R"({"num_heads": "mamba_n_heads", "head_dim": "mamba_d_head", "n_groups": "mamba_n_groups",
    "state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "expand": "mamba_expand", "layer_norm_epsilon": "rms_norm_eps"})";
inline constexpr std::string_view kNemotronHAliases =
    R"({"mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head", "n_groups": "mamba_n_groups",
    "ssm_state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "mlp_hidden_act": "hidden_act",
    "attention_head_dim": "head_dim", "layer_norm_epsilon": "rms_norm_eps"})";
inline constexpr std::string_view kDistilBertAliases =
    R"({"dim": "hidden_size", "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size", "activation": "hidden_act"})";
inline constexpr std::string_view kNomicBertAliases =
    R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta",
    "layer_norm_epsilon": "layer_norm_eps", "activation_function": "hidden_act"})";
inline constexpr std::string_view kModernBertAliases = R"({"norm_eps": "layer_norm_eps"})";
inline constexpr std::string_view kGptNeoXAliases =
    R"({"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"})";
inline constexpr std::string_view kLfm2Aliases =
    R"({"norm_eps": "rms_norm_eps", "tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"})";
inline constexpr std::string_view kKimiLinearAliases =
    R"({"num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    "num_expert_group": "n_group", "moe_renormalize": "norm_topk_prob", "model_max_length": "max_position_embeddings"})";
inline constexpr std::string_view kExaoneMoeAliases = R"({"num_shared_experts": "n_shared_experts"})";
inline constexpr std::string_view kAfmoeAliases = R"({"num_shared_experts": "n_shared_experts",
    "num_dense_layers": "first_k_dense_replace", "route_scale": "routed_scaling_factor", "route_norm": "norm_topk_prob",
    "score_func": "scoring_func"})";
// Heads are that wide for their rotation.
inline constexpr std::string_view kMiniCpm3Aliases = R"({"qk_rope_head_dim": "head_dim"})";
inline constexpr std::string_view kXglmAliases =
    R"({"d_model": "hidden_size", "num_layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads", "ffn_dim": "intermediate_size", "activation_function": "hidden_act"})";
inline constexpr std::string_view kHyV3Aliases =
    R"({"num_shared_experts": "n_shared_experts", "router_scaling_factor": "routed_scaling_factor"})";
inline constexpr std::string_view kNemotronAliases = R"({"norm_eps": "layer_norm_eps"})";
inline constexpr std::string_view kInternLm3Aliases = R"({"qkv_bias": "attention_bias", "bias": "mlp_bias"})";
inline constexpr std::string_view kExaoneAliases = R"({"num_layers": "num_hidden_layers",
    "layer_norm_epsilon": "rms_norm_eps", "activation_function": "hidden_act"})";
inline constexpr std::string_view kGptNeoAliases = R"({"num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads", "activation_function": "hidden_act"})";
inline constexpr std::string_view kFalconAliases =
    R"({"n_embed": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "ffn_hidden_size": "intermediate_size", "activation": "activation_function"})";
inline constexpr std::string_view kGptJAliases = R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "n_inner": "intermediate_size",
    "activation_function": "hidden_act"})";
inline constexpr std::string_view kOptAliases =
    R"({"ffn_dim": "intermediate_size", "activation_function": "hidden_act"})";
inline constexpr std::string_view kStarcoder2Aliases = R"({"norm_epsilon": "layer_norm_eps"})";
inline constexpr std::string_view kGpt2Aliases = R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "n_inner": "intermediate_size"})";
inline constexpr std::string_view kMptAliases = R"({"d_model": "hidden_size", "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads", "max_seq_len": "max_position_embeddings"})";
inline constexpr std::string_view kBloomAliases =
    R"({"n_embed": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "seq_length": "max_position_embeddings"})";

}  // namespace penstock

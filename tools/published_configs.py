"""The config.json files of published text models, for make_published.py, without keys about training, tokens or files."""
import make_tiny_rwkv
import tiny_newer_models
import tiny_own_models
import tiny_remote_encoders
import tiny_remote_models


def by_layer(n, every, full="full_attention", others="sliding_attention"):
    return [full if (i + 1) % every == 0 else others for i in range(n)]


def sizes(kind, hidden, ffn, layers, heads, kv, vocab, context, **more):
    return dict(model_type=kind, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv, vocab_size=vocab, max_position_embeddings=context, attention_dropout=0.0, use_cache=True) | more


ALPHA = dict(alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic")
EXAONE_ROPE = dict(factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type="llama3")
LLAMA3_ROPE = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192, rope_type="llama3")
DEEPSEEK_ROPE = dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=4096, type="yarn")
DEEPSEEK_V4 = dict(
    model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"], attention_bias=False, attention_dropout=0.0, hc_eps=1e-6, hc_mult=4,
    hc_sinkhorn_iters=20, head_dim=512, hidden_act="silu", index_head_dim=128, index_n_heads=64, max_position_embeddings=1048576,
    n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=6, num_hash_layers=3, num_key_value_heads=1, num_nextn_predict_layers=1,
    o_lora_rank=1024, qk_rope_head_dim=64, rms_norm_eps=1e-6, rope_theta=10000, compress_rope_theta=160000, scoring_func="sqrtsoftplus",
    rope_scaling=dict(beta_fast=32, beta_slow=1, factor=16, original_max_position_embeddings=65536, type="yarn"), sliding_window=128,
    swiglu_limit=10.0, tie_word_embeddings=False, topk_method="noaux_tc", vocab_size=129280)
EXPERTS_OF_V3 = dict(
    ep_size=1, first_k_dense_replace=3, kv_lora_rank=512, moe_intermediate_size=2048, moe_layer_freq=1, n_group=8, n_routed_experts=256,
    n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=8, num_nextn_predict_layers=1, q_lora_rank=1536, qk_nope_head_dim=128,
    qk_rope_head_dim=64, routed_scaling_factor=2.5, scoring_func="sigmoid", topk_group=4, topk_method="noaux_tc", v_head_dim=128,
    attention_bias=False, rms_norm_eps=1e-6, hidden_act="silu", aux_loss_alpha=0.001, seq_aux=True, pretraining_tp=1)
BERT = dict(attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, layer_norm_eps=1e-12, max_position_embeddings=512,
            position_embedding_type="absolute", type_vocab_size=2, classifier_dropout=None, pad_token_id=0)
DEBERTA_V3 = dict(
    model_type="deberta-v2", attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=768,
    initializer_range=0.02, intermediate_size=3072, max_position_embeddings=512, relative_attention=True, position_buckets=256,
    norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", layer_norm_eps=1e-7, max_relative_positions=-1,
    position_biased_input=False, num_attention_heads=12, num_hidden_layers=12, type_vocab_size=0, vocab_size=128100)
JINA_V2 = tiny_remote_encoders.JINA_V2 | dict(
    hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=12, vocab_size=30528)
NEW = dict(
    model_type="new", attention_probs_dropout_prob=0.0, hidden_act="gelu", hidden_dropout_prob=0.1, layer_norm_eps=1e-12,
    layer_norm_type="layer_norm", logn_attention_clip1=False, logn_attention_scale=False, max_position_embeddings=8192, pack_qkv=True,
    position_embedding_type="rope", unpad_inputs=False, use_memory_efficient_attention=False, intermediate_size=3072, hidden_size=768,
    num_hidden_layers=12, num_attention_heads=12, classifier_dropout=0.0)
LONG_MINICPM = dict(rope_type="longrope", long_factor=[1.0 + 0.1 * i for i in range(64)], short_factor=[1.0 + 0.1 * i for i in range(64)],
                    original_max_position_embeddings=32768)
PHI3_FACTORS = dict(short_factor=[1.0 + 0.02 * i for i in range(48)], long_factor=[1.0 + 1.3 * i for i in range(48)], type="longrope")

NAS = dict(attention=dict(n_heads_in_group=8, no_op=False, num_sink_tokens=None, replace_with_linear=False, sparsify=None, unshifted_sink=False,
                          use_prefill_window_in_sink_attention=False, window_length=None),
           ffn=dict(ffn_mult=5.25, no_op=False, replace_with_linear=False, sparsify=None))


def nas(attends=True, multiplier=5.25):
    return dict(attention=NAS["attention"] | dict(n_heads_in_group=8 if attends else None, no_op=not attends),
                ffn=NAS["ffn"] | dict(ffn_mult=multiplier, no_op=multiplier is None))


LARA = ["linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention"]
ZAMBA2 = dict(
    model_type="zamba2", architectures=["Zamba2ForCausalLM"], adapter_rank=128, add_bias_linear=False, attention_dropout=0.0, chunk_size=256,
    hidden_act="gelu", initializer_range=0.02, mamba_d_conv=4, mamba_expand=2, mamba_headdim=64, max_position_embeddings=4096,
    num_attention_heads=32, num_key_value_heads=32, num_logits_to_keep=1, num_query_groups=32, pad_token_id=0, rms_norm_eps=1e-5,
    rope_theta=10000, time_step_floor=0.0001, time_step_limit=None, time_step_max=0.1, time_step_min=0.001, use_cache=True,
    use_conv_bias=True, use_long_context=False, use_mamba_kernels=True, use_mem_eff_path=False, vocab_size=32000)


def hybrid_layers(n, shared):
    return ["hybrid" if i in shared else "mamba" for i in range(n)]


PUBLISHED = {
    "dbrx_instruct": dict(
        model_type="dbrx", architectures=["DbrxForCausalLM"], attn_config=dict(clip_qkv=8, kv_n_heads=8, model_type="", rope_theta=500000),
        d_model=6144, emb_pdrop=0.0, ffn_config=dict(ffn_hidden_size=10752, model_type="", moe_jitter_eps=0.01, moe_loss_weight=0.05,
                                                     moe_num_experts=16, moe_top_k=4),
        initializer_range=0.02, max_seq_len=32768, n_heads=48, n_layers=40, output_router_logits=False, resid_pdrop=0.0,
        router_aux_loss_coef=0.05, tie_word_embeddings=False, use_cache=True, vocab_size=100352),
    "openelm_270m": dict(
        model_type="openelm", architectures=["OpenELMForCausalLM"], activation_fn_name="swish", ffn_dim_divisor=256,
        ffn_multipliers=[0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0], ffn_with_glu=True,
        head_dim=64, initializer_range=0.02, max_context_length=2048, model_dim=1280, normalization_layer_name="rms_norm",
        normalize_qk_projections=True, num_gqa_groups=4, num_kv_heads=[3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5],
        num_query_heads=[12, 12, 12, 12, 12, 16, 16, 16, 16, 16, 16, 16, 20, 20, 20, 20], num_transformer_layers=16,
        qkv_multipliers=[0.5, 1.0], rope_freq_constant=10000, rope_max_length=4096, share_input_output_layers=True, use_cache=True,
        vocab_size=32000),
    "nemotron_super_49b": dict(
        model_type="nemotron-nas", architectures=["DeciLMForCausalLM"], attention_bias=False, attention_dropout=0.0,
        block_configs=[nas(i % 3 != 2, [5.25, 2.625, 1.3125, 1.0, 0.5, 5.25][i % 6]) for i in range(80)], hidden_act="silu", hidden_size=8192,
        initializer_range=0.02, intermediate_size=None, max_position_embeddings=131072, mlp_bias=False, num_attention_heads=64,
        num_hidden_layers=80, num_key_value_heads=None, pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=LLAMA3_ROPE, rope_theta=500000.0,
        tie_word_embeddings=False, use_cache=True, vocab_size=128256),
    "ling_3_flash": dict(
        model_type="bailing_hybrid", architectures=["BailingMoeV3ForCausalLM"], attention_dropout=0.0, expert_swiglu_limit_list=None,
        first_k_dense_replace=2, gated_attention_proj_granularity_type="head_wise", head_dim=128, hidden_act="silu", hidden_size=2560,
        intermediate_size=6144, kda_lower_bound=-5.0, kda_safe_gate=True, kv_lora_rank=512, layer_group_size=6,
        max_position_embeddings=262144, moe_intermediate_size=768, moe_router_enable_expert_bias=True,
        moe_shared_expert_intermediate_size=768, n_group=8, no_kda_lora=True, norm_topk_prob=True, num_attention_heads=32, num_experts=512,
        num_experts_per_tok=8, num_hidden_layers=42, num_key_value_heads=32, num_nextn_predict_layers=0, num_shared_experts=1,
        q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=6000000,
        routed_scaling_factor=2.5, score_function="sigmoid", share_expert_swiglu_limit_list=None, short_conv_kernel_size=4,
        tie_word_embeddings=False, topk_group=4, use_bias=False, use_qkv_bias=False, v_head_dim=128, vocab_size=157184),
    "axk1": dict(
        model_type="axk1", architectures=["AXK1ForCausalLM"], attention_bias=False, attention_dropout=0.0, first_k_dense_replace=1,
        hidden_act="silu", hidden_size=7168, intermediate_size=18432, kv_lora_rank=512, max_position_embeddings=131072,
        moe_intermediate_size=2048, moe_layer_freq=1, n_group=8, n_routed_experts=192, n_shared_experts=1, norm_topk_prob=True,
        num_attention_heads=64, num_experts_per_tok=8, num_hidden_layers=61, num_key_value_heads=64, num_nextn_predict_layers=0,
        q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-6, rope_scaling=DEEPSEEK_ROPE, rope_theta=10000,
        routed_scaling_factor=2.5, scoring_func="sigmoid", tie_word_embeddings=False, topk_group=4, topk_method="noaux_tc", v_head_dim=128,
        vocab_size=163840),
    "axk2_light": sizes(
        "axk2", 2048, 5120, 48, 32, 32, 163840, 131072, architectures=["AXK2ForCausalLM"], attention_bias=False, first_k_dense_replace=1,
        gated_norm_rank=16, head_dim=32, hidden_act="silu", index_head_dim=128, index_n_heads=16, index_topk=2048, kv_lora_rank=128,
        layer_types=["indexed_attention"] * 48, mlp_layer_types=["dense"] + ["sparse"] * 47, moe_intermediate_size=512, moe_layer_freq=1,
        n_group=None, n_routed_experts=128, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=8, output_router_logits=False,
        q_lora_rank=384, qk_head_dim=96, qk_nope_head_dim=64, qk_rope_head_dim=32, rms_norm_eps=1e-6, rope_parameters=dict(
            rope_type="default", rope_theta=10000.0), routed_scaling_factor=2.5, tie_word_embeddings=False, topk_group=None, v_head_dim=64),
    "baichuan2_7b_chat": dict(
        model_type="baichuan", architectures=["BaichuanForCausalLM"], _from_model_config=True, hidden_act="silu", hidden_size=4096,
        initializer_range=0.02, intermediate_size=11008, max_position_embeddings=4096, model_max_length=4096, num_attention_heads=32,
        num_hidden_layers=32, rms_norm_eps=1e-6, tie_word_embeddings=False, use_cache=True, vocab_size=125696, z_loss_weight=0),
    "baichuan2_13b_chat": dict(
        model_type="baichuan", architectures=["BaichuanForCausalLM"], gradient_checkpointing=[False], hidden_act="silu", hidden_size=5120,
        initializer_range=0.02, intermediate_size=13696, model_max_length=4096, num_attention_heads=40, num_hidden_layers=40,
        pad_token_id=0, rms_norm_eps=1e-6, tie_word_embeddings=False, use_cache=True, vocab_size=125696, z_loss_weight=0),
    "albert_base_v2": dict(
        model_type="albert", architectures=["AlbertForMaskedLM"], attention_probs_dropout_prob=0, classifier_dropout_prob=0.1, down_scale_factor=1,
        embedding_size=128, gap_size=0, hidden_act="gelu_new", hidden_dropout_prob=0, hidden_size=768, inner_group_num=1,
        intermediate_size=3072, layer_norm_eps=1e-12, max_position_embeddings=512, net_structure_type=0, num_attention_heads=12,
        num_hidden_groups=1, num_hidden_layers=12, num_memory_blocks=0, pad_token_id=0, type_vocab_size=2, vocab_size=30000),
    "all_mpnet_base_v2": dict(
        model_type="mpnet", architectures=["MPNetForMaskedLM"], attention_probs_dropout_prob=0.1, bos_token_id=0, eos_token_id=2,
        gradient_checkpointing=False, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=768, initializer_range=0.02,
        intermediate_size=3072, layer_norm_eps=1e-5, max_position_embeddings=514, num_attention_heads=12, num_hidden_layers=12,
        pad_token_id=1, relative_attention_num_buckets=32, vocab_size=30527),
    "deberta_v3_base": DEBERTA_V3,
    "nli_deberta_v3_large": DEBERTA_V3 | dict(
        architectures=["DebertaV2ForSequenceClassification"], hidden_size=1024, intermediate_size=4096, num_attention_heads=16,
        num_hidden_layers=24, id2label={"0": "contradiction", "1": "entailment", "2": "neutral"},
        label2id={"contradiction": 0, "entailment": 1, "neutral": 2}, legacy=True, pad_token_id=0, pooler_dropout=0,
        pooler_hidden_act="gelu", pooler_hidden_size=1024),
    "jina_embeddings_v2_base_en": JINA_V2,
    "jina_embeddings_v2_base_code": JINA_V2 | dict(
        architectures=["JinaBertForMaskedLM"], auto_map=tiny_remote_encoders.JINA_V2_CODE["auto_map"], bos_token_id=0, eos_token_id=2,
        pad_token_id=1, vocab_size=61056),
    "neobert": tiny_remote_encoders.NEO_BERT | dict(
        dim_head=64, hidden_size=768, intermediate_size=3072, max_length=4096, num_attention_heads=12, num_hidden_layers=28, vocab_size=30522),
    "electra_small": BERT | dict(
        model_type="electra", architectures=["ElectraForPreTraining"], embedding_size=128, hidden_size=256, intermediate_size=1024,
        num_attention_heads=4, num_hidden_layers=12, vocab_size=30522, summary_activation="gelu", summary_last_dropout=0.1,
        summary_type="first", summary_use_proj=True),
    "nomic_embed_v2_moe": tiny_remote_models.NOMIC_MOE | dict(
        embd_pdrop=0.0, fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=1e-5, max_trained_positions=2048,
        moe_resid_pdrop=0.0, n_embd=768, n_head=12, n_inner=3072, n_layer=12, num_experts=8, pad_token_id=1, pad_vocab_to_multiple=True,
        router_aux_loss_coef=0.1, scale_attn_weights=True, torch_dtype="float32", use_flash_attn=True, use_xentropy=True,
        vocab_size=250048),
    "internlm2_5_7b": sizes(
        "internlm2", 4096, 14336, 32, 32, 8, 92544, 32768, architectures=["InternLM2ForCausalLM"], attn_implementation="eager", bias=False,
        hidden_act="silu", pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=dict(factor=2.0, type="dynamic"), rope_theta=1000000,
        tie_word_embeddings=False),
    "xverse_13b": {key: value for key, value in sizes(
        "xverse", 5120, 13824, 40, 40, 40, 100278, 8192, architectures=["XverseForCausalLM"], hidden_act="silu", pad_token_id=1,
        max_tokenizer_truncation=8192, rms_norm_eps=1e-6, tie_word_embeddings=False).items() if key != "num_key_value_heads"},
    "orion_14b": sizes(
        "orion", 5120, 15360, 40, 40, 40, 84608, 4096, architectures=["OrionForCausalLM"], hidden_act="silu", max_sequence_length=4096,
        pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False, attention_bias=False),
    "baichuan_7b": dict(
        model_type="baichuan", architectures=["BaiChuanForCausalLM"], hidden_act="silu", hidden_size=4096, intermediate_size=11008,
        max_position_embeddings=4096, num_attention_heads=32, num_hidden_layers=32, pad_token_id=0, rms_norm_eps=1e-6,
        tie_word_embeddings=False, use_cache=True, vocab_size=64000),
    "baichuan_13b": dict(
        model_type="baichuan", architectures=["BaichuanForCausalLM"], hidden_act="silu", hidden_size=5120, intermediate_size=13696,
        model_max_length=4096, num_attention_heads=40, num_hidden_layers=40, pad_token_id=0, gradient_checkpointing=[False],
        rms_norm_eps=1e-6, tie_word_embeddings=False, use_cache=True, vocab_size=64000),
    "qwen_7b": dict(
        model_type="qwen", architectures=["QWenLMHeadModel"], attn_dropout_prob=0.0, bf16=True, emb_dropout_prob=0.0, hidden_size=4096,
        intermediate_size=22016, kv_channels=128, layer_norm_epsilon=1e-6, max_position_embeddings=32768, no_bias=True,
        num_attention_heads=32, num_hidden_layers=32, onnx_safe=None, rotary_emb_base=10000, rotary_pct=1.0, scale_attn_weights=True,
        seq_length=8192, tie_word_embeddings=False, use_cache=True, use_dynamic_ntk=True, use_flash_attn="auto", use_logn_attn=True,
        vocab_size=151936),
    "minicpm_2b": sizes(
        "minicpm", 2304, 5760, 40, 36, 36, 122753, 4096, architectures=["MiniCPMForCausalLM"], attention_bias=False, dim_model_base=256,
        hidden_act="silu", num_experts=0, rms_norm_eps=1e-5, rope_scaling=None, scale_depth=1.4, scale_emb=12),
    "minicpm4_8b": sizes(
        "minicpm", 4096, 16384, 32, 32, 2, 73448, 32768, architectures=["MiniCPMForCausalLM"], attention_bias=False, dim_model_base=256,
        hidden_act="silu", mup_denominator=32, rms_norm_eps=1e-6, rope_scaling=LONG_MINICPM, scale_depth=1.4, scale_emb=12,
        tie_word_embeddings=False, sparse_config=dict(kernel_size=32, kernel_stride=16, init_blocks=1, block_size=64, window_size=2048,
                                                      topk=64, use_nope=False, dense_len=8192)),
    "deepseek_moe_16b": sizes(
        "deepseek", 2048, 10944, 28, 16, 16, 102400, 4096, architectures=["DeepseekForCausalLM"], attention_bias=False,
        aux_loss_alpha=0.001, first_k_dense_replace=1, hidden_act="silu", moe_intermediate_size=1408, moe_layer_freq=1, n_routed_experts=64,
        n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=6, pretraining_tp=1, rms_norm_eps=1e-6, rope_scaling=None,
        rope_theta=10000, scoring_func="softmax", seq_aux=True, tie_word_embeddings=False),
    "ling_lite_1_5": sizes(
        "bailing_moe", 2048, 5632, 28, 16, 4, 126464, 32768, architectures=["BailingMoeForCausalLM"], embedding_dropout=0.0,
        first_k_dense_replace=0, head_dim=128, hidden_act="silu", max_window_layers=28, moe_intermediate_size=1408, norm_head=False,
        norm_softmax=False, norm_topk_prob=True, num_experts=64, num_experts_per_tok=6, num_shared_experts=2, output_dropout=0.0,
        output_router_logits=False, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=600000, sliding_window=None, tie_word_embeddings=False,
        use_bias=False, use_qkv_bias=False, use_sliding_window=False),
    "mellum2_12b": sizes(
        "mellum", 2304, 7168, 28, 32, 4, 98304, 131072, architectures=["MellumForCausalLM"], attention_bias=False, head_dim=128,
        hidden_act="silu", layer_types=by_layer(28, 4), mlp_layer_types=["sparse"] * 28, moe_intermediate_size=896, norm_topk_prob=True,
        num_experts_per_tok=8, num_local_experts=64, num_nextn_predict_layers=1, mtp_layer_types=["sliding_attention"],
        mtp_mlp_layer_types=["sparse"], rms_norm_eps=1e-6, sliding_window=1024, tie_word_embeddings=False, rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=5e5), sliding_attention=dict(rope_type="default", rope_theta=1e4))),
    "lara_4_mini": sizes(
        "lara_mini", 1024, None, 34, 16, 4, 151936, 131072, architectures=["LaraMiniForCausalLM"], attention_bias=False, head_dim=128,
        hidden_act="silu", initializer_range=0.02, layer_types=[LARA[i % 5] for i in range(34)], linear_conv_kernel_dim=4,
        linear_key_head_dim=128, linear_num_key_heads=8, linear_num_value_heads=16, linear_value_head_dim=128, moe_intermediate_size=512,
        norm_topk_prob=True, num_experts=128, num_experts_per_tok=4, output_router_logits=False, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1e4), router_aux_loss_coef=0.001, shared_expert_intermediate_size=512,
        sliding_window=512, tie_word_embeddings=True),
    "diffllama": sizes(
        "diffllama", 2048, 8192, 16, 32, 32, 32000, 2048, architectures=["DiffLlamaForCausalLM"], attention_bias=False, head_dim=64,
        hidden_act="silu", initializer_range=0.02, lambda_std_dev=0.1, mlp_bias=False, rms_norm_eps=1e-5, rope_scaling=None,
        rope_theta=10000.0, tie_word_embeddings=False),
    "recurrentgemma_2b": dict(
        model_type="recurrent_gemma", architectures=["RecurrentGemmaForCausalLM"], attention_bias=False, attention_dropout=0.0,
        attention_window_size=2048, block_types=["recurrent", "recurrent", "attention"], conv1d_width=4, embeddings_scale_by_sqrt_dim=True,
        final_w_init_variance_scale=0.07692307692307693, head_dim=256, hidden_activation="gelu_pytorch_tanh", hidden_size=2560,
        intermediate_size=15360, logits_soft_cap=30.0, lru_width=2560, num_attention_heads=10, num_hidden_layers=26, num_key_value_heads=1,
        partial_rotary_factor=0.5, rms_norm_eps=1e-6, rope_theta=10000.0, use_cache=True, vocab_size=256000, w_init_variance_scale=0.01),
    "zamba2_7b": ZAMBA2 | dict(
        hidden_size=3584, intermediate_size=14336, num_hidden_layers=81, n_mamba_heads=112, mamba_d_state=64, mamba_ngroups=2,
        num_mem_blocks=2, use_mem_rope=True, use_shared_attention_adapter=False, attention_head_dim=224, attention_hidden_size=7168,
        hybrid_layer_ids=[6, 11, *range(17, 78, 6)], kv_channels=112, layers_block_type=hybrid_layers(81, {6, 11, *range(17, 78, 6)})),
    "zamba2_1_2b": ZAMBA2 | dict(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=38, n_mamba_heads=64, mamba_d_state=128, mamba_ngroups=1,
        num_mem_blocks=1, use_mem_rope=True, use_shared_attention_adapter=True, attention_head_dim=128, attention_hidden_size=4096,
        hybrid_layer_ids=[*range(5, 38, 6)], kv_channels=64, layers_block_type=hybrid_layers(38, {*range(5, 38, 6)})),
    "gemma4_12b": dict(
        model_type="gemma4_unified", architectures=["Gemma4UnifiedForConditionalGeneration"], audio_token_id=258881, boa_token_id=256000,
        boi_token_id=255999, eoa_token_index=258883, eoi_token_id=258882, image_token_id=258880, initializer_range=0.02,
        tie_word_embeddings=True, video_token_id=258884, audio_config=dict(audio_embed_dim=640, model_type="gemma4_unified_audio"),
        vision_config=dict(mm_embed_dim=3840, mm_posemb_size=1120, model_type="gemma4_unified_vision", patch_size=16, pooling_kernel_size=3),
        text_config=sizes(
            "gemma4_unified_text", 3840, 15360, 48, 16, 8, 262144, 262144, attention_bias=False, attention_k_eq_v=True,
            final_logit_softcapping=30.0, global_head_dim=512, head_dim=256, hidden_activation="gelu_pytorch_tanh",
            hidden_size_per_layer_input=0, layer_types=by_layer(48, 6), num_global_key_value_heads=1, num_kv_shared_layers=0,
            rms_norm_eps=1e-6, rope_parameters=dict(
                full_attention=dict(partial_rotary_factor=0.25, rope_theta=1e6, rope_type="proportional"),
                sliding_attention=dict(rope_theta=1e4, rope_type="default")),
            sliding_window=1024, tie_word_embeddings=True, use_bidirectional_attention="vision", use_double_wide_mlp=False)),
    "apertus_1_5_8b": dict(
        model_type="apertus1p5", architectures=["Apertus1p5ForConditionalGeneration"], audio_token_id=131085, audio_token_offset=262344,
        image_token_id=131079, image_token_offset=131272, tie_word_embeddings=False, text_config=sizes(
            "apertus1p5_text", 4096, 21504, 32, 32, 8, 266752, 65536, attention_bias=False, hidden_act="xielu", output_vocab_size=131272,
            rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE | dict(rope_theta=12e6), tie_word_embeddings=False)),
    # Entries of the outer rope_parameters are said to be left over.
    "north_micro_vision": dict(
        model_type="cohere_compass", architectures=["CohereCompassForConditionalGeneration"], image_token_id=255031,
        tie_word_embeddings=False, video_token_id=255032, vision_end_token_id=255029, vision_start_token_id=255028,
        vision_config=dict(model_type="cohere_compass", depth=27, deepstack_visual_indexes=[8, 16, 24], hidden_size=1152,
                           intermediate_size=4304, num_heads=16, num_position_embeddings=2304, out_hidden_size=2048, patch_size=16,
                           spatial_merge_size=2, temporal_patch_size=2),
        text_config=sizes(
            "cohere_compass_text", 2048, 8192, 28, 16, 4, 256000, 131072, attention_bias=False, hidden_act="silu", layer_norm_eps=1e-5,
            layer_types=by_layer(28, 4), logit_scale=0.25, pooling=None, rope_parameters=dict(
                rope_theta=5e4, rope_type="default", full_attention=None, sliding_attention=dict(
                    mrope_interleaved=True, mrope_section=[24, 20, 20], rope_theta=5e4, rope_type="default")),
            sliding_window=4096, tie_word_embeddings=True)),
    "longformer_base_4096": dict(
        model_type="longformer", architectures=["LongformerModel"], attention_mode="longformer", attention_probs_dropout_prob=0.1,
        attention_window=[512] * 12, bos_token_id=0, eos_token_id=2, gradient_checkpointing=False, hidden_act="gelu",
        hidden_dropout_prob=0.1, hidden_size=768, ignore_attention_mask=False, initializer_range=0.02, intermediate_size=3072,
        layer_norm_eps=1e-5, max_position_embeddings=4098, num_attention_heads=12, num_hidden_layers=12, pad_token_id=1, sep_token_id=2,
        type_vocab_size=1, vocab_size=50265),
    "flint": sizes(
        "flint", 2048, 6144, 49, 32, 4, 150144, 262144, architectures=["FlintForCausalLM"], attention_bias=False, decoder_sparse_step=1,
        head_dim=128, hidden_act="silu", mlp_only_layers=[0, 1], moe_intermediate_size=512, norm_topk_prob=True, num_experts=256,
        num_experts_per_tok=6, rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1e4),
        shared_expert_intermediate_size=1024, sliding_window=513, tie_word_embeddings=False),
    "kolibri1": sizes(
        "kolibri1", 2560, None, 50, 48, 4, 128000, 262144, architectures=["Kolibri1ForCausalLM"], head_dim=128, hidden_act="silu",
        layer_types=by_layer(50, 5), moe_intermediate_size=512, norm_topk_prob=True, num_experts_per_tok=6, num_local_experts=384,
        rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1e4), shared_expert_intermediate_size=512,
        sliding_window=513, tie_word_embeddings=False),
    "sarvam_30b": sizes(
        "sarvam_moe", 4096, 8192, 19, 64, 4, 262144, 131072, architectures=["SarvamMoEForCausalLM"], first_k_dense_replace=1, head_dim=64,
        hidden_act="silu", moe_intermediate_size=1024, n_group=1, topk_group=1, norm_topk_prob=True, num_experts=128,
        num_experts_per_tok=6, num_nextn_predict_layers=0, num_shared_experts=1, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=8e6,
        routed_scaling_factor=2.5, tie_word_embeddings=False, use_qk_norm=True, use_qkv_bias=False),
    "laguna_xs2": sizes(
        "laguna", 2048, 8192, 40, 48, 8, 100352, 131072, architectures=["LagunaForCausalLM"], attention_bias=False, gating="per-head",
        head_dim=128, hidden_act="silu", layer_types=by_layer(40, 4), mlp_layer_types=["dense"] + ["sparse"] * 39,
        moe_apply_router_weight_on_input=False, moe_intermediate_size=512, moe_routed_scaling_factor=2.5, moe_router_logit_softcapping=0.0,
        num_attention_heads_per_layer=by_layer(40, 4, 48, 64), num_experts=256, num_experts_per_tok=8, rms_norm_eps=1e-6,
        shared_expert_intermediate_size=512, sliding_window=512, tie_word_embeddings=False, rope_parameters=dict(
            full_attention=dict(rope_type="yarn", rope_theta=5e5, factor=32.0, original_max_position_embeddings=4096,
                                partial_rotary_factor=0.5),
            sliding_attention=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0))),
    "step_3_5_flash": dict(
        model_type="step3p5", architectures=["Step3p5ForCausalLM"], att_impl_type="GQA", attention_other_setting=dict(
            attention_type="sliding_attention", num_attention_heads=96, num_attention_groups=8, head_dim=128, true_head_dim=128),
        head_dim=128, hidden_size=4096, intermediate_size=11264, layer_types=by_layer(48, 4)[3:] + by_layer(3, 4),
        max_position_embeddings=262144, max_seq_len=262144, moe_every_n_layer=1, moe_intermediate_size=1280, moe_layer_offset=0,
        moe_layers_enum=",".join(str(i) for i in range(3, 45)), moe_num_experts=288, moe_router_activation="sigmoid",
        moe_router_scaling_factor=3.0, moe_top_k=8, need_fp32_gate=True, norm_expert_weight=True, num_attention_groups=8,
        num_attention_heads=64, num_hidden_layers=45, num_nextn_predict_layers=3, partial_rotary_factors=by_layer(48, 4, 0.5, 1.0)[3:]
        + [1.0] * 3, rope_scaling=dict(rope_type="llama3", factor=2.0, original_max_position_embeddings=131072, low_freq_factor=1.0,
                                       high_freq_factor=32.0),
        rope_theta=by_layer(48, 4, 5e6, 1e4)[3:] + [1e4] * 3, share_expert_dim=1280, sink=False, sliding_window=512,
        swiglu_limits=[0.0] * 43 + [7.0] * 2 + [0.0] * 3, swiglu_limits_shared=[0.0] * 43 + [16.0] * 2 + [0.0] * 3,
        use_head_wise_attn_gate=True, use_moe=True, use_moe_router_bias=True, use_qk_norm=True, use_rope_layers=[], vocab_size=128896,
        yarn_only_types=["full_attention"], zero_centered=True),
    "mimo_v2_flash": sizes(
        "mimo_v2_flash", 4096, 16384, 48, 64, 4, 152576, 262144, architectures=["MiMoV2FlashForCausalLM"],
        add_full_attention_sink_bias=False, add_swa_attention_sink_bias=True, attention_bias=False, attention_chunk_size=128,
        attention_value_scale=0.707, head_dim=192, hidden_act="silu", hybrid_block_size=None,
        hybrid_layer_pattern=[0] + by_layer(48, 6, 0, 1)[1:], layernorm_epsilon=1e-5, moe_intermediate_size=2048,
        moe_layer_freq=[0] + [1] * 47, n_group=1, n_routed_experts=256, n_shared_experts=None, norm_topk_prob=True, num_experts_per_tok=8,
        partial_rotary_factor=0.334, rope_theta=5000000, routed_scaling_factor=None, scoring_func="sigmoid", sliding_window=128,
        sliding_window_size=128, swa_head_dim=192, swa_num_attention_heads=64, swa_num_key_value_heads=8, swa_rope_theta=10000,
        swa_v_head_dim=128, tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", v_head_dim=128),
    "command_a_plus": sizes(
        "cohere2_moe", 8192, 22528, 40, 64, 64, 256000, 8192, architectures=["Cohere2MoeForCausalLM"], attention_bias=False,
        expert_selection_fn="softmax", first_k_dense_replace=1, head_dim=128, hidden_act="silu", layer_norm_eps=1e-5, logit_scale=0.0625,
        norm_topk_prob=True, num_experts=8, num_experts_per_tok=2, num_shared_experts=1, prefix_dense_intermediate_size=22528,
        prefix_dense_sliding_window_pattern=1, rms_norm_eps=None, rope_scaling=None, rope_theta=1e4,
        shared_expert_combination_strategy="average", sliding_window=4096, sliding_window_pattern=4, tie_word_embeddings=True),
    "hunyuan_7b": sizes(
        "hunyuan_v1_dense", 4096, 14336, 32, 32, 8, 128167, 262144, architectures=["HunYuanDenseV1ForCausalLM"], attention_bias=False,
        attention_head_dim=128, head_dim=128, cla_share_factor=2, hidden_act="silu", mlp_bias=False, norm_type="rms", num_experts=1,
        rms_norm_eps=1e-5, rope_scaling=ALPHA, rope_theta=10000.0, routed_scaling_factor=1.0, tie_word_embeddings=True, use_cla=False,
        use_qk_norm=True, use_rotary_pos_emb=True, moe_topk=1, moe_intermediate_size=None, num_shared_expert=1, pretraining_tp=1,
        org_vocab_size=128167, moe_layer_num_skipped=0, mask_init_id=12, group_limited_greedy=False, use_mixed_mlp_moe=False),
    "hunyuan_a13b": sizes(
        "hunyuan_v1_moe", 4096, 3072, 32, 32, 8, 128167, 32768, architectures=["HunYuanMoEV1ForCausalLM"], attention_bias=False,
        attention_head_dim=128, head_dim=128, cla_share_factor=2, hidden_act="silu", mlp_bias=False, moe_drop_tokens=False,
        moe_intermediate_size=[3072] * 32, moe_layer_num_skipped=0, moe_random_routing_dropped_token=False, moe_topk=[8] * 32, norm_type="rms",
        num_experts=64, num_shared_expert=[1] * 32, rms_norm_eps=1e-5, rope_scaling=ALPHA, rope_theta=10000.0, routed_scaling_factor=1.0,
        tie_word_embeddings=True, use_cla=False, use_mixed_mlp_moe=True, use_qk_norm=True, use_rotary_pos_emb=True, n_group=False,
        topk_group=False, group_limited_greedy=False, pretraining_tp=1),
    "exaone4_32b": sizes(
        "exaone4", 5120, 27392, 64, 40, 8, 102400, 131072, architectures=["Exaone4ForCausalLM"], head_dim=128, hidden_act="silu",
        layer_types=by_layer(64, 4), rms_norm_eps=1e-5, rope_scaling=EXAONE_ROPE, rope_theta=1000000, sliding_window=4096,
        sliding_window_pattern="LLLG", tie_word_embeddings=False),
    "exaone4_1b": sizes(
        "exaone4", 2048, 4096, 30, 32, 8, 102400, 65536, architectures=["Exaone4ForCausalLM"], head_dim=64, hidden_act="silu",
        layer_types=["full_attention"] * 30, rms_norm_eps=1e-5, rope_scaling=EXAONE_ROPE | dict(factor=32.0), rope_theta=1000000,
        sliding_window=None, sliding_window_pattern=None, tie_word_embeddings=True),
    "exaone4_5_33b": dict(
        model_type="exaone4_5", architectures=["Exaone4_5_ForConditionalGeneration"], tie_word_embeddings=False, vocab_size=153600,
        text_config=sizes(
            "exaone4_5_text", 5120, 27392, 64, 40, 8, 153600, 262144, architectures=["Exaone4ForCausalLM"], hidden_act="silu",
            layer_types=by_layer(64, 4), num_nextn_predict_layers=1, mtp_share_layers=True, rms_norm_eps=1e-5,
            rope_scaling=EXAONE_ROPE | dict(rope_theta=1e6), sliding_window=4096, sliding_window_pattern="LLLG")),
    "k_exaone": sizes(
        "exaone_moe", 6144, 18432, 48, 64, 8, 153600, 262144, architectures=["ExaoneMoEForCausalLM"], first_k_dense_replace=1,
        first_last_k_dense_replace=1, head_dim=128, hidden_act="silu", is_moe_layer=[False] + [True] * 47,
        mlp_layer_types=["dense"] + ["sparse"] * 47, layer_types=by_layer(48, 4), moe_intermediate_size=2048, n_group=1, norm_topk_prob=True,
        num_experts=128, num_experts_per_tok=8, num_nextn_predict_layers=1, num_shared_experts=1, rms_norm_eps=1e-5, rope_scaling=None,
        rope_theta=1000000, routed_scaling_factor=2.5, scoring_func="sigmoid", sliding_window=128, sliding_window_pattern="LLLG",
        tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc"),
    "llama4_scout": dict(
        model_type="llama4", architectures=["Llama4ForConditionalGeneration"], tie_word_embeddings=False,
        text_config=dict(
            model_type="llama4_text", attention_bias=False, attention_chunk_size=8192, attention_dropout=0.0, attn_scale=0.1, attn_temperature_tuning=4,
            cache_implementation="hybrid", floor_scale=8192, for_llm_compressor=False, head_dim=128, hidden_act="silu", hidden_size=5120,
            interleave_moe_layer_step=1, intermediate_size=8192, intermediate_size_mlp=16384, max_position_embeddings=10485760,
            moe_layers=list(range(48)), no_rope_layers=[int((i + 1) % 4 != 0) for i in range(48)], num_attention_heads=40, num_experts_per_tok=1,
            num_hidden_layers=48, num_key_value_heads=8, num_local_experts=16, output_router_logits=False, rms_norm_eps=1e-5,
            rope_scaling=dict(factor=16.0, high_freq_factor=1.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type="llama3"),
            rope_theta=500000.0, router_aux_loss_coef=0.001, router_jitter_noise=0.0, use_cache=True, use_qk_norm=True, vocab_size=202048)),
    "llama4_maverick": dict(
        model_type="llama4", architectures=["Llama4ForConditionalGeneration"], tie_word_embeddings=False,
        text_config=dict(
            model_type="llama4_text", attention_bias=False, attention_chunk_size=8192, attn_scale=0.1, attn_temperature_tuning=4, floor_scale=8192,
            head_dim=128, hidden_act="silu", hidden_size=5120, interleave_moe_layer_step=2, intermediate_size=8192, intermediate_size_mlp=16384,
            max_position_embeddings=1048576, moe_layers=list(range(1, 48, 2)), no_rope_layers=[], num_attention_heads=40, num_experts_per_tok=1,
            num_hidden_layers=48, num_key_value_heads=8, num_local_experts=128, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000.0,
            use_cache=True, use_qk_norm=False, vocab_size=202048)),
    "gte_multilingual_base": NEW | dict(
        architectures=["NewModel", "NewForTokenClassification"], vocab_size=250048, type_vocab_size=1, pad_token_id=1, rope_theta=20000,
        rope_scaling=dict(factor=8.0, type="ntk")),
    "gte_large_en": NEW | dict(
        architectures=["NewModel"], vocab_size=30528, type_vocab_size=2, rope_theta=160000, rope_scaling=dict(factor=2.0, type="ntk"),
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16),
    "gte_reranker": NEW | dict(
        architectures=["NewForSequenceClassification"], vocab_size=250048, type_vocab_size=1, rope_theta=20000,
        rope_scaling=dict(factor=8.0, type="ntk"), num_labels=1),
    "llama3_8b": sizes(
        "llama", 4096, 14336, 32, 32, 8, 128256, 131072, architectures=["LlamaForCausalLM"], attention_bias=False, hidden_act="silu", mlp_bias=False,
        pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=LLAMA3_ROPE, rope_theta=500000.0, tie_word_embeddings=False),
    "llava_1_5": dict(
        model_type="llava", architectures=["LlavaForConditionalGeneration"], ignore_index=-100, projector_hidden_act="gelu", vocab_size=32064,
        text_config=dict(_name_or_path="lmsys/vicuna-7b-v1.5", architectures=["LlamaForCausalLM"], max_position_embeddings=4096,
                         model_type="llama", rms_norm_eps=1e-5, vocab_size=32064)),
    "pixtral_12b": dict(
        model_type="llava", architectures=["LlavaForConditionalGeneration"],
        text_config=dict(hidden_size=5120, head_dim=128, intermediate_size=14336, is_composition=True, max_position_embeddings=1024000,
                         model_type="mistral", num_hidden_layers=40, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1000000000.0,
                         sliding_window=None, vocab_size=131072)),
    "gemma3_4b": dict(
        model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"],
        text_config=dict(hidden_size=2560, intermediate_size=10240, model_type="gemma3_text", num_hidden_layers=34,
                         rope_scaling=dict(factor=8.0, rope_type="linear"), sliding_window=1024)),
    "mistral_small_3_1": dict(
        model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"], spatial_merge_size=2, vision_feature_layer=-1,
        text_config=dict(attention_dropout=0.0, head_dim=128, hidden_act="silu", hidden_size=5120, initializer_range=0.02, intermediate_size=32768,
                         max_position_embeddings=131072, model_type="mistral", num_attention_heads=32, num_hidden_layers=40,
                         num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1000000000.0, sliding_window=None, use_cache=True, vocab_size=131072)),
    "ministral3_8b": dict(
        model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"], tie_word_embeddings=False,
        text_config=sizes(
            "ministral3", 4096, 14336, 34, 32, 8, 131072, 262144, head_dim=128, hidden_act="silu", rms_norm_eps=1e-5, sliding_window=None,
            rope_parameters=dict(beta_fast=32.0, beta_slow=1.0, factor=16.0, llama_4_scaling_beta=0.1, mscale=1.0, mscale_all_dim=1.0,
                                 original_max_position_embeddings=16384, rope_theta=1000000.0, rope_type="yarn", type="yarn"))),
    "deepseek_vl_7b": dict(  # as deepseek-ai has it
        model_type="multi_modality", torch_dtype="bfloat16", aligner_config=dict(cls="MlpProjector", model_type="aligner", params=dict(depth=2)),
        language_config=dict(max_position_embeddings=16384, model_type="llama", num_hidden_layers=30, vocab_size=102400)),
    "internvl2_5": dict(  # as OpenGVLab has it
        model_type="internvl_chat", architectures=["InternVLChatModel"], downsample_ratio=0.5, force_image_size=448,
        llm_config=sizes("qwen2", 3584, 18944, 28, 28, 4, 151674, 32768, architectures=["Qwen2ForCausalLM"], hidden_act="silu",
                         max_window_layers=28, rms_norm_eps=1e-6, rope_theta=1000000.0, rope_scaling=None, sliding_window=None,
                         tie_word_embeddings=False, use_sliding_window=False)),
    "qwen2_5_7b": sizes(
        "qwen2", 3584, 18944, 28, 28, 4, 152064, 32768, architectures=["Qwen2ForCausalLM"], hidden_act="silu", max_window_layers=28,
        rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=131072, tie_word_embeddings=False, use_sliding_window=False),
    "qwen2_5_vl_7b": dict(
        model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"], attention_dropout=0.0, hidden_act="silu", hidden_size=3584,
        initializer_range=0.02, intermediate_size=18944, max_position_embeddings=128000, max_window_layers=28, num_attention_heads=28,
        num_hidden_layers=28, num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=32768, tie_word_embeddings=False,
        use_cache=True, use_sliding_window=False, vision_config=dict(depth=32, model_type="qwen2_5_vl"),
        rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]), vocab_size=152064),
    "qwen3_8b": sizes(
        "qwen3", 4096, 12288, 36, 32, 8, 151936, 40960, architectures=["Qwen3ForCausalLM"], attention_bias=False, head_dim=128, hidden_act="silu",
        max_window_layers=36, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None, tie_word_embeddings=False,
        use_sliding_window=False),
    "qwen3_30b_a3b": sizes(
        "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, 40960, architectures=["Qwen3MoeForCausalLM"], attention_bias=False, decoder_sparse_step=1,
        head_dim=128, hidden_act="silu", max_window_layers=48, mlp_only_layers=[], moe_intermediate_size=768, norm_topk_prob=True, num_experts=128,
        num_experts_per_tok=8, output_router_logits=False, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000.0,
        router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False, use_sliding_window=False),
    "qwen1_5_moe": sizes(
        "qwen2_moe", 2048, 5632, 24, 16, 16, 151936, 8192, architectures=["Qwen2MoeForCausalLM"], decoder_sparse_step=1, hidden_act="silu",
        max_window_layers=21, moe_intermediate_size=1408, norm_topk_prob=False, num_experts=60, num_experts_per_tok=4, output_router_logits=False,
        rms_norm_eps=1e-6, rope_theta=1000000.0, router_aux_loss_coef=0.001, shared_expert_intermediate_size=5632, sliding_window=32768,
        tie_word_embeddings=False, use_sliding_window=False),
    "qwen3_next_80b": sizes(
        "qwen3_next", 2048, 5120, 48, 16, 2, 151936, 262144, architectures=["Qwen3NextForCausalLM"], attention_bias=False, decoder_sparse_step=1,
        full_attention_interval=4, head_dim=256, hidden_act="silu", linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
        linear_num_value_heads=32, linear_value_head_dim=128, mlp_only_layers=[], moe_intermediate_size=512, norm_topk_prob=True,
        num_experts=512, num_experts_per_tok=10, output_router_logits=False, partial_rotary_factor=0.25, rms_norm_eps=1e-6, rope_scaling=None,
        rope_theta=10000000, router_aux_loss_coef=0.001, shared_expert_intermediate_size=512, tie_word_embeddings=False, use_sliding_window=False),
    "glm_5_3_flash": dict(model_type="glm5_next", architectures=["Glm5NextForConditionalGeneration"], tie_word_embeddings=False, text_config=sizes(
        "glm5_next_text", 4096, 12288, 45, 64, 64, 154880, 1048576, attention_bias=False, first_k_dense_replace=3,
        hc_eps=1e-6, hc_mult=4, hc_sinkhorn_iters=20, hidden_act="silu", index_head_dim=128, index_kpool=4, index_kpool_always_select_tail=True,
        index_n_heads=32, index_topk=2048, kv_lora_rank=512, moe_intermediate_size=2048, moe_layer_freq=1, n_group=1, n_routed_experts=288,
        n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=8, num_nextn_predict_layers=1, q_lora_rank=1536, qk_nope_head_dim=256,
        qk_rope_head_dim=0, rms_norm_eps=1e-5, routed_scaling_factor=2.5, scoring_func="sigmoid", swiglu_limit=10.0, tie_word_embeddings=False,
        topk_group=1, topk_method="noaux_tc", v_head_dim=256, layer_types=by_layer(45, 4, "indexed_attention", "linear_attention"),
        linear_attn_config=dict(head_dim=128, num_heads=64, short_conv_kernel_size=4, gate_lower_bound=-5.0, safe_gate=True))),
    "minimax_m3": dict(model_type="minimax_m3_vl", architectures=["MiniMaxM3SparseForConditionalGeneration"], image_token_index=200025,
                       video_token_index=200026, projector_hidden_size=6144, tie_word_embeddings=False, text_config=sizes(
        "minimax_m3_vl_text", 6144, 3072, 60, 64, 4, 200064, 524288, architectures=["MiniMaxM3SparseForCausalLM"],
        attention_output_gate=False, dense_intermediate_size=12288, head_dim=128, hidden_act="swigluoai", moe_layer_freq=[0] * 3 + [1] * 57,
        n_shared_experts=1, num_experts_per_tok=4, num_local_experts=128, num_mtp_modules=1, qk_norm_type="per_head", rms_norm_eps=1e-6,
        rope_theta=5000000, partial_rotary_factor=0.5, rotary_dim=64, routed_scaling_factor=2.0, scoring_func="sigmoid",
        shared_intermediate_size=3072, swiglu_alpha=1.702, swiglu_limit=7.0, tie_word_embeddings=False, use_gemma_norm=True,
        use_qk_norm=True, use_routing_bias=True, sparse_attention_config=dict(
            use_sparse_attention=True, sparse_index_dim=128, sparse_num_index_heads=4, sparse_topk_blocks=16, sparse_block_size=128,
            sparse_disable_index_value=[0] * 3 + [1] * 57, sparse_score_type="max", sparse_init_block=0, sparse_local_block=1,
            sparse_attention_freq=[0] * 3 + [1] * 57))),
    "mistral_large4": dict(model_type="mistral_large4", architectures=["MistralLarge4ForConditionalGeneration"], image_token_index=10,
                           multimodal_projector_bias=False, projector_hidden_act="gelu", spatial_merge_size=2, tie_word_embeddings=False,
                           vision_feature_layer=-1, text_config=sizes(
        "mistral_large4_text", 6144, 24576, 72, 64, 64, 204800, 1048576, attention_bias=False, final_logit_softcapping=30.0,
        first_k_dense_replace=1, head_dim=64, hidden_act="silu", index_head_dim=128, index_n_heads=32, index_topk=2048,
        indexer_types=["full"] * 72, kv_lora_rank=512, kv_source_layers=[*range(72)],
        mlp_layer_types=["dense"] + ["sparse"] * 71, moe_intermediate_size=6144, n_group=1, n_routed_experts=128, n_shared_experts=1,
        no_rope_layers=[1, 1, 1, 0] * 18, num_experts_per_tok=4, output_router_logits=False, qk_nope_head_dim=64, qk_rope_head_dim=64,
        rms_norm_eps=1e-5, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=2048.0, original_max_position_embeddings=512, beta_fast=32.0, beta_slow=1.0,
            attention_factor=1.0),
        routed_scaling_factor=1.0, tie_word_embeddings=False, topk_group=1, v_head_dim=128)),
    "rwkv6_finch_1b6": dict(
        model_type="rwkv6", architectures=["Rwkv6ForCausalLM"], attention_hidden_size=2048, bos_token_id=0, context_length=4096, eos_token_id=0,
        head_size=64, head_size_divisor=8, hidden_size=2048, intermediate_size=None, layer_norm_epsilon=1e-5, model_version="6_0",
        num_attention_heads=64, num_hidden_layers=24, rescale_every=6, tie_word_embeddings=False, use_cache=True, vocab_size=65536),
    "rwkv7_goose_1b5": dict(
        model_type="rwkv7", architectures=["RWKV7ForCausalLM"], a_low_rank_dim=96, attn=None, attn_mode="chunk", bos_token_id=0,
        decay_low_rank_dim=96, eos_token_id=0, fuse_cross_entropy=True, fuse_norm=False, gate_low_rank_dim=256, head_dim=64, hidden_act="sqrelu",
        hidden_ratio=4.0, hidden_size=2048, initializer_range=0.006, intermediate_size=8192, max_position_embeddings=2048, norm_bias=True,
        norm_eps=1e-5, norm_first=True, num_heads=32, num_hidden_layers=24, tie_word_embeddings=False, use_cache=True, v_low_rank_dim=64,
        value_dim=[2048] * 24, vocab_size=65536),
    "zaya1_8b": dict(
        model_type="zaya", architectures=["ZayaForCausalLM"], attention_bias=False, attention_dropout=0.0, cca_time0=2, cca_time1=2, head_dim=128,
        hidden_act="silu", hidden_size=2048, initializer_range=0.02, layer_types=["hybrid"] * 40, lm_head_bias=False,
        max_position_embeddings=131072, moe_intermediate_size=2048, num_attention_heads=8, num_experts=16, num_experts_per_tok=1,
        num_hidden_layers=40, num_key_value_heads=2, output_router_logits=False, rms_norm_eps=1e-5, rope_parameters=dict(
            hybrid=dict(partial_rotary_factor=0.5, rope_theta=5000000.0, rope_type="default"),
            hybrid_sliding=dict(partial_rotary_factor=0.5, rope_theta=10000.0, rope_type="default"), rope_type="default"),
        router_hidden_size=256, sliding_window=None, tie_word_embeddings=True, use_cache=True, vocab_size=262272),
    "hy4_preview": sizes(
        "hy_v4", 6144, 18432, 78, 64, 8, 120832, 262144, architectures=["HYV4ForCausalLM"], attention_bias=False, enable_ihc=True,
        enable_lm_head_fp32=True, gated_mla=True, gating_type="elementwise", hc_eps=1e-6, hc_magnitude=2.0, hc_mult=4, head_dim=256,
        hidden_act="silu", index_head_dim=128, index_n_heads=32, index_topk=2048,
        indexer_types=["full" if i == 0 or i % 4 == 1 else "shared" for i in range(78)], kv_lora_rank=512,
        layer_types=["deepseek_sparse_attention"] * 78, learnable_sink=True, learnable_sink_init=0.0,
        mlp_layer_types=["dense"] + ["sparse"] * 77, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True,
        num_experts_per_tok=8, num_nextn_predict_layers=1, q_lora_rank=2048, qk_nope_head_dim=192, qk_rope_head_dim=64, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=10000000.0), routed_scaling_factor=2.827, swiglu_limit=10.0,
        tie_word_embeddings=False, v_head_dim=256),
    "grok_1": dict(
        model_type="grok-1", architectures=["Grok1ForCausalLM"], attn_output_multiplier=0.08838834764831845, bos_token_id=1,
        embedding_multiplier_scale=78.38367176906169, eos_token_id=2, hidden_size=6144, intermediate_size=32768, max_attn_value=30.0,
        max_position_embeddings=8192, num_attention_heads=48, num_experts_per_tok=2, num_hidden_layers=64, num_key_value_heads=8,
        num_local_experts=8, output_multiplier_scale=0.5773502691896257, pad_token_id=0, rms_norm_eps=1e-5, tie_word_embeddings=False,
        vocab_size=131072),
    "grok_2": dict(
        model_type="git", architectures=["Grok1ForCausalLM"], attn_factor=1.0, attn_logit_softcapping=30.0, attn_temperature_len=1024, beta_fast=8,
        beta_slow=1, embedding_multiplier_scale=90.50966799187809, extrapolation_factor=1.0, final_logit_softcapping=50.0, global_attn_every_n=1,
        head_dim=128, hidden_size=8192, intermediate_size=32768, max_position_embeddings=131072, moe_intermediate_size=16384,
        num_attention_heads=64, num_experts_per_tok=2, num_hidden_layers=64, num_key_value_heads=8, num_local_experts=8,
        original_max_position_embeddings=8192, output_multiplier_scale=0.5, residual_moe=True, rms_norm_eps=1e-5, rope_theta=208533496.0,
        rope_type="original", router_logit_softcapping=30.0, scaling_factor=16.0, sliding_window_size=-1, vocab_size=131072),
    # As Qwen3-30B-A3B, from which it was made.
    "grove_moe_inst": sizes(
        "grove_moe", 2048, 6144, 48, 32, 4, 151936, 40960, architectures=["modeling_grove_moe.GroveMoeForCausalLM"], attention_bias=False,
        attention_dropout=0.0, decoder_sparse_step=1, head_dim=128, hidden_act="silu", max_window_layers=48, mlp_only_layers=[],
        moe_intermediate_size=768, norm_topk_prob=True, num_experts=128, num_experts_per_tok=8, output_router_logits=False, rms_norm_eps=1e-6,
        rope_scaling=None, rope_theta=1000000.0, router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False,
        use_sliding_window=False),
    "plamo_13b": sizes(
        "plamo", 5120, 16640, 40, 40, 40, 50432, 4096, architectures=["PlamoForCausalLM"], n_shared_head=8, rms_norm_eps=1e-6,
        tie_word_embeddings=False, tokenizer_class="PlamoTokenizer", torch_dtype="bfloat16"),
    "plamo_2_1b": sizes(
        "plamo2", 2048, 8192, 16, 16, 1, 100000, 10485760, architectures=["Plamo2ForCausalLM"], attention_window_size=2048, eos_token_id=2,
        full_attention_idx=[], hidden_size_per_head=128, mamba_chunk_size=256, mamba_d_conv=4, mamba_d_state=64, mamba_enabled=True,
        mamba_num_heads=32, mamba_step=2, rms_norm_eps=1e-6, tie_word_embeddings=True),
    # What its class assumes.
    "plamo3": sizes(
        "plamo3", 4096, 13312, 32, 32, 4, 32000, 2048, architectures=["Plamo3ForCausalLM"], attention_bias=False, head_dim=128,
        hidden_activation="swiglu", initial_context_length=None, rms_norm_eps=1e-6, rope_local_theta=10000, rope_scaling_factor=1,
        rope_theta=150000, sliding_window_pattern=8, tie_word_embeddings=True, tokenizer_class="Plamo3Tokenizer", window_size=128),
    # What its class assumes.
    "hrm_text_1b": dict(
        model_type="hrm_text", architectures=["HrmTextForCausalLM"], H_cycles=2, L_bp_cycles=[2], L_cycles=3, attention_bias=False, attention_dropout=0.0,
        embedding_scale=50.0, head_dim=128, hidden_act="silu", hidden_size=1536, initializer_range=0.02, intermediate_size=4096,
        max_position_embeddings=2048, mlp_bias=False, num_attention_heads=12, num_hidden_layers=128, num_layers_per_stack=16, prefix_lm=True,
        rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=False, use_cache=True,
        vocab_size=151808),
    # With the keys that llama.cpp's converter asks for.
    "dory_4b": dict(
        model_type="dory", architectures=["DoryForCausalLM"], attention_bias=False, attention_dropout=0.0, attention_output_gate=True,
        dory_format_version=1, fngpt=True, head_dim=256, hidden_act="silu", hidden_size=2560, hybrid_layer_pattern="S-S-S-*-" * 9,
        initial_state="input_copy", initializer_range=0.0177, input_transform="residual", intermediate_size=7168,
        layer_types=(["sliding_attention", "mlp"] * 3 + ["full_attention", "mlp"]) * 9, max_position_embeddings=8192, mlp_bias=False,
        mlp_hidden_act="silu", n_input_layers=16, n_output_layers=16, n_recurrent_layers=40, n_recurrent_loops=2, ngpt=True, ngpt_alpha_init=0.05,
        ngpt_enable_final_norm=False, num_attention_heads=16, num_hidden_layers=72, num_key_value_heads=4, output_transform="replace",
        recurrent_kv_cache_mode="per_loop", sliding_window=1024, tie_word_embeddings=False, use_cache=True, vocab_size=131072,
        rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                         "full_attention": dict(rope_type="default", rope_theta=10000000.0)}),
    "longcat_flash_chat": dict(
        model_type="longcat_flash", architectures=["LongcatFlashForCausalLM"], attention_bias=False, attention_dropout=0.0,
        attention_method="MLA", expert_ffn_hidden_size=2048, ffn_hidden_size=12288, hidden_size=6144, kv_lora_rank=512,
        max_position_embeddings=131072, mla_scale_kv_lora=True, mla_scale_q_lora=True, moe_topk=12, n_routed_experts=512,
        num_attention_heads=64, num_layers=28, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-5,
        rope_theta=10000000.0, routed_scaling_factor=6.0, router_bias=False, use_cache=True, v_head_dim=128, vocab_size=131072,
        zero_expert_num=256, zero_expert_type="identity"),
    "smallthinker_4b": dict(
        model_type="smallthinker", architectures=["SmallThinkerForCausalLM"], attention_dropout=0.0, head_dim=128, hidden_size=1536,
        max_position_embeddings=32768, model_name="smallthinker_4b_instruct", moe_ffn_hidden_size=768, moe_num_active_primary_experts=4,
        moe_num_primary_experts=32, norm_topk_prob=True, num_attention_heads=12, num_hidden_layers=32, num_key_value_heads=2,
        output_router_logits=False, rms_norm_eps=1e-6, rope_layout=[1] * 32, rope_scaling=None, rope_theta=1500000.0, sliding_window_size=4096,
        sliding_window_layout=[0] * 32, tie_word_embeddings=True, use_cache=False, vocab_size=151936),
    "arctic_instruct": sizes(
        "arctic", 7168, 4864, 35, 56, 8, 32000, 4096, architectures=["ArcticForCausalLM"], enable_expert_tensor_parallelism=False,
        hidden_act="silu", moe_eval_capacity_factor=1, moe_layer_frequency=1, moe_min_capacity=0, moe_token_dropping=True,
        moe_train_capacity_factor=1, num_experts_per_tok=2, num_local_experts=128, parallel_attn_mlp_res=True, quantization=None,
        rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000, router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False,
        use_residual=True),
    "minimax_text_01": sizes(
        "minimax_text_01", 6144, 9216, 80, 64, 8, 200064, 10240000, architectures=["MiniMaxText01ForCausalLM"],
        attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1] * 10, head_dim=128, hidden_act="silu", initializer_range=0.02,
        layernorm_full_attention_alpha=3.5565588200778455, layernorm_full_attention_beta=1.0,
        layernorm_linear_attention_alpha=3.5565588200778455, layernorm_linear_attention_beta=1.0,
        layernorm_mlp_alpha=3.5565588200778455, layernorm_mlp_beta=1.0, num_experts_per_tok=2, num_local_experts=32,
        output_router_logits=False, postnorm=True, rms_norm_eps=1e-5, rope_theta=10000000, rotary_dim=64, router_aux_loss_coef=0.001,
        router_jitter_noise=0.0, shared_intermediate_size=0, shared_moe_mode="sigmoid", sliding_window=None, tie_word_embeddings=False),
    "dots3_note": sizes(
        "dots3_note", 5120, 13824, 46, 128, 128, 152064, 524288, architectures=["Dots3NoteForConditionalGeneration"],
        apply_mla_qkv_lora_rescale=True, attention_bias=False, attention_gate_type="headwise", final_norm="RMSNorm", first_k_dense_replace=1,
        hidden_act="silu", index_head_dim=128, index_n_heads=64, index_topk=2048, k_rope_only_layernorm=True, kv_lora_rank=512,
        layer_types=["full_attention"] * 2 + (["sliding_attention"] * 3 + ["full_attention"]) * 11, moe_gating_fp32=False,
        moe_intermediate_size=1536, moe_layer_freq=1, moe_shared_expert_intermediate_size=1536, n_group=1, n_routed_experts=256,
        n_shared_experts=1, norm_topk_prob=True, normalization="RMSNorm", num_experts_per_tok=8, q_lora_rank=1024, qk_nope_head_dim=128,
        qk_rope_head_dim=64, rms_norm_eps=1e-5, rope_theta=80000000.0, routed_scaling_factor=1.0, scoring_func="sigmoid",
        sliding_window_size=512, swa_attention_gate_type="headwise", swa_head_dim=256, swa_kv_lora_rank=1024, swa_num_attention_heads=64,
        swa_num_key_value_heads=64, swa_q_lora_rank=1024, swa_qk_nope_head_dim=192, swa_qk_rope_head_dim=64, swa_rope_theta=50000.0,
        swa_v_head_dim=128, tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", use_dsa=True, use_dynamic_rsf=False,
        use_sliding_window=True, v_head_dim=128),
    "qwen3_8_flash_next": sizes(
        "qwen4_exp_text", 2560, 640, 48, 24, 2, 248320, 262144, architectures=["Qwen4ExpForCausalLM"], attention_bias=False, eos_token_id=248044,
        head_dim=256, hidden_act="silu", linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=48,
        linear_value_head_dim=128, moe_intermediate_size=640, shared_expert_intermediate_size=640, num_experts=512, num_experts_per_tok=10,
        norm_topk_prob=True, hc_count=4, hc_lowrank=320, ple_layer_ids=[2], ple_embed_dim=2560, ple_conv_kernel_size=4, ngram_size=3,
        heads_per_ngram=8, ngram_vocab_size_base=20000000, make_ngram_vocab_size_divisible_by=128, split_ngram_parts=128, seed=1234,
        indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=128, indexer_budget=2048, indexer_compress_ratio=4, output_gate_type="sigmoid",
        layer_types=by_layer(48, 4, others="linear_attention"), rms_norm_eps=1e-6, rope_parameters=dict(
            rope_theta=10000000, rope_type="default", partial_rotary_factor=0.25, mrope_section=[11, 11, 10], mrope_interleaved=True),
        router_aux_loss_coef=0.001, tie_word_embeddings=False),
    "mistral_7b_v0_1": sizes(
        "mistral", 4096, 14336, 32, 32, 8, 32000, 32768, architectures=["MistralForCausalLM"], hidden_act="silu", rms_norm_eps=1e-5,
        rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False),
    "mixtral_8x7b": sizes(
        "mixtral", 4096, 14336, 32, 32, 8, 32000, 32768, architectures=["MixtralForCausalLM"], hidden_act="silu", num_experts_per_tok=2,
        num_local_experts=8, output_router_logits=False, rms_norm_eps=1e-5, rope_theta=1000000.0, router_aux_loss_coef=0.02,
        sliding_window=None, tie_word_embeddings=False),
    "deepseek_v2_lite": sizes(
        "deepseek_v2", 2048, 10944, 27, 16, 16, 102400, 163840, architectures=["DeepseekV2ForCausalLM"], attention_bias=False, aux_loss_alpha=0.001,
        first_k_dense_replace=1, hidden_act="silu", kv_lora_rank=512, moe_intermediate_size=1408, moe_layer_freq=1, n_group=1,
        n_routed_experts=64, n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=6, pretraining_tp=1, q_lora_rank=None,
        qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-6, rope_scaling=DEEPSEEK_ROPE | dict(mscale=0.707, mscale_all_dim=0.707),
        rope_theta=10000, routed_scaling_factor=1.0, scoring_func="softmax", seq_aux=True, tie_word_embeddings=False, topk_group=1,
        topk_method="greedy", v_head_dim=128),
    "deepseek_v3": sizes("deepseek_v3", 7168, 18432, 61, 128, 128, 129280, 163840, architectures=["DeepseekV3ForCausalLM"], rope_scaling=DEEPSEEK_ROPE,
                         rope_theta=10000, tie_word_embeddings=False, **EXPERTS_OF_V3),
    "deepseek_v3_2": sizes(
        "deepseek_v32", 7168, 18432, 61, 128, 128, 129280, 163840, architectures=["DeepseekV32ForCausalLM"], rope_scaling=DEEPSEEK_ROPE,
        rope_theta=10000, tie_word_embeddings=False, index_head_dim=128, index_n_heads=64, index_topk=2048, **EXPERTS_OF_V3),
    "deepseek_v4_flash": DEEPSEEK_V4 | dict(
        compress_ratios=[0, 0, *[4, 128] * 20, 4, 0], hidden_size=4096, index_topk=512, moe_intermediate_size=2048, n_routed_experts=256,
        num_attention_heads=64, num_hidden_layers=43, o_groups=8, q_lora_rank=1024, routed_scaling_factor=1.5),
    "deepseek_v4_pro": DEEPSEEK_V4 | dict(
        compress_ratios=[128, 128, *[4, 128] * 29, 4, 0], hidden_size=7168, index_topk=1024, moe_intermediate_size=3072, n_routed_experts=384,
        num_attention_heads=128, num_hidden_layers=61, o_groups=16, q_lora_rank=1536, routed_scaling_factor=2.5),
    "glm5": sizes(
        "glm_moe_dsa", 6144, 12288, 78, 64, 64, 154880, 202752, architectures=["GlmMoeDsaForCausalLM"], tie_word_embeddings=False,
        head_dim=64, index_head_dim=128, index_n_heads=32, index_topk=2048, indexer_rope_interleave=True, qk_head_dim=256,
        rope_interleave=True, rope_parameters=dict(rope_theta=1000000, rope_type="default"), **EXPERTS_OF_V3 | dict(
            n_group=1, topk_group=1, q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256, rms_norm_eps=1e-5)),
    "glm5_2": sizes(
        "glm_moe_dsa", 6144, 12288, 78, 64, 64, 154880, 1048576, architectures=["GlmMoeDsaForCausalLM"], tie_word_embeddings=False,
        head_dim=64, index_head_dim=128, index_n_heads=32, index_topk=2048, index_topk_freq=4, index_skip_topk_offset=3,
        indexer_rope_interleave=True, indexer_types=["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3, qk_head_dim=256,
        rope_interleave=True, rope_parameters=dict(rope_theta=8000000, rope_type="default"), **EXPERTS_OF_V3 | dict(
            n_group=1, topk_group=1, q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256, rms_norm_eps=1e-5)),
    "kimi_k2": sizes("kimi_k2", 7168, 18432, 61, 64, 64, 163840, 131072, architectures=["DeepseekV3ForCausalLM"],
                     rope_scaling=DEEPSEEK_ROPE | dict(factor=32.0, beta_fast=1.0, beta_slow=1.0), rope_theta=50000.0, tie_word_embeddings=False,
                     **EXPERTS_OF_V3 | dict(first_k_dense_replace=1, n_group=1, topk_group=1, n_routed_experts=384, routed_scaling_factor=2.827,
                                            num_nextn_predict_layers=0)),
    "glm4_5_air": sizes(
        "glm4_moe", 4096, 10944, 46, 96, 8, 151552, 131072, architectures=["Glm4MoeForCausalLM"], attention_bias=True, first_k_dense_replace=1,
        head_dim=128, hidden_act="silu", moe_intermediate_size=1408, n_group=1, n_routed_experts=128, n_shared_experts=1, norm_topk_prob=True,
        num_experts_per_tok=8, num_nextn_predict_layers=1, partial_rotary_factor=0.5, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=1000000,
        routed_scaling_factor=1.0, tie_word_embeddings=False, topk_group=1, use_qk_norm=False),
    "glm4_9b": sizes(
        "glm4", 4096, 13696, 40, 32, 2, 151552, 32768, architectures=["Glm4ForCausalLM"], attention_bias=True, head_dim=128, hidden_act="silu",
        partial_rotary_factor=0.5, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
    "gpt_oss_20b": sizes(
        "gpt_oss", 2880, 2880, 24, 64, 8, 201088, 131072, architectures=["GptOssForCausalLM"], attention_bias=True, experts_per_token=4, head_dim=64,
        hidden_act="silu", initial_context_length=4096, layer_types=by_layer(24, 2), num_experts_per_tok=4, num_local_experts=32,
        output_router_logits=False, rms_norm_eps=1e-5, rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128, swiglu_limit=7.0,
        rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=4096, rope_type="yarn", truncate=False),
        tie_word_embeddings=False),
    "gemma2_9b": sizes(
        "gemma2", 3584, 14336, 42, 16, 8, 256000, 8192, architectures=["Gemma2ForCausalLM"], attention_bias=False, attn_logit_softcapping=50.0,
        cache_implementation="hybrid", final_logit_softcapping=30.0, head_dim=256, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, rms_norm_eps=1e-6, rope_theta=10000.0, sliding_window=4096,
        sliding_window_size=4096),
    "gemma_7b": sizes(
        "gemma", 3072, 24576, 28, 16, 16, 256000, 8192, architectures=["GemmaForCausalLM"], attention_bias=False, head_dim=256, hidden_act="gelu",
        hidden_activation=None, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=10000.0),
    "phi3_mini_128k": sizes(
        "phi3", 3072, 8192, 32, 32, 32, 32064, 131072, architectures=["Phi3ForCausalLM"], attention_bias=False, embd_pdrop=0.0, hidden_act="silu",
        original_max_position_embeddings=4096, resid_pdrop=0.0, rms_norm_eps=1e-5, rope_scaling=PHI3_FACTORS, rope_theta=10000.0,
        sliding_window=262144, tie_word_embeddings=False),
    "phi4_mini": sizes(
        "phi3", 3072, 8192, 32, 24, 8, 200064, 131072, architectures=["Phi3ForCausalLM"], attention_bias=False, full_attn_mod=1, hidden_act="silu",
        interpolate_factor=1, lm_head_bias=False, mlp_bias=False, original_max_position_embeddings=4096, partial_rotary_factor=0.75, resid_pdrop=0.0,
        rms_norm_eps=1e-5, rope_scaling=PHI3_FACTORS, rope_theta=10000.0, sliding_window=262144, tie_word_embeddings=True),
    "phi2": dict(
        model_type="phi", architectures=["PhiForCausalLM"], attention_dropout=0.0, embd_pdrop=0.0, hidden_act="gelu_new", hidden_size=2560,
        intermediate_size=10240, layer_norm_eps=1e-5, max_position_embeddings=2048, num_attention_heads=32, num_hidden_layers=32,
        num_key_value_heads=32, partial_rotary_factor=0.4, qk_layernorm=False, resid_pdrop=0.1, rope_scaling=None, rope_theta=10000.0,
        tie_word_embeddings=False, vocab_size=51200),
    "olmo3_32b": sizes(
        "olmo3", 5120, 27648, 64, 40, 8, 100278, 65536, architectures=["Olmo3ForCausalLM"], attention_bias=False, hidden_act="silu",
        layer_types=by_layer(64, 4), rms_norm_eps=1e-6, rope_theta=500000, sliding_window=4096, tie_word_embeddings=False,
        rope_scaling=dict(attention_factor=1.2079441541679836, beta_fast=32, beta_slow=1, factor=8.0, original_max_position_embeddings=8192,
                          rope_type="yarn")),
    "command_r7b": sizes(
        "cohere2", 4096, 14336, 32, 32, 8, 256000, 132096, architectures=["Cohere2ForCausalLM"], attention_bias=False,
        cache_implementation="hybrid", head_dim=128, hidden_act="silu", layer_norm_eps=1e-5, layer_switch=4, logit_scale=0.25, order_of_interleaved_layers="local_attn_first",
        position_embedding_type="rope_gptj", rope_scaling=None, rope_theta=50000, rotary_pct=1.0, sliding_window=4096, sliding_window_pattern=4,
        use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=False, use_qk_norm=False),
    "command_r": sizes(
        "cohere", 8192, 22528, 40, 64, 64, 256000, 131072, architectures=["CohereForCausalLM"], attention_bias=False, hidden_act="silu",
        layer_norm_eps=1e-5, logit_scale=0.0625, model_max_length=131072, pretraining_tp=1, rope_theta=8000000.0, use_qk_norm=False),
    "granite3_8b": sizes(
        "granite", 4096, 12800, 40, 32, 8, 49155, 131072, architectures=["GraniteForCausalLM"], attention_bias=False,
        attention_multiplier=0.0078125, embedding_multiplier=12.0, hidden_act="silu", logits_scaling=16.0, mlp_bias=False,
        residual_multiplier=0.22, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000000.0, tie_word_embeddings=True),
    "granite4_tiny": sizes(
        "granitemoehybrid", 1536, 512, 40, 12, 4, 100352, 131072, architectures=["GraniteMoeHybridForCausalLM"], attention_bias=False,
        attention_multiplier=0.0078125, embedding_multiplier=12, hidden_act="silu",
        layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)], logits_scaling=6, mamba_chunk_size=256,
        mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=64, mamba_d_state=128, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=48,
        mamba_proj_bias=False, normalization_function="rmsnorm", num_experts_per_tok=6, num_local_experts=64, output_router_logits=False,
        position_embedding_type="nope", residual_multiplier=0.22, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000,
        router_aux_loss_coef=0.0, shared_intermediate_size=1024, tie_word_embeddings=True),
    "smollm3_3b": sizes(
        "smollm3", 2048, 11008, 36, 16, 4, 128256, 65536, architectures=["SmolLM3ForCausalLM"], attention_bias=False, hidden_act="silu",
        layer_types=["full_attention"] * 36, max_window_layers=28, mlp_bias=False, no_rope_layer_interval=4,
        no_rope_layers=[int((i + 1) % 4 != 0) for i in range(36)], pretraining_tp=2, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=5000000.0,
        sliding_window=None, use_sliding_window=False),
    "seed_oss_36b": sizes(
        "seed_oss", 5120, 27648, 64, 80, 8, 155136, 524288, architectures=["SeedOssForCausalLM"], attention_bias=True, attention_out_bias=False,
        head_dim=128, hidden_act="silu", mlp_bias=False, residual_dropout=0.1, rms_norm_eps=1e-6, rope_scaling=dict(rope_type="default"),
        rope_theta=10000000.0, tie_word_embeddings=False),
    "ernie4_5_0_3b": sizes(
        "ernie4_5", 1024, 3072, 18, 16, 2, 103424, 131072, architectures=["Ernie4_5ForCausalLM"], head_dim=128, hidden_act="silu",
        rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000, tie_word_embeddings=True, use_bias=False),
    "ernie4_5_21b": sizes(
        "ernie4_5_moe", 2560, 12288, 28, 20, 4, 103424, 131072, architectures=["Ernie4_5_MoeForCausalLM"], hidden_act="silu", moe_capacity=[64, 64, 64],
        moe_gate="topk", moe_intermediate_size=1536, moe_k=6, moe_layer_interval=1, moe_layer_start_index=1, moe_layer_end_index=27, moe_num_experts=64,
        moe_num_shared_experts=2, moe_use_aux_free=True, num_nextn_predict_layers=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000.0,
        tie_word_embeddings=True, use_bias=False),
    "falcon3_7b": sizes(
        "llama", 3072, 23040, 28, 12, 4, 131072, 32768, architectures=["LlamaForCausalLM"], activation="swiglu", attention_bias=False, head_dim=256,
        hidden_act="silu", mlp_bias=False, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000042, tie_word_embeddings=False),
    "falcon_7b": dict(
        model_type="falcon", architectures=["FalconForCausalLM"], alibi=False, apply_residual_connection_post_layernorm=False,
        attention_dropout=0.0, bias=False, hidden_dropout=0.0, hidden_size=4544, layer_norm_epsilon=1e-5, multi_query=True,
        new_decoder_architecture=False, num_attention_heads=71, num_hidden_layers=32, parallel_attn=True, vocab_size=65024),
    "gpt2": dict(
        model_type="gpt2", architectures=["GPT2LMHeadModel"], activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1, layer_norm_epsilon=1e-5,
        n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024, resid_pdrop=0.1, summary_activation=None,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}, vocab_size=50257),
    "gptj_6b": dict(
        model_type="gptj", architectures=["GPTJForCausalLM"], activation_function="gelu_new", attn_pdrop=0.0, embd_pdrop=0.0, gradient_checkpointing=False,
        layer_norm_epsilon=1e-5, n_embd=4096, n_head=16, n_inner=None, n_layer=28, n_positions=2048, resid_pdrop=0.0, rotary=True,
        rotary_dim=64, scale_attn_weights=True, tie_word_embeddings=False, tokenizer_class="GPT2Tokenizer", use_cache=True, vocab_size=50400),
    "codegen_350m": dict(
        model_type="codegen", architectures=["CodeGenForCausalLM"], activation_function="gelu_new", attn_pdrop=0.0, embd_pdrop=0.0,
        layer_norm_epsilon=1e-5, n_ctx=2048, n_embd=1024, n_head=16, n_inner=None, n_layer=20, n_positions=2048, resid_pdrop=0.0,
        rotary_dim=32, scale_attn_weights=True, tie_word_embeddings=False, use_cache=True, vocab_size=51200),
    "opt_125m": dict(
        model_type="opt", architectures=["OPTForCausalLM"], _remove_final_layer_norm=False, activation_dropout=0.0, activation_function="relu",
        attention_dropout=0.0, do_layer_norm_before=True, dropout=0.1, ffn_dim=3072, hidden_size=768, init_std=0.02, layerdrop=0.0,
        max_position_embeddings=2048, num_attention_heads=12, num_hidden_layers=12, pad_token_id=1, prefix="</s>", use_cache=True,
        vocab_size=50272, word_embed_proj_dim=768),
    "pythia_160m": dict(
        model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], hidden_act="gelu", hidden_size=768, intermediate_size=3072,
        layer_norm_eps=1e-5, max_position_embeddings=2048, num_attention_heads=12, num_hidden_layers=12, rotary_emb_base=10000, rotary_pct=0.25,
        tie_word_embeddings=False, use_cache=True, use_parallel_residual=True, vocab_size=50304),
    "starcoder2_3b": sizes(
        "starcoder2", 3072, 12288, 30, 24, 2, 49152, 16384, architectures=["Starcoder2ForCausalLM"], activation_function="gelu",
        embedding_dropout=0.1, hidden_act="gelu_pytorch_tanh", layer_norm_epsilon=1e-5, mlp_type="default", norm_epsilon=1e-5,
        norm_type="layer_norm", residual_dropout=0.1, rope_theta=999999.4420358813, sliding_window=4096, use_bias=True),
    "stablelm2_1_6b": sizes(
        "stablelm", 2048, 5632, 24, 32, 32, 100352, 4096, architectures=["StableLmForCausalLM"], hidden_act="silu", layer_norm_eps=1e-5,
        partial_rotary_factor=0.25, qk_layernorm=False, rope_scaling=None, rope_theta=10000, rotary_scaling_factor=1.0, tie_word_embeddings=False,
        use_parallel_residual=False, use_qkv_bias=True),
    "bloom_560m": dict(
        model_type="bloom", architectures=["BloomForCausalLM"], apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
        attention_softmax_in_fp32=True, bias_dropout_fusion=True, hidden_dropout=0.0, hidden_size=1024, n_head=16, n_layer=24,
        layer_norm_epsilon=1e-5, masked_softmax_fusion=True, offset_alibi=100, pretraining_tp=1, seq_length=2048, skip_bias_add=True,
        skip_bias_add_qkv=False, slow_but_exact=False, unk_token_id=0, use_cache=True, vocab_size=250880),
    "mpt_7b": dict(
        model_type="mpt", architectures=["MPTForCausalLM"], attn_config=dict(
            alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention", attn_uses_sequence_id=False,
            clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None), d_model=4096, emb_pdrop=0, embedding_fraction=1.0,
        expansion_ratio=4, init_device="cpu", learned_pos_emb=True, logit_scale=None, max_seq_len=2048, n_heads=32, n_layers=32, no_bias=True,
        norm_type="low_precision_layernorm", resid_pdrop=0, use_cache=False, vocab_size=50432),
    "lfm2_1_2b": dict(
        model_type="lfm2", architectures=["Lfm2ForCausalLM"], block_auto_adjust_ff_dim=True, block_dim=2048, block_ff_dim=12288,
        block_ffn_dim_multiplier=1.0, block_mlp_init_scale=1.0, block_multiple_of=256, block_norm_eps=1e-5, block_out_init_scale=1.0,
        block_use_swiglu=True, block_use_xavier_init=True, conv_L_cache=3, conv_bias=False, conv_dim=2048, conv_dim_out=2048,
        conv_use_xavier_init=True, full_attn_idxs=[2, 5, 8, 10, 12, 14], hidden_size=2048, max_position_embeddings=128000, norm_eps=1e-5,
        num_attention_heads=32, num_heads=32, num_hidden_layers=16, num_key_value_heads=8, rope_theta=1000000.0, use_cache=True,
        use_pos_enc=True, vocab_size=65536),
    "minimax_m2": sizes(
        "minimax_m2", 3072, 1536, 62, 48, 8, 200064, 196608, architectures=["MiniMaxM2ForCausalLM"], attn_type_list=[1] * 62, head_dim=128,
        hidden_act="silu", layernorm_full_attention_beta=1.0, layernorm_linear_attention_beta=1.0, layernorm_mlp_beta=1.0, mlp_intermediate_size=8192,
        mtp_transformer_layers=1, num_experts_per_tok=8, num_local_experts=256, num_mtp_modules=3, output_router_logits=False, qk_norm_type="per_layer",
        rms_norm_eps=1e-6, rope_theta=5000000, rotary_dim=64, router_aux_loss_coef=0.001, router_jitter_noise=0.0, scoring_func="sigmoid",
        shared_intermediate_size=0, shared_moe_mode="sigmoid", sliding_window=None, tie_word_embeddings=False, use_mtp=True, use_qk_norm=True,
        use_routing_bias=True, max_model_len=None),
    "solar_open_100b": sizes(
        "solar_open", 4096, 10240, 48, 64, 8, 196608, 131072, architectures=["SolarOpenForCausalLM"], attention_bias=False, first_k_dense_replace=0,
        head_dim=128, hidden_act="silu", moe_intermediate_size=1280, n_group=1, n_routed_experts=128, n_shared_experts=1, norm_topk_prob=True,
        num_experts_per_tok=8, partial_rotary_factor=1.0, rms_norm_eps=1e-5, rope_theta=1000000, routed_scaling_factor=1.0, tie_word_embeddings=False,
        topk_group=1, use_qk_norm=False,
        rope_scaling=dict(attention_factor=1.0, beta_fast=32.0, beta_slow=1.0, factor=2.0, original_max_position_embeddings=65536, type="yarn")),
    "mamba_130m": dict(
        model_type="mamba", architectures=["MambaForCausalLM"], conv_kernel=4, d_inner=1536, d_model=768, expand=2, fused_add_norm=True,
        hidden_act="silu", hidden_size=768, intermediate_size=1536, layer_norm_epsilon=1e-5, n_layer=24, num_hidden_layers=24,
        pad_vocab_size_multiple=8, rescale_prenorm_residual=False, residual_in_fp32=True, rms_norm=True, ssm_cfg={}, state_size=16,
        time_step_floor=0.0001, time_step_init_scheme="random", time_step_max=0.1, time_step_min=0.001, time_step_rank=48,
        time_step_scale=1.0, use_bias=False, use_cache=True, use_conv_bias=True, vocab_size=50280),
    "falcon_mamba_7b": dict(
        model_type="falcon_mamba", architectures=["FalconMambaForCausalLM"], conv_kernel=4, expand=16, hidden_act="silu", hidden_size=4096,
        intermediate_size=8192, layer_norm_epsilon=1e-5, mixer_rms_eps=1e-6, num_hidden_layers=64, rescale_prenorm_residual=False,
        residual_in_fp32=True, state_size=16, tie_word_embeddings=False, time_step_floor=0.0001, time_step_init_scheme="random",
        time_step_max=0.1, time_step_min=0.001, time_step_rank=256, time_step_scale=1.0, use_bias=False, use_cache=True,
        use_conv_bias=True, use_mambapy=False, vocab_size=65024),
    "jamba_mini": sizes(
        "jamba", 4096, 14336, 32, 32, 8, 65536, 262144, architectures=["JambaForCausalLM"], attn_layer_offset=4, attn_layer_period=8,
        expert_layer_offset=1, expert_layer_period=2, hidden_act="silu", mamba_conv_bias=True, mamba_d_conv=4, mamba_d_state=16,
        mamba_dt_rank=256, mamba_expand=2, mamba_proj_bias=False, num_experts=16, num_experts_per_tok=2, num_logits_to_keep=1,
        output_router_logits=False, rms_norm_eps=1e-6, router_aux_loss_coef=0.001, sliding_window=None, tie_word_embeddings=False,
        use_mamba_kernels=True),
    "olmo_hybrid_7b": sizes(
        "olmo_hybrid", 3840, 11008, 32, 30, 30, 100352, 65536, architectures=["OlmoHybridForCausalLM"], attention_bias=False,
        hidden_act="silu", layer_types=by_layer(32, 4, others="linear_attention"), linear_a_log_max=16.0, linear_a_log_min=0.0,
        linear_allow_neg_eigval=True, linear_conv_kernel_dim=4, linear_dt_init_floor=0.0001, linear_dt_max=0.1, linear_dt_min=0.001,
        linear_key_head_dim=96, linear_num_key_heads=30, linear_num_value_heads=30, linear_value_head_dim=192, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_theta=None, rope_type="default"), tie_word_embeddings=False),
    "glm_4_9b_chat": dict(
        model_type="chatglm", architectures=["ChatGLMModel"], add_bias_linear=False, add_qkv_bias=True, apply_query_key_layer_scaling=True,
        apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True, bias_dropout_fusion=True,
        ffn_hidden_size=13696, fp32_residual_connection=False, hidden_dropout=0.0, hidden_size=4096, kv_channels=128,
        layernorm_epsilon=1.5625e-7, multi_query_attention=True, multi_query_group_num=2, num_attention_heads=32, num_hidden_layers=40,
        num_layers=40, original_rope=True, padded_vocab_size=151552, post_layer_norm=True, rmsnorm=True, rope_ratio=500, seq_length=131072,
        use_cache=True, tie_word_embeddings=False),
    "chatglm3_6b": dict(
        model_type="chatglm", architectures=["ChatGLMModel"], add_bias_linear=False, add_qkv_bias=True, apply_query_key_layer_scaling=True,
        apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True, bias_dropout_fusion=True,
        ffn_hidden_size=13696, fp32_residual_connection=False, hidden_dropout=0.0, hidden_size=4096, kv_channels=128, layernorm_epsilon=1e-5,
        multi_query_attention=True, multi_query_group_num=2, num_attention_heads=32, num_layers=28, original_rope=True,
        padded_vocab_size=65024, post_layer_norm=True, rmsnorm=True, seq_length=8192, use_cache=True, tie_word_embeddings=False,
        pre_seq_len=None, prefix_projection=False, quantization_bit=0),
    "mamba2_codestral": dict(
        model_type="mamba2", architectures=["Mamba2ForCausalLM"], chunk_size=256, conv_kernel=4, expand=2, head_dim=64, hidden_act="silu", hidden_size=4096,
        layer_norm_epsilon=1e-5, n_groups=8, norm_before_gate=True, num_heads=128, num_hidden_layers=64, rescale_prenorm_residual=False,
        residual_in_fp32=True, rms_norm=True, state_size=128, tie_word_embeddings=False, time_step_floor=0.0001,
        time_step_limit=[0.0, float("inf")], time_step_max=0.1, time_step_min=0.001, time_step_rank=256, use_bias=False, use_cache=True,
        use_conv_bias=True, vocab_size=32768),
    "apertus_8b": sizes(
        "apertus", 4096, 21504, 32, 32, 8, 131072, 65536, architectures=["ApertusForCausalLM"], attention_bias=False, hidden_act="xielu",
        hidden_dropout=0.0, mlp_bias=False, post_norm=False, qk_norm=True, rms_norm_eps=1e-5, rope_theta=12000000, tie_word_embeddings=False,
        rope_scaling=dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type="llama3")),
    "bge_m3": BERT | dict(model_type="xlm-roberta", architectures=["XLMRobertaModel"], hidden_size=1024, intermediate_size=4096,
                          layer_norm_eps=1e-5, max_position_embeddings=8194, num_attention_heads=16, num_hidden_layers=24,
                          output_past=True, pad_token_id=1, type_vocab_size=1, vocab_size=250002),
    "bge_small": BERT | dict(model_type="bert", architectures=["BertModel"], hidden_size=384, intermediate_size=1536, num_attention_heads=12,
                             num_hidden_layers=12, vocab_size=30522, gradient_checkpointing=False),
    "modernbert_base": dict(
        model_type="modernbert", architectures=["ModernBertForMaskedLM"], attention_bias=False, attention_dropout=0.0, classifier_activation="gelu",
        classifier_bias=False, classifier_dropout=0.0, classifier_pooling="mean", decoder_bias=True, deterministic_flash_attn=False,
        embedding_dropout=0.0, global_attn_every_n_layers=3, global_rope_theta=160000.0, gradient_checkpointing=False,
        hidden_activation="gelu", hidden_size=768, initializer_cutoff_factor=2.0, intermediate_size=1152, layer_norm_eps=1e-5,
        local_attention=128, local_rope_theta=10000.0, max_position_embeddings=8192, mlp_bias=False, mlp_dropout=0.0, norm_bias=False,
        norm_eps=1e-5, num_attention_heads=12, num_hidden_layers=22, position_embedding_type="absolute", reference_compile=True,
        sparse_pred_ignore_index=-100, sparse_prediction=False, vocab_size=50368),
}

# Sizes that a type needs in addition to those of its row.
SMALL = {"dbrx": dict(d_model=24, n_heads=6, n_layers=2, vocab_size=53, attn_config=dict(clip_qkv=8, kv_n_heads=2, model_type="", rope_theta=500000),
                      ffn_config=dict(ffn_hidden_size=16, model_type="", moe_jitter_eps=0.01, moe_loss_weight=0.05, moe_num_experts=5, moe_top_k=2)),
         "openelm": tiny_remote_models.ELM | dict(model_dim=24, head_dim=8, num_transformer_layers=3, num_hidden_layers=3, vocab_size=53, num_gqa_groups=2),
         "nemotron-nas": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=5, vocab_size=53, intermediate_size=None, num_key_value_heads=None,
                              block_configs=[NAS | dict(attention=NAS["attention"] | dict(n_heads_in_group=group, no_op=not group),
                                                        ffn=NAS["ffn"] | dict(ffn_mult=multiplier, no_op=not multiplier))
                                             for group, multiplier in tiny_remote_models.DECI]),
         "rwkv6_finch_1b6": dict(hidden_size=32, attention_hidden_size=32, head_size=8, num_hidden_layers=3, vocab_size=53),
         "rwkv7_goose_1b5": dict(hidden_size=32, head_dim=8, num_heads=4, num_hidden_layers=3, vocab_size=53, intermediate_size=64, value_dim=[32] * 3,
                                 a_low_rank_dim=6, decay_low_rank_dim=10, gate_low_rank_dim=12, v_low_rank_dim=4),
         "arctic_instruct": dict(hidden_size=32, intermediate_size=16, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3,
                                 num_local_experts=5, vocab_size=53),
         **{name: dict(hidden_size=48, intermediate_size=40, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3, num_local_experts=5,
                       vocab_size=53) | more for name, more in dict(grok_1={}, grok_2=dict(head_dim=8, moe_intermediate_size=16)).items()},
         "grove_moe_inst": dict(hidden_size=48, intermediate_size=40, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=2,
                                head_dim=8, moe_intermediate_size=16, num_experts=6, num_experts_per_tok=3, vocab_size=53),
         "plamo_13b": dict(hidden_size=48, intermediate_size=40, num_attention_heads=6, num_key_value_heads=6, num_hidden_layers=3,
                           n_shared_head=3, vocab_size=53),
         "plamo_2_1b": dict(hidden_size=48, intermediate_size=40, num_attention_heads=6, num_key_value_heads=1, num_hidden_layers=4,
                            hidden_size_per_head=8, mamba_d_state=8, mamba_num_heads=4, vocab_size=53),
         "plamo3": dict(hidden_size=48, intermediate_size=40, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3, head_dim=8,
                        vocab_size=53),
         "hrm_text": dict(num_hidden_layers=12, num_layers_per_stack=2, L_cycles=2),
         "dory": dict(num_hidden_layers=8, n_input_layers=2, n_recurrent_layers=4, n_output_layers=2, hybrid_layer_pattern="S-*-S-*-",
                      layer_types=["sliding_attention", "mlp", "full_attention", "mlp"] * 2),
         "minimax_text_01": dict(attn_type_list=[0, 0, 0, 1], rotary_dim=8),
         "smallthinker_4b": dict(tiny_remote_models.THINKER, hidden_size=24, head_dim=8, num_attention_heads=6, num_hidden_layers=4, vocab_size=53,
                                 rope_layout=[1] * 4, sliding_window_layout=[0] * 4),
         "bailing_hybrid": dict(n_group=2, topk_group=1, num_hidden_layers=4, layer_group_size=2, head_dim=12, first_k_dense_replace=1, moe_shared_expert_intermediate_size=16),
         "zamba2": dict(layers_block_type=["mamba", "hybrid", "mamba", "hybrid", "mamba"], hybrid_layer_ids=[1, 3]), "recurrent_gemma": dict(lru_width=24),
         "gemma4_unified_text": {"layer_types": [*by_layer(3, 2)[1:], *by_layer(4, 4)], "per_layer_config": {"0": {"head_dim": 16}, "5": {"head_dim": 16}}}, "apertus1p5_text": dict(output_vocab_size=41),
         "axk1": dict(n_group=2, topk_group=1), "albert": dict(embedding_size=16), "electra": dict(embedding_size=16),
         **{name: {key: tiny_remote_encoders.JINA_V2[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")}
            for name in ("jina_embeddings_v2_base_en", "jina_embeddings_v2_base_code")},
         "neobert": tiny_remote_encoders.NEO_BERT,
         "nomic_embed_v2_moe": {key: tiny_remote_models.NOMIC_MOE[key] for key in ("n_embd", "n_head", "n_inner", "n_layer", "num_experts", "vocab_size")},
         "deepseek_v4": {"o_groups": 2, "index_topk": 3}, "glm5_next_text": {"index_kpool": 4}, "mistral_large4_text": {"kv_source_layers": [0, 1, 2, 3, 2]},
         "dots3_note": {"swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_q_lora_rank": 10, "swa_kv_lora_rank": 16,
                        "swa_head_dim": 16, "swa_qk_nope_head_dim": 8, "swa_qk_rope_head_dim": 8, "swa_v_head_dim": 12},
         "minimax_m3_vl_text": {"sparse_attention_config": dict(
             use_sparse_attention=True, sparse_index_dim=8, sparse_num_index_heads=2, sparse_topk_blocks=2, sparse_block_size=4,
             sparse_disable_index_value=[0, 0, 0, 1], sparse_score_type="max", sparse_init_block=0, sparse_local_block=1,
             sparse_attention_freq=[0, 0, 0, 1])},
         "step3p5": {"attention_other_setting": dict(num_attention_heads=6, num_attention_groups=2, head_dim=8, true_head_dim=8),
                     "layer_types": ["full_attention", *["sliding_attention"] * 6], "rope_theta": [5e6, *[1e4] * 6],
                     "partial_rotary_factors": [0.5, *[1.0] * 6], "swiglu_limits": [0.0, 0.0, 7.0, 7.0, 0.0, 0.0, 0.0],
                     "swiglu_limits_shared": [0.0, 0.0, 16.0, 16.0, 0.0, 0.0, 0.0], "moe_layers_enum": "2,3", "num_hidden_layers": 4,
                     "num_attention_groups": 2, "moe_num_experts": 6, "moe_top_k": 2},
         "mimo_v2_flash": {"swa_head_dim": 12, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_v_head_dim": 8},
         "chatglm": {"ffn_hidden_size": 40, "kv_channels": 8, "multi_query_group_num": 1, "num_layers": 2, "num_hidden_layers": 2,
                     "padded_vocab_size": 53},
         "mamba": {"intermediate_size": 48, "time_step_rank": 2}, "falcon_mamba": {"intermediate_size": 48, "expand": 2, "time_step_rank": 6},
         "qwen": {"kv_channels": 8, "num_key_value_heads": 4}, "deepseek": {"n_routed_experts": 6},
         "phi": {"partial_rotary_factor": 0.5}, "minimax_m2": {"rotary_dim": 4},
         "hunyuan_v1_moe": {"moe_intermediate_size": [40] * 4},
         "gemma3n_text": {"layer_types": [*by_layer(3, 3), *by_layer(2, 2)]},
         "gemma4_text": {"layer_types": [*by_layer(3, 2)[1:], *by_layer(4, 4)], "per_layer_config": {"0": {"head_dim": 16}, "5": {"head_dim": 16}}}}
# The model_type whose row gives the sizes, if it is another one.
ROWS = {"minimax_text_01": "minimax", "openelm": "qwen3", "nemotron-nas": "llama", "chatglm": "glm", "internlm2": "llama", "xverse": "llama", "orion": "stablelm", "baichuan": "llama", "qwen": "qwen2", "minicpm": "granite",
        "deepseek": "qwen2_moe", "bailing_moe": "qwen2_moe", "new": "gte", "exaone4_5_text": "exaone4", "kimi_k2": "deepseek_v3", "dots3_note": "dots3_note_text", "qwen2_5_vl": "qwen2_5_vl_text"}


def as_gte(config):
    plain = {key: config[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "type_vocab_size")}
    return plain | dict(model_type="gte")


def with_flag(config):
    return config | dict(text_config=config["text_config"] | dict(attn_temperature_tuning=True))


def plain(kind, **more):
    """A configuration whose class lies beside its checkpoint as that of transformers which has the same tensors."""
    return lambda config: {key: config[key] for key in (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "head_dim",
        "tie_word_embeddings") if key in config} | dict(model_type=kind) | more


def glm(config):
    return dict(model_type="glm", hidden_size=config["hidden_size"], intermediate_size=config["ffn_hidden_size"], vocab_size=config["padded_vocab_size"],
                num_hidden_layers=config["num_layers"], num_attention_heads=config["num_attention_heads"], head_dim=config["kv_channels"],
                num_key_value_heads=config["multi_query_group_num"], attention_bias=True)


def openelm(_):
    return dict(model_type="qwen3", hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                head_dim=8, vocab_size=53, tie_word_embeddings=True)


def nemotron_nas(_):
    return dict(model_type="llama", hidden_size=32, intermediate_size=256, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=4,
                head_dim=8, vocab_size=53)


def shared_mixture(config, n_experts, n_shared):
    return plain("qwen2_moe", qkv_bias=False, num_experts=n_experts, moe_intermediate_size=config["moe_intermediate_size"],
                 shared_expert_intermediate_size=n_shared * config["moe_intermediate_size"],
                 mlp_only_layers=list(range(config["first_k_dense_replace"])))(config)


def within(kind, key):
    """Returns a published multimodal configuration as an object of transformers' class."""
    return lambda config: dict(model_type=kind, text_config=config[key])


# Wrappers that are not opened: prompts that are seen from both sides (PaliGemma), and names of the text model's matrices that are those
# of another library (Diffusers in Cosmos 3) or of a class around each (NeMo).
LEFT_OUT = {"paligemma", "cosmos3_omni", "nemo_speechlm"}

# Numbers of a wrapper's other parts that its class assumes, and refuses beside a small text model or in itself.
CHANGED = {"inkling2": {("vision_config", "text_hidden_size"): 24},
           "cohere_compass": {("text_config", "rope_parameters"): {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
           "aya_vision": {("vision_config", "num_attention_heads"): 16},
           "perception_lm": {("vision_config", "architecture"): "vit_pe_core_large_patch14_336",
                             ("vision_config", "model_args"): {"embed_dim": 1024}},
           "muse_spark": {("audio_config", "out_hidden_size"): 24},
           "fun_asr_nano": {("adaptor_config", "hidden_size"): 32,
                            ("adaptor_config", "intermediate_size"): 8}}

def fewer_codes(config):
    """Apertus 1.5 with as few pieces of pictures and sounds as a small vocabulary has room for."""
    return config | dict(image_token_offset=10, audio_token_offset=12, vision_config=dict(codebook_size=2),
                         audio_config=dict(model_type="wavtokenizer_encoder", codebook_size=2))


# What transformers is asked for in the place of a configuration that it does not know, and how its names become the published ones.
AS = {"minimax_text_01": lambda config: {key: value for key, value in config.items() if key != "attn_type_list"} | dict(
          model_type="minimax", layer_types=["full_attention" if kind else "linear_attention" for kind in config["attn_type_list"]]),
      "apertus_1_5_8b": fewer_codes, "apertus1p5": fewer_codes, "openelm_270m": openelm, "nemotron_super_49b": nemotron_nas, "baichuan2_7b_chat": plain("llama"), "baichuan2_13b_chat": plain("llama"),
      "glm_4_9b_chat": glm, "chatglm3_6b": glm,
      "step_3_5_flash": lambda config: dict(model_type="step3p7", text_config=dict(config)),
      "internlm2_5_7b": plain("llama"), "xverse_13b": plain("llama"), "orion_14b": plain("stablelm"), "baichuan_7b": plain("llama"),
      "baichuan_13b": plain("llama"), "qwen_7b": lambda config: plain("qwen2")(config | dict(intermediate_size=config["intermediate_size"] // 2)),
      "minicpm_2b": plain("llama", tie_word_embeddings=True), "minicpm4_8b": plain("llama"),
      "deepseek_moe_16b": lambda config: shared_mixture(config, config["n_routed_experts"], config["n_shared_experts"]),
      "ling_lite_1_5": lambda config: shared_mixture(config, config["num_experts"], config["num_shared_experts"]),
      "gte_multilingual_base": as_gte, "gte_large_en": as_gte, "gte_reranker": as_gte,
      "deepseek_vl_7b": within("deepseek_vl", "language_config"), "internvl2_5": within("internvl", "llm_config"),
      "llama4_scout": with_flag, "llama4_maverick": with_flag,
      "kimi_k2": lambda config: config | dict(model_type="deepseek_v3"),
      "dots3_note": lambda config: config | dict(model_type="dots3_note_text"),
      "exaone4_5_33b": lambda config: config | dict(text_config=config["text_config"] | dict(model_type="exaone4"))}
V4_NAMES = [(r"^model\.", ""), (r"^embed_tokens", "embed"), (r"^hc_head\.hc_", "hc_head_"), (r"\.attn\.norm\.", ".attn.kv_norm.")]
RENAMED = {"deepseek_v4_flash": V4_NAMES, "deepseek_v4_pro": V4_NAMES,
           "kimi_k25": [(r"^language_model\.model\.blocks", "language_model.model.layers")],  # a rule for the vision model, turned round
           "qianfan_ocr": [(r"^language_model\.model\.encoder\.layers", "language_model.model.layers")],
           "gte_multilingual_base": [("^", "new.")], "gte_reranker": [("^", "new.")]}
BESIDE = {"gte_multilingual_base": {"classifier.weight": [2, 32], "classifier.bias": [2]},
          "gte_reranker": {"new.pooler.dense.weight": [32, 32], "new.pooler.dense.bias": [32], "classifier.weight": [1, 32], "classifier.bias": [1]}}
# What becomes of the tensors, for layouts that fuse some.
LAYOUTS = {"dory_4b": lambda state, _: tiny_newer_models.dory_state(state),
           "minimax_text_01": tiny_newer_models.as_minimax,
           "longcat_flash_chat": lambda state, config: tiny_newer_models.computed_experts(state, config["n_routed_experts"]),
           "hy4_preview": lambda state, _: {tiny_newer_models.hy_v4_name(name): value for name, value in state.items()},
           "openelm_270m": tiny_remote_models.openelm, "baichuan2_7b_chat": tiny_remote_models.baichuan,
           "baichuan2_13b_chat": tiny_remote_models.baichuan,
           "nemotron_super_49b": lambda state, _: tiny_remote_models.less(state, tiny_remote_models.deci_sizes, len(tiny_remote_models.DECI)),
           "glm_4_9b_chat": tiny_remote_models.chatglm, "chatglm3_6b": tiny_remote_models.chatglm,
           "olmo_hybrid_7b": tiny_remote_models.olmo_hybrid,
           "internlm2_5_7b": tiny_remote_models.internlm2, "baichuan_7b": tiny_remote_models.baichuan,
           "baichuan_13b": tiny_remote_models.baichuan, "qwen_7b": tiny_remote_models.qwen, "deepseek_moe_16b": tiny_remote_models.deepseek,
           "ling_lite_1_5": tiny_remote_models.bailing,
           "step_3_5_flash": lambda state, _: {name: value for name, value in state.items() if not name.startswith("vi")}}
# Names and shapes by the description of models that no class of transformers has.
# Without the vector that is zero in the checkpoint: the numbers that a test makes up would be refused.
SHAPES = {"grok_1": tiny_own_models.grok_shapes, "grok_2": tiny_own_models.grok_shapes, "grove_moe_inst": tiny_own_models.grove_shapes,
          "plamo_13b": tiny_own_models.plamo_shapes, "plamo_2_1b": tiny_own_models.plamo2_shapes, "plamo3": tiny_own_models.plamo3_shapes,
          "arctic_instruct": tiny_remote_models.arctic_shapes, "rwkv6_finch_1b6": make_tiny_rwkv.shapes, "rwkv7_goose_1b5": make_tiny_rwkv.shapes,
          "smallthinker_4b": tiny_remote_models.smallthinker_shapes,
          "jina_embeddings_v2_base_en": tiny_remote_encoders.jina_shapes, "jina_embeddings_v2_base_code": tiny_remote_encoders.jina_shapes,
          "neobert": tiny_remote_encoders.neo_shapes,
          "nomic_embed_v2_moe": lambda c: {k: v for k, v in tiny_remote_models.nomic_moe_shapes(c).items() if not k.endswith("experts.bias")}}

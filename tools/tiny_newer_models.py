"""Tiny configurations of the newer architectures, for make_tiny_models.py; their GGUF files come from llama.cpp's own converter."""
import copy
import json
import math
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import tiny_remote_models
import torch
import transformers as T
from safetensors.torch import load_file, save_file


def rope(theta=10000.0, **more):
    return dict(rope_type="default", rope_theta=theta) | more


def base(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False,
                bos_token_id=0, eos_token_id=1, pad_token_id=1) | more


def plain_heads(**more):
    """Sets the head size to the width divided by the number of heads."""
    config = base(num_attention_heads=3, num_key_value_heads=1, layer_norm_eps=1e-5, **more)
    del config["head_dim"]
    return config


YARN = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0)
LLAMA3 = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
MROPE = rope(1e6, mrope_section=[1, 1, 2])


def eye(**more):
    """Returns the smallest possible vision tower."""
    return dict(depth=1, hidden_size=8, num_heads=1, out_hidden_size=24, patch_size=2, temporal_patch_size=1, spatial_merge_size=1) | more


SLIDING = ["sliding_attention", "sliding_attention", "full_attention"]
# Lists of Step 3.5 by layer, two layers that predict further tokens included.
STEP35 = dict(
    num_hidden_layers=6, layer_types=["full_attention", *["sliding_attention"] * 3] * 2, num_nextn_predict_layers=2,
    rope_theta=[5e5, *[1e4] * 3] * 2, partial_rotary_factors=[0.5, 1.0, 1.0, 1.0] * 2, moe_layers_enum="2, 3,4,5",
    attention_other_setting=dict(num_attention_heads=6), moe_router_scaling_factor=1.5,
    rope_scaling={k: v for k, v in LLAMA3.items() if k != "rope_theta"}, swiglu_limits=[0.0] * 5 + [0.2] + [0.0] * 2,
    swiglu_limits_shared=[0.0, 0.3, 0.0, 0.0, 0.0, 0.4, 0.0, 0.25])
# name: (config, whether llama.cpp has the same thing: then a GGUF file is written)
MODELS = {
    "smollm3": lambda: (T.SmolLM3Config(**base(num_hidden_layers=4, rope_parameters=rope(2e6))), True),
    "smollm3_sliding": lambda: (T.SmolLM3Config(**base(
        num_hidden_layers=3, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=9, attention_bias=True,
        mlp_bias=True, tie_word_embeddings=True)), False),
    "llama_yarn_factor": lambda: (T.LlamaConfig(**base(rope_parameters=YARN | dict(attention_factor=1.4))), True),
    "cohere": lambda: (T.CohereConfig(**plain_heads(logit_scale=0.4, tie_word_embeddings=True)), True),
    "cohere_qk_norm": lambda: (T.CohereConfig(**plain_heads(logit_scale=0.4, tie_word_embeddings=True, use_qk_norm=True,
                                                            attention_bias=True)), True),
    "cohere2": lambda: (T.Cohere2Config(**plain_heads(num_hidden_layers=4, sliding_window=9, logit_scale=0.3,
                                                      tie_word_embeddings=True)), True),
    # As published, layers with all tokens are not rotated.
    "cohere_compass": lambda: (T.CohereCompassTextConfig(**plain_heads(
        num_hidden_layers=4, sliding_window=9, logit_scale=0.3, tie_word_embeddings=True, layer_types=[*SLIDING, "sliding_attention"],
        rope_parameters={"sliding_attention": MROPE, "full_attention": None})), False),
    "cohere_compass_full": lambda: (T.CohereCompassTextConfig(**plain_heads(
        attention_bias=True, tie_word_embeddings=False, rope_parameters={"full_attention": YARN | dict(mrope_section=[2, 1, 1])})), False),
    "olmo3": lambda: (T.Olmo3Config(**base(num_hidden_layers=3, sliding_window=9, layer_types=SLIDING, rope_parameters={
        "sliding_attention": rope(), "full_attention": YARN | dict(attention_factor=1.2)})), False),
    "olmo3_plain": lambda: (T.Olmo3Config(**plain_heads(num_hidden_layers=4, sliding_window=9)), True),
    "olmo_hybrid": lambda: (T.OlmoHybridConfig(**olmo_hybrid(rope_theta=None)), False),
    "olmo_hybrid_rope": lambda: (T.OlmoHybridConfig(**olmo_hybrid(
        num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=3,
        linear_allow_neg_eigval=False, attention_bias=True, tie_word_embeddings=True, rope_parameters=YARN)), False),
    "exaone4": lambda: (T.Exaone4Config(**base(num_hidden_layers=3, sliding_window=9, layer_types=SLIDING,
                                               rope_parameters=LLAMA3)), True),
    "exaone4_full": lambda: (T.Exaone4Config(**base(sliding_window=None, layer_types=["full_attention"] * 2,
                                                    tie_word_embeddings=True)), False),
    "ministral3": lambda: (T.Ministral3Config(**base(rope_parameters=rope(
        1e6, rope_type="yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.3))), True),
    "seed_oss": lambda: (T.SeedOssConfig(**base(attention_bias=True, attention_out_bias=False)), True),
    "seed_oss_biases": lambda: (T.SeedOssConfig(**base(num_key_value_heads=4, attention_bias=True, attention_out_bias=True,
                                                       mlp_bias=True, tie_word_embeddings=True)), False),
    "ernie4_5": lambda: (T.Ernie4_5Config(**base(tie_word_embeddings=True, rope_parameters=rope(5e5))), True),
    "ernie4_5_biases": lambda: (T.Ernie4_5Config(**base(use_bias=True)), False),
    "hunyuan": lambda: (T.HunYuanDenseV1Config(**base(tie_word_embeddings=True)), True),
    "hunyuan_alpha": lambda: (T.HunYuanDenseV1Config(**base(attention_bias=True, rope_parameters=rope(
        rope_type="dynamic", alpha=50.0, factor=1.0))), False),
    "arcee": lambda: (T.ArceeConfig(**base(mlp_bias=False, rope_parameters=YARN)), True),
    "apertus": lambda: (T.ApertusConfig(**plain_heads(rope_parameters=LLAMA3)), True),
    # An output matrix of fewer rows, as published.
    "apertus1p5": lambda: (T.Apertus1p5TextConfig(**plain_heads(rope_parameters=LLAMA3, output_vocab_size=41)), False),
    "apertus1p5_whole": lambda: (T.Apertus1p5TextConfig(**plain_heads(rope_parameters=rope(1e5), num_hidden_layers=3)), False),
    "diffllama": lambda: (T.DiffLlamaConfig(**base()), False),
    "diffllama_groups": lambda: (T.DiffLlamaConfig(**base(
        num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4, head_dim=6, attention_bias=True, tie_word_embeddings=True,
        rope_parameters=YARN)), False),
    "glm4": lambda: (T.Glm4Config(**base(attention_bias=True, rope_parameters=rope(partial_rotary_factor=0.5))), True),
    "gpt_neox": lambda: (T.GPTNeoXConfig(**plain_heads(hidden_act="gelu", rope_parameters=rope(partial_rotary_factor=0.5))), True),
    "gpt_neox_serial": lambda: (T.GPTNeoXConfig(**plain_heads(
        use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
        rope_parameters=rope(partial_rotary_factor=0.25))), False),
    "falcon": lambda: (T.FalconConfig(**falcon(multi_query=True, num_kv_heads=1)), True),
    "falcon_new": lambda: (T.FalconConfig(**falcon(num_attention_heads=6, new_decoder_architecture=True, num_kv_heads=2,
                                                   bias=False)), True),
    "falcon_one_norm": lambda: (T.FalconConfig(**falcon(num_attention_heads=6, new_decoder_architecture=True, num_kv_heads=3,
                                                        num_ln_in_parallel_attn=1, bias=True, tie_word_embeddings=False)), False),
    "falcon_serial": lambda: (T.FalconConfig(**falcon(multi_query=False, bias=True, parallel_attn=False)), False),
    # transformers rounds biases to BF16, which changes none of four heads.
    "falcon_rw": lambda: (T.FalconConfig(**falcon(num_attention_heads=4, multi_query=False, bias=True, parallel_attn=False,
                                                  alibi=True)), False),
    "falcon_rw_parallel": lambda: (T.FalconConfig(**falcon(num_attention_heads=4, multi_query=True, alibi=True)), False),
    "gpt2_by_layer": lambda: (T.GPT2Config(vocab_size=71, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=1,
                                           scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True), False),
    "stablelm": lambda: (T.StableLmConfig(**plain_heads(use_qkv_bias=True, rope_parameters=rope(partial_rotary_factor=0.25))), True),
    "stablelm_parallel": lambda: (T.StableLmConfig(**plain_heads(qk_layernorm=True, use_parallel_residual=True,
                                                                 rope_parameters=rope(partial_rotary_factor=0.5))), True),
    "starcoder2": lambda: (T.Starcoder2Config(**starcoder2(sliding_window=9, tie_word_embeddings=True)), False),
    "starcoder2_plain": lambda: (T.Starcoder2Config(**starcoder2(norm_epsilon=1e-4, use_bias=True)), True),
    "phi": lambda: (T.PhiConfig(**phi()), True),
    "phi_qk_norm": lambda: (T.PhiConfig(**phi(qk_layernorm=True, num_key_value_heads=1)), False),
    "gpt_oss": lambda: (T.GptOssConfig(**gpt_oss()), True),
    "gpt_oss_full": lambda: (T.GptOssConfig(**gpt_oss(
        num_hidden_layers=3, layer_types=SLIDING, num_key_value_heads=4, num_experts_per_tok=1, swiglu_alpha=1.3,
        swiglu_limit=0.6, rope_parameters=rope(150000.0))), False),
    "gpt_oss_mxfp4": lambda: (T.GptOssConfig(**gpt_oss(hidden_size=32, intermediate_size=32)), True),
    "llama4": lambda: (T.Llama4TextConfig(**llama4(num_hidden_layers=5, attention_chunk_size=8192)), True),
    "llama4_chunks": lambda: (T.Llama4TextConfig(**llama4(
        num_hidden_layers=4, attention_chunk_size=9, floor_scale=5, attn_scale=0.4, num_experts_per_tok=3, moe_layers=[1, 2],
        no_rope_layers=[1, 0, 1, 1], attention_bias=True, tie_word_embeddings=True, rope_parameters=LLAMA3)), False),
    "llama4_plain": lambda: (T.Llama4TextConfig(**llama4(
        num_hidden_layers=3, layer_types=["full_attention", "chunked_attention", "chunked_attention"], attention_chunk_size=16,
        no_rope_layers=[1, 0, 1], use_qk_norm=False, attn_temperature_tuning=False, interleave_moe_layer_step=2)), False),
    "glm4_moe": lambda: (T.Glm4MoeConfig(**glm4_moe(n_routed_experts=6, num_hidden_layers=3, use_qk_norm=True)), True),
    "glm4_moe_mtp2": lambda: (T.Glm4MoeConfig(**glm4_moe(n_routed_experts=6, num_hidden_layers=2, use_qk_norm=True)), True),
    "glm4_moe_mtp": lambda: (T.Glm4MoeConfig(**glm4_moe(n_routed_experts=6, num_hidden_layers=2, use_qk_norm=True)), True),
    "mellum_dense": lambda: (T.MellumConfig(**mixture(sliding_window=9, mlp_layer_types=["sparse", "dense", "sparse"],
                                                      layer_types=SLIDING)), False),
    "mellum": lambda: (T.MellumConfig(**mixture(sliding_window=9, layer_types=SLIDING,
                                                rope_parameters={"sliding_attention": rope(), "full_attention": YARN | dict(
                                                    rope_theta=5e5, attention_factor=1.2)})), True),
    "mellum_full": lambda: (T.MellumConfig(**mixture(num_hidden_layers=2, norm_topk_prob=False, attention_bias=True,
                                                     tie_word_embeddings=True)), False),
    "flint": lambda: (T.FlintConfig(**mixture(num_hidden_layers=5, sliding_window=9, shared_expert_intermediate_size=24)), False),
    "lara_mini": lambda: (T.LaraMiniConfig(**lara(num_hidden_layers=5)), False),
    "lara_mini_plain": lambda: (T.LaraMiniConfig(**lara(
        num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "sliding_attention"], linear_num_key_heads=3,
        linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=3, norm_topk_prob=False,
        attention_bias=True, tie_word_embeddings=False, rope_parameters=YARN)), False),
    "kolibri1": lambda: (T.Kolibri1Config(**mixture(num_hidden_layers=6, sliding_window=9, norm_topk_prob=True,
                                                    shared_expert_intermediate_size=24)), False),
    "kolibri1_weights": lambda: (T.Kolibri1Config(**mixture(layer_types=SLIDING, sliding_window=9, norm_topk_prob=False,
                                                            shared_expert_intermediate_size=16)), False),
    "cohere2_moe": lambda: (T.Cohere2MoeConfig(**mixture(
        num_hidden_layers=5, sliding_window=9, logit_scale=0.3, tie_word_embeddings=True, first_k_dense_replace=2,
        prefix_dense_intermediate_size=28, num_shared_experts=2, expert_selection_fn="sigmoid", rms_norm_eps=None)), True),
    "cohere2_moe_rms": lambda: (T.Cohere2MoeConfig(**mixture(
        layer_types=SLIDING, mlp_layer_types=["sparse", "sparse", "dense"], sliding_window=9, num_shared_experts=1,
        prefix_dense_sliding_window_pattern=2, shared_expert_combination_strategy="sum", attention_bias=True)), False),
    # Converted files say nothing of bounds of the router, nor which layers have windows: the last three of four.
    "laguna": lambda: (T.LagunaConfig(**mixture(
        num_hidden_layers=4, layer_types=["full_attention"] + ["sliding_attention"] * 3, num_attention_heads_per_layer=[2, 4, 6, 2],
        sliding_window=9, shared_expert_intermediate_size=24, moe_routed_scaling_factor=1.5)), True),
    "laguna_full": lambda: (T.LagunaConfig(**mixture(
        gating="per-element", mlp_layer_types=["dense", "dense", "sparse"], sliding_window=0, shared_expert_intermediate_size=16)), True),
    "laguna_capped": lambda: (T.LagunaConfig(**mixture(
        gating="per-element", attention_bias=True, mlp_layer_types=["sparse", "dense", "sparse"], sliding_window=9, layer_types=SLIDING,
        moe_router_logit_softcapping=0.8, shared_expert_intermediate_size=16, rope_parameters={
            "sliding_attention": rope(), "full_attention": YARN | dict(rope_theta=5e5, partial_rotary_factor=0.5)})), False),
    "step3p5": lambda: (step(**STEP35), True),
    "step3p5_mtp2": lambda: (step(**STEP35), True),
    "step3p7": lambda: (step(
        num_hidden_layers=4, layer_types=["full_attention", *SLIDING], num_sliding_attention_heads=2, query_pre_attn_scalar=9,
        mlp_layer_types=["sparse", "dense", "sparse", "sparse"], attention_bias=True, mlp_bias=False, share_expert_dim=24,
        swiglu_limits=[None, 0.3, 0.3, None], rope_parameters={"full_attention": YARN, "sliding_attention": rope()}), False),
    "mimo_v2_flash": lambda: (T.MiMoV2FlashConfig(**mimo()), True),
    "mimo_v2_biases": lambda: (T.MiMoV2FlashConfig(**mimo(
        num_attention_heads=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"], num_hidden_layers=3,
        mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True, n_routed_experts=8, n_group=4, topk_group=2,
        v_head_dim=10, attention_value_scale=None, norm_topk_prob=False, routed_scaling_factor=1.5, tie_word_embeddings=True, rope_parameters={
            "sliding_attention": rope(partial_rotary_factor=0.5), "full_attention": YARN | dict(partial_rotary_factor=1.0)})), False),
    "sarvam_moe": lambda: (T.SarvamMoEConfig(**glm4_moe(n_routed_experts=6, num_hidden_layers=3, rope_parameters=rope(8e6))), True),
    "bailing_moe_v2": lambda: (T.SarvamMoEConfig(**glm4_moe(
        n_routed_experts=8, num_hidden_layers=3, n_group=4, topk_group=2, attention_bias=True, rope_parameters=rope(
            6e5, partial_rotary_factor=0.5))), True),
    "glm4_moe_groups": lambda: (T.Glm4MoeConfig(**glm4_moe(
        n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2, attention_bias=True, norm_topk_prob=False)), False),
    "qwen2_moe": lambda: (T.Qwen2MoeConfig(**qwen2_moe()), True),
    "qwen2_moe_mixed": lambda: (T.Qwen2MoeConfig(**qwen2_moe(num_hidden_layers=3, mlp_only_layers=[1], norm_topk_prob=True,
                                                             tie_word_embeddings=True)), False),
    "granitemoe": lambda: (T.GraniteMoeConfig(**granite_moe()), True),
    "granitemoe_all": lambda: (T.GraniteMoeConfig(**granite_moe(
        num_local_experts=3, num_experts_per_tok=3, num_key_value_heads=3, attention_bias=True, tie_word_embeddings=True,
        rope_parameters=YARN)), False),
    "granitemoeshared": lambda: (T.GraniteMoeSharedConfig(**granite_moe(shared_intermediate_size=24)), True),
    "granitemoeshared_one": lambda: (T.GraniteMoeSharedConfig(**granite_moe(
        shared_intermediate_size=8, num_experts_per_tok=1, tie_word_embeddings=True)), False),
    "granitemoehybrid": lambda: (T.GraniteMoeHybridConfig(**granite_hybrid()), True),
    "granitemoehybrid_dense": lambda: (T.GraniteMoeHybridConfig(**granite_hybrid(
        num_hidden_layers=4, layer_types=["mamba", "mamba", "attention", "mamba"], num_local_experts=0, mamba_n_heads=6,
        mamba_d_head=8, mamba_n_groups=3, mamba_d_state=20, mamba_conv_bias=False, intermediate_size=40,
        shared_intermediate_size=40, tie_word_embeddings=True)), True),
    "granitemoehybrid_rope": lambda: (T.GraniteMoeHybridConfig(**granite_hybrid(
        position_embedding_type="rope", mamba_n_groups=2, mamba_n_heads=2, mamba_d_head=24, mamba_d_conv=3, mamba_proj_bias=True,
        num_key_value_heads=3, attention_bias=True)), False),
    "granitemoehybrid_attention": lambda: (T.GraniteMoeHybridConfig(**granite_hybrid(
        layer_types=["attention"] * 2, num_hidden_layers=2, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
        intermediate_size=40, shared_intermediate_size=40)), True),
    # The converter takes widths of twice the model's alone, and eps of the model for that of the scans' norms.
    "mamba": lambda: (T.MambaConfig(**mamba1()), True),
    "mamba_biases": lambda: (T.MambaConfig(**mamba1(expand=3, state_size=12, conv_kernel=3, time_step_rank=5, use_bias=True,
                                                    use_conv_bias=False, tie_word_embeddings=False)), False),
    "falcon_mamba": lambda: (T.FalconMambaConfig(**mamba1(mixer_rms_eps=1e-5, time_step_rank=6, tie_word_embeddings=False)), True),
    "falcon_mamba_eps": lambda: (T.FalconMambaConfig(**mamba1(mixer_rms_eps=0.01, state_size=20)), False),
    "jamba": lambda: (T.JambaConfig(**jamba()), True),
    "jamba_dense": lambda: (T.JambaConfig(**jamba(num_experts=1, num_experts_per_tok=1, num_hidden_layers=3, attn_layer_period=3,
                                                  attn_layer_offset=0, mamba_d_state=12, mamba_d_conv=3, mamba_dt_rank=7,
                                                  mamba_proj_bias=True, mamba_conv_bias=False, mamba_expand=3,
                                                  tie_word_embeddings=True)), False),
    "mamba2": lambda: (T.Mamba2Config(**mamba2()), True),
    "mamba2_groups": lambda: (T.Mamba2Config(**mamba2(n_groups=3, num_heads=6, head_dim=8, state_size=20, conv_kernel=3, use_bias=True,
                                                      use_conv_bias=False, tie_word_embeddings=True)), False),
    "nemotron_h": lambda: (T.NemotronHConfig(**nemotron_h()), True),
    "nemotron_h_odd": lambda: (T.NemotronHConfig(**nemotron_h(
        layers_block_type=["attention", "mlp", "mamba"], n_groups=1, mamba_num_heads=5, mamba_head_dim=6, ssm_state_size=9,
        conv_kernel=2, mlp_bias=True, mamba_proj_bias=True, tie_word_embeddings=True)), False),
    "nemotron_h_moe": lambda: (T.NemotronHConfig(**nemotron_h_moe()), True),
    "nemotron_h_moe_latent": lambda: (T.NemotronHConfig(**nemotron_h_moe(
        layers_block_type=["moe", "mamba", "moe", "attention"], n_routed_experts=4, n_group=1, num_experts_per_tok=1, moe_latent_size=12,
        moe_intermediate_size=36, moe_shared_expert_intermediate_size=8, routed_scaling_factor=1.0, norm_topk_prob=False,
        num_nextn_predict_layers=1)), True),
    "nemotron_h_moe_groups": lambda: (T.NemotronHConfig(**nemotron_h_moe(
        layers_block_type=["mlp", "moe", "attention", "mamba", "moe", "mlp"], n_routed_experts=9, n_group=3, topk_group=2,
        num_experts_per_tok=4, moe_latent_size=40, mlp_bias=True, num_key_value_heads=1)), False),
    "nemotron_h_moe_plain": lambda: (T.NemotronHConfig(**nemotron_h_moe(
        layers_block_type=["attention", "moe", "moe"], mlp_hidden_act="silu", n_shared_experts=2)), False),
    "falcon_h1": lambda: (T.FalconH1Config(**falcon_h1()), True),
    "falcon_h1_norm": lambda: (T.FalconH1Config(**falcon_h1(
        num_hidden_layers=3, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2, mamba_n_heads=4, mamba_d_ssm=40,
        mamba_d_head=10, mamba_d_state=12)), True),
    "falcon_h1_biases": lambda: (T.FalconH1Config(**falcon_h1(
        mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=3, mamba_n_heads=6, mamba_d_ssm=None, mamba_d_head="auto",
        mamba_d_conv=2, mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), False),
    "falcon_h1_norm_first": lambda: (T.FalconH1Config(**falcon_h1(
        mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_n_groups=2, mamba_conv_bias=False, num_key_value_heads=4,
        mlp_multipliers=None, ssm_multipliers=None, rope_parameters=YARN)), False),
    # llama.cpp's converter turns the pairs of whole heads, of which half are rotated.
    "bamba": lambda: (T.BambaConfig(**bamba(attn_layer_indices=[1])), False),
    "bamba_biases": lambda: (T.BambaConfig(**bamba(
        num_hidden_layers=4, attn_layer_indices=[0, 3], num_key_value_heads=3, mamba_n_groups=2, mamba_d_state=12, mamba_d_conv=2,
        mamba_proj_bias=True, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), False),
    "minimax_m2": lambda: (T.MiniMaxM2Config(**base(num_local_experts=6, num_experts_per_tok=2,
                                                    rope_parameters=rope(5e6, partial_rotary_factor=0.5))), True),
    "minimax_m2_full": lambda: (T.MiniMaxM2Config(**base(
        num_hidden_layers=3, num_key_value_heads=4, num_local_experts=5, num_experts_per_tok=3, tie_word_embeddings=True,
        rope_parameters=YARN)), False),
    "ernie4_5_moe": lambda: (T.Ernie4_5_MoeConfig(**ernie_moe(
        intermediate_size=64, moe_num_shared_experts=2, moe_layer_start_index=1)), True),
    "ernie4_5_moe_mixed": lambda: (T.Ernie4_5_MoeConfig(**ernie_moe(
        num_hidden_layers=5, moe_num_shared_experts=0, moe_layer_start_index=1, moe_layer_end_index=3, moe_layer_interval=2,
        use_bias=True, tie_word_embeddings=True)), False),
    "phimoe": lambda: (T.PhimoeConfig(**phi_moe(attention_bias=True, lm_head_bias=True)), True),
    "phimoe_wide": lambda: (T.PhimoeConfig(**phi_moe(num_local_experts=3, num_key_value_heads=3, router_jitter_noise=0.4,
                                                     sliding_window=9)), False),
    "phimoe_longrope": lambda: (T.PhimoeConfig(**phi_moe(rope_parameters=longrope_with_magnitudes())), True),
    "deepseek_v2": lambda: (T.DeepseekV2Config(**latent(q_lora_rank=None, n_shared_experts=2, topk_method="greedy", n_group=1,
                                                        topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.3)), True),
    "deepseek_v2_groups": lambda: (T.DeepseekV2Config(**latent(
        n_routed_experts=8, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4, topk_group=2,
        attention_bias=True, rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=0.5))), False),
    "deepseek_v3": lambda: (T.DeepseekV3Config(**latent(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), True),
    "deepseek_v3_mtp": lambda: (T.DeepseekV3Config(**latent(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), True),
    "deepseek_v3_halves": lambda: (T.DeepseekV3Config(**latent(
        num_attention_heads=2, q_lora_rank=None, rope_interleave=False, n_group=1, topk_group=1, n_shared_experts=1,
        first_k_dense_replace=0, norm_topk_prob=False, tie_word_embeddings=True)), False),
    # An index of fewer tokens than the prompt has. Of few heads none may see a token: such tokens tie, and torch breaks ties by no rule.
    "deepseek_v32": lambda: (T.DeepseekV32Config(**latent(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1, index_n_heads=12, index_head_dim=12, index_topk=7,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), True),
    "deepseek_v32_dense": lambda: (T.DeepseekV32Config(**latent(
        num_attention_heads=2, first_k_dense_replace=3, attention_bias=True, index_n_heads=16, index_head_dim=32, index_topk=16,
        n_shared_experts=1, n_group=1, topk_group=1, tie_word_embeddings=True)), False),
    "deepseek_v32_mtp": lambda: (T.DeepseekV32Config(**latent(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1, index_n_heads=12, index_head_dim=12, index_topk=5)), True),
    "glm_moe_dsa": lambda: (T.GlmMoeDsaConfig(**latent(
        num_hidden_layers=4, n_shared_experts=1, index_n_heads=10, index_head_dim=12, index_topk=6,
        indexer_types=["full", "shared", "full", "shared"])), True),
    "glm_moe_dsa_full": lambda: (T.GlmMoeDsaConfig(**latent(
        n_shared_experts=2, mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True, v_head_dim=12, index_n_heads=12,
        index_head_dim=8, index_topk=9)), False),
    "glm4_moe_lite": lambda: (T.Glm4MoeLiteConfig(**latent(
        n_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"], routed_scaling_factor=1.8)), True),
    "glm4_moe_lite_mixed": lambda: (T.Glm4MoeLiteConfig(**latent(
        n_shared_experts=2, mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True, v_head_dim=12)), False),
    # Two of three blocks of four tokens; every tensor of the text inside a multimodal checkpoint.
    "glm5_next": lambda: (glm5_next(), False),
    # A decay without bound, two layers with one selection, another pool; the text alone, with sizes of the delta networks in an object.
    "glm5_next_shared": lambda: (glm5_next(
        num_hidden_layers=3, layer_types=["indexed_attention", "indexed_attention", "linear_attention"], indexer_types=["full", "shared", "full"],
        mlp_layer_types=["sparse", "dense", "sparse"], linear_lower_bound=None, linear_num_heads=3, linear_head_dim=20, linear_conv_kernel_dim=2,
        index_kpool=3, index_topk=12, hc_mult=4, hc_sinkhorn_iters=1, hc_eps=0.01, swiglu_limit=0.5, n_routed_experts=8, n_group=4, topk_group=2,
        n_shared_experts=2, norm_topk_prob=False, attention_bias=True, v_head_dim=12), False),
    # Windows of nine tokens, entries of 16 tokens, three of up to thirteen entries of four; experts of tokens in the first layer; as published.
    "deepseek_v4": lambda: (deepseek_v4(), False),
    # Another share of rotated dimensions, groups and streams, YaRN, ratios of other sizes; saved by transformers.
    "deepseek_v4_yarn": lambda: (deepseek_v4(
        num_hidden_layers=3, layer_types=["heavily_compressed_attention", "compressed_sparse_attention", "compressed_sparse_attention"],
        mlp_layer_types=["hash_moe", "moe", "hash_moe"], compress_rates=dict(compressed_sparse_attention=3, heavily_compressed_attention=8),
        num_attention_heads=6, head_dim=16, o_groups=3, o_lora_rank=5, sliding_window=5, index_n_heads=11, index_head_dim=10, index_topk=2,
        partial_rotary_factor=0.5, n_shared_experts=1, swiglu_limit=0.5, scoring_func="sigmoid", routed_scaling_factor=0.8, hc_mult=2,
        hc_sinkhorn_iters=1, hc_eps=0.01, rope_theta=5e3, compress_rope_theta=2e4, rms_norm_eps=1e-5,
        rope_parameters={k: v for k, v in YARN.items() if k != "rope_theta"}), False),
    # The published ratios, 4 and 128, over 270 tokens.
    "deepseek_v4_long": lambda: (deepseek_v4(
        num_hidden_layers=2, layer_types=None, compress_rates=None, compress_ratios=[4, 128], num_hash_layers=1, mlp_layer_types=None,
        max_position_embeddings=512, sliding_window=16, index_topk=8), True),
    # Weights as DeepSeek V4 is published: FP8 in blocks, experts in MXFP4.
    "deepseek_v4_mxfp4": lambda: (deepseek_v4(
        num_hidden_layers=2, layer_types=None, compress_rates=None, compress_ratios=[4, 0], num_hash_layers=1, mlp_layer_types=None,
        hidden_size=32, moe_intermediate_size=32, index_n_heads=12), False),
    # Three of up to thirteen blocks of four tokens for each KV head.
    "minimax_m3": lambda: (minimax_m3(), True),
    # The text alone: an indexer in the first layer, two last blocks, selections that end inside of a block.
    "minimax_m3_text": lambda: (minimax_m3(
        num_attention_heads=6, num_key_value_heads=3, index_n_heads=3, index_head_dim=12, index_block_size=5, index_topk_blocks=3,
        index_local_blocks=2, layer_types=["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
        mlp_layer_types=["sparse", "dense", "sparse"], swiglu_alpha=1.3, swiglu_limit=0.6, shared_intermediate_size=12,
        rope_parameters=rope(partial_rotary_factor=1.0), rotary_dim=8, tie_word_embeddings=True), False),
    # Latents of earlier layers, with and without rotation; a layer that selects and has none of its own.
    "mistral_large4": lambda: (mistral_large4(), False),
    "mistral_large4_groups": lambda: (mistral_large4(
        num_hidden_layers=3, no_rope_layers=None, no_rope_layer_interval=2, kv_source_layers=None, indexer_types=["full"] * 3, n_routed_experts=8,
        n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.7, mlp_layer_types=["sparse", "dense", "sparse"],
        index_topk=16, index_n_heads=12, index_head_dim=8, v_head_dim=12, final_logit_softcapping=5.0, rope_parameters=YARN | dict(
            attention_factor=1.0)), False),
    "dots3_note": lambda: (T.Dots3NoteTextConfig(**dots3_note()), True),
    # A layer that attends to everything, groups of experts, latents of queries of two sizes, sizes by layer as transformers says them.
    "dots3_note_plain": lambda: (T.Dots3NoteTextConfig(**dots3_note(
        num_hidden_layers=3, use_dsa=None, per_layer_config={0: dots3_window(q_lora_rank=14, qk_nope_head_dim=6, head_dim=14)},
        layer_types=["sliding_attention", "full_attention", "indexed_attention"], mlp_layer_types=["sparse", "dense", "sparse"],
        n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.7, tie_word_embeddings=True)), False),
    # Transformers' own words; blocks shorter than the prompt.
    "minimax": lambda: (T.MiniMaxConfig(**base(
        num_hidden_layers=3, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, block_size=16, full_attn_alpha_factor=1.3,
        linear_attn_alpha_factor=1.3, mlp_alpha_factor=1.3, full_attn_beta_factor=0.7, linear_attn_beta_factor=0.7, mlp_beta_factor=0.7)), False),
    "minimax_01": lambda: (T.MiniMaxConfig(**base(
        num_hidden_layers=8, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8, num_local_experts=3, num_experts_per_tok=2,
        layer_types=["linear_attention"] * 7 + ["full_attention"], full_attn_alpha_factor=3.5, linear_attn_alpha_factor=3.5,
        mlp_alpha_factor=3.5, rope_parameters=rope(1e7))), True),
    # Nine experts of which three give their input, in two of four layers.
    "longcat_flash": lambda: (T.LongcatFlashConfig(**longcat()), False),
    "longcat_flash_plain": lambda: (T.LongcatFlashConfig(**longcat(
        num_layers=1, zero_expert_num=0, moe_topk=2, v_head_dim=12, routed_scaling_factor=0.7, attention_bias=True, tie_word_embeddings=True,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), False),
    # Windows and profiles shorter than the prompt; queries grow within it; two rows of the tables are no tokens.
    "inkling": lambda: (T.InklingTextConfig(**inkling(
        unpadded_vocab_size=51, layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"], log_scaling_n_floor=16,
        log_scaling_alpha=0.3, mlp_layer_types=["dense", "sparse", "sparse", "sparse"])), False),
    "inkling_plain": lambda: (T.InklingTextConfig(**inkling(
        num_hidden_layers=2, layer_types=["hybrid", "hybrid_sliding"], mlp_layer_types=["sparse", "dense"], conv_kernel_size=2, n_shared_experts=1,
        swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8, d_rel=8, rel_extent=64, route_scale=0.7)), False),
    # Two blocks of layers, the second cut short; queries, keys and values of layers without a window read streams of their own.
    "inkling2": lambda: (T.Inkling2TextConfig(**inkling2(
        num_hidden_layers=5, layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid_sliding", "hybrid"],
        n_layers_per_attn_res_block=3)), False),
    "inkling2_full": lambda: (T.Inkling2TextConfig(**inkling2(
        num_hidden_layers=3, layer_types=["hybrid", "hybrid", "hybrid_sliding"], n_layers_per_attn_res_block=1, conv_kernel_size=3,
        log_scaling_n_floor=4, rel_extent=64, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8, unpadded_vocab_size=53,
        vocab_size=53)), False),
    # Stacks of two layers, which are computed six times; stacks of one, four times.
    "hrm_text": lambda: (T.HrmTextConfig(**hrm()), False),
    "hrm_text_single": lambda: (T.HrmTextConfig(**hrm(
        num_hidden_layers=1, H_cycles=2, L_cycles=1, tie_word_embeddings=True, embedding_scale=1.7,
        rope_parameters=YARN)), False),
    # Two of four layers are computed three times; one layer twice, without layers before or behind it.
    "dory": lambda: (T.DoryConfig(**dory(
        num_hidden_layers=4, n_input_layers=1, n_recurrent_layers=2, n_output_layers=1, n_recurrent_loops=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"])), False),
    "dory_loop": lambda: (T.DoryConfig(**dory(
        num_hidden_layers=2, n_input_layers=0, n_recurrent_layers=1, n_output_layers=1, num_key_value_heads=4,
        layer_types=["full_attention", "full_attention"], rope_parameters={"full_attention": LLAMA3})), False),
    # Streams that are not mixed; two layers that select and one that uses the selection before it.
    "hy_v4": lambda: (T.HYV4Config(**hy_v4()), True),
    "hy_v4_groups": lambda: (T.HYV4Config(**hy_v4(
        num_hidden_layers=4, indexer_types=["full", "shared", "shared", "full"], mlp_layer_types=["sparse", "dense", "sparse", "sparse"],
        n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2, norm_topk_prob=False, hc_mult=2, hc_magnitude=1.3, hc_eps=0.01,
        rms_norm_eps=0.001, swiglu_limit=0.3, v_head_dim=12, index_topk=9, index_head_dim=8, index_n_heads=12,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), False),
    "dbrx": lambda: (dbrx(n_heads=6, attn_config=dict(kv_n_heads=2, clip_qkv=0.9)), True),
    "dbrx_plain": lambda: (dbrx(n_heads=3, attn_config=dict(kv_n_heads=3, clip_qkv=50), moe_num_experts=3, moe_top_k=1,
                                moe_normalize_expert_weights=None), False),
    "axk1": lambda: (T.AXK1Config(**latent(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1,
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), False),
    # Released checkpoints have no bias of the choice.
    "axk1_released": lambda: (T.AXK1Config(**latent(
        num_attention_heads=2, mlp_layer_types=["sparse", "dense", "sparse"], n_group=1, topk_group=1, n_shared_experts=2,
        norm_topk_prob=False, rope_interleave=False, tie_word_embeddings=True)), False),
    "axk2": lambda: (T.AXK2Config(**axk2()), False),
    # Groups, whose experts left out compete as zeros.
    "axk2_groups": lambda: (T.AXK2Config(**axk2(
        num_hidden_layers=4, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2, norm_topk_prob=False,
        mlp_layer_types=["sparse", "dense", "sparse", "sparse"], gated_norm_rank=3, index_topk=9, index_head_dim=8, index_n_heads=6,
        v_head_dim=12, tie_word_embeddings=True, rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))), False),
    "bailing_hybrid": lambda: (ling3(num_hidden_layers=4, layer_group_size=2), True),
    "bailing_hybrid_latent": lambda: (ling3(
        num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "full_attention"], q_lora_rank=12, kda_safe_gate=False,
        mlp_layer_types=["sparse", "dense", "sparse"], num_experts=8, num_local_experts=8, n_group=4, topk_group=2, n_shared_experts=2,
        norm_topk_prob=False, short_conv_kernel_size=3, rope_parameters=YARN), False),
    "muse_glimmer": lambda: (muse(sliding_window=9, num_hidden_layers=5, output_multiplier=1.4, final_logit_softcapping=6.0), True),
    "muse_glimmer_eps": lambda: (muse(
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"], layer_rope_theta=[1e4, 0, 0],
        num_key_value_heads=1, sliding_window=7, post_norm_eps=0.02, qk_scale_factor=1.6, output_multiplier=0.7, final_logit_softcapping=2.5,
        attention_bias=True), False),
    "muse_spark": lambda: (muse_spark(sliding_window=9, num_hidden_layers=5, output_multiplier=1.4, final_logit_softcapping=6.0), False),
    "muse_spark_dense": lambda: (muse_spark(
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"], layer_rope_theta=[5e5, 0, 0],
        mlp_layer_types=["dense", "sparse", "sparse"], num_key_value_heads=1, sliding_window=7, post_norm_eps=0.02, qk_scale_factor=1.6,
        output_multiplier=0.7, final_logit_softcapping=2.5, residual_gate_temperature=0.8, routed_scaling_factor=1.7, attention_bias=True), False),
    "zaya": lambda: (T.ZayaConfig(**zaya()), False),
    # Convolutions over three and four tokens, biases, windows, one KV head, of which a half is delayed.
    "zaya_sliding": lambda: (T.ZayaConfig(**zaya(
        num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=1, cca_time0=3, cca_time1=4, sliding_window=9, attention_bias=True,
        layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"], lm_head_bias=True, tie_word_embeddings=False, rope_parameters={
            "hybrid": rope(1e5, partial_rotary_factor=0.5), "hybrid_sliding": rope(1e3, partial_rotary_factor=0.75)})), False),
    "lfm2": lambda: (T.Lfm2Config(**lfm2(layer_types=["conv", "conv", "full_attention", "conv"])), True),
    "lfm2_long_tail": lambda: (T.Lfm2Config(**lfm2(
        num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, layer_types=["full_attention", "conv", "full_attention"],
        conv_L_cache=5, tie_word_embeddings=False, block_auto_adjust_ff_dim=True, block_multiple_of=16,
        block_ffn_dim_multiplier=1.3)), True),
    "lfm2_biases": lambda: (T.Lfm2Config(**lfm2(
        num_hidden_layers=3, layer_types=None, full_attn_idxs=[1], conv_bias=True, conv_L_cache=2)), False),
    "lfm2_moe": lambda: (T.Lfm2MoeConfig(**lfm2_moe()), True),
    "lfm2_moe_plain": lambda: (T.Lfm2MoeConfig(**lfm2_moe(
        num_dense_layers=0, use_expert_bias=False, norm_topk_prob=False, routed_scaling_factor=1.7, num_experts=5,
        num_experts_per_tok=3, conv_L_cache=4, tie_word_embeddings=False)), False),
    "qwen3_next": lambda: (T.Qwen3NextConfig(**qwen_delta(num_experts=5, num_hidden_layers=4)), True),
    "qwen3_next_mtp": lambda: (T.Qwen3NextConfig(**qwen_delta(num_experts=5, num_hidden_layers=4, tie_word_embeddings=True)), True),
    "qwen3_next_mixed": lambda: (T.Qwen3NextConfig(**qwen_delta(
        num_experts=4, num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "linear_attention"],
        linear_num_key_heads=3, linear_num_value_heads=3, linear_value_head_dim=6, linear_conv_kernel_dim=2, mlp_only_layers=[1],
        norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True)), False),
    "qwen3_5_text": lambda: (T.Qwen3_5TextConfig(**qwen_delta(
        num_hidden_layers=4, linear_num_value_heads=6, rope_parameters=rope(1e6, partial_rotary_factor=0.5, mrope_section=[1, 1, 0],
                                                                            mrope_interleaved=True))), True),
    "qwen3_5_text_mtp": lambda: (T.Qwen3_5TextConfig(**qwen_delta(
        num_hidden_layers=4, rope_parameters=rope(1e6, partial_rotary_factor=0.5, mrope_section=[1, 1, 0],
                                                  mrope_interleaved=True))), True),
    "qwen3_5_text_plain": lambda: (T.Qwen3_5TextConfig(**qwen_delta(
        num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], num_key_value_heads=1,
        linear_num_key_heads=1, linear_num_value_heads=1, linear_key_head_dim=20, linear_value_head_dim=36,
        linear_conv_kernel_dim=5, tie_word_embeddings=True)), False),
    "qwen3_5_moe": lambda: (T.Qwen3_5MoeTextConfig(**qwen_delta(num_experts=6, num_hidden_layers=3, layer_types=[
        "linear_attention", "full_attention", "linear_attention"])), True),
    "qwen4_exp": lambda: (T.Qwen4ExpTextConfig(**qwen4_exp(
        output_gate_type="sigmoid", rope_parameters=rope(1e6, partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True))), True),
    # Two tables; a list of tokens that end texts.
    "qwen4_exp_tables": lambda: (T.Qwen4ExpTextConfig(**qwen4_exp(
        num_hidden_layers=4, layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
        ple_layer_ids=[1, 3], ple_embed_dim=12, ple_conv_kernel_size=2, ngram_size=2, heads_per_ngram=3, hc_count=3,
        indexer_compress_ratio=2, indexer_budget=6, indexer_n_heads=5, eos_token_id=[4, 1],
        num_key_value_heads=1, rope_parameters=rope(1e6, partial_rotary_factor=1.0, mrope_section=[2, 1, 1]))), False),
    "qwen4_exp_plain": lambda: (T.Qwen4ExpTextConfig(**qwen4_exp(
        num_hidden_layers=2, layer_types=["indexed_attention", "linear_attention"], ple_layer_ids=[], indexer_budget=16,
        output_gate_type="sigmoid", norm_topk_prob=False, tie_word_embeddings=True)), False),
    "kimi_linear": lambda: (T.KimiLinearConfig(**kimi_linear(
        num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"])), True),
    "kimi_linear_odd": lambda: (T.KimiLinearConfig(**kimi_linear(
        num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=12, linear_num_heads=3, linear_head_dim=20,
        linear_conv_kernel_dim=2, layer_types=["full_attention", "linear_attention", "linear_attention"], num_local_experts=8,
        n_group=4, topk_group=2, n_shared_experts=2, norm_topk_prob=False,
        mlp_layer_types=["sparse", "dense", "sparse"])), False),
    "gemma4": lambda: (T.Gemma4TextConfig(**gemma4(num_kv_shared_layers=3, use_double_wide_mlp=True)), True),
    "gemma4_keys_are_values": lambda: (T.Gemma4TextConfig(**gemma4(
        num_attention_heads=6, num_key_value_heads=3, num_global_key_value_heads=1, attention_k_eq_v=True,
        hidden_size_per_layer_input=0, final_logit_softcapping=None)), True),
    "gemma4_experts": lambda: (T.Gemma4TextConfig(**gemma4(
        hidden_size_per_layer_input=0, num_hidden_layers=3, layer_types=SLIDING, num_key_value_heads=4, num_global_key_value_heads=2,
        attention_k_eq_v=True, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=16,
        tie_word_embeddings=False)), True),
    "gemma4_full": lambda: (T.Gemma4TextConfig(**gemma4(
        num_hidden_layers=5, layer_types=[*SLIDING, "full_attention", "full_attention"], num_kv_shared_layers=2, num_key_value_heads=1, rope_parameters={
            "sliding_attention": rope(partial_rotary_factor=0.5), "full_attention": rope(
                1e5, rope_type="proportional", partial_rotary_factor=0.6, factor=2.0)})), False),
    "gemma4_unified": lambda: (T.Gemma4UnifiedTextConfig(**gemma4_unified()), False),
    "gemma4_unified_shared": lambda: (T.Gemma4UnifiedTextConfig(**gemma4_unified(
        num_attention_heads=6, num_key_value_heads=3, num_global_key_value_heads=1, attention_k_eq_v=True, num_kv_shared_layers=0,
        final_logit_softcapping=None, tie_word_embeddings=False)), False),
    "gemma3n": lambda: (T.Gemma3nTextConfig(**gemma3n(num_kv_shared_layers=2)), True),
    "gemma3n_apart": lambda: (T.Gemma3nTextConfig(**gemma3n(
        num_hidden_layers=3, layer_types=SLIDING, num_attention_heads=6, num_key_value_heads=3, altup_active_idx=2, laurel_rank=7,
        activation_sparsity_pattern=[0.0, 0.6, 0.95], intermediate_size=[40, 24, 56])), True),
    "gemma3n_streams": lambda: (T.Gemma3nTextConfig(**gemma3n(
        num_kv_shared_layers=3, layer_types=["full_attention", *SLIDING, "sliding_attention"], num_key_value_heads=1, altup_num_inputs=3, altup_active_idx=1, altup_correct_scale=False,
        vocab_size_per_layer_input=48, rope_parameters={
            "sliding_attention": rope(3e4), "full_attention": rope(2e5)}, activation_sparsity_pattern=[0.3] * 5, final_logit_softcapping=2.5,
        tie_word_embeddings=False, attention_bias=True)), False),
    "mistral4": lambda: (T.Mistral4Config(**mistral4(0.0)), True),  # not written by the converter
    "mistral4_groups": lambda: (T.Mistral4Config(**mistral4(
        0.3, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2, first_k_dense_replace=0, q_lora_rank=None,
        routed_scaling_factor=1.4, rope_interleave=False, tie_word_embeddings=True)), False),
    "solar_open": lambda: (T.SolarOpenConfig(**sigmoid_moe(n_routed_experts=5, n_shared_experts=2)), True),
    "solar_open_groups": lambda: (T.SolarOpenConfig(**sigmoid_moe(
        n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=1, norm_topk_prob=False, tie_word_embeddings=True,
        rope_parameters=YARN)), False),
    "dots1": lambda: (T.Dots1Config(**sigmoid_moe(first_k_dense_replace=1, n_shared_experts=2, sliding_window=None)), True),
    "dots1_windows": lambda: (T.Dots1Config(**sigmoid_moe(
        num_hidden_layers=4, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1, norm_topk_prob=True, sliding_window=9,
        max_window_layers=2, attention_bias=True)), False),
    "exaone_moe": lambda: (T.ExaoneMoeConfig(**exaone_moe()), True),
    "exaone_moe_mixed": lambda: (T.ExaoneMoeConfig(**exaone_moe(
        num_hidden_layers=4, layer_types=["full_attention", *SLIDING], mlp_layer_types=["sparse", "dense", "dense", "sparse"],
        num_experts=8, n_group=2, topk_group=1, norm_topk_prob=False, num_shared_experts=2, tie_word_embeddings=True)), False),
    "hy_v3": lambda: (T.HYV3Config(**hy_v3()), True),
    "hy_v3_mixed": lambda: (T.HYV3Config(**hy_v3(
        num_hidden_layers=4, mlp_layer_types=["sparse", "dense", "sparse", "dense"], num_shared_experts=2, attention_bias=True,
        mlp_bias=True, tie_word_embeddings=True)), False),
    "hunyuan_moe": lambda: (T.HunYuanMoEV1Config(**base(num_experts=5, moe_topk=2)), True),
    "hunyuan_moe_biases": lambda: (T.HunYuanMoEV1Config(**base(
        num_experts=4, moe_topk=1, attention_bias=True, tie_word_embeddings=True,
        rope_parameters=rope(rope_type="dynamic", alpha=50.0, factor=1.0))), False),
    "olmoe": lambda: (T.OlmoeConfig(**plain_heads(num_experts=5, num_experts_per_tok=2)), True),
    "olmoe_normed": lambda: (T.OlmoeConfig(**plain_heads(num_experts=3, num_experts_per_tok=2, norm_topk_prob=True, attention_bias=True, clip_qkv=0.9,
                                                         tie_word_embeddings=True)), False),
    "nemotron": lambda: (T.NemotronConfig(**nemotron()), True),
    "nemotron_biases": lambda: (T.NemotronConfig(**nemotron(
        num_key_value_heads=3, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters=rope(partial_rotary_factor=1.0))), False),
    "jais2": lambda: (T.Jais2Config(**jais2()), True),
    "jais2_plain": lambda: (T.Jais2Config(**jais2(attention_bias=False, mlp_bias=False, tie_word_embeddings=True)), False),
    "helium": lambda: (T.HeliumConfig(**base(num_attention_heads=3, num_key_value_heads=1)), False),
    "helium_biases": lambda: (T.HeliumConfig(**base(num_attention_heads=3, num_key_value_heads=3, attention_bias=True, mlp_bias=True,
                                                    tie_word_embeddings=True)), False),
    "glm": lambda: (T.GlmConfig(**base(hidden_size=32, rms_norm_eps=1.5625e-7, rope_parameters=rope(partial_rotary_factor=0.5))), True),
    "glm_plain": lambda: (T.GlmConfig(**base(attention_bias=False, tie_word_embeddings=True,
                                             rope_parameters=rope(1e6, partial_rotary_factor=0.25))), False),
    "cwm": lambda: (T.CwmConfig(**base(num_hidden_layers=3, sliding_window=9, rope_parameters=LLAMA3,
                                       layer_types=["full_attention", "sliding_attention", "sliding_attention"])), False),
    "ministral": lambda: (T.MinistralConfig(**base(num_hidden_layers=3, sliding_window=9, layer_types=SLIDING)), False),
    "hyperclovax": lambda: (T.HyperCLOVAXConfig(**hyperclovax()), False),
    "hyperclovax_plain": lambda: (T.HyperCLOVAXConfig(**hyperclovax(use_post_norm=False, attention_multiplier=None, attention_bias=True,
                                                                    mlp_bias=True, tie_word_embeddings=True)), False),
    "granite_swa": lambda: (T.GraniteSWAConfig(**granite_swa()), True),
    "granite_swa_ropes": lambda: (T.GraniteSWAConfig(**granite_swa(
        num_key_value_heads=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        layer_rope_theta=[10000.0, 0, 500000.0], attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), False),
    "granitemoe_swa": lambda: (T.GraniteMoeSWAConfig(**granite_swa(num_local_experts=5, num_experts_per_tok=2)), True),
    "granitemoe_swa_shared": lambda: (T.GraniteMoeSWAConfig(**granite_swa(
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24, layer_rope_theta=[0, 10000.0, 0],
        tie_word_embeddings=True)), False),
    "lfm3": lambda: (T.Lfm3Config(**lfm3()), False),
    "lfm3_plain": lambda: (T.Lfm3Config(**lfm3(
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "conv"], use_sandwich_norm=False,
        use_attention_gate=False, conv_L_cache=3, conv_bias=True, attention_bias=True, tie_word_embeddings=True,
        rope_parameters={"sliding_attention": rope(), "full_attention": rope(1e5, partial_rotary_factor=0.5)})), False),
    "qwen2_5_vl": lambda: (T.Qwen2_5_VLConfig(
        text_config=plain_heads(rope_parameters=MROPE), vision_config=eye(intermediate_size=8, fullatt_block_indexes=[0])), True),
    "qwen2_vl": lambda: (T.Qwen2VLConfig(
        text_config=plain_heads(tie_word_embeddings=True, rope_parameters=MROPE), tie_word_embeddings=True,
        vision_config=dict(depth=1, embed_dim=8, hidden_size=24, num_heads=1, patch_size=2, temporal_patch_size=1, mlp_ratio=1,
                           spatial_merge_size=1)), False),
    "glm4v": lambda: (T.Glm4vConfig(
        text_config=plain_heads(rope_parameters=rope(partial_rotary_factor=0.5, mrope_section=[1, 1, 0])), vision_config=eye(
            intermediate_size=8, image_size=4)), True),
    "qwen3_vl": lambda: (T.Qwen3VLConfig(text_config=base(rope_parameters=MROPE), vision_config=eye(
        intermediate_size=8, num_position_embeddings=4, deepstack_visual_indexes=[0])), True),
    "qwen3_vl_moe": lambda: (T.Qwen3VLMoeConfig(
        text_config=base(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16, rope_parameters=MROPE), vision_config=eye(
            intermediate_size=8, num_position_embeddings=4, deepstack_visual_indexes=[0])), True),
    "qwen3_vl_moe_saved": lambda: (T.Qwen3VLMoeConfig(
        text_config=base(num_experts=4, num_experts_per_tok=1, moe_intermediate_size=16, num_key_value_heads=1,
                         rope_parameters=MROPE), vision_config=eye(
            intermediate_size=8, num_position_embeddings=4, deepstack_visual_indexes=[])), False),
    "gemma": lambda: (T.GemmaConfig(**base(num_key_value_heads=1, hidden_act="gelu", tie_word_embeddings=True)), True),
    "qwen3_moe_windows": lambda: (T.Qwen3MoeConfig(**base(
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=False, use_sliding_window=True,
        sliding_window=9)), False),
    "llama_two_tables": lambda: (T.LlamaConfig(**plain_heads()), False),
    "mpt": lambda: (T.MptConfig(d_model=24, n_heads=3, n_layers=2, max_seq_len=128, vocab_size=53, bos_token_id=0, eos_token_id=1), True),
    "mpt_clipped": lambda: (T.MptConfig(d_model=24, n_heads=3, n_layers=2, max_seq_len=128, vocab_size=53, bos_token_id=0, eos_token_id=1,
                                        attn_config=dict(clip_qkv=0.7)), True),
    "bloom": lambda: (T.BloomConfig(hidden_size=24, n_head=3, n_layer=2, vocab_size=53, bos_token_id=0, eos_token_id=1,
                                    seq_length=128), True),
    "gpt_bigcode": lambda: (T.GPTBigCodeConfig(**bigcode()), True),
    "gpt_bigcode_heads": lambda: (T.GPTBigCodeConfig(**bigcode(multi_query=False, n_inner=40, tie_word_embeddings=False)), False),
    "gptj": lambda: (T.GPTJConfig(**bigcode(rotary_dim=4)), False),
    "codegen": lambda: (T.CodeGenConfig(**bigcode(vocab_size=53, n_embd=24, n_head=2, rotary_dim=8)), False),
    "gpt_neo": lambda: (T.GPTNeoConfig(vocab_size=53, hidden_size=24, num_layers=3, num_heads=3, max_position_embeddings=64, window_size=9,
                                       attention_types=[[["global", "local"], 1], [["local"], 1]], bos_token_id=0, eos_token_id=1), False),
    "persimmon": lambda: (T.PersimmonConfig(**plain_heads()), False),
    "biogpt": lambda: (T.BioGptConfig(**opt(vocab_size=53, hidden_size=24, intermediate_size=40, num_attention_heads=3)), False),
    "exaone": lambda: (T.ExaoneConfig(**plain_heads(rope_parameters=rope(5e5, rope_type="linear", factor=4.0))), True),
    "youtu": lambda: (T.YoutuConfig(**youtu(tie_word_embeddings=True)), True),
    "youtu_halves": lambda: (T.YoutuConfig(**youtu(q_lora_rank=None, num_attention_heads=3, rope_interleave=False, attention_bias=True,
                                                   rope_parameters=YARN | dict(mscale=1.1, mscale_all_dim=1.1))), False),
    "internlm3": lambda: (T.InternLM3Config(**base(attention_bias=True, mlp_bias=True)), False),
    "zamba2": lambda: (T.Zamba2Config(**zamba2()), False),
    # Two blocks in turn, of which one is used twice.
    "zamba2_adapters": lambda: (T.Zamba2Config(**zamba2(
        num_hidden_layers=4, layers_block_type=["hybrid", "mamba", "hybrid", "hybrid"], num_mem_blocks=2,
        use_shared_attention_adapter=True, use_mem_rope=True, adapter_rank=7, mamba_ngroups=1, n_mamba_heads=6, mamba_d_conv=3,
        mamba_d_state=20, add_bias_linear=True, time_step_min=0.8)), False),
    "recurrent_gemma": lambda: (T.RecurrentGemmaConfig(**griffin(num_hidden_layers=5)), False),
    "recurrent_gemma_wide": lambda: (T.RecurrentGemmaConfig(**griffin(
        lru_width=36, num_attention_heads=6, num_key_value_heads=3, conv1d_width=3, attention_bias=True, tie_word_embeddings=False,
        block_types=["attention", "recurrent"], rope_parameters=rope(1e5, partial_rotary_factor=1.0))), False),
    "vaultgemma": lambda: (T.VaultGemmaConfig(**base(head_dim=12, num_hidden_layers=3, sliding_window=9, tie_word_embeddings=True,
                                                     query_pre_attn_scalar=10, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)), False),
    "flex_olmo": lambda: (T.FlexOlmoConfig(**plain_heads(intermediate_size=16, num_experts=5, num_experts_per_tok=2)), False),
    "afmoe": lambda: (T.AfmoeConfig(**afmoe()), True),
    "afmoe_plain": lambda: (T.AfmoeConfig(**afmoe(
        layer_types=["full_attention", *SLIDING], num_dense_layers=0, num_key_value_heads=4, num_shared_experts=2, mup_enabled=False,
        tie_word_embeddings=True, attention_bias=True)), False),
    "nanochat": lambda: (T.NanoChatConfig(**plain_heads(final_logit_softcapping=3.0)), False),
    "minicpm3": lambda: (T.MiniCPM3Config(**minicpm3()), True),
    "minicpm3_scales": lambda: (T.MiniCPM3Config(**minicpm3(
        q_lora_rank=None, scale_emb=1.7, scale_depth=0.9, dim_model_base=40, v_head_dim=10, attention_bias=True, tie_word_embeddings=False,
        rope_parameters=rope(rope_type="longrope", short_factor=[1.0, 1.3, 1.7, 2.0], long_factor=[1.0, 1.3, 1.7, 2.0],
                             original_max_position_embeddings=64))), False),
    "xglm": lambda: (T.XGLMConfig(vocab_size=53, d_model=24, ffn_dim=40, num_layers=2, attention_heads=3, max_position_embeddings=64), False),
    "opt": lambda: (T.OPTConfig(**opt()), False),
    "opt_no_biases": lambda: (T.OPTConfig(**opt(enable_bias=False, activation_function="gelu", tie_word_embeddings=False)), False),
    "olmo": lambda: (T.OlmoConfig(**base(num_hidden_layers=3, clip_qkv=0.8)), True),
    "olmo_biases": lambda: (T.OlmoConfig(**base(num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True,
                                                rope_parameters=rope(rope_type="linear", factor=4.0))), False),
    "bloom_adds_to_norm": lambda: (T.BloomConfig(hidden_size=24, n_head=3, n_layer=2, vocab_size=53, bos_token_id=0, eos_token_id=1,
                                                 seq_length=128, apply_residual_connection_post_layernorm=True), False),
}


def gemma4(**more):
    return base(num_hidden_layers=6, hidden_activation="gelu_pytorch_tanh", global_head_dim=16, sliding_window=9,
                layer_types=["full_attention", "sliding_attention", "full_attention", *SLIDING],
                vocab_size_per_layer_input=53, hidden_size_per_layer_input=12, final_logit_softcapping=4.0,
                tie_word_embeddings=True, rope_parameters={"sliding_attention": rope(), "full_attention": rope(
                    1e6, rope_type="proportional", partial_rotary_factor=0.25)}) | more


def zamba2(**more):
    config = base(num_hidden_layers=5, num_key_value_heads=4, layers_block_type=["mamba", "hybrid", "mamba", "hybrid", "mamba"], adapter_rank=5,
                  mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_ngroups=2, n_mamba_heads=8, time_step_min=0.3,
                  tie_word_embeddings=True) | more
    return {key: value for key, value in config.items() if key != "head_dim"}


def griffin(**more):
    config = base(num_attention_heads=3, num_key_value_heads=1, attention_window_size=9, logits_soft_cap=3.0, tie_word_embeddings=True) | more
    return {key: value for key, value in config.items() if key not in ("head_dim", "max_position_embeddings")}


def gemma4_unified(**more):
    config = gemma4(num_kv_shared_layers=3, use_double_wide_mlp=True) | more
    return {key: value for key, value in config.items() if not key.endswith("_per_layer_input")}


def lara(**more):
    return qwen_delta(num_experts=5, sliding_window=9, rope_parameters=rope(1e5)) | more


def gemma3n(**more):
    return base(num_hidden_layers=5, hidden_activation="gelu_pytorch_tanh", sliding_window=9, vocab_size_per_layer_input=53,
                hidden_size_per_layer_input=12, altup_num_inputs=4, altup_active_idx=0, laurel_rank=6, num_kv_shared_layers=0,
                activation_sparsity_pattern=[0.95, 0.8, 0.0, 0.5, 0.0], final_logit_softcapping=4.0, tie_word_embeddings=True,
                layer_types=[*SLIDING, "sliding_attention", "full_attention"],
                rope_parameters={"sliding_attention": rope(), "full_attention": rope(1e6)}) | more


def lfm2(**more):
    config = base(num_hidden_layers=4, num_attention_heads=6, norm_eps=1e-5, conv_L_cache=3, block_auto_adjust_ff_dim=False,
                  block_multiple_of=8, block_ffn_dim_multiplier=1.0, tie_word_embeddings=True, rope_parameters=rope(1e6)) | more
    del config["head_dim"], config["rms_norm_eps"]
    return config


def lfm2_moe(**more):
    config = lfm2(layer_types=["conv", "full_attention", "conv", "conv"], moe_intermediate_size=16, num_dense_layers=1,
                  num_experts=6, num_experts_per_tok=2) | more
    for key in [key for key in config if key.startswith("block_")]:
        del config[key]
    return config


def qwen_delta(**more):
    """Gated delta networks with two value heads for each key head, attention with gates in every fourth layer."""
    config = base(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=12,
                  linear_conv_kernel_dim=4, rope_parameters=rope(partial_rotary_factor=0.5)) | more
    if "num_experts" in more:
        config |= dict(num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24)
    return config


def qwen4_exp(**more):
    """Residual streams, attention to selected blocks of four tokens, rows of tables of n-grams."""
    return qwen_delta(
        num_experts=6, num_hidden_layers=4, hc_count=2, hc_lowrank=10, ple_layer_ids=[2], ple_conv_kernel_size=3, ngram_size=3,
        heads_per_ngram=2, ngram_vocab_size_base=41, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=3,
        indexer_n_heads=3, indexer_kv_heads=1, indexer_head_dim=10, indexer_budget=12, indexer_compress_ratio=4,
        eos_token_id=4) | more


def fused_experts(state):
    """Converts experts to the published form: gate and up of all experts in one tensor, down in another."""
    experts = {}
    for key in [k for k in state if ".mlp.experts." in k]:
        stem, expert, part = key.removesuffix("_proj.weight").rsplit(".", 2)
        experts.setdefault(stem, {}).setdefault(part, {})[int(expert)] = state.pop(key)
    for stem, parts in experts.items():
        gate, up, down = (torch.stack([parts[part][e] for e in range(len(parts[part]))]) for part in ("gate", "up", "down"))
        state |= {stem + ".gate_up_proj": torch.cat([gate, up], 1), stem + ".down_proj": down}
    return state


def within_multimodal(state, path):
    """Tensors as the text part of a Qwen3.5 checkpoint has them, beside a vision tower and a next-token layer; its config.json."""
    config = json.load(open(path + "/config.json"))
    attends = config["layer_types"].index("full_attention")
    state = fused_experts(state)
    layer = {"mtp" + k.removeprefix("model").replace(f".{attends}.", ".0.", 1): v.clone() for k, v in state.items()
             if k.startswith(f"model.layers.{attends}.")}
    dim = config["hidden_size"]
    layer |= {f"mtp.{k}.weight": torch.zeros(dim) for k in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    vision = {"model.visual.patch_embed.proj.bias": torch.zeros(4), "model.visual.merger.norm.weight": torch.ones(4)}
    state = {k.replace("model.", "model.language_model.", 1) if k.startswith("model.") else k: v for k, v in state.items()}
    whole = dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", vision_config=dict(depth=1),
                 tie_word_embeddings=config["tie_word_embeddings"], text_config=config | dict(mtp_num_hidden_layers=1))
    for key in ("architectures", "tie_word_embeddings"):
        del whole["text_config"][key]
    json.dump(whole, open(path + "/config.json", "w"), indent=2)
    return state | layer | vision | {"mtp.fc.weight": torch.zeros(dim, 2 * dim)}


MTP_DRAFT = 6  # tokens that a next-token layer proposes


def shuffled_layer(model, inner_of, at):
    """A copy of layer `at` with its numbers in another order, and its tensors by the names behind "layers.N."."""
    other = copy.deepcopy(model)
    layer = inner_of(other).layers[at]
    with torch.no_grad():
        for values in [*layer.parameters(), *layer.buffers()]:
            if values.is_floating_point():
                values.copy_(values.flatten()[torch.randperm(values.numel())].view_as(values))
    with tempfile.TemporaryDirectory() as saved:
        other.save_pretrained(saved)
        stem = f".layers.{at}."
        return layer, {k.split(stem)[1]: v for k, v in load_file(saved + "/model.safetensors").items()
                       if stem in k and ".visual." not in k and "vision" not in k}


def with_mtp(model, state, path, n_layers=1):
    """A checkpoint with its next-token layers, as DeepSeek V3, GLM-4.5, Qwen3.5 and Step 3.5 are published; what they propose for some
    prompts goes to golden_mtp.txt: a line each, with the prompt and behind a bar the chain of the likeliest tokens. Of several layers
    the k-th reads what the one before it gave, and the tokens k + 1 behind. Transformers has no class for them; the layers themselves
    are its own."""
    torch.manual_seed(11)
    qwen, step = (model.config.model_type.startswith(of) for of in ("qwen3", "step3"))
    inner_of = (lambda of: of.model.language_model) if step else (lambda of: of.model)
    inner, config = inner_of(model), model.config.get_text_config()
    centered = 1 if qwen or step else 0  # norms are stored less one
    at = config.layer_types.index("full_attention") if qwen else 1 if step else len(inner.layers) - 1
    dim, table, extra, layers = config.hidden_size, inner.embed_tokens.weight.detach(), {}, []
    for k in range(n_layers):
        layer, of_layer = shuffled_layer(model, inner_of, at)
        norms = [torch.randn(dim) * 0.2 + 1 - centered for _ in range(3)]
        projection = torch.randn(dim, 2 * dim) * 0.3
        head = model.lm_head.weight.detach()
        if config.model_type == "deepseek_v3" or step:
            head = head.flatten()[torch.randperm(head.numel())].view_as(head).clone()
        if step:  # the lists by layer go on
            layer.mlp.limit = STEP35["swiglu_limits_shared"][len(inner.layers) + k] or float("inf")
        layers.append((layer, norms, projection, head))
        shared = "transformer.shared_head" if step else "shared_head"
        parts = dict(zip(("enorm", "hnorm", shared + ".norm", "eh_proj"), [*norms, projection]))
        if qwen:
            names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")
            extra |= {f"mtp.{name}.weight": v for name, v in zip(names, parts.values())} | {f"mtp.layers.0.{k}": v for k, v in of_layer.items()}
            continue
        parts |= {shared + ".output": head.clone()} if step else {"embed_tokens": table.clone(), "shared_head.head": head.clone()}
        stem = f"model.layers.{len(inner.layers) + k}."
        extra |= {f"{stem}{name}.weight": v for name, v in parts.items()} | {stem + k: v for k, v in of_layer.items()}
    saved = json.load(open(path + "/config.json"))
    saved["mtp_num_hidden_layers" if qwen else "num_nextn_predict_layers"] = n_layers
    json.dump(saved, open(path + "/config.json", "w"), indent=2)

    def norm(x, weight):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps)
        return x * scale * (weight + centered)

    def states_of(prompt):
        """States behind the last norm; of Step those before it."""
        seen = []
        hook = inner.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        normed = inner(torch.tensor([prompt])).last_hidden_state
        hook.remove()
        return seen[0] if step else normed

    def propose(prompt):
        inputs = [states_of(prompt)[:, :-1]] + [None] * n_layers  # of each layer
        tokens = list(prompt)
        for guess in range(MTP_DRAFT):
            k = min(guess, n_layers - 1)
            layer, norms, projection, head = layers[k]
            n = inputs[k].shape[1]
            x = torch.cat([norm(table[torch.tensor([tokens[k + 1:k + 1 + n]])], norms[0]), norm(inputs[k], norms[1])], -1) @ projection.T
            positions = torch.arange(n)[None]
            mask = torch.full((n, n), -1e30).triu(1)
            rotary = inner.rotary_emb(x, positions, *([config.layer_types[at]] if step else []))
            if step:
                mask += torch.full((n, n), -1e30).tril(-config.sliding_window)
            x = layer(x, position_embeddings=rotary, attention_mask=mask[None, None], position_ids=positions)
            x = x[0] if isinstance(x, tuple) else x
            normed = norm(x, norms[2])
            best = (normed[:, -1:] @ head.T)[0, 0].topk(2)
            assert best.values[0] - best.values[1] > 1e-3, "too near to tell"
            given = x if step else normed
            if k < n_layers - 1:
                inputs[k + 1] = given
            else:
                inputs[k] = torch.cat([inputs[k], given[:, -1:]], 1)
            tokens.append(int(best.indices[0]))
        return tokens[len(prompt):]

    with torch.no_grad(), open(path + "/golden_mtp.txt", "w") as out:
        for n in (2, 7, 23, 40):
            prompt = torch.randint(0, config.vocab_size, (n,)).tolist()
            print(*prompt, "|", *propose(prompt), file=out)
    return state | {k: v.detach().clone().contiguous() for k, v in extra.items()}


def among_senses(state, path):
    """Tensors as Gemma 3n is published, with the older names of its rope; its config.json."""
    text = json.load(open(path + "/config.json"))
    ropes = text.pop("rope_parameters")
    text |= dict(rope_scaling=None, rope_theta=ropes["full_attention"]["rope_theta"],
                 rope_local_base_freq=ropes["sliding_attention"]["rope_theta"])
    del text["architectures"]
    json.dump(dict(architectures=["Gemma3nForConditionalGeneration"], model_type="gemma3n", text_config=text,
                   audio_config=dict(model_type="gemma3n_audio"), vision_config=dict(model_type="gemma3n_vision")),
              open(path + "/config.json", "w"), indent=2)
    state = {k.replace("model.", "model.language_model.", 1) if k.startswith("model.") else k: v for k, v in state.items()}
    return state | {f"model.{part}.weight": torch.ones(4) for part in (
        "vision_tower.timm_model.conv_stem.bn", "audio_tower.conformer.0.norm", "embed_vision.soft_embedding_norm",
        "embed_audio.embedding")}


def kimi_names(state):
    """Renames dense feed-forwards, which transformers writes under the experts' name."""
    return {re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", name): tensor for name, tensor in state.items()}


def as_kimi_linear(state, path):
    """As published: dense feed-forwards by their own name, sizes and kinds of layers in linear_attn_config."""
    config = json.load(open(path + "/config.json"))
    config |= PUBLISHED["kimi_linear"](config)
    for key in ("layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "first_k_dense_replace"):
        del config[key]
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return kimi_names(state)


def inputs_first(state, path):
    """Experts as Qwen3-VL's are published; transformers reads them both ways, and writes the other one."""
    return {k: v.transpose(1, 2).contiguous() if ".mlp.experts." in k else v for k, v in state.items()}


def as_ling2(state, path):
    """Ling 2 as published: Sarvam's tensors, under a type that it shares with Ling 1 and a class of its own."""
    config = json.load(open(path + "/config.json"))
    parameters = config.pop("rope_parameters")
    config |= dict(model_type="bailing_moe", architectures=["BailingMoeV2ForCausalLM"], num_experts=config.pop("n_routed_experts"),
                   num_shared_experts=config.pop("n_shared_experts"), use_qkv_bias=config.pop("attention_bias"), rope_scaling=None,
                   rope_theta=parameters["rope_theta"], partial_rotary_factor=parameters["partial_rotary_factor"],
                   score_function="sigmoid", use_bias=False, moe_router_enable_expert_bias=True)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


def as_step35(state, path):
    """Config and tensors of the text alone as Step 3.5 is published."""
    text = json.load(open(path + "/config.json"))["text_config"]
    for key in ("rope_parameters", "mlp_layer_types", "per_layer_config", "num_sliding_attention_heads", "mtp_layer_types",
                "mtp_mlp_layer_types", "query_pre_attn_scalar"):
        text.pop(key, None)
    for usual, theirs in (("num_key_value_heads", "num_attention_groups"), ("n_routed_experts", "moe_num_experts"),
                          ("num_experts_per_tok", "moe_top_k")):
        text[theirs] = text.pop(usual)
    text |= STEP35 | dict(architectures=["Step3p5ForCausalLM"], use_qk_norm=True, zero_centered=True, norm_expert_weight=True)
    json.dump(text, open(path + "/config.json", "w"), indent=2)
    return {k: v for k, v in state.items() if not k.startswith("vi")}


def as_glm5_next_text(state, path):
    """The text alone; sizes of the delta networks in an object, as GLM-5.3-Flash says them."""
    text = json.load(open(path + "/config.json"))["text_config"]
    linear = dict(head_dim=text.pop("linear_head_dim"), num_heads=text.pop("linear_num_heads"), safe_gate=False,
                  short_conv_kernel_size=text.pop("linear_conv_kernel_dim"), gate_lower_bound=text.pop("linear_lower_bound"))
    text |= dict(linear_attn_config=linear, architectures=["Glm5NextForCausalLM"])
    json.dump(text, open(path + "/config.json", "w"), indent=2)
    return {k.replace("model.language_model.", "model."): v for k, v in state.items() if ".visual." not in k}


def published_minimax_m3(text):
    """Lists by layer and sizes of indexers as MiniMax-M3 is published."""
    if "layer_types" not in text or "sparse_attention_config" in text:
        return text
    text = dict(text)
    sparse = [int(kind == "minimax_m3_sparse") for kind in text.pop("layer_types")]
    names = dict(index_n_heads="sparse_num_index_heads", index_head_dim="sparse_index_dim", index_block_size="sparse_block_size",
                 index_topk_blocks="sparse_topk_blocks", index_local_blocks="sparse_local_block")
    text["sparse_attention_config"] = {theirs: text.pop(usual) for usual, theirs in names.items()} | dict(
        use_sparse_attention=True, sparse_attention_freq=sparse, sparse_disable_index_value=sparse, sparse_score_type="max",
        sparse_init_block=0)
    return text | dict(moe_layer_freq=[int(kind == "sparse") for kind in text.pop("mlp_layer_types")], hidden_act="swigluoai",
                       n_shared_experts=1, use_gemma_norm=True, use_qk_norm=True, qk_norm_type="per_head", use_routing_bias=True,
                       scoring_func="sigmoid", attention_output_gate=False, num_mtp_modules=0)


def as_minimax_m3(state, path):
    config = json.load(open(path + "/config.json"))
    json.dump(config | dict(text_config=published_minimax_m3(config["text_config"])), open(path + "/config.json", "w"), indent=2)
    return state


def as_minimax_m3_text(state, path):
    """The text alone, as transformers' configuration says it."""
    text = json.load(open(path + "/config.json"))["text_config"]
    json.dump(text | dict(architectures=["MiniMaxM3VLForCausalLM"]), open(path + "/config.json", "w"), indent=2)
    return {k.replace("language_model.model.", "model.").replace("language_model.lm_head", "lm_head"): v for k, v in state.items()
            if k.startswith(("language_model.", "lm_head"))}


def published_dots3(config):
    """Kinds and sizes of layers as dots3 note is published: beside the others, by names of their own."""
    if "per_layer_config" not in config:
        return config
    config = dict(config)
    window = next(iter(config.pop("per_layer_config").values()))
    ropes = config.pop("rope_parameters")
    first = config["mlp_layer_types"].index("sparse")
    sizes = {"swa_" + key: window.get(key, config.get(key)) for key in dots3_window()}
    return {key: value for key, value in config.items() if key not in ("mlp_layer_types", "head_dim", "shared_experts_intermediate_size")} | sizes | dict(
        layer_types=[kind.replace("indexed", "full") for kind in config["layer_types"]], use_dsa=True, sliding_window_size=config.pop("sliding_window"),
        first_k_dense_replace=first, moe_layer_freq=1, rope_theta=ropes["indexed_attention"]["rope_theta"],
        swa_rope_theta=ropes["sliding_attention"]["rope_theta"], apply_mla_qkv_lora_rescale=True, scoring_func="sigmoid", topk_method="noaux_tc",
        attention_gate_type="headwise", swa_attention_gate_type="headwise", k_rope_only_layernorm=True, normalization="RMSNorm",
        final_norm="RMSNorm", use_sliding_window=True, moe_shared_expert_intermediate_size=config["shared_experts_intermediate_size"])


def as_dots3(state, path):
    config = published_dots3(json.load(open(path + "/config.json")))
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


MIMO = dict(attention_value_scale=0.707, add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
            hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 1, 1], layernorm_epsilon=1e-5, rope_theta=5e6, swa_rope_theta=1e4,
            partial_rotary_factor=0.334, scoring_func="sigmoid", topk_method="noaux_tc", swa_head_dim=12, swa_v_head_dim=8,
            swa_num_attention_heads=4, swa_num_key_value_heads=2, n_shared_experts=None, hybrid_block_size=None)


def as_olmo_hybrid(state, path):
    return tiny_remote_models.olmo_hybrid(state, json.load(open(path + "/config.json")))


def as_mimo(state, path):
    """Config as MiMo V2 Flash is published: kinds of layers as numbers, sizes of layers with a window beside the others, no transformers keys."""
    config = json.load(open(path + "/config.json"))
    for key in ("layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps"):
        del config[key]
    config |= MIMO | dict(sliding_window=8, sliding_window_size=8, attention_chunk_size=8)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


def as_dbrx(state, path):
    """Config as DBRX is published: theta among what attention says."""
    config = json.load(open(path + "/config.json"))
    config["attn_config"] = {k: v for k, v in config["attn_config"].items() if k in ("kv_n_heads", "clip_qkv")} | dict(
        model_type="", rope_theta=config.pop("rope_parameters")["rope_theta"])
    config["ffn_config"] |= dict(model_type="", moe_jitter_eps=0.01)
    del config["num_key_value_heads"]
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


def as_axk1(state, path):
    return {k: v for k, v in state.items() if "e_score_correction_bias" not in k}


def hy_v4_name(key):
    """The published name of a tensor that transformers saves by another."""
    key = key.replace(".hc_pre.hc_head.", ".hc_head.").replace(".mlp.linear_gate", ".mlp.gate_proj")
    return re.sub(r"\.hc_pre\.(hc_attn_layer|hc_mlp_layer)\.", r".\1.hc_pre.", key).replace("shared_experts.linear_gate", "shared_experts.gate_proj")


def as_hy_v4(state, path):
    """Names as Hy4 is published. Rotated rows lie in pairs there, as vLLM and llama.cpp read them; transformers takes them for halves."""
    config = json.load(open(path + "/config.json"))
    heads, plain, turned = (config[key] for key in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim"))

    def pairs(value, n_heads):
        by_head = value.reshape(n_heads, -1, *value.shape[1:]).clone()
        tails = by_head[:, -turned:]
        by_head[:, -turned:] = tails.reshape(n_heads, 2, turned // 2, *value.shape[1:]).transpose(1, 2).reshape(tails.shape)
        return by_head.reshape(value.shape)

    of = dict(q_b_proj=heads, kv_a_proj_with_mqa=1, wq_b=config["index_n_heads"], wk=1, k_norm=1)
    renamed = {}
    for key, value in state.items():
        key = hy_v4_name(key)
        part = key.rsplit(".", 2)[-2]
        renamed[key] = pairs(value, of[part]).contiguous() if part in of else value
    config |= dict(enable_ihc=True, enable_lm_head_fp32=True, gated_mla=True, gating_type="elementwise", learnable_sink=True,
                   layer_types=["deepseek_sparse_attention"] * config["num_hidden_layers"], num_key_value_heads=2)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return renamed


def computed_experts(state, n):
    """The tensors without those of experts from the n-th on."""
    of = {key: re.search(r"\.experts\.(\d+)\.", key) for key in state}
    return {key: value for key, value in state.items() if of[key] is None or int(of[key][1]) < n}


def as_longcat(state, path):
    """Without the matrices that transformers saves of experts that have none."""
    config = json.load(open(path + "/config.json"))
    config |= dict(attention_method="MLA", mla_scale_q_lora=True, mla_scale_kv_lora=True, zero_expert_type="identity", router_bias=False)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return computed_experts(state, config["n_routed_experts"])


def as_minimax_01(state, path):
    """Config as MiniMax-Text-01 is published."""
    config = json.load(open(path + "/config.json"))
    theta = config.pop("rope_parameters")["rope_theta"]
    kinds = [int(kind == "full_attention") for kind in config.pop("layer_types")]
    for theirs, usual in (("full_attention", "full_attn"), ("linear_attention", "linear_attn"), ("mlp", "mlp")):
        for factor in ("alpha", "beta"):
            config[f"layernorm_{theirs}_{factor}"] = config.pop(f"{usual}_{factor}_factor")
    config |= dict(model_type="minimax_text_01", architectures=["MiniMaxText01ForCausalLM"], attn_type_list=kinds, postnorm=True, rope_theta=theta,
                   rotary_dim=config["head_dim"], shared_intermediate_size=0, shared_moe_mode="sigmoid")
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return {key: value for key, value in state.items() if not key.endswith(("slope_rate", "_decay"))}


def as_minimax(state, path):
    return {key: value for key, value in state.items() if not key.endswith(("slope_rate", "_decay"))}


def as_ling3(state, path):
    """Config as Ling 3 is published."""
    config = json.load(open(path + "/config.json"))
    theta = config.pop("rope_parameters")["rope_theta"]
    for key in ("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "output_router_logits"):
        config.pop(key, None)
    for theirs, usual in (("moe_renormalize", "norm_topk_prob"), ("num_expert_group", "n_group"), ("num_experts_per_token", "num_experts_per_tok"),
                          ("model_max_length", "max_position_embeddings")):
        config[usual] = config.pop(theirs)
    config |= dict(architectures=["BailingMoeV3ForCausalLM"], rope_theta=theta, rope_scaling=None, no_kda_lora=True, kda_safe_gate=True,
                   gated_attention_proj_granularity_type="head_wise", score_function="sigmoid", moe_router_enable_expert_bias=True,
                   moe_shared_expert_intermediate_size=config["moe_intermediate_size"], expert_swiglu_limit_list=None, head_dim=12,
                   num_nextn_predict_layers=0, first_k_dense_replace=1)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


def published_deepseek_v4(state, path):
    """Names and configuration as DeepSeek V4 is published, a layer that predicts a further token too."""
    config = json.load(open(path + "/config.json"))
    ratios = dict(sliding_attention=0, compressed_sparse_attention=4, heavily_compressed_attention=128)
    theirs = config["compress_rates"] == dict(compressed_sparse_attention=4, heavily_compressed_attention=128)
    for key in ("rope_parameters", "partial_rotary_factor", *(["compress_rates"] if theirs else [])):
        del config[key]
    if theirs:
        config["compress_ratios"] = [ratios[kind] for kind in config.pop("layer_types")] + [0]
    config["num_hash_layers"] = config.pop("mlp_layer_types").count("hash_moe")
    config |= dict(topk_method="noaux_tc", rope_scaling=None)
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    names = {"embed_tokens.": "embed.", "hc_head.hc_": "hc_head_", ".attn.norm.": ".attn.kv_norm."}
    renamed = {}
    for key, value in state.items():
        key = key.removeprefix("model.")
        for ours, published in names.items():
            key = key.replace(ours, published)
        renamed[key] = value.int() if key.endswith("tid2eid") else value
    return renamed | {"mtp.0.e_proj.weight": torch.zeros(8, 8)}


INKLING_NAMES = [
    (r"^model\.", "model.llm."), (r"^lm_head", "model.llm.unembed"), (r"embed_tokens\.embed_norm", "embed_norm"), (r"embed_tokens", "embed"),
    (r"self_attn\.q_proj", "attn.wq_du"), (r"self_attn\.k_proj", "attn.wk_dv"), (r"self_attn\.v_proj", "attn.wv_dv"),
    (r"self_attn\.r_proj", "attn.wr_du"), (r"self_attn\.o_proj", "attn.wo_ud"), (r"self_attn\.", "attn."), (r"sconv\.conv1d", "sconv"),
    (r"post_attention_layernorm", "mlp_norm"), (r"input_layernorm", "attn_norm"), (r"e_score_correction_bias", "bias"),
    (r"experts\.gate_up_proj", "experts.w13_weight"), (r"experts\.down_proj", "experts.w2_weight"),
    (r"shared_experts\.w2_weight", "shared_experts.shared_w2_weight"), (r"mlp\.down_proj", "mlp.w2_md")]


def alternating(*parts, dim):
    """The parts' rows in turn."""
    return torch.stack(parts, dim=dim + 1).flatten(dim, dim + 1)


def inkling_state(state):
    """Names and layout as Inkling is published."""
    state = dict(state)
    for key in [k for k in state if k.endswith("mlp.experts.gate_up_proj")]:
        state[key] = alternating(*state[key].chunk(2, dim=1), dim=1)
    for key in [k for k in state if k.endswith("gate_proj") or k.endswith("gate_proj.weight")]:
        up, dense = key.replace("gate_proj", "up_proj"), key.endswith(".weight")
        both = alternating(state.pop(key), state.pop(up), dim=0 if dense else 1)
        state[key.replace("gate_proj", "w13_dn" if dense else "shared_w13_weight")] = both
    renamed = {}
    for key, value in state.items():
        for old, new in INKLING_NAMES:
            key = re.sub(old, new, key)
        renamed[key] = value
    return renamed


def as_inkling2(state, path):
    """Inside the published wrapper; transformers saves the names and the layout that are published."""
    text = json.load(open(path + "/config.json"))
    config = dict(model_type="inkling2", architectures=["Inkling2ForConditionalGeneration"], text_config=text, vision_config={})
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return state


def as_inkling(state, path):
    """Inside the published wrapper; kinds of layers by lists of indices."""
    text = json.load(open(path + "/config.json"))
    text["local_layer_ids"] = [i for i, kind in enumerate(text["layer_types"]) if kind == "hybrid_sliding"]
    if text["mlp_layer_types"][0] == "dense":
        text |= dict(dense_mlp_idx=text.pop("mlp_layer_types").count("dense"), dense_intermediate_size=text["intermediate_size"],
                     intermediate_size=text.pop("moe_intermediate_size"))
        del text["layer_types"]
    text["sconv_kernel_size"] = text.pop("conv_kernel_size")
    text["model_max_length"] = text.pop("max_position_embeddings")
    config = dict(model_type="inkling_mm_model", architectures=["InklingForConditionalGeneration"], text_config=text, vision_config={},
                  mtp_config=dict(num_nextn_predict_layers=3))
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return {k: v.contiguous() for k, v in inkling_state(state).items()} | {"model.mtp.layers.0.x.weight": torch.zeros(8, 8),
                                                                             "model.visual.layers.linear_0.weight": torch.zeros(8, 8)}


def dory_state(state):
    """Names as Dory is published: attention and feed-forwards are layers of their own."""
    def renamed(key):
        key = re.sub("^model\\.", "backbone.", key).replace("embed_tokens", "embeddings").replace("self_attn.gate_proj", "self_attn.g_proj")
        at = re.search(r"layers\.(\d+)\.(self_attn|mlp|lambda_1|lambda_2)", key)
        if not at:
            return key
        part = {"self_attn": "mixer", "mlp": "mixer", "lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}[at[2]]
        return key[:at.start()] + f"layers.{2 * int(at[1]) + (at[2] in ('mlp', 'lambda_2'))}.{part}" + key[at.end():]
    return {renamed(key): value for key, value in state.items()}


def as_dory(state, path):
    return dory_state(state)


def said_to_be_tied(state, path):
    """A configuration that ties the output to the embedding, though the checkpoint has both: transformers ties what is alike only."""
    config = json.load(open(path + "/config.json"))
    json.dump(config | dict(tie_word_embeddings=True), open(path + "/config.json", "w"), indent=2)
    return state


# Models saved in their published form: two inside a multimodal checkpoint, one with layers that predict further tokens.
WHOLE = {"kimi_linear_odd": as_kimi_linear, "qwen3_5_moe": within_multimodal, "gemma3n_streams": among_senses,
         "llama_two_tables": said_to_be_tied, "bailing_moe_v2": as_ling2, "qwen3_vl_moe": inputs_first, "step3p5": as_step35, "step3p5_mtp2": as_step35, "glm5_next_shared": as_glm5_next_text, "minimax_m3": as_minimax_m3, "dots3_note": as_dots3, "minimax_m3_text": as_minimax_m3_text,
         "deepseek_v4": published_deepseek_v4, "deepseek_v4_long": published_deepseek_v4, "mimo_v2_flash": as_mimo, "olmo_hybrid": as_olmo_hybrid,
         "olmo_hybrid_rope": as_olmo_hybrid, "dbrx": as_dbrx, "axk1_released": as_axk1, "bailing_hybrid": as_ling3, "hy_v4": as_hy_v4, "hy_v4_groups": as_hy_v4,
         "inkling": as_inkling, "inkling_plain": as_inkling, "inkling2": as_inkling2, "inkling2_full": as_inkling2, "dory": as_dory, "dory_loop": as_dory,
         "minimax": as_minimax, "minimax_01": as_minimax_01, "longcat_flash": as_longcat, "longcat_flash_plain": as_longcat}


def with_next_token_layers(state):
    """Nemotron 3's layers that predict a further token: one attends, one has experts; transformers has no class for them."""
    layers = sorted({k.split(".")[2] for k in state if ".layers." in k})
    beside = {}
    for at, part in enumerate((".q_proj.", ".experts.")):
        layer = next(n for n in layers if any(k.startswith(f"backbone.layers.{n}.mixer{part}") for k in state))
        beside |= {k.replace(f"backbone.layers.{layer}.", f"mtp.layers.{at}."): v.clone() for k, v in state.items()
                   if k.startswith(f"backbone.layers.{layer}.")}
    dim = state["backbone.norm_f.weight"].shape[0]
    beside |= {f"mtp.layers.{name}.weight": torch.zeros(dim) for name in ("0.enorm", "0.hnorm", "1.final_layernorm")}
    return state | beside | {"mtp.layers.0.eh_proj.weight": torch.zeros(dim, 2 * dim)}


def falcon(**more):
    return dict(vocab_size=53, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=128,
                ffn_hidden_size=96, bos_token_id=0, eos_token_id=1) | more


def gpt_oss(**more):
    return base(num_local_experts=4, num_experts_per_tok=2, sliding_window=9, rope_parameters=rope(
        150000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=1.0,
        truncate=False)) | more


def llama4(**more):
    return base(intermediate_size=20, intermediate_size_mlp=44, num_local_experts=4, num_experts_per_tok=1,
                rope_parameters=rope(5e5)) | more


def glm4_moe(**more):
    return base(moe_intermediate_size=16, num_experts_per_tok=2, first_k_dense_replace=1, routed_scaling_factor=1.5,
                num_nextn_predict_layers=0, rope_parameters=rope(partial_rotary_factor=0.5)) | more


def mixture(**more):
    return base(num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16) | more


def step(**more):
    return T.Step3p7Config(vision_config=dict(
        width=8, layers=1, heads=1, image_size=28, patch_size=14, mlp_ratio=1.0, max_position_embeddings=4), text_config=base(
            head_dim=8, num_experts_per_tok=2, moe_intermediate_size=16, n_routed_experts=6, share_expert_dim=16,
            sliding_window=9) | more)


def mimo(**more):
    return base(num_hidden_layers=4, num_key_value_heads=1, head_dim=12, v_head_dim=8, n_routed_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=16, sliding_window=9,
                layer_types=["full_attention", *["sliding_attention"] * 2, "full_attention"]) | more


def granite_moe(**more):
    return plain_heads(num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=1.7, logits_scaling=0.6,
                       residual_multiplier=0.4, attention_multiplier=0.3) | more


def granite_hybrid(**more):
    return granite_moe(**dict(
        num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], shared_intermediate_size=24, mamba_n_heads=4,
        mamba_d_head=12, mamba_n_groups=1, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16,
        position_embedding_type="nope") | more)


def olmo_hybrid(**more):
    config = plain_heads() | dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2) | more
    del config["layer_norm_eps"]
    return config


def mamba1(**more):
    return dict(vocab_size=53, hidden_size=24, num_hidden_layers=3, state_size=16, expand=2, conv_kernel=4, bos_token_id=0,
                eos_token_id=1, pad_token_id=1) | more


def jamba(**more):
    config = plain_heads() | dict(num_hidden_layers=4, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2,
                                  expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, mamba_d_state=16) | more
    del config["layer_norm_eps"]
    return config


def mamba2(**more):
    return dict(vocab_size=53, hidden_size=24, num_hidden_layers=3, num_heads=4, head_dim=12, n_groups=2, state_size=16, expand=2,
                conv_kernel=4, chunk_size=16, bos_token_id=0, eos_token_id=1, pad_token_id=1) | more


def nemotron_h(**more):
    return dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                layers_block_type=["mamba", "mlp", "attention", "mamba", "mlp"], mamba_num_heads=6, mamba_head_dim=8, n_groups=2,
                ssm_state_size=16, conv_kernel=4, chunk_size=16, max_position_embeddings=128, bos_token_id=0, eos_token_id=1,
                pad_token_id=1) | more


def nemotron_h_moe(**more):
    return nemotron_h(**dict(
        layers_block_type=["mamba", "moe", "attention", "moe", "mamba"], n_routed_experts=6, n_group=2, topk_group=1,
        num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=28, routed_scaling_factor=2.5) | more)


def falcon_h1(**more):
    return base(hidden_size=24, num_hidden_layers=2, head_dim=8, mamba_d_ssm=48, mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=1,
                mamba_d_state=16, mamba_d_conv=4, mamba_chunk_size=16, embedding_multiplier=1.6, lm_head_multiplier=0.7,
                mlp_multipliers=[0.6, 1.4], key_multiplier=0.7, attention_in_multiplier=1.3, attention_out_multiplier=0.8,
                ssm_multipliers=[0.7, 1.3, 0.8, 1.2, 0.6], ssm_in_multiplier=1.25, ssm_out_multiplier=0.75,
                rope_parameters=rope(1e5)) | more


def bamba(**more):
    return plain_heads() | dict(num_hidden_layers=3, mamba_n_heads=4, mamba_d_head="auto", mamba_n_groups=1, mamba_d_state=16,
                                mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16) | more


def ernie_moe(**more):
    return base(num_hidden_layers=3, moe_num_experts=5, moe_k=2, moe_intermediate_size=16, rope_parameters=rope(5e5)) | more


def phi_moe(**more):
    return plain_heads(num_local_experts=5, num_experts_per_tok=2, rope_parameters=rope(1e6)) | more


def longrope_with_magnitudes():
    """The same factors twice, for transformers takes the short ones at every length; the magnitude is what the converter writes."""
    factors, magnitude = [1.0 + 0.7 * i for i in range(4)], math.sqrt(1 + math.log(128 / 16) / math.log(16))
    return rope(rope_type="longrope", short_factor=factors, long_factor=factors, short_mscale=magnitude, long_mscale=magnitude,
                original_max_position_embeddings=16)


def latent(**more):
    """Latent attention; heads whose keys, values and rotated parts all differ in size."""
    config = base(num_hidden_layers=3, num_key_value_heads=more.get("num_attention_heads", 4), kv_lora_rank=20, q_lora_rank=12,
                  qk_rope_head_dim=8, qk_nope_head_dim=6, v_head_dim=10, n_routed_experts=5, num_experts_per_tok=2,
                  moe_intermediate_size=16, first_k_dense_replace=1) | more
    del config["head_dim"]
    return config


def youtu(**more):
    return {key: value for key, value in latent(**more).items() if "expert" not in key and not key.startswith(("moe_", "first_k"))}


def minicpm3(**more):
    config = youtu() | dict(v_head_dim=None, tie_word_embeddings=True) | more
    return config | dict(rms_norm_eps=1e-6)  # latents always use this value


def afmoe(**more):
    return base(num_hidden_layers=4, sliding_window=9, num_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=16, num_shared_experts=1, num_dense_layers=1, route_scale=1.7, mup_enabled=True) | more


def kimi_linear(**more):
    """Delta attention with a decay for each key, latent attention that is not rotated."""
    config = latent(num_attention_heads=4, q_lora_rank=None, linear_num_heads=4, linear_head_dim=12, linear_conv_kernel_dim=4,
                    num_local_experts=6, n_group=1, topk_group=1, n_shared_experts=1, norm_topk_prob=True,
                    routed_scaling_factor=1.7) | more
    for key in ("n_routed_experts", "first_k_dense_replace", "rope_parameters"):
        config.pop(key, None)
    return config


def axk2(**more):
    config = latent(q_lora_rank=10, kv_lora_rank=12, num_hidden_layers=3, n_routed_experts=6, n_shared_experts=1, index_topk=6,
                    index_head_dim=12, index_n_heads=10, gated_norm_rank=5, rope_parameters=rope(1e5)) | more
    if "mlp_layer_types" in more:
        config.pop("first_k_dense_replace", None)
    return config


def muse_spark(**more):
    sees = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2, patch_temporal=1,
                pos_emb_height=2, pos_emb_width=2, max_position_embeddings=4)
    hears = dict(patch_sizes=[2], hidden_sizes=[8], depths=[1], num_hidden_layers=1, out_hidden_size=24)
    text = base(moe_intermediate_size=16, num_local_experts=6, num_experts_per_tok=2, moe_hidden_size=20)
    return T.MuseSparkConfig(text_config=text | more, projector_hidden_size=8, out_hidden_size=24, vision_config=sees, audio_config=hears)


def zaya(**more):
    config = base(num_hidden_layers=3, moe_intermediate_size=16, num_experts=5, num_experts_per_tok=1, router_hidden_size=12,
                  tie_word_embeddings=True) | more
    del config["intermediate_size"]
    return config


def muse(**more):
    return T.MuseGlimmerConfig(text_config=base(**more), projector_hidden_size=8, out_hidden_size=32, vision_config=dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2, patch_temporal=1, pos_emb_height=2,
        pos_emb_width=2, max_position_embeddings=4))


def dbrx(**more):
    ffn = dict(ffn_hidden_size=16, moe_num_experts=5, moe_top_k=2) | {k: more.pop(k) for k in [*more] if k.startswith("moe_")}
    config = T.DbrxConfig(**dict(d_model=24, n_layers=2, max_seq_len=128, vocab_size=53, ffn_config=ffn, bos_token_id=0, eos_token_id=1,
                                 rope_parameters=rope(5e5)) | more)
    if hasattr(config, "attn_config"):
        config.attn_config.rope_theta = 5e5  # which the class asks for and does not have
    return config


def longcat(**more):
    config = latent(q_lora_rank=10, kv_lora_rank=12, num_layers=2, moe_topk=3, n_routed_experts=6, zero_expert_num=3, ffn_hidden_size=40,
                    expert_ffn_hidden_size=16, routed_scaling_factor=2.5) | dict(head_dim=8) | more
    for key in ("first_k_dense_replace", "num_hidden_layers", "intermediate_size", "moe_intermediate_size", "num_experts_per_tok"):
        del config[key]
    return config


def inkling(**more):
    config = base(num_hidden_layers=4, swa_num_attention_heads=6, swa_num_key_value_heads=3, swa_head_dim=4, sliding_window_size=9, d_rel=5,
                  rel_extent=14, conv_kernel_size=4, moe_intermediate_size=16, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
                  route_scale=2.0, logits_mup_width_multiplier=3.0) | more
    del config["tie_word_embeddings"]
    return config


def inkling2(**more):
    config = inkling(vocab_size=53, unpadded_vocab_size=51, mlp_gate_softcap=0.8, mlp_up_softcap=1.1, final_logit_softcapping=2.5,
                     qk_l2_clip_threshold=2.0, rel_l2_clip_threshold=1.5, log_scaling_n_floor=16, log_scaling_alpha=0.3, conv_kernel_size=4) | more
    for key in ("intermediate_size", "n_shared_experts", "logits_mup_width_multiplier"):
        del config[key]
    return config


def hrm(**more):
    config = base(num_hidden_layers=2, H_cycles=2, L_cycles=2, initializer_range=0.4, rope_parameters=rope(1e4)) | more
    del config["num_key_value_heads"]
    return config


def dory(**more):
    """Scales are stored as multiples of a number that keeps random ones near one."""
    config = base(initializer_range=0.25, ngpt_alpha_init=0.4, sliding_window=9) | more
    del config["rms_norm_eps"]
    return config


def hy_v4(**more):
    """Latent attention with sinks, gates and an indexer, between streams."""
    config = latent(q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=10, v_head_dim=8, n_routed_experts=6, n_shared_experts=1,
                    routed_scaling_factor=1.7, index_topk=6, index_head_dim=12, index_n_heads=10, swiglu_limit=0.8, hc_mult=3,
                    indexer_types=["full", "full", "shared"], mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=rope(1e5)) | more
    del config["first_k_dense_replace"]
    return config


def ling3(**more):
    """Bounded delta attention of full rank, latent attention gated by head."""
    config = latent(num_attention_heads=4, q_lora_rank=None, num_local_experts=6, n_group=1, topk_group=1, n_shared_experts=1,
                    routed_scaling_factor=1.7, first_k_dense_replace=1, kda_lower_bound=-3.0, short_conv_kernel_size=4,
                    rope_parameters=rope(6e6)) | more
    del config["n_routed_experts"]
    return T.BailingHybridConfig(**config | dict(head_dim=12))


def glm5_next(**more):
    """Bounded delta attention, pooled sparse attention, mixed streams, in the only class that transformers has."""
    text = dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
                max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, pad_token_id=1, kv_lora_rank=12,
                q_lora_rank=10, qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2,
                moe_intermediate_size=16, routed_scaling_factor=1.7, swiglu_limit=0.8, linear_head_dim=12, linear_num_heads=4,
                linear_conv_kernel_dim=4, linear_lower_bound=-3.0, hc_mult=3, hc_sinkhorn_iters=5, index_topk=8, index_head_dim=12,
                index_n_heads=12, index_kpool=4, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"]) | more
    return T.Glm5NextConfig(text_config=text, vision_config=eye(intermediate_size=8, out_hidden_size=24, projection_intermediate_size=8))


def deepseek_v4(**more):
    return T.DeepseekV4Config(**dict(
        vocab_size=53, hidden_size=24, num_hidden_layers=4, num_attention_heads=4, head_dim=12, q_lora_rank=10, moe_intermediate_size=16,
        n_routed_experts=6, num_experts_per_tok=2, partial_rotary_factor=4 / 12, o_groups=2, o_lora_rank=6, index_n_heads=8, index_head_dim=12,
        index_topk=3, hc_mult=3, hc_sinkhorn_iters=5, sliding_window=9, max_position_embeddings=128, swiglu_limit=0.8, bos_token_id=0,
        eos_token_id=1, pad_token_id=1, num_nextn_predict_layers=1,
        compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=16),
        layer_types=["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention", "sliding_attention"],
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"]) | more)


def dots3_window(**more):
    """Sizes of layers with a window."""
    return dict(num_attention_heads=2, num_key_value_heads=2, q_lora_rank=10, kv_lora_rank=16, head_dim=16, qk_nope_head_dim=8,
                qk_rope_head_dim=8, v_head_dim=12) | more


def dots3_note(**more):
    return base(num_hidden_layers=4, num_key_value_heads=4, head_dim=18, kv_lora_rank=12, q_lora_rank=10, qk_rope_head_dim=8,
                qk_nope_head_dim=10, v_head_dim=8, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=16,
                shared_experts_intermediate_size=16, index_topk=6, index_head_dim=12, index_n_heads=10, sliding_window_size=9, rope_theta=1e4,
                swa_rope_theta=5e3, layer_types=["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
                **{"swa_" + key: value for key, value in dots3_window().items()}) | more


def mistral_large4(**more):
    text = base(num_hidden_layers=5, num_key_value_heads=4, moe_intermediate_size=16, n_routed_experts=6, num_experts_per_tok=2,
                kv_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=10, v_head_dim=8, index_topk=6, index_n_heads=10, index_head_dim=12,
                no_rope_layers=[1, 1, 0, 1, 0], kv_source_layers=[0, 1, 2, 1, 2], indexer_types=["full", "shared", "full", "shared", "full"],
                final_logit_softcapping=30.0) | more
    return T.MistralLarge4Config(text_config=text, vision_config=dict(
        model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2))


def minimax_m3(**more):
    """Blocks of tokens that each KV head selects, gpt-oss's gated products, in a class that sees."""
    text = base(intermediate_size=16, dense_intermediate_size=40, shared_intermediate_size=16, num_hidden_layers=3, num_local_experts=6,
                num_experts_per_tok=2, rotary_dim=4, routed_scaling_factor=1.7, index_n_heads=2, index_head_dim=8, index_block_size=4,
                index_topk_blocks=3, layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
                mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=rope(partial_rotary_factor=0.5)) | more
    return T.MiniMaxM3VLConfig(text_config=text, projector_hidden_size=8, tie_word_embeddings=text["tie_word_embeddings"], vision_config=dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2))


def mistral4(beta, **more):
    """Latent attention whose queries grow with the position, experts by softmax."""
    return latent(n_shared_experts=1, rope_parameters=YARN | dict(
        original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=beta)) | more


def sigmoid_moe(**more):
    return base(num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
                routed_scaling_factor=1.5) | more


def exaone_moe(**more):
    return base(num_hidden_layers=3, sliding_window=9, layer_types=SLIDING, num_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=16, num_shared_experts=1, first_k_dense_replace=1) | more


def hy_v3(**more):
    return base(num_hidden_layers=3, num_experts=5, num_experts_per_tok=2, num_shared_experts=1, moe_intermediate_size=16,
                router_scaling_factor=1.7) | more


def nemotron(**more):
    config = plain_heads(norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.5)) | more
    del config["layer_norm_eps"], config["rms_norm_eps"]
    return config


def jais2(**more):
    config = plain_heads() | more
    del config["rms_norm_eps"]
    return config


def hyperclovax(**more):
    return plain_heads(embedding_multiplier=1.7, logits_scaling=0.6, residual_multiplier=0.4, attention_multiplier=0.3) | more


def granite_swa(**more):
    config = granite_moe(num_hidden_layers=3, sliding_window=9, layer_types=["full_attention", "sliding_attention",
                                                                             "sliding_attention"]) | more
    for key in () if "num_local_experts" in more else ("num_local_experts", "num_experts_per_tok"):
        del config[key]
    return config


def lfm3(**more):
    config = base(num_hidden_layers=4, norm_eps=1e-5, conv_L_cache=7, sliding_window=9,
                  layer_types=["conv", "sliding_attention", "full_attention", "conv"], rope_parameters={
                      "sliding_attention": rope(), "full_attention": rope(
                          1e6, rope_type="proportional", partial_rotary_factor=0.5)}) | more
    del config["rms_norm_eps"]
    return config


def qwen2_moe(**more):
    return plain_heads(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
                       shared_expert_intermediate_size=24) | more


def to_mxfp4(weight):
    """[E, in, out] as published: codes of pairs along the inputs [E, out, in / 32, 16], scales [E, out, in / 32]; and their values."""
    levels = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    levels = torch.cat([levels, -levels])
    groups = weight.transpose(1, 2).reshape(weight.shape[0], weight.shape[2], -1, 32)
    exponent = (groups.abs().amax(-1) / 6.0).log2().ceil().clamp(-127, 127)
    scaled = groups / exponent.exp2()[..., None]
    codes = (scaled[..., None] - levels).abs().argmin(-1)
    values = (levels[codes] * exponent.exp2()[..., None]).reshape(weight.shape[0], weight.shape[2], -1).transpose(1, 2)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), (exponent + 127).to(torch.uint8), values.contiguous()


def quantize_experts(model, state):
    """The experts of a model rounded to MXFP4, in the model and as published checkpoints hold them."""
    parameters = dict(model.named_parameters())
    for key in [k for k in state if k.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales, values = to_mxfp4(state.pop(key).float())
        parameters[key].data.copy_(values)
        state[key + "_blocks"], state[key + "_scales"] = blocks, scales
    return state


def quantized_v4(model, state, path):
    """A published DeepSeek V4 with matrices in FP8 and experts in MXFP4, whose values the model has then, too."""
    parameters = dict(model.named_parameters())
    names = {"wq_a": "q_a_proj", "wkv": "kv_proj", "wo_a": "o_a_proj", "wo_b": "o_b_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for key in [k for k in state if re.search(r"(attn\.w(q_a|q_b|kv|o_a|o_b)|indexer\.wq_b|\.w[123])\.weight$", k)]:
        stem, weight = key.removesuffix(".weight"), state[key].float()
        layer, leaf = int(stem.split(".")[1]), stem.split(".")[-1]
        if ".experts." in key:
            blocks, scales, values = to_mxfp4(weight.T[None])
            values = values[0].T
            state[key], state[stem + ".scale"] = blocks.reshape(weight.shape[0], -1).view(torch.int8), scales.reshape(weight.shape[0], -1).view(torch.float8_e8m0fnu)
            expert, half = int(stem.split(".")[-2]), weight.shape[0]
            fused = parameters[f"model.layers.{layer}.mlp.experts." + ("down_proj" if leaf == "w2" else "gate_up_proj")].data[expert]
            (fused if leaf == "w2" else fused[:half] if leaf == "w1" else fused[half:]).copy_(values)
            continue
        exponent = torch.ceil(torch.log2(weight.abs().max() / 448))  # one block: no side has more than 128
        codes = (weight / 2**exponent).to(torch.float8_e4m3fn)
        state[key], state[stem + ".scale"] = codes, (exponent + 127).to(torch.uint8).reshape(1, 1).view(torch.float8_e8m0fnu)
        part = "compressor.indexer.q_b_proj" if "indexer" in stem else "q_b_proj" if leaf == "wq_b" else names[leaf]
        part = "mlp.shared_experts." + part if ".ffn." in stem else "self_attn." + part
        parameters[f"model.layers.{layer}.{part}.weight"].data.copy_(codes.float() * 2**exponent)
    config = json.load(open(path + "/config.json"))
    config |= dict(expert_dtype="fp4", quantization_config=dict(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", scale_fmt="ue8m0", weight_block_size=[128, 128]))
    json.dump(config, open(path + "/config.json", "w"), indent=2)
    return {k: v.contiguous() for k, v in state.items()}


def bigcode(**more):
    return dict(vocab_size=71, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=1) | more


def opt(**more):
    return dict(vocab_size=71, hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                bos_token_id=0, eos_token_id=1) | more


def starcoder2(**more):
    config = plain_heads(**more)
    del config["layer_norm_eps"], config["rms_norm_eps"]
    return config


def phi(**more):
    config = plain_heads(hidden_act="gelu_new", rope_parameters=rope(partial_rotary_factor=0.5))
    return config | dict(num_key_value_heads=3, intermediate_size=96) | more


DROP = "(not there)"


# What published config.json files say beside what transformers writes, and the converter reads.
PUBLISHED = {"granitemoehybrid": lambda c: dict(layer_types=[
                 {"linear_attention": "mamba", "full_attention": "attention"}.get(kind, kind) for kind in c["layer_types"]]),
             # which transformers spells otherwise
             "bailing_hybrid": lambda c: dict(
                 norm_topk_prob=c["moe_renormalize"], n_group=c["num_expert_group"], num_experts_per_tok=c["num_experts_per_token"],
                 max_position_embeddings=c["model_max_length"], score_function="sigmoid", head_dim=c["linear_head_dim"]) if "moe_renormalize" in c else {},
             "qwen4_exp_text": lambda c: dict(layer_types=[kind.replace("indexed", "full") for kind in c["layer_types"]]),
             "nemotron_h": lambda c: dict(layers_block_type=DROP, hybrid_override_pattern="".join(
                 {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}[kind] for kind in c["layers_block_type"]),
                 num_hidden_layers=len(c["layers_block_type"]), mamba_d_head=c["mamba_head_dim"]) | (
                     {} if "moe" in c["layers_block_type"] else dict(num_experts_per_tok=DROP, n_routed_experts=DROP)),
             "nomic_bert": lambda c: dict(
                 n_embd=c["hidden_size"], n_head=c["num_attention_heads"], n_layer=c["num_hidden_layers"],
                 n_inner=c["intermediate_size"], n_positions=8192, activation_function="swiglu", causal=False,
                 qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0,
                 rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_emb_base=1000, layer_norm_epsilon=1e-12) if not c.get("moe_every_n_layers") else dict(
                     activation_function="gelu", hidden_size=c["n_embd"], num_attention_heads=c["n_head"], num_hidden_layers=c["n_layer"],
                     intermediate_size=c["n_inner"], max_position_embeddings=c["n_positions"], layer_norm_eps=c["layer_norm_epsilon"],
                     head_dim=c["n_embd"] // c["n_head"], rope_parameters=dict(rope_type="default", rope_theta=c["rotary_emb_base"])),
             "cohere2": lambda c: dict(rotary_pct=1.0),
             # which the converter has forgotten
             "qwen": lambda c: dict(rms_norm_eps=c["layer_norm_epsilon"], rope_theta=c["rotary_emb_base"], layer_norm_epsilon=DROP)
                 if "layer_norm_epsilon" in c else {},
             "gpt_neox": lambda c: dict(rotary_pct=c["rope_parameters"]["partial_rotary_factor"]),
             "minimax_m2": lambda c: dict(scoring_func="sigmoid", rotary_dim=round(
                 c["head_dim"] * c["rope_parameters"].get("partial_rotary_factor", 1.0))),
             "deepseek_v2": lambda c: dict(scoring_func="softmax"),
             "deepseek_v3": lambda c: dict(scoring_func="sigmoid"),
             "glm4_moe_lite": lambda c: dict(scoring_func="sigmoid"),
             "dots3_note_text": published_dots3,
             "minimax_m3_vl": lambda c: dict(text_config=published_minimax_m3(c["text_config"])),
             "deepseek_v32": lambda c: dict(scoring_func="sigmoid"),
             "glm_moe_dsa": lambda c: dict(scoring_func="sigmoid"),
             "sarvam_moe": lambda c: dict(architectures=["SarvamMoEForCausalLM"], num_experts=c["n_routed_experts"],
                                          num_shared_experts=c["n_shared_experts"]),
             "step3p5": lambda c: STEP35 | dict(rope_parameters=DROP, norm_expert_weight=True, moe_num_experts=6, moe_top_k=2,
                                                num_attention_groups=2),
             # the converter takes sliding_window as it is
             "mimo_v2_flash": lambda c: MIMO | dict(rope_parameters=DROP, sliding_window=9),
             "kimi_linear": lambda c: dict(
                 moe_router_activation_func="sigmoid", first_k_dense_replace=c["mlp_layer_types"].count("dense"),
                 linear_attn_config=dict(
                     head_dim=c["linear_head_dim"], num_heads=c["linear_num_heads"], short_conv_kernel_size=c["linear_conv_kernel_dim"],
                     full_attn_layers=[i + 1 for i, kind in enumerate(c["layer_types"]) if kind == "full_attention"],
                     kda_layers=[i + 1 for i, kind in enumerate(c["layer_types"]) if kind == "linear_attention"])),
             "hunyuan_v1_moe": lambda c: {key: [value] * c["num_hidden_layers"] for key, value in dict(
                 moe_intermediate_size=c["intermediate_size"], moe_topk=c["moe_topk"], num_shared_expert=1).items()},
             "mistral4": lambda c: dict(architectures=["Mistral3ForConditionalGeneration"]),
             "solar_open": lambda c: dict(partial_rotary_factor=1.0),
             "glm": lambda c: dict(seq_length=c["max_position_embeddings"], layernorm_epsilon=c["rms_norm_eps"]),
             "phimoe": lambda c: dict(architectures=["PhiMoEForCausalLM"], original_max_position_embeddings=
                 c["rope_parameters"].get("original_max_position_embeddings", 128)),
             "exaone": lambda c: dict(architectures=["ExaoneForCausalLM"], activation_function=c["hidden_act"], layer_norm_eps=DROP),
             "afmoe": lambda c: dict(route_norm=True),
             "mpt": lambda c: dict(architectures=["MPTForCausalLM"])}


def stacked(state):
    """StableLM's norms by head as one tensor: the converter means to do so, but its generator returns nothing."""
    heads = {}
    for key in [k for k in state if "_layernorm.norms." in k]:
        stem, index = key.removesuffix(".weight").split(".norms.")
        heads.setdefault(stem + ".weight", {})[int(index)] = state.pop(key)
    return state | {stem: torch.stack([parts[i] for i in range(len(parts))]) for stem, parts in heads.items()}


def as_published(directory, to):
    """Copies a checkpoint in the form that the converter expects."""
    config = json.load(open(os.path.join(directory, "config.json")))
    config |= PUBLISHED.get(config["model_type"], lambda _: {})(config)
    config = {key: value for key, value in config.items() if value != DROP}
    json.dump(config, open(os.path.join(to, "config.json"), "w"))
    # Gemma's converter counts the vocabulary.
    names = {f"t{i}": i for i in range(config.get("text_config", config).get("vocab_size") or config["padded_vocab_size"])}
    json.dump(dict(model=dict(type="WordPiece", vocab=names), added_tokens=[]), open(os.path.join(to, "tokenizer.json"), "w"))
    state = stacked(load_file(os.path.join(directory, "model.safetensors")))
    if config["model_type"] == "kimi_linear":
        state = kimi_names(state)
    save_file(state, os.path.join(to, "model.safetensors"),
              {"format": "pt"})


def convert(directory, path, bpe=None):
    """llama.cpp's convert_hf_to_gguf.py, F32; without a tokenizer, or with the directory's BPE, which is said to cut texts as `bpe`.
    LLAMA_CPP is a checkout."""
    root = os.environ["LLAMA_CPP"]
    for part in (os.path.join(root, "gguf-py"), root):
        if part not in sys.path:
            sys.path.insert(0, part)
    import gguf
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture
    with tempfile.TemporaryDirectory() as published:
        as_published(directory, published)
        for name in ("tokenizer.json", "tokenizer_config.json", "README.md") if bpe else ():
            shutil.copy(os.path.join(directory, name), published)
        hparams = ModelBase.load_hparams(Path(published), False)
        hparams |= PUBLISHED.get(hparams["model_type"], lambda _: {})(hparams)
        hparams = {key: value for key, value in hparams.items() if value != DROP}
        cls = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        tiny_remote_models.mend(cls)
        cls.no_mtp = hasattr(cls, "opt_num_mtp_layers") and not any("mtp." in k for k in load_file(published + "/model.safetensors"))
        model = cls(Path(published), gguf.LlamaFileType.ALL_F32, Path(path), eager=True, model_name="tiny", hparams=hparams)
        for part in (model, getattr(model, "impl", model)):
            if bpe:
                part.get_vocab_base_pre = lambda _: bpe
            else:
                part.set_vocab = part._set_vocab_none
        model.write()


MODELS |= tiny_remote_models.rows(plain_heads, rope)
WHOLE |= tiny_remote_models.WHOLE

// Vision configurations after those of published checkpoints, written by hand: their fields and
// sizes, and the tensors that a tower's configuration is read from. They are no copies of the files.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/weight_source.h"
#include "model/towers/tower.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using nlohmann::json;

// Shapes of tensors without their bytes.
class TowerFile final : public WeightSource {
 public:
  TowerFile(json config, const json& tensors) : config_(std::move(config)) {
    for (const auto& [name, shape] : tensors.items())
      tensors_.push_back({name, QuantType::kBF16, shape.get<std::vector<int64_t>>(), {}});
  }
  Naming naming() const override { return Naming::kHuggingFace; }
  const std::filesystem::path& path() const override { return path_; }
  const json& config() const override { return config_; }
  const json& generation_config() const override { return nothing_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::optional<std::string> side_file(std::string_view) const override { return {}; }
  void drop(const TensorInfo&) const override {}

 private:
  const std::filesystem::path path_ = "published";
  json config_, nothing_ = json::object();
  std::vector<TensorInfo> tensors_;
};

struct PublishedTower {
  const char* name;
  const char* config;   // config.json without the text model
  const char* tensors;  // shapes by name
  int n_layers, model_dim, head_dim, ffn_dim, text_dim;
  int side;      // patches of a picture's row and column
  int n_tokens;  // of that picture
};

void PrintTo(const PublishedTower& tower, std::ostream* out) { *out << tower.name; }

constexpr PublishedTower kPublishedTowers[] = {
    {"qwen2_vl_7b", R"({"model_type": "qwen2_vl", "vision_config": {"depth": 32, "embed_dim": 1280,
      "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584, "patch_size": 14,
      "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2}})",
     R"({"visual.patch_embed.proj.weight": [1280, 3, 2, 14, 14],
      "visual.merger.mlp.2.weight": [3584, 5120]})",
     32, 1280, 80, 5120, 3584, 24, 144},
    {"qwen2_5_vl_7b", R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 32,
      "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
      "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
      "spatial_patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
      "tokens_per_second": 2, "temporal_patch_size": 2}})",
     R"({"visual.patch_embed.proj.weight": [1280, 3, 2, 14, 14],
      "visual.merger.mlp.2.weight": [3584, 5120]})",
     32, 1280, 80, 3420, 3584, 24, 144},
    {"qwen2_5_omni_7b", R"({"model_type": "qwen2_5_omni", "thinker_config": {
      "model_type": "qwen2_5_omni_thinker", "vision_config": {"depth": 32, "embed_dim": 1280,
      "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu", "hidden_size": 1280,
      "in_channels": 3, "in_chans": 3, "init_std": 0.02, "initializer_range": 0.02,
      "intermediate_size": 3420, "model_type": "qwen2_5_omni_vision_encoder", "num_heads": 16,
      "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
      "spatial_patch_size": 14, "temporal_patch_size": 2, "tokens_per_second": 25,
      "window_size": 112}}})",
     R"({"thinker.visual.patch_embed.proj.weight": [1280, 3, 2, 14, 14],
      "thinker.visual.merger.mlp.2.weight": [3584, 5120]})",
     32, 1280, 80, 3420, 3584, 24, 144},
    {"qwen3_omni_30b", R"({"model_type": "qwen3_omni_moe", "thinker_config": {
      "model_type": "qwen3_omni_moe_thinker", "vision_config": {"apply_vit_abs_pos_embed": true,
      "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 1152, "image_size": 768, "in_channels": 3, "in_chans": 3,
      "intermediate_size": 4304, "model_type": "qwen3_omni_moe_vision_encoder", "num_heads": 16,
      "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
      "spatial_merge_size": 2, "spatial_patch_size": 16, "temporal_patch_size": 2,
      "tokens_per_second": 2}}})",
     R"({"thinker.visual.patch_embed.proj.weight": [1152, 3, 2, 16, 16],
      "thinker.visual.merger.mlp.2.weight": [2048, 4608]})",
     27, 1152, 72, 4304, 2048, 24, 144},
    // As transformers 4.55 saves it again.
    {"qwen2_5_vl_3b_saved", R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 32,
      "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu", "hidden_size": 1280,
      "in_channels": 3, "in_chans": 3, "initializer_range": 0.02, "intermediate_size": 3420,
      "model_type": "qwen2_5_vl", "num_heads": 16, "num_hidden_layers": 1,
      "out_hidden_size": 2048, "patch_size": 14, "spatial_merge_size": 2,
      "spatial_patch_size": 14, "temporal_patch_size": 2, "tokens_per_second": 2,
      "torch_dtype": "float32", "window_size": 112}})",
     R"({"model.visual.patch_embed.proj.weight": [1280, 3, 2, 14, 14],
      "model.visual.merger.mlp.2.weight": [2048, 5120]})",
     32, 1280, 80, 3420, 2048, 24, 144},
    {"qwen3_vl_4b", R"({"model_type": "qwen3_vl", "vision_config": {
      "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 1024, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4096,
      "model_type": "qwen3_vl", "num_heads": 16, "num_position_embeddings": 2304,
      "out_hidden_size": 2560, "patch_size": 16, "spatial_merge_size": 2,
      "temporal_patch_size": 2}})",
     R"({"model.visual.patch_embed.proj.weight": [1024, 3, 2, 16, 16],
      "model.visual.merger.linear_fc2.weight": [2560, 4096]})",
     24, 1024, 64, 4096, 2560, 24, 144},
    {"qwen3_5", R"({"model_type": "qwen3_5_moe", "vision_config": {"deepstack_visual_indexes": [],
      "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "in_channels": 3,
      "initializer_range": 0.02, "intermediate_size": 4304, "model_type": "qwen3_5_moe",
      "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
      "spatial_merge_size": 2, "temporal_patch_size": 2}})",
     R"({"model.visual.patch_embed.proj.weight": [1152, 3, 2, 16, 16],
      "model.visual.merger.linear_fc2.weight": [2048, 4608]})",
     27, 1152, 72, 4304, 2048, 24, 144},
    {"gemma_3_4b", R"({"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {
      "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
      "patch_size": 14, "vision_use_head": false}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "multi_modal_projector.mm_input_projection_weight": [1152, 2560]})",
     27, 1152, 72, 4304, 2560, 64, 256},
    {"gemma_3_27b", R"({"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {
      "attention_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
      "image_size": 896, "intermediate_size": 4304, "layer_norm_eps": 1e-06,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_channels": 3,
      "num_hidden_layers": 27, "patch_size": 14, "torch_dtype": "bfloat16",
      "vision_use_head": false}})",
     R"({"model.vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "model.multi_modal_projector.mm_input_projection_weight": [1152, 5376]})",
     27, 1152, 72, 4304, 5376, 64, 256},
    {"gemma_4_31b", R"({"model_type": "gemma4", "vision_config": {"_name_or_path": "",
      "architectures": null, "attention_bias": false, "attention_dropout": 0.0,
      "chunk_size_feed_forward": 0, "default_output_length": 280, "dtype": "bfloat16",
      "global_head_dim": 72, "head_dim": 72, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1152, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "initializer_range": 0.02,
      "intermediate_size": 4304, "is_encoder_decoder": false,
      "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "max_position_embeddings": 131072,
      "model_type": "gemma4_vision", "num_attention_heads": 16, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "output_attentions": false, "output_hidden_states": false,
      "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240,
      "problem_type": null, "return_dict": true, "rms_norm_eps": 1e-06,
      "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}, "standardize": true,
      "use_clipped_linears": false}})",
     R"({"model.vision_tower.patch_embedder.input_proj.weight": [1152, 768],
      "model.embed_vision.embedding_projection.weight": [5376, 1152]})",
     27, 1152, 72, 4304, 5376, 48, 256},
    {"gemma_4_e2b", R"({"model_type": "gemma4", "vision_config": {"_name_or_path": "",
      "architectures": null, "attention_bias": false, "attention_dropout": 0.0,
      "chunk_size_feed_forward": 0, "default_output_length": 280, "dtype": "bfloat16",
      "global_head_dim": 64, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
      "is_encoder_decoder": false, "max_position_embeddings": 131072,
      "model_type": "gemma4_vision", "num_attention_heads": 12, "num_hidden_layers": 16,
      "num_key_value_heads": 12, "patch_size": 16, "pooling_kernel_size": 3,
      "position_embedding_size": 10240, "rms_norm_eps": 1e-06,
      "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}, "standardize": false,
      "use_clipped_linears": true}})",
     R"({"model.vision_tower.patch_embedder.input_proj.weight": [768, 768],
      "model.embed_vision.embedding_projection.weight": [1536, 768]})",
     16, 768, 64, 3072, 1536, 48, 256},
    {"smolvlm_256m", R"({"model_type": "idefics3", "scale_factor": 4, "vision_config": {
      "hidden_size": 768, "image_size": 512, "max_image_size": {"longest_edge": 512},
      "model_type": "idefics3_vision", "num_attention_heads": 12, "patch_size": 16,
      "size": {"longest_edge": 2048}, "tie_word_embeddings": false, "use_base_siglip": true}})",
     R"({"model.vision_model.embeddings.patch_embedding.weight": [768, 3, 16, 16],
      "model.connector.modality_projection.proj.weight": [576, 12288]})",
     12, 768, 64, 3072, 576, 32, 64},
    {"smolvlm2_2_2b", R"({"model_type": "smolvlm", "scale_factor": 3, "vision_config": {
      "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
      "max_image_size": {"longest_edge": 384}, "model_type": "smolvlm_vision",
      "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
      "size": {"longest_edge": 1920}, "tie_word_embeddings": false, "use_base_siglip": false}})",
     R"({"model.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "model.connector.modality_projection.proj.weight": [2048, 10368]})",
     27, 1152, 72, 4304, 2048, 27, 81},
    {"idefics3_8b", R"({"model_type": "idefics3", "scale_factor": 2, "vision_config": {
      "hidden_size": 1152, "image_size": 364, "intermediate_size": 4304, "model_type": "idefics3",
      "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}})",
     R"({"model.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "model.connector.modality_projection.proj.weight": [4096, 4608]})",
     27, 1152, 72, 4304, 4096, 26, 169},
    {"llava_1_5_7b", R"({"model_type": "llava", "projector_hidden_act": "gelu",
      "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vision_config": {
      "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
      "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
      "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1024, 3, 14, 14],
      "multi_modal_projector.linear_1.weight": [4096, 1024],
      "multi_modal_projector.linear_2.weight": [4096, 4096]})",
     23, 1024, 64, 4096, 4096, 24, 576},
    {"llava_1_6_mistral_7b", R"({"model_type": "llava_next", "projector_hidden_act": "gelu",
      "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vision_config": {
      "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
      "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
      "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1024, 3, 14, 14],
      "multi_modal_projector.linear_1.weight": [4096, 1024],
      "multi_modal_projector.linear_2.weight": [4096, 4096], "image_newline": [4096]})",
     23, 1024, 64, 4096, 4096, 24, 576},
    {"llava_onevision_7b", R"({"model_type": "llava_onevision", "projector_hidden_act": "gelu",
      "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "vision_config": {
      "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 26,
      "patch_size": 14, "torch_dtype": "float16", "vision_use_head": false}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "multi_modal_projector.linear_1.weight": [3584, 1152],
      "multi_modal_projector.linear_2.weight": [3584, 3584], "image_newline": [3584]})",
     26, 1152, 72, 4304, 3584, 27, 729},
    {"pixtral_12b", R"({"model_type": "llava", "projector_hidden_act": "gelu",
      "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "vision_config": {
      "head_dim": 64, "hidden_act": "silu", "image_size": 1024, "is_composition": true,
      "model_type": "pixtral", "patch_size": 16, "rope_theta": 10000.0,
      "tie_word_embeddings": false}})",
     R"({"vision_tower.patch_conv.weight": [1024, 3, 16, 16],
      "multi_modal_projector.linear_1.weight": [5120, 1024],
      "multi_modal_projector.linear_2.weight": [5120, 5120]})",
     24, 1024, 64, 4096, 5120, 24, 576},
    {"mistral_small_3_1", R"({"model_type": "mistral3", "projector_hidden_act": "gelu",
      "multimodal_projector_bias": false, "spatial_merge_size": 2, "vision_feature_layer": -1,
      "text_config": {"rms_norm_eps": 1e-05}, "vision_config": {"attention_dropout": 0.0,
      "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "image_size": 1540,
      "initializer_range": 0.02, "intermediate_size": 4096, "model_type": "pixtral",
      "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24, "patch_size": 14,
      "rope_theta": 10000.0}})",
     R"({"vision_tower.patch_conv.weight": [1024, 3, 14, 14],
      "multi_modal_projector.patch_merger.merging_layer.weight": [1024, 4096],
      "multi_modal_projector.linear_1.weight": [5120, 1024],
      "multi_modal_projector.linear_2.weight": [5120, 5120]})",
     24, 1024, 64, 4096, 5120, 24, 144},
    {"internvl3_1b", R"({"model_type": "internvl", "downsample_ratio": 0.5,
      "projector_hidden_act": "gelu", "vision_feature_layer": -1,
      "vision_feature_select_strategy": "default", "vision_config": {
      "architectures": ["InternVisionModel"], "attention_bias": true, "attention_dropout": 0.0,
      "dropout": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 1024,
      "image_size": [448, 448], "initializer_factor": 0.1, "initializer_range": 1e-10,
      "intermediate_size": 4096, "layer_norm_eps": 1e-06, "layer_scale_init_value": 0.1,
      "model_type": "internvl_vision", "norm_type": "layer_norm", "num_attention_heads": 16,
      "num_channels": 3, "num_hidden_layers": 24, "patch_size": [14, 14],
      "projection_dropout": 0.0, "torch_dtype": "bfloat16",
      "use_absolute_position_embeddings": true, "use_mask_token": false, "use_mean_pooling": true,
      "use_qk_norm": false}})",
     R"({"vision_tower.embeddings.cls_token": [1, 1, 1024],
      "multi_modal_projector.layer_norm.weight": [4096],
      "multi_modal_projector.linear_1.weight": [896, 4096],
      "multi_modal_projector.linear_2.weight": [896, 896]})",
     24, 1024, 64, 4096, 896, 32, 256},
    {"lfm2_vl_1_6b", R"({"model_type": "lfm2_vl", "downsample_factor": 2,
      "projector_hidden_act": "gelu", "projector_use_layernorm": true, "vision_feature_layer": -1,
      "vision_config": {"attention_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 1152, "intermediate_size": 4304, "layer_norm_eps": 1e-06,
      "model_type": "siglip2_vision_model", "num_attention_heads": 16, "num_channels": 3,
      "num_hidden_layers": 26, "num_patches": 256, "patch_size": 16, "torch_dtype": "bfloat16",
      "vision_use_head": false}})",
     R"({"model.vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 768],
      "model.multi_modal_projector.linear_1.weight": [2560, 4608],
      "model.multi_modal_projector.linear_2.weight": [2048, 2560]})",
     26, 1152, 72, 4304, 2048, 16, 64},
    {"glm_4_1v_9b", R"({"model_type": "glm4v", "vision_config": {"attention_bias": false,
      "attention_dropout": 0.0, "depth": 24, "hidden_act": "silu", "hidden_dropout_prob": 0.0,
      "hidden_size": 1536, "image_size": 336, "in_channels": 3, "initializer_range": 0.02,
      "intermediate_size": 13696, "model_type": "glm4v", "num_heads": 12,
      "out_hidden_size": 4096, "patch_size": 14, "rms_norm_eps": 1e-05, "spatial_merge_size": 2,
      "temporal_patch_size": 2}})",
     R"({"model.visual.patch_embed.proj.weight": [1536, 3, 2, 14, 14]})", 24, 1536, 128, 4096, 4096,
     24, 144},
    {"aya_vision_8b", R"({"model_type": "aya_vision", "adapter_layer_norm_eps": 1e-06,
      "downsample_factor": 2, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
      "vision_config": {"hidden_size": 1152, "image_size": 364, "intermediate_size": 4304,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
      "patch_size": 14, "torch_dtype": "bfloat16"}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 3, 14, 14],
      "multi_modal_projector.linear_1.weight": [36864, 4608],
      "multi_modal_projector.linear_2.weight": [4096, 18432]})",
     27, 1152, 72, 4304, 4096, 26, 169},
    {"command_a_vision", R"({"model_type": "cohere2_vision", "alignment_intermediate_size": 36864,
      "downsample_factor": 2, "vision_config": {"attention_dropout": 0.0,
      "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "image_size": 512,
      "intermediate_size": 4304, "layer_norm_eps": 1e-06, "model_type": "siglip_vision_model",
      "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 27, "patch_size": 16,
      "torch_dtype": "bfloat16", "vision_use_head": false}})",
     R"({"vision_tower.vision_model.embeddings.patch_embedding.weight": [1152, 3, 16, 16],
      "multi_modal_projector.linear_1.weight": [36864, 4608],
      "multi_modal_projector.linear_2.weight": [12288, 18432]})",
     27, 1152, 72, 4304, 12288, 32, 256},
    {"llama_4_scout", R"({"model_type": "llama4", "vision_config": {"attention_dropout": 0.0,
      "hidden_act": "gelu", "hidden_size": 1408, "image_size": 336, "initializer_range": 0.02,
      "intermediate_size": 5632, "model_type": "llama4_vision_model",
      "multi_modal_projector_bias": false, "norm_eps": 1e-05, "num_attention_heads": 16,
      "num_channels": 3, "num_hidden_layers": 34, "patch_size": 14, "pixel_shuffle_ratio": 0.5,
      "projector_dropout": 0.0, "projector_input_dim": 4096, "projector_output_dim": 4096,
      "rope_theta": 10000, "vision_feature_layer": -1,
      "vision_feature_select_strategy": "default", "vision_output_dim": 4096}})",
     R"({"vision_model.patch_embedding.linear.weight": [1408, 588],
      "multi_modal_projector.linear_1.weight": [5120, 4096]})",
     34, 1408, 88, 5632, 5120, 24, 144},
};

class PublishedTowers : public ::testing::TestWithParam<PublishedTower> {};

INSTANTIATE_TEST_SUITE_P(All, PublishedTowers, ::testing::ValuesIn(kPublishedTowers),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PublishedTowers, AreReadAsTheyAre) {
  const PublishedTower& row = GetParam();
  const TowerFile file(json::parse(row.config), json::parse(row.tensors));
  const auto read = Tower::read_config(file);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(read->has_value());
  const TowerConfig& tower = **read;
  EXPECT_EQ(tower.layers.n_layers, row.n_layers);
  EXPECT_EQ(tower.model_dim(), row.model_dim);
  EXPECT_EQ(tower.layers.head_dim, row.head_dim);
  EXPECT_EQ(tower.layers.ffn_dim, row.ffn_dim);
  EXPECT_EQ(tower.text_dim, row.text_dim);
  EXPECT_EQ(tower.n_tokens({1, row.side, row.side}), row.n_tokens);
  if (tower.positions.kind == TowerPositions::Kind::kFixed) {
    EXPECT_EQ(tower.positions.rows, row.side);
  }
}

// Configurations and tensors of transformers' own defaults.
TEST(PublishedHearingTowers, AreReadAsTheyAre) {
  for (const auto& [name, unit] : {std::pair("qwen2_audio", 2), std::pair("voxtral", 4)}) {
    SCOPED_TRACE(name);
    const auto path = tests_dir() / "golden" / "published" / (std::string(name) + ".json");
    const json file = json::parse(std::ifstream(path));
    const TowerFile source(file["config"], file["tensors"]);
    const auto config = Tower::read_config(source, TowerSense::kHearing);
    ASSERT_TRUE(config) << config.error().message;
    ASSERT_TRUE(*config);
    const TowerConfig& tower = **config;
    EXPECT_EQ(tower.layers.n_layers, 32);
    EXPECT_EQ(tower.layers.n_heads, 20);
    EXPECT_EQ(tower.model_dim(), 1280);
    EXPECT_EQ(tower.layers.ffn_dim, 5120);
    EXPECT_EQ(tower.patch_dim, 128);
    EXPECT_EQ(tower.unit, unit);
    EXPECT_EQ(tower.n_inputs({1, 1, 1500}), 3001);
    EXPECT_EQ(tower.n_tokens({1, 1, 1500}), 1500 / unit);
  }
}

struct PublishedEar {
  const char* name;
  const char* config;
  const char* tensors;
  int n_layers, model_dim, head_dim, ffn_dim, text_dim;
  int n_positions, n_tokens;
};

void PrintTo(const PublishedEar& ear, std::ostream* out) { *out << ear.name; }

constexpr PublishedEar kPublishedEars[] = {
    {"ultravox_v0_5_1b", R"({"model_type": "ultravox", "architectures": ["UltravoxModel"],
      "audio_config": {"_name_or_path": "openai/whisper-large-v3-turbo", "activation_dropout": 0.0,
      "activation_function": "gelu", "apply_spec_augment": false, "attention_dropout": 0.0,
      "begin_suppress_tokens": [220, 50256], "bos_token_id": 50257, "classifier_proj_size": 256,
      "d_model": 1280, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120,
      "decoder_layerdrop": 0.0, "decoder_layers": 4, "decoder_start_token_id": 50258,
      "dropout": 0.0, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
      "encoder_layerdrop": 0.0, "encoder_layers": 32, "eos_token_id": 50257, "init_std": 0.02,
      "is_encoder_decoder": true, "mask_feature_length": 10, "mask_feature_min_masks": 0,
      "mask_feature_prob": 0.0, "mask_time_length": 10, "mask_time_min_masks": 2,
      "mask_time_prob": 0.05, "max_source_positions": 1500, "max_target_positions": 448,
      "median_filter_width": 7, "model_type": "whisper", "num_hidden_layers": 32,
      "num_mel_bins": 128, "pad_token_id": 50257, "scale_embedding": false,
      "torch_dtype": "float16", "use_cache": true, "use_weighted_layer_sum": false,
      "vocab_size": 51866}, "audio_latency_block_size": null, "audio_model_id": null,
      "hidden_size": 4096, "ignore_index": -100, "initializer_range": 0.02, "norm_init": 0.4,
      "projector_act": "swiglu", "projector_ln_mid": true, "stack_factor": 8,
      "text_model_id": "meta-llama/Llama-3.2-1B-Instruct", "vocab_size": 128256})",
     R"({"audio_tower.conv1.weight": [1280, 128, 3],
      "multi_modal_projector.linear_1.weight": [4096, 10240],
      "multi_modal_projector.linear_2.weight": [2048, 2048]})",
     32, 1280, 64, 5120, 2048, 1500, 188},
    {"qwen2_5_omni_7b", R"({"model_type": "qwen2_5_omni", "enable_talker": true, "thinker_config": {
      "model_type": "qwen2_5_omni_thinker", "audio_config": {"model_type": "qwen2_5_omni_audio_encoder",
      "activation_dropout": 0.0, "activation_function": "gelu", "d_model": 1280,
      "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layerdrop": 0.0,
      "encoder_layers": 32, "init_std": 0.02, "initializer_range": 0.02,
      "max_source_positions": 1500, "n_window": 100, "num_hidden_layers": 32, "num_mel_bins": 128,
      "output_dim": 3584, "scale_embedding": false}}})",
     R"({"thinker.audio_tower.conv1.weight": [1280, 128, 3]})", 32, 1280, 64, 5120, 3584, 100, 50},
    {"qwen3_omni_30b", R"({"model_type": "qwen3_omni_moe", "thinker_config": {
      "model_type": "qwen3_omni_moe_thinker", "audio_config": {"_name_or_path": "",
      "activation_dropout": 0, "activation_function": "gelu", "add_cross_attention": false,
      "architectures": null, "attention_dropout": 0, "conv_chunksize": 500, "d_model": 1280,
      "downsample_hidden_size": 480, "dropout": 0, "encoder_attention_heads": 20,
      "encoder_ffn_dim": 5120, "encoder_layers": 32, "id2label": {"0": "LABEL_0"},
      "max_source_positions": 1500, "model_type": "qwen3_omni_moe_audio_encoder", "n_window": 50,
      "n_window_infer": 800, "num_mel_bins": 128, "output_dim": 2048, "scale_embedding": false,
      "tie_word_embeddings": true}}})",
     R"({"thinker.audio_tower.conv2d1.weight": [480, 1, 3, 3]})", 32, 1280, 64, 5120, 2048, 104,
     104},
    {"granite_speech_3_3_8b", R"({"model_type": "granite_speech", "audio_token_index": 49159,
      "downsample_rate": 5, "encoder_config": {"context_size": 200, "conv_expansion_factor": 2,
      "conv_kernel_size": 15, "dim_head": 128, "dropout": 0.1, "feedforward_mult": 4,
      "hidden_dim": 1024, "input_dim": 160, "max_pos_emb": 512,
      "model_type": "granite_speech_encoder", "num_heads": 8, "num_layers": 16, "output_dim": 256},
      "has_lora_adapter": true, "projector_config": {"attention_probs_dropout_prob": 0.1,
      "cross_attention_frequency": 1, "encoder_hidden_size": 1024, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 1024, "initializer_range": 0.02,
      "intermediate_size": 4096, "layer_norm_eps": 1e-12, "max_position_embeddings": 2048,
      "model_type": "blip_2_qformer", "num_attention_heads": 16, "num_hidden_layers": 2,
      "position_embedding_type": "absolute", "use_qformer_text_input": false, "vocab_size": 30522},
      "text_config": {"model_type": "granite", "embedding_multiplier": 12.0}, "window_size": 15})",
     R"({"encoder.input_linear.weight": [1024, 160], "projector.linear.weight": [4096, 1024]})", 16,
     1024, 128, 4096, 4096, 1500, 300},
    {"gemma3n_e4b", R"({"model_type": "gemma3n", "audio_soft_tokens_per_image": 188,
      "audio_token_id": 262273, "boa_token_id": 256000, "eoa_token_id": 262272, "audio_config": {
      "conf_attention_chunk_size": 12, "conf_attention_context_left": 13,
      "conf_attention_context_right": 0, "conf_attention_logit_cap": 50.0,
      "conf_conv_kernel_size": 5, "conf_num_attention_heads": 8, "conf_num_hidden_layers": 12,
      "conf_reduction_factor": 4, "conf_residual_weight": 0.5, "gradient_clipping": 10000000000.0,
      "hidden_size": 1536, "input_feat_size": 128, "model_type": "gemma3n_audio",
      "rms_norm_eps": 1e-06, "sscp_conv_channel_size": [128, 32],
      "sscp_conv_group_norm_eps": 0.001, "sscp_conv_kernel_size": [[3, 3], [3, 3]],
      "sscp_conv_stride_size": [[2, 2], [2, 2]], "torch_dtype": "bfloat16",
      "vocab_offset": 262272, "vocab_size": 128},
      "text_config": {"model_type": "gemma3n_text", "vocab_size": 262400}})",
     R"({"model.audio_tower.subsample_conv_projection.input_proj_linear.weight": [1536, 1024],
      "model.embed_audio.embedding_projection.weight": [2048, 1536]})",
     12, 1536, 192, 6144, 2048, 750, 189},
    {"gemma4_e2b", R"({"model_type": "gemma4", "audio_token_id": 258881, "boa_token_id": 256000,
      "eoa_token_id": 258883, "eoa_token_index": 258883, "audio_config": {"_name_or_path": "",
      "architectures": null, "attention_chunk_size": 12, "attention_context_left": 13,
      "attention_context_right": 0, "attention_invalid_logits_value": -1000000000.0,
      "attention_logit_cap": 50.0, "chunk_size_feed_forward": 0, "conv_kernel_size": 5,
      "dtype": "bfloat16", "gradient_clipping": 10000000000.0, "hidden_act": "silu",
      "hidden_size": 1024, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "initializer_range": 0.02,
      "is_encoder_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
      "model_type": "gemma4_audio", "num_attention_heads": 8, "num_hidden_layers": 12,
      "output_attentions": false, "output_hidden_states": false, "output_proj_dims": 1536,
      "problem_type": null, "residual_weight": 0.5, "return_dict": true, "rms_norm_eps": 1e-06,
      "subsampling_conv_channels": [128, 32], "use_clipped_linears": true},
      "text_config": {"model_type": "gemma4_text", "use_bidirectional_attention": null}})",
     R"({"model.audio_tower.subsample_conv_projection.input_proj_linear.weight": [1024, 1024],
      "model.embed_audio.embedding_projection.weight": [1536, 1536]})",
     12, 1024, 128, 4096, 1536, 750, 750},
};

class PublishedEars : public ::testing::TestWithParam<PublishedEar> {};

INSTANTIATE_TEST_SUITE_P(All, PublishedEars, ::testing::ValuesIn(kPublishedEars),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PublishedEars, AreReadAsTheyAre) {
  const PublishedEar& row = GetParam();
  const TowerFile file(json::parse(row.config), json::parse(row.tensors));
  const auto read = Tower::read_config(file, TowerSense::kHearing);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(read->has_value());
  const TowerConfig& tower = **read;
  EXPECT_EQ(tower.layers.n_layers, row.n_layers);
  EXPECT_EQ(tower.model_dim(), row.model_dim);
  EXPECT_EQ(tower.layers.head_dim, row.head_dim);
  EXPECT_EQ(tower.layers.ffn_dim, row.ffn_dim);
  EXPECT_EQ(tower.text_dim, row.text_dim);
  EXPECT_EQ(tower.n_tokens({1, 1, row.n_positions}), row.n_tokens);
}

}  // namespace
}  // namespace penstock

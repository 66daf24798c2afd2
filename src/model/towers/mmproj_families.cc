#include "model/towers/mmproj_families.h"

#include <cmath>

namespace penstock {

using nlohmann::json;

json MmprojFiles::usual_config() const {
  return {{"hidden_size", dim},
          {"num_attention_heads", n_heads},
          {"num_hidden_layers", n_layers},
          {"intermediate_size", ffn_dim},
          {"patch_size", patch},
          {"image_size", side},
          {"layer_norm_eps", eps}};
}

std::string MmprojFiles::activation(const char* gelu) const {
  if (keys.flag({"use_silu", ""}, false)) return "silu";
  return keys.flag({"use_gelu", ""}, false) ? gelu : "quick_gelu";
}

int MmprojFiles::scale(int usual) const {
  return tower.integer({"projector.scale_factor", ""}, 1, 64, usual);
}

namespace {

constexpr const char* kTanh = "gelu_pytorch_tanh";

const std::vector<MmprojName> kSiglipLayer = {
    {"ln1", "layer_norm1"},         {"ln2", "layer_norm2"},
    {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_out", "self_attn.out_proj"},
    {"ffn_up", "mlp.fc1"},          {"ffn_down", "mlp.fc2"}};

std::vector<MmprojName> siglip_names(std::string_view embeddings, std::string_view positions,
                                     std::string_view post, std::vector<MmprojName> more) {
  more.insert(more.begin(),
              {{"v.patch_embd", embeddings}, {"v.position_embd", positions}, {"v.post_ln", post}});
  return more;
}

std::vector<MmprojName> tower_names(std::vector<MmprojName> more) {
  return siglip_names("vision_tower.vision_model.embeddings.patch_embedding",
                      "vision_tower.vision_model.embeddings.position_embedding",
                      "vision_tower.vision_model.post_layernorm", std::move(more));
}

void make_gemma3(MmprojFiles& files) {
  json vision = files.usual_config();
  vision["hidden_act"] = kTanh;
  const int side = files.side / files.patch / files.scale(4);
  files.config = {
      {"model_type", "gemma3"}, {"vision_config", vision}, {"mm_tokens_per_image", side * side}};
  files.images.update({{"image_processor_type", "Gemma3ImageProcessor"}, {"size", files.square()}});
  files.processor = {{"image_seq_length", side * side}};
}

void make_idefics3(MmprojFiles& files) {
  json vision = files.usual_config();
  vision["hidden_act"] = kTanh;
  files.config = {
      {"model_type", "idefics3"}, {"vision_config", vision}, {"scale_factor", files.scale(2)}};
  const int edge = files.tower.integer({"preproc_image_size", ""}, 1, 1 << 16, 4 * files.side);
  files.images.update({{"image_processor_type", "Idefics3ImageProcessor"},
                       {"size", {{"longest_edge", edge}}},
                       {"max_image_size", {{"longest_edge", files.side}}}});
}

void make_lfm2(MmprojFiles& files) {
  json vision = files.usual_config();
  vision["hidden_act"] = kTanh;
  vision.erase("image_size");
  vision["num_patches"] = files.tower.rows_of("v.position_embd.weight");
  const bool normed = files.tower.has_tensor("mm.input_norm.weight");
  files.config = {{"model_type", "lfm2_vl"},
                  {"vision_config", vision},
                  {"projector_use_layernorm", normed},
                  {"downsample_factor", files.scale(2)}};
  files.images.update({{"image_processor_type", "Lfm2VlImageProcessor"},
                       {"encoder_patch_size", files.patch},
                       {"downsample_factor", files.scale(2)}});
}

// Areas of pixels, as published where the file has none.
void make_area_images(MmprojFiles& files, const char* type, int least, int most) {
  const int merge = files.tower.integer({"spatial_merge_size", ""}, 1, 16, 2);
  least = files.tower.integer({"image_min_pixels", ""}, 1, 1 << 28, least);
  most = files.tower.integer({"image_max_pixels", ""}, 1, 1 << 28, most);
  files.images.update({{"image_processor_type", type},
                       {"patch_size", files.patch},
                       {"merge_size", merge},
                       {"temporal_patch_size", 2},
                       {"size", {{"shortest_edge", least}, {"longest_edge", most}}}});
}

json qwen_config(MmprojFiles& files) {
  return {{"depth", files.n_layers},
          {"num_heads", files.n_heads},
          {"patch_size", files.patch},
          {"temporal_patch_size", 2},
          {"spatial_merge_size", files.tower.integer({"spatial_merge_size", ""}, 1, 16, 2)}};
}

void make_qwen2_vl(MmprojFiles& files) {
  json vision = qwen_config(files);
  vision.update({{"embed_dim", files.dim},
                 {"hidden_size", files.text_dim},
                 {"intermediate_size", files.ffn_dim},
                 {"hidden_act", files.activation(kTanh)}});
  files.config = {{"model_type", "qwen2_vl"}, {"vision_config", vision}};
  make_area_images(files, "Qwen2VLImageProcessor", 56 * 56, 28 * 28 * 16384);
}

void make_qwen2_5_vl(MmprojFiles& files) {
  json vision = qwen_config(files);
  const int every = files.tower.integer({"n_wa_pattern", ""}, 1, 1 << 10, 8);
  json whole = json::array();
  for (int layer = every - 1; layer < files.n_layers; layer += every) whole.push_back(layer);
  vision.update({{"hidden_size", files.dim},
                 {"out_hidden_size", files.text_dim},
                 {"intermediate_size", files.ffn_dim},
                 {"hidden_act", files.activation(kTanh)},
                 {"fullatt_block_indexes", whole},
                 {"window_size", files.tower.integer({"window_size", ""}, 1, 1 << 16, 112)}});
  files.config = {{"model_type", "qwen2_5_vl"}, {"vision_config", vision}};
  make_area_images(files, "Qwen2VLImageProcessor", 56 * 56, 28 * 28 * 16384);
}

void make_qwen2_5_omni(MmprojFiles& files) {
  make_qwen2_5_vl(files);
  files.config["model_type"] = "qwen2_5_omni_thinker";
}

void make_qwen3_vl(MmprojFiles& files) {
  json vision = qwen_config(files);
  json deep = json::array();
  const json* marked = files.tower.find({"is_deepstack_layers", ""});
  for (size_t i = 0; marked != nullptr && marked->is_array() && i < marked->size(); ++i) {
    const json& mark = (*marked)[i];
    if (mark == true || mark == 1) deep.push_back(i);
  }
  vision.update({{"hidden_size", files.dim},
                 {"out_hidden_size", files.text_dim},
                 {"intermediate_size", files.ffn_dim},
                 {"hidden_act", files.activation(kTanh)},
                 {"num_position_embeddings", files.tower.rows_of("v.position_embd.weight")},
                 {"deepstack_visual_indexes", deep}});
  files.config = {{"model_type", "qwen3_vl"}, {"vision_config", vision}};
  make_area_images(files, "Qwen2VLImageProcessor", 256 * 256, 4096 * 4096);
}

void make_glm4v(MmprojFiles& files) {
  json vision = qwen_config(files);
  // clip.vision.feed_forward_length is the projector's width.
  vision.update({{"hidden_size", files.dim},
                 {"out_hidden_size", files.text_dim},
                 {"intermediate_size", files.tower.rows_of("mm.gate.weight")},
                 {"hidden_act", files.activation("gelu")},
                 {"rms_norm_eps", files.eps},
                 {"image_size", files.side}});
  files.config = {{"model_type", "glm4v"}, {"vision_config", vision}};
  make_area_images(files, "Glm4vImageProcessor", 112 * 112, 28 * 28 * 15000);
}

void make_pixtral(MmprojFiles& files) {
  json vision = files.usual_config();
  vision.erase("layer_norm_eps");
  vision.update({{"model_type", "pixtral"}, {"hidden_act", files.activation("gelu")}});
  files.config = {{"model_type", "llava"},
                  {"vision_config", vision},
                  {"vision_feature_layer", -1},
                  {"vision_feature_select_strategy", "full"}};
  if (files.tower.has_tensor("mm.patch_merger.weight")) {
    files.config = {
        {"model_type", "mistral3"},
        {"vision_config", vision},
        {"vision_feature_layer", -1},
        {"spatial_merge_size", files.tower.integer({"spatial_merge_size", ""}, 1, 16, 2)},
        {"text_config", {{"rms_norm_eps", files.eps}}}};
  }
  files.images.update({{"image_processor_type", "PixtralImageProcessor"},
                       {"size", {{"longest_edge", files.side}}},
                       {"patch_size", {{"height", files.patch}, {"width", files.patch}}}});
}

void make_internvl(MmprojFiles& files) {
  json vision = files.usual_config();
  const bool layer_norm = files.tower.has_tensor("v.blk.0.ln1.bias");
  const int scale = files.scale(2), side = files.side / files.patch / scale;
  vision.update({{"hidden_act", files.activation("gelu")},
                 {"norm_type", layer_norm ? "layer_norm" : "rms_norm"},
                 {"use_qk_norm", files.tower.has_tensor("v.blk.0.attn_q_norm.weight")}});
  files.config = {
      {"model_type", "internvl"}, {"vision_config", vision}, {"downsample_ratio", 1.0 / scale}};
  files.images.update(
      {{"image_processor_type", "GotOcr2ImageProcessor"},
       {"size", files.square()},
       {"crop_to_patches", true},
       {"min_patches", files.tower.integer({"preproc_min_tiles", ""}, 1, 1024, 1)},
       {"max_patches", files.tower.integer({"preproc_max_tiles", ""}, 1, 1024, 12)}});
  files.processor = {{"image_seq_length", side * side}};
}

// LLaVA and LLaVA-NeXT. Files without feature_layer end with the layer whose states are taken.
void make_llava(MmprojFiles& files) {
  const bool clip =
      files.tower.has_tensor("v.class_embd") || files.tower.has_tensor("v.class_embd.weight");
  const char* strategy = clip ? "default" : "full";
  json vision = files.usual_config();
  vision.update({{"model_type", clip ? "clip_vision_model" : "siglip_vision_model"},
                 {"hidden_act", files.activation(clip ? "gelu" : kTanh)}});
  files.config = {{"model_type", "llava"},
                  {"vision_config", vision},
                  {"vision_feature_layer", -1},
                  {"vision_feature_select_strategy", strategy}};
  const std::vector<int> layers = files.tower.integers({"feature_layer", ""}, -1024, 1024),
                         pinpoints = files.tower.integers({"image_grid_pinpoints", ""}, 1, 1 << 16);
  if (!layers.empty()) files.config["vision_feature_layer"] = layers;
  files.processor = {{"patch_size", files.patch},
                     {"vision_feature_select_strategy", strategy},
                     {"num_additional_image_tokens", clip ? 1 : 0}};
  files.images.update(
      {{"image_processor_type", clip ? "CLIPImageProcessor" : "SiglipImageProcessor"},
       {"size", clip ? json{{"shortest_edge", files.side}} : files.square()}});
  if (clip) files.images["crop_size"] = files.square();
  if (pinpoints.size() < 2) return;
  files.config["model_type"] = "llava_next";
  files.images.update({{"image_processor_type", "LlavaNextImageProcessor"},
                       {"image_grid_pinpoints", json::array()}});
  for (size_t i = 0; i + 1 < pinpoints.size(); i += 2)
    files.images["image_grid_pinpoints"].push_back({pinpoints[i], pinpoints[i + 1]});
}

std::vector<MmprojName> with_more(std::vector<MmprojName> names,
                                  const std::vector<MmprojName>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

constexpr std::string_view kSiglipLayers = "vision_tower.vision_model.encoder.layers.{}.";

std::vector<MmprojFamily> siglip_families() {
  return {
      {"gemma3",
       kSiglipLayers,
       kSiglipLayer,
       tower_names(
           {{"mm.soft_emb_norm", "multi_modal_projector.mm_soft_emb_norm"},
            {"mm.input_projection", "multi_modal_projector.mm_input_projection_weight", true}}),
       {.norm_plus_one = true},
       make_gemma3},
      {"idefics3",
       "model.vision_model.encoder.layers.{}.",
       kSiglipLayer,
       siglip_names("model.vision_model.embeddings.patch_embedding",
                    "model.vision_model.embeddings.position_embedding",
                    "model.vision_model.post_layernorm",
                    {{"mm.model.fc", "model.connector.modality_projection.proj"}}),
       {},
       make_idefics3},
      {"lfm2",
       kSiglipLayers,
       kSiglipLayer,
       tower_names({{"mm.input_norm", "multi_modal_projector.layer_norm"},
                    {"mm.1", "multi_modal_projector.linear_1"},
                    {"mm.2", "multi_modal_projector.linear_2"}}),
       {.colours_first = true},
       make_lfm2},
      {"mlp",
       kSiglipLayers,
       kSiglipLayer,
       tower_names({{"v.class_embd", "vision_tower.vision_model.embeddings.class_embedding", true},
                    {"v.pre_ln", "vision_tower.vision_model.pre_layrnorm"},
                    {"model.image_newline", "image_newline", true},
                    {"v.image_newline", "image_newline", true},
                    {"mm.0", "multi_modal_projector.linear_1"},
                    {"mm.2", "multi_modal_projector.linear_2"}}),
       {},
       make_llava},
  };
}

// Qwen's kind: blocks, units that are merged.
std::vector<MmprojFamily> block_families() {
  const std::vector<MmprojName> qwen = {{"ln1", "norm1"},
                                        {"ln2", "norm2"},
                                        {"attn_qkv", "attn.qkv"},
                                        {"attn_out", "attn.proj"},
                                        {"attn_q", "self_attn.q_proj"},
                                        {"attn_k", "self_attn.k_proj"},
                                        {"attn_v", "self_attn.v_proj"}};
  const std::vector<MmprojName> gated = {
      {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};
  const std::vector<MmprojName> fc = {{"ffn_up", "mlp.fc1"}, {"ffn_down", "mlp.fc2"}};
  const std::vector<MmprojName> qwen2 = {{"v.patch_embd", "visual.patch_embed.proj"},
                                         {"v.post_ln", "visual.merger.ln_q"},
                                         {"mm.0", "visual.merger.mlp.0"},
                                         {"mm.2", "visual.merger.mlp.2"}};
  return {
      {"qwen2vl_merger",
       "visual.blocks.{}.",
       with_more(qwen, fc),
       qwen2,
       {.frames_apart = true},
       make_qwen2_vl},
      {"qwen2.5vl_merger",
       "visual.blocks.{}.",
       with_more(qwen, gated),
       qwen2,
       {.frames_apart = true},
       make_qwen2_5_vl},
      {"qwen2.5o",
       "visual.blocks.{}.",
       with_more(gated, {{"ln1", "norm1"},
                         {"ln2", "norm2"},
                         {"attn_out", "attn.proj"},
                         {"attn_q", "attn.q"},
                         {"attn_k", "attn.k"},
                         {"attn_v", "attn.v"}}),
       qwen2,
       {.frames_apart = true},
       make_qwen2_5_omni},
      {"qwen3vl_merger",
       "visual.blocks.{}.",
       with_more(qwen, {{"ffn_up", "mlp.linear_fc1"}, {"ffn_down", "mlp.linear_fc2"}}),
       {{"v.patch_embd", "visual.patch_embed.proj"},
        {"v.position_embd", "visual.pos_embed"},
        {"v.post_ln", "visual.merger.norm"},
        {"mm.0", "visual.merger.linear_fc1"},
        {"mm.2", "visual.merger.linear_fc2"}},
       {.frames_apart = true},
       make_qwen3_vl},
      {"glm4v",
       "visual.blocks.{}.",
       with_more(qwen, gated),
       {{"v.patch_embd", "visual.patch_embed.proj"},
        {"v.norm_embd", "visual.post_conv_layernorm"},
        {"v.position_embd", "visual.embeddings.position_embedding"},
        {"v.post_ln", "visual.post_layernorm"},
        {"mm.patch_merger", "visual.downsample"},
        {"mm.model.fc", "visual.merger.proj"},
        {"mm.post_norm", "visual.merger.post_projection_norm"},
        {"mm.gate", "visual.merger.gate_proj"},
        {"mm.up", "visual.merger.up_proj"},
        {"mm.down", "visual.merger.down_proj"}},
       {.frames_apart = true},
       make_glm4v},
  };
}

std::vector<MmprojFamily> other_families() {
  return {
      {"pixtral",
       "vision_tower.transformer.layers.{}.",
       {{"ln1", "attention_norm"},
        {"ln2", "ffn_norm"},
        {"attn_q", "attention.q_proj"},
        {"attn_k", "attention.k_proj"},
        {"attn_v", "attention.v_proj"},
        {"attn_out", "attention.o_proj"},
        {"ffn_gate", "feed_forward.gate_proj"},
        {"ffn_up", "feed_forward.up_proj"},
        {"ffn_down", "feed_forward.down_proj"}},
       {{"v.patch_embd", "vision_tower.patch_conv"},
        {"v.pre_ln", "vision_tower.ln_pre"},
        {"v.token_embd.img_break", "", true},  // the text model's, too
        {"mm.input_norm", "multi_modal_projector.norm"},
        {"mm.patch_merger", "multi_modal_projector.patch_merger.merging_layer"},
        {"mm.1", "multi_modal_projector.linear_1"},
        {"mm.2", "multi_modal_projector.linear_2"}},
       {.rotated_rows = true},
       make_pixtral},
      {"internvl",
       "vision_tower.encoder.layer.{}.",
       {{"ln1", "layernorm_before"},
        {"ln2", "layernorm_after"},
        {"attn_q", "attention.q_proj"},
        {"attn_k", "attention.k_proj"},
        {"attn_v", "attention.v_proj"},
        {"attn_q_norm", "attention.q_norm"},
        {"attn_k_norm", "attention.k_norm"},
        {"attn_out", "attention.projection_layer"},
        {"ffn_up", "mlp.fc1"},
        {"ffn_down", "mlp.fc2"},
        {"ls1", "lambda_1", true},
        {"ls2", "lambda_2", true}},
       {{"v.patch_embd", "vision_tower.embeddings.patch_embeddings.projection"},
        {"v.class_embd", "vision_tower.embeddings.cls_token", true},
        {"v.position_embd", "vision_tower.embeddings.position_embeddings", true},
        {"mm.model.mlp.0", "multi_modal_projector.layer_norm"},
        {"mm.model.mlp.1", "multi_modal_projector.linear_1"},
        {"mm.model.mlp.3", "multi_modal_projector.linear_2"}},
       {},
       make_internvl},
  };
}

}  // namespace

std::span<const MmprojFamily> mmproj_families() {
  static const std::vector<MmprojFamily> list = [] {
    std::vector<MmprojFamily> all = siglip_families();
    for (const std::vector<MmprojFamily>& more :
         {block_families(), other_families(), mmproj_ears()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return list;
}

}  // namespace penstock

// Llama with experts chosen by softmax and experts for every token: the first DeepSeek, whose first
// layers are dense, and Ling 1.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_deepseek_moe(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  reader.expect_text("scoring_func", "softmax");
  reader.expect_text("topk_method", "greedy");
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_shared_experts(reader, config);
  ExpertRouting& routing = config.experts.routing;
  routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, false);
  routing.scale =
      reader.number({"expert_weights_scale", "routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
}

void describe_bailing(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"leading_dense_block_count", "first_k_dense_replace"}, leading_dense_layers(config));
  writer.set({"expert_shared_count", "n_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"expert_weights_norm", "norm_topk_prob"}, config.experts.routing.normalize);
  writer.set({"expert_weights_scale", "routed_scaling_factor"}, config.experts.routing.scale);
}

void describe_deepseek_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_bailing(writer, config);
  writer.erase({"", "num_experts"});
  writer.set({"", "n_routed_experts"}, config.experts.count);
  describe_biases(writer, config);
}

// GGUF files have the output matrix as norm_head has it.
void configure_bailing(ConfigReader& reader, ModelConfig& config) {
  config.output.unit_rows = reader.flag({"", "norm_head"}, false);
  configure_deepseek_moe(reader, config);
}

void bailing1_names(NameTable& names, const ModelConfig&) {
  names.embedding = "word_embeddings";
  names[tensor::kQkv] = "attention.query_key_value";
  names[tensor::kO] = "attention.dense";
}

}  // namespace

extern constinit const Architecture kDeepSeekMoe = {
    .name = "deepseek",
    .title = "DeepSeek MoE (first)",
    .hf_types = {"deepseek", "DeepseekForCausalLM"},
    .configure = configure_deepseek_moe,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1407})",
    .describe = describe_deepseek_moe,
    .gguf_pairs = true,
};

extern constinit const Architecture kBailing = {
    .name = "bailingmoe",
    .title = "Ling 1 (`bailing_moe`)",
    .hf_types = {"bailing_moe_v1", "BailingMoeForCausalLM"},
    .configure = configure_bailing,
    .hf_names = bailing1_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "norm_topk_prob": true})",
    .hf_aliases = R"({"num_shared_experts": "n_shared_experts"})",
    .describe = describe_bailing,
    .gguf_names = apart_gguf_names,
    .gguf_pairs = true,
};

}  // namespace penstock

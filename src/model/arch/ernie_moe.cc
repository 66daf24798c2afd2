// ERNIE 4.5 with experts: softmax scores with a bias for the choice, experts in every n-th of some
// layers.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// GGUF files show these layers by their tensors.
void read_expert_layers(ConfigReader& reader, ModelConfig& config) {
  const int first = reader.integer({"", "moe_layer_start_index"}, 0, 1 << 20, 1);
  const int last = reader.integer({"", "moe_layer_end_index"}, -1, 1 << 20, -1);
  const int interval = reader.integer({"", "moe_layer_interval"}, 1, 1 << 20, 1);
  for (int i = 0; i < config.n_layers; ++i) {
    const bool in_pattern = (i + 1) % interval == 0 && i >= first && (last < 0 || i <= last);
    config.layers[static_cast<size_t>(i)].moe =
        reader.gguf() ? reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))
                      : in_pattern;
  }
}

void configure_ernie4_5_moe(ConfigReader& reader, ModelConfig& config) {
  config.positions.rope_interleaved = true;
  read_experts(reader, config);
  read_expert_layers(reader, config);
  config.experts.routing.sum_min = reader.number({"", "moe_norm_min"}, 0.0f, 1.0f, 1e-12f);
  config.experts.selection_bias = true;
  const int n_shared =
      reader.integer({"expert_shared_count", "moe_num_shared_experts"}, 0, 1024, 0);
  config.experts.shared_dim = std::min(n_shared * config.experts.ffn_dim, 1 << 20);
}

void ernie4_5_moe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSelectionBias] = "mlp.moe_statics.e_score_correction_bias";
}

void describe_ernie4_5_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_ernie4_5(writer, config);
  int first = -1, last = 0, interval = 1;
  for (int i = 0; i < config.n_layers; ++i) {
    if (!config.layers[static_cast<size_t>(i)].moe) continue;
    if (first >= 0) interval = i - last;
    if (first < 0) first = i;
    last = i;
  }
  writer.set({"leading_dense_block_count", "moe_layer_start_index"}, std::max(first, 0));
  writer.set({"", "moe_layer_end_index"}, last);
  writer.set({"interleave_moe_layer_step", "moe_layer_interval"}, interval);
  writer.set({"expert_shared_count", "moe_num_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
  writer.set({"", "moe_num_experts"}, config.experts.count);
  writer.set({"", "moe_k"}, config.experts.routing.n_active);
  for (const std::string_view key : {"num_experts", "num_experts_per_tok", "norm_topk_prob"})
    writer.erase({"", key});
}

}  // namespace

extern constinit const Architecture kErnie45Moe = {
    .name = "ernie4_5-moe",
    .title = "ERNIE 4.5 (experts)",
    .hf_types = {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
    .configure = configure_ernie4_5_moe,
    .hf_names = ernie4_5_moe_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5, "rope_theta": 5e5, "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64,
    "moe_num_shared_experts": 2})",
    .describe = describe_ernie4_5_moe,
};

}  // namespace penstock

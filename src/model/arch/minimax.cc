// MiniMax-M2: norms over all heads of q and of k, partial rotation, experts chosen by sigmoid and a
// bias.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_minimax_m2(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kRow;
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("qk_norm_type", "per_layer");
  for (const std::string_view key : {"use_qk_norm", "use_routing_bias"})
    reader.expect_flag(key, true);
  if (reader.integer({"", "shared_intermediate_size"}, 0, 1 << 20, 0) > 0)
    reader.fail(ErrorCode::kUnsupported, "shared_intermediate_size: expected no shared experts");
  int& rotary_dim = config.ropes[0].rotary_dim;
  rotary_dim = reader.integer({"", "rotary_dim"}, 2, config.head_dim, rotary_dim);
  read_experts(reader, config);
  read_sigmoid_routing(reader, config);
}

void minimax_m2_names(NameTable& names, const ModelConfig& config) {
  mixtral_names(names, config);
  names[tensor::kSelectionBias] = "block_sparse_moe.e_score_correction_bias";
}

void describe_minimax_m2(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  writer.erase({"", "num_experts"});
  writer.set({"", "num_local_experts"}, config.experts.count);
  writer.set({"", "scoring_func"}, "sigmoid");
  writer.set({"", "rotary_dim"}, config.ropes[0].rotary_dim);
}

}  // namespace

extern constinit const Architecture kMiniMaxM2 = {
    .name = "minimax-m2",
    .title = "MiniMax-M2",
    .hf_types = {"minimax_m2", "MiniMaxM2ForCausalLM"},
    .configure = configure_minimax_m2,
    .hf_names = minimax_m2_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "rope_theta": 5e6, "num_key_value_heads": 8,
    "num_experts_per_tok": 8, "num_local_experts": 256})",
    .describe = describe_minimax_m2,
    .partial_rope = true,
};

}  // namespace penstock

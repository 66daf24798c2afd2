// GroveMoE: Qwen3-MoE whose experts have, by groups of neighbours, a smaller expert together.
//
// Sources differ, and the code of the weights' owner counts: small experts read what the others read,
// each by the weights of the chosen experts of its group, and weights are always divided by their sum.
// llama.cpp has small experts read what the others give, by weights of other experts.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// The owner's code has these as constants: directories need not say them.
constexpr int kSmallPerExperts = 2, kSmallWidth = 128;
constexpr float kSmallFactor = 0.05f;
constexpr Key kGroupSize{"experts_per_group", "num_experts_per_group"},
    kGroupDim{"expert_chunk_feed_forward_length", "parallel_expert_intermediate_size"},
    kGroupFactor{"expert_group_scale", "parallel_expert_scale"};

void configure_grove(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  read_experts(reader, config);
  config.experts.routing.normalize = true;
  ExpertsConfig& experts = config.experts;
  const int usual = reader.gguf() ? config.head_dim : kSmallWidth;  // llama.cpp takes a head's size
  experts.group_size =
      reader.integer(kGroupSize, 1, experts.count, std::min(kSmallPerExperts, experts.count));
  experts.group_dim = reader.integer(kGroupDim, 1, 1 << 20, usual);
  experts.group_factor = reader.number(kGroupFactor, -1e6f, 1e6f, kSmallFactor);
  if (experts.group_size > 0 && experts.count % experts.group_size != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{}: expected a number that divides the {} experts, got {}",
                            reader.name(kGroupSize), experts.count, experts.group_size));
  if (reader.gguf()) {
    for (int i = 0; i < config.n_layers; ++i)
      config.layers[static_cast<size_t>(i)].moe =
          reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i));
    return;
  }
  reader.expect_flag("norm_topk_prob", true);
  if (reader.flag({"", "use_sliding_window"}, false)) read_windows(reader, config, 0);
  read_sparse_layers(reader, config);
}

void describe_grove(ConfigWriter& writer, const ModelConfig& config) {
  writer.set(kGroupSize, config.experts.group_size);
  writer.set(kGroupDim, config.experts.group_dim);
  writer.set(kGroupFactor, config.experts.group_factor);
  writer.set({"", "norm_topk_prob"}, true);
  std::vector<int> dense;
  for (int i = 0; i < config.n_layers; ++i) {
    if (!config.layers[static_cast<size_t>(i)].moe) dense.push_back(i);
  }
  writer.set({"", "mlp_only_layers"}, dense);
}

}  // namespace

extern constinit const Architecture kGroveMoe = {
    .name = "grovemoe",
    .title = "GroveMoE",
    .hf_types = {"grove_moe", "GroveMoeForCausalLM", "modeling_grove_moe.GroveMoeForCausalLM"},
    .named_by_class = true,
    .configure = configure_grove,
    .forward = decoder_forward,
    .describe = describe_grove,
};

}  // namespace penstock

// Command-R and Command-R7B (Cohere 2): parallel layers with one norm, adjacent rotated pairs,
// scaled logits.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

void configure_cohere(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.norm.biases = false;
  config.residual.parallel = true;
  config.positions.rope_interleaved = true;
  config.output.scale =
      reader.number({"logit_scale", "logit_scale"}, -1e6f, 1e6f, reader.gguf() ? 1.0f : 0.0625f);
  const bool norms = reader.gguf() ? reader.has_tensor("blk.0.attn_q_norm.weight")
                                   : reader.flag({"", "use_qk_norm"}, false);
  if (norms) config.attention.qk_norm = QkNorm::kHeads;
}

void describe_cohere(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"logit_scale", "logit_scale"}, config.output.scale);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
  if (config.arch == "command-r")
    writer.set({"", "use_qk_norm"}, config.attention.qk_norm != QkNorm::kNone);
}

// Only layers with a window are rotated.
void configure_cohere2(ConfigReader& reader, ModelConfig& config) {
  configure_cohere(reader, config);
  config.attention.qk_norm = QkNorm::kNone;
  read_windows(reader, config, reader.integer({"", "sliding_window_pattern"}, 1, 1024, 4), 4096);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

// Dense layers are rotated too where their pattern is 1, as in all GGUF files. Logits of the chosen experts become
// weights by softmax or by sigmoid; shared experts are added, or averaged with the others.
void configure_cohere2_moe(ConfigReader& reader, ModelConfig& config) {
  configure_cohere(reader, config);
  config.attention.qk_norm = QkNorm::kNone;
  const Key rms{"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
  if (reader.has(rms)) {
    config.norm.layer_norm = false;
    config.norm.eps = reader.number(rms, 0.0f, 1.0f);
  }
  const int n_dense = std::min(
      reader.integer({"leading_dense_block_count", "first_k_dense_replace"}, 0, 1 << 20, 0),
      config.n_layers);
  const int dense_pattern = reader.integer({"", "prefix_dense_sliding_window_pattern"}, 1, 1024, 1);
  const int pattern = reader.integer({"", "sliding_window_pattern"}, 1, 1024, 4);
  read_windows(reader, config, 0, 4096);
  read_experts(reader, config);
  if (!reader.gguf()) config.experts.ffn_dim = config.ffn_dim;
  for (int i = 0; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.moe = i >= n_dense;
    const bool full = i < n_dense ? (i + 1) % dense_pattern == 0 : (i - n_dense + 1) % pattern == 0;
    if (full && !reader.has({"attention.sliding_window_pattern", "layer_types"})) layer.window = 0;
  }
  read_mlp_layer_types(reader, config);
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window > 0 || (!layer.moe && dense_pattern == 1) ? 0 : -1;
  }
  config.ffn_dim =
      reader.integer({"", "prefix_dense_intermediate_size"}, 1, 1 << 20, config.ffn_dim);
  ExpertRouting& routing = config.experts.routing;
  const bool by_sigmoid = reader.integer({"expert_gating_func", ""}, 0, 16, 2) != 1;
  const std::string scores =
      reader.text({"", "expert_selection_fn"}, reader.gguf() && by_sigmoid ? "sigmoid" : "softmax");
  if (scores == "sigmoid") {
    routing.score = RouterScore::kSigmoid;
    routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, !reader.gguf());
  } else if (scores != "softmax") {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("expert_selection_fn: expected softmax or sigmoid, got '{}'", scores));
  }
  const int n_shared = reader.integer({"expert_shared_count", "num_shared_experts"}, 0, 1024, 0);
  config.experts.shared_dim = std::min(n_shared * config.experts.ffn_dim, 1 << 20);
  const std::string joined = reader.text({"", "shared_expert_combination_strategy"}, "average");
  if (joined == "average" && n_shared > 0) {
    routing.scale = config.experts.shared_factor = 0.5f;
  } else if (joined != "average" && joined != "sum") {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("shared_expert_combination_strategy: expected average or sum, got '{}'",
                            joined));
  }
}

void describe_cohere2_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_cohere(writer, config);
  if (!config.norm.layer_norm) {
    writer.erase({"attention.layer_norm_epsilon", "layer_norm_eps"});
    writer.set({"", "rms_norm_eps"}, config.norm.eps);
  }
  describe_mlp_layer_types(writer, config);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  std::vector<std::string> types;
  bool rotates = false;
  for (const LayerConfig& layer : config.layers) {
    types.emplace_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    rotates |= layer.window == 0 && layer.rope == 0;
  }
  writer.set({"", "layer_types"}, types);
  writer.set({"feed_forward_length", "prefix_dense_intermediate_size"}, config.ffn_dim);
  writer.set({"", "intermediate_size"}, config.experts.ffn_dim);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
  writer.set({"", "prefix_dense_sliding_window_pattern"}, rotates ? 1 : 2);
  const bool sigmoid = config.experts.routing.score == RouterScore::kSigmoid;
  writer.set({"", "expert_selection_fn"}, sigmoid ? "sigmoid" : "softmax");
  writer.set({"expert_gating_func", ""}, sigmoid ? 2 : 1);
  writer.set({"expert_weights_norm", "norm_topk_prob"}, config.experts.routing.normalize);
  writer.set({"expert_shared_count", "num_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"", "shared_expert_combination_strategy"},
             config.experts.shared_factor == 1.0f ? "sum" : "average");
}

// Reads a rope for each kind of layer, null for none, where the file tells them apart.
void read_ropes_by_kind(ConfigReader& reader, ModelConfig& config) {
  const nlohmann::json* all = reader.find({"", "rope_parameters"});
  constexpr std::string_view kKinds[] = {"full_attention", "sliding_attention"};
  if (all == nullptr || !all->is_object() ||
      std::ranges::none_of(kKinds, [&](std::string_view kind) { return all->contains(kind); }))
    return;
  std::vector<RopeConfig> ropes;
  for (const std::string_view kind : kKinds) {
    const auto own = all->find(kind);
    const bool turns = own != all->end() && own->is_object();
    const int index = turns ? static_cast<int>(ropes.size()) : -1;
    if (turns) ropes.push_back(read_hf_rope(reader, *own, config, 10000.0f));
    for (LayerConfig& layer : config.layers)
      if ((layer.window > 0) == (kind == "sliding_attention")) layer.rope = index;
  }
  config.ropes = std::move(ropes);
}

// Halves of heads are rotated; files say in which layers. Positions of pictures have three axes.
void configure_compass(ConfigReader& reader, ModelConfig& config) {
  configure_cohere(reader, config);
  config.positions.rope_interleaved = false;
  config.attention.qk_norm = QkNorm::kNone;
  config.output.scale = reader.number({"", "logit_scale"}, -1e6f, 1e6f, 1.0f);
  read_windows(reader, config, 0, 4096);
  if (!reader.has({"", "layer_types"}))
    for (LayerConfig& layer : config.layers) layer.window = 0;
  read_ropes_by_kind(reader, config);
}

constexpr MeaningfulKey kCohereKeys[] = {{{"logit_scale", "logit_scale"}, 1}};

}  // namespace

extern constinit const Architecture kCohere = {
    .name = "command-r",
    .title = "Command-R",
    .hf_types = {"cohere", "CohereForCausalLM"},
    .configure = configure_cohere,
    .forward = parallel_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "rope_theta": 5e5})",
    .describe = describe_cohere,
    .own_keys = kCohereKeys,
};

extern constinit const Architecture kCohere2 = {
    .name = "cohere2",
    .title = "Cohere 2 (Command-R7B)",
    .hf_types = {"cohere2", "Cohere2ForCausalLM"},
    .configure = configure_cohere2,
    .forward = parallel_forward,
    .hf_defaults = R"({"tie_word_embeddings": true})",
    .describe = describe_cohere,
};

extern constinit const Architecture kCohere2Moe = {
    .name = "cohere2moe",
    .title = "Cohere 2 with experts (Command A+)",
    .hf_types = {"cohere2_moe", "Cohere2MoeForCausalLM"},
    .configure = configure_cohere2_moe,
    .forward = parallel_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 128, "num_experts": 8,
    "num_experts_per_tok": 2})",
    .describe = describe_cohere2_moe,
};

extern constinit const Architecture kCohereCompass = {
    .name = "cohere_compass",
    .title = "Cohere Compass (North Micro; text, also of `cohere_compass`)",
    .hf_types = {"cohere_compass_text", "CohereCompassForCausalLM", "cohere_compass",
                 "CohereCompassForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_compass,
    .forward = parallel_forward,
    .hf_defaults = R"({"tie_word_embeddings": true})",
};

}  // namespace penstock

// Command-R and Command-R7B (Cohere 2): parallel layers with one norm, adjacent rotated pairs,
// scaled logits.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

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

}  // namespace penstock

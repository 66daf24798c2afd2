// Longformer as an encoder of sentences: RoBERTa with windows. No token attends globally, as in
// transformers without a global_attention_mask; classifiers, whose first token does, are refused.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr int kMostWindow = 1 << 24;

bool is_encoder_class(const nlohmann::json& name) {
  return name == "LongformerModel" || name == "LongformerForMaskedLM";
}

// Widths of windows, half on each side of a token.
void read_longformer_windows(ConfigReader& reader, ModelConfig& config) {
  const Key key{"", "attention_window"};
  std::vector<int> widths = reader.integers(key, 2, kMostWindow);
  if (widths.empty()) widths = {512};
  if (widths.size() == 1) widths.resize(config.layers.size(), widths[0]);
  if (widths.size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("attention_window: expected {} numbers, got {}",
                                   config.layers.size(), widths.size()));
  for (size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] % 2 != 0)
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("attention_window: expected even numbers, got {}", widths[i]));
    config.layers[i].window = widths[i] / 2 + 1;
  }
}

void configure_longformer(ConfigReader& reader, ModelConfig& config) {
  configure_roberta(reader, config);
  read_longformer_windows(reader, config);
  const nlohmann::json* classes = reader.find({"", "architectures"});
  if (classes != nullptr && classes->is_array() && !classes->empty() &&
      !is_encoder_class((*classes)[0]))
    reader.fail(
        ErrorCode::kUnsupported,
        "architectures: expected LongformerModel or LongformerForMaskedLM: in other classes "
        "some tokens attend globally");
}

void longformer_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "longformer."};
}

}  // namespace

extern constinit const Architecture kLongformer = {
    .name = "longformer",
    .title = "Longformer (encoder)",
    .hf_types = {"longformer", "LongformerModel"},
    .directories_only = true,
    .configure = configure_longformer,
    .hf_names = longformer_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "intermediate_size": 3072,
    "max_position_embeddings": 512})",
    .gguf_names = bert_gguf_names,
};

}  // namespace penstock

// Apertus: feed-forwards without gates; an activation (xIELU) with learned parameters in every
// layer.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr std::string_view kKeys[] = {":xielu.alpha_p", ":xielu.alpha_n", ":xielu.beta",
                                      ":xielu.eps"};

void configure_apertus(ConfigReader& reader, ModelConfig& config) {
  config.ffn.gated = false;
  config.attention.qk_norm = QkNorm::kHead;
  if (!reader.gguf()) return;
  config.ffn.activation = Activation::kXielu;
  for (size_t p = 0; p < 4; ++p) {
    std::vector<float> values = reader.numbers({kKeys[p], ""}, config.layers.size());
    if (values.empty() && reader.has({kKeys[p], ""}))
      values.assign(config.layers.size(), reader.number({kKeys[p], ""}, -1e6f, 1e6f));
    if (values.size() != config.layers.size()) {
      return reader.fail(ErrorCode::kCorruptFile,
                         fmt::format("{}: expected {} numbers, one for each layer, got {}",
                                     kKeys[p].substr(1), config.layers.size(), values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      config.layers[i].activation.kind = Activation::kXielu;
      config.layers[i].activation.parameters[p] = values[i];
    }
  }
}

// The output matrix may lack the rows of tokens that stand for pieces of pictures and sounds.
void configure_apertus1p5(ConfigReader& reader, ModelConfig& config) {
  configure_apertus(reader, config);
  const int rows =
      reader.integer({"", "output_vocab_size"}, 1, config.vocab_size, config.vocab_size);
  if (rows == config.vocab_size) return;
  config.output.rows = rows;
  if (config.embedding.tied)
    reader.fail(ErrorCode::kUnsupported,
                "output_vocab_size: expected an output matrix of its own, got tie_word_embeddings");
}

void describe_apertus(ConfigWriter& writer, const ModelConfig& config) {
  for (size_t p = 0; p < 4; ++p) {
    nlohmann::json values = nlohmann::json::array();
    for (const LayerConfig& layer : config.layers) values.push_back(layer.activation.parameters[p]);
    writer.set({kKeys[p], ""}, values);
  }
}

void apertus_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAttnNorm] = "attention_layernorm",
  names[tensor::kFfnNorm] = "feedforward_layernorm";
}

}  // namespace

extern constinit const Architecture kApertus = {
    .name = "apertus",
    .title = "Apertus",
    .hf_types = {"apertus", "ApertusForCausalLM"},
    .configure = configure_apertus,
    .hf_names = apertus_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12e6})",
    .describe = describe_apertus,
};

extern constinit const Architecture kApertus15 = {
    .name = "apertus1p5",
    .title = "Apertus 1.5 (text, also of `apertus1p5`)",
    .hf_types = {"apertus1p5_text", "Apertus1p5TextForCausalLM", "apertus1p5",
                 "Apertus1p5ForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_apertus1p5,
    .hf_names = apertus_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12e6,
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0,
    "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}})",
};

}  // namespace penstock

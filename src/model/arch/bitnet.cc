// BitNet b1.58: ternary weights, 8-bit activations, norms before the output and down projections.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_bitnet_silu(ConfigReader&, ModelConfig& config) {
  config.norm.sub_norms = true;
  config.rounding.activations = true;
}

// Without a quantization_config, the Hugging Face model does not round.
void configure_bitnet(ConfigReader& reader, ModelConfig& config) {
  config.norm.sub_norms = true;
  config.rounding.activations = reader.gguf();
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
  const nlohmann::json* quantization = reader.find({"", "quantization_config"});
  if (quantization == nullptr) return;
  ConfigReader inner(*quantization, Naming::kHuggingFace, "",
                     reader.where() + ": quantization_config");
  if (inner.text({"", "quant_method"}, "") != "bitnet")
    inner.fail(ErrorCode::kUnsupported, "expected quant_method bitnet");
  config.rounding.activations = true;
  config.rounding.ternary_weights = inner.text({"", "quantization_mode"}, "offline") == "online";
  config.rounding.divide_scale = inner.text({"", "linear_class"}, "bitlinear") == "bitlinear";
  reader.merge(inner);
}

}  // namespace

extern constinit const Architecture kBitnet = {
    .name = "bitnet-b1.58",
    .title = "BitNet b1.58",
    .hf_types = {"bitnet", "BitNetForCausalLM"},
    .configure = configure_bitnet,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5, "rope_theta": 500000.0})",
};

extern constinit const Architecture kFirstBitnet = {
    .name = "bitnet",
    .configure = configure_bitnet_silu,
    .forward = decoder_forward,
};

}  // namespace penstock

// Granite with experts (3.0, 3.1), some with shared experts. Gate and up are fused.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_granite_moe(ConfigReader& reader, ModelConfig& config) {
  configure_granite(reader, config);
  read_experts(reader, config);
  config.experts.shared_dim = reader.integer(
      {"expert_shared_feed_forward_length", "shared_intermediate_size"}, 0, 1 << 20, 0);
}

}  // namespace

void granite_moe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRouter] = "block_sparse_moe.router.layer";
  names[tensor::kExpertGateUp] = "block_sparse_moe.input_linear.weight";
  names[tensor::kExpertDown] = "block_sparse_moe.output_linear.weight";
  names[tensor::kSharedGateUp] = "shared_mlp.input_linear",
  names[tensor::kSharedDown] = "shared_mlp.output_linear";
}

namespace {

void describe_granite_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_granite(writer, config);
  if (config.experts.shared_dim > 0)
    writer.set({"expert_shared_feed_forward_length", "shared_intermediate_size"},
               config.experts.shared_dim);
}

}  // namespace

extern constinit const Architecture kGraniteMoe = {
    .name = "granitemoe",
    .title = "Granite MoE (also `granitemoeshared`)",
    .hf_types = {"granitemoe", "GraniteMoeForCausalLM", "granitemoeshared",
                 "GraniteMoeSharedForCausalLM"},
    .configure = configure_granite_moe,
    .hf_names = granite_moe_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_local_experts": 8, "num_experts_per_tok": 2})",
    .describe = describe_granite_moe,
    .gguf_pairs = true,
};

}  // namespace penstock

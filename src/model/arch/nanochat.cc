// nanochat: norms without weights, also after the embedding and on every head after its rotation,
// which is by negative angles; feed-forwards without gates.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_nanochat(ConfigReader& reader, ModelConfig& config) {
  config.norm.bare = config.embedding.norm = true;
  config.attention.qk_norm = QkNorm::kPlain;
  config.attention.rope_before_norm = true;
  config.ropes[0].backwards = true;
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
  config.output.softcap =
      reader.number({"final_logit_softcapping", "final_logit_softcapping"}, 0.0f, 1e6f, 0.0f);
}

void nanochat_names(NameTable& names, const ModelConfig&) {
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
}

void describe_nanochat(ConfigWriter& writer, const ModelConfig& config) {
  if (config.output.softcap == 0.0f) writer.set({"", "final_logit_softcapping"}, nullptr);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

}  // namespace

extern constinit const Architecture kNanoChat = {
    .name = "nanochat",
    .title = "nanochat",
    .hf_types = {"nanochat", "NanoChatForCausalLM"},
    .configure = configure_nanochat,
    .hf_names = nanochat_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "relu2", "final_logit_softcapping": 15.0})",
    .describe = describe_nanochat,
};

}  // namespace penstock

// Falcon-H1: in every layer attention and a scan of Mamba 2 read the same norm of the stream, each
// times a factor; their outputs, keys, gates and the parts of the scan's projection have factors,
// too.
#include <nlohmann/json.hpp>

#include "model/arch/scans.h"

namespace penstock {

namespace {

constexpr float kMost = 1e6f;

float multiplier(ConfigReader& reader, std::string_view key) {
  return reader.number({"", key}, -kMost, kMost, 1.0f);
}

// Reads a list of numbers into variables; absent: no effect.
void read_list(ConfigReader& reader, std::string_view key, std::initializer_list<float*> out) {
  if (!reader.has({"", key})) return;
  const std::vector<float> list = reader.numbers({"", key}, out.size());
  if (list.size() != out.size() ||
      std::ranges::any_of(list, [](float x) { return std::abs(x) > kMost; })) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected {} numbers up to {}, got {}", key, out.size(),
                                   kMost, fmt::join(list, ", ")));
  }
  size_t i = 0;
  for (float* place : out) *place = list[i++];
}

void read_multipliers(ConfigReader& reader, ModelConfig& config) {
  config.embedding.scale = multiplier(reader, "embedding_multiplier");
  config.output.scale = multiplier(reader, "lm_head_multiplier");
  config.attention.in_factor = multiplier(reader, "attention_in_multiplier");
  config.attention.out_factor = multiplier(reader, "attention_out_multiplier");
  config.attention.key_factor = multiplier(reader, "key_multiplier");
  read_list(reader, "mlp_multipliers", {&config.ffn.gate_factor, &config.ffn.down_factor});
}

ScanConfig::Factors read_scan_multipliers(ConfigReader& reader) {
  ScanConfig::Factors by;
  by.in = multiplier(reader, "ssm_in_multiplier");
  by.out = multiplier(reader, "ssm_out_multiplier");
  read_list(reader, "ssm_multipliers", {&by.z, &by.x, &by.b, &by.c, &by.step});
  return by;
}

void configure_falcon_h1(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: scans are known with silu only");
  for (const std::string_view key : {"layer_types", "layers_block_type"}) {
    const nlohmann::json* kinds = reader.find({"", key});
    if (kinds == nullptr) continue;
    for (const nlohmann::json& kind : *kinds) {
      if (kind == "hybrid") continue;
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format(
              "{}: expected hybrid for every layer, got {}", key,
              kind.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 60)));
    }
  }
  read_multipliers(reader, config);
  ScanConfig of_scan = read_scan(reader, config);
  of_scan.factors = read_scan_multipliers(reader);
  of_scan.norm = reader.gguf() ? reader.has_tensor("blk.0.ssm_norm.weight")
                               : reader.flag({"", "mamba_rms_norm"}, false);
  of_scan.norm_before_gate =
      reader.flag({"", "mamba_norm_before_gate"}, !reader.gguf()) && of_scan.norm;
  const std::shared_ptr<const Mixer> mixer = scan(of_scan);
  for (LayerConfig& layer : config.layers) layer.mixer = mixer;
}

void falcon_h1_gguf_names(NameTable& names, const ModelConfig&) {
  names.bare_norms = {&tensor::kFfnNorm};
}

void describe_falcon_h1(ConfigWriter& writer, const ModelConfig& config) {
  describe_scans(writer, config);
  const ScanConfig& of_scan = *scan_config(config);
  writer.set({"attention.head_count_kv", ""}, config.n_kv_heads);
  writer.set({"", "mamba_d_ssm"}, of_scan.values());
  writer.set({"", "mamba_rms_norm"}, of_scan.norm);
  writer.set({"", "mamba_norm_before_gate"}, of_scan.norm_before_gate);
}

}  // namespace

extern constinit const Architecture kFalconH1 = {
    .name = "falcon-h1",
    .title = "Falcon-H1",
    .hf_types = {"falcon_h1", "FalconH1ForCausalLM"},
    .configure = configure_falcon_h1,
    .hf_names = bamba_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_d_state": 256,
    "max_position_embeddings": 8192})",
    .describe = describe_falcon_h1,
    .gguf_names = falcon_h1_gguf_names,
    .gguf_multiplied = true,
};

}  // namespace penstock

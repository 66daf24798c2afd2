// Llama 4 (text): chunked attention in layers with rotation, queries that grow with the position in
// the others, experts that read their input times the score, and one shared expert. GGUF files have
// the published models' chunks and growth without keys for them.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr int kPublishedChunk = 8192, kPublishedFloor = 8192, kPublishedInterval = 4;

constexpr float kPublishedGrowth = 0.1f;

// GGUF: the model with this many experts has no norms on q and k
constexpr int kExpertsWithoutNorm = 128;
constexpr Key kStep{"interleave_moe_layer_step", "interleave_moe_layer_step"};

// Checks that a list has one entry for each layer.
bool has_all_layers(ConfigReader& reader, const ModelConfig& config, std::string_view key,
                    size_t got) {
  if (got >= config.layers.size()) return true;
  reader.fail(ErrorCode::kCorruptFile,
              fmt::format("{}: expected {} entries, got {}", key, config.layers.size(), got));
  return false;
}

// Reads which layers are rotated; an empty list: none.
void read_rotation(ConfigReader& reader, ModelConfig& config, bool everywhere) {
  const int interval =
      reader.integer({"", "no_rope_layer_interval"}, 1, kMaxContextLength, kPublishedInterval);
  const std::vector<float> rotated = reader.numbers({"", "no_rope_layers"}, 1024);
  if (!rotated.empty() && !has_all_layers(reader, config, "no_rope_layers", rotated.size())) return;
  for (int i = 0; i < config.n_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool rotates =
        everywhere || (rotated.empty() ? (i + 1) % interval != 0 : rotated[at] != 0.0f);
    config.layers[at].rope = rotates ? 0 : -1;
  }
}

void set_chunk(LayerConfig& layer, bool chunked, int chunk) {
  layer.window = chunked ? chunk : 0;
  layer.chunked = chunked;
}

// Without a list, rotated layers have chunks.
void read_chunks(ConfigReader& reader, ModelConfig& config) {
  const int chunk =
      reader.integer({"", "attention_chunk_size"}, 1, kMaxContextLength, kPublishedChunk);
  const nlohmann::json* types = reader.find({"attention.sliding_window_pattern", "layer_types"});
  const bool listed = types != nullptr && types->is_array();
  if (listed && !has_all_layers(reader, config, "layer types", types->size())) return;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    bool chunked = config.layers[i].rope >= 0;
    if (listed) {
      const nlohmann::json& type = (*types)[i];
      chunked = type == true || type == 1 || type == "chunked_attention";
      if (type.is_string() && !chunked && type != "full_attention") {
        return reader.fail(
            ErrorCode::kUnsupported,
            fmt::format(
                "layer_types: expected chunked_attention or full_attention, got {}",
                type.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 60)));
      }
    }
    set_chunk(config.layers[i], chunked, chunk);
  }
}

// Reads a flag, or a number (as first published), of which nonzero is true.
bool grows(ConfigReader& reader) {
  const nlohmann::json* tuned = reader.find({"", "attn_temperature_tuning"});
  return tuned != nullptr && tuned->is_number()
             ? *tuned != 0
             : reader.flag({"", "attn_temperature_tuning"}, true);
}

void read_growth(ConfigReader& reader, ModelConfig& config) {
  config.attention.query_scale.beta =
      reader.number({"", "attn_scale"}, 0.0f, 1e3f, kPublishedGrowth);
  config.attention.query_scale.period =
      reader.number({"", "floor_scale"}, 1e-3f, 1e9f, kPublishedFloor);
  config.attention.query_scale.offset = 1;
  const bool tuned = grows(reader);
  for (LayerConfig& layer : config.layers) layer.query_scale = tuned && layer.rope < 0;
}

void read_llama4_experts(ConfigReader& reader, ModelConfig& config) {
  read_experts(reader, config);
  ExpertRouting& routing = config.experts.routing;
  routing.score = RouterScore::kSigmoid;
  routing.normalize = false;
  routing.weigh_input = true;
  config.experts.shared_dim = config.experts.ffn_dim;
  config.ffn_dim =
      reader.integer({"feed_forward_length", "intermediate_size_mlp"}, 1, 1 << 20, 16384);
  const bool listed = reader.has({"", "moe_layers"});
  const std::vector<int> mixtures = reader.integers({"", "moe_layers"}, 0, 1 << 20);
  const int step = listed ? 1 : reader.integer(kStep, 1, kMaxContextLength, 1);
  for (int i = 0; i < config.n_layers; ++i) {
    config.layers[static_cast<size_t>(i)].moe =
        listed ? std::ranges::find(mixtures, i) != mixtures.end() : (i + 1) % step == 0;
  }
}

void configure_llama4(ConfigReader& reader, ModelConfig& config) {
  config.positions.rope_interleaved = true;
  // A window of 0 in GGUF: no layer has chunks, and all are rotated.
  const Key window{"attention.sliding_window", ""};
  const bool full = reader.has(window) && reader.integer(window, 0, kMaxContextLength, 0) == 0;
  read_rotation(reader, config, full);
  read_chunks(reader, config);
  if (full) {
    for (LayerConfig& layer : config.layers) set_chunk(layer, false, 0);
  }
  read_growth(reader, config);
  read_llama4_experts(reader, config);
  const bool norms = reader.gguf() ? config.experts.count != kExpertsWithoutNorm
                                   : reader.flag({"", "use_qk_norm"}, true);
  if (norms) config.attention.qk_norm = QkNorm::kPlain;
  config.attention.rope_before_norm = true;
}

void describe_llama4(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> mixtures, rotated;
  nlohmann::json types = nlohmann::json::array();
  int chunk = 0;
  bool tuned = false;
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (layer.moe) mixtures.push_back(i);
    rotated.push_back(layer.rope >= 0 ? 1 : 0);
    types.push_back(layer.chunked ? "chunked_attention" : "full_attention");
    chunk = std::max(chunk, layer.window);
    tuned |= layer.query_scale;
  }
  const int dense = config.ffn_dim > 0 ? config.ffn_dim : config.experts.ffn_dim;
  writer.set({"", "intermediate_size"}, config.experts.ffn_dim);
  writer.set({"feed_forward_length", "intermediate_size_mlp"}, dense);
  writer.set({"expert_feed_forward_length", ""}, config.experts.ffn_dim);
  // The first mixture gives the interval of the others. An irregular list is detected when the
  // written configuration is read back.
  writer.set({kStep.gguf, ""}, mixtures.empty() ? config.n_layers + 1 : mixtures.front() + 1);
  writer.set({"", "moe_layers"}, mixtures);
  writer.set({"", "no_rope_layers"}, rotated);
  writer.set({"", "layer_types"}, types);
  if (chunk > 0) writer.set({"", "attention_chunk_size"}, chunk);
  if (chunk == 0) writer.set({"attention.sliding_window", ""}, 0);
  writer.set({"", "attn_temperature_tuning"}, tuned);
  writer.set({"", "attn_scale"}, config.attention.query_scale.beta);
  writer.set({"", "floor_scale"}, config.attention.query_scale.period);
  writer.set({"", "use_qk_norm"}, config.attention.qk_norm != QkNorm::kNone);
  writer.erase({"", "num_experts"});
  writer.erase({"", "moe_intermediate_size"});
  writer.erase({"", "norm_topk_prob"});
  writer.erase({"", "sliding_window"});
  writer.set({"", "num_local_experts"}, config.experts.count);
}

void llama4_names(NameTable& names, const ModelConfig&) {
  names[tensor::kGate] = "feed_forward.gate_proj", names[tensor::kUp] = "feed_forward.up_proj";
  names[tensor::kDown] = "feed_forward.down_proj", names[tensor::kRouter] = "feed_forward.router";
  names[tensor::kExpertGateUp] = "feed_forward.experts.gate_up_proj";
  names[tensor::kExpertDown] = "feed_forward.experts.down_proj";
  names.experts_transposed = true;
  names[tensor::kSharedGate] = "feed_forward.shared_expert.gate_proj";
  names[tensor::kSharedUp] = "feed_forward.shared_expert.up_proj";
  names[tensor::kSharedDown] = "feed_forward.shared_expert.down_proj";
}

constexpr MeaningfulKey kLlama4Keys[] = {{{"", "no_rope_layers"}, 0},
                                         {{"", "attention_chunk_size"}, 0}};

}  // namespace

extern constinit const Architecture kLlama4 = {
    .name = "llama4",
    .title = "Llama 4 (text, also of `llama4`)",
    .hf_types = {"llama4_text", "Llama4ForCausalLM", "llama4", "Llama4ForConditionalGeneration"},
    .configure = configure_llama4,
    .hf_names = llama4_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "intermediate_size": 8192, "num_local_experts": 16, "num_experts_per_tok": 1})",
    .describe = describe_llama4,
    .own_keys = kLlama4Keys,
};

}  // namespace penstock

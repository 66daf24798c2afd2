// Encoders with bidirectional attention: BERT, DistilBERT, ALBERT; RoBERTa and XLM-R, whose positions begin
// after the padding's; Jina v3 (rotated), Nomic-BERT and GTE (rotated, with gates); ModernBERT
// (norms before sub-layers, windows in most layers); EuroBERT, which is Llama.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"
#include "model/forward/decoder.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr int kMostTokens = 1 << 24;

}  // namespace

void configure_encoder(ConfigReader& reader, ModelConfig& config) {
  config.attention.causal = false;
  config.output.has_head = false;
  config.embedding.tied = true;
  read_layer_norm(reader, config);
  config.embedding.norm = true;
  if (reader.flag({"", "is_decoder"}, false))
    reader.fail(ErrorCode::kUnsupported,
                "is_decoder: only encoders are known of this architecture");
  if (reader.flag({"attention.causal", ""}, false))
    reader.fail(ErrorCode::kUnsupported, "attention.causal: expected false in an encoder");
}

// GGUF files may omit the count: it is then that of the tensor, if there is one.
void read_token_types(ConfigReader& reader, ModelConfig& config) {
  const Key key{":tokenizer.ggml.token_type_count", "type_vocab_size"};
  const int there = reader.gguf() ? reader.rows_of("token_types.weight") : 2;
  config.embedding.n_token_types = reader.integer(key, 0, kMostTokens, there);
}

void configure_bert(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.residual.norms = NormPlacement::kAfter;
  config.ffn.gated = false;
  config.positions.learned = true;
  if (reader.gguf()) config.ffn.activation = Activation::kGelu;
  drop_ropes(config);
  read_token_types(reader, config);
  const std::string kind = reader.text({"", "position_embedding_type"}, "absolute");
  if (kind != "absolute") {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("position_embedding_type: expected absolute, got '{}'", kind));
  }
}

// The first rows of the position table are unused; GGUF files omit them.
void configure_roberta(ConfigReader& reader, ModelConfig& config) {
  configure_bert(reader, config);
  const int padding = reader.integer({"", "pad_token_id"}, 0, kMostTokens, 1);
  if (padding + 1 >= config.max_seq_len) {
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("max_position_embeddings: expected more than pad_token_id + 1 = {}, got {}",
                    padding + 1, config.max_seq_len));
  }
  config.positions.first = padding + 1;
  config.positions.uncounted = padding;
  config.max_seq_len -= config.positions.first;
}

void bert_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"", "bert.", "roberta.", "electra."};
  names.embedding = "embeddings.word_embeddings",
  names.positions = "embeddings.position_embeddings";
  names.token_types = "embeddings.token_type_embeddings",
  names.embedding_norm = "embeddings.LayerNorm";
  names.final_norm = "", names.layer = "encoder.layer.{}.";
  names[tensor::kQ] = "attention.self.query", names[tensor::kK] = "attention.self.key",
  names[tensor::kV] = "attention.self.value";
  names[tensor::kO] = "attention.output.dense",
  names[tensor::kAttnNorm] = "attention.output.LayerNorm";
  names[tensor::kUp] = "intermediate.dense", names[tensor::kDown] = "output.dense",
  names[tensor::kFfnNorm] = "output.LayerNorm";
}

void bert_gguf_names(NameTable& names, const ModelConfig&) {
  names.embedding_norm = "token_embd_norm", names.positions = "position_embd";
  names.token_types = "token_types", names.final_norm = "";
  names[tensor::kAttnNorm] = "attn_output_norm", names[tensor::kFfnNorm] = "layer_output_norm";
}

namespace {

// Tables of embeddings may be narrower than the model.
void read_embedding_width(ConfigReader& reader, ModelConfig& config) {
  const int width = reader.integer({"", "embedding_size"}, 1, 1 << 20, 128);
  if (width != config.model_dim) config.embedding.width = width;
}

void configure_electra(ConfigReader& reader, ModelConfig& config) {
  configure_bert(reader, config);
  read_embedding_width(reader, config);
}

void configure_albert(ConfigReader& reader, ModelConfig& config) {
  configure_bert(reader, config);
  for (size_t i = 1; i < config.layers.size(); ++i) config.layers[i].weights_layer = 0;
  // The projection is there even where it changes no width.
  config.embedding.width = reader.integer({"", "embedding_size"}, 1, 1 << 20, 128);
  for (const std::string_view key : {"num_hidden_groups", "inner_group_num"})
    if (reader.integer({"", key}, 1, 1 << 20, 1) != 1)
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected 1", key));
}

void electra_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.embedding_projection = "embeddings_project";
}

void albert_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "albert."};
  names.embedding_projection = "encoder.embedding_hidden_mapping_in";
  names.layer = "encoder.albert_layer_groups.0.albert_layers.0.";
  names[tensor::kQ] = "attention.query", names[tensor::kK] = "attention.key";
  names[tensor::kV] = "attention.value", names[tensor::kO] = "attention.dense";
  names[tensor::kAttnNorm] = "attention.LayerNorm";
  names[tensor::kUp] = "ffn", names[tensor::kDown] = "ffn_output";
  names[tensor::kFfnNorm] = "full_layer_layer_norm";
}

void distilbert_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "distilbert."};
  names.layer = "transformer.layer.{}.";
  names[tensor::kQ] = "attention.q_lin", names[tensor::kK] = "attention.k_lin",
  names[tensor::kV] = "attention.v_lin";
  names[tensor::kO] = "attention.out_lin", names[tensor::kAttnNorm] = "sa_layer_norm";
  names[tensor::kUp] = "ffn.lin1", names[tensor::kDown] = "ffn.lin2",
  names[tensor::kFfnNorm] = "output_layer_norm";
}

constexpr std::string_view kNomicPrefixes[] = {"", "nomic_bert.", "bert.", "model."};

// Experts without gates in the second of every n layers; no layer has gates.
void read_nomic_experts(ConfigReader& reader, ModelConfig& config) {
  const auto every =
      static_cast<size_t>(reader.integer({"moe_every_n_layers", "moe_every_n_layers"}, 2, 1024));
  config.ffn.gated = false;
  read_experts(reader, config);
  config.experts.ffn_dim = config.ffn_dim;
  config.experts.routing.normalize = false;
  for (const std::string_view key : {"moe_normalize_expert_weights", "expert_choice_router"})
    reader.expect_flag(key, false);
  if (reader.integer({"", "num_shared_experts"}, 0, 1024, 0) > 0)
    reader.fail(ErrorCode::kUnsupported, "num_shared_experts: expected 0");
  for (size_t i = 0; i < config.layers.size(); ++i) config.layers[i].moe = i % every == 1;
  config.experts.zero_bias = std::ranges::any_of(kNomicPrefixes, [&](std::string_view prefix) {
    return reader.has_tensor(std::string(prefix) + "encoder.layers.1.mlp.experts.bias");
  });
}

void configure_nomic_bert(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.residual.norms = NormPlacement::kAfter;
  const bool moe = reader.integer({"moe_every_n_layers", "moe_every_n_layers"}, 0, 1024, 0) > 0;
  config.ffn.activation = moe ? Activation::kGelu : Activation::kSilu;
  const std::string activation = reader.text({"", "hidden_act"}, moe ? "gelu" : "silu");
  if (moe ? activation != "gelu" : activation != "silu" && activation != "swiglu") {
    reader.fail(ErrorCode::kUnsupported, fmt::format("activation: expected {}, got '{}'",
                                                     moe ? "gelu" : "silu or swiglu", activation));
  }
  read_token_types(reader, config);
  const auto refuse = [&](std::string_view key, bool wanted) {
    if (reader.flag({"", key}, wanted) != wanted)
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}", key, wanted));
  };
  for (const std::string_view key : {"prenorm", "rotary_emb_interleaved", "parallel_block"})
    refuse(key, false);
  if (reader.number({"", "rotary_emb_fraction"}, 0.0f, 1.0f, 1.0f) != 1.0f)
    reader.fail(ErrorCode::kUnsupported, "rotary_emb_fraction: expected 1");
  if (moe) read_nomic_experts(reader, config);
}

void configure_jina_v3(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.residual.norms = NormPlacement::kAfter;
  config.ffn.gated = false;
  read_token_types(reader, config);
}

void jina_v3_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.embedding_norm = "emb_ln", names.layer = "encoder.layers.{}.";
  names[tensor::kQkv] = "mixer.Wqkv", names[tensor::kO] = "mixer.out_proj";
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
  names[tensor::kAttnNorm] = "norm1", names[tensor::kFfnNorm] = "norm2";
}

void configure_gte(ConfigReader& reader, ModelConfig& config) {
  configure_jina_v3(reader, config);
  config.ffn.gated = true;
  reader.expect_text("position_embedding_type", "rope");
  reader.expect_text("layer_norm_type", "layer_norm");
  reader.expect_flag("logn_attention_scale", false);
}

void gte_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "gte.", "new."};
  names[tensor::kQkv] = "attention.qkv_proj", names[tensor::kO] = "attention.o_proj";
  names[tensor::kQ] = "attention.q_proj", names[tensor::kK] = "attention.k_proj";
  names[tensor::kV] = "attention.v_proj";
  names[tensor::kGateUp] = "mlp.up_gate_proj", names.up_before_gate = true,
  names[tensor::kDown] = "mlp.down_proj";
  names[tensor::kAttnNorm] = "attn_ln", names[tensor::kFfnNorm] = "mlp_ln";
}

void configure_eurobert(ConfigReader&, ModelConfig& config) {
  config.attention.causal = config.output.has_head = false;
  config.embedding.tied = true;
}

// Encoders that are Llama, each head of whose fused projection is query, key and value.
void configure_neo_bert(ConfigReader& reader, ModelConfig& config) {
  configure_eurobert(reader, config);
  config.attention.qkv_by_group = true;
  config.positions.rope_interleaved = true;
  // Converters state two thirds of the width; checkpoints round it up to a multiple of 8.
  const int rows = reader.gguf() ? reader.rows_of("blk.0.ffn_up.weight") : 0;
  if (rows > 1) config.ffn_dim = rows / 2;
  reader.expect_flag("rms_norm", true);
  reader.expect_flag("rope", true);
  reader.expect_flag("ngpt", false);
}

// Gates have two thirds of the features that config.json says.
void neo_bert_usual(json& object) {
  const auto activation = object.find("hidden_act");
  if (activation != object.end() && *activation == "SwiGLU") *activation = "silu";
  const auto width = object.find("intermediate_size");
  if (width == object.end() || !width->is_number_integer()) return;
  const auto all = width->get<int64_t>();
  if (all > 0 && all < 1 << 24) *width = (2 * all / 3 + 7) / 8 * 8;
}

void neo_bert_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"", "model."};
  names.embedding = "encoder", names.final_norm = "layer_norm",
  names.layer = "transformer_encoder.{}.";
  names[tensor::kQkv] = "qkv", names[tensor::kO] = "wo",
  names[tensor::kAttnNorm] = "attention_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kGateUp] = "ffn.w12", names[tensor::kDown] = "ffn.w3";
}

void neo_bert_gguf_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "enc.output_norm";
}

void nomic_bert_names(NameTable& names, const ModelConfig& config) {
  names.prefixes.assign(std::begin(kNomicPrefixes), std::end(kNomicPrefixes));
  names.embedding = "embeddings.word_embeddings",
  names.token_types = "embeddings.token_type_embeddings";
  names.final_norm = "", names.embedding_norm = "emb_ln", names.layer = "encoder.layers.{}.";
  names[tensor::kQkv] = "attn.Wqkv", names[tensor::kO] = "attn.out_proj",
  names[tensor::kAttnNorm] = "norm1", names[tensor::kFfnNorm] = "norm2";
  names[tensor::kUp] = "mlp.fc11", names[tensor::kGate] = "mlp.fc12",
  names[tensor::kDown] = "mlp.fc2";
  if (config.experts.count == 0) return;
  names[tensor::kUp] = "mlp.fc1", names[tensor::kGate] = "";
  names[tensor::kRouter] = "mlp.router.layer";
  names.experts_flat = true;
  names[tensor::kExpertUp] = "mlp.experts.mlp.w1";
  names[tensor::kExpertDown] = "mlp.experts.mlp.w2";
  names[tensor::kExpertsZero] = "mlp.experts.bias";
}

// Reads rope 0 for layers with full attention and rope 1 for layers with a window.
void read_modern_ropes(ConfigReader& reader, ModelConfig& config) {
  RopeConfig full = config.ropes[0], local = full;
  if (reader.gguf()) {
    local.theta = reader.number({"rope.freq_base_swa", ""}, 1.0f, 1e12f, full.theta);
  } else if (const json* given = reader.find({"", "rope_parameters"}); given != nullptr) {
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      RopeConfig& rope = kind[0] == 'f' ? full : local;
      const json none = {{"rope_type", "default"}};
      const bool has = given->is_object() && given->contains(kind) && (*given)[kind].is_object();
      rope = read_hf_rope(reader, has ? (*given)[kind] : none, config,
                          kind[0] == 'f' ? 160000.0f : 10000.0f);
    }
  } else {
    full.theta = reader.number({"", "global_rope_theta"}, 1.0f, 1e12f, 160000.0f);
    local.theta = reader.number({"", "local_rope_theta"}, 1.0f, 1e12f, 10000.0f);
  }
  config.ropes = {full, local};
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void configure_modern_bert(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.norm.biases = reader.flag({"", "norm_bias"}, false);
  config.residual.first_norm = false;
  config.ffn.activation = Activation::kGelu;
  const std::string activation = reader.text({"hidden_activation", "hidden_activation"}, "gelu");
  if (activation == "silu") config.ffn.activation = Activation::kSilu;
  if (activation != "silu" && activation != "gelu")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("activation: expected gelu or silu, got '{}'", activation));
  // Window size in tokens, half on each side.
  const int local =
      reader.integer({"attention.sliding_window", "local_attention"}, 1, kMostTokens, 128);
  const Key pattern{"attention.sliding_window_pattern", "global_attn_every_n_layers"};
  const int every = reader.integer(pattern, 1, kMostTokens, 3);
  const json* types = reader.find({"", "layer_types"});
  const bool listed = types != nullptr && types->is_array();
  if (listed && types->size() != config.layers.size()) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_types: expected {} entries, got {}", config.layers.size(),
                                   types->size()));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool full =
        listed ? (*types)[i] == "full_attention" : i % static_cast<size_t>(every) == 0;
    if (listed && !full && (*types)[i] != "sliding_attention") {
      return reader.fail(ErrorCode::kUnsupported,
                         "layer_types: expected full_attention or sliding_attention");
    }
    config.layers[i].window = full ? 0 : local / 2 + 1;
  }
  read_modern_ropes(reader, config);
}

void modern_bert_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"", "model."};
  names.embedding = "embeddings.tok_embeddings", names.embedding_norm = "embeddings.norm";
  names.final_norm = "final_norm", names[tensor::kAttnNorm] = "attn_norm",
  names[tensor::kFfnNorm] = "mlp_norm";
  names[tensor::kQkv] = "attn.Wqkv", names[tensor::kO] = "attn.Wo",
  names[tensor::kGateUp] = "mlp.Wi", names[tensor::kDown] = "mlp.Wo";
  names[tensor::kGate] = "mlp.gate", names[tensor::kUp] = "mlp.up";
}

void modern_bert_gguf_names(NameTable& names, const ModelConfig&) {
  names.embedding_norm = "token_embd_norm";
}

}  // namespace

// The stream is normed after each sub-layer.
StepOutputs bert_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const bool twice = config.residual.adds_twice;
  const Tensor before = twice ? ops.new_tensor(shape.tokens, config.model_dim) : Tensor();
  DecoderParts encoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  const NormedInput input{x, {}, x};
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    if (twice) ops.copy(x, before);
    encoder.attention(i, input, x, nullptr);
    ops.norm(x, norm_params(config, layer.attn_norm), x);
    if (twice) {
      ops.add(x, before, 1.0f);
      ops.norm(x, norm_params(config, layer.attn_again_norm), x);
    }
    encoder.feed_forward(i, input, x, nullptr);
    ops.norm(x, norm_params(config, layer.ffn_norm), x);
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

namespace {

constexpr std::string_view kBertDefaults =
    R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "intermediate_size": 3072, "max_position_embeddings": 512})";

}  // namespace

extern constinit const Architecture kBert = {
    .name = "bert",
    .title = "BERT (encoder)",
    .hf_types = {"bert", "BertModel"},
    .configure = configure_bert,
    .hf_names = bert_names,
    .forward = bert_forward,
    .hf_defaults = kBertDefaults,
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kRoberta = {
    .name = "roberta",
    .title = "RoBERTa, XLM-R, CamemBERT (encoders)",
    .hf_types = {"roberta", "RobertaModel", "xlm-roberta", "camembert"},
    .gguf_name = "bert",
    .configure = configure_roberta,
    .hf_names = bert_names,
    .forward = bert_forward,
    .hf_defaults = kBertDefaults,
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kDistilBert = {
    .name = "distilbert",
    .title = "DistilBERT (encoder)",
    .hf_types = {"distilbert", "DistilBertModel"},
    .gguf_name = "bert",
    .configure = configure_bert,
    .hf_names = distilbert_names,
    .forward = bert_forward,
    .hf_defaults =
        R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "type_vocab_size": 0})",
    .hf_aliases = R"({"dim": "hidden_size", "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size", "activation": "hidden_act"})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kElectra = {
    .name = "electra",
    .title = "ELECTRA (encoder)",
    .hf_types = {"electra", "ElectraModel"},
    .directories_only = true,
    .configure = configure_electra,
    .hf_names = electra_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "intermediate_size": 1024, "max_position_embeddings": 512})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kAlbert = {
    .name = "albert",
    .title = "ALBERT (encoder)",
    .hf_types = {"albert", "AlbertModel"},
    .directories_only = true,
    .configure = configure_albert,
    .hf_names = albert_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu_new", "layer_norm_eps": 1e-12,
    "intermediate_size": 16384, "max_position_embeddings": 512})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kJinaV3 = {
    .name = "jina-v3",
    .title = "Jina Embeddings v3 (encoder)",
    .hf_types = {"jina_embeddings_v3", "JinaEmbeddingsV3Model"},
    .directories_only = true,
    .configure = configure_jina_v3,
    .hf_names = jina_v3_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-5,
    "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1, "rope_theta": 2e4})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kGte = {
    .name = "gte",
    .title = "GTE (encoder)",
    .hf_types = {"gte", "GteModel", "new", "NewModel"},
    .directories_only = true,
    .configure = configure_gte,
    .hf_names = gte_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "intermediate_size": 3072, "max_position_embeddings": 8192, "type_vocab_size": 1, "rope_theta": 1.6e5})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kEuroBert = {
    .name = "eurobert",
    .title = "EuroBERT (encoder)",
    .hf_types = {"eurobert", "EuroBertModel"},
    .directories_only = true,
    .configure = configure_eurobert,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "intermediate_size": 3072, "max_position_embeddings": 8192})",
};

extern constinit const Architecture kNeoBert = {
    .name = "neo-bert",
    .title = "NeoBERT (encoder)",
    .hf_types = {"neobert", "NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification"},
    .configure = configure_neo_bert,
    .hf_names = neo_bert_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-6, "intermediate_size": 2048,
    "max_position_embeddings": 1024, "rope_theta": 1e4})",
    .hf_aliases = R"({"max_length": "max_position_embeddings", "norm_eps": "rms_norm_eps"})",
    .hf_usual = neo_bert_usual,
    .gguf_names = neo_bert_gguf_names,
};

extern constinit const Architecture kNomicBert = {
    .name = "nomic-bert",
    .title = "Nomic-BERT (encoder)",
    .hf_types = {"nomic_bert", "NomicBertModel"},
    .configure = configure_nomic_bert,
    .hf_names = nomic_bert_names,
    .forward = bert_forward,
    .hf_defaults =
        R"({"layer_norm_eps": 1e-12, "rope_theta": 1000.0, "intermediate_size": 3072, "max_position_embeddings": 2048})",
    .hf_aliases =
        R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta",
    "layer_norm_epsilon": "layer_norm_eps", "activation_function": "hidden_act",
    "moe_top_k": "num_experts_per_tok"})",
    .gguf_names = bert_gguf_names,
};

// The GGUF name of those with experts; the row above reads their config.json files.
extern constinit const Architecture kNomicBertMoe = {
    .name = "nomic-bert-moe",
    .title = "Nomic-BERT with experts (encoder)",
    .hf_types = {"nomic_bert", "NomicBertModel"},
    .configure = configure_nomic_bert,
    .hf_names = nomic_bert_names,
    .forward = bert_forward,
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kModernBert = {
    .name = "modern-bert",
    .title = "ModernBERT (encoder)",
    .hf_types = {"modernbert", "ModernBertModel"},
    .configure = configure_modern_bert,
    .hf_names = modern_bert_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"layer_norm_eps": 1e-5, "intermediate_size": 1152, "max_position_embeddings": 8192})",
    .hf_aliases = R"({"norm_eps": "layer_norm_eps"})",
    .gguf_names = modern_bert_gguf_names,
};

}  // namespace penstock

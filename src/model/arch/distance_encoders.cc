// Encoders whose scores have terms by the distance of two tokens: MPNet (a number for each head),
// DeBERTa v2 and v3 (products with embeddings of distances), Jina v2 (ALiBi).
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// Columns of T5's relative positions: half for each direction, of which half are single distances
// and the others grow with the logarithm up to 128.
void configure_mpnet(ConfigReader& reader, ModelConfig& config) {
  configure_roberta(reader, config);
  constexpr int kReach = 128, kColumns = 32, kEach = kColumns / 2, kSingle = kEach / 2;
  const int n = reader.integer({"", "relative_attention_num_buckets"}, 1, 1 << 20, kColumns);
  if (n != kColumns)
    return reader.fail(ErrorCode::kUnsupported,
                       fmt::format("relative_attention_num_buckets: expected {} (transformers "
                                   "computes no others), got {}",
                                   kColumns, n));
  RelativeConfig& relative = config.attention.relative;
  relative.n_columns = kColumns;
  for (int distance = -kReach; distance <= kReach; ++distance) {
    const int size = std::abs(distance);
    // The sum with 1e-6 is above a whole number where float's rounding is.
    const int grown =
        kSingle + static_cast<int>(std::log(std::max(size, 1) / double{kSingle}) /
                                       std::log(double{kReach} / kSingle) * (kEach - kSingle) +
                                   1e-6);
    relative.columns.push_back((distance > 0 ? kEach : 0) +
                               (size < kSingle ? size : std::min(grown, kEach - 1)));
  }
}

// Columns of DeBERTa's distances: single ones up to the middle, then by their logarithm.
std::vector<int> deberta_columns(int n_buckets, int longest) {
  const int span = n_buckets > 0 ? n_buckets : longest, middle = n_buckets / 2;
  std::vector<int> columns;
  for (int distance = -longest - 1; distance <= longest + 1; ++distance) {
    const int size = std::abs(distance);
    // The difference of 1e-6 is below a whole number where float's rounding is.
    const double grown = std::log(size / std::max(double(middle), 1.0)) /
                         std::log((longest - 1) / std::max(double(middle), 1.0)) * (middle - 1);
    const int bucket = n_buckets <= 0 || size <= middle
                           ? size
                           : static_cast<int>(std::ceil(grown - 1e-6)) + middle;
    columns.push_back(std::clamp(span + (distance < 0 ? bucket : -bucket), 0, 2 * span - 1));
  }
  return columns;
}

void configure_deberta(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.residual.norms = NormPlacement::kAfter;
  config.ffn.gated = false;
  drop_ropes(config);
  read_token_types(reader, config);
  for (const std::string_view key : {"relative_attention", "share_att_key"})
    if (!reader.flag({"", key}, false))
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected true", key));
  if (reader.flag({"", "position_biased_input"}, true))
    reader.fail(ErrorCode::kUnsupported, "position_biased_input: expected false");
  if (reader.integer({"", "conv_kernel_size"}, 0, 1024, 0) > 0)
    reader.fail(ErrorCode::kUnsupported, "conv_kernel_size: expected 0 (no convolution)");
  for (const auto& [key, whole] : {std::pair{"embedding_size", config.model_dim},
                                   std::pair{"attention_head_size", config.head_dim}})
    if (const int n = reader.integer({"", key}, 1, 1 << 20, whole); n != whole)
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}, got {}", key, whole, n));
  RelativeConfig& relative = config.attention.relative;
  // "p2c|c2p", or a list of the two
  const nlohmann::json* kinds_there = reader.find({"", "pos_att_type"});
  const std::string kinds = kinds_there == nullptr ? "" : kinds_there->dump(),
                    norm = reader.text({"", "norm_rel_ebd"}, "none");
  relative.by_query = kinds.find("c2p") != std::string::npos;
  relative.by_key = kinds.find("p2c") != std::string::npos;
  relative.norm = norm == "layer_norm";
  if (!relative.norm && norm != "none")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("norm_rel_ebd: expected layer_norm or none, got '{}'", norm));
  if (!relative.has_embeddings())
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("pos_att_type: expected c2p, p2c or both, got '{}'", kinds));
  constexpr int kMostColumns = 1 << 14;
  int longest = reader.integer({"", "max_relative_positions"}, -1, kMostColumns, -1);
  if (longest < 1) longest = config.max_seq_len;
  const int n_buckets = reader.integer({"", "position_buckets"}, -1, kMostColumns, -1);
  const bool fits = longest <= kMostColumns && (n_buckets < 4 || n_buckets / 2 < longest - 1);
  if (!fits || (n_buckets >= 0 && n_buckets < 4))
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("position_buckets: expected 4 or more, and fewer than twice the {} positions "
                    "(at most {}), got {}",
                    longest, kMostColumns, n_buckets));
  relative.n_columns = 2 * (n_buckets > 0 ? n_buckets : longest);
  relative.columns = deberta_columns(n_buckets, longest);
  config.attention.scale =
      1.0f /
      std::sqrt(static_cast<float>(config.head_dim * (1 + relative.by_query + relative.by_key)));
}

void mpnet_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "mpnet."};
  names[tensor::kRelative] = "encoder.relative_attention_bias";
  names[tensor::kQ] = "attention.attn.q", names[tensor::kK] = "attention.attn.k",
  names[tensor::kV] = "attention.attn.v";
  names[tensor::kO] = "attention.attn.o", names[tensor::kAttnNorm] = "attention.LayerNorm";
}

void deberta_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "deberta."};
  names[tensor::kRelative] = "encoder.rel_embeddings";
  names[tensor::kRelativeNorm] = "encoder.LayerNorm";
  names[tensor::kQ] = "attention.self.query_proj", names[tensor::kK] = "attention.self.key_proj",
  names[tensor::kV] = "attention.self.value_proj";
}

// Whether queries and keys are normed, and the input of a layer is added twice: files say it by
// their tensors, configurations alone by the repository of their code.
bool is_qk_post_norm(ConfigReader& reader) {
  if (reader.has_tensor("blk.0.attn_q_norm.weight")) return true;
  for (const std::string_view prefix : {"", "bert."})
    if (reader.has_tensor(std::string(prefix) +
                          "encoder.layer.0.attention.self.layer_norm_q.weight"))
      return true;
  const nlohmann::json* code = reader.find({"", "auto_map"});
  return code != nullptr && code->dump().find("qk-post-norm") != std::string::npos;
}

void configure_jina_v2(ConfigReader& reader, ModelConfig& config) {
  configure_encoder(reader, config);
  config.residual.norms = NormPlacement::kAfter;
  drop_ropes(config);
  read_token_types(reader, config);
  config.attention.alibi_max_bias = 8.0f;
  config.ffn.activation = Activation::kGelu;
  reader.expect_text("position_embedding_type", "alibi");
  if (const std::string kind = reader.text({"", "feed_forward_type"}, "geglu"); kind == "reglu") {
    config.ffn.activation = Activation::kRelu;
  } else if (kind != "geglu") {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("feed_forward_type: expected geglu or reglu, got '{}'", kind));
  }
  if (!is_qk_post_norm(reader)) return;
  config.attention.qk_norm = QkNorm::kRow;
  config.residual.adds_twice = true;
}

void jina_v2_names(NameTable& names, const ModelConfig& config) {
  bert_names(names, config);
  names.prefixes = {"", "bert."};
  names[tensor::kGateUp] = "mlp.gated_layers", names[tensor::kDown] = "mlp.wo";
  names[tensor::kFfnNorm] = "mlp.layernorm";
  if (!config.residual.adds_twice) return;
  names[tensor::kQNorm] = "attention.self.layer_norm_q";
  names[tensor::kKNorm] = "attention.self.layer_norm_k";
  names[tensor::kFfnNorm] = "layer_norm_2";
  names[tensor::kGateUp] = "mlp.up_gated_layer", names.up_before_gate = true;
  names[tensor::kDown] = "mlp.down_layer";
}

// Converters copy the joined matrix, whose halves have the directory's order.
void jina_v2_gguf_names(NameTable& names, const ModelConfig& config) {
  bert_gguf_names(names, config);
  names.up_before_gate = config.residual.adds_twice;
}

}  // namespace

extern constinit const Architecture kMpnet = {
    .name = "mpnet",
    .title = "MPNet (encoder)",
    .hf_types = {"mpnet", "MPNetModel"},
    .directories_only = true,
    .configure = configure_mpnet,
    .hf_names = mpnet_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12, "intermediate_size": 3072,
    "max_position_embeddings": 512, "type_vocab_size": 0})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kDebertaV2 = {
    .name = "deberta-v2",
    .title = "DeBERTa v2, v3 (encoders)",
    .hf_types = {"deberta-v2", "DebertaV2Model"},
    .directories_only = true,
    .configure = configure_deberta,
    .hf_names = deberta_names,
    .forward = bert_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-7,
    "intermediate_size": 6144, "max_position_embeddings": 512, "type_vocab_size": 0})",
    .gguf_names = bert_gguf_names,
};

extern constinit const Architecture kJinaV2 = {
    .name = "jina-bert-v2",
    .title = "Jina Embeddings v2 (encoder)",
    .hf_types = {"JinaBertModel", "JinaBertForMaskedLM", "JinaBertForSequenceClassification"},
    .named_by_class = true,
    .configure = configure_jina_v2,
    .hf_names = jina_v2_names,
    .forward = bert_forward,
    .hf_defaults = R"({"layer_norm_eps": 1e-12, "intermediate_size": 3072,
    "max_position_embeddings": 512, "position_embedding_type": "absolute"})",
    .gguf_names = jina_v2_gguf_names,
};

}  // namespace penstock

// MiniMax-M2: norms over all heads of q and of k, partial rotation, experts chosen by sigmoid and a
// bias. MiniMax-M3: norms by head, and an indexer that selects blocks of tokens for each KV head.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr std::string_view kM3Sparse = "minimax_m3_sparse";
constexpr int kMostM3Heads = 1024, kMostM3Dim = 4096, kMostM3Block = 1 << 16;
constexpr int kMostM3Blocks = 1 << 12;
constexpr int kUsualM3Dim = 128, kUsualM3Block = 128, kUsualM3Blocks = 16;

void configure_minimax_m2(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kRow;
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("qk_norm_type", "per_layer");
  for (const std::string_view key : {"use_qk_norm", "use_routing_bias"})
    reader.expect_flag(key, true);
  if (reader.integer({"", "shared_intermediate_size"}, 0, 1 << 20, 0) > 0)
    reader.fail(ErrorCode::kUnsupported, "shared_intermediate_size: expected no shared experts");
  int& rotary_dim = config.ropes[0].rotary_dim;
  rotary_dim = reader.integer({"", "rotary_dim"}, 2, config.head_dim, rotary_dim);
  read_experts(reader, config);
  read_sigmoid_routing(reader, config);
}

void minimax_m2_names(NameTable& names, const ModelConfig& config) {
  mixtral_names(names, config);
  names[tensor::kSelectionBias] = "block_sparse_moe.e_score_correction_bias";
}

void describe_minimax_m2(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  writer.erase({"", "num_experts"});
  writer.set({"", "num_local_experts"}, config.experts.count);
  writer.set({"", "scoring_func"}, "sigmoid");
  writer.set({"", "rotary_dim"}, config.ropes[0].rotary_dim);
}

// The keys in which transformers keeps what sparse_attention_config says, with lists by layer that
// are numbers in files as published.
void usual_minimax_m3(json& object) {
  object.erase("hidden_act");  // published as swigluoai, which swiglu_alpha and swiglu_limit define
  const auto kinds = [](const json& numbers, std::string_view if_set, std::string_view otherwise) {
    json list = json::array();
    for (const json& number : numbers)
      list.push_back(number == 0 || number == false ? otherwise : if_set);
    return list;
  };
  const auto experts = object.find("moe_layer_freq");
  if (experts != object.end() && experts->is_array() && !object.contains("mlp_layer_types"))
    object["mlp_layer_types"] = kinds(*experts, "sparse", "dense");
  const auto found = object.find("sparse_attention_config");
  if (found == object.end() || !found->is_object()) return;
  const json sparse = *found;
  for (const auto& [theirs, usual] : {std::pair("sparse_num_index_heads", "index_n_heads"),
                                      std::pair("sparse_index_dim", "index_head_dim"),
                                      std::pair("sparse_block_size", "index_block_size"),
                                      std::pair("sparse_topk_blocks", "index_topk_blocks"),
                                      std::pair("sparse_local_block", "index_local_blocks")})
    if (sparse.contains(theirs)) object[usual] = sparse[theirs];
  const auto layers = sparse.find("sparse_attention_freq");
  if (layers == sparse.end() || !layers->is_array() || object.contains("layer_types")) return;
  const bool none = sparse.value("use_sparse_attention", json(true)) == false;
  constexpr std::string_view kFull = "full_attention";
  object["layer_types"] = kinds(*layers, none ? kFull : kM3Sparse, kFull);
}

// Checks what the usual keys do not say.
void check_sparse_config(ConfigReader& reader, const ModelConfig& config) {
  const json* found = reader.find({"", "sparse_attention_config"});
  if (found == nullptr || !found->is_object()) return;
  const auto fail = [&](std::string_view key, std::string_view what) {
    reader.fail(ErrorCode::kUnsupported, fmt::format("sparse_attention_config.{}: {}", key, what));
  };
  constexpr std::string_view kRead[] = {
      "use_sparse_attention", "sparse_num_index_heads", "sparse_index_dim",     "sparse_block_size",
      "sparse_topk_blocks",   "sparse_local_block",     "sparse_attention_freq"};
  for (const auto& [key, value] : found->items()) {
    if (key == "sparse_score_type") {
      if (value != "max") fail(key, "expected max: blocks are scored by their best token");
    } else if (key == "sparse_init_block") {
      if (value != 0) fail(key, "expected 0: first blocks are selected by their scores");
    } else if (key == "sparse_disable_index_value") {
      for (size_t i = 0; i < config.layers.size(); ++i) {
        const bool disabled = value.is_array() ? i < value.size() && value[i] != 0 : value != 0;
        if (config.layers[i].selecting_layer >= 0 && !disabled)
          return fail(key, "expected 1 in sparse layers: indexers have no values");
      }
    } else if (std::ranges::find(kRead, key) == std::end(kRead)) {
      fail(key, "its meaning is not known");
    }
  }
}

// GGUF files have indexers in layers with experts; their tensors tell.
bool has_indexer(ConfigReader& reader, const json* types, int layer, bool moe) {
  if (reader.gguf())
    return moe || reader.has_tensor(fmt::format("blk.{}.indexer.q_proj.weight", layer));
  return types != nullptr && (*types)[static_cast<size_t>(layer)] == kM3Sparse;
}

void read_block_index(ConfigReader& reader, ModelConfig& config) {
  const json* types = reader.find({"", "layer_types"});
  if (types != nullptr) {
    const auto known = [](const json& type) {
      return type == kM3Sparse || type == "full_attention";
    };
    if (!types->is_array() || types->size() < config.layers.size() ||
        !std::ranges::all_of(*types, known))
      return reader.fail(ErrorCode::kUnsupported,
                         fmt::format("layer_types: expected {} or full_attention for {} layers",
                                     kM3Sparse, config.layers.size()));
  }
  bool any = false;
  for (int i = 0; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (!has_indexer(reader, types, i, layer.moe)) continue;
    layer.selecting_layer = i, any = true;
  }
  if (!any) return;
  IndexerConfig& indexer = config.attention.indexer;
  indexer.n_heads =
      reader.integer({"attention.indexer.head_count", "index_n_heads"}, 1, kMostM3Heads, 4);
  const Key key_size{"attention.indexer.key_length", "index_head_dim"};
  indexer.head_dim = reader.integer(key_size, config.ropes[0].rotary_dim, kMostM3Dim, kUsualM3Dim);
  indexer.block = reader.integer({"attention.indexer.block_size", "index_block_size"}, 1,
                                 kMostM3Block, kUsualM3Block);
  const int n_blocks = reader.integer({"attention.indexer.top_k", "index_topk_blocks"}, 1,
                                      kMostM3Blocks, kUsualM3Blocks);
  // Without the last block, a token might see nothing of itself.
  indexer.n_local =
      reader.integer({"attention.indexer.local_blocks", "index_local_blocks"}, 1, n_blocks, 1);
  indexer.top_k = n_blocks * indexer.block;
  if (indexer.n_heads != config.n_kv_heads)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("index_n_heads: expected one for each of {} KV heads, got {}",
                            config.n_kv_heads, indexer.n_heads));
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected an even number, got {}",
                                                     reader.name(key_size), indexer.head_dim));
}

void read_clamped_silu(ConfigReader& reader, ModelConfig& config) {
  config.ffn.activation = Activation::kClampedSilu;
  config.ffn.activation.parameters[0] = reader.number({"", "swiglu_alpha"}, -1e3f, 1e3f, 1.702f);
  config.ffn.activation.parameters[1] = reader.number({"", "swiglu_limit"}, 1e-3f, 1e6f, 7.0f);
  if (reader.number({"", "swiglu_beta"}, -1e3f, 1e3f, 1.0f) != 1.0f)
    reader.fail(ErrorCode::kUnsupported, "swiglu_beta: expected 1");
}

void configure_minimax_m3(ConfigReader& reader, ModelConfig& config) {
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.attention.qk_norm = QkNorm::kHead;
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("qk_norm_type", "per_head");
  for (const std::string_view key : {"use_qk_norm", "use_routing_bias", "use_gemma_norm"})
    reader.expect_flag(key, true);
  reader.expect_flag("attention_output_gate", false);
  read_clamped_silu(reader, config);
  int& rotary_dim = config.ropes[0].rotary_dim;
  rotary_dim = reader.integer({"", "rotary_dim"}, 2, config.head_dim, rotary_dim);
  read_experts(reader, config);
  read_sigmoid_routing(reader, config);
  const int width = config.experts.ffn_dim;
  const int n_shared = reader.integer({"expert_shared_count", "n_shared_experts"}, 0, 1024, 1);
  const int shared =
      reader.integer({"expert_shared_feed_forward_length", "shared_intermediate_size"}, 0, 1 << 20,
                     std::min(n_shared * width, 1 << 20));
  config.experts.shared_dim = n_shared > 0 ? shared : 0;
  if (!reader.gguf() && n_shared > 1)
    reader.fail(ErrorCode::kUnsupported, "n_shared_experts: expected 0 or 1");
  config.ffn_dim =
      reader.integer({"feed_forward_length", "dense_intermediate_size"}, 1, 1 << 20, 12288);
  if (reader.gguf()) read_dense_layers(reader, config);
  read_mlp_layer_types(reader, config);
  read_block_index(reader, config);
  check_sparse_config(reader, config);
}

void minimax_m3_names(NameTable& names, const ModelConfig& config) {
  minimax_m2_names(names, config);
  names[tensor::kSharedGate] = "block_sparse_moe.shared_experts.gate_proj";
  names[tensor::kSharedUp] = "block_sparse_moe.shared_experts.up_proj";
  names[tensor::kSharedDown] = "block_sparse_moe.shared_experts.down_proj";
}

void describe_minimax_m3(ConfigWriter& writer, const ModelConfig& config) {
  describe_minimax_m2(writer, config);
  const IndexerConfig& indexer = config.attention.indexer;
  writer.set({"expert_feed_forward_length", "intermediate_size"}, config.experts.ffn_dim);
  const int dense = std::max(config.ffn_dim, 1);
  writer.set({"feed_forward_length", "dense_intermediate_size"}, dense);
  writer.set({"", "shared_intermediate_size"}, config.experts.shared_dim);
  const bool shares = config.experts.shared_dim > 0;
  writer.set({"expert_shared_count", ""}, config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"", "n_shared_experts"}, shares ? 1 : 0);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  describe_mlp_layer_types(writer, config);
  writer.set({"", "swiglu_alpha"}, config.ffn.activation.parameters[0]);
  writer.set({"", "swiglu_limit"}, config.ffn.activation.parameters[1]);
  json types = json::array();
  for (const LayerConfig& layer : config.layers)
    types.push_back(layer.selecting_layer >= 0 ? kM3Sparse : "full_attention");
  writer.set({"", "layer_types"}, types);
  if (indexer.top_k == 0) return;
  writer.set({"attention.indexer.head_count", "index_n_heads"}, indexer.n_heads);
  writer.set({"attention.indexer.key_length", "index_head_dim"}, indexer.head_dim);
  writer.set({"attention.indexer.block_size", "index_block_size"}, indexer.block);
  writer.set({"attention.indexer.top_k", "index_topk_blocks"}, indexer.top_k / indexer.block);
  writer.set({"attention.indexer.local_blocks", "index_local_blocks"}, indexer.n_local);
}

}  // namespace

extern constinit const Architecture kMiniMaxM2 = {
    .name = "minimax-m2",
    .title = "MiniMax-M2",
    .hf_types = {"minimax_m2", "MiniMaxM2ForCausalLM"},
    .configure = configure_minimax_m2,
    .hf_names = minimax_m2_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "rope_theta": 5e6, "num_key_value_heads": 8,
    "num_experts_per_tok": 8, "num_local_experts": 256})",
    .describe = describe_minimax_m2,
    .partial_rope = true,
};

namespace {

constexpr MeaningfulKey kM3Keys[] = {
    {{"attention.indexer.block_size", "sparse_attention_config"}, 0}};

}  // namespace

extern constinit const Architecture kMiniMaxM3 = {
    .name = "minimax-m3",
    .title = "MiniMax-M3 (text, also of `minimax_m3_vl`; sparse attention)",
    .hf_types = {"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", "minimax_m3_text",
                 "MiniMaxM3SparseForCausalLM", "minimax_m3_vl",
                 "MiniMaxM3SparseForConditionalGeneration"},
    .configure = configure_minimax_m3,
    .hf_names = minimax_m3_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"head_dim": 128, "rope_theta": 5e6, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
    "num_experts_per_tok": 4, "num_local_experts": 128, "intermediate_size": 3072, "routed_scaling_factor": 2.0,
    "shared_intermediate_size": 3072})",
    .hf_usual = usual_minimax_m3,
    .describe = describe_minimax_m3,
    .partial_rope = true,
    .hf_norms_less_one = true,
    .own_keys = kM3Keys,
};

}  // namespace penstock

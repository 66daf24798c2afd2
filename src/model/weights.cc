#include "model/weights.h"

#include <spdlog/spdlog.h>
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "model/names.h"
#include "model/rope.h"
#include "model/weight_loader.h"

namespace penstock {

Status WeightLoader::load_qkv(const std::string& at, LayerWeights& layer) {
  const int q = config_.q_dim(), kv = config_.kv_dim(), dim = config_.model_dim;
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  if (!names_.qkv.empty() && !config_.attention_gate && has_matrix(name(names_.qkv) + ".weight")) {
    const int rows[] = {q, kv, kv};
    LinearWeights* const parts[] = {&layer.q, &layer.k, &layer.v};
    const std::vector<int> order = config_.qkv_by_group ? rows_by_group(config_) : std::vector<int>();
    return fused(name(names_.qkv), rows, dim, parts, order);
  }
  RETURN_IF_ERROR(linear(name(names_.q), config_.attention_gate ? 2 * q : q, dim, layer.q));
  RETURN_IF_ERROR(linear(name(names_.k), kv, dim, layer.k));
  return linear(name(names_.v), kv, dim, layer.v);
}

Status WeightLoader::load_dense(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const bool separate = !names_.gate.empty() && has_matrix(name(names_.gate) + ".weight");
  const bool both = !names_.gate_up.empty() && has_matrix(name(names_.gate_up) + ".weight");
  if (!config_.gated_ffn) {
    RETURN_IF_ERROR(linear(name(names_.up), config_.ffn_dim, config_.model_dim, layer.up));
  } else if (!separate && both) {
    const int rows[] = {config_.ffn_dim, config_.ffn_dim};
    LinearWeights* const parts[] = {&layer.gate, &layer.up};
    RETURN_IF_ERROR(fused(name(names_.gate_up), rows, config_.model_dim, parts));
  } else {
    RETURN_IF_ERROR(linear(name(names_.gate), config_.ffn_dim, config_.model_dim, layer.gate));
    RETURN_IF_ERROR(linear(name(names_.up), config_.ffn_dim, config_.model_dim, layer.up));
  }
  if (config_.sub_norms)
    RETURN_IF_ERROR(norm(name(names_.ffn_sub_norm), config_.ffn_dim, layer.ffn_sub_norm));
  return linear(name(names_.down), config_.model_dim, config_.ffn_dim, layer.down);
}

Status WeightLoader::experts(const std::string& pattern, int rows, int cols, ExpertWeights& out) {
  RETURN_IF_ERROR(many_weights(pattern, config_.n_experts, rows, cols, out.weights));
  return expert_biases(pattern + ".bias", rows, out.biases);
}

// One tensor for each expert or head, or one [count, rows, cols] for all.
Status WeightLoader::many_weights(const std::string& pattern, int count, int rows, int cols,
                                  std::vector<std::unique_ptr<Weight>>& out) {
  out.resize(static_cast<size_t>(count));
  if (pattern.find("{}") != std::string::npos) {
    for (int e = 0; e < count; ++e) {
      ASSIGN_OR_RETURN(out[e], weight(with_index(pattern, e), rows, cols, WeightUse::kOutput));
    }
    return {};
  }
  for (int e = 0; restores() && e < count; ++e) {
    ASSIGN_OR_RETURN(out[e], restore(pattern + ".weight", e * rows, rows, cols));
  }
  if (restores()) return {};
  if (prequantized_ != nullptr) {
    FileMatrix all;
    ASSIGN_OR_RETURN(const bool found, find_prequantized(pattern, count * rows, cols, all));
    for (int e = 0; found && e < count; ++e) {
      ASSIGN_OR_RETURN(out[e], pack_rows(all, e * rows, rows, pattern + ".weight"));
    }
    if (found && all.tensor != nullptr) done(*all.tensor);
    if (found) return {};
  }
  const int64_t shape[] = {count, rows, cols};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(pattern + ".weight", shape));
  RETURN_IF_ERROR(check_type(*tensor));
  const size_t size = tensor->bytes.size() / static_cast<size_t>(count);
  for (int e = 0; e < count; ++e) {
    const QuantizedMatrix view{tensor->type, rows, cols, tensor->bytes.subspan(e * size, size)};
    ASSIGN_OR_RETURN(out[e], pack(view, tensor->name));
    keep(tensor->name, e * rows, *out[e]);
  }
  done(*tensor);
  return {};
}

// [n_experts, rows] or nothing.
Status WeightLoader::expert_biases(const std::string& name, int rows,
                                   std::vector<std::unique_ptr<Vector>>& out) {
  if (name.find("{}") != std::string::npos || find(name) == nullptr) return {};
  const int64_t shape[] = {config_.n_experts, rows};
  ASSIGN_OR_RETURN(const std::vector<float> values, vector(name, shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    const auto part = std::span(values).subspan(static_cast<size_t>(e) * rows, static_cast<size_t>(rows));
    ASSIGN_OR_RETURN(out.emplace_back(), ops_.pack_vector(part));
  }
  return {};
}

namespace {

// Rows first, first + step, ... of what a tensor holds of an expert.
struct ExpertRows {
  int first, step;
};

QuantizedMatrix gathered(const TensorInfo& tensor, bool transposed, int expert, const ExpertRows& part,
                         int rows, int cols, std::vector<std::byte>& storage) {
  const int64_t all = tensor.shape[1] * tensor.shape[2], width = tensor.shape[2];
  if (!transposed && part.step == 1) {
    const auto bytes = tensor.bytes.subspan(quant_bytes(tensor.type, all) * static_cast<size_t>(expert) +
                                            quant_bytes(tensor.type, part.first * width));
    return {tensor.type, rows, cols, bytes.first(quant_bytes(tensor.type, rows * width))};
  }
  std::vector<float> stored(static_cast<size_t>(all));
  dequantize_row(tensor.type,
                 tensor.bytes.data() + quant_bytes(tensor.type, all) * static_cast<size_t>(expert),
                 stored.data(), all);
  storage.resize(static_cast<size_t>(rows) * cols * sizeof(float));
  float* out = reinterpret_cast<float*>(storage.data());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = part.first + r * part.step;
    for (int64_t c = 0; c < cols; ++c)
      out[r * cols + c] = stored[static_cast<size_t>(transposed ? c * width + row : row * width + c)];
  }
  return {QuantType::kF32, rows, cols, storage};
}

// MXFP4 as published: codes of neighbouring inputs in one byte, scales beside. Here a block has its scale first, and
// codes i and i + 16 in one byte.
QuantizedMatrix gathered_mxfp4(const TensorInfo& blocks, const TensorInfo& scales, int expert,
                               const ExpertRows& part, int rows, int cols, std::vector<std::byte>& storage) {
  constexpr int kCodes = 16;
  const int groups = cols / 32;
  storage.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = expert * blocks.shape[1] + part.first + r * part.step;
    for (int64_t g = row * groups; g < (row + 1) * groups; ++g) {
      storage.push_back(scales.bytes[static_cast<size_t>(g)]);
      const std::byte* pairs = blocks.bytes.data() + g * kCodes;
      const auto code = [&](int i) { return pairs[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (int i = 0; i < kCodes; ++i) storage.push_back(code(i) | code(i + kCodes) << 4);
    }
  }
  return {QuantType::kMXFP4, rows, cols, storage};
}

}  // namespace

// One matrix of every expert from a tensor that holds total_rows rows of each.
Status WeightLoader::fused_experts(const std::string& name, int total_rows, int first, int step, int rows,
                                   int cols, std::vector<std::unique_ptr<Weight>>& out) {
  const std::string part = fmt::format("{}/{}", name, first);
  const ExpertRows which{first, step};
  const TensorInfo *plain = nullptr, *blocks = nullptr, *scales = nullptr;
  if (!restores() && find(name + "_blocks") != nullptr) {
    const int64_t shape[] = {config_.n_experts, total_rows, cols / 32, 16};
    ASSIGN_OR_RETURN(blocks, require(name + "_blocks", shape));
    ASSIGN_OR_RETURN(scales, require(name + "_scales", std::span(shape).first(3)));
    for (const TensorInfo* tensor : {blocks, scales}) {
      if (tensor->type != QuantType::kU8 || cols % 32 != 0)
        return errorf(ErrorCode::kCorruptFile,
                      "{}: tensor {}: expected bytes, for a multiple of 32 inputs, got {}",
                      source_.path().string(), tensor->name, quant_info(tensor->type).name);
    }
  } else if (!restores()) {
    const bool turned = names_.experts_transposed;
    const int64_t shape[] = {config_.n_experts, turned ? cols : total_rows, turned ? total_rows : cols};
    ASSIGN_OR_RETURN(plain, require(name, shape));
    RETURN_IF_ERROR(check_type(*plain));
  }
  std::vector<std::byte> storage;
  for (int e = 0; e < config_.n_experts; ++e) {
    if (restores()) {
      ASSIGN_OR_RETURN(out.emplace_back(), restore(part, e * rows, rows, cols));
      continue;
    }
    const QuantizedMatrix view =
        blocks != nullptr ? gathered_mxfp4(*blocks, *scales, e, which, rows, cols, storage)
                          : gathered(*plain, names_.experts_transposed, e, which, rows, cols, storage);
    ASSIGN_OR_RETURN(out.emplace_back(), pack(view, name));
    keep(part, e * rows, *out.back());
  }
  if (first == 0 && !restores()) done(plain != nullptr ? *plain : *blocks);
  return {};
}

// Gate and up in one tensor, and their biases likewise.
Status WeightLoader::load_fused_experts(const std::string& at, LayerWeights& layer) {
  const std::string gate_up = at + std::string(names_.expert_gate_up),
                    down = at + std::string(names_.expert_down);
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  RETURN_IF_ERROR(fused_experts(gate_up, 2 * ffn, up, step, ffn, dim, layer.expert_up.weights));
  RETURN_IF_ERROR(fused_experts(gate_up, 2 * ffn, 0, step, ffn, dim, layer.expert_gate.weights));
  RETURN_IF_ERROR(fused_experts(down, dim, 0, 1, dim, ffn, layer.expert_down.weights));
  if (!names_.fused_expert_biases) return {};
  const int64_t narrow[] = {config_.n_experts, dim};
  ASSIGN_OR_RETURN(const std::vector<float> downs, vector(down + "_bias", narrow));
  const int64_t shape[] = {config_.n_experts, 2 * ffn};
  ASSIGN_OR_RETURN(const std::vector<float> both, vector(gate_up + "_bias", shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    std::vector<float> gates, ups;
    for (int r = 0; r < ffn; ++r) {
      gates.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(r * step)]);
      ups.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(up + r * step)]);
    }
    const auto down_bias = std::span(downs).subspan(static_cast<size_t>(e) * dim, static_cast<size_t>(dim));
    ASSIGN_OR_RETURN(layer.expert_down.biases.emplace_back(), ops_.pack_vector(down_bias));
    ASSIGN_OR_RETURN(layer.expert_gate.biases.emplace_back(), ops_.pack_vector(gates));
    ASSIGN_OR_RETURN(layer.expert_up.biases.emplace_back(), ops_.pack_vector(ups));
  }
  return {};
}

Status WeightLoader::load_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  RETURN_IF_ERROR(linear(name(names_.router), config_.n_experts, dim, layer.router));
  if (config_.expert_selection_bias) {
    const TensorInfo* found = find(name(names_.selection_bias));
    const int64_t row[] = {1, config_.n_experts};  // ERNIE has it as a row
    const bool is_row = found != nullptr && found->shape.size() == 2;
    ASSIGN_OR_RETURN(const std::vector<float> bias,
                     vector(name(names_.selection_bias), std::span(row).subspan(is_row ? 0 : 1)));
    ASSIGN_OR_RETURN(layer.selection_bias, ops_.pack_vector(bias));
  }
  std::string_view gate = names_.expert_gate, up = names_.expert_up, down = names_.expert_down;
  // Older GGUF files have one tensor for each expert.
  if (source_.naming() == Naming::kGguf && !has_matrix(name(gate) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  if (!names_.expert_gate_up.empty()) {
    RETURN_IF_ERROR(load_fused_experts(at, layer));
  } else {
    RETURN_IF_ERROR(experts(name(gate), ffn, dim, layer.expert_gate));
    RETURN_IF_ERROR(experts(name(up), ffn, dim, layer.expert_up));
    RETURN_IF_ERROR(experts(name(down), dim, ffn, layer.expert_down));
  }
  return config_.shared_ffn_dim > 0 ? load_shared_experts(at, layer) : Status();
}

Status WeightLoader::load_shared_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, ffn = config_.shared_ffn_dim;
  if (names_.shared_gate_up.empty()) {
    RETURN_IF_ERROR(linear(name(names_.shared_gate), ffn, dim, layer.shared_gate));
    RETURN_IF_ERROR(linear(name(names_.shared_up), ffn, dim, layer.shared_up));
  } else {
    const int rows[] = {ffn, ffn};
    LinearWeights* const parts[] = {&layer.shared_gate, &layer.shared_up};
    RETURN_IF_ERROR(fused(name(names_.shared_gate_up), rows, dim, parts));
  }
  RETURN_IF_ERROR(linear(name(names_.shared_down), dim, ffn, layer.shared_down));
  if (!config_.shared_expert_gate) return {};
  return linear(name(names_.shared_router), 1, dim, layer.shared_router);
}

Status WeightLoader::load_qk_norms(const std::string& at, LayerWeights& layer) {
  const std::string q = at + std::string(names_.q_norm), k = at + std::string(names_.k_norm);
  switch (config_.qk_norm) {
    case QkNorm::kNone: return {};
    case QkNorm::kHead:
      RETURN_IF_ERROR(norm(q, config_.head_dim, layer.q_norm));
      return norm(k, config_.head_dim, layer.k_norm);
    case QkNorm::kHeads:
      RETURN_IF_ERROR(head_norm(q, config_.n_heads, layer.q_norm));
      return head_norm(k, config_.n_kv_heads, layer.k_norm);
    case QkNorm::kRow:
      RETURN_IF_ERROR(norm(q, config_.q_dim(), layer.q_norm));
      return norm(k, config_.kv_dim(), layer.k_norm);
  }
  return {};
}

Status WeightLoader::load_attention(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  RETURN_IF_ERROR(config_.latent.kv_rank > 0 ? load_latent(at, layer) : load_qkv(at, layer));
  RETURN_IF_ERROR(load_qk_norms(at, layer));
  if (config_.attention_sinks) {
    ASSIGN_OR_RETURN(const std::vector<float> sinks, vector(name(names_.sinks), config_.n_heads));
    ASSIGN_OR_RETURN(layer.sinks, ops_.pack_vector(sinks));
  }
  if (config_.sub_norms)
    RETURN_IF_ERROR(norm(name(names_.attn_sub_norm), config_.q_dim(), layer.attn_sub_norm));
  return linear(name(names_.o), config_.model_dim, config_.attended_dim(), layer.o);
}

namespace {
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
}  // namespace

// xIELU's parameters are tensors of Hugging Face checkpoints, before the functions that keep them positive.
Status WeightLoader::load_activation(int i, const std::string& at, LayerWeights& layer) {
  layer.activation = config_.layers[i].activation;
  if (layer.activation.kind != Activation::kXielu) return {};
  float* const stored = layer.activation.parameters;
  if (source_.naming() == Naming::kHuggingFace) {
    constexpr std::string_view kParts[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int p = 0; p < 4; ++p) {
      const std::string name = at + std::string(names_.activation) + std::string(kParts[p]);
      const int64_t one = 1;
      const TensorInfo* found = find(name);
      const bool scalar = found != nullptr && found->shape.empty();
      ASSIGN_OR_RETURN(const std::vector<float> value, vector(name, std::span(&one, scalar ? 0 : 1)));
      stored[p] = value[0];
    }
  }
  stored[0] = softplus(stored[0]);
  stored[1] = stored[2] + softplus(stored[1]);
  return {};
}

Status WeightLoader::load_layer(int i, LayerWeights& layer) {
  const std::string at = prefix_ + with_index(names_.layer, i);
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim;
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  if (pre) RETURN_IF_ERROR(norm(name(names_.attn_norm), dim, layer.attn_norm));
  if (config_.layers[i].attention) RETURN_IF_ERROR(load_attention(at, layer));
  if (config_.layers[i].recurrence == Recurrence::kShortConv)
    RETURN_IF_ERROR(load_short_conv(at, layer.conv));
  if (config_.layers[i].recurrence == Recurrence::kDeltaNet) RETURN_IF_ERROR(load_delta_net(at, layer.delta));
  if (post) RETURN_IF_ERROR(norm(name(names_.attn_post_norm), dim, layer.attn_post_norm));
  if (pre && (!config_.parallel || config_.parallel_norms))
    RETURN_IF_ERROR(norm(name(names_.ffn_norm), dim, layer.ffn_norm));
  RETURN_IF_ERROR(load_activation(i, at, layer));
  RETURN_IF_ERROR(config_.layers[i].moe ? load_experts(at, layer) : load_dense(at, layer));
  if (post) RETURN_IF_ERROR(norm(name(names_.ffn_post_norm), dim, layer.ffn_post_norm));
  return {};
}

Status WeightLoader::divide_by_factors(const std::string& name, std::vector<float>& frequencies) {
  ASSIGN_OR_RETURN(const std::vector<float> factors, vector(name, static_cast<int64_t>(frequencies.size())));
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0)) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected positive factors, got {} at {}",
                    source_.path().string(), name, factors[i], i);
    }
    frequencies[i] /= factors[i];
  }
  return {};
}

// GGUF gives llama3's and longrope's factors as tensors.
Status WeightLoader::load_ropes(ModelWeights& weights, int max_seq_len) {
  if (max_seq_len <= 0) max_seq_len = config_.max_seq_len;
  for (const RopeConfig& rope : config_.ropes) {
    std::vector<float> frequencies = rope_frequencies(rope, max_seq_len);
    std::string name = "rope_freqs.weight";
    if (find(name) == nullptr)
      name =
          max_seq_len > rope.original_max_seq_len ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (source_.naming() == Naming::kGguf && find(name) != nullptr) {
      RETURN_IF_ERROR(divide_by_factors(name, frequencies));
    }
    ASSIGN_OR_RETURN(auto packed, ops_.pack_vector(frequencies));
    weights.ropes.push_back(
        {packed.get(), rope_magnitude(rope), config_.rope_interleaved, config_.latent.kv_rank});
    weights.rope_frequencies.push_back(std::move(packed));
  }
  return {};
}

// Layers behind the last one predict further tokens; checkpoints keep them under the same name.
bool WeightLoader::is_of_later_layer(std::string_view name) const {
  const std::string begin = prefix_ + std::string(names_.layer.substr(0, names_.layer.find("{}")));
  if (!name.starts_with(begin)) return false;
  int layer = -1;
  const std::string_view rest = name.substr(begin.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return layer >= config_.n_layers && layer < config_.n_layers + config_.n_next_token_layers;
}

Status WeightLoader::check_unused() const {
  if (restores()) return {};  // whoever packed them has checked
  const auto n_others = std::ranges::count_if(source_.tensors(), is_of_another_modality, &TensorInfo::name);
  if (n_others > 0) {
    log().warn("{}: the text part is read, {} tensors of other modalities are passed over",
               source_.path().string(), n_others);
  }
  const auto n_further = std::ranges::count_if(source_.tensors(), [&](const TensorInfo& tensor) {
    return is_of_further_tokens(tensor.name) || is_of_later_layer(tensor.name);
  });
  if (n_further > 0) {
    log().info("{}: {} tensors of layers that predict further tokens are passed over",
               source_.path().string(), n_further);
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    if (used_.contains(tensor.name) || is_ignorable_tensor(tensor.name)) continue;
    if (is_of_later_layer(tensor.name)) continue;
    if (config_.tied_embeddings && tensor.name.ends_with("lm_head.weight")) continue;
    return errorf(ErrorCode::kUnsupported,
                  "{}: tensor {} {} is not part of architecture {}: this file holds another kind of model",
                  source_.path().string(), tensor.name, shown_shape(tensor.shape), config_.arch);
  }
  return {};
}

Status WeightLoader::open() {
  if (config_.int8_activations) return {};
  ASSIGN_OR_RETURN(opened_, open_prequantized(source_));
  prequantized_ = opened_ != nullptr ? opened_.get() : source_.grouped_layers();
  return {};
}

Status WeightLoader::load_frame(ModelWeights& weights, int max_seq_len) {
  const int dim = config_.model_dim, vocab = config_.vocab_size;
  const auto name = [&](std::string_view part) { return prefix_ + std::string(part); };
  RETURN_IF_ERROR(load_ropes(weights, max_seq_len));
  ASSIGN_OR_RETURN(weights.embedding, weight(name(names_.embedding), vocab, dim, WeightUse::kTable));
  if (config_.learned_positions) {
    ASSIGN_OR_RETURN(weights.positions,
                     weight(name(names_.positions), config_.max_seq_len, dim, WeightUse::kTable));
  }
  if (config_.embedding_norm) RETURN_IF_ERROR(norm(name(names_.embedding_norm), dim, weights.embedding_norm));
  RETURN_IF_ERROR(load_alibi(weights));
  RETURN_IF_ERROR(norm(name(names_.final_norm), dim, weights.final_norm));
  return load_head(weights);
}

// 2^(-b / n), 2^(-2b / n), ... for n heads, b the largest bias. Where n is no power of two, those of the next smaller
// one and then every second of the next larger one.
Status WeightLoader::load_alibi(ModelWeights& weights) const {
  if (config_.alibi_max_bias <= 0) return {};
  const int n = static_cast<int>(std::bit_floor(static_cast<unsigned>(config_.n_heads)));
  std::vector<float> slopes;
  for (int h = 0; h < config_.n_heads; ++h) {
    const float step = h < n ? static_cast<float>(h + 1) : static_cast<float>(h - n) + 0.5f;
    slopes.push_back(std::exp2(-config_.alibi_max_bias * step / static_cast<float>(n)));
  }
  ASSIGN_OR_RETURN(weights.alibi_slopes, ops_.pack_vector(slopes));
  return {};
}

Status WeightLoader::load_head(ModelWeights& weights) {
  const int dim = config_.model_dim, vocab = config_.vocab_size;
  std::string head(names_.lm_head);
  for (const std::string_view inside :
       {"language_model.", "model.language_model."}) {  // of a multimodal model
    if (!has_matrix(head + ".weight") && has_matrix(std::string(inside) + head + ".weight"))
      head = std::string(inside) + head;
  }
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(head + ".bias", vocab));
  if (!bias.empty()) {
    ASSIGN_OR_RETURN(weights.output_bias, ops_.pack_vector(bias));
  }
  if (config_.tied_embeddings) return {};
  ASSIGN_OR_RETURN(weights.lm_head, weight(head, vocab, dim, WeightUse::kOutput));
  return {};
}

Result<std::unique_ptr<ModelWeights>> WeightLoader::load(int max_seq_len) {
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(open());
  RETURN_IF_ERROR(load_frame(*weights, max_seq_len));
  for (int i = 0; i < config_.n_layers; ++i) {
    RETURN_IF_ERROR(load_layer(i, weights->layers.emplace_back()));
  }
  RETURN_IF_ERROR(check_unused());
  if (restores() && progress_) progress_(total_bytes_, total_bytes_);
  return weights;
}

Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source, const ModelConfig& config,
                                                   Ops& ops, const Model::Progress& progress, int max_seq_len,
                                                   PackedWeights* packed) {
  return WeightLoader(source, config, ops, progress, packed).load(max_seq_len);
}

Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source, const ModelConfig& config,
                                                 Ops& ops, int max_seq_len) {
  const Model::Progress none;
  WeightLoader loader(source, config, ops, none);
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_frame(*weights, max_seq_len));
  weights->layers.resize(static_cast<size_t>(config.n_layers));
  return weights;
}

Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops, int layer) {
  const Model::Progress none;
  WeightLoader loader(source, config, ops, none);
  LayerWeights weights;
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_layer(layer, weights));
  return weights;
}

}  // namespace penstock

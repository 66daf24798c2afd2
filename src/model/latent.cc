// Attention over latents (DeepSeek V2, arXiv 2405.04434): its weights, and how it is computed. Nothing is ever expanded to keys
// and values of all heads: a query is projected to the latent, and what was attended to is projected to values.
#include "model/decoder.h"
#include "model/names.h"
#include "model/weight_loader.h"

namespace penstock {

namespace {
constexpr float kLatentNormEps = 1e-6f;  // whatever the other norms have

NormParams latent_norm(const NormWeights& norm) {
  return {norm.weight.get(), nullptr, kLatentNormEps, false};
}
}  // namespace

Status WeightLoader::load_latent(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const LatentConfig& l = config_.latent;
  const int dim = config_.model_dim, heads = config_.n_heads, query = l.plain_dim + l.rope_dim;
  const Range own = cuts_.heads(), own_rows{own.first * query, own.count * query};
  LatentWeights& out = layer.latent;
  if (l.query_rank > 0) {
    RETURN_IF_ERROR(linear(name(names_.query_a), l.query_rank, dim, out.query));
    RETURN_IF_ERROR(norm(name(names_.query_a_norm), l.query_rank, out.query_norm));
    RETURN_IF_ERROR(linear_rows(name(names_.query_b), heads * query, l.query_rank, own_rows, layer.q));
  } else {
    RETURN_IF_ERROR(linear_rows(name(names_.q), heads * query, dim, own_rows, layer.q));
  }
  const int rows[] = {l.kv_rank, l.rope_dim};
  LinearWeights* const parts[] = {&out.latent, &out.rope};
  RETURN_IF_ERROR(fused(name(names_.latent_a), rows, dim, parts));
  RETURN_IF_ERROR(norm(name(names_.latent_a_norm), l.kv_rank, out.latent_norm));
  const std::string keys = name(names_.latent_keys), values = name(names_.latent_values);
  if (names_.latent_keys.empty() || find(keys + ".weight") == nullptr)
    return split_latent_b(name(names_.latent_b), out);
  RETURN_IF_ERROR(many_weights(keys, heads, l.kv_rank, l.plain_dim, out.absorb));
  RETURN_IF_ERROR(many_weights(values, heads, l.value_dim, l.kv_rank, out.values));
  for (auto* by_head : {&out.absorb, &out.values}) {
    by_head->erase(by_head->begin() + own.first + own.count, by_head->end());
    by_head->erase(by_head->begin(), by_head->begin() + own.first);
  }
  return {};
}

// One matrix [n_heads * (plain_dim + value_dim), kv_rank].
Status WeightLoader::split_latent_b(const std::string& stem, LatentWeights& out) {
  const LatentConfig& l = config_.latent;
  const int each = l.plain_dim + l.value_dim;
  ASSIGN_OR_RETURN(const FileMatrix all,
                   matrix(stem, config_.n_heads * each, l.kv_rank, WeightUse::kProjection));
  const Range own = cuts_.heads();
  for (int h = own.first; h < own.first + own.count; ++h) {
    ASSIGN_OR_RETURN(out.absorb.emplace_back(),
                     transposed_rows(all, h * each, l.plain_dim, stem + ".weight"));
    ASSIGN_OR_RETURN(out.values.emplace_back(),
                     pack_rows(all, h * each + l.plain_dim, l.value_dim, stem + ".weight"));
  }
  if (all.tensor != nullptr) done(*all.tensor);
  return {};
}

// Rows [first, first + count) as columns. Plain numbers stay what they are; codes become F32.
Result<std::unique_ptr<Weight>> WeightLoader::transposed_rows(const FileMatrix& from, int first, int count,
                                                              const std::string& name) {
  const int cols = from.view.cols > 0 ? from.view.cols : from.grouped->cols;
  if (restores()) return restore(name, first, cols, count);
  std::vector<float> values(static_cast<size_t>(count) * static_cast<size_t>(cols));
  if (from.grouped) {
    from.grouped->dequantize(first, count, values.data());
  } else {
    const QuantizedMatrix part = from.view.row_range(first, count);
    dequantize_row(part.type, part.bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  }
  std::vector<float> turned(values.size());
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c)
      turned[c * static_cast<size_t>(count) + r] = values[r * static_cast<size_t>(cols) + c];
  }
  const QuantizedMatrix view{QuantType::kF32, cols, count, std::as_bytes(std::span(turned))};
  ASSIGN_OR_RETURN(auto packed, pack(view, name));
  keep(name, first, *packed);
  return packed;
}

// queries_ = all heads' queries; k_ = the latent, and the rotated part before its rotation.
void DecoderParts::project_latent(const LayerWeights& layer, const NormedInput& h) {
  const LatentConfig& l = config_.latent;
  const Tensor latent = k_.columns(0, l.kv_rank);
  const bool from_latent = l.query_rank > 0;
  const LinearTarget targets[] = {
      from_latent ? layer.latent.query.into(query_latent_) : layer.q.into(queries_),
      layer.latent.latent.into(latent), layer.latent.rope.into(k_.columns(l.kv_rank, l.rope_dim))};
  ops_.norm_linear(h, targets);
  ops_.norm(latent, latent_norm(layer.latent.latent_norm), latent);
  if (!from_latent) return;
  ops_.norm(query_latent_, latent_norm(layer.latent.query_norm), query_latent_);
  const LinearTarget queries = layer.q.into(queries_);
  ops_.linear(query_latent_, {&queries, 1});
}

void DecoderParts::latent_attention(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = weights_.layers[i];
  const LatentConfig& l = config_.latent;
  project_latent(layer, h);
  // Heads as rows: a query is its plain part projected to the latent and its rotated part, as the key is.
  const Tensor plain = queries_.reshaped(l.plain_dim + l.rope_dim), query = q_.reshaped(config_.head_dim);
  ops_.copy(plain.columns(l.plain_dim, l.rope_dim), query.columns(l.kv_rank, l.rope_dim));
  ops_.linear_by_head(plain.columns(0, l.plain_dim), layer.latent.absorb, query.columns(0, l.kv_rank));
  const int rope = config_.layers[i].rope;
  ops_.rope_and_store(q_, k_, Tensor(), rope < 0 ? nullptr : &weights_.ropes[rope], cache_, i);
  if (config_.layers[i].query_scale) ops_.scale_by_position(q_, config_.query_scale);
  ops_.attend(q_, cache_, {i, config_.n_heads, config_.attention_scale, 0.0f, nullptr, nullptr}, attended_);
  ops_.linear_by_head(attended_.reshaped(l.kv_rank), layer.latent.values, values_.reshaped(l.value_dim));
  add_product(values_, layer.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock

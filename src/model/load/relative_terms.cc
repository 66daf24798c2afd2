#include "model/load/relative_terms.h"

#include <array>
#include <cmath>

namespace penstock {
namespace {

// Returns the embeddings of all columns, normed if the model norms them.
Result<std::vector<float>> read_embeddings(TensorLoader& tensors) {
  const ModelConfig& config = tensors.config();
  const RelativeConfig& relative = config.attention.relative;
  const auto dim = static_cast<size_t>(config.model_dim);
  ASSIGN_OR_RETURN(std::vector<float> rows,
                   tensors.vector(tensors.name(tensors.names()[tensor::kRelative]) + ".weight",
                                  std::array<int64_t, 2>{relative.n_columns, config.model_dim}));
  if (!relative.norm) return rows;
  const std::string norm = tensors.name(tensors.names()[tensor::kRelativeNorm]);
  ASSIGN_OR_RETURN(const auto weight, tensors.vector(norm + ".weight", config.model_dim));
  ASSIGN_OR_RETURN(const auto bias, tensors.vector(norm + ".bias", config.model_dim));
  for (size_t at = 0; at < rows.size(); at += dim) {
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < dim; ++i) sum += rows[at + i];
    const double mean = sum / static_cast<double>(dim);
    for (size_t i = 0; i < dim; ++i) squares += (rows[at + i] - mean) * (rows[at + i] - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + config.norm.eps);
    for (size_t i = 0; i < dim; ++i)
      rows[at + i] = static_cast<float>((rows[at + i] - mean) * inverse) * weight[i] + bias[i];
  }
  return rows;
}

// Appends for each head of a projection its rows of the embeddings, times AttentionConfig::scale.
Status project(TensorLoader& tensors, const std::vector<float>& embeddings,
               const LinearWeights& projection, std::vector<std::unique_ptr<Weight>>& by_head) {
  const ModelConfig& config = tensors.config();
  const int n = config.attention.relative.n_columns, all = projection.weight->rows(),
            dim = config.head_dim;
  Ops& ops = tensors.ops();
  ops.begin_step(nullptr);
  const Tensor x = ops.new_tensor(n, config.model_dim), y = ops.new_tensor(n, all);
  ops.write_rows(embeddings, x);
  const LinearTarget target{projection.weight.get(), projection.bias.get(), y};
  ops.linear(x, {&target, 1});
  std::vector<float> rows(static_cast<size_t>(n) * static_cast<size_t>(all)), own;
  ops.wait(ops.submit());
  ops.read_rows(y, rows);
  RETURN_IF_ERROR(ops.status());
  for (int head = 0; head < all / dim; ++head) {
    own.clear();
    for (int c = 0; c < n; ++c)
      for (int i = 0; i < dim; ++i)
        own.push_back(rows[static_cast<size_t>(c) * static_cast<size_t>(all) +
                           static_cast<size_t>(head * dim + i)] *
                      config.attention.scale);
    ASSIGN_OR_RETURN(by_head.emplace_back(),
                     ops.pack({QuantType::kF32, n, dim, std::as_bytes(std::span(own))}));
  }
  return {};
}

}  // namespace

Status make_relative_terms(TensorLoader& tensors, AttentionWeights& layer) {
  const RelativeConfig& relative = tensors.config().attention.relative;
  if (!relative.has_embeddings()) return {};
  // some files have positions that nothing uses
  if (!tensors.config().positions.learned)
    tensors.pass_over(tensors.name(tensors.names().positions));
  ASSIGN_OR_RETURN(const std::vector<float> embeddings, read_embeddings(tensors));
  if (relative.by_query) RETURN_IF_ERROR(project(tensors, embeddings, layer.k, layer.query_terms));
  if (relative.by_key) RETURN_IF_ERROR(project(tensors, embeddings, layer.q, layer.key_terms));
  return {};
}

}  // namespace penstock

#include "model/towers/q_former.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

struct SmallHeads {
  int n_heads, head_dim;
  int n_queries, n_keys;  // rows of a window
};

// softmax(q k^T / sqrt(head_dim)) v of each window and head; out may be q.
void attend_windows(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                    const SmallHeads& heads, std::span<float> out) {
  const auto dim = static_cast<size_t>(heads.n_heads) * static_cast<size_t>(heads.head_dim),
             n_keys = static_cast<size_t>(heads.n_keys),
             n_queries = static_cast<size_t>(heads.n_queries);
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads.head_dim));
  std::vector<float> scores(n_keys), sum(static_cast<size_t>(heads.head_dim));
  for (size_t row = 0; row < q.size() / dim; ++row) {
    const size_t first = row / n_queries * n_keys;
    for (size_t at = 0; at < dim; at += sum.size()) {
      const auto query = q.subspan(row * dim + at, sum.size());
      float most = -INFINITY, total = 0;
      for (size_t j = 0; j < n_keys; ++j) {
        const auto key = k.subspan((first + j) * dim + at, sum.size());
        float score = 0;
        for (size_t d = 0; d < sum.size(); ++d) score += query[d] * key[d];
        scores[j] = score * scale;
        most = std::max(most, scores[j]);
      }
      std::ranges::fill(sum, 0.0f);
      for (size_t j = 0; j < n_keys; ++j) {
        const float weight = std::exp(scores[j] - most);
        total += weight;
        const auto value = v.subspan((first + j) * dim + at, sum.size());
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
      }
      for (size_t d = 0; d < sum.size(); ++d) out[row * dim + at + d] = sum[d] / total;
    }
  }
}

std::vector<float> rows_of(Tensor x, Ops& ops) {
  std::vector<float> rows(static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols));
  ops.read_rows(x, rows);
  return rows;
}

}  // namespace

// width: of what is attended to.
Status QFormer::load_attention(TensorLoader& tensors, const std::string& at, int width,
                               Attention& out) {
  const int dim = config_.queries.dim;
  RETURN_IF_ERROR(tensors.linear(at + "attention.query", dim, dim, out.q));
  RETURN_IF_ERROR(tensors.linear(at + "attention.key", dim, width, out.k));
  RETURN_IF_ERROR(tensors.linear(at + "attention.value", dim, width, out.v));
  RETURN_IF_ERROR(tensors.linear(at + "output.dense", dim, dim, out.o));
  return tensors.norm(at + "output.LayerNorm", dim, true, out.norm);
}

Status QFormer::load_layer(TensorLoader& tensors, const std::string& at, bool crosses,
                           Layer& layer) {
  const int dim = config_.queries.dim, wide = config_.queries.ffn_dim;
  RETURN_IF_ERROR(load_attention(tensors, at + "attention.", dim, layer.self));
  if (crosses)
    RETURN_IF_ERROR(
        load_attention(tensors, at + "crossattention.", config_.model_dim(), layer.cross));
  RETURN_IF_ERROR(tensors.linear(at + "intermediate_query.dense", wide, dim, layer.up));
  RETURN_IF_ERROR(tensors.linear(at + "output_query.dense", dim, wide, layer.down));
  return tensors.norm(at + "output_query.LayerNorm", dim, true, layer.norm);
}

Result<std::unique_ptr<QFormer>> QFormer::load(TensorLoader& tensors, const TowerConfig& config) {
  const TowerQueries& queries = config.queries;
  std::unique_ptr<QFormer> result(new QFormer(config));
  const int64_t shape[] = {1, queries.count, queries.dim};
  ASSIGN_OR_RETURN(result->queries_, tensors.vector(queries.prefix + "query", shape));
  const std::string at = queries.prefix + "qformer.";
  RETURN_IF_ERROR(tensors.norm(at + "layernorm", queries.dim, true, result->norm_));
  for (int i = 0; i < queries.n_layers; ++i)
    RETURN_IF_ERROR(result->load_layer(tensors, fmt::format("{}encoder.layer.{}.", at, i),
                                       i % queries.crosses_every == 0,
                                       result->layers_.emplace_back()));
  RETURN_IF_ERROR(
      tensors.linear(queries.prefix + "linear", config.text_dim, queries.dim, result->out_));
  return result;
}

int64_t QFormer::bytes() const {
  int64_t n = out_.weight->packed_bytes();
  for (const Layer& layer : layers_) {
    for (const Attention* one : {&layer.self, &layer.cross}) {
      for (const LinearWeights* linear : {&one->q, &one->k, &one->v, &one->o})
        if (linear->weight != nullptr) n += linear->weight->packed_bytes();
    }
    n += layer.up.weight->packed_bytes() + layer.down.weight->packed_bytes();
  }
  return n;
}

// x = norm(x + linear(from))
void QFormer::add_normed(const LinearWeights& linear, Tensor from, const NormWeights& norm,
                         Tensor x, Ops& ops) const {
  const Tensor added = ops.new_tensor(x.rows, x.cols);
  const LinearTarget target = linear.into(added);
  ops.linear(from, {&target, 1});
  ops.add(x, added, 1.0f);
  ops.norm(x, params(norm), x);
}

void QFormer::attend(const Attention& attention, Tensor x, Tensor to, int n_keys, Ops& ops) const {
  const TowerQueries& queries = config_.queries;
  const Tensor q = ops.new_tensor(x.rows, queries.dim), k = ops.new_tensor(to.rows, queries.dim),
               v = ops.new_tensor(to.rows, queries.dim);
  const LinearTarget query = attention.q.into(q),
                     both[] = {attention.k.into(k), attention.v.into(v)};
  ops.linear(x, {&query, 1});
  ops.linear(to, both);
  std::vector<float> rows = rows_of(q, ops);
  attend_windows(rows, rows_of(k, ops), rows_of(v, ops),
                 {queries.n_heads, queries.dim / queries.n_heads, queries.count, n_keys}, rows);
  ops.write_rows(rows, q);
  add_normed(attention.o, q, attention.norm, x, ops);
}

Tensor QFormer::forward(std::span<const float> states, Ops& ops) const {
  const TowerQueries& queries = config_.queries;
  const int dim = config_.model_dim(), n = static_cast<int>(states.size()) / dim,
            n_windows = (n + queries.window - 1) / queries.window;
  const Tensor heard = ops.new_tensor(n_windows * queries.window, dim),
               x = ops.new_tensor(n_windows * queries.count, queries.dim);
  ops.write_rows(states, heard);
  std::vector<float> rows;
  for (int w = 0; w < n_windows; ++w) rows.insert(rows.end(), queries_.begin(), queries_.end());
  ops.write_rows(rows, x);
  ops.norm(x, params(norm_), x);
  for (const Layer& layer : layers_) {
    attend(layer.self, x, x, queries.count, ops);
    if (layer.cross.q.weight != nullptr) attend(layer.cross, x, heard, queries.window, ops);
    const Tensor wide = ops.new_tensor(x.rows, queries.ffn_dim);
    const LinearTarget up = layer.up.into(wide);
    ops.linear(x, {&up, 1});
    ops.activate(wide, queries.activation);
    add_normed(layer.down, wide, layer.norm, x, ops);
  }
  const Tensor out = ops.new_tensor(x.rows, config_.text_dim);
  const LinearTarget target = out_.into(out);
  ops.linear(x, {&target, 1});
  if (queries.factor != 1.0f) ops.scale(out, queries.factor, 0.0f);
  return out;
}

}  // namespace penstock

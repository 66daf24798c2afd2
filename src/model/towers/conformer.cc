#include "model/towers/conformer.h"

#include <algorithm>
#include <cmath>

#include "model/towers/projector.h"

namespace penstock {

// Tensors of a step.
struct Conformer::Scratch {
  Tensor normed, added;  // [tokens, dim]
  Tensor wide;           // [tokens, ffn_dim]
  Tensor q, kv, attended, terms;
  Tensor both, gated, shifted, convolved;  // of the convolution
};

namespace {

constexpr float kBatchNormEps = 1e-5f;  // of torch, which no file says otherwise

// Of distances from 1 - window to window - 1.
int distances_of(const TowerConfig& config) { return 2 * config.window - 1; }

}  // namespace

Status Conformer::load_feed_forward(TensorLoader& tensors, const std::string& at,
                                    FeedForward& out) {
  const int dim = config_.model_dim(), wide = config_.layers.ffn_dim;
  RETURN_IF_ERROR(tensors.norm(at + "pre_norm", dim, true, out.norm));
  RETURN_IF_ERROR(tensors.linear(at + "up_proj", wide, dim, out.up));
  return tensors.linear(at + "down_proj", dim, wide, out.down);
}

// The norm of batches is a factor and a term of every channel.
Status Conformer::load_convolution(TensorLoader& tensors, const std::string& at, Layer& layer) {
  const TowerConformer& conformer = config_.conformer;
  const int dim = config_.model_dim(), wide = conformer.conv_dim;
  RETURN_IF_ERROR(tensors.norm(at + "norm", dim, true, layer.convolution_norm));
  const auto product = [&](const std::string& stem, int outputs, int inputs, LinearWeights& out) {
    return load_flat_linear(tensors, stem, outputs, inputs, out);
  };
  RETURN_IF_ERROR(product(at + "up_conv", 2 * wide, dim, layer.widen));
  RETURN_IF_ERROR(product(at + "down_conv", dim, wide, layer.narrow));
  const std::string name = at + "depth_conv.conv.weight";
  const int64_t shape[] = {wide, 1, conformer.taps};
  ASSIGN_OR_RETURN(const std::vector<float> weights, tensors.vector(name, shape));
  const std::string norm = at + "batch_norm.";
  ASSIGN_OR_RETURN(const auto scale, tensors.vector(norm + "weight", wide));
  ASSIGN_OR_RETURN(std::vector<float> added, tensors.vector(norm + "bias", wide));
  ASSIGN_OR_RETURN(const auto mean, tensors.vector(norm + "running_mean", wide));
  ASSIGN_OR_RETURN(const auto variance, tensors.vector(norm + "running_var", wide));
  tensors.pass_over(norm + "num_batches_tracked");
  const auto n = static_cast<size_t>(wide), n_taps = static_cast<size_t>(conformer.taps);
  std::vector<float> factor(n), tap(n);
  for (size_t c = 0; c < n; ++c) {
    factor[c] = scale[c] / std::sqrt(std::max(variance[c], 0.0f) + kBatchNormEps);
    added[c] -= mean[c] * factor[c];
  }
  for (size_t k = 0; k < n_taps; ++k) {
    for (size_t c = 0; c < n; ++c) tap[c] = weights[c * n_taps + k] * factor[c];
    ASSIGN_OR_RETURN(auto packed, tensors.ops().pack_vector(tap));
    layer.taps.push_back(std::move(packed));
  }
  ASSIGN_OR_RETURN(layer.added, tensors.ops().pack_vector(added));
  return {};
}

Status Conformer::load_layer(TensorLoader& tensors, const std::string& at, Layer& layer) {
  const int dim = config_.model_dim(), head_dim = config_.layers.head_dim;
  RETURN_IF_ERROR(load_feed_forward(tensors, at + "ff1.", layer.before));
  RETURN_IF_ERROR(load_feed_forward(tensors, at + "ff2.", layer.behind));
  RETURN_IF_ERROR(tensors.norm(at + "post_norm", dim, true, layer.norm));
  RETURN_IF_ERROR(tensors.norm(at + "attn.pre_norm", dim, true, layer.attention_norm));
  RETURN_IF_ERROR(tensors.linear(at + "attn.to_q", inner(), dim, layer.q));
  RETURN_IF_ERROR(tensors.linear(at + "attn.to_kv", 2 * inner(), dim, layer.kv));
  RETURN_IF_ERROR(tensors.linear(at + "attn.to_out", dim, inner(), layer.o));
  // Rows of distances from the query's place back; the table has more than a window.
  const std::string name = at + "attn.rel_pos_emb.weight";
  const int middle = config_.conformer.most_distance;
  ASSIGN_OR_RETURN(const FileMatrix table, flat_matrix(tensors, name, 2 * middle + 1, head_dim));
  ASSIGN_OR_RETURN(layer.distances, tensors.pack_rows(table, middle - (config_.window - 1),
                                                      distances_of(config_), name));
  return load_convolution(tensors, at + "conv.", layer);
}

Result<std::unique_ptr<Conformer>> Conformer::load(TensorLoader& tensors,
                                                   const TowerConfig& config) {
  if (!tensors.ops().has_all()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: conformer layers are not computed by {}: expected the CPU", config.family,
                  tensors.ops().name());
  }
  std::unique_ptr<Conformer> result(new Conformer(config));
  for (int i = 0; i < config.layers.n_layers; ++i)
    RETURN_IF_ERROR(result->load_layer(tensors, config.prefix + with_index(config.names.layer, i),
                                       result->layers_.emplace_back()));
  const TowerConformer& conformer = config.conformer;
  if (conformer.middle >= 0) {
    RETURN_IF_ERROR(tensors.linear(conformer.classes, conformer.n_classes, config.model_dim(),
                                   result->classes_));
    RETURN_IF_ERROR(tensors.linear(conformer.of_classes, config.model_dim(), conformer.n_classes,
                                   result->of_classes_));
  }
  // A key's distance d has the embedding of -d.
  std::vector<float> columns;
  for (int column = distances_of(config) - 1; column >= 0; --column)
    columns.push_back(static_cast<float>(column));
  ASSIGN_OR_RETURN(result->columns_, tensors.ops().pack_vector(columns));
  return result;
}

int64_t Conformer::row_values(const TowerConfig& config) {
  const ModelConfig& layers = config.layers;
  return 2 * int64_t{layers.model_dim} + layers.ffn_dim + 4 * int64_t{layers.q_dim()} +
         int64_t{layers.n_heads} * distances_of(config) + 5 * int64_t{config.conformer.conv_dim};
}

int64_t Conformer::bytes() const {
  int64_t n = 0;
  const auto add = [&](const LinearWeights& linear) {
    if (linear.weight != nullptr) n += linear.weight->packed_bytes();
  };
  for (const Layer& layer : layers_) {
    for (const LinearWeights* linear :
         {&layer.before.up, &layer.before.down, &layer.behind.up, &layer.behind.down, &layer.q,
          &layer.kv, &layer.o, &layer.widen, &layer.narrow})
      add(*linear);
    n += layer.distances->packed_bytes();
  }
  add(classes_), add(of_classes_);
  return n;
}

void Conformer::feed_forward(const FeedForward& half, const Scratch& s, Tensor x, Ops& ops) const {
  ops.norm(x, params(half.norm), s.normed);
  const LinearTarget up = half.up.into(s.wide), down = half.down.into(s.added);
  ops.linear(s.normed, {&up, 1});
  ops.activate(s.wide, config_.layers.ffn.activation);
  ops.linear(s.wide, {&down, 1});
  ops.add(x, s.added, 0.5f);
}

void Conformer::attend(const Layer& layer, const Scratch& s, Tensor x, KvCache& cache,
                       Ops& ops) const {
  const int dim = inner(), n_distances = distances_of(config_);
  const float scale = config_.layers.attention.scale;
  ops.norm(x, params(layer.attention_norm), s.normed);
  const LinearTarget both[] = {layer.q.into(s.q), layer.kv.into(s.kv)};
  ops.linear(s.normed, both);
  // Every head's query with every distance's embedding.
  const LinearTarget terms{layer.distances.get(), nullptr, s.terms.reshaped(n_distances)};
  ops.linear(s.q.reshaped(config_.layers.head_dim), {&terms, 1});
  ops.scale(s.terms, scale, 0.0f);
  AttentionParams params{.layer = 0, .n_heads = config_.layers.n_heads, .scale = scale};
  params.relative = {columns_.get(), n_distances, nullptr, s.terms, {}};
  ops.store_and_attend(s.q, s.kv.columns(0, dim), s.kv.columns(dim, dim), nullptr, cache, params,
                       s.attended);
  const LinearTarget out = layer.o.into(s.added);
  ops.linear(s.attended, {&out, 1});
  ops.add(x, s.added, 1.0f);
}

// Neighbours on both sides of a window's edge are read, too.
void Conformer::convolve(const Layer& layer, const Scratch& s, Tensor x, int n, Ops& ops) const {
  const int wide = config_.conformer.conv_dim, n_taps = static_cast<int>(layer.taps.size());
  ops.norm(x, params(layer.convolution_norm), s.normed);
  const LinearTarget widen = layer.widen.into(s.both), narrow = layer.narrow.into(s.added);
  ops.linear(s.normed, {&widen, 1});
  ops.activate_mul(s.both.columns(wide, wide), s.both.columns(0, wide), Activation::kSigmoid,
                   s.gated);
  ops.clear(s.convolved);
  ops.add_columns(s.convolved, *layer.added);
  for (int k = 0; k < n_taps; ++k) {
    const int shift = k - n_taps / 2, count = n - std::abs(shift);
    if (count <= 0) continue;
    const Tensor part = s.shifted.row_range(0, count);
    ops.copy(s.gated.row_range(std::max(shift, 0), count), part);
    ops.scale_columns(part, *layer.taps[static_cast<size_t>(k)]);
    ops.add(s.convolved.row_range(std::max(-shift, 0), count), part, 1.0f);
  }
  ops.activate(s.convolved, Activation::kSilu);
  ops.linear(s.convolved, {&narrow, 1});
  ops.add(x, s.added, 1.0f);
}

// x += of_classes(softmax(classes(x))): what is heard so far.
void Conformer::add_middle(Tensor x, Ops& ops) const {
  const Tensor classes = ops.new_tensor(x.rows, config_.conformer.n_classes),
               added = ops.new_tensor(x.rows, x.cols);
  const LinearTarget to = classes_.into(classes), from = of_classes_.into(added);
  ops.linear(x, {&to, 1});
  ops.softmax_rows(classes);
  ops.linear(classes, {&from, 1});
  ops.add(x, added, 1.0f);
}

void Conformer::forward(int first, int end, Tensor x, int n, KvCache& cache, Ops& ops) const {
  const ModelConfig& layers = config_.layers;
  const int wide = config_.conformer.conv_dim;
  const auto rows = [&](int cols) { return ops.new_tensor(x.rows, cols); };
  const Scratch s{.normed = rows(x.cols),
                  .added = rows(x.cols),
                  .wide = rows(layers.ffn_dim),
                  .q = rows(inner()),
                  .kv = rows(2 * inner()),
                  .attended = rows(inner()),
                  .terms = rows(layers.n_heads * distances_of(config_)),
                  .both = rows(2 * wide),
                  .gated = rows(wide),
                  .shifted = rows(wide),
                  .convolved = rows(wide)};
  for (int i = first; i < end; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    feed_forward(layer.before, s, x, ops);
    attend(layer, s, x, cache, ops);
    convolve(layer, s, x, n, ops);
    feed_forward(layer.behind, s, x, ops);
    ops.norm(x, params(layer.norm), x);
    if (i == config_.conformer.middle) add_middle(x, ops);
  }
}

}  // namespace penstock

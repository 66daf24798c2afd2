#include "model/towers/usm_conformer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/towers/projector.h"
#include "model/towers/tower_weights.h"

namespace penstock {

// Tensors of a step.
struct UsmConformer::Scratch {
  Tensor normed, added;  // [tokens, dim]
  Tensor wide;           // [tokens, ffn_dim]
  Tensor q, k, v, attended;
  // [tokens, heads * distances]: terms of distances, the same by key, and the keys' marks
  Tensor terms, turned, marks;
  Tensor wide_q, wide_k;                   // heads with these behind them
  Tensor both, gated, shifted, convolved;  // of the convolution
};

namespace {

constexpr int kSide = 3;       // of the square of neighbours that a convolution reads
constexpr float kEps = 1e-6f;  // of norms for which files say nothing

NormParams rms(const NormWeights& norm, float eps = kEps) {
  return {norm.weight.get(), nullptr, eps, false};
}

// [distance, dim]: sines, then cosines, of distances from 0 on, with wavelengths from 2 pi to 20,000 pi.
std::vector<float> distance_waves(int n_distances, int dim) {
  const int half = dim / 2;
  const double step = std::log(10000.0) / std::max(half - 1, 1);
  std::vector<float> waves;
  for (int distance = 0; distance < n_distances; ++distance) {
    for (int d = 0; d < 2 * half; ++d) {
      const float angle = static_cast<float>(distance) *
                          std::exp(static_cast<float>(-step) * static_cast<float>(d % half));
      waves.push_back(d < half ? std::sin(angle) : std::cos(angle));
    }
  }
  return waves;
}

// Returns what a convolution of 3 x 3 neighbours reads at every second place of both axes, at times
// [from, to) behind it, with zeros around the plane: [places, channels * 9]. shift: of the first of three
// times from twice the time behind.
std::vector<float> squares(const UsmPlane& plane, int from, int to, int shift) {
  const int bands = halved(plane.n_bands), n_channels = plane.n_channels;
  constexpr int kPlaces = kSide * kSide;
  const auto width = static_cast<size_t>(n_channels * kPlaces);
  std::vector<float> rows(static_cast<size_t>((to - from) * bands) * width);
  for (int place = 0; place < (to - from) * bands; ++place) {
    float* const row = rows.data() + static_cast<size_t>(place) * width;
    for (int k = 0; k < kPlaces; ++k) {  // [time, band]
      const int time = (from + place / bands) * 2 + k / kSide + shift - plane.first,
                band = place % bands * 2 + k % kSide - 1;
      if (time < 0 || time >= plane.n_times || band < 0 || band >= plane.n_bands) continue;
      const float* const values =
          plane.values.data() +
          static_cast<size_t>(time * plane.n_bands + band) * static_cast<size_t>(n_channels);
      for (int c = 0; c < n_channels; ++c) row[c * kPlaces + k] = values[c];
    }
  }
  return rows;
}

}  // namespace

Status UsmConformer::load_planes(TensorLoader& tensors) {
  const TowerUsm& usm = config_.usm;
  int inputs = 1, bands = config_.patch_dim;
  for (size_t i = 0; i < usm.channels.size(); ++i) {
    const std::string at = config_.prefix + "subsample_conv_projection." +
                           with_index(usm.names.plane, static_cast<int>(i));
    Convolution& one = convolutions_.emplace_back();
    one.channels = usm.channels[i];
    RETURN_IF_ERROR(
        load_flat_linear(tensors, at + "conv", one.channels, kSide * kSide * inputs, one.weights));
    if (usm.cumulative) {
      ASSIGN_OR_RETURN(one.scale, tensors.vector(at + "norm.weight", one.channels));
    } else {
      RETURN_IF_ERROR(tensors.norm(at + "norm", one.channels, false, one.norm));
    }
    inputs = one.channels, bands = halved(bands);
  }
  return tensors.linear(config_.prefix + "subsample_conv_projection.input_proj_linear",
                        config_.model_dim(), inputs * bands, behind_planes_);
}

Status UsmConformer::load_feed_forward(TensorLoader& tensors, const std::string& at,
                                       FeedForward& out) {
  const int dim = config_.model_dim(), wide = config_.layers.ffn_dim;
  RETURN_IF_ERROR(tensors.norm(at + "pre_layer_norm", dim, false, out.before));
  RETURN_IF_ERROR(tensors.norm(at + "post_layer_norm", dim, false, out.behind));
  RETURN_IF_ERROR(out.up.load(tensors, at + "ffw_layer_1", wide, dim, config_.usm.linears));
  return out.down.load(tensors, at + "ffw_layer_2", dim, wide, config_.usm.linears);
}

Status UsmConformer::load_attention(TensorLoader& tensors, const std::string& at, Layer& layer) {
  const int dim = config_.model_dim(), n_heads = config_.layers.n_heads,
            head_dim = config_.layers.head_dim, n_distances = config_.usm.n_distances;
  const TowerUsmNames& names = config_.usm.names;
  RETURN_IF_ERROR(tensors.norm(at + names.attention_before, dim, false, layer.attention_before));
  RETURN_IF_ERROR(tensors.norm(at + names.attention_behind, dim, false, layer.attention_behind));
  const std::string own = at + names.attention;
  RETURN_IF_ERROR(layer.q.load(tensors, own + "q_proj", dim, dim, config_.usm.linears));
  RETURN_IF_ERROR(layer.k.load(tensors, own + "k_proj", dim, dim, config_.usm.linears));
  RETURN_IF_ERROR(layer.v.load(tensors, own + "v_proj", dim, dim, config_.usm.linears));
  RETURN_IF_ERROR(layer.o.load(tensors, at + names.output, dim, dim, config_.usm.linears));
  ASSIGN_OR_RETURN(const auto of_head, tensors.vector(own + "per_dim_scale", head_dim));
  std::vector<float> scale;
  for (int i = 0; i < dim; ++i) {
    const double x = of_head[static_cast<size_t>(i % head_dim)];
    const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    scale.push_back(static_cast<float>(config_.usm.query_scale * softplus));
  }
  ASSIGN_OR_RETURN(layer.query_scale, tensors.ops().pack_vector(scale));
  // Keys of distances, by head.
  const std::string name = at + names.distances + ".weight";
  const int64_t shape[] = {dim, dim};
  ASSIGN_OR_RETURN(const std::vector<float> matrix, tensors.vector(name, shape));
  const std::vector<float> waves = distance_waves(n_distances, dim);
  const auto n = static_cast<size_t>(dim);
  std::vector<float> keys(static_cast<size_t>(n_distances * head_dim));
  for (int h = 0; h < n_heads; ++h) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t distance = i / static_cast<size_t>(head_dim),
                   row = static_cast<size_t>(h * head_dim) + i % static_cast<size_t>(head_dim);
      double sum = 0;
      for (size_t c = 0; c < n; ++c) sum += double{waves[distance * n + c]} * matrix[row * n + c];
      keys[i] = static_cast<float>(sum / config_.usm.key_scale);
    }
    const QuantizedMatrix view{QuantType::kF32, n_distances, head_dim,
                               std::as_bytes(std::span(keys))};
    ASSIGN_OR_RETURN(auto packed, tensors.pack(view, fmt::format("{}:{}", name, h)));
    layer.distances.push_back(std::move(packed));
  }
  return {};
}

Status UsmConformer::load_convolution(TensorLoader& tensors, const std::string& at, Layer& layer) {
  const int dim = config_.model_dim(), n_taps = config_.usm.taps;
  RETURN_IF_ERROR(tensors.norm(at + "pre_layer_norm", dim, false, layer.convolution_before));
  RETURN_IF_ERROR(tensors.norm(at + "conv_norm", dim, false, layer.convolution_norm));
  RETURN_IF_ERROR(
      layer.widen.load(tensors, at + "linear_start", 2 * dim, dim, config_.usm.linears));
  RETURN_IF_ERROR(layer.narrow.load(tensors, at + "linear_end", dim, dim, config_.usm.linears));
  const int64_t shape[] = {dim, 1, n_taps};
  ASSIGN_OR_RETURN(const auto weights, tensors.vector(at + "depthwise_conv1d.weight", shape));
  std::vector<float> tap(static_cast<size_t>(dim));
  for (size_t k = 0; k < static_cast<size_t>(n_taps); ++k) {
    for (size_t c = 0; c < tap.size(); ++c) tap[c] = weights[c * static_cast<size_t>(n_taps) + k];
    ASSIGN_OR_RETURN(auto packed, tensors.ops().pack_vector(tap));
    layer.taps.push_back(std::move(packed));
  }
  return {};
}

Status UsmConformer::load_layer(TensorLoader& tensors, const std::string& at, Layer& layer) {
  const TowerUsmNames& names = config_.usm.names;
  RETURN_IF_ERROR(load_feed_forward(tensors, at + names.first, layer.first));
  RETURN_IF_ERROR(load_feed_forward(tensors, at + names.last, layer.last));
  RETURN_IF_ERROR(tensors.norm(at + names.norm, config_.model_dim(), false, layer.norm));
  RETURN_IF_ERROR(load_attention(tensors, at, layer));
  return load_convolution(tensors, at + "lconv1d.", layer);
}

Result<std::unique_ptr<UsmConformer>> UsmConformer::load(TensorLoader& tensors,
                                                         const TowerConfig& config) {
  if (!tensors.ops().has_all()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: conformer layers are not computed by {}: expected the CPU", config.family,
                  tensors.ops().name());
  }
  std::unique_ptr<UsmConformer> result(new UsmConformer(config));
  RETURN_IF_ERROR(result->load_planes(tensors));
  RETURN_IF_ERROR(result->load_tail(tensors));
  for (int i = 0; i < config.layers.n_layers; ++i)
    RETURN_IF_ERROR(result->load_layer(tensors, config.prefix + with_index(config.names.layer, i),
                                       result->layers_.emplace_back()));
  return result;
}

int64_t UsmConformer::row_values(const TowerConfig& config) {
  const ModelConfig& layers = config.layers;
  return 13 * int64_t{layers.model_dim} + layers.ffn_dim +
         5 * int64_t{layers.n_heads} * config.usm.n_distances;
}

int64_t UsmConformer::bytes() const {
  int64_t n = 0;
  const auto add = [&](const LinearWeights& linear) { n += linear.weight->packed_bytes(); };
  for (const Convolution& one : convolutions_) add(one.weights);
  add(behind_planes_);
  for (const Layer& layer : layers_) {
    for (const ClippedLinear* linear :
         {&layer.first.up, &layer.first.down, &layer.last.up, &layer.last.down, &layer.q, &layer.k,
          &layer.v, &layer.o, &layer.widen, &layer.narrow})
      add(linear->weights);
    for (const auto& distances : layer.distances) n += distances->packed_bytes();
  }
  return n;
}

namespace {

// x = x / |x|, as root mean squares.
void divide_by_root(std::span<double> x, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (double& value : x) value *= factor;
}

}  // namespace

// Embeddings of ids: normed, projected, and normed again.
Status UsmConformer::load_tail(TensorLoader& tensors) {
  const TowerTail& tail = config_.tail;
  if (tail.count == 0) return {};
  const auto dim = static_cast<size_t>(config_.model_dim()),
             outputs = static_cast<size_t>(config_.text_dim);
  const int64_t of_table[] = {tail.rows, config_.model_dim()},
                of_projection[] = {config_.text_dim, config_.model_dim()};
  ASSIGN_OR_RETURN(const auto table, tensors.vector(tail.prefix + "embedding.weight", of_table));
  ASSIGN_OR_RETURN(const auto scale,
                   tensors.vector(tail.prefix + "hard_embedding_norm.weight", config_.model_dim()));
  ASSIGN_OR_RETURN(const auto projection,
                   tensors.vector(tail.prefix + "embedding_projection.weight", of_projection));
  for (const int id : {tail.fill, tail.last}) {
    const auto from = table.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(id) * dim);
    std::vector<double> row(from, from + static_cast<ptrdiff_t>(dim)), made(outputs);
    divide_by_root(row, config_.usm.eps);
    for (size_t c = 0; c < dim; ++c) row[c] *= scale[c];
    for (size_t i = 0; i < outputs * dim; ++i) made[i / dim] += row[i % dim] * projection[i];
    divide_by_root(made, config_.usm.eps);
    for (const double value : made) tail_.push_back(static_cast<float>(value));
  }
  return {};
}

namespace {

// Norms of all values that a plane has had at each time and before, and relu.
void norm_so_far(UsmPlane& plane, std::span<const float> scale, float eps, UsmPast::Sums& sums) {
  const size_t size = static_cast<size_t>(plane.n_bands) * static_cast<size_t>(plane.n_channels);
  for (size_t t = 0; t < static_cast<size_t>(plane.n_times); ++t) {
    const auto values = std::span(plane.values).subspan(t * size, size);
    for (const float value : values) sums.values += value;
    sums.count += static_cast<int64_t>(size);
    const auto count = static_cast<double>(sums.count);
    const double mean = sums.values / count;
    for (const float value : values) sums.squares += (value - mean) * (value - mean);
    const double factor = 1 / std::sqrt(sums.squares / count + eps);
    for (size_t i = 0; i < size; ++i)
      values[i] =
          std::max(static_cast<float>((values[i] - mean) * factor * scale[i % scale.size()]), 0.0f);
  }
}

}  // namespace

// Replaces the plane by what a convolution makes of it at times [from, to), with its norm and relu.
Tensor UsmConformer::convolved(size_t index, UsmPlane& plane, int from, int to, UsmPast& past,
                               Ops& ops) const {
  const TowerUsm& usm = config_.usm;
  const Convolution& one = convolutions_[index];
  const int n_bands = halved(plane.n_bands), n_places = (to - from) * n_bands;
  const Tensor in = ops.new_tensor(n_places, kSide * kSide * plane.n_channels),
               made = ops.new_tensor(n_places, one.channels);
  ops.write_rows(squares(plane, from, to, usm.cumulative ? 0 : -1), in);
  const LinearTarget target = one.weights.into(made);
  ops.linear(in, {&target, 1});
  if (!usm.cumulative) {
    ops.norm(made, {one.norm.weight.get(), nullptr, usm.plane_eps, true}, made);
    ops.activate(made, Activation::kRelu);
  }
  plane = {{}, from, to - from, n_bands, one.channels};
  plane.values.resize(static_cast<size_t>(n_places) * static_cast<size_t>(one.channels));
  ops.read_rows(made, plane.values);
  if (!usm.cumulative) return made;
  norm_so_far(plane, one.scale, usm.plane_eps, past.sums[index]);
  ops.write_rows(plane.values, made);
  return made;
}

Tensor UsmConformer::positions(std::span<const float> frames, int first, int count, UsmPast& past,
                               Ops& ops) const {
  const bool cumulative = config_.usm.cumulative;
  const int n_bands = config_.patch_dim, end = first + count,
            n_frames = static_cast<int>(frames.size()) / std::max(n_bands, 1),
            n_halved = halved(n_frames);
  // Times behind the first convolution that the second one reads, but for those that are kept.
  const int kept = past.kept.n_times,
            from = cumulative ? 2 * first + kept : std::max(2 * first - 1, 0),
            to = std::min(cumulative ? 2 * end + 1 : 2 * end, n_halved);
  const int from_frame = std::max(2 * from - 1, 0), to_frame = std::min(2 * to + 1, n_frames);
  const auto given = frames.subspan(static_cast<size_t>(from_frame * n_bands),
                                    static_cast<size_t>((to_frame - from_frame) * n_bands));
  UsmPlane plane{{given.begin(), given.end()}, from_frame, to_frame - from_frame, n_bands, 1};
  if (to > from) {
    convolved(0, plane, from, to, past, ops);
  } else {  // all was kept
    plane = {{}, from, 0, past.kept.n_bands, past.kept.n_channels};
  }
  if (kept > 0) {
    plane.values.insert(plane.values.begin(), past.kept.values.begin(), past.kept.values.end());
    plane.first -= kept, plane.n_times += kept;
  }
  if (cumulative) {
    past.kept = {{}, 2 * end, std::max(to - 2 * end, 0), plane.n_bands, plane.n_channels};
    const auto size = static_cast<ptrdiff_t>(past.kept.n_times) * plane.n_bands * plane.n_channels;
    past.kept.values.assign(plane.values.end() - size, plane.values.end());
  }
  const Tensor made = convolved(1, plane, first, end, past, ops);
  const Tensor out = ops.new_tensor(count, config_.model_dim());
  const LinearTarget target = behind_planes_.into(out);
  ops.linear(made.reshaped(plane.n_bands * plane.n_channels), {&target, 1});
  return out;
}

void UsmConformer::bound(Tensor x, Ops& ops) const {
  ActivationFunction clamp(Activation::kClamp);
  clamp.parameters[0] = -config_.usm.bound, clamp.parameters[1] = config_.usm.bound;
  ops.activate(x, clamp);
}

void UsmConformer::feed_forward(const FeedForward& half, const Scratch& s, Tensor x,
                                Ops& ops) const {
  ops.copy(x, s.added);
  bound(s.added, ops);
  ops.norm(s.added, rms(half.before), s.normed);
  half.up.project(s.normed, s.wide, ops);
  ops.activate(s.wide, config_.layers.ffn.activation);
  half.down.project(s.wide, s.added, ops);
  bound(s.added, ops);
  ops.norm(s.added, rms(half.behind), s.normed);
  ops.add(x, s.normed, config_.usm.residual_weight);
}

// Scores are bounded with the terms of distances in them, so that these are products, too: behind its features,
// each key has a mark at its position modulo the number of distances, and each query has there the term of the
// distance to that key.
void UsmConformer::widen_heads(const Scratch& s, Ops& ops) const {
  const int n = config_.usm.n_distances, n_heads = config_.layers.n_heads,
            head_dim = config_.layers.head_dim, wide = head_dim + n;
  const auto width = static_cast<size_t>(n);
  std::vector<float> terms(static_cast<size_t>(s.terms.rows) * static_cast<size_t>(s.terms.cols));
  ops.read_rows(s.terms, terms);
  for (size_t row = 0; row < terms.size() / width; ++row) {
    const auto first = terms.begin() + static_cast<ptrdiff_t>(row * width);
    const size_t position = row / static_cast<size_t>(n_heads);
    std::rotate(first, first + static_cast<ptrdiff_t>(position % width),
                first + static_cast<ptrdiff_t>(width));
  }
  ops.write_rows(terms, s.turned);
  const auto lay = [&](Tensor heads, Tensor behind, Tensor out) {
    ops.copy(heads.reshaped(head_dim), out.reshaped(wide).columns(0, head_dim));
    ops.copy(behind.reshaped(n), out.reshaped(wide).columns(head_dim, n));
  };
  lay(s.q, s.turned, s.wide_q), lay(s.k, s.marks, s.wide_k);
}

void UsmConformer::attend(const Layer& layer, const Scratch& s, Tensor x, KvCache& cache,
                          Ops& ops) const {
  const TowerUsm& usm = config_.usm;
  const int head_dim = config_.layers.head_dim;
  ops.copy(x, s.added);
  bound(s.added, ops);
  ops.norm(s.added, rms(layer.attention_before), s.normed);
  const std::pair<const ClippedLinear*, Tensor> products[] = {
      {&layer.q, s.q}, {&layer.k, s.k}, {&layer.v, s.v}};
  for (const auto& [linear, out] : products) {
    ops.copy(s.normed, s.added);
    linear->project(s.added, out, ops);
  }
  ops.scale_columns(s.q, *layer.query_scale);
  ops.linear_by_head(s.q.reshaped(head_dim), layer.distances, s.terms.reshaped(usm.n_distances));
  AttentionParams params{.layer = 0,
                         .n_heads = config_.layers.n_heads,
                         .scale = usm.key_scale,
                         .softcap = usm.softcap};
  widen_heads(s, ops);
  ops.store_and_attend(s.wide_q, s.wide_k, s.v, nullptr, cache, params, s.attended);
  layer.o.project(s.attended, s.added, ops);
  bound(s.added, ops);
  ops.norm(s.added, rms(layer.attention_behind), s.normed);
  ops.add(x, s.normed, 1.0f);
}

void UsmConformer::convolve(const Layer& layer, const Scratch& s, Tensor x, int n, Ops& ops) const {
  const int dim = config_.model_dim(), n_taps = config_.usm.taps;
  ops.norm(x, rms(layer.convolution_before, config_.usm.eps), s.normed);
  layer.widen.project(s.normed, s.both, ops);
  ops.activate_mul(s.both.columns(dim, dim), s.both.columns(0, dim), Activation::kSigmoid, s.gated);
  ops.clear(s.convolved);
  for (int k = 0; k < n_taps; ++k) {
    const int back = n_taps - 1 - k, count = n - back;
    if (count <= 0) continue;
    const Tensor part = s.shifted.row_range(0, count);
    ops.copy(s.gated.row_range(0, count), part);
    ops.scale_columns(part, *layer.taps[static_cast<size_t>(k)]);
    ops.add(s.convolved.row_range(back, count), part, 1.0f);
  }
  bound(s.convolved, ops);
  ops.norm(s.convolved, rms(layer.convolution_norm, config_.usm.eps), s.normed);
  ops.activate(s.normed, config_.layers.ffn.activation);
  layer.narrow.project(s.normed, s.added, ops);
  ops.add(x, s.added, 1.0f);
}

void UsmConformer::forward(int first, int end, Tensor x, int n_rows, KvCache& cache,
                           Ops& ops) const {
  const ModelConfig& layers = config_.layers;
  const auto rows = [&](int cols) { return ops.new_tensor(x.rows, cols); };
  const int n = config_.usm.n_distances, n_terms = layers.n_heads * n;
  const Scratch s{.normed = rows(x.cols),
                  .added = rows(x.cols),
                  .wide = rows(layers.ffn_dim),
                  .q = rows(x.cols),
                  .k = rows(x.cols),
                  .v = rows(x.cols),
                  .attended = rows(x.cols),
                  .terms = rows(n_terms),
                  .turned = rows(n_terms),
                  .marks = rows(n_terms),
                  .wide_q = rows(layers.q_dim() + n_terms),
                  .wide_k = rows(layers.q_dim() + n_terms),
                  .both = rows(2 * x.cols),
                  .gated = rows(x.cols),
                  .shifted = rows(x.cols),
                  .convolved = rows(x.cols)};
  std::vector<float> marks(static_cast<size_t>(x.rows) * static_cast<size_t>(n_terms));
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t width = static_cast<size_t>(n), position = i / static_cast<size_t>(n_terms);
    marks[i] = (position + i % width) % width == 0 ? 1.0f : 0.0f;
  }
  ops.write_rows(marks, s.marks);
  for (int i = first; i < end; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    feed_forward(layer.first, s, x, ops);
    attend(layer, s, x, cache, ops);
    convolve(layer, s, x, n_rows, ops);
    feed_forward(layer.last, s, x, ops);
    bound(x, ops);
    ops.norm(x, rms(layer.norm), x);
  }
}

}  // namespace penstock

// What a tower's first layer reads: products of patches, or what convolutions make of frames.
#include <algorithm>

#include "model/blocks/sublayer.h"
#include "model/towers/grids.h"
#include "model/towers/tower.h"
#include "model/towers/tower_weights.h"

namespace penstock {
namespace {

// Returns what convolutions of 3 x 3 neighbours read at every second place of a plane [times, bands,
// channels], with zeros around: [places, channels * 9].
std::vector<float> neighbours(std::span<const float> plane, int n_times, int n_bands,
                              int n_channels) {
  const int times = halved(n_times), bands = halved(n_bands);
  constexpr int kPlaces = kNeighbours * kNeighbours;
  const auto width = static_cast<size_t>(n_channels * kPlaces);
  std::vector<float> rows(static_cast<size_t>(times * bands) * width);
  for (int place = 0; place < times * bands; ++place) {
    float* const row = rows.data() + static_cast<size_t>(place) * width;
    for (int k = 0; k < kPlaces; ++k) {  // [band, time]
      const int time = place / bands * 2 + k % kNeighbours - 1,
                band = place % bands * 2 + k / kNeighbours - 1;
      if (time < 0 || time >= n_times || band < 0 || band >= n_bands) continue;
      const float* const from = plane.data() + static_cast<size_t>(time * n_bands + band) *
                                                   static_cast<size_t>(n_channels);
      for (int c = 0; c < n_channels; ++c) row[c * kPlaces + k] = from[c];
    }
  }
  return rows;
}

}  // namespace

// Inputs of each frame that there are.
size_t TowerPass::n_given() const {
  const size_t of_frame = patches_.values.size() / static_cast<size_t>(patches_.grid.n_frames);
  return of_frame / static_cast<size_t>(tower_.config_.patch_dim);
}

// Returns what the convolutions make of the frame's inputs. Their rows are made in host memory, where
// each finds its neighbours.
Tensor TowerPass::convolved(Ops& ops) const {
  const TowerConfig& config = tower_.config_;
  constexpr auto kReads = static_cast<size_t>(kNeighbours);
  auto width = static_cast<size_t>(config.patch_dim);
  const size_t size = n_given() * width;
  const auto given = patches_.values.subspan(static_cast<size_t>(frame_) * size, size);
  std::vector<float> states(given.begin(), given.end()), rows;
  Tensor made;
  for (size_t i = 0; i < config.convolutions.size(); ++i) {
    const auto stride = static_cast<size_t>(config.convolutions[i].stride);
    const size_t n_states = states.size() / width,
                 n = (n_states + (config.ends_apart ? 2 : 1) - kReads) / stride + 1;
    rows.assign(n * kReads * width, 0.0f);
    for (size_t r = 0; r < n; ++r) {
      for (size_t k = 0; k < kReads; ++k) {
        if (r * stride + k < 1 || r * stride + k > n_states) continue;  // zeros around
        const float* from = states.data() + (r * stride + k - 1) * width;
        for (size_t c = 0; c < width; ++c) rows[(r * width + c) * kReads + k] = from[c];
      }
    }
    const Tensor in = ops.new_tensor(static_cast<int>(n), static_cast<int>(kReads * width));
    made = ops.new_tensor(static_cast<int>(n), config.model_dim());
    ops.write_rows(rows, in);
    const LinearTarget target = tower_.weights_->convolutions[i].into(made);
    ops.linear(in, {&target, 1});
    ops.activate(made, Activation::kGelu);
    width = static_cast<size_t>(config.model_dim());
    if (i + 1 == config.convolutions.size()) break;
    states.resize(n * width);
    ops.read_rows(made, states);
  }
  return made;
}

// Adds what the convolutions and the linear layer make of a chunk to the inputs.
void TowerPass::convolve_chunk(int chunk, Ops& ops) {
  const TowerConfig& config = tower_.config_;
  const TowerPlanes& planes = config.planes;
  const TowerWeights& w = *tower_.weights_;
  const auto add = [&](Tensor made) {
    if (chunk == 0) inputs_.clear();
    const size_t before = inputs_.size();
    inputs_.resize(before + static_cast<size_t>(made.rows) * static_cast<size_t>(made.cols));
    ops.read_rows(made, std::span(inputs_).subspan(before));
  };
  const auto n_frames = static_cast<int>(n_given());
  if (w.usm != nullptr) {
    const int first_position = chunk * planes.n_positions;
    const size_t size = n_given() * static_cast<size_t>(config.patch_dim);
    if (chunk == 0) past_ = std::make_unique<UsmPast>();
    return add(w.usm->positions(
        patches_.values.subspan(static_cast<size_t>(frame_) * size, size), first_position,
        std::min(planes.n_positions, patches_.grid.cols - first_position), *past_, ops));
  }
  int n_times = std::min(planes.n_frames, n_frames - chunk * planes.n_frames),
      n_bands = config.patch_dim, n_channels = 1;
  const auto size = static_cast<size_t>(n_times) * static_cast<size_t>(n_bands);
  const int first = frame_ * n_frames + chunk * planes.n_frames;
  const auto given =
      patches_.values.subspan(static_cast<size_t>(first) * static_cast<size_t>(n_bands), size);
  std::vector<float> states(given.begin(), given.end()), rows;  // [times, bands, channels]
  for (const LinearWeights& convolution : w.convolutions) {
    rows = neighbours(states, n_times, n_bands, n_channels);
    n_times = halved(n_times), n_bands = halved(n_bands);
    const Tensor in = ops.new_tensor(n_times * n_bands, kNeighbours * kNeighbours * n_channels);
    n_channels = planes.channels;
    const Tensor made = ops.new_tensor(n_times * n_bands, n_channels);
    ops.write_rows(rows, in);
    const LinearTarget target = convolution.into(made);
    ops.linear(in, {&target, 1});
    ops.activate(made, Activation::kGelu);
    states.resize(static_cast<size_t>(made.rows) * static_cast<size_t>(made.cols));
    ops.read_rows(made, states);
  }
  const auto bands = static_cast<size_t>(n_bands), channels = static_cast<size_t>(n_channels);
  const int n = std::min(n_times, patches_.grid.cols - chunk * planes.n_positions);
  rows.resize(static_cast<size_t>(n) * bands * channels);
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t channel = i / bands % channels, band = i % bands;
    rows[i] = states[(i / (bands * channels) * bands + band) * channels + channel];
  }
  const Tensor in = ops.new_tensor(n, n_bands * n_channels),
               out = ops.new_tensor(n, config.model_dim());
  ops.write_rows(rows, in);
  const LinearTarget target = w.planes.into(out);
  ops.linear(in, {&target, 1});
  add(out);
}

// Returns the product of the frame's patches.
Tensor TowerPass::patch_products(Ops& ops) const {
  const TowerConfig& config = tower_.config_;
  const auto dim = static_cast<size_t>(config.patch_dim);
  const auto n = static_cast<size_t>(grid_->n_patches);
  std::vector<float> ordered(n * dim);
  const auto frame = patches_.values.subspan(static_cast<size_t>(frame_) * n * dim, n * dim);
  for (size_t i = 0; i < n; ++i)
    std::ranges::copy(frame.subspan(static_cast<size_t>(grid_->source[i]) * dim, dim),
                      ordered.begin() + static_cast<ptrdiff_t>(i * dim));
  if (config.patch_scale != 1.0f || config.patch_shift != 0.0f)
    for (float& value : ordered) value = value * config.patch_scale + config.patch_shift;
  const Tensor in = ops.new_tensor(grid_->n_patches, config.patch_dim),
               products = ops.new_tensor(grid_->n_patches, config.model_dim());
  ops.write_rows(ordered, in);
  const LinearTarget target = tower_.weights_->patches.into(products);
  ops.linear(in, {&target, 1});
  return products;
}

Tensor TowerPass::input_products(Ops& ops) const {
  const TowerConfig& config = tower_.config_;
  if (config.planes.convolutions.empty())
    return config.convolutions.empty() ? patch_products(ops) : convolved(ops);
  const Tensor products = ops.new_tensor(grid_->n_patches, config.model_dim());
  ops.write_rows(inputs_, products);
  return products;
}

// x = positions + what the frame's patches become, normed.
void TowerPass::read_patches(Tensor x, Ops& ops) const {
  const TowerConfig& config = tower_.config_;
  const TowerWeights& w = *tower_.weights_;
  const Tensor products = input_products(ops);
  if (w.patch_norm) ops.norm(products, norm_params(config.layers, w.patch_norm), products);
  if (grid_->base.empty()) {
    ops.copy(products, x.row_range(0, grid_->n_patches));
  } else {
    ops.write_rows(grid_->base, x);
    ops.add(x.row_range(0, grid_->n_patches), products, 1.0f);
  }
  if (w.pre_norm)
    ops.norm(x,
             {w.pre_norm.weight.get(), w.pre_norm.bias.get(), config.pre_norm_config.eps,
              config.pre_norm_config.layer_norm},
             x);
}

}  // namespace penstock

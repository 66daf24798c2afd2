// A tower that hears as the Universal Speech Model does (Gemma 3n and 4): convolutions over the plane of frames and
// bands, then conformer layers whose attention sees some positions back, with terms of the distance under a
// cap, and whose convolutions over time read positions before their own.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/load/tensor_loader.h"
#include "model/tensors/weights.h"
#include "model/towers/clipped_layers.h"
#include "model/towers/tower_config.h"

namespace penstock {

// A plane [times, bands, channels] of which times from `first` on are there.
struct UsmPlane {
  std::vector<float> values;
  int first = 0, n_times = 0, n_bands = 0, n_channels = 0;
};

// What the convolutions have had of a sound so far (TowerUsm::cumulative).
struct UsmPast {
  struct Sums {
    double values = 0, squares = 0;  // squares: of differences from the means so far
    int64_t count = 0;
  };
  std::array<Sums, 2> sums;
  UsmPlane kept;  // behind the first convolution, from the time on that is read again
};

class UsmConformer {
 public:
  // Errors: those of TensorLoader, kUnsupported (a backend without what it computes).
  static Result<std::unique_ptr<UsmConformer>> load(TensorLoader& tensors,
                                                    const TowerConfig& config);
  // Returns what the convolutions and the linear layer behind them make of a sound's frames [n, patch_dim]:
  // `count` positions from `first` on, [count, model_dim], as a tensor of the step. REQUIRES: positions before
  // `first` were computed with the same past.
  Tensor positions(std::span<const float> frames, int first, int count, UsmPast& past,
                   Ops& ops) const;
  // [2, text_dim] rows for TowerTail::fill and last, or empty.
  std::span<const float> tail() const { return tail_; }
  // Computes layers [first, end) of one sequence: x: [tokens, model_dim], of which n_rows count. Keys of the cache
  // have TowerUsm::n_distances more features than heads.
  void forward(int first, int end, Tensor x, int n_rows, KvCache& cache, Ops& ops) const;
  int64_t bytes() const;
  // Values of a row that a step takes beside the stream.
  static int64_t row_values(const TowerConfig& config);

 private:
  struct FeedForward {
    NormWeights before, behind;
    ClippedLinear up, down;
  };
  struct Layer {
    FeedForward first, last;
    NormWeights attention_before, attention_behind, convolution_before, convolution_norm, norm;
    ClippedLinear q, k, v, o;
    std::unique_ptr<Vector> query_scale;             // [dim]
    std::vector<std::unique_ptr<Weight>> distances;  // of each head: [distances, head_dim]
    ClippedLinear widen, narrow;                     // [2 * dim, dim] values and gates; [dim, dim]
    std::vector<std::unique_ptr<Vector>> taps;       // [dim] of each
  };
  struct Convolution {
    LinearWeights weights;
    NormWeights norm;
    std::vector<float> scale;  // instead of the norm's weight (TowerUsm::cumulative)
    int channels = 0;
  };
  struct Scratch;
  explicit UsmConformer(const TowerConfig& config) : config_(config) {}
  Status load_planes(TensorLoader& tensors);
  Status load_tail(TensorLoader& tensors);
  Status load_layer(TensorLoader& tensors, const std::string& at, Layer& layer);
  Status load_feed_forward(TensorLoader& tensors, const std::string& at, FeedForward& out);
  Status load_attention(TensorLoader& tensors, const std::string& at, Layer& layer);
  Status load_convolution(TensorLoader& tensors, const std::string& at, Layer& layer);
  void feed_forward(const FeedForward& half, const Scratch& s, Tensor x, Ops& ops) const;
  void widen_heads(const Scratch& s, Ops& ops) const;
  void attend(const Layer& layer, const Scratch& s, Tensor x, KvCache& cache, Ops& ops) const;
  void convolve(const Layer& layer, const Scratch& s, Tensor x, int n, Ops& ops) const;
  void bound(Tensor x, Ops& ops) const;
  Tensor convolved(size_t index, UsmPlane& plane, int from, int to, UsmPast& past, Ops& ops) const;

  const TowerConfig& config_;  // the tower's
  std::vector<Convolution> convolutions_;
  LinearWeights behind_planes_;
  std::vector<Layer> layers_;
  std::vector<float> tail_;
};

}  // namespace penstock

// AWQ and SmoothQuant: inputs of linear layers are divided by a scale per channel, by which weights
// are multiplied; the division is folded into the producer of the input.
#pragma once
#include "quantize/methods/activation_stats.h"
#include "quantize/methods/layer_method.h"

namespace penstock {

// Tensors that share an input, and the tensors that produce it.
struct ScalingSite {
  Site site = Site::kNone;
  int expert = -1;
  // linear layers that read the input: indices into LayerValues
  std::vector<size_t> readers;
  // norm weight (and bias), or a linear layer (and its bias), scaled per output
  std::vector<size_t> producers;
  // inputs fed by one output of the producer: query heads per KV head
  int repeat = 1;
  // with repeat > 1: length of the repeated runs
  int head_dim = 0;
  // first row of the producer's part (fused matrices)
  int producer_offset = 0;
};

// Returns the sites at which a scale can be folded without changing the layer's function: not after
// an activation that is nonlinear in its second factor, not before norms of the result.
std::vector<ScalingSite> scaling_sites(const ModelConfig& config, const LayerValues& layer);

// Multiplies the readers' inputs by s and divides the producers' outputs. s: [cols]. REQUIRES: s is
// constant over repeated heads.
void fold_scale(const ModelConfig& config, const ScalingSite& site, const std::vector<float>& s,
                LayerValues& layer);

// Makes s equal for inputs that are fed by one output (geometric mean).
void share_repeated(const ScalingSite& site, std::vector<float>& s);

struct AwqChoice {
  double alpha = 0;
  std::vector<float> scale;             // [cols]; ones when alpha is 0
  double error = 0, rounded_error = 0;  // output error with the scale, and without
};

// Returns the exponent of the mean magnitude for which rounding of the readers has the least output
// error; 0 means rounding to nearest.
AwqChoice search_awq(ThreadPool& pool, const GroupCoding& coding, const ScalingSite& site,
                     const ActivationStats& stats, const LayerValues& layer);

// Rounds with each group's range reduced to that of its least output error.
GroupedCodes clip_groups(ThreadPool& pool, const GroupCoding& coding,
                         const std::vector<float>& values, int rows, int cols,
                         const Eigen::MatrixXf& hessian);

// Exponent in [0, 1] of max|x|^alpha / max|w|^(1 - alpha). alpha < 0: searches the least output
// error with 8-bit activations (per token or static) on the sample of inputs.
struct SmoothChoice {
  double alpha = 0;
  std::vector<float> scale;
};
SmoothChoice search_smoothing(ThreadPool& pool, const Recipe& recipe, const ScalingSite& site,
                              const ActivationStats& stats, const LayerValues& layer);

}  // namespace penstock

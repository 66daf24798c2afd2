// Options of one forward.
#pragma once
#include <span>

#include "ops/tensor.h"

namespace penstock {

struct ForwardOptions {
  // early exit after this many layers; 0 = all. A stage computes those of them that it has
  int n_layers = 0;
  bool logits = true;   // false: hidden states only
  bool states = false;  // fills StepOutputs::states
  // With `states`: returns, instead of the states after the final norm, the residual streams that
  // these layers read, concatenated: [n_tokens, taps.size() * model_dim]. For decoders whose layers
  // follow one another (Model::taps_layers()). REQUIRES: the span outlives the backend's use of it.
  std::span<const int> taps = {};
  // Residual stream [n_tokens, model_dim] to start from instead of the embeddings. Layers
  // [first_layer, n_layers) are applied to it in place and nothing else is computed. For callers
  // that process one layer at a time; they begin the step themselves.
  const Tensor* stream = nullptr;
  int first_layer = 0;
  // Input of a pipeline stage that is not the first: StepOutputs::stream of the previous one.
  std::span<const float> stage_input = {};
};

}  // namespace penstock

// What is asked of one forward.
#pragma once
#include <span>

#include "ops/tensor.h"

namespace penstock {

struct ForwardOptions {
  int n_layers = 0;     // early exit after so many layers; 0 = all. Of a stage those of them that it has
  bool logits = true;   // false: hidden states only
  bool states = false;  // StepOutputs::states is wanted
  // With states, instead of those after the final norm: the residual streams before these layers side by side, [n_tokens,
  // taps.size() * model_dim]. Of decoders whose layers are one after the other (Model::taps_layers()). Must last as long as the
  // backend.
  std::span<const int> taps = {};
  // A residual stream [n_tokens, model_dim] to start from instead of the embeddings: layers [first_layer,
  // n_layers) are applied to it in place and nothing else is computed. For whoever looks at one layer at a
  // time (and has begun the step).
  const Tensor* stream = nullptr;
  int first_layer = 0;
  // Of a stage of a pipeline that is not the first: StepOutputs::stream of the one before.
  std::span<const float> stage_input = {};
};

}  // namespace penstock

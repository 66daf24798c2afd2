// What queries and keys are multiplied with to make terms of scores by distance (RelativeConfig):
// projections of the columns' embeddings.
#pragma once
#include "model/load/tensor_loader.h"

namespace penstock {

// Makes AttentionWeights::query_terms and key_terms of a layer whose projections are loaded; does
// nothing where the model has no embeddings of columns.
Status make_relative_terms(TensorLoader& tensors, AttentionWeights& layer);

}  // namespace penstock

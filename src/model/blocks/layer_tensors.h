// Visits the tensors of a layer: its norms and its blocks.
#pragma once
#include "model/blocks/weights.h"

namespace penstock {

void visit_feed_forward(TensorVisitor& v, LayerWeights& w);

// Calls the visitor for every tensor of the layer v.layer().
void visit_layer(TensorVisitor& v, LayerWeights& w);

}  // namespace penstock

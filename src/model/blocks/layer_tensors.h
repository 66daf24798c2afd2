// What a layer is made of, in the words of tensors/specs.h: its norms, and the blocks that it has.
#pragma once
#include "model/blocks/weights.h"

namespace penstock {

void visit_feed_forward(TensorVisitor& v, LayerWeights& w);

// Calls the visitor for every tensor of its layer.
void visit_layer(TensorVisitor& v, LayerWeights& w);

}  // namespace penstock

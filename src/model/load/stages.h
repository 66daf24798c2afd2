// Which layers each stage of a pipeline has: contiguous ones, so that a step takes the slowest stage as short as can be. The last has
// the output matrix besides, the embedding counts nowhere: of it a step reads a row for each token.
//
// Several stages are busy only with steps of several rows, which take as long as there is to multiply: a weight of the output matrix,
// which often has more bits, counts as much as one of the layers.
#pragma once
#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "parallel/shard.h"

namespace penstock {

// What the file has of every layer, and would have of the output matrix with as many bits for a weight.
struct LayerBytes {
  std::vector<int64_t> layers;  // [n_layers]
  int64_t output = 0;
};
LayerBytes layer_bytes(const WeightSource& source, const ModelConfig& config);

// Of all layers, what the file has of experts that not every token takes: what experts_offload need not have in memory.
int64_t expert_bytes(const WeightSource& source, const ModelConfig& config);

// Layers that attend to an earlier one's keys and values are on its stage. Error: kUnsupported where that, or their number, leaves a
// stage without layers.
Result<std::vector<Shard::Range>> cut_stages(const ModelConfig& config, const LayerBytes& bytes,
                                             int n_stages);

}  // namespace penstock

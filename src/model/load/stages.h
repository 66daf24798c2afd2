// Pipeline stages: which contiguous layers each has, so that the slowest stage takes as little time
// as possible. The last stage also has the output matrix. The embedding is not counted: a step
// reads one row of it for each token.
//
// Several stages are busy only if steps have several rows, and such steps are bound by
// multiplication: a weight of the output matrix counts as much as one of the layers although it
// often has more bits.
#pragma once
#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "model/tensors/name_table.h"
#include "parallel/shard.h"

namespace penstock {

// Bytes of every layer in the file, and of the output matrix if it had as many bits per weight.
struct LayerBytes {
  std::vector<int64_t> layers;  // [n_layers]
  int64_t output = 0;
};
LayerBytes layer_bytes(const WeightSource& source, const ModelConfig& config);

// Bytes of routed experts of all layers in the file, which experts_offload need not keep in memory.
int64_t expert_bytes(const WeightSource& source, const ModelConfig& config);
// Returns the layer of a tensor; -1: none. pattern: NameTable::layer.
int layer_of(std::string_view name, std::string_view pattern);
// Returns the layer whose routed experts the tensor belongs to; -1: none. names: of the source's
// format.
int expert_layer_of(const WeightSource& source, const TensorInfo& tensor, const ModelConfig& config,
                    const NameTable& names);
// Whether the tensor has rows of a table of n-grams, which stays in its file. names: of the
// source's format.
bool is_of_table(std::string_view name, const ModelConfig& config, const NameTable& names);
// Returns the bytes of tables of n-grams in the source.
int64_t table_bytes(const WeightSource& source, const ModelConfig& config);

// Returns the layers of every stage. Layers that attend to keys and values of an earlier one, or to
// what it selects, are on the same stage. Error: kUnsupported if that rule, or the number of layers, leaves a stage without
// layers.
Result<std::vector<Shard::Range>> cut_stages(const ModelConfig& config, const LayerBytes& bytes,
                                             int n_stages);

}  // namespace penstock

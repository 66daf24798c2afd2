// Loads the weights of a model, or parts of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"
#include "model/load/progress.h"
#include "model/sources/expert_file.h"
#include "model/sources/packed_cache.h"

namespace penstock {

class TensorLoader;

// Weights that are not packed but come from an earlier start's file, or else a list of those that are packed, by
// the names that they have in such a file.
struct PackedWeights {
  std::shared_ptr<const PackedFile> from;  // null: the weights are packed
  std::vector<NamedWeight> made;
  bool maps_experts = false;  // experts' weights lie in a mapped file: in `from`, or are moved to
  ExpertFile* experts = nullptr;
};

// Checks every tensor's shape before use; a tensor that nothing uses is an error too, for the model would be
// another. With packed->from, its error kCorruptFile may also mean that file. shard: of the whole model's config what one of
// several ranks has (ModelCuts).
Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source, const ModelConfig& config,
                                                   Ops& ops, const LoadProgress& progress,
                                                   PackedWeights* packed = nullptr,
                                                   const ShardOptions& shard = {});

// As load_weights() with the layers of the configuration where the file has more: unused tensors are no error.
Result<std::unique_ptr<ModelWeights>> load_some_layers(const WeightSource& source, const ModelConfig& config,
                                                       Ops& ops, const ShardOptions& shard);

// The same piece by piece, for whoever holds one layer at a time: everything outside the layers (`layers` is
// n_layers empty ones), and one layer. Unused tensors are no error.
Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source, const ModelConfig& config,
                                                 Ops& ops, const ShardOptions& shard = {});
Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops, int layer,
                                const ShardOptions& shard = {});

// One layer, of which the names of tensors begin with `at`.
Status load_layer(TensorLoader& tensors, int layer, const std::string& at, LayerWeights& out);

}  // namespace penstock

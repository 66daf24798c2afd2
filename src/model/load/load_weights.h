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

// Packed weights of an earlier start, or the list of weights that this load packs, with their names
// in a file of packed weights.
struct PackedWeights {
  std::shared_ptr<const PackedFile> from;  // null: the weights are packed
  std::vector<NamedWeight> made;
  // Experts are mapped: from `from`, or from the file to which they are moved.
  bool maps_experts = false;
  ExpertFile* experts = nullptr;
  // Layers whose experts Ops::host() computes; beyond its end none.
  std::vector<bool> on_host;
  bool has_on_host(int layer) const {
    return layer >= 0 && static_cast<size_t>(layer) < on_host.size() &&
           on_host[static_cast<size_t>(layer)];
  }
};

// Loads all weights. Checks every tensor's shape before use; a tensor that nothing uses is an
// error, too, since the model would be a different one. With packed->from, kCorruptFile may also
// refer to that file. shard: the rank's part (ModelCuts) of the model that config describes.
Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source,
                                                   const ModelConfig& config, Ops& ops,
                                                   const LoadProgress& progress,
                                                   PackedWeights* packed = nullptr,
                                                   const ShardOptions& shard = {});

// As load_weights(), but the file may have more layers than the configuration: unused tensors are
// no error.
Result<std::unique_ptr<ModelWeights>> load_some_layers(const WeightSource& source,
                                                       const ModelConfig& config, Ops& ops,
                                                       const ShardOptions& shard);

// For callers that hold one layer at a time: everything outside the layers (`layers` has n_layers
// empty ones), and one layer. Unused tensors are no error.
Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source,
                                                 const ModelConfig& config, Ops& ops,
                                                 const ShardOptions& shard = {});
Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops,
                                int layer, const ShardOptions& shard = {});

// Loads one layer whose tensors have the prefix `at`.
Status load_layer(TensorLoader& tensors, int layer, const std::string& at, LayerWeights& out);

}  // namespace penstock

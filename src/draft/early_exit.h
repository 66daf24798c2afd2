// The layers and weights of the early-exit drafter. When several ranks share the model every rank
// has its part, since all of them compute each batch of the drafter together
// (DraftTarget::announce).
#pragma once
#include <memory>

#include "draft/drafter.h"
#include "penstock/engine_config.h"

namespace penstock {

struct EarlyExit {
  int n_layers = 0;
  std::unique_ptr<WeightSource> light_source;  // a backend may keep views into it
  // the first layers in 4 bits; null: the target's layers are used
  std::unique_ptr<Model> light;
};
// Returns the number of layers before the exit. Errors: kInvalidArgument, kUnsupported.
Result<int> exit_layers(const EngineConfig& config, const ModelConfig& model);
// Loads this rank's part. Errors: kInvalidArgument, kUnsupported; those of loading.
Result<EarlyExit> open_early_exit(const EngineConfig& config, const DraftTarget& target);

}  // namespace penstock

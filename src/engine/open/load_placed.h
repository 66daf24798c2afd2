// Loads a whole model with its weights where they belong: on the backend's device, and the experts
// that do not fit there on the host beside it.
#pragma once
#include "engine/open/open.h"
#include "model/model.h"

namespace penstock {

// Loads the model. Of a mixture on a device, experts are where the configuration asks for them
// (n_cpu_moe, cpu_moe, override_tensor, experts_offload); if it asks for nothing, as many of the
// first layers are on the host as do not fit the device beside a step and a sequence. With
// config.quantize, which makes the source's tensors smaller as they are read, experts go to the host
// when the device refuses memory. REQUIRES: a resolved config with one rank.
// Errors: those of loading; kInvalidArgument and kUnsupported for what cannot be placed so.
Result<std::shared_ptr<Model>> load_placed(const WeightSource& source, Ops& ops,
                                           const EngineConfig& config,
                                           const LoadProgress& progress);

// Error: kUnsupported if the configuration, of several ranks on devices, places experts.
Status check_one_rank(const EngineConfig& config, const Ops& ops);

}  // namespace penstock

// EAGLE-3: a trained layer beside the target drafts a chain.
#include "draft/layer_drafter.h"
#include "model/eagle_layer.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_eagle3_drafter(DrafterConfig config,
                                                     const DraftTarget& target) {
  if (config.engine.spec_heads.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "spec eagle3: spec_heads: expected a directory with config.json and safetensors "
                  "files, got none");
  }
  ASSIGN_OR_RETURN(auto source, open_weights(config.engine.spec_heads));
  std::vector<std::unique_ptr<GuessLayer>> layers;
  ASSIGN_OR_RETURN(layers.emplace_back(),
                   EagleLayer::load(std::move(source), *target.model, *target.ops));
  return make_layer_drafter("eagle3", std::move(layers), target, config);
}

}  // namespace penstock

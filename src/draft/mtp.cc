// MTP: the checkpoint's own next-token prediction layer drafts a chain.
#include <spdlog/spdlog.h>

#include "base/log.h"
#include "draft/layer_drafter.h"
#include "model/next_token_layer.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_mtp_drafter(DrafterConfig config, const DraftTarget& target) {
  if (target.source == nullptr)
    return errorf(ErrorCode::kUnsupported,
                  "spec mtp: expected the model's own file, which is not at hand");
  ASSIGN_OR_RETURN(auto layer, NextTokenLayer::load(*target.source, *target.model, *target.ops));
  const int n_layers = target.model->config().n_next_token_layers;
  if (n_layers > 1) {
    log().warn(
        "{}: spec mtp: the first of {} layers that predict further tokens makes all guesses; the "
        "others are passed over",
        target.source->path().string(), n_layers);
  }
  return make_layer_drafter("mtp", std::move(layer), target, config);
}

}  // namespace penstock

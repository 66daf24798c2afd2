// MTP: the checkpoint's own next-token prediction layers draft a chain.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/log.h"
#include "draft/layer_drafter.h"
#include "model/next_token_layer.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_mtp_drafter(DrafterConfig config, const DraftTarget& target) {
  if (target.source == nullptr)
    return errorf(ErrorCode::kUnsupported,
                  "spec mtp: expected the model's own file, which is not at hand");
  const WeightSource& source = *target.source;
  const int n_named = target.model->config().n_next_token_layers;
  const int n_layers = std::max(1, NextTokenLayer::count(source, *target.model, *target.ops));
  std::vector<std::unique_ptr<GuessLayer>> layers;
  for (int i = 0; i < n_layers; ++i) {
    ASSIGN_OR_RETURN(layers.emplace_back(),
                     NextTokenLayer::load(source, *target.model, *target.ops, i));
  }
  if (n_layers < n_named) {
    log().warn(
        "{}: spec mtp: the file has {} of {} layers that predict further tokens; the last one "
        "makes all further guesses",
        source.path().string(), n_layers, n_named);
  }
  return make_layer_drafter("mtp", std::move(layers), target, config);
}

}  // namespace penstock

// A small model with the target's vocabulary guesses a chain, token by token, for all sequences at once.
#pragma once
#include "draft/drafters.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_model_drafter(DrafterConfig config, const DraftTarget& target);

}  // namespace penstock

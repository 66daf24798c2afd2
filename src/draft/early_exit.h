// The target's own first layers, with its final norm and output matrix, guess a chain.
#pragma once
#include "draft/drafters.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_early_exit_drafter(DrafterConfig config, const DraftTarget& target);

}  // namespace penstock

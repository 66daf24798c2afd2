// Trained heads guess the next few tokens at once from the target's last state; a static tree of their most
// likely tokens is checked.
#pragma once
#include "draft/drafters.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_medusa_drafter(DrafterConfig config, const DraftTarget& target);

}  // namespace penstock

// A drafter made of a layer that guesses a token further from the target's state at one.
#pragma once
#include "draft/drafters.h"
#include "model/guess_layer.h"

namespace penstock {

// name: its row in drafters.cc.
std::unique_ptr<Drafter> make_layer_drafter(const char* name, std::unique_ptr<GuessLayer> layer,
                                            const DraftTarget& target, const DrafterConfig& config);

}  // namespace penstock

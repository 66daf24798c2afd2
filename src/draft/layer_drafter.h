// A drafter made of one layer (MTP, EAGLE-3) that predicts the token after the next from the
// target's state and the next token.
#pragma once
#include "draft/drafters.h"
#include "model/guess_layer.h"

namespace penstock {

// name: the drafter's name in the list of drafters.cc.
std::unique_ptr<Drafter> make_layer_drafter(const char* name, std::unique_ptr<GuessLayer> layer,
                                            const DraftTarget& target, const DrafterConfig& config);

}  // namespace penstock

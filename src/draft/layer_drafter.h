// A drafter made of layers (MTP, EAGLE-3) that predict further tokens from the target's states and
// the tokens after them.
#pragma once
#include <memory>
#include <vector>

#include "draft/drafters.h"
#include "model/guess_layer.h"

namespace penstock {

// name: the drafter's name in the list of drafters.cc. layers: the i-th makes the i-th guess from
// what the one before it gave, the last one all further guesses from its own; at least one.
std::unique_ptr<Drafter> make_layer_drafter(const char* name,
                                            std::vector<std::unique_ptr<GuessLayer>> layers,
                                            const DraftTarget& target, const DrafterConfig& config);

}  // namespace penstock

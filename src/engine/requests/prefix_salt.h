// What keeps requests apart whose prompts begin alike.
#pragma once
#include <string>

#include "penstock/engine.h"

namespace penstock {

// Requests share cached blocks only when theirs is the same (root_hash() of it): it says the salt they bring and their adapter.
std::string prefix_salt(const Request& request);

}  // namespace penstock

#pragma once
#include <string>

namespace penstock {

// Returns the prefix followed by 24 random hexadecimal digits. Thread-safe.
std::string random_id(const std::string& prefix);

}  // namespace penstock

#pragma once
#include <string>

namespace penstock {

// "prefix" and 24 hexadecimal digits. Any thread.
std::string random_id(const std::string& prefix);

}  // namespace penstock

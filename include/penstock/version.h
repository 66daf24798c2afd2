// Semantic version of the library and the program.
#pragma once

namespace penstock {
inline constexpr const char* kVersion = "0.1.0";
}  // namespace penstock

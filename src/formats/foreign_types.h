// Names of GGUF's tensor types that are not read: withdrawn ones, ones that no file has, and those
// of ik_llama.cpp, a fork of llama.cpp with types of its own.
#pragma once
#include <cstdint>
#include <string>

namespace penstock {

// Returns the name of a type number that find_ggml_type() does not know and what to convert the
// file to, for messages; "unknown" for any other number.
std::string foreign_type(uint32_t id);

}  // namespace penstock

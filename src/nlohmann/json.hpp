// nlohmann-json with a destructor of its values that allocates nothing, and with assertions that
// throw. It stands before the system's header of this name: whoever writes
// #include <nlohmann/json.hpp> has it.
#pragma once

namespace penstock {
// Throws std::logic_error, which no handler of the library's own exceptions takes for a mistake of
// the text. In a function that is noexcept (copies that are moved, destructors) that ends the
// process, as an assertion does.
[[noreturn]] void json_assertion_failed(const char* condition, const char* file, int line);
}  // namespace penstock

// A const value that is asked for a member which it does not have fails an assertion.
#define JSON_ASSERT(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? void(0)                                     \
       : ::penstock::json_assertion_failed(#condition, __FILE__, __LINE__))

#include_next <nlohmann/json.hpp>

namespace nlohmann {

// The library's own version moves all children into a std::vector, so that deep values need no
// stack. Where memory has run out that ends the process, since destructors may not throw. This
// version recurses (base/json_library.cc); base/json_text.h bounds how deep values nest.
template <>
void json::json_value::destroy(value_t type);
template <>
void ordered_json::json_value::destroy(value_t type);

}  // namespace nlohmann

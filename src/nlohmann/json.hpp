// nlohmann-json with a destructor of its values that allocates nothing. It stands before the
// system's header of this name: whoever writes #include <nlohmann/json.hpp> has it.
#pragma once
#include_next <nlohmann/json.hpp>

namespace nlohmann {

// The library's own version moves all children into a std::vector, so that deep values need no
// stack. Where memory has run out that ends the process, since destructors may not throw. This
// version recurses (base/json_destroy.cc); base/json_text.h bounds how deep values nest.
template <>
void json::json_value::destroy(value_t type);
template <>
void ordered_json::json_value::destroy(value_t type);

}  // namespace nlohmann

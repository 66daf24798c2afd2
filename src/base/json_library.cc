// Parts of the JSON library that are compiled once: values are destroyed without recursion, and a failing
// assertion throws. src/nlohmann/json.hpp declares them.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace penstock {

void json_assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(
      fmt::format("JSON library: {} does not hold at {}:{}", condition, file, line));
}

}  // namespace penstock

namespace nlohmann {
namespace {

template <class T>
void release(T* value) {
  if (value == nullptr) return;  // of a value that could not be made
  std::destroy_at(value);
  std::allocator<T>().deallocate(value, 1);
}

template <class Value>
void release_json(Value& value, json::value_t type) {
  switch (type) {
    case json::value_t::object: return release(value.object);
    case json::value_t::array: return release(value.array);
    case json::value_t::string: return release(value.string);
    case json::value_t::binary: return release(value.binary);
    default: return;
  }
}

}  // namespace

template <>
void json::json_value::destroy(value_t type) {
  release_json(*this, type);
}

template <>
void ordered_json::json_value::destroy(value_t type) {
  release_json(*this, type);
}

}  // namespace nlohmann

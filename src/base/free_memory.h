// Values that give their memory back.
#pragma once
#include <utility>

namespace penstock {

// Leaves an empty value. Of strings and vectors `value = {}` keeps the memory, as their standard
// allows.
template <class T>
void free_memory(T& value) {
  const T gone(std::move(value));
  value = T();
}

}  // namespace penstock

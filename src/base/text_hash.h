// Maps and sets of texts that others choose: of requests and of files.
//
// Nobody can make texts whose hashes are equal, of which each would be compared with all others: the
// hash has a key of its own in every process. So the order of elements differs from run to run.
// tools/check_layers.py checks that no texts are hashed otherwise.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace penstock {

// SipHash-1-3.
uint64_t text_hash(std::string_view text) noexcept;
// SipHash-1-3 of two numbers, with the same key of the process.
uint64_t number_hash(uint64_t first, uint64_t second = 0) noexcept;

struct TextHash {
  using is_transparent = void;
  // Not noexcept: the standard library then keeps each key's hash, as it does for texts, and hashes
  // no key that it passes.
  size_t operator()(std::string_view text) const { return text_hash(text); }
};

template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;
using TextSet = std::unordered_set<std::string, TextHash, std::equal_to<>>;
// Containers of texts that others own and keep alive.
template <class T>
using ViewMap = std::unordered_map<std::string_view, T, TextHash>;
using ViewSet = std::unordered_set<std::string_view, TextHash>;

}  // namespace penstock

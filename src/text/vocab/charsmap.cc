#include "text/vocab/charsmap.h"

#include <cstring>

namespace penstock {
namespace {

// A unit of the double array: label in the low 8 bits (bit 31 marks a value), bit 8: it has a
// value, bits 10 and up: offset of the children, times 256 if bit 9 is set.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (0x80000000u | 0xFF); }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof trie_bytes) {
    return errorf(ErrorCode::kCorruptFile,
                  "precompiled_charsmap: expected at least 4 bytes, got {}", blob.size());
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes > blob.size() - sizeof trie_bytes || trie_bytes % sizeof(uint32_t) != 0) {
    return errorf(ErrorCode::kCorruptFile,
                  "precompiled_charsmap: trie of {} bytes in a table of {} bytes", trie_bytes,
                  blob.size());
  }
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  if (trie_bytes > 0) std::memcpy(map.units_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  map.replacements_ = blob.substr(sizeof trie_bytes + trie_bytes);
  return map;
}

std::optional<Charsmap::Found> Charsmap::find(std::string_view text, bool first) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Found> found;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t start = value(units_[node]);
    if (start >= replacements_.size()) break;
    const size_t end = replacements_.find('\0', start);
    if (end == std::string::npos) break;
    found = {i + 1, std::string_view(replacements_).substr(start, end - start)};
    if (first) break;
  }
  return found;
}

}  // namespace penstock

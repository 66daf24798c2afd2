// The pieces (spellings of tokens) of a vocabulary: id to piece and piece to id.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "penstock/types.h"
#include "text/vocab/flat_map.h"

namespace penstock {

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // ▁, SentencePiece's space

class Vocabulary {
 public:
  static constexpr int kMaxSize = 1 << 22;

  // Sets the piece of an id. Of two ids with the same piece, find() returns the later. Errors:
  // kCorruptFile (the id is out of range, or has another piece and not `replace`).
  Status add(int64_t id, std::string_view piece, bool replace = false) {
    if (id < 0 || id >= kMaxSize) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer: token \"{:.40}\": expected an id from 0 to {}, got {}", piece,
                    kMaxSize - 1, id);
    }
    const auto at = static_cast<size_t>(id);
    if (at >= entries_.size()) entries_.resize(at + 1, kNone);
    if (entries_[at] != kNone && !replace && index_.key(entries_[at]) != piece) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer: id {} belongs to both \"{:.40}\" and \"{:.40}\"", id,
                    index_.key(entries_[at]), piece);
    }
    entries_[at] = index_.insert(piece, static_cast<int32_t>(id));
    return {};
  }
  int size() const { return static_cast<int>(entries_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size() && entries_[id] != kNone; }
  std::string_view piece(TokenId id) const {
    return contains(id) ? index_.key(entries_[id]) : std::string_view();
  }
  TokenId find(std::string_view piece) const { return index_.find(piece); }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  StringIndex index_;
  std::vector<uint32_t> entries_;  // entry in index_ of each id, or kNone
};

// The ids of the byte tokens "<0x00>" to "<0xFF>"; kNoToken for missing ones.
using ByteTokens = std::array<TokenId, 256>;
ByteTokens byte_tokens(const Vocabulary& vocabulary);
// Returns the byte that a piece such as "<0x1F>" stands for; -1 for other pieces.
int byte_of_piece(std::string_view piece);

}  // namespace penstock

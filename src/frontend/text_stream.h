// The text of one reply while its tokens arrive: whole UTF-8 only, cut at the first stop string.
// One object per sequence; not thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock {

// Bytes to UTF-8 text, piece by piece; the whole is what Python's bytes.decode(errors="replace") gives: each
// maximal part of a broken sequence becomes one U+FFFD.
class Utf8Decoder {
 public:
  // Appends the text that is certain. At most three bytes are held back.
  void push(std::string_view bytes, std::string& text);
  // Appends what an unfinished sequence becomes, and starts anew.
  void finish(std::string& text);

 private:
  void put(unsigned char byte, std::string& text);
  std::string pending_;  // a proper prefix of one well-formed code point
};

struct TextStreamOptions {
  std::vector<std::string> stop;  // empty ones are ignored
  bool include_stop = false;      // the text ends with the stop string instead of before it
};

// The first stop string is the one that is complete first; of several that end together, the longest. So the
// text does not depend on how the bytes were cut into pieces.
class TextStream {
 public:
  explicit TextStream(TextStreamOptions options);

  // Takes a token's bytes and returns the text that is now certain: all of it but an unfinished code point
  // and the longest end that may still become a stop string. After a stop everything is ignored. may_stop
  // false (fewer tokens than min_tokens): a stop string that ends in this piece is ordinary text.
  std::string push(std::string_view piece, bool may_stop = true);

  // No more tokens: returns what was held back.
  std::string finish();

  bool stopped() const { return stop_.has_value(); }
  // Which of options.stop ended the text.
  std::optional<size_t> stop_index() const { return stop_; }

 private:
  // A node of the stop strings' prefix tree (Aho-Corasick).
  struct Node {
    uint32_t depth = 0;  // bytes of the prefix
    uint32_t fail = 0;   // the longest proper suffix that is a prefix too
    uint32_t held = 0;   // bytes at the end of the text that may grow into a stop string
    int32_t match = -1;  // the longest stop string that ends here, -1: none
    bool has_children = false;
  };

  void build();
  uint32_t step(uint32_t state, unsigned char byte) const;
  std::optional<uint32_t> child(uint32_t state, unsigned char byte) const;
  std::string advance(std::string_view text, bool may_stop);

  TextStreamOptions options_;
  Utf8Decoder decoder_;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, uint32_t> edges_;  // state * 256 + byte
  uint32_t state_ = 0;
  std::string held_;  // decoded, not yet given out
  std::optional<size_t> stop_;
};

}  // namespace penstock

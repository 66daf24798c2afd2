// The text of one reply while its tokens arrive: whole UTF-8 only, cut at the first stop string.
// One object per sequence; not thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

// Bytes to UTF-8 text, piece by piece; the whole is what Python's bytes.decode(errors="replace")
// gives: each maximal part of a broken sequence becomes one U+FFFD.
class Utf8Decoder {
 public:
  // Appends the text that is certain. At most three bytes are held back.
  void push(std::string_view bytes, std::string& text);
  // Appends what an unfinished sequence becomes, and starts anew.
  void finish(std::string& text);

 private:
  void put(unsigned char byte, std::string& text);
  // a proper prefix of one well-formed code point
  std::string pending_;
};

// Which of some strings end where in a text: their prefix tree (Aho-Corasick), of some 30 bytes for
// each of theirs. Immutable.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);  // empty ones are ignored

  static constexpr uint32_t kStart = 0;
  uint32_t step(uint32_t state, unsigned char byte) const;
  // The longest string that ends in this state, -1: none.
  int32_t match(uint32_t state) const { return nodes_[state].match; }
  // Bytes at the end of the text that may grow into a stop string.
  size_t held(uint32_t state) const { return nodes_[state].held; }
  bool empty() const { return nodes_.size() == 1; }
  size_t length(int32_t match) const { return strings_[static_cast<size_t>(match)].size(); }

 private:
  struct Node {
    uint32_t depth = 0;  // bytes of the prefix
    // the longest proper suffix that is a prefix too
    uint32_t fail = 0;
    uint32_t held = 0;
    int32_t match = -1;
    // the first child, the parent's next one; 0: none
    uint32_t child = 0, sibling = 0;
    unsigned char byte = 0;  // that leads here
  };
  uint32_t child(uint32_t state, unsigned char byte) const;  // 0: none
  void add(size_t index);

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;
};

struct TextStreamOptions {
  std::vector<std::string> stop;  // empty ones are ignored
  // the text ends with the stop string instead of before it
  bool include_stop = false;
};

// The first stop string is the one that is complete first; of several that end together, the
// longest. So the text does not depend on how the bytes were cut into pieces. Copies share what is
// known of the stop strings.
class TextStream {
 public:
  explicit TextStream(TextStreamOptions options)
      : TextStream(std::make_shared<const StopStrings>(std::move(options.stop)),
                   options.include_stop) {}
  TextStream(std::shared_ptr<const StopStrings> stops, bool include_stop)
      : stops_(std::move(stops)), include_stop_(include_stop) {}

  // Takes a token's bytes and returns the text that is now certain: all of it but an unfinished
  // code point and the longest end that may still become a stop string. After a stop everything is
  // ignored. may_stop false (fewer tokens than min_tokens): a stop string that ends in this piece
  // is ordinary text.
  std::string push(std::string_view piece, bool may_stop = true);

  // No more tokens: returns what was held back.
  std::string finish();

  bool stopped() const { return stop_.has_value(); }
  // Which of options.stop ended the text.
  std::optional<size_t> stop_index() const { return stop_; }

 private:
  std::string advance(std::string_view text, bool may_stop);

  std::shared_ptr<const StopStrings> stops_;
  bool include_stop_;
  Utf8Decoder decoder_;
  uint32_t state_ = StopStrings::kStart;
  std::string held_;  // decoded, not yet given out
  std::optional<size_t> stop_;
};

}  // namespace penstock

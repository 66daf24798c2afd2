// Text of a sequence as its tokens arrive: complete UTF-8 characters, cut at the first stop string.
// Not thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

// Decodes UTF-8 incrementally. The whole result equals Python's bytes.decode(errors="replace"):
// every maximal ill-formed subpart becomes one U+FFFD.
class Utf8Decoder {
 public:
  // Appends the decoded text. Holds back at most 3 bytes, of an incomplete character.
  void push(std::string_view bytes, std::string& text);
  // Appends U+FFFD for an incomplete character, if any, and resets the decoder.
  void finish(std::string& text);

 private:
  void put(unsigned char byte, std::string& text);
  // proper prefix of one well-formed code point
  std::string pending_;
};

// An Aho-Corasick automaton that finds several strings in a text, with about 30 bytes per byte of
// the strings. Immutable.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);  // empty strings are ignored

  static constexpr uint32_t kStart = 0;
  uint32_t step(uint32_t state, unsigned char byte) const;
  // Returns the index of the longest string that ends in this state; -1: none.
  int32_t match(uint32_t state) const { return nodes_[state].match; }
  // Returns the number of bytes at the text's end that may be the start of a string.
  size_t held(uint32_t state) const { return nodes_[state].held; }
  bool empty() const { return nodes_.size() == 1; }
  size_t length(int32_t match) const { return strings_[static_cast<size_t>(match)].size(); }

 private:
  struct Node {
    uint32_t depth = 0;  // length of the prefix in bytes
    // longest proper suffix that is also a prefix (failure link)
    uint32_t fail = 0;
    uint32_t held = 0;
    int32_t match = -1;
    // first child, next sibling; 0: none
    uint32_t child = 0, sibling = 0;
    unsigned char byte = 0;  // label of the edge from the parent
  };
  uint32_t child(uint32_t state, unsigned char byte) const;  // 0: no such child
  void add(size_t index);

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;
};

struct TextStreamOptions {
  std::vector<std::string> stop;  // empty strings are ignored
  // the text ends with the stop string instead of before it
  bool include_stop = false;
};

// The first stop string is the one that ends first; among those that end together it is the
// longest. The text is therefore independent of how the bytes are cut into pieces. Copies share the
// automaton.
class TextStream {
 public:
  explicit TextStream(TextStreamOptions options)
      : TextStream(std::make_shared<const StopStrings>(std::move(options.stop)),
                   options.include_stop) {}
  TextStream(std::shared_ptr<const StopStrings> stops, bool include_stop)
      : stops_(std::move(stops)), include_stop_(include_stop) {}

  // Adds a token's bytes and returns the text that is now final: all but an incomplete character
  // and the longest suffix that may start a stop string. After a stop string it ignores its input.
  // may_stop: false while there are fewer tokens than min_tokens: stop strings that end in this
  // piece are ordinary text.
  std::string push(std::string_view piece, bool may_stop = true);

  // Ends the text: returns what was held back.
  std::string finish();

  bool stopped() const { return stop_.has_value(); }
  // Returns the index in options.stop of the string that ended the text.
  std::optional<size_t> stop_index() const { return stop_; }

 private:
  std::string advance(std::string_view text, bool may_stop);

  std::shared_ptr<const StopStrings> stops_;
  bool include_stop_;
  Utf8Decoder decoder_;
  uint32_t state_ = StopStrings::kStart;
  std::string held_;  // decoded but not yet returned
  std::optional<size_t> stop_;
};

}  // namespace penstock

// The text of one sequence as its tokens arrive: whole UTF-8 only, stop strings found and cut off.
//
// A piece is held back only while it may still become part of a stop string or of a character. The text is
// the same however the tokens are grouped.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/sampling_params.h"
#include "text/tokenizer.h"

namespace penstock {

class SequenceText {
 public:
  // has_context: text precedes the first token (a leading space is kept). The tokenizer and params outlive
  // this.
  SequenceText(const Tokenizer& tokenizer, const SamplingParams& params, bool has_context);

  // Adds a token; does nothing once stopped.
  void add(TokenId token);
  // No more tokens: lets go of what was held back.
  void finish();

  // Ready text since the last take().
  std::string_view take();
  const std::string& text() const { return text_; }  // everything taken so far and what is ready
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }  // the stop string, once found

 private:
  void append_bytes(std::string_view bytes);
  void find_stop();

  const Tokenizer& tokenizer_;
  const SamplingParams& params_;
  bool first_;
  int n_tokens_ = 0;
  std::string partial_;  // the bytes of an unfinished character
  std::string held_;     // whole characters that may begin a stop string
  std::string text_;
  size_t taken_ = 0;
  std::optional<std::string> stopped_by_;
};

}  // namespace penstock

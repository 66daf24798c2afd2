// Converts the tokens of one sequence to text as they arrive: omits special tokens and cuts the
// text at stop strings.
#pragma once
#include <string>
#include <string_view>

#include "frontend/text_stream.h"
#include "penstock/sampling_params.h"
#include "text/tokenizer.h"

namespace penstock {

class SequenceText {
 public:
  // has_context: text precedes the first token, whose leading space is then kept. keep_markers:
  // keeps special tokens for reply parsers, except BOS, EOS, padding, unknown and ends of
  // generation. stops: those of params.stop. REQUIRES: tokenizer and params outlive this.
  SequenceText(const Tokenizer& tokenizer, const SamplingParams& params, bool has_context,
               bool keep_markers, std::shared_ptr<const StopStrings> stops)
      : tokenizer_(tokenizer),
        params_(params),
        stream_(std::move(stops), params.include_stop_str_in_output),
        first_(!has_context),
        keep_markers_(keep_markers) {}

  // Adds a token; no effect after a stop string.
  void add(TokenId token) {
    if (stopped_by() != nullptr) return;
    ++n_tokens_;
    if (params_.skip_special_tokens && is_left_out(token)) return;
    text_ += stream_.push(tokenizer_.token_bytes(token, first_), n_tokens_ >= params_.min_tokens);
    first_ = false;
  }
  // Ends the sequence: adds text that was held back as a possible stop string.
  void finish() {
    if (stopped_by() == nullptr) text_ += stream_.finish();
  }

  // Returns the text added since the last take(). Valid until the next add().
  std::string_view take() {
    const std::string_view piece = std::string_view(text_).substr(taken_);
    taken_ = text_.size();
    return piece;
  }
  const std::string& text() const { return text_; }  // text that is final
  // Returns the stop string that ended the text, or null.
  const std::string* stopped_by() const {
    return stream_.stop_index() ? &params_.stop[*stream_.stop_index()] : nullptr;
  }

 private:
  bool is_left_out(TokenId token) const {
    if (!tokenizer_.is_special(token)) return false;
    return !keep_markers_ || token == tokenizer_.bos() || token == tokenizer_.eos() ||
           token == tokenizer_.pad() || token == tokenizer_.unk() ||
           tokenizer_.is_end_of_generation(token);
  }

  const Tokenizer& tokenizer_;
  const SamplingParams& params_;
  TextStream stream_;
  bool first_, keep_markers_;
  int n_tokens_ = 0;
  std::string text_;
  size_t taken_ = 0;
};

}  // namespace penstock

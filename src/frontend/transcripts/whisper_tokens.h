// The special tokens of a Whisper, and what its generation_config.json says of them.
//
// Immutable; safe to use from any thread.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "penstock/attention_watch.h"
#include "penstock/types.h"
#include "text/tokenizer.h"

namespace penstock {

struct WhisperTokens {
  TokenId start = kNoToken;          // <|startoftranscript|>
  TokenId end = kNoToken;            // <|endoftext|>; tokens of text are below it
  TokenId no_timestamps = kNoToken;  // timestamps follow it: <|0.00|>, <|0.02|>, ...
  TokenId previous = kNoToken;  // <|startofprev|>, before text of what came before; or kNoToken
  TokenId transcribe = kNoToken, translate = kNoToken;    // of multilingual models
  std::map<std::string, TokenId, std::less<>> languages;  // by code ("de"); none: English only
  std::vector<TokenId> suppressed;                        // never written
  std::vector<TokenId> suppressed_first;                  // not written first
  int max_initial_timestamp = -1;                         // in timestamps; -1: no bound
  int vocab_size = 0;
  int max_tokens = 448;  // of prompt and text of a window
  // Heads of the decoder that follow the sound, for the times of words; empty: none are known.
  std::vector<AttentionWatch::Head> alignment_heads;
  int median_width = 7;  // of the filter over their weights

  TokenId first_timestamp() const { return no_timestamps + 1; }
  TokenId no_speech() const { return no_timestamps - 1; }
  bool multilingual() const { return !languages.empty(); }

  // Errors: kCorruptFile, kUnsupported (a field that is impossible or missing, by name).
  static Result<WhisperTokens> read(const WeightSource& source, const Tokenizer& tokenizer);
};

// Returns the code of a language by its code ("de") or its English name ("German"); "": not known.
std::string language_code(std::string_view language);
// Returns the English name, in lower case, of a language's code; the code if it is not known.
std::string language_name(std::string_view code);

}  // namespace penstock

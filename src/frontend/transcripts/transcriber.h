// The way through a sound that a Whisper takes, window after window: what to hear and to ask for
// next, and what comes out of it. As transformers' long-form generation does it.
//
// Knows neither engine nor tower. One thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/transcripts/whisper_rules.h"
#include "frontend/transcripts/word_times.h"

namespace penstock {

// Frames of the spectrum.
struct HeardSound {
  int64_t n_frames = 0;
  int window = 3000;                // of a window
  double seconds_per_frame = 0.01;  // a timestamp has two frames
};

struct TranscriptAsked {
  std::string language;  // a code; "": that of the sound
  bool translate = false;
  bool timestamps = false;
  bool words = false;  // times of tokens. REQUIRES: timestamps, and the model has alignment heads
  std::vector<TokenId> prompt;  // text that came before; its last tokens count
  // A window whose text is unlikely or repeats itself is written again with the next of these.
  std::vector<float> temperatures = {0.0f};
  bool follows_text = false;  // a window is told what was written of those before it
  // Unset: not asked for.
  std::optional<double> least_logprob, most_compression, most_silence;
};

struct TranscriptSegment {
  double start = 0, end = 0;          // seconds
  std::vector<TokenId> tokens;        // with timestamps
  std::vector<TokenTime> times = {};  // of `tokens`; empty: not asked for
  int64_t seek = 0;                   // first frame of its window
  float temperature = 0;
  double average_logprob = 0, compression_ratio = 0, no_speech = 0;
};

class Transcriber {
 public:
  // REQUIRES: `tokens` outlives this.
  Transcriber(const WhisperTokens& tokens, TranscriptAsked asked, const HeardSound& sound);

  bool done() const { return seek_ >= sound_.n_frames; }
  // First frame of the window that is next.
  int64_t seek() const { return seek_; }
  // Frames of it that are of the sound.
  int64_t n_frames() const;

  // Request for the current window: prompt tokens, rules for its output, temperature and the most
  // tokens to generate.
  struct Wanted {
    std::vector<TokenId> prompt;
    std::shared_ptr<WhisperRules> rules;
    std::shared_ptr<AttentionWatch> watch;  // Request::watch; null: nothing is watched
    float temperature = 0;
    int max_tokens = 0;
  };
  // REQUIRES: not done().
  Wanted next();
  // Takes all that was generated for it, the forced tokens and <|endoftext|> too. Returns the segments
  // of the window; none if it is silent, or has to be generated again.
  std::vector<TranscriptSegment> add(std::span<const TokenId> generated);

  // The language, found or given; "" before it is known and in models of English only.
  const std::string& language() const { return asked_.language; }

 private:
  bool detects_alone() const;
  std::vector<TokenId> text_before() const;
  std::vector<TranscriptSegment> cut(std::span<const TokenId> text, int64_t& advance) const;
  void add_times(size_t n_text, std::vector<TranscriptSegment>& segments) const;

  const WhisperTokens& tokens_;
  TranscriptAsked asked_;
  const HeardSound sound_;
  int64_t seek_ = 0;
  int64_t n_short_ = 0;          // windows from which less than a half was taken
  size_t attempt_ = 0;           // index into temperatures
  bool told_;                    // the next window is told what came before
  bool detecting_ = false;       // only the language was asked for
  std::vector<TokenId> before_;  // all that was written
  std::shared_ptr<WhisperRules> rules_;
  std::shared_ptr<AttentionWatch> watch_;
  size_t n_prompt_ = 0;  // tokens of the window's prompt
};

// Bytes of the tokens' ids by those that zlib makes of them: text that repeats itself has a high
// ratio.
double compression_ratio(std::span<const TokenId> tokens, int vocab_size);

}  // namespace penstock

// One open model seen from its text side: tokenizer and engine, prompts to requests, events to
// outputs. Shared by the command line, the server and Python.
//
// A Session may be used from any thread. EventQueue: filled by the engine thread, emptied by one
// other.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "frontend/grammar_cache.h"
#include "frontend/pictures/eyes.h"
#include "frontend/sequence_text.h"
#include "frontend/transcripts/whisper_tokens.h"
#include "penstock/llm.h"
#include "text/tokenizer.h"

namespace penstock {

struct PromptOptions {
  bool add_bos = true;
  bool parse_special = true;
};

struct PicturedPrompt {
  std::vector<TokenId> tokens;
  PromptPictures pictures;
};

// Token forms of the strings in SamplingParams (bad_words, dry_sequence_breakers).
struct StringTokens {
  std::vector<std::vector<TokenId>> bad_words;
  std::vector<TokenId> dry_breakers;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EngineConfig& config);

  Engine& engine() { return *engine_; }
  const EngineInfo& engine_info() const { return engine_->info(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Null: the model has no eyes, or blind_reason() says why they cannot be used.
  Eyes* eyes() const { return eyes_.get(); }
  // Null: the model is no Whisper, or blind_reason() says why it cannot hear.
  const WhisperTokens* whisper() const { return whisper_ ? &*whisper_ : nullptr; }
  // Why the tower of a model that has one is not used; "": it is, or there is none.
  const std::string& blind_reason() const { return blind_reason_; }
  // Checks that the model sees a picture, or hears a sound. Errors: kInvalidArgument, naming its place.
  Status check_sense(const Picture& picture) const;
  // Returns the tokens of a prompt with a placeholder for each picture, as the model's chat template
  // writes it, and the pictures' places. settings: Eyes::plan(). REQUIRES: pictures. Errors: those of
  // check_sense(), Eyes::plan() and PicturePrompt (not as many placeholders as pictures).
  Result<PicturedPrompt> place(const Prompt& prompt, std::vector<Picture> pictures,
                               const PromptOptions& options,
                               const nlohmann::json& settings = {}) const;
  // Gives a request the rows of its pictures and sounds, and the model's adapter for sounds, if it has one and
  // the request has none (Granite Speech).
  void give(Request& request, std::vector<PromptEmbeddings> embeddings) const;
  // Returns the metrics of all engines and of the grammar cache.
  Metrics metrics() const;
  // Returns the metrics of one engine. Those of the grammar cache are added to engine 0.
  Metrics metrics_of(int engine) const;
  const SamplingParams& default_sampling_params() const { return defaults_; }

  std::vector<TokenId> encode(std::string_view text, const PromptOptions& options) const;
  // Returns kContextOverflow if a lower bound on the text's tokens exceeds the context. Tokenizes
  // only as much of a long text as that needs. A text that passes may still be too long.
  Status check_length(std::string_view text) const;
  // Returns the matcher for params.structured_outputs; null when there are none. Compiles the
  // grammar: do not call it on I/O threads. Errors: those of GrammarCache::compile().
  Result<std::shared_ptr<const TokenMatcher>> matcher(const SamplingParams& params) const;
  GrammarCache& grammars() const { return *grammars_; }
  // Tokenizes the strings of `params`; requests with equal strings may share the result. Scans the
  // whole vocabulary, so do not call it on I/O threads. Errors: kInvalidArgument for lists that are
  // too long.
  Result<StringTokens> string_tokens(const SamplingParams& params) const;
  // Returns a request without the grammar's text, which the engine does not use. The caller sets
  // priority, deadline and matcher.
  Request make_request(std::vector<TokenId> prompt, const SamplingParams& params,
                       const StringTokens& strings) const;

 private:
  Session() = default;
  Status take_eyes(Result<std::unique_ptr<Eyes>> eyes, bool wanted);
  std::vector<TokenId> breaker_tokens(const std::vector<std::string>& breakers) const;
  std::vector<std::vector<TokenId>> word_tokens(const std::vector<std::string>& words) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<WhisperTokens> whisper_;  // running requests refer to it
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Eyes> eyes_;
  std::string blind_reason_;
  std::shared_ptr<const Adapter> sound_adapter_;  // of a model that hears and does not see
  std::unique_ptr<GrammarCache> grammars_;
  SamplingParams defaults_;
  mutable std::mutex breakers_mutex_;
  mutable std::vector<std::string> known_breakers_;  // last breakers and their tokens
  mutable std::vector<TokenId> known_breaker_tokens_;
};

// A TokenEvent with owned data, or a batch of prompt log-probabilities.
struct OwnedEvent {
  RequestId request{};
  int index = 0;
  TokenId token = kNoToken;
  TokenLogprob logprob;
  std::vector<TokenLogprob> alternatives;
  FinishReason finish = FinishReason::kNone;
  TokenId stop_token = kNoToken;
  struct End {
    RequestStats stats;
    std::optional<Error> error;
  };
  // set if `finish` is; allocated separately, since most events have none
  std::unique_ptr<const End> end;
  // >= 0: only prompt_logprobs are set; position of the first one
  int first_position = -1;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;

  // Copy the arguments of the sink's callbacks. REQUIRES: the object is new.
  void assign(RequestId of, const TokenEvent& event);
  void assign(RequestId of, int first, std::span<const std::span<const TokenLogprob>> rows);
};

class EventQueue : public EventSink {
 public:
  void on_tokens(RequestId request, std::span<const TokenEvent> events) override;
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override;
  // Waits for events and appends them to `out` in order. Returns false after the timeout.
  bool pop(std::vector<OwnedEvent>& out, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<OwnedEvent> events_;
};

// Builds the outputs of one request from its events. Not thread-safe.
class OutputBuilder {
 public:
  // REQUIRES: tokenizer and params outlive this. keep_markers: as for SequenceText. stops: compiled
  // params.stop, shared by several builders; null: compiled here.
  OutputBuilder(const Tokenizer& tokenizer, const SamplingParams& params,
                std::vector<TokenId> prompt, bool keep_markers = false,
                std::shared_ptr<const StopStrings> stops = nullptr);

  struct Step {
    std::string_view text;  // new final text; valid until the next call
    // a stop string was found: cancel this sequence with kStop
    bool stopped_here = false;
    bool finished = false;  // this was the last event of the sequence
  };
  Step add(const OwnedEvent& event);
  bool finished() const { return n_open_ == 0; }
  const CompletionOutput& output(int index) const { return result_.outputs[index]; }
  const RequestOutput& so_far() const { return result_; }
  // Frees the log-probabilities of the tokens so far, for readers that have passed them on.
  void forget_logprobs(int index) { result_.outputs[index].logprobs.clear(); }
  RequestOutput take() { return std::move(result_); }

 private:
  const SamplingParams* params_;
  std::vector<SequenceText> texts_;
  RequestOutput result_;
  int n_open_;
};

}  // namespace penstock

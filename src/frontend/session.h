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
#include "frontend/sequence_text.h"
#include "penstock/llm.h"
#include "text/tokenizer.h"

namespace penstock {

struct PromptOptions {
  bool add_bos = true;
  bool parse_special = true;
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
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // The engine's, and what happens before its requests.
  Metrics metrics() const;
  // Of one of several engines (Engine::n_engines()); what happens before is counted with the first.
  Metrics metrics_of(int engine) const;
  const SamplingParams& default_sampling_params() const { return defaults_; }

  std::vector<TokenId> encode(std::string_view text, const PromptOptions& options) const;
  // kContextOverflow when the text is certainly too long for the context, which its beginning
  // tells: a text of megabytes need not become tokens for that. Success means little.
  Status check_length(std::string_view text) const;
  // What holds outputs to params.structured_outputs; null when there are none. Takes time: not for
  // io threads.
  Result<std::shared_ptr<const TokenMatcher>> matcher(const SamplingParams& params) const;
  GrammarCache& grammars() const { return *grammars_; }
  // Tokenizes the strings of `params`; requests with equal strings may share the result. Tokenizes
  // every string and reads the whole vocabulary, so it does not belong on an io thread. Errors:
  // lists that are too long.
  Result<StringTokens> string_tokens(const SamplingParams& params) const;
  // A request of `params`, without the texts in them that the engine has no use for. Priority,
  // deadline and matcher are the caller's.
  Request make_request(std::vector<TokenId> prompt, const SamplingParams& params,
                       const StringTokens& strings) const;

 private:
  Session() = default;
  std::vector<TokenId> breaker_tokens(const std::vector<std::string>& breakers) const;
  std::vector<std::vector<TokenId>> word_tokens(const std::vector<std::string>& words) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GrammarCache> grammars_;
  SamplingParams defaults_;
  mutable std::mutex breakers_mutex_;
  mutable std::vector<std::string> known_breakers_;  // the last ones asked for, and their tokens
  mutable std::vector<TokenId> known_breaker_tokens_;
};

// A TokenEvent that owns what it refers to, or a batch of prompt log-probabilities.
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
  // with finish; apart, because most events have none
  std::unique_ptr<const End> end;
  // >= 0: prompt_logprobs from this position on, and nothing else
  int first_position = -1;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;

  // Of a fresh object: copies what the sink was told.
  void assign(RequestId of, const TokenEvent& event);
  void assign(RequestId of, int first, std::span<const std::span<const TokenLogprob>> rows);
};

class EventQueue : public EventSink {
 public:
  void on_tokens(RequestId request, std::span<const TokenEvent> events) override;
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override;
  // Waits for news and appends them to `out` in order; false when none came in time.
  bool pop(std::vector<OwnedEvent>& out, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<OwnedEvent> events_;
};

// Gathers the outputs of one request from its events.
class OutputBuilder {
 public:
  // Tokenizer and params outlive this. keep_markers: as SequenceText has it. stops: of params.stop,
  // where several share them.
  OutputBuilder(const Tokenizer& tokenizer, const SamplingParams& params,
                std::vector<TokenId> prompt, bool keep_markers = false,
                std::shared_ptr<const StopStrings> stops = nullptr);

  struct Step {
    std::string_view text;  // new and ready; valid until the next call
    // a stop string was found: cancel this sequence with kStop
    bool stopped_here = false;
    bool finished = false;  // the last event of this sequence
  };
  Step add(const OwnedEvent& event);
  bool finished() const { return n_open_ == 0; }
  const CompletionOutput& output(int index) const { return result_.outputs[index]; }
  const RequestOutput& so_far() const { return result_; }
  RequestOutput take() { return std::move(result_); }

 private:
  const SamplingParams* params_;
  std::vector<SequenceText> texts_;
  RequestOutput result_;
  int n_open_;
};

}  // namespace penstock

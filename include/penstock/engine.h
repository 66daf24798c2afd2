// The asynchronous engine: token ids in, token events out. Text lives one level up (penstock/llm.h).
//
// Threads: check(), submit(), cancel(), status(), metrics() and info() may be called from any thread. Everything else happens on
// the engine thread: either the one that start() makes, or the caller of step() when start() was not called.
// Sinks are called on the engine thread and must not block.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/engine_config.h"
#include "penstock/logits_processor.h"
#include "penstock/metrics.h"
#include "penstock/result.h"
#include "penstock/sampling_params.h"
#include "penstock/thinking_budget.h"
#include "penstock/types.h"

namespace penstock {

using Clock = std::chrono::steady_clock;

enum class Priority : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };

class TokenMatcher;  // grammar/token_matcher.h
class Adapter;       // a LoRA adapter that was opened

// One prompt and how to go on from it. The engine never sees text: whoever owns the tokenizer fills the token
// forms of the strings in `sampling` (Session in the frontend does) and applies `sampling.stop`.
struct Request {
  std::vector<TokenId> prompt;  // >= 1 ids in [0, vocab_size), with BOS where the model wants one
  SamplingParams sampling;  // stop, bad_words, dry_sequence_breakers and the text switches are not read here
  std::vector<std::vector<TokenId>> bad_words;        // token sequences that must not be completed
  std::vector<TokenId> dry_breakers;                  // tokens that end a repeat for DRY
  std::vector<TokenId> eos_token_ids;                 // empty = the model's
  std::shared_ptr<const TokenMatcher> matcher;        // of the output, at its beginning; null: any
  std::shared_ptr<LogitsProcessor> logits_processor;  // null: logits are the model's
  std::optional<ThinkingBudget> thinking;             // absent: reasoning may take all of max_tokens
  std::shared_ptr<const Adapter> adapter;             // of Engine::open_adapter(); null: the model as it is
  Priority priority = Priority::kNormal;
  // Requests share cached blocks only when their salts, adapters and kinds (EngineInfo::short_rope_len) are equal.
  std::string cache_salt;
  bool read_prefix_cache = true;  // false: compute the whole prompt (prompt_logprobs does so anyway)
  std::optional<Clock::time_point> deadline;  // then the request ends with kAbort, kDeadlineExceeded
};

// Times are seconds. Filled on the last event of each sequence.
struct RequestStats {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // of the prompt, found in the prefix cache
  int completion_tokens = 0;  // of this sequence
  int preemptions = 0;
  int drafts = 0;              // rounds of speculation: forwards that checked guesses
  int draft_tokens = 0;        // guessed
  int accepted_tokens = 0;     // of these, kept
  double beam_score = 0;       // with use_beam_search: log-probability / completion_tokens^length_penalty
  double queued_seconds = 0;   // submit to first scheduled
  double prefill_seconds = 0;  // first scheduled to first token
  double decode_seconds = 0;   // first token to last token
  double max_inter_token_seconds = 0;
};

// A step's news of one sequence. A sequence's events come in order; the last has finish != kNone and may have
// no token.
struct TokenEvent {
  int index = 0;             // which of the n sequences, [0, n)
  TokenId token = kNoToken;  // kNoToken: an end without a token
  float logprob = 0;         // with sampling.logprobs, and of beams: of `token`, as in TokenLogprob
  int rank = 0;              // with sampling.logprobs
  std::span<const TokenLogprob>
      alternatives;  // with sampling.logprobs > 0: most likely first; valid during the call
  FinishReason finish = FinishReason::kNone;
  TokenId stop_token = kNoToken;        // the stop token id that ended it; kNoToken for EOS and other ends
  const RequestStats* stats = nullptr;  // on the last event; valid during the call
  const Error* error = nullptr;  // with kError, and with kAbort when there is a reason; valid during the call
};

// Receives the news of one request, on the engine thread; must not block or call back into step(). It may
// call cancel() and submit().
class EventSink {
 public:
  virtual ~EventSink() = default;
  // All news of one step, at most once per step. After the last event of the last sequence the sink is
  // released. May throw std::bad_alloc: the request ends, and another call brings the end of its sequences
  // (with kError), also of those whose end was in the call that threw.
  virtual void on_tokens(RequestId request, std::span<const TokenEvent> events) = 0;
  // With sampling.prompt_logprobs: the tokens at positions first, first + 1, … (position 0 has none and is
  // not sent). rows[i] holds the prompt's own token first, then the alternatives, most likely first. Valid
  // during the call.
  virtual void on_prompt_logprobs(RequestId request, int first,
                                  std::span<const std::span<const TokenLogprob>> rows) {
    (void)request, (void)first, (void)rows;
  }
};

// What was opened. Bytes and tokens.
struct EngineInfo {
  std::string architecture;  // "llama", …
  std::string backend;       // "cpu/avx512"
  int vocab_size = 0;
  int max_model_len = 0;  // prompt and completion together
  // Of models with two kinds of rotations (longrope): a request is computed with the long ones where its prompt and max_tokens come to
  // more tokens than this. 0: there is one kind.
  int short_rope_len = 0;
  int block_size = 0;  // tokens
  int n_blocks = 0;    // of the KV cache, in the group that keeps all tokens
  int64_t kv_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t offloaded_bytes = 0;  // of these, experts that are mapped from a file (experts_offload)
  int n_threads = 0;
  // What one token costs: the numerators of the roofline.
  int64_t active_weight_bytes = 0;      // read from memory by a decoded token
  int64_t active_parameters = 0;        // two operations each
  int64_t active_float_parameters = 0;  // of those, kept in 16 or 32 bits
  int64_t attention_dims = 0;           // layers x query dimensions: four operations each per visible token
  int64_t kv_bytes_per_token = 0;       // of K and V in all layers
  int64_t state_bytes = 0;              // of a sequence, in all recurrent layers
  int n_experts = 0;                    // of a layer of a mixture
  std::vector<TokenId> eos_token_ids;
};

// A session that came back from a file.
struct SessionTokens {
  std::vector<TokenId> tokens;
  int n_restored = 0;  // leading tokens that a request starting with them need not compute
};

class Engine {
 public:
  // Loads the model and reserves the cache. Errors: kNotFound, kCorruptFile, kUnsupported,
  // kResourceExhausted, kInvalidArgument (a config value, by name).
  static Result<std::unique_ptr<Engine>> open(const EngineConfig& config);

  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;
  virtual const EngineConfig& config() const = 0;  // with every automatic value filled in

  // Whether submit() would take the request as far as the request itself decides. Errors: kInvalidArgument (bad
  // parameter, prompt empty, id out of range, prompt + 1 token longer than max_model_len), kUnsupported (beams
  // without a paged cache).
  virtual Status check(const Request& request) const = 0;

  // Ok, or why nothing can be computed any more: requests end with this error, and new ones are refused with it. From any thread.
  virtual Status status() const = 0;

  // A LoRA adapter of this model, for requests: a PEFT directory or a GGUF file. It comes into memory with the first of them;
  // max_loras are there at once, and requests for further ones wait. As long as somebody holds it, its files must stay as they
  // are. From any thread. Errors: those of the files, kInvalidArgument (of another model, a rank above max_lora_rank),
  // kUnsupported.
  virtual Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) = 0;

  // Queues a request; the sink lives until its last event. Errors: those of check(), kResourceExhausted (the
  // queue is full: try again later), kCancelled (the engine is shutting down).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;

  // Ends a request within one step; its sequences get a last event with `reason`. Unknown or finished ids are
  // ignored.
  virtual void cancel(RequestId request, FinishReason reason = FinishReason::kAbort) = 0;
  // The same for one of its n sequences (a stop string was found in its text).
  virtual void cancel(RequestId request, int index, FinishReason reason) = 0;

  // One step: take in new requests, plan, compute, sample, push events. False when there is nothing to do.
  // Only without start(). Allocates nothing once it has warmed up, apart from what new requests bring. When
  // memory runs out the requests that it was for end with kError, kResourceExhausted; the others go on.
  virtual bool step() = 0;

  // Runs step() on a thread of its own until stop(), sleeping while there is nothing to do.
  virtual void start() = 0;
  // Cancels what is left and joins the thread. The destructor does so too.
  virtual void stop() = 0;

  // While it is paused nothing is computed: requests stay as they are and wait, new ones are taken, cancelled ones end. Returns
  // between two steps: no token comes after it. Deadlines that pass meanwhile are seen when it goes on. From any thread. Errors:
  // kCancelled (the engine is shutting down).
  virtual Status set_paused(bool paused) = 0;

  // A copy as of the last finished step.
  virtual Metrics metrics() const = 0;
  // With data_parallel_size above 1 this is several engines, of which each has metrics and a cache of its own.
  virtual int n_engines() const { return 1; }
  virtual const Engine& engine_at(int index) const {
    (void)index;
    return *this;
  }
  virtual void reset_prefix_cache() = 0;

  // Writes tokens and the cached K and V of as many of them as are known (whole blocks) to a file; returns
  // how many tokens those are. cache_salt: as the requests had it. From any thread, between two steps.
  // Errors: kIo, kResourceExhausted (the disk is full), kCancelled (the engine is shutting down).
  virtual Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                                   const std::string& cache_salt = {}) = 0;
  // Brings them back into the prefix cache; the file is verified whole before any of it is used. A request
  // whose prompt starts with these tokens then goes on from there. Errors: kNotFound, kCorruptFile,
  // kInvalidArgument (saved by another model or cache configuration), kCancelled.
  virtual Result<SessionTokens> load_session(const std::string& path) = 0;
};

}  // namespace penstock

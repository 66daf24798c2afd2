// The asynchronous engine: token ids in, token events out. Text lives one level up
// (penstock/llm.h).
//
// Threads: check(), submit(), cancel(), status(), metrics() and info() may be called from any
// thread. Everything else happens on the engine thread: either the one that start() makes, or the
// caller of step() when start() was not called. Sinks are called on the engine thread and must not
// block.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/attention_watch.h"
#include "penstock/engine_config.h"
#include "penstock/logits_processor.h"
#include "penstock/metrics.h"
#include "penstock/result.h"
#include "penstock/sampling_params.h"
#include "penstock/thinking_budget.h"
#include "penstock/types.h"

namespace penstock {

using Clock = std::chrono::steady_clock;

// Order in which waiting requests start and, from the other end, running ones are preempted with
// the policy `priority`; other policies know kBackground only.
// kBackground: the request uses the capacity that others leave, with any policy. While other
// requests are present, one background sequence at a time goes on. Others that run already pause
// with their blocks; their places and blocks are the first to be taken (preempted). Batches have
// it; no HTTP or Python request can ask for it.
enum class Priority : uint8_t { kHigh, kNormal, kLow, kBackground };

class TokenMatcher;  // grammar/token_matcher.h
class Adapter;       // a LoRA adapter that was opened

// How far a request's prompt is computed, in tokens, told after every step of the engine.
struct PromptProgress {
  std::atomic<int> cached{0};    // found in the prefix cache
  std::atomic<int> computed{0};  // those in the cache included
};

// Rows that can stand in place of tokens' embeddings: a picture or a sound as its tower gives it to
// the language model, or what a caller has made. Immutable once it is in a request.
struct EmbeddingRows {
  int n_rows = 0;
  // [levels, n_rows, EngineInfo::model_dim], finite. Level 0 is what the first layer reads, as it is:
  // no scale of embeddings is applied. Level l is added behind layer l - 1 (DeepStack).
  std::vector<float> values;
  int levels = 1;       // EngineInfo::embedding_levels
  bool finite = false;  // the maker has checked that all values are finite
  // Hash of what the values are made of. Cached blocks of these rows are shared by requests with
  // equal hashes, so different values must not have equal ones.
  std::array<uint64_t, 2> identity{};
};

// A place in a prompt whose tokens have given rows instead of the embeddings of their ids.
struct PromptEmbeddings {
  int first = 0;  // index of the first token in the prompt
  int count = 0;  // tokens
  std::shared_ptr<const EmbeddingRows> rows;
  int first_row = 0;  // of `rows`, for the first token
  // Columns and frames of a grid whose tokens lie row by row, for models with positions on axes
  // (M-RoPE). 0 columns: the tokens follow one another like text.
  int grid_cols = 0, grid_frames = 1;
  // Positions from a frame to the next, rounded down. 0 to 2^16.
  float frame_step = 1;
};

// Maximum of Request::prefill_wait_seconds.
inline constexpr double kLongestPrefillWait = 60;

// One prompt and the parameters of its completion. The engine never sees text: the owner of the
// tokenizer (Session in the frontend) fills in the token forms of the strings in `sampling` and
// applies `sampling.stop`.
struct Request {
  // >= 1 ids in [0, vocab_size), with BOS where the model wants one
  std::vector<TokenId> prompt;
  // Ascending and disjoint places of the prompt. The ids of these tokens count for penalties and
  // drafts.
  std::vector<PromptEmbeddings> embeddings;
  // Rows of the encoder of a model that has one (EngineInfo::encoder_rows > 0), for one sound. REQUIRES:
  // null for models without an encoder, not null for models with one.
  std::shared_ptr<const EmbeddingRows> encoder_rows;
  // Gets what heads attend to among these rows; null: nothing is watched.
  std::shared_ptr<AttentionWatch> watch;
  // stop, bad_words, dry_sequence_breakers and the text switches are not read here
  SamplingParams sampling;
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that must not be completed
  std::vector<TokenId> dry_breakers;            // tokens that end a repeat for DRY
  std::vector<TokenId> eos_token_ids;           // empty = the model's
  // grammar of the output, at its start; null: no grammar
  std::shared_ptr<const TokenMatcher> matcher;
  std::shared_ptr<LogitsProcessor> logits_processor;  // null: the model's logits are not changed
  // absent: reasoning may take all of max_tokens
  std::optional<ThinkingBudget> thinking;
  // from Engine::open_adapter(); null: no adapter
  std::shared_ptr<const Adapter> adapter;
  Priority priority = Priority::kNormal;
  // Whose request it is. The sequences that wait with one priority take turns between tenants;
  // those of one tenant, or of nobody (""), run in the order of their arrival.
  std::string tenant;
  // Requests share cached blocks only when their salts, adapters and kinds of rotation
  // (EngineInfo::short_rope_len) are equal.
  std::string cache_salt;
  // false: compute the whole prompt (prompt_logprobs does so anyway)
  bool read_prefix_cache = true;
  // With kv_store: another engine is computing this prompt and writes its blocks there. They are read
  // as they come, and the rest is computed here when none has come for so many seconds, or when it has
  // taken so many seconds longer than computing what has come. 0: what is there at once is read.
  double prefill_wait_seconds = 0;
  std::shared_ptr<PromptProgress> progress;  // null: nobody watches
  // when the request ends with kAbort and kDeadlineExceeded
  std::optional<Clock::time_point> deadline;
};

// Where the leading tokens of a prompt came from, and where the prompt left what was known.
struct PrefixUse {
  int memory_tokens = 0;    // found in the KV cache
  int store_tokens = 0;     // read from the store of blocks into the KV cache
  double load_seconds = 0;  // waiting for the store
  // With role prefill: leading tokens whose blocks the store had at the end; -1: it was not asked.
  int stored_tokens = -1;
  // With prefix_history: the most leading tokens that an earlier text (prompt and completion) of the
  // same tenant, salt and adapter had too; -1: not compared.
  int known_tokens = -1;
  // The first n_had tokens behind them in the earlier text; n_had 0: it ends there, or there is none.
  std::array<TokenId, 8> had{};
  int n_had = 0;
};

// Times are seconds. Filled on the last event of each sequence.
struct RequestStats {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // prompt tokens found in the prefix cache
  int completion_tokens = 0;  // tokens that this sequence generated
  int preemptions = 0;
  // rounds of speculation: forwards that verified a draft
  int drafts = 0;
  int draft_tokens = 0;     // tokens in these drafts
  int accepted_tokens = 0;  // draft tokens that were accepted
  // with use_beam_search: log-probability / completion_tokens^length_penalty
  double beam_score = 0;
  double queued_seconds = 0;   // from submit() to the first step
  double prefill_seconds = 0;  // from the first step to the first token
  double decode_seconds = 0;   // from the first token to the last
  double max_inter_token_seconds = 0;
  PrefixUse prefix;
};

// A new token of a sequence, or its end. A sequence's events come in order; the last has finish !=
// kNone and may have no token.
struct TokenEvent {
  int index = 0;  // which of the n sequences, [0, n)
  // kNoToken: the sequence ends without another token
  TokenId token = kNoToken;
  // log-probability of `token`, as in TokenLogprob; with sampling.logprobs or beams
  float logprob = 0;
  // rank of `token`, as in TokenLogprob; with sampling.logprobs
  int rank = 0;
  // With sampling.logprobs > 0: the most likely tokens, most likely first. Valid during the call.
  std::span<const TokenLogprob> alternatives;
  FinishReason finish = FinishReason::kNone;
  // the stop token id that ended the sequence; kNoToken for EOS and other ends
  TokenId stop_token = kNoToken;
  const RequestStats* stats = nullptr;  // on the last event; valid during the call
  // with kError, and with kAbort when there is a reason; valid during the call
  const Error* error = nullptr;
};

// Receives the events of one request, on the engine thread; must not block or call back into
// step(). It may call cancel() and submit().
class EventSink {
 public:
  virtual ~EventSink() = default;
  // All events of one step, in at most one call per step. The sink is released after the last event
  // of the last sequence. May throw std::bad_alloc: the request ends, and another call brings the
  // last events of its sequences (with kError), including sequences whose last event was in the
  // call that threw.
  virtual void on_tokens(RequestId request, std::span<const TokenEvent> events) = 0;
  // With sampling.prompt_logprobs: the tokens at positions first, first + 1, … (position 0 has none
  // and is not sent). rows[i] holds the prompt's own token first, then the alternatives, most
  // likely first. Valid during the call.
  virtual void on_prompt_logprobs(RequestId request, int first,
                                  std::span<const std::span<const TokenLogprob>> rows) {
    (void)request, (void)first, (void)rows;
  }
};

// Facts of an open engine. Sizes are in bytes, lengths in tokens.
struct EngineInfo {
  std::string architecture;  // "llama", …
  std::string backend;       // "cpu/avx512"
  int vocab_size = 0;
  int model_dim = 0;         // values of a token's embedding
  int embedding_levels = 1;  // levels of EmbeddingRows
  // Rows of an encoder that every request gives (Whisper); 0: the model has no encoder. Requests have
  // one sequence each, no grammar and no adapter, and share no prefixes.
  int encoder_rows = 0;
  bool positions_have_axes = false;  // M-RoPE: positions of grids have rows and columns
  // Tokens of a picture see each other, later ones too: a step computes all of them.
  bool pictures_see_themselves = false;
  // Layers read the ids of tokens, too (per-layer inputs): for them, tokens with given rows have this
  // id; -1: their own.
  TokenId given_token = -1;
  int max_model_len = 0;  // prompt and completion together
  // For models with two sets of RoPE frequencies (longrope): a request whose prompt and max_tokens
  // together exceed this many tokens is computed with the long ones. 0: there is one set.
  int short_rope_len = 0;
  int block_size = 0;  // tokens
  // blocks of the KV cache, in the group that keeps all tokens
  int n_blocks = 0;
  int64_t kv_bytes = 0;
  int64_t weight_bytes = 0;
  // part of weight_bytes: experts that are mapped from a file (experts_offload)
  int64_t offloaded_bytes = 0;
  // layers of a mixture on a GPU whose experts the CPU computes, "0-11 of 24"; "": none
  std::string cpu_experts;
  // Bytes of the GPU for copies of the most used of them, and of the host for all of them in the
  // GPU's form (expert_cache_memory).
  int64_t expert_cache_bytes = 0, expert_twin_bytes = 0;
  int n_threads = 0;
  // Costs of one token: the numerators of the roofline.
  int64_t active_weight_bytes = 0;  // weight bytes that a decoded token reads
  // parameters that a token uses: two operations each
  int64_t active_parameters = 0;
  // those of active_parameters that are kept in 16 or 32 bits
  int64_t active_float_parameters = 0;
  // layers x query dimensions: four operations each per visible token
  int64_t attention_dims = 0;
  int64_t kv_bytes_per_token = 0;  // bytes of K and V in all layers
  // bytes of a sequence's state in all recurrent layers
  int64_t state_bytes = 0;
  int n_experts = 0;  // experts of a mixture-of-experts layer
  std::vector<TokenId> eos_token_ids;
};

// A session that was loaded from a file.
struct SessionTokens {
  std::vector<TokenId> tokens;
  // leading tokens that a request starting with them need not compute
  int n_restored = 0;
};

class Engine {
 public:
  // Loads the model and reserves the cache. Errors: kNotFound, kCorruptFile, kUnsupported,
  // kResourceExhausted, kInvalidArgument (a config value, by name).
  static Result<std::unique_ptr<Engine>> open(const EngineConfig& config);

  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;
  virtual const EngineConfig& config() const = 0;  // with every automatic value filled in

  // Ok when submit() would take the request, apart from a full queue or a shutdown. Errors:
  // kInvalidArgument (bad parameter, prompt empty, id out of range, prompt + 1 token longer than
  // max_model_len), kUnsupported (beams without a paged cache).
  virtual Status check(const Request& request) const = 0;

  // Ok, or the error for which the engine cannot compute any more: running requests end with it,
  // new ones are refused with it. From any thread.
  virtual Status status() const = 0;

  // Opens a LoRA adapter of this model (a PEFT directory or a GGUF file) to pass in requests. Its
  // weights are loaded by the first request that uses it; at most max_loras adapters are in memory
  // at once, and requests for further ones wait. As long as somebody holds it, its files must stay
  // as they are. From any thread. Errors: those of reading the files, kInvalidArgument (it is of
  // another model, or its rank is above max_lora_rank), kUnsupported.
  virtual Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) = 0;

  // Queues a request; the sink lives until its last event. Errors: those of check(),
  // kResourceExhausted (the queue is full: try again later), kCancelled (the engine is shutting
  // down).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;

  // Ends a request within one step; its sequences get a last event with `reason`. Unknown or
  // finished ids are ignored.
  virtual void cancel(RequestId request, FinishReason reason = FinishReason::kAbort) = 0;
  // Ends one of the request's n sequences, as when a stop string was found in its text.
  virtual void cancel(RequestId request, int index, FinishReason reason) = 0;

  // Runs one step: takes new requests, plans, computes, samples, delivers events. False when there
  // is nothing to do. REQUIRES: start() was not called. Allocates nothing once it has warmed up,
  // except for new requests. When memory runs out, the requests that needed it end with kError and
  // kResourceExhausted; the others go on.
  virtual bool step() = 0;

  // Runs step() on a thread of its own until stop(), sleeping while there is nothing to do.
  virtual void start() = 0;
  // Cancels all open requests and joins the thread. The destructor does so too.
  virtual void stop() = 0;

  // Bounds how long the destructor waits for blocks that are still written to the store of blocks;
  // without it ten seconds. From any thread.
  virtual void end_by(Clock::time_point latest) { (void)latest; }

  // Pauses or resumes the engine. While it is paused nothing is computed: requests keep their state
  // and wait, new ones are queued, cancelled ones end. Returns between two steps, so no token comes
  // after set_paused(true) has returned. Deadlines that pass meanwhile take effect when the engine
  // resumes. From any thread. Errors: kCancelled (the engine is shutting down).
  virtual Status set_paused(bool paused) = 0;

  // A copy of the metrics as of the last finished step.
  virtual Metrics metrics() const = 0;
  // Number of engines behind this one: data_parallel_size. Each has its own metrics and cache.
  virtual int n_engines() const { return 1; }
  virtual const Engine& engine_at(int index) const {
    (void)index;
    return *this;
  }
  virtual void reset_prefix_cache() = 0;

  // Writes `tokens` to a file, with K and V of the leading whole blocks of them that are cached;
  // returns the number of tokens in these blocks. cache_salt: that of the requests that computed
  // them. From any thread; done between two steps. Errors: kIo, kResourceExhausted (the disk is
  // full), kCancelled (the engine is shutting down).
  virtual Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                                   const std::string& cache_salt = {}) = 0;
  // Loads the blocks of a file of save_session() into the prefix cache; the whole file is verified
  // before any of it is used. A request whose prompt starts with these tokens then skips their
  // prefill. Errors: kNotFound, kCorruptFile, kInvalidArgument (saved by another model or cache
  // configuration), kCancelled.
  virtual Result<SessionTokens> load_session(const std::string& path) = 0;
};

}  // namespace penstock

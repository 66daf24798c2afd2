// The generations of one API call: several prompts with n sequences each, numbered as choices 0 …
// n_prompts * n - 1.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/session.h"
#include "server/api/cache_miss.h"
#include "server/api/event_channel.h"
#include "server/replies/cache/reply_cache.h"
#include "server/replies/cache/reply_record.h"
#include "server/services/request_record.h"
#include "server/services/served_model.h"

namespace penstock {

struct Services;

// The last user message of a chat, with which the reply cache searches by meaning.
struct ChatQuestion {
  std::string text;     // "": no question
  std::string context;  // the rest of the chat
  bool tools = false;
};

struct GenerationCall {
  ModelLease model;          // its engine generates; destroyed last
  ServedAdapterRef adapter;  // null: the base model
  std::vector<std::vector<TokenId>> prompts;
  // Pictures of the first prompts, by prompt; further ones have none.
  std::vector<PromptPictures> pictures;
  // Changes the logits of the only prompt (Request::logits_processor); null: nothing does.
  std::shared_ptr<LogitsProcessor> logits_processor;
  std::shared_ptr<AttentionWatch> watch;  // Request::watch of the only prompt
  // Messages of the first prompts, by prompt, where usage is to name them.
  std::vector<MessagePlaces> messages;
  SamplingParams params;
  StringTokens strings;  // of params
  Priority priority = Priority::kNormal;
  std::string cache_salt;
  // Tenant within which cached prompts are shared, prepended to the salt (cache_scope_of()).
  std::string cache_scope;
  // name of the request field that set params.structured_outputs
  std::string structured_field;
  // Chats: the path of the schema inside one entry of the request's tools ("function/parameters"),
  // and whether tools are strict by default.
  const char* tool_schemas = nullptr;
  bool strict_tools = false;
  // compiled from structured_outputs by constrain()
  std::shared_ptr<const TokenMatcher> matcher;
  std::vector<ThinkingBudget> thinking;  // one per prompt, or none
  std::optional<std::chrono::milliseconds> timeout;
  double prefill_wait_seconds = 0;  // as Request has it
  // whether Generation::prompt_progress() will be called
  bool watches_prompts = false;
  // How often the reply repeats a prompt: its ids in each choice, and the log-probabilities of its
  // tokens (if requested) in all choices together.
  int n_repeats = 0, n_row_repeats = 1;
  // Bytes of texts that each of n choices repeats, of all prompts together.
  size_t repeated_bytes = 0;
  // the end of a stream repeats the whole reply
  bool repeats_reply = false;
  // keep the log-probabilities of tokens behind their deltas; a stream has passed them on
  bool keeps_logprobs = true;
  // what ends the reply besides `params`, for the reply cache; "": nothing
  std::string ends_by;
  bool fills_context = false;  // the client set no maximum reply length
  // the text keeps special tokens that mark parts of a reply
  bool keep_markers = false;
  std::optional<ChatQuestion> question;  // set if the reply cache may answer by meaning
  // complete record of a cached reply, which is replayed; null: the engine computes
  CachedReplyRef kept;
  // how the reply was found, for usage: "exact" or "meaning"
  const char* kept_by = nullptr;
  // records the engine's events for the reply cache
  std::optional<ReplyRecorder> recorder;

  // Sets max_tokens to the room left in the context if fills_context. REQUIRES: prompts are set.
  void fill_context();
  // Rows of an encoder behind each prompt, which count as prompt tokens for quotas and budgets; 0:
  // the model has none.
  int n_encoder_rows() const;
  // the model's or adapter's name, as replies show it
  const std::string& name() const { return adapter != nullptr ? adapter->name : model->name(); }
};

// New output of one choice. The text has whole UTF-8 characters and no part of a stop string.
struct ChoiceDelta {
  int choice = 0;
  std::string text;
  TokenId token = kNoToken;
  int n_tokens = 0;  // of the choice so far, including this one
  // the token first, then the alternatives; empty when not asked for
  std::vector<TokenLogprob> logprobs;
  FinishReason finish = FinishReason::kNone;
  // with finish: the stop token or string, if it was one
  StopReason stop_reason;
};

class Generation {
 public:
  // Submits all prompts to the call's model, or replays a cached reply. Consumes the prompts.
  // REQUIRES: the call outlives the result. Errors: the engine's, and kResourceExhausted when too
  // many choices are waiting; nothing runs after an error.
  static net::awaitable<Result<std::unique_ptr<Generation>>> start(Services& services,
                                                                   Exchange& exchange,
                                                                   GenerationCall& call);
  // Cancels the sequences that are still running.
  ~Generation();

  // Consumes deltas in order; returns false to stop.
  using Take = std::function<bool(const std::vector<ChoiceDelta>&)>;
  // Calls `take` with deltas as they arrive. Returns false when every choice has finished or the
  // client has left; true when `take` returned false, or after `timeout` without a delta (time for
  // a keep-alive).
  net::awaitable<bool> pass(const Take& take, std::chrono::milliseconds timeout);
  // Ends one choice as if it had stopped on its own. An error of tokens that the engine computes for
  // it meanwhile is none of the generation.
  void stop(int choice);

  bool client_gone() const { return gone_; }
  // the first error of any sequence; null: none
  const Error* error() const { return errors_.empty() ? nullptr : &errors_.front().second; }
  // Outputs by prompt; complete when pass() has returned false.
  const std::vector<RequestOutput>& outputs() const { return outputs_; }
  const GenerationCall& call() const { return call_; }
  // Returns the current output of one prompt: its ids and, before the first delta of its choices,
  // its log-probabilities.
  const RequestOutput& prompt_output(int prompt) const;
  // Returns the progress of prefill; null: not tracked, and the prompt may be treated as computed.
  const PromptProgress* prompt_progress(int prompt) const {
    const auto at = static_cast<size_t>(prompt);
    return at < progress_.size() ? progress_[at].get() : nullptr;
  }
  int n_prompt_tokens() const { return n_prompt_tokens_; }
  int n_completion_tokens() const { return n_completion_tokens_; }
  int n_cached_tokens() const { return n_cached_tokens_; }
  // speculative decoding: drafted tokens, and those of them that were accepted
  int n_draft_tokens() const { return n_draft_tokens_; }
  int n_accepted_tokens() const { return n_accepted_tokens_; }

 private:
  Generation(Exchange& exchange, GenerationCall& call);
  bool take_place();
  Status check_fits() const;
  net::awaitable<Status> encode_pictures();
  Status submit();
  void watch();
  void open_prompt(std::vector<TokenId> prompt);
  void handle(int prompt, const OwnedEvent& event);
  net::awaitable<bool> replay(const Take& take);
  void note(const RequestOutput& output);  // for the request's trace
  void cancel_all();

  Exchange& exchange_;
  RequestRecord& record_;
  GenerationCall& call_;
  const std::chrono::system_clock::time_point begin_ = std::chrono::system_clock::now();
  Session& session_;
  std::shared_ptr<EventChannel> channel_;
  std::shared_ptr<RunningCall> running_;
  std::optional<RunningTexts::Place> place_;
  std::vector<std::shared_ptr<PromptProgress>> progress_;  // by prompt; empty: not requested
  std::vector<std::vector<PromptEmbeddings>> embeddings_;  // of the first prompts
  // of the only prompt, for models with an encoder
  std::shared_ptr<const EmbeddingRows> encoder_rows_;
  std::optional<Clock::time_point> deadline_;
  std::vector<RequestId> ids_;  // by prompt
  std::unordered_map<uint64_t, int> prompt_of_id_;
  std::vector<std::unique_ptr<OutputBuilder>> builders_;
  const std::shared_ptr<const StopStrings> stops_;  // shared by all prompts
  std::vector<ChoiceDelta> deltas_;                 // reused buffer
  std::vector<RequestOutput> outputs_;
  std::vector<std::pair<int, Error>> errors_;  // by choice, in the order of their coming
  std::vector<int> stopped_;                   // choices that stop() ended
  int n_open_ = 0, n_prompt_tokens_ = 0, n_completion_tokens_ = 0, n_cached_tokens_ = 0;
  int n_draft_tokens_ = 0, n_accepted_tokens_ = 0;
  bool gone_ = false;
  std::optional<ReplyReader> replayed_;  // of a cached reply
};

}  // namespace penstock

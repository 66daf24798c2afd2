// One API call's generations: several prompts with n sequences each, as choices 0 … n_prompts * n -
// 1.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/session.h"
#include "server/api/event_channel.h"
#include "server/replies/cache/reply_cache.h"
#include "server/replies/cache/reply_record.h"
#include "server/services/request_record.h"
#include "server/services/served_model.h"

namespace penstock {

struct Services;

// The last user's turn of a chat, as the cache of replies looks for it by its meaning.
struct ChatQuestion {
  std::string text;     // "": there is none
  std::string context;  // all else that the chat has
  bool tools = false;
};

struct GenerationCall {
  ModelLease model;          // whose engine generates; destroyed last
  ServedAdapterRef adapter;  // null: the model as it is
  std::vector<std::vector<TokenId>> prompts;
  SamplingParams params;
  StringTokens strings;  // of params
  Priority priority = Priority::kNormal;
  std::string cache_salt;
  // before the salt: whose cached prompts it shares, as answer() sets it
  std::string cache_scope;
  // the request's name of params.structured_outputs
  std::string structured_field;
  // Of chats: the place of a tool's schema in the request's list of tools ("function/parameters"),
  // and whether tools are strict that do not say it.
  const char* tool_schemas = nullptr;
  bool strict_tools = false;
  std::shared_ptr<const TokenMatcher> matcher;  // made of structured_outputs by constrain()
  std::vector<ThinkingBudget> thinking;         // one per prompt, or none
  std::optional<std::chrono::milliseconds> timeout;
  // of a prompt in each of its choices, in the reply
  bool watches_prompts = false;  // Generation::prompt_progress() is asked for
  int n_repeats = 0;
  bool fills_context = false;  // nobody said how long a reply may be
  // the text keeps special tokens that mark parts of a reply
  bool keep_markers = false;
  std::optional<ChatQuestion> question;  // where a chat may be answered by its meaning
  // a whole record of a reply to this call, which is given again; null: the engine computes
  CachedReplyRef kept;
  // how it was found, as usage tells it: "exact" or "meaning"
  const char* kept_by = nullptr;
  std::optional<ReplyRecorder> recorder;  // gathers what the engine tells

  // Where nobody said how long a reply may be: what the context has room for. REQUIRES: prompts.
  void fill_context();
  // As replies tell it.
  const std::string& name() const { return adapter != nullptr ? adapter->name : model->name(); }
};

using StopReason = decltype(CompletionOutput::stop_reason);

// News of one choice. Text is whole UTF-8 and never part of a stop string.
struct ChoiceDelta {
  int choice = 0;
  std::string text;
  TokenId token = kNoToken;
  int n_tokens = 0;  // of the choice so far, this one too
  // the token first, then the alternatives; empty when not asked for
  std::vector<TokenLogprob> logprobs;
  FinishReason finish = FinishReason::kNone;
  // with finish: the stop token or string, if it was one
  StopReason stop_reason;
};

class Generation {
 public:
  // Submits every prompt to the call's model, and takes it, unless its reply was kept. The call
  // outlives this. Errors: the engine's, and kResourceExhausted where too many choices wait
  // already; then nothing runs.
  static net::awaitable<Result<std::unique_ptr<Generation>>> start(Services& services,
                                                                   Exchange& exchange,
                                                                   GenerationCall& call);
  // Cancels what still runs.
  ~Generation();

  // Takes what is new, in order; false: no more for now.
  using Take = std::function<bool(const std::vector<ChoiceDelta>&)>;
  // Hands news to `take` as they come. False when every choice has finished or the client is gone;
  // true when `take` wants no more, or after `timeout` without news (time for a keep-alive).
  net::awaitable<bool> pass(const Take& take, std::chrono::milliseconds timeout);
  // Ends one choice as if it had stopped by itself.
  void stop(int choice);

  bool client_gone() const { return gone_; }
  // The first error of a sequence, once there is one.
  const std::optional<Error>& error() const { return error_; }
  // By prompt; complete when next() has returned false.
  const std::vector<RequestOutput>& outputs() const { return outputs_; }
  const GenerationCall& call() const { return call_; }
  // What is known of one prompt so far: its ids and, before the first delta of its choices, its
  // log-probabilities.
  const RequestOutput& prompt_output(int prompt) const;
  // How far a prompt is computed; null where that is not known, and the prompt may be counted as
  // computed.
  const PromptProgress* prompt_progress(int prompt) const {
    const auto at = static_cast<size_t>(prompt);
    return at < progress_.size() ? progress_[at].get() : nullptr;
  }
  int n_prompt_tokens() const { return n_prompt_tokens_; }
  int n_completion_tokens() const { return n_completion_tokens_; }
  int n_cached_tokens() const { return n_cached_tokens_; }
  // Of speculation: guessed, and of these kept.
  int n_draft_tokens() const { return n_draft_tokens_; }
  int n_accepted_tokens() const { return n_accepted_tokens_; }

 private:
  Generation(Exchange& exchange, GenerationCall& call);
  bool take_place();
  Status submit();
  void watch();
  void open_prompt(std::vector<TokenId> prompt);
  void handle(int prompt, const OwnedEvent& event);
  bool replay(const Take& take);
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
  std::vector<std::shared_ptr<PromptProgress>> progress_;  // by prompt; none: nobody asks for it
  std::vector<RequestId> ids_;                             // by prompt
  std::unordered_map<uint64_t, int> prompt_of_id_;
  std::vector<std::unique_ptr<OutputBuilder>> builders_;
  const std::shared_ptr<const StopStrings> stops_;  // of all prompts
  std::vector<ChoiceDelta> deltas_;                 // kept for its memory
  std::vector<RequestOutput> outputs_;
  std::optional<Error> error_;
  int n_open_ = 0, n_prompt_tokens_ = 0, n_completion_tokens_ = 0, n_cached_tokens_ = 0;
  int n_draft_tokens_ = 0, n_accepted_tokens_ = 0;
  bool gone_ = false;
  std::optional<ReplyReader> replayed_;  // of a reply that was kept
};

}  // namespace penstock

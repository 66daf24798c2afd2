#include <algorithm>
#include <unordered_map>
#include <utility>

#include "frontend/completions.h"
#include "frontend/llm_impl.h"

namespace penstock {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr size_t kMostInFlight = 1024;  // maximum requests of one call in the engine

}  // namespace

// One call of generate(). All its requests have ended when run() returns, unless a callback throws.
class LLMImpl::Call {
 public:
  Call(Session& session, const SamplingParams& params, const GenerateOptions& options,
       const CallHooks& hooks, size_t n_prompts)
      : session_(session),
        params_(std::make_shared<const SamplingParams>(params)),
        options_(options),
        hooks_(hooks),
        outputs_(n_prompts) {}

  Result<std::vector<RequestOutput>> run(std::vector<Request> requests,
                                         std::span<const Prompt> prompts) {
    requests_ = std::move(requests);
    in_flight_limit_ =
        std::min<size_t>(kMostInFlight, session_.engine().config().max_queued_requests);
    for (submit_more(); n_done_ < outputs_.size(); submit_more()) {
      completions_.poll(kPollInterval, [&](const CompletionUpdate& update) { handle(update); });
      if (!cancelled_ && options_.should_stop && options_.should_stop()) cancel_all();
    }
    if (error_) return tl::unexpected(*error_);
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (const auto* text = std::get_if<std::string>(&prompts[i])) outputs_[i].prompt = *text;
    }
    return std::move(outputs_);
  }

 private:
  void submit_more() {
    while (n_submitted_ < requests_.size() && prompt_of_.size() < in_flight_limit_) {
      if (cancelled_) {
        skip(n_submitted_++);
        continue;
      }
      auto id = completions_.submit(requests_[n_submitted_], params_, hooks_.keep_markers);
      if (!id) {
        // Other callers may fill the queue: retry after one of this call's requests has ended.
        if (id.error().code == ErrorCode::kResourceExhausted && !prompt_of_.empty()) return;
        error_ = id.error();
        cancel_all();
        continue;
      }
      prompt_of_.emplace(static_cast<uint64_t>(*id), n_submitted_);
      requests_[n_submitted_++] = {};
    }
  }

  // Sets the output of a prompt that was not submitted since the call was cancelled.
  void skip(size_t prompt) {
    outputs_[prompt].prompt_token_ids = std::move(requests_[prompt].prompt);
    outputs_[prompt].outputs.resize(params_->n);
    for (int i = 0; i < params_->n; ++i) {
      outputs_[prompt].outputs[i].index = i;
      outputs_[prompt].outputs[i].finish_reason = FinishReason::kAbort;
    }
    ++n_done_;
  }

  void handle(const CompletionUpdate& update) {
    const size_t prompt = prompt_of_.at(static_cast<uint64_t>(update.request));
    tell(prompt, update);
    if (update.done == nullptr) return;
    outputs_[prompt] = std::move(*update.done);
    prompt_of_.erase(static_cast<uint64_t>(update.request));
    ++n_done_;
    if (options_.on_progress) options_.on_progress(n_done_, outputs_.size());
  }

  void tell(size_t prompt, const CompletionUpdate& update) {
    if (!options_.on_text && !hooks_.on_piece) return;
    const CompletionOutput& output = *update.output;
    const TextDelta delta{prompt, output.index, update.text, update.new_tokens(),
                          update.finished ? output.finish_reason : FinishReason::kNone};
    if (hooks_.on_piece && !hooks_.on_piece(delta) && !update.finished)
      completions_.cancel(update.request, output.index, FinishReason::kStop);
    if (options_.on_text && !options_.on_text(delta) && !cancelled_) cancel_all();
  }

  void cancel_all() {
    cancelled_ = true;
    completions_.cancel_all();
  }

  Session& session_;
  const std::shared_ptr<const SamplingParams> params_;
  const GenerateOptions& options_;
  const CallHooks& hooks_;
  Completions completions_{session_};
  std::vector<Request> requests_;
  std::vector<RequestOutput> outputs_;
  std::unordered_map<uint64_t, size_t> prompt_of_;  // running requests: id -> index of the prompt
  size_t in_flight_limit_ = 1, n_submitted_ = 0, n_done_ = 0;
  bool cancelled_ = false;
  std::optional<Error> error_;
};

Result<std::unique_ptr<LLM>> LLM::open(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto session, Session::open(config));
  session->engine().start();
  return std::make_unique<LLMImpl>(std::move(session));
}

Result<RequestOutput> LLM::generate(const Prompt& prompt, const SamplingParams& params,
                                    const GenerateOptions& options) {
  ASSIGN_OR_RETURN(auto outputs, generate(std::span(&prompt, 1), params, options));
  return std::move(outputs[0]);
}

Result<std::vector<RequestOutput>> LLMImpl::generate(std::span<const Prompt> prompts,
                                                     const SamplingParams& params,
                                                     const GenerateOptions& options) {
  return generate(prompts, params, options, CallHooks(), {});
}

Result<std::vector<RequestOutput>> LLMImpl::generate(std::span<const Prompt> prompts,
                                                     const SamplingParams& params,
                                                     const GenerateOptions& options,
                                                     const CallHooks& hooks,
                                                     std::vector<PromptEmbeddings> embeddings) {
  std::vector<Request> requests;
  requests.reserve(prompts.size());
  ASSIGN_OR_RETURN(const StringTokens strings, session_->string_tokens(params));
  ASSIGN_OR_RETURN(const auto matcher, session_->matcher(params));
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&prompts[i])) {
      ids = session_->encode(*text, {options.add_bos, options.parse_special});
    } else {
      ids = std::get<std::vector<TokenId>>(prompts[i]);
    }
    Request request = session_->make_request(std::move(ids), params, strings);
    request.matcher = matcher;
    if (i == 0) session_->give(request, std::move(embeddings));
    request.priority = options.priority;
    request.cache_salt = options.cache_salt;
    if (options.timeout) request.deadline = Clock::now() + *options.timeout;
    if (const Status status = session_->engine().check(request); !status) {
      const Error& error = status.error();
      if (prompts.size() == 1) return tl::unexpected(error);
      return errorf(error.code, "prompt {}: {}", i, error.message);
    }
    requests.push_back(std::move(request));
  }
  return Call(*session_, params, options, hooks, prompts.size()).run(std::move(requests), prompts);
}

SamplingParams LLMImpl::default_sampling_params() const {
  return session_->default_sampling_params();
}

std::vector<TokenId> LLMImpl::encode(std::string_view text, bool add_bos,
                                     bool parse_special) const {
  return session_->encode(text, {add_bos, parse_special});
}

std::string LLMImpl::decode(std::span<const TokenId> tokens, bool skip_special) const {
  return session_->tokenizer().decode(tokens, skip_special);
}

}  // namespace penstock

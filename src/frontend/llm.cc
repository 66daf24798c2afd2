#include <algorithm>
#include <unordered_map>
#include <utility>

#include "frontend/llm_impl.h"

namespace penstock {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr size_t kMostInFlight = 1024;  // requests of one call that the engine holds at once

}  // namespace

// One call of generate(): submits, follows the events, cancels.
class LLMImpl::Call {
 public:
  Call(Session& session, const SamplingParams& params, const GenerateOptions& options, const CallHooks& hooks,
       size_t n_prompts)
      : session_(session), params_(params), options_(options), hooks_(hooks), outputs_(n_prompts) {}
  // Nothing is left unless a callback has thrown.
  ~Call() { cancel_all(); }

  Result<std::vector<RequestOutput>> run(std::vector<Request> requests, std::span<const Prompt> prompts) {
    requests_ = std::move(requests);
    in_flight_limit_ = std::min<size_t>(kMostInFlight, session_.engine().config().max_queued_requests);
    std::vector<OwnedEvent> events;
    for (submit_more(); n_done_ < outputs_.size(); submit_more()) {
      events.clear();
      queue_->pop(events, kPollInterval);
      for (const OwnedEvent& event : events) handle(event);
      if (!cancelled_ && options_.should_stop && options_.should_stop()) cancel_all();
    }
    if (error_) return tl::unexpected(*error_);
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (const auto* text = std::get_if<std::string>(&prompts[i])) outputs_[i].prompt = *text;
    }
    return std::move(outputs_);
  }

 private:
  struct Active {
    size_t prompt;
    OutputBuilder builder;
    std::vector<size_t> n_told;  // [n] tokens of each output that deltas have brought
  };

  void submit_more() {
    while (n_submitted_ < requests_.size() && active_.size() < in_flight_limit_) {
      if (cancelled_) {
        skip(n_submitted_++);
        continue;
      }
      Request& request = requests_[n_submitted_];
      std::vector<TokenId> prompt = request.prompt;
      auto id = session_.engine().submit(request, queue_);
      if (!id) {
        // A full queue is other callers' doing: try again when something of ours has ended.
        if (id.error().code == ErrorCode::kResourceExhausted && !active_.empty()) return;
        error_ = id.error();
        cancel_all();
        continue;
      }
      active_.emplace(
          static_cast<uint64_t>(*id),
          Active{n_submitted_,
                 OutputBuilder(session_.tokenizer(), params_, std::move(prompt), hooks_.keep_markers),
                 std::vector<size_t>(static_cast<size_t>(params_.n))});
      request = {};
      ++n_submitted_;
    }
  }

  // A prompt that never ran because the call was cancelled.
  void skip(size_t prompt) {
    outputs_[prompt].prompt_token_ids = std::move(requests_[prompt].prompt);
    outputs_[prompt].outputs.resize(params_.n);
    for (int i = 0; i < params_.n; ++i) {
      outputs_[prompt].outputs[i].index = i;
      outputs_[prompt].outputs[i].finish_reason = FinishReason::kAbort;
    }
    ++n_done_;
  }

  void handle(const OwnedEvent& event) {
    const auto found = active_.find(static_cast<uint64_t>(event.request));
    if (found == active_.end()) return;
    Active& active = found->second;
    const OutputBuilder::Step step = active.builder.add(event);
    if (step.stopped_here) session_.engine().cancel(event.request, event.index, FinishReason::kStop);
    if (event.first_position < 0 && (!step.text.empty() || step.finished)) tell(active, event, step);
    if (!active.builder.finished()) return;
    outputs_[active.prompt] = active.builder.take();
    active_.erase(found);
    ++n_done_;
    if (options_.on_progress) options_.on_progress(n_done_, outputs_.size());
  }

  void tell(Active& active, const OwnedEvent& event, const OutputBuilder::Step& step) {
    if (!options_.on_text && !hooks_.on_piece) return;
    const CompletionOutput& output = active.builder.output(event.index);
    const auto all = std::span<const TokenId>(output.token_ids);
    const size_t n_told = std::exchange(active.n_told[static_cast<size_t>(event.index)], all.size());
    const TextDelta delta{active.prompt, event.index, step.text, all.subspan(n_told),
                          step.finished ? output.finish_reason : FinishReason::kNone};
    if (hooks_.on_piece && !hooks_.on_piece(delta) && !step.finished)
      session_.engine().cancel(event.request, event.index, FinishReason::kStop);
    if (options_.on_text && !options_.on_text(delta) && !cancelled_) cancel_all();
  }

  void cancel_all() {
    cancelled_ = true;
    for (const auto& [id, active] : active_) session_.engine().cancel(RequestId(id), FinishReason::kAbort);
  }

  Session& session_;
  const SamplingParams& params_;
  const GenerateOptions& options_;
  const CallHooks& hooks_;
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();
  std::vector<Request> requests_;
  std::vector<RequestOutput> outputs_;
  std::unordered_map<uint64_t, Active> active_;
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
  return generate(prompts, params, options, CallHooks());
}

Result<std::vector<RequestOutput>> LLMImpl::generate(std::span<const Prompt> prompts,
                                                     const SamplingParams& params,
                                                     const GenerateOptions& options, const CallHooks& hooks) {
  std::vector<Request> requests;
  requests.reserve(prompts.size());
  ASSIGN_OR_RETURN(const auto matcher, session_->matcher(params));
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&prompts[i])) {
      ids = session_->encode(*text, {options.add_bos, options.parse_special});
    } else {
      ids = std::get<std::vector<TokenId>>(prompts[i]);
    }
    Request request = session_->make_request(std::move(ids), params);
    request.matcher = matcher;
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

SamplingParams LLMImpl::default_sampling_params() const { return session_->default_sampling_params(); }

std::vector<TokenId> LLMImpl::encode(std::string_view text, bool add_bos, bool parse_special) const {
  return session_->encode(text, {add_bos, parse_special});
}

std::string LLMImpl::decode(std::span<const TokenId> tokens, bool skip_special) const {
  return session_->tokenizer().decode(tokens, skip_special);
}

}  // namespace penstock

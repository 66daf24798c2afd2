#include "server/api/generation.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/requests/context_limit.h"
#include "server/http/apart_threads.h"
#include "server/http/awaited.h"
#include "server/keys/ledger/spending.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {

void GenerationCall::fill_context() {
  if (params.max_tokens >= 0) return;
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  params.max_tokens = std::max(model->max_model_len() - static_cast<int>(longest), 1);
  fills_context = true;
}

int GenerationCall::n_encoder_rows() const {
  return static_cast<int>(model->session().engine_info().encoder_rows);
}

namespace {

// Estimates the engine's work to submit a call, in bytes read. Grammars whose tokens are masked or
// that must end within a limit need the first mask and the shortest text, which must not run on
// connection threads.
size_t bytes_to_submit(const GenerationCall& call) {
  constexpr size_t kOfGrammar = 64 * 1024;
  const SamplingParams& params = call.params;
  const bool excludes = !params.banned_token_ids.empty() || !params.allowed_token_ids.empty() ||
                        !params.bad_words.empty();
  const bool completes =
      params.structured_outputs && params.structured_outputs->complete_within_max_tokens;
  size_t bytes = 0;
  if (call.matcher != nullptr && (excludes || completes)) bytes += call.prompts.size() * kOfGrammar;
  // Copied values, which cost less than parsed ones.
  size_t n_copied = params.allowed_token_ids.size() + params.banned_token_ids.size() +
                    2 * params.logit_bias.size() + call.strings.dry_breakers.size();
  n_copied *= call.prompts.size();
  for (const auto& prompt : call.prompts) n_copied += prompt.size();
  return bytes + n_copied / 32;
}

}  // namespace

net::awaitable<Result<std::unique_ptr<Generation>>> Generation::start(Services& services,
                                                                      Exchange& exchange,
                                                                      GenerationCall& call) {
  std::unique_ptr<Generation> generation(new Generation(exchange, call));
  if (!generation->take_place()) {
    co_return errorf(ErrorCode::kResourceExhausted,
                     "the queue is full: too many choices wait already, of one key or of all");
  }
  if (call.timeout) generation->deadline_ = Clock::now() + *call.timeout;
  if (Status fits = generation->check_fits(); !fits)
    co_return tl::unexpected(std::move(fits).error());
  if (Status encoded = co_await generation->encode_pictures(); !encoded)
    co_return tl::unexpected(std::move(encoded).error());
  Status submitted;
  co_await services.run_apart(exchange, bytes_to_submit(call),
                              [&] { submitted = generation->submit(); });
  if (!submitted) co_return tl::unexpected(submitted.error());
  generation->watch();
  co_return generation;
}

Generation::Generation(Exchange& exchange, GenerationCall& call)
    : exchange_(exchange),
      record_(record_of(exchange)),
      call_(call),
      session_(call_.model->session()),
      channel_(std::make_shared<EventChannel>(exchange.executor())),
      stops_(std::make_shared<const StopStrings>(call_.params.stop)),
      outputs_(call_.prompts.size()) {
  // The reply is shown only when it is complete, and no stop text ends it.
  const bool ends_by_itself = call_.params.stop.empty() && !call_.keep_markers;
  if (call_.priority == Priority::kBackground && ends_by_itself) channel_->gather();
  channel_->on_overflow = [this] { gone_ = true; };
}

// Has the rows of all pictures made; those that are kept are there at once.
net::awaitable<Status> Generation::encode_pictures() {
  const bool any =
      std::ranges::any_of(call_.pictures, [](const auto& one) { return !one.empty(); });
  if (!any || call_.kept != nullptr) co_return Status();
  Eyes& eyes = *session_.eyes();
  Eyes::Call asked{.deadline = deadline_,
                   .tenant = record_.tenant.empty() ? exchange_.request().asker() : record_.tenant};
  for (const PromptPictures& of_prompt : call_.pictures)
    asked.pictures.insert(asked.pictures.end(), of_prompt.pictures.begin(),
                          of_prompt.pictures.end());
  const Result<PictureRows> rows = co_await await_result<PictureRows>(
      exchange_, [&](Eyes::Done done) { return eyes.submit(std::move(asked), std::move(done)); },
      [&eyes](uint64_t id) { eyes.cancel(id); });
  if (!rows) co_return tl::unexpected(rows.error());
  if (session_.engine_info().encoder_rows > 0) {
    encoder_rows_ = rows->front();
    co_return Status();
  }
  auto next = rows->begin();
  for (const PromptPictures& of_prompt : call_.pictures) {
    const auto end = next + static_cast<ptrdiff_t>(of_prompt.pictures.size());
    embeddings_.push_back(eyes.embeddings_of(of_prompt, PictureRows(next, end)));
    next = end;
  }
  co_return Status();
}

// Registers the call among running ones if there is room.
bool Generation::take_place() {
  running_ = std::make_shared<RunningCall>(call_.prompts.size() *
                                           static_cast<size_t>(std::max(call_.params.n, 1)));
  running_->tenant = record_.tenant;
  running_->params = call_.params;
  for (const auto& prompt : call_.prompts)
    running_->n_prompt_tokens =
        std::max(running_->n_prompt_tokens, static_cast<int>(prompt.size()));
  const EngineConfig& config = call_.model->config();
  constexpr int kLargestCalls =
      // at least two maximal calls, whatever the queue's limit
      256;
  const int most = config.max_queued_requests + config.max_num_seqs + kLargestCalls;
  place_ = call_.model->running().add(running_, static_cast<size_t>(most));
  return place_.has_value();
}

// From now on the generation ends when its client leaves.
void Generation::watch() {
  const auto leave = [this] {
    gone_ = true;
    cancel_all();
    channel_->wake();
  };
  exchange_.on_disconnect = leave;
  channel_->on_overflow = leave;
  if (gone_ || exchange_.gone()) leave();
}

Generation::~Generation() {
  if (place_) call_.model->running().remove(*place_);
  exchange_.on_disconnect = nullptr;
  cancel_all();
  channel_->close();
}

// Throws nothing: the destructor calls it. Where the engine's inbox has no memory for it, the
// sequence goes on to its end, which nobody reads.
void Generation::cancel_all() {
  if (n_open_ == 0) return;
  for (size_t i = 0; i < ids_.size(); ++i) {
    try {
      if (builders_[i] != nullptr) session_.engine().cancel(ids_[i], FinishReason::kAbort);
    } catch (const std::bad_alloc&) {
    }
  }
}

// The part that computed and replayed replies share. Replayed tokens are not charged.
void Generation::open_prompt(std::vector<TokenId> prompt) {
  const int n_tokens = static_cast<int>(prompt.size());
  builders_.push_back(std::make_unique<OutputBuilder>(
      session_.tokenizer(), call_.params, std::move(prompt), call_.keep_markers, stops_));
  n_prompt_tokens_ += n_tokens;
  record_.use.model = call_.name();
  if (call_.kept == nullptr) record_.count_tokens(n_tokens + call_.n_encoder_rows(), 0);
  ++n_open_;
}

Status Generation::check_fits() const {
  if (call_.kept != nullptr) return {};
  const int max_len = session_.engine().info().max_model_len;
  for (const auto& prompt : call_.prompts)
    RETURN_IF_ERROR(check_prompt_fits(prompt.size(), call_.params.max_tokens, max_len));
  return {};
}

Status Generation::submit() {
  if (call_.kept != nullptr) {
    replayed_.emplace(call_.kept->record);
    for (auto& prompt : call_.prompts) open_prompt(std::move(prompt));
    return {};
  }
  for (size_t i = 0; i < call_.prompts.size(); ++i) {
    Request request = session_.make_request(call_.prompts[i], call_.params, call_.strings);
    request.matcher = call_.matcher;
    if (record_.confidence && !request.sampling.logprobs) request.sampling.logprobs = 0;
    if (call_.adapter != nullptr) request.adapter = call_.adapter->opened;
    request.priority = call_.priority;
    request.tenant = record_.tenant;
    request.cache_salt = call_.cache_scope + call_.cache_salt;
    if (!call_.thinking.empty()) request.thinking = call_.thinking[i];
    request.encoder_rows = encoder_rows_, request.logits_processor = call_.logits_processor;
    request.watch = call_.watch;
    if (i < embeddings_.size()) session_.give(request, std::move(embeddings_[i]));
    if (call_.watches_prompts)
      request.progress = progress_.emplace_back(std::make_shared<PromptProgress>());
    request.deadline = deadline_;
    request.prefill_wait_seconds = call_.prefill_wait_seconds;
    ASSIGN_OR_RETURN(const RequestId id, session_.engine().submit(std::move(request), channel_));
    ids_.push_back(id);
    prompt_of_id_.emplace(static_cast<uint64_t>(id), static_cast<int>(i));
    open_prompt(std::move(call_.prompts[i]));
  }
  return {};
}

void Generation::handle(int prompt, const OwnedEvent& event) {
  auto& builder = builders_[prompt];
  if (builder == nullptr) return;
  if (call_.recorder) call_.recorder->add(prompt, event);
  const size_t n_before =
      event.first_position < 0 ? builder->output(event.index).token_ids.size() : 0;
  const OutputBuilder::Step step = builder->add(event);
  if (record_.confidence && event.first_position < 0) {
    RequestRecord::Confidence& confidence = *record_.confidence;
    confidence.sum_logprob +=
        event.token == kNoToken ? 0 : static_cast<double>(event.logprob.logprob);
    confidence.n_tokens += event.token == kNoToken ? 0 : 1;
    if (prompt == 0 && event.index == 0) confidence.text += step.text;
  }
  if (step.stopped_here && !replayed_)
    session_.engine().cancel(event.request, event.index, FinishReason::kStop);
  if (event.first_position < 0) {
    const CompletionOutput& output = builder->output(event.index);
    ChoiceDelta delta;
    delta.choice = prompt * call_.params.n + event.index;
    delta.text = std::string(step.text);
    delta.n_tokens = static_cast<int>(output.token_ids.size());
    if (output.token_ids.size() > n_before) {  // not a token after a stop string
      delta.token = event.token;
      ++n_completion_tokens_;
      if (!replayed_) record_.count_tokens(0, 1);
      running_->n_decoded[delta.choice].store(delta.n_tokens, std::memory_order_relaxed);
      if (call_.params.logprobs && !output.logprobs.empty())
        delta.logprobs = output.logprobs.back();
      if (!call_.keeps_logprobs) builder->forget_logprobs(event.index);
    }
    if (step.finished) {
      delta.finish = output.finish_reason;
      delta.stop_reason = output.stop_reason;
      if (output.error && std::ranges::find(stopped_, delta.choice) == stopped_.end())
        errors_.emplace_back(delta.choice, *output.error);
      running_->finished[delta.choice].store(true, std::memory_order_relaxed);
      const auto n_prompt = static_cast<int>(builder->so_far().prompt_token_ids.size());
      n_cached_tokens_ += event.index != 0 ? 0 : replayed_ ? n_prompt : output.stats.cached_tokens;
      if (!replayed_ && event.index == 0) record_.use.cached_tokens += output.stats.cached_tokens;
      n_draft_tokens_ += output.stats.draft_tokens;
      n_accepted_tokens_ += output.stats.accepted_tokens;
    }
    deltas_.push_back(std::move(delta));
  }
  if (builder->finished()) {
    outputs_[prompt] = builder->take();
    if (record_.trace && record_.trace->notes_wanted) note(outputs_[prompt]);
    builder.reset();
    --n_open_;
  }
}

void Generation::note(const RequestOutput& output) {
  GenerationNote& note = record_.trace->notes.emplace_back();
  const SamplingParams& params = call_.params;
  note.model = call_.name();
  note.begin = begin_;
  note.input_tokens = static_cast<int>(output.prompt_token_ids.size());
  for (const CompletionOutput& one : output.outputs) {
    note.queued = std::max(note.queued, one.stats.queued_seconds);
    note.prefill = std::max(note.prefill, one.stats.prefill_seconds);
    note.decode = std::max(note.decode, one.stats.decode_seconds);
    note.cached_tokens = std::max(note.cached_tokens, one.stats.cached_tokens);
    note.output_tokens += static_cast<int>(one.token_ids.size());
    note.finish_reasons.emplace_back(finish_reason_name(one.finish_reason));
  }
  note.asked = {{"gen_ai.request.max_tokens", params.max_tokens},
                {"gen_ai.request.temperature", params.temperature},
                {"gen_ai.request.top_p", params.top_p},
                {"gen_ai.request.top_k", params.top_k},
                {"gen_ai.request.frequency_penalty", params.frequency_penalty},
                {"gen_ai.request.presence_penalty", params.presence_penalty}};
  if (params.n > 1) note.asked.emplace_back("gen_ai.request.choice.count", params.n);
}

net::awaitable<bool> Generation::pass(const Take& take, std::chrono::milliseconds timeout) {
  if (gone_ || n_open_ == 0) co_return false;
  if (replayed_) co_return co_await replay(take);
  const EventChannel::Take absorb = [&](const std::vector<OwnedEvent>& news) {
    if (gone_) return false;
    deltas_.clear();
    for (const OwnedEvent& one : news)
      handle(prompt_of_id_.at(static_cast<uint64_t>(one.request)), one);
    return take(deltas_) && n_open_ > 0;
  };
  co_await channel_->pass(absorb, timeout);
  co_return !gone_ && n_open_ > 0;
}

// A long reply leaves the thread to other connections between its parts.
net::awaitable<bool> Generation::replay(const Take& take) {
  constexpr int kAtOnce = 64;
  OwnedEvent event;
  while (n_open_ > 0 && !gone_) {
    deltas_.clear();
    for (int i = 0, prompt = 0; i < kAtOnce && n_open_ > 0 && replayed_->next(prompt, event); ++i)
      handle(prompt, event);
    if (!take(deltas_)) break;
    if (n_open_ > 0) co_await net::post(exchange_.executor(), net::use_awaitable);
  }
  co_return !gone_ && n_open_ > 0;
}

void Generation::stop(int choice) {
  stopped_.push_back(choice);
  std::erase_if(errors_, [&](const auto& one) { return one.first == choice; });
  if (replayed_) return;  // the record ends where the reply stopped
  const int prompt = choice / call_.params.n;
  if (builders_[prompt] != nullptr) {
    session_.engine().cancel(ids_[prompt], choice % call_.params.n, FinishReason::kStop);
  }
}

const RequestOutput& Generation::prompt_output(int prompt) const {
  return builders_[prompt] != nullptr ? builders_[prompt]->so_far() : outputs_[prompt];
}

}  // namespace penstock

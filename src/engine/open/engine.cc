#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/files/session_file.h"
#include "engine/open/engine_impl.h"
#include "engine/requests/prefix_salt.h"
#include "engine/requests/request_check.h"

namespace penstock {
namespace {

std::function<void(SeqId)> drafting_stop(Speculation* speculation) {
  if (!speculation) return {};
  return [speculation](SeqId sequence) { speculation->forget(sequence); };
}

}  // namespace

EngineImpl::EngineImpl(EngineParts parts)
    : parts_(std::move(parts)),
      inbox_(parts_.config.max_queued_requests, parts_.config.max_queued_tokens,
             parts_.next_request),
      adapters_(*parts_.model, parts_.config.max_loras, parts_.first_adapter_slot),
      requests_({.info = parts_.info,
                 .clock = clock_,
                 .seed = parts_.config.seed,
                 .history_tokens = parts_.config.prefix_history,
                 .scheduler = *parts_.scheduler,
                 .inbox = inbox_,
                 .adapters = adapters_,
                 .most_adapted = 2 * parts_.max_num_seqs,
                 .metrics = metrics_,
                 .stop_drafting = drafting_stop(parts_.speculation.get()),
                 .begin_load =
                     [this](Sequence& sequence) {
                       if (stored_) stored_->begin_load(sequence, steps_.prompt_token_seconds());
                     },
                 .end_load =
                     [this](Sequence& sequence) {
                       if (stored_) stored_->end_load(sequence);
                     },
                 .prompts_only = parts_.config.role == "prefill",
                 .hold = [this](Running& one) { return settling_ && settling_->hold(one); },
                 .end_hold =
                     [this](Running& one) {
                       if (settling_) settling_->drop(one);
                     }}),
      steps_({clock_, *parts_.model, *parts_.scheduler, requests_, metrics_},
             {.vocab_size = parts_.info.vocab_size,
              .max_len = parts_.info.max_model_len,
              .max_seqs = parts_.max_num_seqs,
              .max_tokens = parts_.max_num_batched_tokens,
              .prefill_chunk = parts_.config.prefill_chunk},
             parts_.speculation.get()) {
  if (parts_.store != nullptr) {
    stored_.emplace(*parts_.store, *parts_.scheduler, *parts_.model, metrics_);
    if (parts_.config.role == "prefill")
      settling_.emplace(*parts_.store, *stored_, *parts_.scheduler, metrics_);
    parts_.store->on_news([this] { inbox_.wake(); });
  }
}

EngineImpl::~EngineImpl() {
  stop();
  if (!stored_) return;
  parts_.store->on_news({});
  const auto latest = std::min(Clock::time_point(end_by_), Clock::now() + std::chrono::seconds(10));
  parts_.store->end_by(latest);
  if (parts_.model->status()) stored_->finish(latest);
}

Status EngineImpl::check(const Request& request) const {
  return check_request(request, parts_.info, parts_.config, *parts_.scheduler, *parts_.model);
}

// Refused memory is an error of its step only, unless the engine has ended.
Status EngineImpl::status() const {
  Status status = parts_.model->status();
  if (!status && status.error().code == ErrorCode::kResourceExhausted && !ended_) return {};
  return status;
}

Result<RequestId> EngineImpl::submit(Request request, std::shared_ptr<EventSink> sink) {
  RETURN_IF_ERROR(check(request));
  RETURN_IF_ERROR(status());
  auto state = std::make_unique<RequestState>();
  state->sink = std::move(sink);
  state->submitted = clock_.now();
  state->n = request.sampling.n;
  state->request = std::move(request);
  return inbox_.submit(std::move(state));
}

Result<int> EngineImpl::save_session(std::span<const TokenId> tokens, const std::string& path,
                                     const std::string& cache_salt) {
  Result<int> saved = 0;
  RETURN_IF_ERROR(inbox_.between_steps([&] {
    saved =
        save_session_file(path, parts_.fingerprint, tokens, prefix_salts(cache_salt, parts_.info),
                          *parts_.scheduler, *parts_.model);
  }));
  RETURN_IF_ERROR(status());
  return saved;
}

Result<SessionTokens> EngineImpl::load_session(const std::string& path) {
  Result<SessionTokens> loaded;
  RETURN_IF_ERROR(inbox_.between_steps([&] {
    loaded = load_session_file(path, parts_.fingerprint, parts_.info.vocab_size, *parts_.scheduler,
                               *parts_.model);
  }));
  RETURN_IF_ERROR(status());
  return loaded;
}

Metrics EngineImpl::metrics() const {
  Metrics metrics = metrics_.published();
  set_ranks(parts_.model->communication(), metrics);
  metrics.expert_bytes_read.value = static_cast<double>(parts_.model->expert_bytes_read());
  const ExpertTraffic experts = parts_.model->expert_traffic();
  metrics.expert_choices.value = static_cast<double>(experts.choices);
  metrics.expert_cache_hits.value = static_cast<double>(experts.hits);
  metrics.expert_cache_moves.value = static_cast<double>(experts.moves);
  if (parts_.store != nullptr) set_store(*parts_.store, metrics);
  return metrics;
}

bool EngineImpl::step() {
  // of several engines that step by turns none keeps the others long
  constexpr std::chrono::milliseconds kShort{2};
  const bool ran = run_step(), more = !paused_ && (!idle() || holds_ends());
  if (more && !ran && (idle() || awaits_loads_only()))
    inbox_.wait(std::min(stored_->next_take(), Clock::now() + kShort));
  return more;
}

bool EngineImpl::idle() const {
  return parts_.scheduler->idle() && steps_.n_under_way() == 0 && !requests_.some_wait();
}

// Whether every request waits for blocks of the store.
bool EngineImpl::awaits_loads_only() const {
  return stored_ && stored_->n_loads() > 0 && parts_.scheduler->n_running() == 0 &&
         parts_.scheduler->n_waiting() == stored_->n_loads() && steps_.n_under_way() == 0 &&
         !requests_.some_wait();
}

bool EngineImpl::run_step() {
  const double started = clock_.now();
  auto progress = StepLoop::Progress::kNone;
  try {
    take_inbox();
    requests_.expire_deadlines();
    if (stored_) stored_->take_loaded(parts_.scheduler->n_running() > 0);
    if (!paused_) progress = steps_.run();
    if (progress == StepLoop::Progress::kFailed) go_on_or_end();
    store_blocks();
  } catch (const std::bad_alloc&) {
    steps_.recover({ErrorCode::kResourceExhausted, "out of memory"});
  }
  metrics_.publish(*parts_.scheduler);
  if (!requests_.deliver(steps_.n_under_way())) metrics_.publish(*parts_.scheduler);
  if (progress == StepLoop::Progress::kFinished) metrics_.note_step(clock_.now() - started);
  return progress != StepLoop::Progress::kNone;
}

// Gives blocks to the store, and lets the ends go that waited for it. A step that is under way is
// waited for where many blocks pend, or somebody waits for them: with role prefill, whoever reads
// them while the prompt is computed.
void EngineImpl::store_blocks() {
  if (!stored_) return;
  // Reading a block back waits for all stages of a pipeline.
  const bool reads_soon = settling_ && parts_.model->n_stages() == 1;
  const bool is_urgent = reads_soon
                             ? stored_->some_pend()
                             : stored_->has_many_pending() || (settling_ && settling_->any());
  if (steps_.n_under_way() == 0 || is_urgent) stored_->store_pending();
  if (settling_) settling_->look([this](Running& sequence) { requests_.release(sequence); });
}

// After a device has refused memory, running requests end, since their step was not computed, and
// the prefix cache is emptied, since its content is uncertain. Ends the engine if the device is
// lost.
void EngineImpl::go_on_or_end() {
  if (const Error error = parts_.model->status().error();
      error.code == ErrorCode::kResourceExhausted) {
    steps_.recover(error);
    parts_.scheduler->reset_prefix_cache();
  }
  if (!parts_.model->recover()) end_all();
}

// Ends all requests: nothing can be computed any more.
void EngineImpl::end_all() {
  const Error error = parts_.model->status().error();
  ended_ = true;
  log().error("the engine has failed: {}", error.message);
  steps_.drop();
  requests_.end_all(FinishReason::kError, error);
}

void EngineImpl::take_inbox() {
  inbox_.take(arrived_);
  metrics_->admission_rejections.value = static_cast<double>(inbox_.n_rejected());
  inbox_.run_jobs();
  if (!arrived_.requests.empty()) adapters_.drop_forgotten();
  requests_.start_waiting();
  for (auto& state : arrived_.requests) requests_.start(std::move(state));
  for (const Inbox::Cancel& cancel : arrived_.cancels) requests_.cancel(cancel);
  arrived_.requests.clear();
  arrived_.cancels.clear();
  if (arrived_.reset_prefix_cache) parts_.scheduler->reset_prefix_cache();
}

void EngineImpl::start() {
  if (thread_.joinable()) return;
  inbox_.open();
  thread_ = std::thread([this] { thread_main(); });
}

void EngineImpl::thread_main() {
  stay_on_cpus(parts_.cpus);
  for (;;) {
    const bool ran = run_step();
    const Clock::time_point until = rests_until(ran);
    if (paused_ || idle()) rest_from_turns();
    if (!inbox_.wait(until)) return;
  }
}

// Returns when the next step is due unless something comes before, into the inbox or from the store,
// which tells when it has read blocks or has room for pending ones.
Clock::time_point EngineImpl::rests_until(bool ran) const {
  const auto settled = holds_ends() ? std::min(settling_->next_look(), requests_.next_deadline())
                                    : Clock::time_point::max();
  if (paused_ || idle()) return settled;
  if (ran) return Clock::time_point::min();
  if (awaits_loads_only())
    return std::min({settled, stored_->next_take(), requests_.next_deadline()});
  return Clock::now() + std::chrono::microseconds(500);  // a policy delays its batch
}

Status EngineImpl::set_paused(bool paused) {
  return inbox_.between_steps([&] { paused_ = paused; });
}

void EngineImpl::stop() {
  inbox_.close();
  if (thread_.joinable()) thread_.join();
  steps_.drop();
  take_inbox();
  requests_.end_all(FinishReason::kAbort, {ErrorCode::kCancelled, "the engine was shut down"});
  requests_.deliver();
  inbox_.unserved();  // from now on between_steps() runs in the caller's thread
}

}  // namespace penstock

// How requests come in and leave: submission, cancellation, deadlines, the thread. The step itself:
// engine.cc.
#include <algorithm>
#include <cmath>

#include <spdlog/spdlog.h>

#include "base/log.h"
#include "engine/engine_impl.h"
#include "engine/prefix_file.h"
#include "engine/session_file.h"
#include "sampling/validate.h"

namespace penstock {

namespace {
constexpr int kPromptLogprobChunk = 128;  // rows of vocab_size floats that one step may need for one prompt
}

EngineImpl::EngineImpl(EngineParts parts)
    : config_(std::move(parts.config)),
      info_(std::move(parts.info)),
      max_num_seqs_(parts.max_num_seqs),
      max_num_batched_tokens_(parts.max_num_batched_tokens),
      fingerprint_(parts.fingerprint),
      model_(std::move(parts.model)),
      scheduler_(std::move(parts.scheduler)),
      speculation_(std::move(parts.speculation)),
      swap_(std::move(parts.swap)),
      builder_(scheduler_->n_groups(), scheduler_->block_size()),
      draws_(*model_, info_.vocab_size, info_.max_model_len, parts.max_num_seqs),
      work_clock_(model_->computes_here()),
      pace_(max_num_batched_tokens_, max_num_seqs_) {
  builder_.reserve(parts.max_num_batched_tokens, parts.max_num_seqs);
  first_rows_.reserve(parts.max_num_seqs);
  asked_draws_.reserve(parts.max_num_seqs);
  draws_of_.reserve(parts.max_num_seqs);
  if (speculation_) trees_.resize(parts.max_num_seqs);
  all_rows_.reserve(parts.max_num_seqs);
  with_news_.reserve(parts.max_num_seqs);
  outgoing_.reserve(parts.max_num_seqs);
  if (!config_.prefix_cache_file.empty()) {
    const auto restored = restore_prefix_cache(config_.prefix_cache_file, fingerprint_, *scheduler_, *model_);
    if (restored) {
      log().info("prefix cache: {} blocks restored", *restored);
    } else if (restored.error().code != ErrorCode::kNotFound) {
      log().warn("prefix cache not used: {}", restored.error().message);
    }
  }
}

EngineImpl::~EngineImpl() {
  stop();
  if (config_.prefix_cache_file.empty()) return;
  const Status saved = save_prefix_cache(config_.prefix_cache_file, fingerprint_, *scheduler_, *model_);
  if (!saved) log().warn("prefix cache not saved: {}", saved.error().message);
}

Status EngineImpl::check(const Request& request) const {
  RETURN_IF_ERROR(validate(request.sampling, info_.vocab_size));
  const auto check_ids = [&](const std::vector<TokenId>& ids, const char* what) -> Status {
    for (const TokenId id : ids) {
      if (id < 0 || id >= info_.vocab_size) {
        return errorf(ErrorCode::kInvalidArgument, "{}: expected token ids in [0, {}), got {}", what,
                      info_.vocab_size, id);
      }
    }
    return {};
  };
  if (request.prompt.empty())
    return errorf(ErrorCode::kInvalidArgument, "prompt: expected at least one token, got none");
  RETURN_IF_ERROR(check_ids(request.prompt, "prompt"));
  RETURN_IF_ERROR(check_ids(request.dry_breakers, "dry_sequence_breakers"));
  RETURN_IF_ERROR(check_ids(request.eos_token_ids, "eos_token_ids"));
  for (const auto& word : request.bad_words) RETURN_IF_ERROR(check_ids(word, "bad_words"));
  const size_t longest = static_cast<size_t>(info_.max_model_len) - (request.sampling.max_tokens > 0 ? 1 : 0);
  if (request.prompt.size() > longest) {
    return errorf(ErrorCode::kInvalidArgument,
                  "prompt: expected at most {} tokens (max_model_len is {}), got {}", longest,
                  info_.max_model_len, request.prompt.size());
  }
  if (request.sampling.use_beam_search) return check_beams(request);
  return {};
}

// All beams have to run at once: otherwise they would wait for each other without end.
Status EngineImpl::check_beams(const Request& request) const {
  const int width = request.sampling.beam_width;
  const int max_len = static_cast<int>(std::min<int64_t>(
      static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens, info_.max_model_len));
  if (config_.kv_layout != "paged")
    return errorf(ErrorCode::kUnsupported, "use_beam_search: needs kv_layout paged, got {}",
                  config_.kv_layout);
  if (width > config_.max_num_seqs) {
    return errorf(ErrorCode::kInvalidArgument, "beam_width: expected at most max_num_seqs, {}, got {}",
                  config_.max_num_seqs, width);
  }
  if (!scheduler_->fits(max_len, width)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "beam_width: {} beams of up to {} tokens do not fit into the KV cache of {} tokens", width,
                  max_len, int64_t{info_.block_size} * info_.n_blocks);
  }
  return {};
}

Result<RequestId> EngineImpl::submit(Request request, std::shared_ptr<EventSink> sink) {
  RETURN_IF_ERROR(check(request));
  auto state = std::make_unique<RequestState>();
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  state->sink = std::move(sink);
  state->submitted = now();
  state->request = std::move(request);
  const std::lock_guard lock(inbox_mutex_);
  if (stopping_) return errorf(ErrorCode::kCancelled, "the engine is shutting down");
  if (n_queued_ >= config_.max_queued_requests) {
    ++n_rejected_;
    return errorf(ErrorCode::kResourceExhausted, "the queue is full: {} requests are waiting", n_queued_);
  }
  if (config_.max_queued_tokens > 0 && n_queued_ > 0 &&
      n_queued_tokens_ + n_prompt > config_.max_queued_tokens) {
    ++n_rejected_;
    return errorf(ErrorCode::kResourceExhausted,
                  "the queue is full: {} prompt tokens are waiting, at most {} may", n_queued_tokens_,
                  config_.max_queued_tokens);
  }
  const RequestId id{next_request_};
  state->id = id;
  inbox_.push_back(std::move(state));  // the last that can run out of memory
  ++next_request_;
  ++n_queued_;
  n_queued_tokens_ += n_prompt;
  inbox_filled_.notify_one();
  return id;
}

void EngineImpl::cancel(RequestId request, FinishReason reason) { cancel(request, -1, reason); }

void EngineImpl::cancel(RequestId request, int index, FinishReason reason) {
  const std::lock_guard lock(inbox_mutex_);
  cancels_.push_back({request, index, reason});
  inbox_filled_.notify_one();
}

void EngineImpl::reset_prefix_cache() {
  const std::lock_guard lock(inbox_mutex_);
  reset_cache_ = true;
  inbox_filled_.notify_one();
}

// Runs `work` on the engine thread, or here when there is none, and waits for its end.
Status EngineImpl::between_steps(const std::function<void()>& work) {
  std::unique_lock lock(inbox_mutex_);
  if (!threaded_) {
    lock.unlock();
    work();
    return {};
  }
  if (stopping_) return errorf(ErrorCode::kCancelled, "the engine is shutting down");
  Job job{&work};
  jobs_.push_back(&job);
  inbox_filled_.notify_one();
  job_done_.wait(lock, [&] { return job.done; });
  if (job.failed) return make_error(ErrorCode::kResourceExhausted, "out of memory");
  return {};
}

void EngineImpl::run_jobs() {
  std::vector<Job*> jobs;
  {
    const std::lock_guard lock(inbox_mutex_);
    jobs.swap(jobs_);
  }
  if (jobs.empty()) return;
  for (Job* job : jobs) {
    try {
      (*job->work)();
    } catch (const std::bad_alloc&) {
      job->failed = true;
    }
  }
  const std::lock_guard lock(inbox_mutex_);
  for (Job* job : jobs) job->done = true;
  job_done_.notify_all();
}

Result<int> EngineImpl::save_session(std::span<const TokenId> tokens, const std::string& path,
                                     const std::string& cache_salt) {
  Result<int> saved = 0;
  RETURN_IF_ERROR(between_steps(
      [&] { saved = save_session_file(path, fingerprint_, tokens, cache_salt, *scheduler_, *model_); }));
  return saved;
}

Result<SessionTokens> EngineImpl::load_session(const std::string& path) {
  Result<SessionTokens> loaded;
  RETURN_IF_ERROR(between_steps(
      [&] { loaded = load_session_file(path, fingerprint_, info_.vocab_size, *scheduler_, *model_); }));
  return loaded;
}

void EngineImpl::take_inbox() {
  bool reset = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    arrived_.swap(inbox_);
    cancelling_.swap(cancels_);
    std::swap(reset, reset_cache_);
    metrics_.admission_rejections.value = static_cast<double>(n_rejected_);
  }
  run_jobs();
  for (auto& state : arrived_) {
    try {
      start_request(state);
    } catch (const std::bad_alloc&) {
      refuse(*state);
    }
  }
  for (const Cancel& cancel : cancelling_) apply_cancel(cancel);
  arrived_.clear();
  cancelling_.clear();
  if (reset) scheduler_->reset_prefix_cache();
}

// Throws std::bad_alloc and leaves the request where it was.
void EngineImpl::start_request(std::unique_ptr<RequestState>& owned) {
  RequestState& state = *owned;
  start_sequences(state);
  const size_t n_events = static_cast<size_t>(state.request.sampling.n) + 1;
  state.news.reserve(n_events);
  outgoing_.reserve(n_events);
  const size_t n_pushes = 2 * (requests_.size() + 1);  // a sink may fail with what it gets
  if (with_news_.capacity() < n_pushes) with_news_.reserve(2 * n_pushes);
  const auto id = static_cast<uint64_t>(state.id);
  std::unique_ptr<RequestState>& place = requests_[id];
  try {
    scheduler_->add(*state.sequences[0]);
  } catch (const std::bad_alloc&) {
    requests_.erase(id);
    throw;
  }
  state.sequences[0]->joined = true;
  if (state.request.deadline) ++n_with_deadline_;
  place = std::move(owned);
}

void EngineImpl::start_sequences(RequestState& state) {
  Request& request = state.request;
  const SamplingParams& params = request.sampling;
  if (request.eos_token_ids.empty()) request.eos_token_ids = info_.eos_token_ids;
  std::vector<TokenId> ends = request.eos_token_ids;
  ends.insert(ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  const uint64_t seed = params.seed ? *params.seed : seed_of_request(config_.seed, state.id);
  state.spec = SamplingSpec::make(
      params, {std::move(ends), std::move(request.bad_words), std::move(request.dry_breakers), nullptr}, seed,
      info_.vocab_size);
  const int n_prompt = static_cast<int>(request.prompt.size());
  const int max_len = static_cast<int>(
      std::min<int64_t>(int64_t{n_prompt} + std::max(params.max_tokens, 1), info_.max_model_len));
  const BlockHash root = root_hash(request.cache_salt);
  const int n_sequences = params.use_beam_search ? params.beam_width : params.n;
  for (int index = 0; index < n_sequences; ++index) {
    auto sequence = std::make_unique<Running>();
    sequence->id = SeqId(next_sequence_);
    sequence->arrival_order = next_sequence_++;
    sequence->tokens.reserve(max_len + 1);
    sequence->tokens = request.prompt;
    sequence->n_prompt = n_prompt;
    sequence->max_len = max_len;
    sequence->priority = request.priority;
    sequence->arrival = state.submitted;
    sequence->root = root;
    sequence->read_cache = request.read_prefix_cache && !(params.prompt_logprobs && index == 0);
    if (params.prompt_logprobs && index == 0) sequence->max_chunk = kPromptLogprobChunk;
    sequence->request = &state;
    sequence->index = index;
    sequence->sampler = SamplerState(state.spec, index, request.prompt, params.max_tokens);
    state.sequences.push_back(std::move(sequence));
  }
  if (params.use_beam_search) start_beams(state);
  state.n_open = n_sequences;
}

void EngineImpl::apply_cancel(const Cancel& cancel) {
  const auto found = requests_.find(static_cast<uint64_t>(cancel.request));
  if (found == requests_.end()) return;
  try {
    end_request(*found->second, cancel.index, cancel.reason, {});
  } catch (const std::bad_alloc&) {  // the others of its sequences cannot go on
    fail(*found->second);
  }
}

void EngineImpl::end_request(RequestState& state, int index, FinishReason reason, const Error& error) {
  // From the last to the first: the first one's end would set the others going.
  for (size_t i = state.sequences.size(); i-- > 0;) {
    Running& sequence = *state.sequences[i];
    if (sequence.done || (index >= 0 && (index != sequence.index || state.beams))) continue;
    sequence.error = error;
    end(sequence, reason);
  }
}

void EngineImpl::expire_deadlines() {
  const Clock::time_point time = Clock::now();
  for (auto& [id, state] : requests_) {
    if (!state->request.deadline || *state->request.deadline > time || state->n_open == 0) continue;
    end_request(*state, -1, FinishReason::kAbort,
                {ErrorCode::kDeadlineExceeded, "the request's deadline has passed"});
  }
}

void EngineImpl::leave_queue(RequestState& state) {
  if (!state.queued) return;
  state.queued = false;
  const std::lock_guard lock(inbox_mutex_);
  --n_queued_;
  n_queued_tokens_ -= static_cast<int64_t>(state.request.prompt.size());
}

void EngineImpl::start() {
  if (thread_.joinable()) return;
  {
    const std::lock_guard lock(inbox_mutex_);
    stopping_ = false;
    threaded_ = true;
  }
  thread_ = std::thread([this] { thread_main(); });
}

void EngineImpl::thread_main() {
  for (;;) {
    const bool busy = step();
    std::unique_lock lock(inbox_mutex_);
    if (stopping_) return;
    const auto has_work = [&] {
      return stopping_ || !inbox_.empty() || !cancels_.empty() || !jobs_.empty() || reset_cache_;
    };
    if (!busy) {
      inbox_filled_.wait(lock, has_work);
    } else if (plan_.items.empty()) {
      inbox_filled_.wait_for(lock, std::chrono::microseconds(500),
                             has_work);  // a policy holds its batch back
    }
  }
}

void EngineImpl::stop() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stopping_ = true;
    inbox_filled_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  take_inbox();
  for (auto& [id, state] : requests_) {
    end_request(*state, -1, FinishReason::kAbort, {ErrorCode::kCancelled, "the engine was shut down"});
  }
  deliver();
  const std::lock_guard lock(inbox_mutex_);
  threaded_ = false;  // from here on between_steps() works in its caller's thread
}

Metrics EngineImpl::metrics() const {
  const std::lock_guard lock(metrics_mutex_);
  return shared_metrics_;
}

}  // namespace penstock

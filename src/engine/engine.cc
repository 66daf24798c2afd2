// The engine thread's side: one step from inbox to sinks. Requests' side: requests.cc.
#include <algorithm>

#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_impl.h"

namespace penstock {

bool EngineImpl::step() {
  const double started = now();
  try {
    run_step(started);
  } catch (const std::bad_alloc&) {
    recover();
  }
  deliver();
  publish_metrics(started);
  return !scheduler_->idle();
}

void EngineImpl::run_step(double started) {
  plan_.clear();
  take_inbox();
  if (n_with_deadline_ > 0) expire_deadlines();
  step_work_ = work_clock_.now();
  if (speculation_) ask_for_drafts();
  scheduler_->next(started, prefill_limit(), plan_);
  note_plan(started);
  move_blocks();
  if (!plan_.items.empty()) compute(started);
}

void EngineImpl::note_plan(double time) {
  for (Sequence* sequence : plan_.admitted) {
    Running& running = static_cast<Running&>(*sequence);
    if (running.first_scheduled < 0) {
      running.first_scheduled = time;
      running.stats.cached_tokens = running.n_cached;
      metrics_.prompt_tokens.add(running.n_prompt);
      metrics_.prompt_tokens_cached.add(running.n_cached);
      metrics_.request_queue_time_seconds.observe(time - running.request->submitted);
    }
    leave_queue(*running.request);
  }
  for (const Sequence* sequence : plan_.preempted) {
    metrics_.num_preemptions.add();
    log().info("request {}: preempted after {} of {} tokens{}",
               static_cast<uint64_t>(static_cast<const Running*>(sequence)->request->id),
               sequence->n_tokens(), sequence->max_len, sequence->n_swapped > 0 ? ", swapped out" : "");
    if (speculation_) speculation_->forget(sequence->id);
  }
}

// Blocks between the cache and the swap space, and copies before a write.
void EngineImpl::move_blocks() {
  const auto lose = [&](Sequence& sequence, const Error& error) {
    metrics_.swap_errors.add();
    log().warn("request {}: computed again: {}",
               static_cast<uint64_t>(static_cast<Running&>(sequence).request->id), error.message);
    scheduler_->lose_swapped(sequence, plan_);
  };
  for (const SwapMove& move : plan_.swaps_out) {
    if (move.sequence->n_swapped == 0) continue;  // another of its blocks was lost
    swap_buffer_.resize(static_cast<size_t>(model_->block_bytes(move.group)));
    model_->read_block(move.group, move.block, swap_buffer_);
    const Status written = swap_->write(move.group, move.slot, swap_buffer_);
    if (!written) lose(*move.sequence, written.error());
    metrics_.swapped_out_blocks.add(written ? 1 : 0);
  }
  for (const BlockCopy& copy : plan_.copies) model_->copy_block(copy.group, copy.from, copy.to);
  for (const SwapMove& move : plan_.swaps_in) {
    if (move.sequence->n_swapped == 0) continue;
    swap_buffer_.resize(static_cast<size_t>(model_->block_bytes(move.group)));
    const Status read = swap_->read(move.group, move.slot, swap_buffer_);
    if (read) {
      model_->write_block(move.group, move.block, swap_buffer_);
    } else {
      lose(*move.sequence, read.error());
    }
    metrics_.swapped_in_blocks.add(read ? 1 : 0);
  }
}

void EngineImpl::compute(double started) {
  all_rows_.clear();
  for (const ScheduledItem& item : plan_.items) all_rows_.push_back(wants_prompt_rows(item));
  const double planned = now();
  if (speculation_) propose_drafts();
  model_->submit(build_batch());
  model_->wait();
  const double computed = now();
  scheduler_->commit(plan_);
  take_results(computed);
  const double sampled = now();
  learn_pace();
  if (speculation_) {
    tell_drafter();
    learn_draft_costs();
  }
  metrics_.schedule_seconds.add(planned - started);
  metrics_.forward_seconds.add(computed - planned);
  metrics_.sample_seconds.add(sampled - computed);
  metrics_.iteration_tokens_total.observe(plan_.n_tokens);
  metrics_.iteration_num_seqs.observe(static_cast<double>(plan_.items.size()));
}

// An item with a draft has rows for its last own token and for every node; one that does not close its gap has none.
const Batch& EngineImpl::build_batch() {
  using Rows = BatchPart::Rows;
  builder_.clear();
  first_rows_.clear();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const ScheduledItem& item = plan_.items[i];
    const auto tokens = std::span<const TokenId>(item.sequence->tokens);
    BatchPart part{.tokens = tokens.subspan(item.first, item.count - item.n_draft),
                   .first = item.first,
                   .kv = item.sequence->kv,
                   .rows = all_rows_[i] != 0 ? Rows::kAll
                           : item.last       ? Rows::kLast
                                             : Rows::kNone};
    if (item.n_draft > 0) part.draft = item.draft->tokens, part.draft_parents = item.draft->parents;
    first_rows_.push_back(builder_.add(part));
  }
  return builder_.build();
}

bool EngineImpl::wants_prompt_rows(const ScheduledItem& item) const {
  const Running& sequence = static_cast<const Running&>(*item.sequence);
  return sequence.spec().params.prompt_logprobs && sequence.index == 0 &&
         sequence.n_prompt_logprobs + 1 < sequence.n_prompt;
}

void EngineImpl::take_results(double time) {
  sample_rows();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    RequestState& state = *static_cast<Running&>(*plan_.items[i].sequence).request;
    try {
      take_result(i, time);
    } catch (const std::bad_alloc&) {
      fail(state);
    }
  }
}

void EngineImpl::take_result(size_t i, double time) {
  const ScheduledItem& item = plan_.items[i];
  Running& sequence = static_cast<Running&>(*item.sequence);
  const int row = first_rows_[i];
  if (row < 0 || sequence.done) return;
  if (results_[i].worker >= 0) {
    const RowResult& result = results_[i];
    if (result.failed) throw std::bad_alloc();
    accept(sequence, result.sampled,
           std::span<const TokenLogprob>(workers_[result.worker].alternatives)
               .subspan(result.first_alternative, result.sampled.n_top),
           time);
    if (speculation_) note_draft_outcome(sequence, 0, 0, row);
    return;
  }
  if (item.n_draft > 0) return verify_draft(sequence, item, row, time);
  if (all_rows_[i] != 0) report_prompt_logprobs(sequence, item, row);
  if (!item.last) return;
  const int last_row = all_rows_[i] != 0 ? row + item.count - 1 : row;
  const std::span<float> values = model_->logits(last_row);
  if (sequence.request->beams) {
    const bool current = item.first + item.count == sequence.n_tokens();  // the search has not gone on since
    if (current) offer_beam(sequence, values, time);
    return;
  }
  if (sequence.spec().params.max_tokens == 0) {
    for (auto& each : sequence.request->sequences) end(*each, FinishReason::kLength);
    return;
  }
  fork_others(sequence, values, time);
  sample_into(sequence, values, time);
  if (speculation_) note_draft_outcome(sequence, 0, 0, last_row);
}

// Samples the rows of all plainly decoding sequences, spread over the host's threads. Rows that mean more
// (prompt log-probabilities, first tokens of parallel samples) are left to take_results.
void EngineImpl::sample_rows() {
  results_.assign(plan_.items.size(), {});
  for (Worker& worker : workers_) worker.alternatives.clear();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const Running& sequence = static_cast<const Running&>(*plan_.items[i].sequence);
    const int row = first_rows_[i];
    if (row < 0 || all_rows_[i] != 0 || plan_.items[i].n_draft > 0 ||
        sequence.n_tokens() == sequence.n_prompt || sequence.request->beams) {
      continue;
    }
    results_[i].logits = model_->logits(row);
  }
  const auto sample_item = [](void* ctx, int i, int thread) {
    EngineImpl& engine = *static_cast<EngineImpl*>(ctx);
    RowResult& result = engine.results_[i];
    if (result.logits.empty()) return;
    Running& sequence = static_cast<Running&>(*engine.plan_.items[i].sequence);
    Worker& worker = engine.workers_[thread];
    result.first_alternative = worker.alternatives.size();
    result.worker = thread;
    try {
      result.sampled = worker.sampler.sample({sequence.sampler, sequence.tokens, sequence.n_prompt},
                                             result.logits, worker.alternatives);
    } catch (const std::bad_alloc&) {
      result.failed = true;
    }
  };
  model_->for_each(static_cast<int>(plan_.items.size()), sample_item, this);
}

void EngineImpl::report_prompt_logprobs(Running& sequence, const ScheduledItem& item, int first_row) {
  const int n = *sequence.spec().params.prompt_logprobs;
  prompt_rows_.clear();
  prompt_logprobs_.clear();
  int first = -1;
  for (int i = 0; i < item.count; ++i) {
    const int position = item.first + i + 1;  // of the token that this row predicts
    if (position >= sequence.n_prompt || position <= sequence.n_prompt_logprobs) continue;
    if (first < 0) first = position;
    const std::span<const float> row = model_->logits(first_row + i);
    prompt_rows_.push_back(workers_[0].sampler.logprobs(row, sequence.tokens[position], n, prompt_logprobs_));
    sequence.n_prompt_logprobs = position;
  }
  if (first < 0) return;
  std::vector<std::span<const TokenLogprob>> rows;
  size_t begin = 0;
  for (const int count : prompt_rows_) {
    rows.push_back(std::span<const TokenLogprob>(prompt_logprobs_).subspan(begin, count));
    begin += count;
  }
  sequence.request->sink->on_prompt_logprobs(sequence.request->id, first, rows);
}

// The other sequences of a request take their first token from the first one's prompt and share its blocks.
void EngineImpl::fork_others(Running& first, std::span<const float> logits, double time) {
  for (auto& each : first.request->sequences) {
    Running& child = *each;
    if (child.joined || child.done) continue;
    child.joined = true;
    child.first_scheduled = first.first_scheduled;
    child.stats.cached_tokens = first.n_cached;
    row_.assign(logits.begin(), logits.end());
    sample_into(child, row_, time);
    if (!child.done) scheduler_->fork(first, child);
  }
}

void EngineImpl::sample_into(Running& sequence, std::span<float> logits, double time) {
  Worker& worker = workers_[0];
  const size_t first = worker.alternatives.size();
  const SampleResult sampled = worker.sampler.sample({sequence.sampler, sequence.tokens, sequence.n_prompt},
                                                     logits, worker.alternatives);
  accept(sequence, sampled, std::span<const TokenLogprob>(worker.alternatives).subspan(first), time);
}

void EngineImpl::accept(Running& sequence, const SampleResult& sampled,
                        std::span<const TokenLogprob> alternatives, double time) {
  if (sampled.token == kNoToken) {
    sequence.error = {ErrorCode::kInternal,
                      "no token can be chosen: every logit is excluded or not a finite number"};
    end(sequence, FinishReason::kError);
    return;
  }
  if (!sequence.sampler.append(sampled.token)) {
    sequence.error = {ErrorCode::kInternal, "the grammar does not have the token that was chosen"};
    end(sequence, FinishReason::kError);
    return;
  }
  scheduler_->append(sequence, sampled.token);
  note_token(sequence, time);
  PendingEvent news{
      {.index = sequence.index, .token = sampled.token, .logprob = sampled.logprob, .rank = sampled.rank},
      alternatives_.size(),
      alternatives.size()};
  alternatives_.insert(alternatives_.end(), alternatives.begin(), alternatives.end());
  if (is_end(sequence, sampled.token, news.event)) {
    end(sequence, FinishReason::kStop, news);
  } else if (sequence.n_tokens() >= sequence.max_len) {
    end(sequence, FinishReason::kLength, news);
  } else {
    push(*sequence.request, news);
  }
}

bool EngineImpl::is_end(const Running& sequence, TokenId token, TokenEvent& event) const {
  const SamplingParams& params = sequence.spec().params;
  if (std::ranges::find(params.stop_token_ids, token) != params.stop_token_ids.end()) {
    event.stop_token = token;
    return true;
  }
  const std::vector<TokenId>& eos = sequence.request->request.eos_token_ids;
  return !params.ignore_eos && std::ranges::find(eos, token) != eos.end();
}

void EngineImpl::note_token(Running& sequence, double time) {
  metrics_.generation_tokens.add();
  if (sequence.first_token < 0) {
    sequence.first_token = time;
    metrics_.time_to_first_token_seconds.observe(time - sequence.request->submitted);
    metrics_.request_prefill_time_seconds.observe(time - sequence.first_scheduled);
  } else {
    const double gap = time - sequence.last_token;
    sequence.stats.max_inter_token_seconds = std::max(sequence.stats.max_inter_token_seconds, gap);
    metrics_.inter_token_latency_seconds.observe(gap);
  }
  sequence.last_token = time;
}

void EngineImpl::end(Running& sequence, FinishReason reason, PendingEvent news) {
  if (sequence.done) return;
  RequestState& state = *sequence.request;
  if (state.news.size() == state.news.capacity()) state.news.reserve(2 * state.news.size() + 1);
  const double time = now();  // from here on nothing runs out of memory
  scheduler_->finish(sequence);
  if (speculation_) speculation_->forget(sequence.id);
  sequence.done = true;
  RequestStats& stats = sequence.stats;
  stats.prompt_tokens = sequence.n_prompt;
  stats.completion_tokens = sequence.n_tokens() - sequence.n_prompt;
  stats.preemptions = sequence.n_preemptions;
  const bool scheduled = sequence.first_scheduled >= 0, has_token = sequence.first_token >= 0;
  stats.queued_seconds = (scheduled ? sequence.first_scheduled : time) - state.submitted;
  if (scheduled) stats.prefill_seconds = (has_token ? sequence.first_token : time) - sequence.first_scheduled;
  if (has_token) stats.decode_seconds = sequence.last_token - sequence.first_token;

  news.event.index = sequence.index;
  news.event.finish = reason;
  news.event.stats = &stats;
  if (!sequence.error.message.empty()) news.event.error = &sequence.error;
  if (sequence.index < state.request.sampling.n)
    push(state, news);  // the others are beams that did not make it
  note_end(sequence, reason, time);
  leave_queue(state);
  if (--state.n_open == 0) {
    if (state.request.deadline) --n_with_deadline_;
    return;
  }
  if (has_token || sequence.index > 0) return;
  // The first sequence ends before its prompt is done: the others go on by themselves.
  for (auto& each : state.sequences) {
    if (each->joined || each->done) continue;
    each->joined = true;
    scheduler_->add(*each);
  }
}

void EngineImpl::note_end(const Running& sequence, FinishReason reason, double time) {
  switch (reason) {
    case FinishReason::kStop: metrics_.request_success_stop.add(); break;
    case FinishReason::kLength: metrics_.request_success_length.add(); break;
    case FinishReason::kError: metrics_.request_success_error.add(); break;
    default: metrics_.request_success_abort.add(); break;
  }
  metrics_.e2e_request_latency_seconds.observe(time - sequence.request->submitted);
  metrics_.request_decode_time_seconds.observe(sequence.stats.decode_seconds);
  metrics_.request_prompt_tokens.observe(sequence.stats.prompt_tokens);
  metrics_.request_generation_tokens.observe(sequence.stats.completion_tokens);
  if (sequence.first_scheduled >= 0) {
    metrics_.request_inference_time_seconds.observe(time - sequence.first_scheduled);
    metrics_.request_prefill_kv_computed_tokens.observe(sequence.stats.prompt_tokens -
                                                        sequence.stats.cached_tokens);
  }
  if (sequence.stats.completion_tokens > 1) {
    metrics_.request_time_per_output_token_seconds.observe(sequence.stats.decode_seconds /
                                                           (sequence.stats.completion_tokens - 1));
  }
  if (sequence.request->n_open > 1) return;
  int longest = 0;
  for (const auto& each : sequence.request->sequences)
    longest = std::max(longest, each->n_tokens() - each->n_prompt);
  metrics_.request_max_num_generation_tokens.observe(longest);
  metrics_.request_params_n.observe(sequence.spec().params.n);
  metrics_.request_params_max_tokens.observe(sequence.spec().params.max_tokens);
}

void EngineImpl::push(RequestState& state, const PendingEvent& news) {
  if (!state.has_news) with_news_.push_back(&state);
  state.has_news = true;
  state.news.push_back(news);
}

// One push per sink; requests without open sequences are forgotten, with their sinks.
void EngineImpl::deliver() {
  for (size_t i = 0; i < with_news_.size(); ++i) {  // a sink without memory adds its own end
    RequestState* state = with_news_[i];
    push_to_sink(*state);
    if (state->n_open == 0 && !state->has_news) requests_.erase(static_cast<uint64_t>(state->id));
  }
  with_news_.clear();
  alternatives_.clear();
}

// Most prompt tokens of the next step if it decodes as well.
int EngineImpl::prefill_limit() {
  if (config_.prefill_chunk > 0) return config_.prefill_chunk;
  int n_decoding = 0;
  for (const Sequence* sequence : scheduler_->running()) n_decoding += sequence->gap() == 1;
  return pace_.limit(n_decoding, scheduler_->n_running() + scheduler_->n_waiting() - n_decoding);
}

void EngineImpl::learn_pace() {
  int n_decoding = 0, n_prompt = 0;
  for (const ScheduledItem& item : plan_.items)
    (item.count == 1 + item.n_draft ? n_decoding : n_prompt) += item.count;
  const double seconds = work_clock_.now() - step_work_;
  pace_.note(n_decoding, n_prompt, seconds);
}

void EngineImpl::publish_metrics(double started) {
  metrics_.num_requests_running.value = scheduler_->n_running();
  metrics_.num_requests_waiting.value = scheduler_->n_waiting();
  const BlockAllocator& allocator = scheduler_->allocator();
  metrics_.kv_cache_waste_perc.value = scheduler_->waste();
  metrics_.kv_cache_usage_perc.value = static_cast<double>(allocator.n_referenced()) / allocator.n_blocks();
  metrics_.prefix_cache_queries.value = static_cast<double>(scheduler_->n_queried());
  metrics_.prefix_cache_hits.value = static_cast<double>(scheduler_->n_hit());
  if (!plan_.items.empty()) {
    const double seconds = now() - started;
    metrics_.steps.add();
    metrics_.step_seconds.add(seconds);
    metrics_.iteration_seconds.observe(seconds);
  }
  const std::lock_guard lock(metrics_mutex_);
  shared_metrics_ = metrics_;
}

}  // namespace penstock

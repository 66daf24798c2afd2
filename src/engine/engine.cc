// The engine thread's side: one step from inbox to sinks. Requests' side: requests.cc.
#include <algorithm>

#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "sampling/verify.h"

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
  try {
    ask_for_draws();
  } catch (const std::bad_alloc&) {
    model_->wait();
    throw;
  }
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

// Everything that the step's rows are to be drawn for; the device begins with it as soon as it has the rows.
void EngineImpl::ask_for_draws() {
  draws_.clear();
  asked_draws_.clear();
  draws_of_.clear();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    draws_of_.push_back({asked_draws_.size(), 0});
    try {
      ask_for_draws_of(i);
    } catch (const std::bad_alloc&) {
      fail(*static_cast<Running&>(*plan_.items[i].sequence).request);
    }
    draws_of_.back().n = asked_draws_.size() - draws_of_.back().first;
  }
  draws_.submit();
}

void EngineImpl::ask_for_draws_of(size_t i) {
  const ScheduledItem& item = plan_.items[i];
  Running& sequence = static_cast<Running&>(*item.sequence);
  if (!item.last || sequence.request->beams || sequence.spec().params.max_tokens == 0) return;
  const bool all_rows = all_rows_[i] != 0;
  const int row = first_rows_[i] + (all_rows ? item.count - 1 : 0);
  if (item.n_draft > 0) return ask_for_nodes(sequence, *item.draft, row);
  const auto ask = [&](Running& one) {
    asked_draws_.push_back({&one, draws_.add({one.sampler, one.tokens, one.n_prompt}, row)});
  };
  // The other sequences of a request take their first token from the first one's prompt.
  for (const auto& other : sequence.request->sequences) {
    if (!other->joined && !other->done) ask(*other);
  }
  ask(sequence);
}

// On a device all nodes of a tree are drawn at once: only then is it known which of them come.
void EngineImpl::ask_for_nodes(Running& sequence, const DraftTree& tree, int row) {
  if (!draws_.on_device() || tree.drawn() || !Sampler::row_says_all(sequence.spec())) return;
  std::vector<TokenId> path;
  for (int node = kDraftRoot; node < tree.size(); ++node) {
    path.clear();
    for (int up = node; up >= 0; up = tree.parents[up]) path.insert(path.begin(), tree.tokens[up]);
    const int draw =
        draws_.add_hypothesis({sequence.sampler, sequence.tokens, sequence.n_prompt}, path, row + node + 1);
    asked_draws_.push_back({nullptr, draw});
  }
}

void EngineImpl::take_results(double time) {
  draws_.finish();
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
  if (item.n_draft > 0) return verify_draft(sequence, i, time);
  if (all_rows_[i] != 0) report_prompt_logprobs(sequence, item, row);
  if (!item.last) return;
  const int last_row = all_rows_[i] != 0 ? row + item.count - 1 : row;
  if (sequence.request->beams) {
    const bool current = item.first + item.count == sequence.n_tokens();  // the search has not gone on since
    if (current) offer_beam(sequence, model_->logits(last_row), time);
    return;
  }
  if (sequence.spec().params.max_tokens == 0) {
    for (auto& each : sequence.request->sequences) end(*each, FinishReason::kLength);
    return;
  }
  for (size_t k = 0; k < draws_of_[i].n; ++k) {
    const AskedDraw& asked = asked_draws_[draws_of_[i].first + k];
    if (asked.sequence != &sequence) join(*asked.sequence, sequence);
    take_draw(*asked.sequence, asked.draw, time);
    if (asked.sequence != &sequence && !asked.sequence->done) scheduler_->fork(sequence, *asked.sequence);
  }
  if (speculation_) note_draft_outcome(sequence, 0, 0, last_row);
}

// A sequence that shares the first one's prompt and its blocks begins.
void EngineImpl::join(Running& child, const Running& first) {
  child.joined = true;
  child.first_scheduled = first.first_scheduled;
  child.stats.cached_tokens = first.n_cached;
}

void EngineImpl::take_draw(Running& sequence, int draw, double time) {
  const SampleResult& result = draws_.result(draw);
  accept(sequence, result, draws_.alternatives(draw), time);
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
    prompt_rows_.push_back(draws_.host().logprobs(row, sequence.tokens[position], n, prompt_logprobs_));
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

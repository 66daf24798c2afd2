#include "engine/step_loop.h"

#include <new>
#include <utility>

namespace penstock {

StepLoop::StepLoop(const DraftStep::Around& around, const Limits& limits, Speculation* speculation,
                   SwapStore* swap)
    : around_(around),
      limits_(limits),
      blocks_(around.model, around.scheduler, swap, around.metrics),
      beams_(around.scheduler, around.requests, around.metrics),
      builder_(around.scheduler.n_groups(), around.scheduler.block_size()),
      step_(around.model, limits.vocab_size, limits.max_len, limits.max_seqs),
      work_clock_(around.model.computes_here()),
      pace_(limits.max_tokens, limits.max_seqs) {
  builder_.reserve(limits.max_tokens, limits.max_seqs);
  if (speculation != nullptr) drafts_.emplace(around, *speculation, limits.max_seqs);
}

bool StepLoop::run() {
  const double started = around_.clock.now();
  plan(started);
  if (step_.plan.items.empty()) return false;
  compute(started);
  step_.plan.clear();
  return true;
}

void StepLoop::wait() {
  if (std::exchange(under_way_, false)) around_.model.wait();
}

void StepLoop::recover() {
  wait();
  Scheduler& scheduler = around_.scheduler;
  while (scheduler.n_running() > 0) around_.requests.fail(*running(*scheduler.running().back()).request);
  scheduler.abandon(step_.plan);
  step_.plan.clear();
}

void StepLoop::plan(double started) {
  step_.plan.clear();
  work_started_ = work_clock_.now();
  if (drafts_) drafts_->ask();
  around_.scheduler.next(started, prefill_limit(), step_.plan);
  around_.requests.note_plan(step_.plan, started);
  blocks_.carry_out(step_.plan);
}

// Most prompt tokens of the next step if it decodes as well.
int StepLoop::prefill_limit() {
  if (limits_.prefill_chunk > 0) return limits_.prefill_chunk;
  const Scheduler& scheduler = around_.scheduler;
  int n_decoding = 0;
  for (const Sequence* sequence : scheduler.running()) n_decoding += sequence->gap() == 1;
  return pace_.limit(n_decoding, scheduler.n_running() + scheduler.n_waiting() - n_decoding);
}

void StepLoop::compute(double started) {
  step_.all_rows.clear();
  for (const ScheduledItem& item : step_.plan.items) step_.all_rows.push_back(wants_prompt_rows(item));
  const double planned = around_.clock.now();
  if (drafts_) drafts_->propose(step_.plan);
  around_.model.submit(build_batch());
  under_way_ = true;
  ask_for_draws();
  wait();
  const double computed = around_.clock.now();
  around_.scheduler.commit(step_.plan);
  take_results(computed);
  const double sampled = around_.clock.now();
  learn_pace();
  if (drafts_) drafts_->finish(step_.plan, work_started_);
  MetricsRecorder& metrics = around_.metrics;
  metrics->schedule_seconds.add(planned - started);
  metrics->forward_seconds.add(computed - planned);
  metrics->sample_seconds.add(sampled - computed);
  metrics->iteration_tokens_total.observe(step_.plan.n_tokens);
  metrics->iteration_num_seqs.observe(static_cast<double>(step_.plan.items.size()));
}

bool StepLoop::wants_prompt_rows(const ScheduledItem& item) const {
  const Running& sequence = running(*item.sequence);
  return sequence.spec().params.prompt_logprobs && sequence.index == 0 &&
         sequence.n_prompt_logprobs + 1 < sequence.n_prompt;
}

// An item with a draft has rows for its last own token and for every node; one that does not close its gap has none.
const Batch& StepLoop::build_batch() {
  using Rows = BatchPart::Rows;
  builder_.clear();
  step_.first_rows.clear();
  for (size_t i = 0; i < step_.plan.items.size(); ++i) {
    const ScheduledItem& item = step_.plan.items[i];
    const auto tokens = std::span<const TokenId>(item.sequence->tokens);
    BatchPart part{.tokens = tokens.subspan(item.first, item.count - item.n_draft),
                   .first = item.first,
                   .kv = item.sequence->kv,
                   .rows = step_.all_rows[i] != 0 ? Rows::kAll
                           : item.last            ? Rows::kLast
                                                  : Rows::kNone};
    if (item.n_draft > 0) part.draft = item.draft->tokens, part.draft_parents = item.draft->parents;
    step_.first_rows.push_back(builder_.add(part));
  }
  return builder_.build();
}

// Everything that the step's rows are to be drawn for; the device begins with it as soon as it has the rows.
void StepLoop::ask_for_draws() {
  step_.draws.clear();
  step_.asked.clear();
  step_.draws_of.clear();
  for (size_t i = 0; i < step_.plan.items.size(); ++i) {
    step_.draws_of.push_back({step_.asked.size(), 0});
    try {
      ask_for_draws_of(i);
    } catch (const std::bad_alloc&) {
      around_.requests.fail(*running(*step_.plan.items[i].sequence).request);
    }
    step_.draws_of.back().n = step_.asked.size() - step_.draws_of.back().first;
  }
  step_.draws.submit();
}

void StepLoop::ask_for_draws_of(size_t i) {
  const ScheduledItem& item = step_.plan.items[i];
  Running& sequence = running(*item.sequence);
  if (!item.last || sequence.request->beams || sequence.spec().params.max_tokens == 0) return;
  const int row = step_.first_rows[i] + (step_.all_rows[i] != 0 ? item.count - 1 : 0);
  if (item.n_draft > 0) return drafts_->ask_for_draws(sequence, *item.draft, row, step_);
  const auto ask = [&](Running& one) {
    step_.asked.push_back({&one, step_.draws.add({one.sampler, one.tokens, one.n_prompt}, row)});
  };
  // The other sequences of a request take their first token from the first one's prompt.
  for (const auto& other : sequence.request->sequences) {
    if (!other->joined && !other->done) ask(*other);
  }
  ask(sequence);
}

void StepLoop::take_results(double time) {
  step_.draws.finish();
  for (size_t i = 0; i < step_.plan.items.size(); ++i) {
    RequestState& state = *running(*step_.plan.items[i].sequence).request;
    try {
      take_result(i, time);
    } catch (const std::bad_alloc&) {
      around_.requests.fail(state);
    }
  }
}

void StepLoop::take_result(size_t i, double time) {
  const ScheduledItem& item = step_.plan.items[i];
  Running& sequence = running(*item.sequence);
  const int row = step_.first_rows[i];
  if (row < 0 || sequence.done) return;
  if (item.n_draft > 0) return drafts_->verify(step_, i, time);
  if (step_.all_rows[i] != 0) report_prompt_logprobs(sequence, item, row);
  if (!item.last) return;
  const int last_row = step_.all_rows[i] != 0 ? row + item.count - 1 : row;
  if (sequence.request->beams) {
    const bool current = item.first + item.count == sequence.n_tokens();  // the search has not gone on since
    if (current) beams_.offer(sequence, around_.model.logits(last_row), step_.draws.host(), time);
    return;
  }
  if (sequence.spec().params.max_tokens == 0) {
    for (auto& each : sequence.request->sequences) around_.requests.end(*each, FinishReason::kLength);
    return;
  }
  take_draws(i, time);
  if (drafts_) drafts_->note_plain(sequence, last_row);
}

void StepLoop::take_draws(size_t i, double time) {
  Running& first = running(*step_.plan.items[i].sequence);
  for (size_t k = 0; k < step_.draws_of[i].n; ++k) {
    const auto [sequence, draw] = step_.asked[step_.draws_of[i].first + k];
    if (sequence != &first) around_.requests.join(*sequence, first);
    around_.requests.accept(*sequence, step_.draws.result(draw), step_.draws.alternatives(draw), time);
    if (sequence != &first && !sequence->done) around_.scheduler.fork(first, *sequence);
  }
}

void StepLoop::report_prompt_logprobs(Running& sequence, const ScheduledItem& item, int first_row) {
  const int n = *sequence.spec().params.prompt_logprobs;
  prompt_rows_.clear();
  prompt_logprobs_.clear();
  int first = -1;
  for (int i = 0; i < item.count; ++i) {
    const int position = item.first + i + 1;  // of the token that this row predicts
    if (position >= sequence.n_prompt || position <= sequence.n_prompt_logprobs) continue;
    if (first < 0) first = position;
    const std::span<const float> row = around_.model.logits(first_row + i);
    prompt_rows_.push_back(
        step_.draws.host().logprobs(row, sequence.tokens[position], n, prompt_logprobs_));
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

void StepLoop::learn_pace() {
  int n_decoding = 0, n_prompt = 0;
  for (const ScheduledItem& item : step_.plan.items)
    (item.count == 1 + item.n_draft ? n_decoding : n_prompt) += item.count;
  pace_.note(n_decoding, n_prompt, work_clock_.now() - work_started_);
}

}  // namespace penstock

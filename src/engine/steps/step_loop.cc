#include "engine/steps/step_loop.h"

#include <algorithm>
#include <new>

namespace penstock {
namespace {

// Returns the prompt tokens that a plan computes.
double n_prompt_tokens(const Plan& plan) {
  int n = 0;
  for (const ScheduledItem& item : plan.items) {
    const int n_prompt = item.sequence->n_prompt;
    n += std::min(item.first + item.count, n_prompt) - std::min(item.first, n_prompt);
  }
  return n;
}

bool decodes_any(const Plan& plan) {
  return std::ranges::any_of(
      plan.items, [](const ScheduledItem& item) { return item.count == 1 + item.n_draft; });
}

// Returns the most entries of all block tables in a step: the blocks of the largest group, and room
// for shared blocks, which several tables list.
int most_table_entries(const Scheduler& scheduler, int max_seqs) {
  constexpr int kSharedBlocks = 64;  // per sequence
  int n_blocks = 0;
  for (int group = 0; group < scheduler.n_groups(); ++group)
    n_blocks = std::max(n_blocks, scheduler.allocator(group).n_blocks());
  return n_blocks + max_seqs * kSharedBlocks;
}

}  // namespace

StepLoop::StepLoop(const DraftStep::Parts& parts, const Limits& limits, Speculation* speculation)
    : parts_(parts),
      limits_(limits),
      beams_(parts.scheduler, parts.requests, parts.metrics),
      builder_(parts.scheduler.n_groups(), parts.scheduler.block_size(),
               parts.scheduler.state_group()),
      n_stages_(parts.model.n_stages()),
      work_clock_(parts.model.computes_here()),
      pace_(limits.max_tokens, limits.max_seqs) {
  builder_.reserve(limits.max_tokens, limits.max_seqs,
                   most_table_entries(parts.scheduler, limits.max_seqs));
  if (speculation != nullptr) drafts_.emplace(parts, *speculation);
  for (int i = 0; i < n_stages_ + 1; ++i) {
    Step& step =
        steps_.emplace_back(parts.model, limits.vocab_size, limits.max_len, limits.max_seqs);
    if (drafts_) DraftStep::reserve(step, limits.max_seqs);
  }
}

// Keeps one more step in flight than there are stages, so that the first stage computes while a
// step's draws are made.
StepLoop::Progress StepLoop::run_stages() {
  while (in_stages_.size() < steps_.size()) {
    Step& step = free_step();
    plan(step);
    if (step.plan.items.empty()) break;
    submit(step);
    in_stages_.push_back(&step);
    parts_.scheduler.commit(step.plan);
    step.committed = true;
  }
  if (in_stages_.empty()) return Progress::kNone;
  if (!finish(*in_stages_.front())) return Progress::kFailed;
  in_stages_.pop_front();
  return Progress::kFinished;
}

Step& StepLoop::free_step() {
  return *std::ranges::find_if(steps_, [&](const Step& step) {
    return std::ranges::find(in_stages_, &step) == in_stages_.end();
  });
}

// Divides decoding sequences among as many steps as there are stages, as more steps would have
// fewer of them each. Prompts are divided among the stages, too, in steps of at least kLeast
// tokens.
StepShare StepLoop::share_of_stage() const {
  constexpr int kLeast = 64;
  if (n_stages_ == 1) return {};
  int n_decoding = 0, n_prompt = 0;
  for (const Sequence* sequence : parts_.scheduler.in_turn()) {
    if (sequence->gap() <= 1) {
      ++n_decoding;
    } else {
      n_prompt += sequence->gap();
    }
  }
  n_prompt += parts_.scheduler.n_waiting_tokens();
  const auto decodes = [](const Step* step) { return decodes_any(step->plan); };
  const bool enough = std::ranges::count_if(in_stages_, decodes) >= n_stages_;
  return {.n_decoding = enough ? 0 : std::max(1, (n_decoding + n_stages_ - 1) / n_stages_),
          .n_prompt_tokens = std::max(kLeast, n_prompt / (2 * n_stages_)),
          .others_under_way = !in_stages_.empty()};
}

// Work of a device beside steps, or for dropped steps, may fail, too.
StepLoop::Progress StepLoop::run() {
  const Progress progress = n_stages_ > 1 ? run_stages() : run_steps();
  return parts_.model.status() ? progress : Progress::kFailed;
}

StepLoop::Progress StepLoop::run_steps() {
  Step* const before = running_;
  Step& step = before == &steps_[0] ? steps_[1] : steps_[0];
  if (before != nullptr) look_ahead(*before);
  plan(step);
  const bool any = !step.plan.items.empty();
  if (any) submit(step);
  if (before != nullptr && !finish(*before)) return Progress::kFailed;
  running_ = any ? &step : nullptr;
  if (!any) return before != nullptr ? Progress::kFinished : Progress::kNone;
  if (may_run_on(step)) return before != nullptr ? Progress::kFinished : Progress::kSubmitted;
  if (!finish(step)) return Progress::kFailed;
  running_ = nullptr;
  return Progress::kFinished;
}

void StepLoop::wait() {
  for (; n_submitted_ > 0; --n_submitted_) parts_.model.wait();
}

void StepLoop::drop() {
  wait();
  running_ = nullptr;
  in_stages_.clear();
  parts_.requests.drop_tokens_ahead();
  for (Step& step : steps_) step.plan.clear();
}

void StepLoop::recover(const Error& error) {
  wait();
  Scheduler& scheduler = parts_.scheduler;
  while (scheduler.n_running() > 0)
    parts_.requests.fail(*running(*scheduler.running().back()).request, error);
  scheduler.abandon();
  drop();
}

// Whether the step may stay in flight while the next is planned: the device makes all draws of its
// sequences, and all of them continue.
bool StepLoop::may_run_on(const Step& step) const {
  if ((drafts_ && !drafts_->only_forced()) || !step.draws.on_device() ||
      parts_.model.computes_here() || !step.draws.all_asked())
    return false;
  for (size_t i = 0; i < step.plan.items.size(); ++i) {
    const ScheduledItem& item = step.plan.items[i];
    const Running& sequence = running(*item.sequence);
    if (step.all_rows[i] != 0) return false;
    if (!item.last) continue;
    if (item.n_draft > 0 || step.draws_of[i].n != 1 || sequence.n_tokens() + 1 >= sequence.max_len)
      return false;
    if (Sampler::row_reads_tokens(running(*item.sequence).sampler)) return false;
  }
  return true;
}

// Treats the step as done: its sequences continue with stand-in tokens for the device's draws.
void StepLoop::look_ahead(Step& step) {
  parts_.scheduler.commit(step.plan);
  step.committed = true;
  for (size_t i = 0; i < step.plan.items.size(); ++i) {
    const ScheduledItem& item = step.plan.items[i];
    Running& sequence = running(*item.sequence);
    if (!item.last || item.is_void || sequence.done) continue;
    const int draw = step.asked[step.draws_of[i].first].draw;
    parts_.scheduler.append_ahead(sequence, -1 - step.draws.number_on_device(draw));
  }
}

void StepLoop::plan(Step& step) {
  step.plan.clear();
  step.committed = false;
  step.started = parts_.clock.now();
  step.work_started = work_clock_.now();
  if (drafts_) drafts_->ask(step, running_ != nullptr);
  parts_.scheduler.next(step.started, prefill_limit(), step.plan, share_of_stage());
  parts_.requests.note_plan(step.plan, step.started);
  for (const BlockCopy& copy : step.plan.copies)
    parts_.model.copy_block(copy.group, copy.from, copy.to);
}

// Returns the most prompt tokens of the next step if it decodes as well.
int StepLoop::prefill_limit() {
  if (limits_.prefill_chunk > 0) return limits_.prefill_chunk;
  Scheduler& scheduler = parts_.scheduler;
  int n_decoding = 0, n_prompts = scheduler.n_candidates();
  for (const Sequence* sequence : scheduler.in_turn()) {
    n_prompts += sequence->gap() != 1;
    n_decoding += sequence->gap() == 1 && scheduler.spares(*sequence);
  }
  return pace_.limit(n_decoding, n_prompts);
}

void StepLoop::submit(Step& step) {
  step.all_rows.clear();
  for (const ScheduledItem& item : step.plan.items)
    step.all_rows.push_back(wants_prompt_rows(item));
  step.planned = parts_.clock.now();
  if (drafts_) drafts_->propose(step);
  Batch batch = build_batch(step);
  if (drafts_) parts_.model.skip_states(!step.drafts.awaited);
  const bool in_step = may_draw_in(step);
  if (in_step) {
    ask_for_draws(step);
    step.draws.put_into(batch);
  }
  parts_.model.submit(batch);
  ++n_submitted_;
  if (!in_step) ask_for_draws(step);
  step.draws.submit();
}

// Whether draws may be described before the step is submitted. Slow descriptions (grammar masks,
// edits that depend on earlier tokens, drafts) are made while the device computes.
bool StepLoop::may_draw_in(const Step& step) const {
  if (!step.draws.on_device()) return false;
  return std::ranges::all_of(step.plan.items, [](const ScheduledItem& item) {
    return !item.last ||
           (item.n_draft == 0 && !Sampler::row_reads_tokens(running(*item.sequence).sampler));
  });
}

bool StepLoop::finish(Step& step) {
  parts_.model.wait();
  --n_submitted_;
  if (!parts_.model.status()) return false;
  const double computed = parts_.clock.now();
  const bool alone = n_submitted_ == 0;
  const double n_tokens = n_prompt_tokens(step.plan) - parts_.metrics->generation_tokens.value;
  if (!step.committed) parts_.scheduler.commit(step.plan);
  step.draws.finish(!alone && n_stages_ == 1);
  take_results(step, computed);
  const double sampled = parts_.clock.now();
  if (drafts_) drafts_->tell_outcomes(step);
  learn_pace(step);
  if (drafts_) drafts_->note_time(step, alone, work_finished_);
  MetricsRecorder& metrics = parts_.metrics;
  metrics->schedule_seconds.add(step.planned - step.started);
  metrics->forward_seconds.add(computed - std::max(step.planned, finished_));
  metrics->sample_seconds.add(sampled - computed);
  const GrammarWork masks = step.draws.take_grammar_work();
  metrics->grammar_rows.add(static_cast<double>(masks.rows));
  metrics->grammar_mask_seconds.add(masks.seconds);
  metrics->iteration_tokens_total.observe(n_tokens + metrics->generation_tokens.value);
  metrics->iteration_num_seqs.observe(static_cast<double>(step.plan.items.size()));
  finished_ = sampled;
  step.plan.clear();
  return true;
}

bool StepLoop::wants_prompt_rows(const ScheduledItem& item) const {
  const Running& sequence = running(*item.sequence);
  return sequence.spec().params.prompt_logprobs && sequence.index == 0 &&
         sequence.n_prompt_logprobs + 1 < sequence.n_prompt;
}

// Returns how many of the greatest logits the draws of an item need; 0: all. Text that grammars
// force is a draft, too, even without a drafter.
int StepLoop::n_logits_needed(const ScheduledItem& item) const {
  const Running& sequence = running(*item.sequence);
  const bool guesses = drafts_ && !drafts_->only_forced();
  if (!parts_.model.gathers_logits() || guesses || item.n_draft > 0 || sequence.request->beams)
    return 0;
  int most =
      Sampler::n_needed({running(*item.sequence).sampler, sequence.tokens, sequence.n_prompt});
  for (const auto& other : sequence.request->sequences) {
    if (other->joined || other->done || most == 0) continue;
    const int n = Sampler::n_needed({other->sampler, other->tokens, other->n_prompt});
    most = n == 0 ? 0 : std::max(most, n);
  }
  return most;
}

// An item with a draft has output rows for its last token and every node; an item that does not
// close its gap has none.
const Batch& StepLoop::build_batch(Step& step) {
  using Rows = BatchPart::Rows;
  builder_.clear();
  step.first_rows.clear();
  for (size_t i = 0; i < step.plan.items.size(); ++i) {
    const ScheduledItem& item = step.plan.items[i];
    const auto tokens = std::span<const TokenId>(item.sequence->tokens);
    BatchPart part{.tokens = tokens.subspan(item.first, item.count - item.n_draft),
                   .first = item.first,
                   .kv = item.sequence->kv,
                   .rows = step.all_rows[i] != 0 ? Rows::kAll
                           : item.last           ? Rows::kLast
                                                 : Rows::kNone};
    if (const PromptInput* input = item.sequence->input.get(); input != nullptr) {
      part.given = input->rows, part.given_levels = input->levels, part.given_dim = input->dim;
      part.parts_see = input->parts_see, part.given_token = input->given_token;
      part.encoded = input->encoded, part.watch = input->watch;
      part.axes = input->axes, part.axis_delta = input->axis_delta;
    }
    part.adapter = item.sequence->adapter, part.long_rope = item.sequence->long_rope;
    if (item.last && step.all_rows[i] == 0) part.top = n_logits_needed(item);
    if (item.n_draft > 0) part.draft = item.draft->tokens, part.draft_parents = item.draft->parents;
    step.first_rows.push_back(builder_.add(part));
  }
  return builder_.build();
}

// Adds all draws of the step; the device makes them as soon as it has the
// rows.
void StepLoop::ask_for_draws(Step& step) {
  step.draws.clear();
  step.asked.clear();
  step.draws_of.clear();
  for (size_t i = 0; i < step.plan.items.size(); ++i) {
    step.draws_of.push_back({step.asked.size(), 0});
    try {
      ask_for_draws_of(step, i);
    } catch (const std::bad_alloc&) {
      parts_.requests.fail(*running(*step.plan.items[i].sequence).request);
    }
    step.draws_of.back().n = step.asked.size() - step.draws_of.back().first;
  }
}

void StepLoop::ask_for_draws_of(Step& step, size_t i) {
  const ScheduledItem& item = step.plan.items[i];
  Running& sequence = running(*item.sequence);
  if (!item.last || sequence.request->beams || sequence.spec().params.max_tokens == 0) return;
  const int row = step.first_rows[i] + (step.all_rows[i] != 0 ? item.count - 1 : 0);
  if (item.n_draft > 0) return drafts_->ask_for_draws(sequence, *item.draft, row, step);
  const auto ask = [&](Running& one) {
    const SampleContext context{one.sampler, one.tokens, one.n_prompt};
    step.asked.push_back({&one, one.draws_on_host ? step.draws.add_on_host(context, row)
                                                  : step.draws.add(context, row)});
  };
  // The other sequences of a request draw their first token from the first one's prompt.
  for (const auto& other : sequence.request->sequences) {
    if (!other->joined && !other->done) ask(*other);
  }
  ask(sequence);
}

void StepLoop::take_results(Step& step, double time) {
  for (size_t i = 0; i < step.plan.items.size(); ++i) {
    RequestState& state = *running(*step.plan.items[i].sequence).request;
    try {
      take_result(step, i, time);
    } catch (const std::bad_alloc&) {
      parts_.requests.fail(state);
    }
  }
}

void StepLoop::take_result(Step& step, size_t i, double time) {
  const ScheduledItem& item = step.plan.items[i];
  Running& sequence = running(*item.sequence);
  const int row = step.first_rows[i];
  if (sequence.done || item.is_void) return;
  if (PromptProgress* const progress = sequence.request->request.progress.get()) {
    progress->cached = sequence.stats.cached_tokens;
    progress->computed = std::min(item.first + item.count, sequence.n_prompt);
  }
  if (drafts_ && item.n_draft == 0 && sequence.state == SeqState::kRunning)
    drafts_->note_states(step, i, item.count);
  if (row < 0) return;
  if (item.n_draft > 0) return drafts_->verify(step, i, time);
  if (step.all_rows[i] != 0) report_prompt_logprobs(step, i, row);
  if (!item.last) return;
  const int last_row = step.all_rows[i] != 0 ? row + item.count - 1 : row;
  if (sequence.request->beams) {
    // the search has not advanced since
    const bool current = item.first + item.count == sequence.n_tokens();
    if (current) beams_.offer(sequence, parts_.model.logits(last_row), step.draws.host(), time);
    return;
  }
  if (sequence.spec().params.max_tokens == 0) {
    for (auto& each : sequence.request->sequences)
      parts_.requests.end(*each, FinishReason::kLength);
    return;
  }
  take_draws(step, i, time);
  if (drafts_) drafts_->note_plain(step, sequence, last_row);
}

void StepLoop::take_draws(Step& step, size_t i, double time) {
  Running& first = running(*step.plan.items[i].sequence);
  for (size_t k = 0; k < step.draws_of[i].n; ++k) {
    const auto [sequence, draw] = step.asked[step.draws_of[i].first + k];
    if (sequence->done) continue;  // cancelled while the step was in flight
    if (!step.draws.drawn(draw)) return draw_again(*sequence);
    if (sequence != &first) parts_.requests.join(*sequence, first);
    parts_.requests.accept(*sequence, step.draws.result(draw), step.draws.alternatives(draw), time);
    if (sequence != &first && !sequence->done) parts_.scheduler.fork(first, *sequence);
  }
}

// The device left the draw to the host, but its logits were overwritten: they are computed again.
// Results of the step in flight that depend on the missing token are void.
void StepLoop::draw_again(Running& sequence) {
  parts_.scheduler.drop_ahead(sequence, true);
  sequence.draws_on_host = true;
  for (Step& step : steps_) {
    for (ScheduledItem& item : step.plan.items) item.is_void |= item.sequence == &sequence;
  }
}

void StepLoop::report_prompt_logprobs(Step& step, size_t i, int first_row) {
  const ScheduledItem& item = step.plan.items[i];
  Running& sequence = running(*item.sequence);
  const int n = *sequence.spec().params.prompt_logprobs;
  prompt_rows_.clear();
  prompt_logprobs_.clear();
  int first = -1;
  for (int i = 0; i < item.count; ++i) {
    const int position = item.first + i + 1;  // position of the token that this row predicts
    if (position >= sequence.n_prompt || position <= sequence.n_prompt_logprobs) continue;
    if (first < 0) first = position;
    const std::span<const float> row = parts_.model.logits(first_row + i);
    prompt_rows_.push_back(
        step.draws.host().logprobs(row, sequence.tokens[position], n, prompt_logprobs_));
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

void StepLoop::learn_pace(const Step& step) {
  int n_decoding = 0, n_prompt = 0;
  for (const ScheduledItem& item : step.plan.items)
    (item.count == 1 + item.n_draft ? n_decoding : n_prompt) += item.count;
  const double now = work_clock_.now();
  pace_.note(n_decoding, n_prompt, now - std::max(step.work_started, work_finished_));
  work_finished_ = now;
}

}  // namespace penstock

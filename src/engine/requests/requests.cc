#include "engine/requests/requests.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "engine/requests/request_start.h"
#include "sampling/exclusions.h"

namespace penstock {
namespace {

// The message fits the string's inline buffer, so this allocates nothing.
Error out_of_memory() { return {ErrorCode::kResourceExhausted, "out of memory"}; }

// Returns the error of a sequence without possible tokens: caused by parameters, or by the model.
Error error_without_tokens(Running& sequence) {
  std::string why = why_none_is_left({sequence.sampler, sequence.tokens, sequence.n_prompt});
  if (!why.empty()) return {ErrorCode::kInvalidArgument, std::move(why)};
  return {ErrorCode::kInternal,
          "no token can be chosen: every logit is excluded or not a finite number"};
}

// Returns the error of a sequence whose grammar rejected the chosen token.
Error error_of_grammar(const Running& sequence) {
  std::string why = sequence.sampler.matcher->failure();
  if (!why.empty()) return {ErrorCode::kInvalidArgument, std::move(why)};
  return {ErrorCode::kInternal, "the grammar does not have the token that was chosen"};
}

uint64_t number_of(const RequestState& state) { return static_cast<uint64_t>(state.id); }

}  // namespace

// --- Start and end of requests

void Requests::start(std::unique_ptr<RequestState> state) {
  const bool has_adapter = state->request.adapter != nullptr;
  if (!has_adapter) return begin_or_refuse(std::move(state));
  try {
    wait_for_adapter(state);
  } catch (const std::bad_alloc&) {
    return refuse(*state);
  }
  start_waiting();
}

// Throws std::bad_alloc and then leaves `state` unchanged.
void Requests::wait_for_adapter(std::unique_ptr<RequestState>& state) {
  const uint64_t first =
      turns_.first(waiting_.empty() ? std::nullopt : std::optional(waiting_.front()->turn));
  uint64_t& next = turns_.next_of(tenant_of(state->request), first, waiting_.size());
  waiting_.push_back(nullptr);
  state->turn = std::max(next, first);
  next = state->turn + static_cast<uint64_t>(n_sequences_of(state->request.sampling));
  const auto end = std::prev(waiting_.end());
  const auto place =
      std::upper_bound(waiting_.begin(), end, state->turn,
                       [](uint64_t turn, const auto& other) { return turn < other->turn; });
  *end = std::move(state);
  std::rotate(place, end, waiting_.end());
}

void Requests::start_waiting() {
  while (!waiting_.empty() && n_adapted_ < parts_.most_adapted && take_adapter(*waiting_.front())) {
    turns_.note_begun(waiting_.front()->turn);
    std::unique_ptr<RequestState> state = std::move(waiting_.front());
    waiting_.pop_front();
    if (state->adapter_slot >= 0) begin_or_refuse(std::move(state));
  }
}

// Whether the request is done waiting: its adapter is loaded, or its sink got the error of
// loading.
bool Requests::take_adapter(RequestState& state) {
  const auto tell = [&](const Error& error) {
    log().error("request {}: {}", number_of(state), error.message);
    Outbox::send_ends(state, state.n, error);
    parts_.inbox.leave(state);
    return true;
  };
  try {
    const Result<std::optional<int>> slot = parts_.adapters.take(state.request.adapter);
    if (!slot) return tell(slot.error());
    if (*slot) state.adapter_slot = **slot;
    return slot->has_value();
  } catch (const std::bad_alloc&) {
    return tell(out_of_memory());
  }
}

// Begins a waiting request so that it can be ended; it computes nothing.
void Requests::begin_without_adapter(size_t waiting) {
  std::unique_ptr<RequestState> state = std::move(waiting_[waiting]);
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(waiting));
  const auto is_of_tenant = [&](const auto& other) {
    return other->request.tenant == state->request.tenant;
  };
  if (std::ranges::none_of(waiting_, is_of_tenant)) turns_.forget(tenant_of(state->request));
  begin_or_refuse(std::move(state));
}

void Requests::begin_or_refuse(std::unique_ptr<RequestState> state) {
  try {
    begin(state);
  } catch (const std::bad_alloc&) {
    if (state->adapter_slot >= 0) parts_.adapters.give_back(state->adapter_slot);
    refuse(*state);
  }
}

void Requests::begin(std::unique_ptr<RequestState>& owned) {
  RequestState& state = *owned;
  make_sequences(state, {parts_.info, parts_.seed, next_sequence_, parts_.prompts_only});
  outbox_.make_room(state, running_.size() + 1);
  const size_t most_ended = ended_.size() + running_.size() + 1;
  if (ended_.capacity() < most_ended) ended_.reserve(2 * most_ended);
  std::unique_ptr<RequestState>& place = running_[number_of(state)];
  try {
    history_.begin(*state.sequences[0]);
    add(*state.sequences[0]);
  } catch (const std::bad_alloc&) {
    running_.erase(number_of(state));
    throw;
  }
  state.sequences[0]->joined = true;
  for (const auto& sequence : state.sequences)
    sequence->turn = state.sequences[0]->turn + static_cast<uint64_t>(sequence->index);
  if (state.request.deadline) ++n_with_deadline_;
  if (state.adapter_slot >= 0) n_adapted_ += state.n_open;
  place = std::move(owned);
}

void Requests::add(Sequence& sequence) {
  parts_.scheduler.add(sequence);
  if (parts_.begin_load) parts_.begin_load(sequence);
}

// Ends a request that the scheduler does not know.
void Requests::refuse(RequestState& state) {
  log().error("request {}: not started because memory ran out", number_of(state));
  parts_.metrics->out_of_memory.add();
  Outbox::send_ends(state, state.n, out_of_memory());
  parts_.inbox.leave(state);
}

void Requests::cancel(const Inbox::Cancel& cancel) {
  const auto waiting =
      std::ranges::find(waiting_, cancel.request, [](const auto& state) { return state->id; });
  if (waiting != waiting_.end()) {
    if (cancel.index >= 0 && (*waiting)->n > 1)
      return parts_.inbox.cancel(cancel);  // retried when the request has begun
    begin_without_adapter(static_cast<size_t>(waiting - waiting_.begin()));
  }
  const auto found = running_.find(static_cast<uint64_t>(cancel.request));
  if (found == running_.end()) return;
  try {
    end_request(*found->second, cancel.index, cancel.reason, {});
  } catch (const std::bad_alloc&) {  // its other sequences cannot continue either
    fail(*found->second);
  }
}

void Requests::expire_deadlines() {
  if (n_with_deadline_ == 0 && waiting_.empty()) return;
  const Clock::time_point time = Clock::now();
  for (size_t i = waiting_.size(); i-- > 0;) {
    const auto& deadline = waiting_[i]->request.deadline;
    if (deadline && *deadline <= time) begin_without_adapter(i);
  }
  for (auto& [id, state] : running_) {
    if (!state->request.deadline || *state->request.deadline > time || state->n_open == 0) continue;
    end_request(*state, -1, FinishReason::kAbort,
                {ErrorCode::kDeadlineExceeded, "the request's deadline has passed"});
  }
}

Clock::time_point Requests::next_deadline() const {
  auto next = Clock::time_point::max();
  if (n_with_deadline_ == 0) return next;
  for (const auto& [id, state] : running_) {
    if (state->request.deadline && state->n_open > 0)
      next = std::min(next, *state->request.deadline);
  }
  return next;
}

void Requests::end_all(FinishReason reason, const Error& error) {
  while (!waiting_.empty()) begin_without_adapter(0);
  for (auto& [id, state] : running_) end_request(*state, -1, reason, error);
}

void Requests::end_request(RequestState& state, int index, FinishReason reason,
                           const Error& error) {
  // From last to first, since the end of the first sequence would start the others.
  for (size_t i = state.sequences.size(); i-- > 0;) {
    Running& sequence = *state.sequences[i];
    if (sequence.held) {
      parts_.end_hold(sequence);
      release(sequence);
    }
    if (sequence.done || (index >= 0 && (index != sequence.index || state.beams))) continue;
    sequence.error = error;
    end(sequence, reason);
  }
}

void Requests::fail(RequestState& state) { fail(state, out_of_memory()); }

void Requests::fail(RequestState& state, const Error& error) {
  if (state.n_open == 0) return;
  log().error("request {}: ended because memory ran out", number_of(state));
  parts_.metrics->out_of_memory.add();
  end_request(state, -1, FinishReason::kError, error);
}

bool Requests::deliver(int n_under_way) {
  std::erase_if(ended_, [](Ended& ended) { return --ended.n_calls < 0; });
  bool all = true;
  outbox_.deliver(
      out_of_memory(),
      [&](RequestState& state) {
        all = false;
        if (state.n_open > 0) return fail(state);
        parts_.metrics->out_of_memory.add();
      },
      [&](RequestState& state) {
        const auto found = running_.find(number_of(state));
        found->second->sink.reset();
        ended_.push_back({std::move(found->second), n_under_way});
        running_.erase(found);
      });
  if (n_under_way == 0) ended_.clear();
  return all;
}

// --- Results of steps

void Requests::note_plan(const Plan& plan, double time) {
  for (Sequence* admitted : plan.admitted) {
    Running& sequence = running(*admitted);
    if (sequence.first_scheduled < 0) note_first(sequence, time);
    parts_.inbox.leave(*sequence.request);
  }
  for (Sequence* preempted : plan.preempted) {
    parts_.metrics->num_preemptions.add();
    log().info("request {}: preempted after {} of {} tokens",
               number_of(*running(*preempted).request), preempted->n_tokens(), preempted->max_len);
    // beams wait for each other
    if (parts_.begin_load && !running(*preempted).request->beams) parts_.begin_load(*preempted);
    if (parts_.stop_drafting) parts_.stop_drafting(preempted->id);
  }
  if (!parts_.begin_load) return;
  for (Sequence* lost : plan.lost) parts_.begin_load(*lost);
}

void Requests::note_first(Running& sequence, double time) {
  sequence.first_scheduled = time;
  sequence.stats.cached_tokens = sequence.n_cached;
  PrefixUse& use = sequence.stats.prefix;
  use.store_tokens = std::min(sequence.n_loaded, sequence.n_cached);
  use.memory_tokens = sequence.n_cached - use.store_tokens;
  use.load_seconds = sequence.load_seconds;
  parts_.metrics.note_scheduled(sequence, time);
  if (use.known_tokens < 0) return;
  log().info(
      "request {}: of {} prompt tokens {} were in memory and {} in the store ({:.1f} ms); an "
      "earlier "
      "text had the first {}",
      number_of(*sequence.request), sequence.n_prompt, use.memory_tokens, use.store_tokens,
      1e3 * use.load_seconds, use.known_tokens);
}

void Requests::join(Running& child, const Running& first) {
  child.joined = true;
  child.first_scheduled = first.first_scheduled;
  child.stats.cached_tokens = first.n_cached;
  child.stats.prefix = first.stats.prefix;
}

void Requests::accept(Running& sequence, const SampleResult& drawn,
                      std::span<const TokenLogprob> alternatives, double time) {
  const auto refuse = [&](Error why) {
    sequence.error = std::move(why);
    end(sequence, FinishReason::kError);
  };
  if (drawn.token == kNoToken) return refuse(error_without_tokens(sequence));
  if (!sequence.sampler.append(drawn.token)) return refuse(error_of_grammar(sequence));
  parts_.scheduler.append(sequence, drawn.token);
  sequence.draws_on_host = false;
  parts_.metrics.note_token(sequence, time);
  TokenEvent event{.index = sequence.index,
                   .token = drawn.token,
                   .logprob = drawn.logprob,
                   .rank = drawn.rank,
                   .alternatives = outbox_.keep(alternatives)};
  if (is_end(sequence, drawn.token, event)) {
    end(sequence, FinishReason::kStop, event);
  } else if (sequence.sampler.must_end()) {
    // the grammar has ended: the token belongs to the text
    outbox_.push(*sequence.request, event);
    end(sequence, FinishReason::kStop);
  } else if (sequence.n_tokens() >= sequence.max_len) {
    end(sequence, FinishReason::kLength, event);
  } else {
    outbox_.push(*sequence.request, event);
  }
}

bool Requests::is_end(const Running& sequence, TokenId token, TokenEvent& event) {
  const SamplingParams& params = sequence.spec().params;
  if (std::ranges::find(params.stop_token_ids, token) != params.stop_token_ids.end()) {
    event.stop_token = token;
    return true;
  }
  const std::vector<TokenId>& eos = sequence.request->request.eos_token_ids;
  return !params.ignore_eos && std::ranges::find(eos, token) != eos.end();
}

void Requests::end(Running& sequence, FinishReason reason, TokenEvent event) {
  if (sequence.done) return;
  RequestState& state = *sequence.request;
  const double time = parts_.clock.now();  // nothing after this line runs out of memory
  if (parts_.end_load) parts_.end_load(sequence);
  parts_.scheduler.drop_ahead(sequence, false);
  history_.end(sequence);
  parts_.scheduler.finish(sequence);
  if (parts_.stop_drafting) parts_.stop_drafting(sequence.id);
  sequence.done = true;
  RequestStats& stats = sequence.stats;
  stats.prompt_tokens = sequence.n_prompt;
  stats.completion_tokens = sequence.n_tokens() - sequence.n_prompt;
  stats.preemptions = sequence.n_preemptions;
  const bool scheduled = sequence.first_scheduled >= 0, has_token = sequence.first_token >= 0;
  stats.queued_seconds = (scheduled ? sequence.first_scheduled : time) - state.submitted;
  if (scheduled)
    stats.prefill_seconds = (has_token ? sequence.first_token : time) - sequence.first_scheduled;
  if (has_token) stats.decode_seconds = sequence.last_token - sequence.first_token;

  event.index = sequence.index;
  event.finish = reason;
  event.stats = &stats;
  if (!sequence.error.message.empty()) event.error = &sequence.error;
  const bool is_whole = reason == FinishReason::kLength && sequence.index == 0 && !state.beams;
  sequence.held = is_whole && parts_.hold && parts_.hold(sequence);
  if (sequence.held) {
    sequence.last_event = event;
  } else {
    close(sequence, event);
  }
}

void Requests::release(Running& sequence) {
  sequence.held = false;
  close(sequence, sequence.last_event);
}

// Allocates nothing: there is room for the ends of open sequences.
void Requests::close(Running& sequence, const TokenEvent& event) {
  RequestState& state = *sequence.request;
  // other indices are beams that were dropped
  if (sequence.index < state.n) outbox_.push(state, event);
  parts_.metrics.note_end(sequence, event.finish, parts_.clock.now());
  parts_.inbox.leave(state);
  if (state.adapter_slot >= 0) --n_adapted_;
  if (--state.n_open == 0) {
    if (state.request.deadline) --n_with_deadline_;
    if (state.adapter_slot >= 0) parts_.adapters.give_back(state.adapter_slot);
    return;
  }
  if (sequence.first_token >= 0 || sequence.index > 0) return;
  // The first sequence ended before its prompt was computed: the others start on their own.
  for (auto& each : state.sequences) {
    if (each->joined || each->done) continue;
    each->joined = true;
    add(*each);
  }
}

void Requests::drop_tokens_ahead() {
  for (auto& [id, state] : running_) {
    for (auto& sequence : state->sequences) parts_.scheduler.drop_ahead(*sequence, false);
  }
}

}  // namespace penstock

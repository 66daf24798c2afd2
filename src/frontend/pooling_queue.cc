#include "frontend/pooling_queue.h"

#include <algorithm>
#include <new>

#include "base/result.h"
#include "base/thread_pool.h"

namespace penstock {
namespace {

constexpr size_t kStepTokens = 8192;  // approximate limit of tokens in a step

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

PoolingQueue::PoolingQueue(std::unique_ptr<EmbeddingModel> model, Limits limits)
    : model_(std::move(model)), limits_(limits), thread_([this] { work(); }) {}

size_t PoolingQueue::n_waiting() const {
  return static_cast<size_t>(
      std::ranges::count_if(calls_, [](const Open& open) { return !open.begun; }));
}

Result<uint64_t> PoolingQueue::submit(PoolingCall call, Done done) {
  size_t n_tokens = 0;
  for (const size_t length : call.lengths) n_tokens += length;
  const std::lock_guard lock(mutex_);
  if (stopping_) return make_error(ErrorCode::kCancelled, "shutting down");
  if (call.lengths.empty())
    return make_error(ErrorCode::kInvalidArgument, "input: expected at least one, got none");
  if (n_waiting() >= limits_.calls || (!calls_.empty() && n_tokens_ + n_tokens > limits_.tokens)) {
    metrics_.admission_rejections.add();
    return errorf(ErrorCode::kResourceExhausted, "the queue is full: {} calls with {} tokens wait",
                  calls_.size(), n_tokens_);
  }
  n_tokens_ += n_tokens;
  Open open{.id = ++last_id_, .call = std::move(call), .done = std::move(done), .results = {}};
  open.submitted = Clock::now();
  open.results.resize(open.n_inputs());
  for (const size_t length : open.call.lengths)
    metrics_.request_prompt_tokens.observe(static_cast<double>(length));
  calls_.push_back(std::move(open));
  wake_.notify_one();
  return last_id_;
}

void PoolingQueue::cancel(uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (Open& open : calls_) open.cancelled = open.cancelled || open.id == id;
  wake_.notify_one();
}

void PoolingQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

Metrics PoolingQueue::metrics() const {
  const std::lock_guard lock(mutex_);
  Metrics metrics = metrics_;
  metrics.num_requests_waiting.value = static_cast<double>(n_waiting());
  metrics.num_requests_running.value = static_cast<double>(calls_.size() - n_waiting());
  return metrics;
}

void PoolingQueue::work() {
  for (;;) {
    try {
      std::vector<Item> items;
      {
        std::unique_lock lock(mutex_);
        if (calls_.empty()) rest_from_turns();
        wake_.wait(lock, [&] { return stopping_ || !calls_.empty(); });
        end_late_ones(lock);
        if (stopping_ && calls_.empty()) return;
        items = next_items();
      }
      if (!items.empty()) compute(items);
    } catch (const std::exception&) {
      end_begun_ones();
    }
  }
}

// Ends all calls that have begun, after their step failed with an exception (out of memory).
void PoolingQueue::end_begun_ones() {
  std::unique_lock lock(mutex_);
  for (auto open = calls_.begin(); open != calls_.end();) {
    const auto here = open++;
    if (here->begun) finish(here, make_error(ErrorCode::kResourceExhausted, "out of memory"), lock);
  }
}

// Ends the calls that were cancelled or whose deadline has passed; all calls after stop().
void PoolingQueue::end_late_ones(std::unique_lock<std::mutex>& lock) {
  const auto now = Clock::now();
  for (auto open = calls_.begin(); open != calls_.end();) {
    const auto here = open++;
    if (stopping_) {
      finish(here, make_error(ErrorCode::kCancelled, "shutting down"), lock);
    } else if (here->cancelled) {
      finish(here, make_error(ErrorCode::kCancelled, "cancelled"), lock);
    } else if (here->call.deadline && now >= *here->call.deadline) {
      finish(here, make_error(ErrorCode::kDeadlineExceeded, "the request took longer than it may"),
             lock);
    }
  }
}

// Returns the kind of the next step: that of the oldest call of the tenant whose last turn is
// longest ago. REQUIRES: mutex_, !calls_.empty().
const PoolingKind& PoolingQueue::next_kind() {
  for (auto& [tenant, turn] : turns_) turn.n_calls = turn.n_tokens = 0;
  for (const Open& open : calls_) ++turns_[open.call.tenant].n_calls;
  std::erase_if(turns_, [](const auto& turn) { return turn.second.n_calls == 0; });
  const auto last_turn = [&](const Open& open) { return turns_.at(open.call.tenant).last; };
  const Open& next = *std::ranges::min_element(calls_, {}, last_turn);
  turns_.at(next.call.tenant).last = ++n_turns_;
  return next.call.kind;
}

// Returns the inputs of the next step: calls of one kind, an equal share of every tenant and of
// each of its calls. REQUIRES: mutex_.
std::vector<PoolingQueue::Item> PoolingQueue::next_items() {
  std::vector<Item> items;
  if (calls_.empty()) return items;
  const PoolingKind kind = next_kind();
  for (auto& [tenant, turn] : turns_) turn.n_calls = 0;
  size_t n_kind = 0, n_tenants = 0, n_all = 0;
  for (const Open& open : calls_) {
    if (!(open.call.kind == kind)) continue;
    ++n_kind;
    if (++turns_.at(open.call.tenant).n_calls == 1) ++n_tenants;
  }
  const size_t most_of_tenant = std::max<size_t>(1, kStepTokens / n_tenants);
  for (Open& open : calls_) {
    Turn& turn = turns_.at(open.call.tenant);
    if (!(open.call.kind == kind) || turn.n_tokens >= most_of_tenant) continue;
    if (!open.begun) metrics_.request_queue_time_seconds.observe(seconds_since(open.submitted));
    open.begun = true;
    const size_t share = std::max<size_t>(1, most_of_tenant / turn.n_calls);
    size_t n_own = 0;
    while (open.n_taken < open.n_inputs() && n_own < share) {
      items.push_back({&open, open.n_taken});
      n_own += open.call.lengths[open.n_taken++];
    }
    turn.n_tokens += n_own;
    n_all += n_own;
    if (n_all >= kStepTokens) break;
  }
  // Moves the calls of this kind to the end, so that kinds take turns.
  for (auto open = calls_.begin(); n_kind > 0; --n_kind) {
    while (!(open->call.kind == kind)) ++open;
    calls_.splice(calls_.end(), calls_, open++);
  }
  // Sorts by length, so that sequences of similar length are computed together.
  std::ranges::stable_sort(items, {},
                           [](const Item& item) { return item.open->call.lengths[item.index]; });
  return items;
}

void PoolingQueue::compute(const std::vector<Item>& items) {
  const auto start = Clock::now();
  auto vectors = run(items);
  size_t n_tokens = 0;
  for (const Item& item : items) n_tokens += item.open->call.lengths[item.index];
  {
    const std::lock_guard lock(mutex_);
    metrics_.steps.add();
    metrics_.step_seconds.add(seconds_since(start));
    metrics_.iteration_seconds.observe(seconds_since(start));
    metrics_.iteration_num_seqs.observe(static_cast<double>(items.size()));
    metrics_.iteration_tokens_total.observe(static_cast<double>(n_tokens));
    metrics_.prompt_tokens.add(static_cast<double>(n_tokens));
  }
  if (vectors) return give(items, std::move(*vectors));
  // Calls are computed one by one if the step fails, so that an error ends only the call that
  // causes it.
  const bool alone =
      std::ranges::all_of(items, [&](const Item& item) { return item.open == items[0].open; });
  if (alone) return fail(items, vectors.error());
  std::vector<Item> rest = items;
  while (!rest.empty()) {
    std::vector<Item> own, others;
    for (const Item& item : rest) (item.open == rest[0].open ? own : others).push_back(item);
    if (auto result = run(own)) {
      give(own, std::move(*result));
    } else {
      fail(own, result.error());
    }
    rest = std::move(others);
  }
}

Result<PoolingQueue::Vectors> PoolingQueue::run(const std::vector<Item>& items) {
  try {
    return run_model(items);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kResourceExhausted, "out of memory");
  }
}

// The items' pointers stay valid without the lock: only this thread removes calls.
Result<PoolingQueue::Vectors> PoolingQueue::run_model(const std::vector<Item>& items) {
  const PoolingKind& kind = items[0].open->call.kind;
  const ClassifyOptions classes{.use_activation = kind.use_activation, .adapter = kind.adapter};
  if (kind.task == PoolingKind::Task::kScore) {
    std::vector<PairTokens> pairs;
    for (const Item& item : items) pairs.push_back(item.open->call.pairs[item.index]);
    ASSIGN_OR_RETURN(const std::vector<float> scores, model_->score_tokens(pairs, classes));
    Vectors out;
    for (const float score : scores) out.push_back({score});
    return out;
  }
  std::vector<Prompt> inputs;
  for (const Item& item : items) inputs.emplace_back(item.open->call.inputs[item.index]);
  EmbedOptions options;
  options.normalize = kind.normalize;
  options.dimensions = kind.dimensions;
  options.adapter = kind.adapter;
  switch (kind.task) {
    case PoolingKind::Task::kClassify: return model_->classify(inputs, classes);
    case PoolingKind::Task::kEmbedTokens: return model_->embed_tokens(inputs, options);
    default: return model_->embed(inputs, options);
  }
}

void PoolingQueue::give(const std::vector<Item>& items, Vectors vectors) {
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < items.size(); ++i)
    items[i].open->results[items[i].index] = std::move(vectors[i]);
  for (auto open = calls_.begin(); open != calls_.end();) {
    const auto here = open++;
    const bool whole =
        here->n_taken == here->n_inputs() &&
        std::ranges::any_of(items, [&](const Item& item) { return item.open == &*here; });
    if (whole) finish(here, std::move(here->results), lock);
  }
}

void PoolingQueue::fail(const std::vector<Item>& items, const Error& error) {
  std::unique_lock lock(mutex_);
  const auto open =
      std::ranges::find_if(calls_, [&](const Open& one) { return &one == items[0].open; });
  finish(open, tl::unexpected(error), lock);
}

// Removes a call and passes on its result. Releases the lock during the callback.
void PoolingQueue::finish(std::list<Open>::iterator open, Result<Vectors> result,
                          std::unique_lock<std::mutex>& lock) {
  if (result) {
    metrics_.request_success_stop.add();
    metrics_.e2e_request_latency_seconds.observe(seconds_since(open->submitted));
  } else {
    const bool aborted = result.error().code == ErrorCode::kCancelled;
    (aborted ? metrics_.request_success_abort : metrics_.request_success_error).add();
  }
  for (const size_t length : open->call.lengths) n_tokens_ -= length;
  const Done done = std::move(open->done);
  calls_.erase(open);
  lock.unlock();
  done(std::move(result));
  lock.lock();
}

}  // namespace penstock

#include "server/batches/batch_runner.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "server/api/api_request.h"
#include "server/keys/accounts.h"
#include "server/keys/ledger/api_keys.h"
#include "server/routing/client_reason.h"
#include "server/routing/endpoint.h"
#include "server/services/request_log.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int kBesideOthers = 1;  // concurrent lines while other requests run
// concurrent lines of embedding models, for which a new request must wait
constexpr int kLinesOfVectors = 8;
// polling interval for other requests
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kSync = std::chrono::milliseconds(100);  // maximum delay before a result is synced
constexpr auto kAgain = std::chrono::seconds(10);  // retry after an error of the disk or the server
// Length of an owner's turn while another owner's batches wait: it ends at the first limit.
constexpr auto kTurn = std::chrono::seconds(10);
constexpr int kTurnLines = 256;

std::string errors_json(const std::vector<BatchMistake>& mistakes) {
  json list = json::array();
  for (const BatchMistake& one : mistakes) {
    list.push_back({{"code", one.code},
                    {"message", one.message},
                    {"param", one.param.empty() ? json() : json(one.param)},
                    {"line", one.line > 0 ? json(one.line) : json()}});
  }
  return dump({{"object", "list"}, {"data", std::move(list)}});
}

// Plain keys have one payer; the cached prompts of each owner's batches are apart from those of all
// others, and of its other requests.
std::string tenant_of(const StoredBatch& batch) {
  return batch.payer == ApiKey::kPlainPayer ? batch.payer + "-" + batch.owner : batch.payer;
}

}  // namespace

struct BatchRunner::Run {
  StoredBatch batch;
  std::vector<BatchLine> lines;
  std::unique_ptr<BatchResults> results;
  int n_under_way = 0;
  int n_begun = 0;       // lines started in this turn
  bool paused = false;   // to let other owners' batches run
  bool revoked = false;  // the API key was revoked
  // cancelled or expired: lines in the queue give up
  bool ending = false;
  std::optional<Error> failure;  // of the disk
};

// A line that is being computed, counted in its run and in the runner. REQUIRES: both outlive it.
class BatchRunner::UnderWay {
 public:
  UnderWay(BatchRunner& runner, std::shared_ptr<Run> run, const BatchLine& line)
      : runner_(&runner), run_(std::move(run)), line_(&line) {
    ++run_->n_under_way;
    ++runner_->counts_.lines_running;
  }
  UnderWay(UnderWay&&) = default;
  UnderWay& operator=(UnderWay&&) = delete;
  ~UnderWay() {
    if (run_ == nullptr) return;
    --runner_->counts_.lines_running;
    --run_->n_under_way;
    runner_->news_.cancel();
  }
  Run& run() const { return *run_; }
  const BatchLine& line() const { return *line_; }

 private:
  BatchRunner* runner_;
  std::shared_ptr<Run> run_;
  const BatchLine* line_;
};

BatchRunner::BatchRunner(Services& services, StoredBatches& batches)
    : services_(services), batches_(batches), lines_(services, thread_.get_executor()) {}

BatchRunner::~BatchRunner() {
  stop();
  thread_.join();
}

void BatchRunner::start() { net::co_spawn(thread_, run(), net::detached); }

void BatchRunner::wake() {
  net::post(thread_, [this] {
    told_ = true;
    news_.cancel();
  });
}

void BatchRunner::stop() {
  if (stopping_.exchange(true)) return;
  net::post(thread_, [this] {
    lines_.give_up();
    news_.cancel();
  });
}

// Waits for a wake-up, for at most `most`.
net::awaitable<void> BatchRunner::wait(std::chrono::milliseconds most) {
  boost::system::error_code cancelled;
  news_.expires_after(most);
  co_await news_.async_wait(net::redirect_error(net::use_awaitable, cancelled));
}

// Returns the number of lines that may be under way now.
int BatchRunner::room() const {
  if (services_.under_way.n_generating > 0) return kBesideOthers;
  int most = 1;
  // running calls to embedding models, including lines
  double n_vectors = 0;
  for (const auto& model : services_.models.all()) {
    const ModelLease lease = model->lease();
    if (lease == nullptr) continue;
    most = std::max(most, lease->pools() ? kLinesOfVectors : lease->config().max_num_seqs);
    if (!lease->pools()) continue;
    const Metrics metrics = lease->pooling().metrics();
    n_vectors += metrics.num_requests_running.value + metrics.num_requests_waiting.value;
  }
  return n_vectors > counts_.lines_running ? kBesideOthers : most;
}

net::awaitable<void> BatchRunner::run() {
  while (!stopping_) {
    bool done = false, failed = false;
    try {
      done = co_await run_next();
    } catch (const std::exception&) {  // out of memory: retry, other batches first
      failed = true;
    }
    if (!done && !stopping_)
      co_await wait(again_.empty() && !failed ? std::chrono::seconds(60) : std::chrono::seconds(1));
  }
}

net::awaitable<bool> BatchRunner::run_next() {
  auto waiting = batches_.unfinished();
  if (!waiting) {
    services_.log.error("batches: " + waiting.error().message);
    co_return false;
  }
  auto next = next_of(*std::move(waiting));
  if (!next) co_return false;
  co_await run_batch(*std::move(next));
  co_return true;
}

bool BatchRunner::may_try(const StoredBatch& batch) const {
  const auto failed = again_.find(batch.id);
  return failed == again_.end() || failed->second <= std::chrono::steady_clock::now();
}

std::optional<StoredBatch> BatchRunner::next_of(std::vector<StoredBatch> unfinished) {
  const auto known = [&](const auto& noted, const auto& is) {
    return std::ranges::any_of(unfinished,
                               [&](const StoredBatch& one) { return is(one) == noted.first; });
  };
  std::erase_if(turns_, [&](const auto& turn) {
    return !known(turn, [](const auto& b) { return b.owner; });
  });
  std::erase_if(again_,
                [&](const auto& one) { return !known(one, [](const auto& b) { return b.id; }); });
  std::erase_if(unfinished, [&](const StoredBatch& one) { return !may_try(one); });
  if (unfinished.empty()) return std::nullopt;
  const auto last_turn = [&](const StoredBatch& one) {
    const auto turn = turns_.find(one.owner);
    return turn == turns_.end() ? 0 : turn->second;
  };
  const auto next = std::ranges::min_element(unfinished, {}, last_turn);
  turns_[next->owner] = ++n_turns_;
  return std::move(*next);
}

bool BatchRunner::others_wait(const Run& run) {
  const auto unfinished = batches_.unfinished();
  return unfinished && std::ranges::any_of(*unfinished, [&](const StoredBatch& one) {
           return one.owner != run.batch.owner && may_try(one);
         });
}

// Ends a batch whose result files are damaged; the files stay unchanged.
Status BatchRunner::end_damaged(Run& run, const Error& error) {
  services_.log.error(fmt::format("{}: {}", run.batch.id, error.message));
  run.batch.errors =
      errors_json({{"damaged", "what was kept of its results cannot be read", "", 0}});
  const auto ended = batches_.update(run.batch, BatchStatus::kFailed);
  return ended ? Status() : Status(tl::unexpected(ended.error()));
}

// Whether the payer's key was revoked, so that nothing more may be computed.
bool BatchRunner::is_revoked(Run& run) const {
  if (run.revoked || !services_.accounts.is_revoked(run.batch.payer, run.batch.owner))
    return run.revoked;
  run.batch.errors = errors_json({{"key_revoked", "the API key was revoked", "", 0}});
  run.revoked = true;
  return true;
}

net::awaitable<void> BatchRunner::run_batch(StoredBatch batch) {
  const auto shared = std::make_shared<Run>(Run{.batch = std::move(batch)});
  Run& run = *shared;
  const std::string id = run.batch.id;
  const auto input = batches_.input_of(run.batch);
  std::vector<BatchMistake> mistakes;
  if (find_post_endpoint(run.batch.endpoint) == nullptr)
    mistakes.push_back({"invalid_endpoint", "this server has no such endpoint", "endpoint"});
  if (!input) {
    mistakes.push_back({"input_file", without_folders(input.error().message), "input_file_id"});
  } else {
    run.lines = read_batch(*input, run.batch.endpoint, mistakes);
  }
  auto results = batches_.results_of(run.batch);
  Status done = results ? Status() : tl::unexpected(results.error());
  if (!done && done.error().code == ErrorCode::kCorruptFile) {
    done = end_damaged(run, results.error());
  } else if (done) {
    run.results = std::move(*results);
    run.batch.total = static_cast<int64_t>(run.lines.size());
    if (is_revoked(run)) {
      done = batches_.finish(run.batch, BatchStatus::kCancelled, *run.results);
    } else if (!mistakes.empty()) {
      run.batch.errors = errors_json(mistakes);
      done = batches_.finish(run.batch, BatchStatus::kFailed, *run.results);
    } else if (const auto updated = batches_.update(run.batch, BatchStatus::kInProgress);
               !updated) {
      done = tl::unexpected(updated.error());
    } else {
      co_await run_lines(shared);
      if (stopping_) co_return;
      done = run.failure ? Status(tl::unexpected(*run.failure)) : Status();
    }
  }
  // A full disk or a fault of the server: results are kept, and the batch is tried again after others, until
  // it expires.
  if (!done) {
    services_.log.error(fmt::format("{}: {}", id, done.error().message));
    again_[id] = std::chrono::steady_clock::now() + kAgain;
  }
}

net::awaitable<void> BatchRunner::run_lines(const std::shared_ptr<Run>& run) {
  try {
    co_await compute_lines(run);
  } catch (const std::bad_alloc&) {
    run->failure = {ErrorCode::kResourceExhausted, "out of memory"};
    run->ending = true;
  } catch (const std::exception& error) {
    run->failure = {ErrorCode::kInternal, error.what()};
    run->ending = true;
  }
  if (run->n_under_way > 0) lines_.give_up();
  while (run->n_under_way > 0) co_await wait(kLook);
}

// Whether the batch was cancelled or has expired. Cancellation wakes the runner, so that the store
// is not queried for every line.
Status BatchRunner::look_for_end(Run& run, BatchStatus& end) {
  if (is_revoked(run)) end = BatchStatus::kCancelled;
  if (std::time(nullptr) >= run.batch.expires) end = BatchStatus::kExpired;
  if (!std::exchange(told_, false) && end == BatchStatus::kCompleted) return {};
  ASSIGN_OR_RETURN(const StoredBatch now, batches_.find(run.batch.owner, run.batch.id));
  if (now.status == BatchStatus::kCancelling) end = BatchStatus::kCancelled;
  return {};
}

// Whether the results have reached the owner's storage limit.
Status BatchRunner::look_for_room(Run& run, BatchStatus& end) {
  ASSIGN_OR_RETURN(const int64_t room, batches_.room_of(run.batch.owner));
  if (run.results->n_bytes() <= room || end != BatchStatus::kCompleted) return {};
  run.batch.errors = errors_json(
      {{"storage_full",
        fmt::format("the results have {} bytes, more than the {} that are left of what is kept for "
                    "this API key: delete some of its files",
                    run.results->n_bytes(), room),
        "", 0}});
  end = BatchStatus::kFailed;
  return {};
}

net::awaitable<void> BatchRunner::compute_lines(const std::shared_ptr<Run>& shared) {
  Run& run = *shared;
  size_t next = 0;
  BatchStatus end = BatchStatus::kCompleted;
  told_ = true;  // a cancellation may have come earlier
  const auto begin = std::chrono::steady_clock::now();
  auto written = begin, synced = begin;
  while (!stopping_ && !run.failure && end == BatchStatus::kCompleted) {
    while (next < run.lines.size() && run.results->has(run.lines[next].custom_id)) ++next;
    if (next == run.lines.size() && run.n_under_way == 0) break;
    if (const Status looked = look_for_end(run, end); !looked) run.failure = looked.error();
    if (end != BatchStatus::kCompleted || run.failure) break;
    if (run.paused && run.n_under_way == 0) break;
    for (int n = room(); next < run.lines.size() && run.n_under_way < n && !run.paused; ++next) {
      if (run.results->has(run.lines[next].custom_id)) continue;
      ++run.n_begun;
      net::co_spawn(thread_, run_line(UnderWay(*this, shared, run.lines[next])), net::detached);
    }
    co_await wait(kLook);
    const auto now = std::chrono::steady_clock::now();
    if (now - synced >= kSync || now - written >= std::chrono::seconds(1)) {
      synced = now;
      Status kept = run.results->sync();
      if (kept) kept = look_for_room(run, end);
      if (!kept) run.failure = kept.error();
    }
    if (run.failure || now - written < std::chrono::seconds(1)) continue;
    written = now;
    if ((now - begin >= kTurn || run.n_begun >= kTurnLines) && others_wait(run)) run.paused = true;
    run.batch.completed = run.results->n_completed(), run.batch.failed = run.results->n_failed();
    if (const auto updated = batches_.update(run.batch, BatchStatus::kInProgress); !updated)
      run.failure = updated.error();
  }
  if (run.paused && end == BatchStatus::kCompleted && !run.failure && next < run.lines.size())
    co_return;
  run.ending = true;
  const bool over = end == BatchStatus::kExpired || end == BatchStatus::kFailed;
  if (stopping_ || run.failure || run.revoked || over) lines_.give_up();
  while (run.n_under_way > 0) co_await wait(kLook);
  if (stopping_ || run.failure) co_return;
  for (const BatchLine& line : run.lines) {
    if (end != BatchStatus::kExpired || run.results->has(line.custom_id)) continue;
    const Status kept = run.results->append(
        true, line.custom_id,
        unanswered_line(line.custom_id, "batch_expired", "the batch's completion window is over"));
    if (!kept) run.failure = kept.error();
    if (!kept) co_return;
  }
  if (end == BatchStatus::kCompleted) {
    if (const auto updated = batches_.update(run.batch, BatchStatus::kFinalizing); !updated)
      run.failure = updated.error();
  }
  if (!run.failure) {
    if (const Status finished = batches_.finish(run.batch, end, *run.results); !finished)
      run.failure = finished.error();
  }
}

net::awaitable<void> BatchRunner::run_line(UnderWay one) {
  Run& run = one.run();
  try {
    HttpRequest request;
    request.client = run.batch.payer;
    request.record = std::make_shared<RequestRecord>();
    request.record->key = run.batch.key, request.record->payer = run.batch.payer;
    request.record->tenant = tenant_of(run.batch);
    request.peer = run.batch.id;
    const auto wanted = [&] { return !stopping_ && !run.ending; };
    const auto result = co_await lines_.compute(one.line(), std::move(request), wanted);
    if (!result) co_return;
    if (const Status kept = run.results->append(result->failed, one.line().custom_id, result->text);
        !kept)
      run.failure = kept.error();
    ++(result->failed ? counts_.lines_failed : counts_.lines_completed);
  } catch (const std::bad_alloc&) {
    run.failure = {ErrorCode::kResourceExhausted, "out of memory"};
  } catch (const std::exception& error) {
    run.failure = {ErrorCode::kInternal, error.what()};
  }
}

}  // namespace penstock

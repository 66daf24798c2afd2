#include "server/services/background_runs.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/free_memory.h"
#include "server/http/post_surely.h"
#include "server/services/request_record.h"

namespace penstock {
namespace {

constexpr auto kQueueIsFull = std::chrono::milliseconds(500);  // delay before a retry
constexpr size_t kLargeRequest = 64 * 1024;  // bytes; larger requests are not kept by a run

}  // namespace

bool BackgroundRun::take(size_t& next, std::string& text) const {
  const std::scoped_lock lock(mutex_);
  for (; next < events_.size(); ++next) text += events_[next];
  return !ended_;
}

std::string BackgroundRun::events() const {
  std::string text;
  size_t next = 0;
  take(next, text);
  return text;
}

void BackgroundRun::watch(const std::shared_ptr<News>& news) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(watchers_, [](const auto& one) { return one.expired(); });
  watchers_.push_back(news);
}

void BackgroundRun::tell() {
  std::vector<std::weak_ptr<News>> watchers;
  {
    const std::scoped_lock lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& one : watchers) {
    if (const auto news = one.lock()) (*news)();
  }
}

// A chunk consists of whole events, each with a final empty line, and of comments, which are
// dropped.
void BackgroundRun::add(std::string_view chunk) {
  {
    const std::scoped_lock lock(mutex_);
    while (!chunk.empty()) {
      constexpr std::string_view kEnd = "\n\n";
      const size_t end = std::min(chunk.find(kEnd), chunk.size() - kEnd.size()) + kEnd.size();
      if (chunk.front() != ':') events_.emplace_back(chunk.substr(0, end));
      chunk.remove_prefix(end);
    }
  }
  tell();
}

void BackgroundRun::end() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  tell();
}

// The exchange of a background run.
class BackgroundRun::Away final : public UnattendedExchange {
 public:
  Away(net::any_io_executor executor, HttpRequest request, BackgroundRun& run,
       BackgroundRuns::Room& room)
      : UnattendedExchange(std::move(executor), std::move(request)), run_(run), room_(room) {}

  net::awaitable<bool> begin_stream(HttpReply head) override {
    run_.begun_ = true;
    co_return co_await UnattendedExchange::begin_stream(std::move(head));
  }
  void put(std::string_view chunk) override {
    if (!run_.keeps_events_ || chunk.empty()) return;
    run_.add(chunk);
    n_bytes_ += chunk.size();
    const size_t more = n_bytes_ - std::min(n_bytes_, room_.events);
    const bool fits = more == 0 || room_.budget.take(static_cast<int64_t>(more));
    room_.events += fits ? more : 0;
    if ((!fits || n_bytes_ > BackgroundRuns::kMostBytes) && !gone()) {
      run_.overflowed_ = true;
      leave();
    }
  }

 private:
  BackgroundRun& run_;
  BackgroundRuns::Room& room_;
  size_t n_bytes_ = 0;
};

BackgroundRuns::~BackgroundRuns() {
  drain(std::chrono::steady_clock::now());
  thread_.join();
}

std::unique_ptr<BackgroundRuns::Room> BackgroundRuns::room_for(const std::string& asker,
                                                               size_t n_held, size_t n_events) {
  auto room = std::make_unique<Room>();
  room->budget.attach(n_bytes_, static_cast<int64_t>(kMostBytesOfAll));
  room->budget.share(shares_, asker);
  room->events = n_events;
  return room->budget.take(static_cast<int64_t>(n_held + n_events)) ? std::move(room) : nullptr;
}

std::shared_ptr<BackgroundRun> BackgroundRuns::start(const std::string& id, bool keeps_events,
                                                     const Exchange& asked,
                                                     std::unique_ptr<Room> room, Work work) {
  auto task = std::make_unique<Task>(*this);
  task->run = std::make_shared<BackgroundRun>(id, record_of(asked).payer, keeps_events);
  task->request = asked.request();
  if (task->request.body.size() > kLargeRequest) free_memory(task->request.body);
  task->spending = record_of(asked).spending;
  task->request.record = record_of(asked).of_same_caller();
  task->work = std::move(work);
  auto run = task->run;
  {
    const std::scoped_lock lock(mutex_);
    runs_[id] = run;
  }
  task->room = std::move(room);
  net::co_spawn(thread_, carry_out(std::move(task)), net::detached);
  return run;
}

std::shared_ptr<BackgroundRun> BackgroundRuns::find(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

int BackgroundRuns::n_running() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(runs_.size());
}

void BackgroundRuns::cancel(const std::string& id) {
  const auto run = find(id);
  if (run == nullptr) return;
  run->cancelled_ = true;
  net::post(thread_, [run] {
    if (run->leave_) run->leave_();
  });
}

void BackgroundRuns::cancel_those_of(const std::string& payer) {
  std::vector<std::string> ids;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, run] : runs_) {
      if (run->payer_ == payer) ids.push_back(id);
    }
  }
  for (const std::string& id : ids) cancel(id);
}

void BackgroundRuns::drain(std::chrono::steady_clock::time_point end,
                           const std::function<void()>& at_end) {
  std::unique_lock lock(mutex_);
  const auto none = [&] { return runs_.empty(); };
  if (ended_.wait_until(lock, end, none)) return;
  stopping_ = true;
  for (const auto& [id, run] : runs_) {
    net::post(thread_, [run = run] {
      if (run->leave_) run->leave_();
    });
  }
  if (at_end) {
    lock.unlock();
    at_end();
    lock.lock();
  }
  ended_.wait(lock, none);
}

net::awaitable<bool> BackgroundRuns::try_once(Task& task) {
  BackgroundRun& run = *task.run;
  HttpRequest request = task.request;
  request.record = record_of(request).of_same_caller();
  if (task.spending != nullptr) request.record->spending = task.spending->renewed();
  // A model that has to go ends the run, as it ends other requests.
  const auto attempt = std::make_shared<BackgroundRun*>(&run);  // of the lease that is cut
  request.record->cut = [this, weak = std::weak_ptr(attempt)] {
    post_surely(thread_.get_executor(), [weak] {
      const auto one = weak.lock();
      if (one != nullptr && (*one)->leave_) (*one)->leave_();
    });
  };
  BackgroundRun::Away exchange(thread_.get_executor(), std::move(request), run, *task.room);
  run.leave_ = [&exchange] { exchange.leave(); };
  if (run.cancelled_ || stopping_) exchange.leave();
  try {
    co_await task.work(run, exchange);
  } catch (const std::exception&) {
    exchange.leave();  // after bad_alloc, for example
  }
  run.leave_ = nullptr;
  co_return exchange.status() != 429 || exchange.gone() || record_of(exchange).over_budget;
}

net::awaitable<void> BackgroundRuns::carry_out(std::unique_ptr<Task> task) {
  const std::shared_ptr<BackgroundRun> run = task->run;
  while (!co_await try_once(*task)) {
    net::steady_timer again(thread_, kQueueIsFull);
    run->leave_ = [&again] { again.cancel(); };
    boost::system::error_code ignored;
    co_await again.async_wait(net::redirect_error(net::use_awaitable, ignored));
    run->leave_ = nullptr;
  }
}

// Also releases the model's lease.
void BackgroundRuns::end(Task& task) {
  task.work = nullptr;
  task.room = nullptr;
  task.spending = nullptr;
  if (task.run == nullptr) return;
  task.run->leave_ = nullptr;
  try {
    task.run->end();
  } catch (const std::bad_alloc&) {  // notification failed: watchers also poll
  }
  const std::scoped_lock lock(mutex_);
  const auto own = runs_.find(task.run->id());
  if (own != runs_.end() && own->second == task.run) runs_.erase(own);
  ended_.notify_all();
}

}  // namespace penstock

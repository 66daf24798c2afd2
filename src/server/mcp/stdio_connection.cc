#include "server/mcp/stdio_connection.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience(250);  // grace period for the program to exit
constexpr std::chrono::milliseconds kLook(100);      // polling interval for stop requests
constexpr size_t kMostLogged = 400;                  // bytes of a line
constexpr int kMostLines = 50;                       // log lines per minute
// time per minute for answering the program's requests
constexpr std::chrono::seconds kToAnswer(2);
constexpr std::chrono::seconds kToWrite(60);  // time to complete a partially written message
constexpr size_t kMostUnclaimed = 64;         // answers that do not show whose they are

// Turns SIGPIPE into an error of write() for the object's lifetime.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec none{};
    while (sigtimedwait(&pipe_, nullptr, &none) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

// Returns an error if the writer no longer waits.
Status still_waits(const McpWait& wait) {
  if (wait.stop.stop_requested()) return errorf(ErrorCode::kCancelled, "cancelled");
  if (Steady::now() < wait.deadline) return {};
  return errorf(ErrorCode::kDeadlineExceeded, "the program does not read its input");
}

}  // namespace

template <class Take>
bool StdioConnection::Lines::read(int fd, size_t most, bool cuts, Take&& take) {
  std::array<char, 16384> buffer;
  constexpr int kAtOnce = 16;
  for (int i = 0; i < kAtOnce; ++i) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    std::string_view piece(buffer.data(), static_cast<size_t>(n));
    for (size_t end; (end = piece.find('\n')) != std::string_view::npos; held.clear()) {
      held += piece.substr(0, end);
      piece.remove_prefix(end + 1);
      take(std::string_view(held));
    }
    held += piece;
    if (held.size() <= most) continue;
    if (!cuts) return false;
    take(std::string_view(held));
    held.clear();
  }
  return true;
}

Result<std::unique_ptr<McpConnection>> StdioConnection::open(const McpServerConfig& config,
                                                             McpNotices notices) {
  OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0)
    return errorf(ErrorCode::kIo, "an eventfd cannot be made: {}", std::strerror(errno));
  ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::start(config));
  std::unique_ptr<StdioConnection> connection(
      new StdioConnection(std::move(process), std::move(notices), std::move(wake)));
  return connection;
}

StdioConnection::StdioConnection(ChildProcess process, McpNotices notices, OwnedFd wake)
    : notices_(std::move(notices)), wake_(std::move(wake)), process_(std::move(process)) {
  thread_ = std::thread([this] { read_all(); });
}

StdioConnection::~StdioConnection() {
  leave();
  thread_.join();
}

void StdioConnection::leave() {
  leaving_ = true;
  eventfd_write(wake_.get(), 1);
}

void StdioConnection::read_all() {
  Lines output, errors;
  std::string why = "is stopped";
  bool reads_errors = true;
  try {
    while (!leaving_) {
      std::array<pollfd, 3> ready = {{{wake_.get(), POLLIN, 0},
                                      {process_.output.get(), POLLIN, 0},
                                      {reads_errors ? process_.errors.get() : -1, POLLIN, 0}}};
      if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) break;
      if (ready[2].revents != 0)
        reads_errors = errors.read(process_.errors.get(), kMostLogged, true,
                                   [this](auto line) { log_line(line); });
      if (ready[1].revents == 0) continue;
      if (output.read(process_.output.get(), kMostMcpMessage, false,
                      [this](auto line) { take_line(line); }))
        continue;
      why = output.held.size() > kMostMcpMessage
                ? fmt::format("has written a line of more than {} bytes", kMostMcpMessage)
                : "has closed its output";
      break;
    }
  } catch (const std::bad_alloc&) {
    why = "has written more than there is memory for";
  } catch (const std::exception& error) {
    why = fmt::format("has written what could not be read ({})", error.what());
  }
  end(stuck_ ? "does not read its input" : why);
}

// Fails the waiting requests before waiting for the program to exit, which may take a second.
void StdioConnection::end(const std::string& why) {
  const bool by_itself = !leaving_ || stuck_;  // leaving_ may be set by a notified waiter
  {
    const std::lock_guard lock(mutex_);
    why_ended_ = why;
    ended_ = true;
  }
  answered_.notify_all();
  {
    const std::lock_guard lock(writing_);
    process_.input.reset();
  }
  const std::string how = process_.end(kPatience);
  if (by_itself) notices_.log(fmt::format("{}; the program {}", why, how));
}

void StdioConnection::look_at_minute() {
  const auto now = Steady::now();
  if (now - minute_.begin <= std::chrono::minutes(1)) return;
  if (minute_.n_logged > kMostLines)
    notices_.log(fmt::format("{} lines were left out", minute_.n_logged - kMostLines));
  minute_ = {.begin = now};
}

void StdioConnection::log_line(std::string_view line) {
  look_at_minute();
  if (line.empty() || ++minute_.n_logged > kMostLines) return;
  std::string shown(line.substr(0, kMostLogged));
  // removes terminal control characters
  for (char& c : shown) c = c >= 0 && (c < ' ' || c == 0x7f) ? ' ' : c;
  notices_.log(shown);
}

void StdioConnection::take_line(std::string_view line) {
  if (leaving_) return;
  const auto received = read_rpc(line);
  if (received.is_discarded()) {
    log_line(line);  // output that is not JSON goes to the log
    if (seems_rpc(line)) take_unreadable(line);
    return;
  }
  for_each_rpc(received, [this](const McpJson& message) {
    take_message(message);
    return true;
  });
}

void StdioConnection::take_message(const McpJson& message) {
  if (is_rpc_request(message)) return answer(message);
  if (message.is_object() &&
      message.value("method", McpJson()) == "notifications/tools/list_changed")
    return notices_.tools_changed();
  if (is_rpc_error_without_id(message)) return take_unclaimed(rpc_outcome(message));
  const auto id = is_rpc_response(message) ? rpc_id(message) : std::nullopt;
  if (!id || end_request(*id, rpc_outcome(message))) return;
  const std::lock_guard lock(mutex_);
  claim(*id);  // an answer that comes late
}

// An answer that cannot be read belongs to the request whose id it shows; take_unclaimed() has those
// without any.
void StdioConnection::take_unreadable(std::string_view line) {
  const std::vector<int64_t> ids = rpc_ids_in(line);
  if (ids.empty()) return take_unclaimed(unreadable_rpc());
  for (const int64_t id : ids) {
    if (end_request(id, unreadable_rpc())) return;
  }
}

// false: nobody waits for it.
bool StdioConnection::end_request(int64_t id, Result<McpJson> outcome) {
  {
    const std::lock_guard lock(mutex_);
    const auto waits = waiting_.find(id);
    if (waits == waiting_.end()) return false;
    waits->second = std::move(outcome);
    claim(id);
  }
  answered_.notify_all();
  return true;
}

// An answer that does not show whose it is belongs to one of those that wait. It ends the one that
// is left when the others have theirs: no request ends by another one's broken answer.
void StdioConnection::take_unclaimed(Result<McpJson> outcome) {
  const std::lock_guard lock(mutex_);
  if (unclaimed_.size() == kMostUnclaimed) return;
  Unclaimed& one = unclaimed_.emplace_back();
  one.outcome = std::move(outcome);
  for (const auto& [id, has] : waiting_) {
    if (!has) one.askers.insert(id);
  }
  settle_unclaimed();
}

// Notes that a request has its answer, or was never sent. REQUIRES: mutex_.
void StdioConnection::claim(int64_t id) {
  for (Unclaimed& one : unclaimed_) one.askers.erase(id);
  settle_unclaimed();
}

// Notes that a request ends without an answer: one that does not show whose it is may have been its,
// so that nobody else ends by it. REQUIRES: mutex_.
void StdioConnection::leave_unclaimed(int64_t id) {
  std::erase_if(unclaimed_, [&](const Unclaimed& one) {
    return one.askers.contains(id) && std::ranges::none_of(one.askers, [this](int64_t asker) {
             return waiting_.contains(asker);
           });
  });
}

// Ends requests of which as many wait as there are answers that can only be theirs. REQUIRES:
// mutex_.
void StdioConnection::settle_unclaimed() {
  const auto is_theirs = [this](const std::set<int64_t>& askers) {
    return std::ranges::count_if(unclaimed_, [&](const Unclaimed& other) {
             return std::ranges::includes(askers, other.askers);
           }) >= std::ssize(askers);
  };
  for (size_t i = 0; i < unclaimed_.size();) {
    if (!is_theirs(unclaimed_[i].askers)) {
      ++i;
      continue;
    }
    const Unclaimed found = std::exchange(unclaimed_[i], Unclaimed());
    for (const int64_t id : found.askers) {
      if (const auto waits = waiting_.find(id); waits != waiting_.end())
        waits->second = found.outcome;
      for (Unclaimed& one : unclaimed_) one.askers.erase(id);
    }
    std::erase_if(unclaimed_, [](const Unclaimed& one) { return one.askers.empty(); });
    i = 0;
    answered_.notify_all();
  }
}

// Runs on the reader thread, which a program that does not read its input must not block for long.
// A message within the pipe's atomic size is written completely or not at all.
void StdioConnection::answer(const McpJson& request) {
  look_at_minute();
  const std::string line = rpc_answer(request);
  if (line.size() >= PIPE_BUF) return;
  const auto start = Steady::now();
  (void)write(line, {start + std::max(kToAnswer - minute_.answering, Steady::duration()), {}});
  minute_.answering += Steady::now() - start;
}

Result<McpJson> StdioConnection::request(std::string_view method, const McpJson& params,
                                         const McpWait& wait) {
  std::unique_lock lock(mutex_);
  const int64_t id = next_id_++;
  Outcome& outcome = waiting_[id];
  lock.unlock();
  const Status written = write(rpc_request(id, method, params), wait);
  lock.lock();
  if (written)
    answered_.wait_until(lock, wait.stop, wait.deadline, [&] { return outcome || ended_; });
  Outcome answer = std::move(outcome);
  waiting_.erase(id);
  if (!written) claim(id);
  if (!answer) leave_unclaimed(id);
  const std::string why_ended = why_ended_;
  lock.unlock();
  if (!written) return tl::unexpected(written.error());
  if (answer) return *std::move(answer);
  if (ended_) return errorf(ErrorCode::kIo, "{}: the program {}", method, why_ended);
  if (method != "initialize") {
    constexpr std::chrono::seconds kToSay(1);
    (void)notify("notifications/cancelled", {{"requestId", id}, {"reason", "nobody waits for it"}},
                 {Steady::now() + kToSay, {}});
  }
  return no_answer_in_time(method, wait);
}

Status StdioConnection::notify(std::string_view method, const McpJson& params,
                               const McpWait& wait) {
  return write(rpc_notification(method, params), wait);
}

Status StdioConnection::write(std::string_view line, const McpWait& wait) {
  const std::string text = std::string(line) + "\n";
  std::unique_lock lock(writing_, std::defer_lock);
  while (!lock.try_lock_for(std::min<Steady::duration>(kLook, wait.deadline - Steady::now())))
    RETURN_IF_ERROR(still_waits(wait));
  const WithoutSigpipe quiet;
  std::string_view rest = text;
  while (rest.size() == text.size()) RETURN_IF_ERROR(write_some(rest, wait));
  // A message must be written completely once it has begun, even if its sender leaves, since others
  // share the pipe.
  const McpWait own{Steady::now() + kToWrite, {}};
  while (!rest.empty()) {
    const Status some = write_some(rest, own);
    if (some) continue;
    stuck_ = !leaving_;
    leave();
    return some;
  }
  return {};
}

Status StdioConnection::write_some(std::string_view& rest, const McpWait& wait) {
  const int fd = process_.input.get();
  if (fd < 0 || ended_ || leaving_) return errorf(ErrorCode::kIo, "the program has ended");
  const ssize_t n = ::write(fd, rest.data(), rest.size());
  if (n >= 0) {
    rest.remove_prefix(static_cast<size_t>(n));
    return {};
  }
  if (errno == EINTR) return {};
  if (errno != EAGAIN)
    return errorf(ErrorCode::kIo, "the program does not read its input: {}", std::strerror(errno));
  RETURN_IF_ERROR(still_waits(wait));
  pollfd ready{fd, POLLOUT, 0};
  poll(&ready, 1, static_cast<int>(kLook.count()));
  return {};
}

}  // namespace penstock

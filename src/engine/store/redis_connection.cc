#include "engine/store/redis_connection.h"

#include <hiredis/hiredis.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/store/redis_socket.h"

namespace penstock {
namespace {

// Functions that refuse arrays, whose length the server alone would decide: no command here is
// answered by one.
redisReplyObjectFunctions without_arrays(const redisReplyObjectFunctions& all) {
  redisReplyObjectFunctions functions = all;
  functions.createArray = [](const redisReadTask*, auto) -> void* { return nullptr; };
  return functions;
}

// What a server says stands in the log: without lines of its own and sequences of a terminal.
Status refused(const redisReply& reply) {
  std::string text(reply.str, reply.len);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  const bool full = text.starts_with("OOM");
  return make_error(full ? ErrorCode::kResourceExhausted : ErrorCode::kIo, text);
}

}  // namespace

// A line to a server; made and used by one thread after the other.
class RedisLine {
 public:
  using Clock = std::chrono::steady_clock;
  // Looks the address up, connects and logs in.
  static Result<std::unique_ptr<RedisLine>> open(const RedisAddress& address,
                                                 const RedisTimes& times);
  // As RedisConnection::call().
  Result<RedisReply> exchange(std::span<const std::string_view> command, int64_t most);
  // Causes of a failed exchange, for the last one: the line was closed before an answer came; or
  // the server answered with an error, and the line can be used again.
  bool closed() const { return closed_; }
  bool answered() const { return answered_; }

 private:
  explicit RedisLine(const RedisTimes& times) : times_(times) {}
  Status log_in(const RedisAddress& address);
  // Fills reply_.
  Status receive(int64_t most, Clock::time_point latest);

  struct FreeReply {
    void operator()(void* reply) const { freeReplyObject(reply); }
  };
  RedisTimes times_;
  std::unique_ptr<RedisSocket> socket_;
  std::unique_ptr<void, FreeReply> reply_;  // the last one
  bool closed_ = false, answered_ = false;
};

Result<std::unique_ptr<RedisLine>> RedisLine::open(const RedisAddress& address,
                                                   const RedisTimes& times) {
  std::unique_ptr<RedisLine> line(new RedisLine(times));
  ASSIGN_OR_RETURN(line->socket_, RedisSocket::open(address, Clock::now() + times.longest_answer));
  redisReader& reader = line->socket_->reader();
  static redisReplyObjectFunctions functions = without_arrays(*reader.fn);
  reader.fn = &functions;
  RETURN_IF_ERROR(line->log_in(address));
  return line;
}

Status RedisLine::log_in(const RedisAddress& address) {
  constexpr int64_t kShort = 4096;
  std::vector<std::string_view> command = {"AUTH"};
  if (!address.user.empty()) command.emplace_back(address.user);
  command.emplace_back(address.password);
  // The error message of a server is not shown: some repeat the command, with the password.
  if (!address.password.empty() && !exchange(command, kShort))
    return make_error(ErrorCode::kIo, "the user or the password was refused");
  const std::string database = std::to_string(address.database);
  if (address.database != 0)
    RETURN_IF_ERROR(exchange(std::array<std::string_view, 2>{"SELECT", database}, kShort));
  return {};
}

Status RedisLine::receive(int64_t most, Clock::time_point latest) {
  std::array<char, 65536> part;
  redisReader& reader = socket_->reader();
  for (int64_t n_received = 0;;) {
    void* reply = nullptr;
    if (redisReaderGetReply(&reader, &reply) != REDIS_OK)
      return make_error(ErrorCode::kIo, reader.errstr);
    reply_.reset(reply);
    if (reply != nullptr) return {};
    if (n_received >= most) return errorf(ErrorCode::kIo, "an answer of over {} bytes", most);
    const size_t room = std::min(part.size(), static_cast<size_t>(most - n_received));
    const Result<size_t> n = socket_->receive(std::span(part).first(room), latest);
    closed_ = socket_->closed() && n_received == 0;
    if (!n) return tl::unexpected(n.error());
    if (*n == 0) return make_error(ErrorCode::kIo, "the connection was closed");
    if (Clock::now() > latest) return make_error(ErrorCode::kIo, "no whole answer in time");
    if (redisReaderFeed(&reader, part.data(), *n) != REDIS_OK)
      return make_error(ErrorCode::kIo, reader.errstr);
    n_received += static_cast<int64_t>(*n);
  }
}

Result<RedisReply> RedisLine::exchange(std::span<const std::string_view> command, int64_t most) {
  constexpr size_t kShortPart = 4096;  // sent with what stands around it
  closed_ = answered_ = false;
  std::string head = fmt::format("*{}\r\n", command.size());
  int64_t bytes = most;
  for (const std::string_view part : command) bytes += std::ssize(part);
  const auto latest = Clock::now() + times_.longest_answer + std::chrono::seconds(bytes >> 23);
  const auto send = [&](std::string_view bytes) {
    Status sent = socket_->send(bytes, latest);
    closed_ = socket_->closed();
    return sent;
  };
  for (const std::string_view part : command) {
    head += fmt::format("${}\r\n", part.size());
    if (part.size() <= kShortPart) {
      head += part;
    } else {
      RETURN_IF_ERROR(send(head));
      RETURN_IF_ERROR(send(part));
      head.clear();
    }
    head += "\r\n";
  }
  RETURN_IF_ERROR(send(head));
  RETURN_IF_ERROR(receive(most, latest));
  const redisReply& reply = *static_cast<const redisReply*>(reply_.get());
  switch (reply.type) {
    case REDIS_REPLY_NIL: return RedisReply{};
    case REDIS_REPLY_INTEGER: return RedisReply{RedisReply::Kind::kNumber, reply.integer, {}};
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_STRING:
      return RedisReply{RedisReply::Kind::kText, 0, {reply.str, static_cast<size_t>(reply.len)}};
    case REDIS_REPLY_ERROR:
      if (const std::string_view text(reply.str, static_cast<size_t>(reply.len));
          text.starts_with("MOVED ") || text.starts_with("ASK "))
        return RedisReply{RedisReply::Kind::kElsewhere, 0, text};
      answered_ = true;
      return tl::unexpected(refused(reply).error());
    default: return make_error(ErrorCode::kIo, "an answer of another kind");
  }
}

struct RedisConnection::Dial {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<std::unique_ptr<RedisLine>>> line;
};

RedisConnection::RedisConnection(RedisAddress address, RedisTimes times)
    : address_(std::move(address)), times_(times), rest_(times.rest) {}
RedisConnection::~RedisConnection() = default;

// Errors: kNotFound: it goes on.
Status RedisConnection::connect() {
  const auto latest =
      Clock::now() + (dial_ == nullptr ? times_.longest_connecting : std::chrono::milliseconds(0));
  if (dial_ == nullptr) {
    try {
      auto made = std::make_shared<Dial>();
      // It owns what it works with: a name server that does not answer holds it alone.
      std::thread([made, address = address_, times = times_] {
        Result<std::unique_ptr<RedisLine>> line;
        try {
          line = RedisLine::open(address, times);
        } catch (const std::exception&) {
          line = tl::unexpected(Error{ErrorCode::kResourceExhausted, "no memory"});
        }
        const std::lock_guard lock(made->mutex);
        made->line = std::move(line);
        made->ended.notify_one();
      }).detach();
      dial_ = std::move(made);
    } catch (const std::system_error& error) {
      return make_error(ErrorCode::kResourceExhausted, error.what());
    }
  }
  const std::shared_ptr<Dial> dial = dial_;
  std::unique_lock lock(dial->mutex);
  if (!dial->ended.wait_until(lock, latest, [&] { return dial->line.has_value(); }))
    return errorf(ErrorCode::kNotFound, "{} is being connected to", address_.name());
  dial_.reset();
  ASSIGN_OR_RETURN(line_, *std::move(dial->line));
  return {};
}

void RedisConnection::rest(const Error& error) {
  rests_until_ = Clock::now() + rest_;
  log().warn("kv store: redis {}: {}: not asked for the next {} ms", address_.name(), error.message,
             rest_.count());
  rest_ = std::min<std::chrono::milliseconds>(2 * rest_, 30 * times_.rest);
}

Result<RedisReply> RedisConnection::call(std::span<const std::string_view> command, int64_t most) {
  if (Clock::now() < rests_until_)
    return errorf(ErrorCode::kNotFound, "{} is not asked for a while", address_.name());
  const auto attempt = [&]() -> Result<RedisReply> {
    if (line_ == nullptr) RETURN_IF_ERROR(connect());
    return line_->exchange(command, most);
  };
  const bool idle = line_ != nullptr || dial_ != nullptr;  // it may have been closed meanwhile
  Result<RedisReply> reply = attempt();
  if (!reply && idle && line_ != nullptr && line_->closed()) {
    line_.reset();
    reply = attempt();
  }
  if (reply) {
    rest_ = times_.rest;
    return reply;
  }
  const Error& error = reply.error();
  if (dial_ != nullptr) return reply;
  const bool goes_on = line_ != nullptr && line_->answered();
  if (!goes_on) line_.reset();  // what may still come is the answer to this call
  if (!goes_on || error.code == ErrorCode::kResourceExhausted) {
    rest(error);
  } else if (Clock::now() >= silent_until_) {
    silent_until_ = Clock::now() + times_.rest;
    log().warn("kv store: redis {}: {}", address_.name(), error.message);
  }
  return reply;
}

}  // namespace penstock

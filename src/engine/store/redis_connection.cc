#include "engine/store/redis_connection.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/store/lone_thread.h"

namespace penstock {
namespace {

// Returns the number of `text`, all of which is one of 0 to `most`; -1: it is not.
int number_of(std::string_view text, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most ? number : -1;
}

// Decodes %XX; false: what follows a % is not two hexadecimal digits.
bool decode(std::string_view text, std::string& to) {
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = static_cast<unsigned char>(text[i]);
    if (byte == '%') {
      const std::string_view digits = text.substr(std::min(i + 1, text.size()), 2);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) return false;
      i += 2;
    }
    to += static_cast<char>(byte);
  }
  return true;
}

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

std::string RedisAddress::name() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port)
                                             : fmt::format("{}:{}", host, port);
}

Result<RedisAddress> parse_redis(const std::string& url) {
  RedisAddress address;
  std::string_view rest = url;
  if (!rest.starts_with(kRedisScheme))
    return errorf(ErrorCode::kInvalidArgument, "expected {}HOST:PORT", kRedisScheme);
  rest.remove_prefix(kRedisScheme.size());
  const auto refuse = [](std::string_view what, std::string_view got) {
    return errorf(ErrorCode::kInvalidArgument, "redis: expected {}, got '{}'", what, got);
  };
  const size_t at = rest.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const size_t colon = std::min(who.find(':'), who.size());
    if (colon == who.size() || !decode(who.substr(0, colon), address.user) ||
        !decode(who.substr(colon + 1), address.password) || address.password.empty())
      return refuse("USER:PASSWORD@ or :PASSWORD@ with %XX for special characters", "another");
    rest.remove_prefix(at + 1);
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  if (slash + 1 < rest.size()) {
    address.database = number_of(rest.substr(slash + 1), 1 << 20);
    if (address.database < 0) return refuse("a number of a database", rest.substr(slash + 1));
  }
  rest = rest.substr(0, slash);
  const bool brackets = rest.starts_with('[');  // an IPv6 address
  const size_t host_end = brackets ? rest.find(']') : std::min(rest.find(':'), rest.size());
  if (host_end == std::string_view::npos) return refuse("a ] behind an IPv6 address", rest);
  address.host = rest.substr(brackets, host_end - brackets);
  if (address.host.empty()) return refuse("a host", rest);
  rest.remove_prefix(host_end + brackets);
  if (!rest.empty()) {
    address.port = rest.starts_with(':') ? number_of(rest.substr(1), 65535) : -1;
    if (address.port <= 0) return refuse("a port of 1 to 65535", rest);
  }
  return address;
}

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
  Status send(std::string_view bytes, Clock::time_point latest);
  // Fills reply_.
  Status receive(int64_t most, Clock::time_point latest);
  Status wait_for(short events, Clock::time_point latest) const;

  struct Close {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  struct FreeReply {
    void operator()(void* reply) const { freeReplyObject(reply); }
  };
  RedisTimes times_;
  std::unique_ptr<redisContext, Close> context_;
  std::unique_ptr<void, FreeReply> reply_;  // the last one
  bool closed_ = false, answered_ = false;
};

Status RedisLine::wait_for(short events, Clock::time_point latest) const {
  for (;;) {
    pollfd one{context_->fd, events, 0};
    const int n = poll(&one, 1, static_cast<int>(time_until(latest).count()));
    if (n > 0) return {};
    if (n == 0)
      return errorf(ErrorCode::kIo, "no answer within {} ms", times_.longest_answer.count());
    if (errno != EINTR) return make_error(ErrorCode::kIo, std::strerror(errno));
  }
}

Result<std::unique_ptr<RedisLine>> RedisLine::open(const RedisAddress& address,
                                                   const RedisTimes& times) {
  std::unique_ptr<RedisLine> line(new RedisLine(times));
  line->context_.reset(redisConnectNonBlock(address.host.c_str(), address.port));
  redisContext* const context = line->context_.get();
  if (context == nullptr) return make_error(ErrorCode::kResourceExhausted, "out of memory");
  if (context->err != 0) return make_error(ErrorCode::kIo, context->errstr);
  RETURN_IF_ERROR(line->wait_for(POLLOUT, Clock::now() + times.longest_answer));
  int code = 0;
  socklen_t size = sizeof(code);
  getsockopt(context->fd, SOL_SOCKET, SO_ERROR, &code, &size);
  if (code != 0) return make_error(ErrorCode::kIo, std::strerror(code));
  const int on = 1, idle_seconds = 60;
  setsockopt(context->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(context->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(context->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds));
  static redisReplyObjectFunctions functions = without_arrays(*context->reader->fn);
  context->reader->fn = &functions;
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

Status RedisLine::send(std::string_view bytes, Clock::time_point latest) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(context_->fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(wait_for(POLLOUT, latest));
    } else if (errno != EINTR) {
      closed_ = errno == EPIPE || errno == ECONNRESET;
      return make_error(ErrorCode::kIo, std::strerror(errno));
    }
  }
  return {};
}

Status RedisLine::receive(int64_t most, Clock::time_point latest) {
  std::array<char, 65536> part;
  for (int64_t n_received = 0;;) {
    void* reply = nullptr;
    if (redisReaderGetReply(context_->reader, &reply) != REDIS_OK)
      return make_error(ErrorCode::kIo, context_->reader->errstr);
    reply_.reset(reply);
    if (reply != nullptr) return {};
    if (n_received >= most) return errorf(ErrorCode::kIo, "an answer of over {} bytes", most);
    const ssize_t n =
        recv(context_->fd, part.data(),
             std::min(part.size(), static_cast<size_t>(most - n_received)), MSG_DONTWAIT);
    if (n == 0) {
      closed_ = n_received == 0;
      return make_error(ErrorCode::kIo, "the connection was closed");
    }
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      closed_ = errno == ECONNRESET && n_received == 0;
      return make_error(ErrorCode::kIo, std::strerror(errno));
    }
    if (n < 0 && errno != EINTR) RETURN_IF_ERROR(wait_for(POLLIN, latest));
    if (n < 0) continue;
    if (Clock::now() > latest)
      return errorf(ErrorCode::kIo, "no whole answer within {} ms", times_.longest_answer.count());
    if (redisReaderFeed(context_->reader, part.data(), static_cast<size_t>(n)) != REDIS_OK)
      return make_error(ErrorCode::kIo, context_->reader->errstr);
    n_received += n;
  }
}

Result<RedisReply> RedisLine::exchange(std::span<const std::string_view> command, int64_t most) {
  closed_ = answered_ = false;
  std::string head = fmt::format("*{}\r\n", command.size());
  int64_t bytes = most;
  for (const std::string_view part : command) bytes += std::ssize(part);
  const auto latest = Clock::now() + times_.longest_answer + std::chrono::seconds(bytes >> 23);
  for (const std::string_view part : command) {
    head += fmt::format("${}\r\n", part.size());
    RETURN_IF_ERROR(send(head, latest));
    RETURN_IF_ERROR(send(part, latest));
    head = "\r\n";
  }
  RETURN_IF_ERROR(send(head, latest));
  RETURN_IF_ERROR(receive(most, latest));
  const redisReply& reply = *static_cast<const redisReply*>(reply_.get());
  switch (reply.type) {
    case REDIS_REPLY_NIL: return RedisReply{};
    case REDIS_REPLY_INTEGER: return RedisReply{RedisReply::Kind::kNumber, reply.integer, {}};
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_STRING:
      return RedisReply{RedisReply::Kind::kText, 0, {reply.str, static_cast<size_t>(reply.len)}};
    case REDIS_REPLY_ERROR: answered_ = true; return tl::unexpected(refused(reply).error());
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

// One HTTP connection: reads requests, answers them through the handler, enforces timeouts and
// detects disconnects. Runs on the io thread that owns it.
#pragma once
#include <poll.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <type_traits>

#include "base/free_memory.h"
#include "server/http/http_body.h"
#include "server/http/http_server.h"

namespace penstock {

using boost::system::error_code;
using net::ip::tcp;
using TlsSocket = net::ssl::stream<tcp::socket>;
inline constexpr auto kNoThrow = net::as_tuple(net::use_awaitable);

// State shared by the connections of a server; outlives them.
struct HttpShared {
  HttpConfig config;
  HttpHandler handler;
  HttpErrorBody error_body;
  HttpCounters counters;
  BodyShares body_shares;   // by API key
  BodyShares reply_shares;  // by API key or address
  BodyShares places;        // connections by address
  std::atomic<bool> stopping{false};
};

// Increments a counter for the lifetime of the object.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(&count) { count.fetch_add(1); }
  Counted(Counted&& from) noexcept : count_(std::exchange(from.count_, nullptr)) {}
  Counted& operator=(Counted&&) = delete;
  ~Counted() {
    if (count_ != nullptr) count_->fetch_sub(1);
  }

 private:
  std::atomic<int>* count_;
};

// The next deadline of all connections of an io thread, so that its timer need not visit each
// connection. Used on that thread only.
struct Attention {
  std::chrono::steady_clock::time_point next = std::chrono::steady_clock::time_point::max();
  int n_gone = 0;  // connections that have ended

  void want(std::chrono::steady_clock::time_point when) { next = std::min(next, when); }
};

// A connection as its io thread sees it.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  virtual net::awaitable<void> serve() = 0;
  // Called at the time requested from Attention, with a resolution of a quarter of a second;
  // requests the next time itself.
  virtual void check_time(std::chrono::steady_clock::time_point now) = 0;
  // closes if idle between requests for at least this long
  virtual void close_if_idle(Milliseconds least) = 0;
  // closes if from this address and blocked on the client for at least this long: waiting for a
  // request, for its body, or for a reply to be read
  virtual void close_if_slow(const std::string& address, Milliseconds least) = 0;
  virtual void cut() = 0;
};

// Fills the public fields of `request` from a message head: method, path, query, headers, id.
void take_head(const boost::beast::http::fields& fields, std::string_view method,
               std::string_view target, HttpRequest& request);
std::string fresh_request_id();
struct HttpFailure {
  int status = 0;
  std::string message;
};
// Validates Host, Content-Length and Transfer-Encoding, so that a proxy and this server cannot see
// different requests (request smuggling). status 0: valid. version: 10 or 11.
HttpFailure check_head(const boost::beast::http::fields& fields, unsigned version);
// Describes why a request could not be read; status 0: the client has left.
HttpFailure read_failure(error_code error, bool timed_out, const HttpConfig& config,
                         size_t most_body);

template <class Stream>
class HttpConnectionOf final : public HttpConnection,
                               public Exchange,
                               public std::enable_shared_from_this<HttpConnectionOf<Stream>> {
  static constexpr bool kTls = std::is_same_v<Stream, TlsSocket>;
  using Parser = boost::beast::http::request_parser<GrowingBody>;
  using Time = std::chrono::steady_clock::time_point;

 public:
  // place: the connection's entry in the connection count.
  HttpConnectionOf(Stream stream, HttpShared& shared, Attention& attention, Counted place)
      : place_(std::move(place)),
        stream_(std::move(stream)),
        shared_(shared),
        attention_(attention) {
    error_code ignored;
    const auto endpoint = socket().remote_endpoint(ignored);
    peer_ = ignored ? "" : endpoint.address().to_string();
    shared_.places.take(peer_, 1, INT64_MAX);
    socket().set_option(tcp::no_delay(true), ignored);
    socket().non_blocking(true, ignored);  // put() writes what the socket takes
    // Bounds the kernel's send buffer for clients that do not read.
    socket().set_option(
        net::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>(kMostUnsent), ignored);
  }
  ~HttpConnectionOf() override {
    shared_.places.release(peer_, 1);
    ++attention_.n_gone;
  }

  net::awaitable<void> serve() override {
    const auto self = this->shared_from_this();
    try {
      co_await serve_all();
    } catch (const std::exception&) {  // bad_alloc: drop references to destroyed frames
      watching_ = false;
      on_disconnect = nullptr;
    }
    close();
  }

  void check_time(Time now) override {
    if (watch_again_ && watching_) look_at_client();
    if (timed_out_) return;
    attention_.want(deadline_);
    if (now < deadline_) return;
    // Waits one more round: if this thread was delayed, data that arrived in time is still unread.
    if (!std::exchange(overdue_, true)) return;
    timed_out_ = true;
    error_code ignored;
    socket().cancel(ignored);
  }
  void close_if_idle(Milliseconds least) override {
    const auto since = deadline_ - shared_.config.idle_timeout;
    if (idle_ && std::chrono::steady_clock::now() - since >= least && !has_input(POLLIN)) close();
  }
  void close_if_slow(const std::string& address, Milliseconds least) override {
    if (peer_ == address && waits_since_ <= std::chrono::steady_clock::now() - least) close();
  }
  void cut() override {
    if (watching_) leave();
    close();
  }

  net::any_io_executor executor() override { return stream_.get_executor(); }
  bool hold_more(size_t bytes) override {
    return body_budget_ == nullptr || body_budget_->take(static_cast<int64_t>(bytes));
  }
  void drop_body() override {
    free_memory(request_.body);
    if (body_budget_ != nullptr) body_budget_->release();
  }

  net::awaitable<void> reply(HttpReply reply) override {
    namespace http = boost::beast::http;
    BodyBudget budget;
    if (!take_reply(reply.body.size(), budget)) reply = too_much_waits();
    http::response<http::string_body> response(static_cast<http::status>(reply.status), 11);
    fill_head(response, reply);
    response.body() = std::move(reply.body);
    response.prepare_payload();
    if (request_.method == "HEAD") response.body().clear();
    http::response_serializer<http::string_body> serializer(response);
    // the timeout applies to each write, not to the whole
    while (!gone_ && !serializer.is_done()) {
      expire_after(shared_.config.write_timeout);
      const auto [error, n] = co_await http::async_write_some(stream_, serializer, kNoThrow);
      if (error) leave();
    }
    expire_never();
  }

  net::awaitable<bool> begin_stream(HttpReply head) override {
    namespace http = boost::beast::http;
    http::response<http::empty_body> response(static_cast<http::status>(head.status), 11);
    if (request_version_ != 11) keep_alive_ = false;
    fill_head(response, head);
    response.chunked(request_version_ == 11);
    stream_open_ = true;
    http::response_serializer<http::empty_body> serializer(response);
    expire_after(shared_.config.write_timeout);
    const auto [error, n] = co_await http::async_write_header(stream_, serializer, kNoThrow);
    if (error) leave();
    expire_never();
    co_return !gone_;
  }

  void put(std::string_view chunk) override {
    if (gone_ || chunk.empty()) return;
    // One write instead of three: fewer system calls.
    framed_.clear();
    const bool framed = request_version_ == 11;
    if (framed) fmt::format_to(std::back_inserter(framed_), "{:x}\r\n", chunk.size());
    framed_.append(chunk.begin(), chunk.end());
    if (framed) framed_.append(kEndOfLine.begin(), kEndOfLine.end());
    const std::string_view bytes(framed_.data(), framed_.size());
    size_t sent = 0;
    if constexpr (!kTls) {
      if (unsent_.empty()) {
        error_code error;
        sent = socket().write_some(net::buffer(bytes), error);
        if (error && error != net::error::would_block && error != net::error::try_again)
          return leave();
      }
    }
    unsent_.append(bytes.substr(sent));
  }
  bool all_sent() const override { return gone_ || unsent_.empty(); }
  net::awaitable<bool> flush() override {
    if (gone_) unsent_.clear();
    BodyBudget budget;
    if (!take_reply(unsent_.size(), budget)) {
      free_memory(unsent_);
      leave();
    }
    co_return co_await write_all(std::exchange(unsent_, {}));
  }

  net::awaitable<void> end_stream() override {
    stream_open_ = false;
    if (request_version_ == 11) co_await write_all("0\r\n\r\n");
  }
  void break_off() override { keep_alive_ = false; }

 private:
  static constexpr size_t kSmallBody = 64 * 1024;
  // bytes of a body that are never counted against the budget
  static constexpr int64_t kBodyOfAnybody = 16 * 1024;
  // bytes of a reply that are never counted against the budget
  static constexpr int64_t kFreeReply = 16 * 1024;
  static constexpr int kMostUnsent = 128 * 1024;
  // limit for a request's head and pipelined data
  static constexpr size_t kMostBuffered = 128 * 1024;

  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }
  void expire_after(Milliseconds timeout) {
    waits_since_ = std::chrono::steady_clock::now();
    deadline_ = waits_since_ + timeout;
    attention_.want(deadline_);
    timed_out_ = overdue_ = false;
  }
  void expire_never() { waits_since_ = deadline_ = Time::max(); }
  void close() {
    error_code ignored;
    socket().close(ignored);
  }
  bool has_input(short events) {
    pollfd state{socket().native_handle(), events, 0};
    return state.fd < 0 ||
           (poll(&state, 1, 0) > 0 && (state.revents & (events | POLLHUP | POLLERR)) != 0);
  }

  template <class Response>
  void fill_head(Response& response, const HttpReply& reply) {
    replied_ = true;
    status_ = reply.status;
    if (before_reply) std::exchange(before_reply, nullptr)(status_);
    response.set(boost::beast::http::field::content_type, reply.content_type);
    // OpenAI's name and Anthropic's.
    for (const char* name : {"x-request-id", "request-id"}) response.set(name, request_.id);
    for (const auto& [name, value] : reply_headers) response.set(name, value);
    for (const auto& [name, value] : reply.headers) {
      if (name == "Vary")
        response.insert(name, value);  // beside that of the origin
      else
        response.set(name, value);
    }
    keep_alive_ = keep_alive_ && !shared_.stopping.load();
    response.keep_alive(keep_alive_);
  }

  // Reserves room for a reply until it is sent, which bounds the memory held by slow readers.
  bool take_reply(size_t bytes, BodyBudget& budget) {
    if (bytes <= static_cast<size_t>(kFreeReply)) return true;
    budget.attach(shared_.counters.reply_bytes,
                  static_cast<int64_t>(shared_.config.max_total_reply_bytes), kFreeReply);
    budget.share(shared_.reply_shares, request_.asker());
    return budget.take(static_cast<int64_t>(bytes));
  }
  HttpReply too_much_waits() const {
    HttpReply reply;
    reply.status = 503;
    reply.body =
        shared_.error_body(request_.path, 503,
                           fmt::format("replies that wait to be read hold {} bytes, all that this "
                                       "server allows, or this client three quarters of them",
                                       shared_.config.max_total_reply_bytes));
    reply.headers.emplace_back("Retry-After", "1");
    return reply;
  }

  net::awaitable<bool> write_all(std::string bytes) {
    for (size_t done = 0; !gone_ && done < bytes.size();) {
      expire_after(shared_.config.write_timeout);
      const auto [error, n] = co_await stream_.async_write_some(
          net::buffer(bytes.data() + done, bytes.size() - done), kNoThrow);
      if (error) leave();
      done += n;
    }
    expire_never();
    co_return !gone_;
  }

  net::awaitable<void> serve_all() {
    if constexpr (kTls) {
      expire_after(shared_.config.header_timeout);
      const auto [error] =
          co_await stream_.async_handshake(net::ssl::stream_base::server, kNoThrow);
      if (error) co_return;
    }
    // one co_await to an expression: g++ 12 evaluates both sides of &&
    for (bool open = true; open;) {
      open = co_await wait_for_request();
      if (open) open = co_await serve_one();
    }
    co_await shut_down();
  }

  // false: the client left or was silent for too long, or the server is stopping.
  net::awaitable<bool> wait_for_request() {
    if (shared_.stopping.load() && n_requests_ > 0) co_return false;
    if (!keep_alive_) co_return false;
    if (buffer_.size() > 0) co_return true;
    buffer_.shrink_to_fit();
    idle_ = true;
    expire_after(shared_.config.idle_timeout);
    error_code error;
    if constexpr (kTls) {  // TLS may hold decrypted bytes that the socket does not show
      const auto [read_error, n] =
          co_await stream_.async_read_some(buffer_.prepare(4096), kNoThrow);
      buffer_.commit(n);
      error = read_error;
    } else {
      std::tie(error) = co_await socket().async_wait(tcp::socket::wait_read, kNoThrow);
    }
    idle_ = false;
    co_return !error;
  }

  // Reads and answers one request. false: the connection is over.
  net::awaitable<bool> serve_one() {
    BodyBudget budget;
    budget.attach(shared_.counters.body_bytes,
                  static_cast<int64_t>(shared_.config.max_total_body_bytes), kBodyOfAnybody);
    std::optional<Parser> parser(std::in_place);
    parser->header_limit(static_cast<uint32_t>(shared_.config.max_header_bytes));
    parser->body_limit(boost::none);  // limited after the head was read
    parser->get().body().budget = &budget;
    if (!co_await read_head(*parser)) co_return false;
    begin_exchange(parser->get());
    const HttpPlan plan = shared_.handler(*this);
    if (!request_.client.empty()) budget.share(shared_.body_shares, request_.client);
    if (!plan.reads_body && !parser->is_done())
      co_return co_await answer_early(plan.answer, *parser);
    if (!co_await read_body(*parser, std::min(plan.most_body, shared_.config.max_body_bytes)))
      co_return false;
    request_.body = std::move(parser->get().body().text);
    parser.reset();
    body_budget_ = &budget;
    co_await answer(plan.answer);
    body_budget_ = nullptr;
    free_memory(request_);
    co_return keep_alive_ && !gone_ && replied_ && !stream_open_;
  }

  net::awaitable<void> answer(const HttpAnswer& handler) {
    ++n_requests_;
    const Counted under_way(shared_.counters.exchanges);
    start_watch();
    co_await handler(*this);
    watching_ = false;
    on_disconnect = nullptr;
    if (gone_) shared_.counters.disconnects.fetch_add(1);
    reply_headers.clear();
  }

  // Answers before the body is read. A small body is still drained, so that the connection can be
  // reused.
  net::awaitable<bool> answer_early(const HttpAnswer& handler, Parser& parser) {
    const auto size = parser.content_length();
    const bool small = size && *size <= kSmallBody && !expects_go_on(parser);
    keep_alive_ = keep_alive_ && small;
    co_await answer(handler);
    if (!keep_alive_ || gone_) {
      if (!gone_) co_await linger();
      co_return false;
    }
    expire_after(shared_.config.body_timeout);
    const auto [error, n] =
        co_await boost::beast::http::async_read(stream_, buffer_, parser, kNoThrow);
    expire_never();
    request_ = {};
    co_return !error;
  }

  static bool expects_go_on(Parser& parser) {
    return boost::beast::iequals(parser.get()[boost::beast::http::field::expect], "100-continue");
  }

  net::awaitable<bool> read_head(Parser& parser) {
    expire_after(shared_.config.header_timeout);
    const auto [error, n] =
        co_await boost::beast::http::async_read_header(stream_, buffer_, parser, kNoThrow);
    const bool timed_out = timed_out_;
    expire_never();
    HttpFailure failure = error ? read_failure(error, timed_out, shared_.config, 0)
                                : check_head(parser.get(), parser.get().version());
    if (!error && failure.status == 0) co_return true;
    co_await fail(parser, std::move(failure), timed_out);
    co_return false;
  }

  net::awaitable<bool> read_body(Parser& parser, size_t most) {
    namespace http = boost::beast::http;
    if (parser.is_done()) co_return true;
    if (parser.content_length().value_or(0) > most) {
      co_await fail(parser, read_failure(http::error::body_limit, false, shared_.config, most),
                    false);
      co_return false;
    }
    parser.body_limit(most);
    if (expects_go_on(parser)) co_await write_all(kGoOn);
    expire_after(shared_.config.body_timeout);
    buffer_.reserve(16 * 1024);
    const auto [error, n] = co_await http::async_read(stream_, buffer_, parser, kNoThrow);
    const bool timed_out = timed_out_;
    expire_never();
    if (!error) co_return true;
    co_await fail(parser, read_failure(error, timed_out, shared_.config, most), timed_out);
    co_return false;
  }

  // Frees the partial body and sends the error if the client is still connected.
  net::awaitable<void> fail(Parser& parser, HttpFailure failure, bool timed_out) {
    const std::string target(parser.get().target());  // empty before there is one
    free_memory(parser.get().body().text);
    parser.get().body().budget->release();
    if (failure.status == 0) co_return;
    (timed_out ? shared_.counters.timed_out : shared_.counters.malformed).fetch_add(1);
    co_await refuse(target, failure.status, failure.message);
  }

  // Sends an error for a request that could not be read, before the connection closes.
  net::awaitable<void> refuse(const std::string& target, int status, const std::string& message) {
    keep_alive_ = gone_ = false;
    request_ = {};
    request_.id = fresh_request_id();
    HttpReply answer;
    answer.status = status;
    answer.body = shared_.error_body(target, status, message);
    if (status == 503) answer.headers.emplace_back("Retry-After", "1");
    co_await reply(std::move(answer));
    co_await linger();
  }

  // Drains input for a while, so that a TCP reset cannot discard the reply before the client reads
  // it.
  net::awaitable<void> linger() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    std::array<char, 16384> scratch;
    expire_after(Milliseconds(2000));
    for (size_t drained = 0; drained < shared_.config.max_body_bytes && !timed_out_;) {
      const auto [error, n] = co_await socket().async_read_some(net::buffer(scratch), kNoThrow);
      if (error) break;
      drained += n;
    }
  }

  void begin_exchange(boost::beast::http::request<GrowingBody>& message) {
    request_ = {};
    take_head(message,
              std::string_view(message.method_string().data(), message.method_string().size()),
              std::string_view(message.target().data(), message.target().size()), request_);
    request_.peer = peer_;
    request_version_ = message.version();
    keep_alive_ = message.keep_alive();
    replied_ = gone_ = stream_open_ = false;
    unsent_.clear();
    status_ = 0;
  }

  // Watches for a disconnect while the request is being answered. Pipelined data stays in the
  // kernel; when there is some, the state is polled four times a second instead.
  void start_watch() {
    watching_ = true;
    watch_again_ = false;
    if (watch_armed_) return;
    watch_armed_ = true;
    socket().async_wait(tcp::socket::wait_read,
                        [self = this->shared_from_this()](error_code error) {
                          self->watch_armed_ = false;
                          if (!error && self->watching_) self->look_at_client();
                        });
  }
  void look_at_client() {
    watch_again_ = !has_input(POLLRDHUP);
    if (watch_again_) return attention_.want(Time::min());
    leave();
  }
  void leave() {
    if (std::exchange(gone_, true)) return;
    if (watching_ && on_disconnect) on_disconnect();
  }

  net::awaitable<void> shut_down() {
    if (gone_ || !socket().is_open()) co_return;
    expire_after(Milliseconds(2000));
    if constexpr (kTls) co_await stream_.async_shutdown(kNoThrow);
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  static constexpr std::string_view kEndOfLine = "\r\n";
  static constexpr const char* kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";

  const Counted place_;
  Stream stream_;
  HttpShared& shared_;
  Attention& attention_;
  boost::beast::flat_buffer buffer_{kMostBuffered};
  std::string peer_, unsent_;
  // buffer of put(), shared by the connections of an io thread
  inline static thread_local fmt::memory_buffer framed_;
  Time waits_since_ = Time::max(), deadline_ = Time::max();
  unsigned request_version_ = 11;
  BodyBudget* body_budget_ = nullptr;  // of the request that is answered
  int n_requests_ = 0;
  bool keep_alive_ = true, idle_ = false, timed_out_ = false, overdue_ = false;
  // a stream has begun and not ended: its client must not wait for the rest
  bool stream_open_ = false;
  bool watching_ = false, watch_armed_ = false, watch_again_ = false;
};

}  // namespace penstock

#include "server/http_server.h"

#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/version.hpp>
#include <list>
#include <mutex>
#include <random>
#include <thread>

#include "server/url.h"

namespace penstock {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = net::ssl;
using net::ip::tcp;
using boost::system::error_code;
using TcpStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr auto kNoThrow = net::as_tuple(net::use_awaitable);

std::string fresh_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}", random());
}

// What connections need of their server.
struct Shared {
  HttpConfig config;
  HttpHandler handler;
  HttpErrorBody error_body;
  std::atomic<int> n_connections{0}, n_exchanges{0};
  std::atomic<bool> stopping{false};
};

// A connection that can be told to go.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void close_if_idle() = 0;  // between two requests
  virtual void cut() = 0;
};

template <class Stream>
class ConnectionOf final : public Connection, public Exchange, public std::enable_shared_from_this<ConnectionOf<Stream>> {
 public:
  ConnectionOf(Stream stream, std::shared_ptr<Shared> shared)
      : stream_(std::move(stream)), shared_(std::move(shared)), watch_timer_(stream_.get_executor()) {
    error_code ignored;
    const auto endpoint = tcp_stream().socket().remote_endpoint(ignored);
    peer_ = ignored ? "" : endpoint.address().to_string();
    tcp_stream().socket().set_option(tcp::no_delay(true), ignored);
  }
  ~ConnectionOf() override { shared_->n_connections.fetch_sub(1); }

  net::awaitable<void> serve() {
    const auto self = this->shared_from_this();
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      expires(shared_->config.header_timeout);
      const auto [error] = co_await stream_.async_handshake(ssl::stream_base::server, kNoThrow);
      if (error) co_return;
    }
    while (!shared_->stopping.load() && co_await serve_one()) {
    }
    co_await shut_down();
  }

  void close_if_idle() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (self->idle_) self->cut_now();
    });
  }
  void cut() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->cut_now(); });
  }

  net::any_io_executor executor() override { return stream_.get_executor(); }

  net::awaitable<void> reply(HttpReply reply) override {
    replied_ = true;
    http::response<http::string_body> response(static_cast<http::status>(reply.status), 11);
    fill_head(response, reply);
    response.body() = std::move(reply.body);
    response.prepare_payload();
    expires(shared_->config.write_timeout);
    const auto [error, n] = co_await http::async_write(stream_, response, kNoThrow);
    if (error) gone_ = true;
  }

  net::awaitable<bool> begin_stream(HttpReply head) override {
    replied_ = true;
    http::response<http::empty_body> response(static_cast<http::status>(head.status), 11);
    fill_head(response, head);
    response.chunked(request_version_ == 11);
    if (request_version_ != 11) keep_alive_ = false, response.keep_alive(false);
    http::response_serializer<http::empty_body> serializer(response);
    expires(shared_->config.write_timeout);
    const auto [error, n] = co_await http::async_write_header(stream_, serializer, kNoThrow);
    if (error) gone_ = true;
    co_return !gone_;
  }

  net::awaitable<bool> write(std::string chunk) override {
    if (gone_) co_return false;
    expires(shared_->config.write_timeout);
    if (request_version_ == 11) {
      const auto [error, n] = co_await net::async_write(stream_, http::make_chunk(net::buffer(chunk)), kNoThrow);
      gone_ = gone_ || error;
    } else {
      const auto [error, n] = co_await net::async_write(stream_, net::buffer(chunk), kNoThrow);
      gone_ = gone_ || error;
    }
    co_return !gone_;
  }

  net::awaitable<void> end_stream() override {
    if (gone_ || request_version_ != 11) co_return;
    expires(shared_->config.write_timeout);
    const auto [error, n] = co_await net::async_write(stream_, http::make_chunk_last(), kNoThrow);
    if (error) gone_ = true;
  }

 private:
  beast::tcp_stream& tcp_stream() { return beast::get_lowest_layer(stream_); }
  void expires(std::chrono::seconds timeout) { tcp_stream().expires_after(timeout); }

  template <class Response>
  void fill_head(Response& response, const HttpReply& reply) {
    response.set(http::field::content_type, reply.content_type);
    response.set("x-request-id", request_.id);
    for (const auto& [name, value] : reply.headers) response.set(name, value);
    response.keep_alive(keep_alive_ && !shared_->stopping.load());
  }

  // Reads one request and answers it. False: the connection is over.
  net::awaitable<bool> serve_one() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(shared_->config.max_header_bytes));
    parser.body_limit(shared_->config.max_body_bytes);
    if (!co_await read_request(parser)) co_return false;
    take_request(parser.get());
    replied_ = gone_ = false;
    shared_->n_exchanges.fetch_add(1);
    start_watch();
    co_await shared_->handler(*this);
    stop_watch();
    shared_->n_exchanges.fetch_sub(1);
    on_disconnect = nullptr;
    co_return keep_alive_ && !gone_ && replied_;
  }

  net::awaitable<bool> read_request(http::request_parser<http::string_body>& parser) {
    idle_ = true;
    expires(shared_->config.idle_timeout);
    if (buffer_.size() == 0) {  // the header timeout starts with the first byte
      const auto [error, n] = co_await stream_.async_read_some(buffer_.prepare(4096), kNoThrow);
      if (error) co_return false;
      buffer_.commit(n);
    }
    idle_ = false;
    expires(shared_->config.header_timeout);
    auto [error, n] = co_await http::async_read_header(stream_, buffer_, parser, kNoThrow);
    if (!error && !parser.is_done()) {
      if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        http::response<http::empty_body> go_on(http::status::continue_, 11);
        expires(shared_->config.write_timeout);
        co_await http::async_write(stream_, go_on, kNoThrow);
      }
      expires(shared_->config.body_timeout);
      std::tie(error, n) = co_await http::async_read(stream_, buffer_, parser, kNoThrow);
    }
    if (!error) co_return true;
    co_await refuse(error);
    co_return false;
  }

  // Tells the client what was wrong with its request before the connection closes.
  net::awaitable<void> refuse(error_code error) {
    if (error == http::error::end_of_stream || error == net::error::eof || error == net::error::connection_reset ||
        error == net::error::operation_aborted) {
      co_return;
    }
    int status = 400;
    if (error == http::error::body_limit) status = 413;
    if (error == http::error::header_limit) status = 431;
    if (error == beast::error::timeout) status = 408;
    std::string message = error.message();
    if (status == 413) message = fmt::format("request body: at most {} bytes", shared_->config.max_body_bytes);
    if (status == 431) message = fmt::format("request headers: at most {} bytes", shared_->config.max_header_bytes);
    if (status == 408) message = "the request did not arrive in time";
    keep_alive_ = false;
    request_ = {};
    request_.id = fresh_id();
    HttpReply answer;
    answer.status = status;
    answer.body = shared_->error_body(status, message);
    co_await reply(std::move(answer));
    // Let the client read the answer before a reset can destroy it: drain a little of what it still sends.
    char scratch[4096];
    expires(std::chrono::seconds(2));
    for (size_t drained = 0; drained < (size_t{1} << 20);) {
      const auto [read_error, n] = co_await stream_.async_read_some(net::buffer(scratch), kNoThrow);
      if (read_error) break;
      drained += n;
    }
  }

  void take_request(http::request<http::string_body>& message) {
    request_ = {};
    request_.method = std::string(message.method_string());
    parse_target(message.target(), request_.path, request_.query);
    for (const auto& field : message) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      std::string& value = request_.headers[name];
      value += (value.empty() ? "" : ", ") + std::string(field.value());
    }
    request_.body = std::move(message.body());
    const std::string_view id = request_.header("x-request-id");
    request_.id = is_printable(id) && !id.empty() && id.size() <= 128 ? std::string(id) : fresh_id();
    request_.peer = peer_;
    request_version_ = message.version();
    keep_alive_ = message.keep_alive();
  }

  static bool is_printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
  }

  // Notices that the client has closed while its request is being answered.
  void start_watch() {
    watching_ = true;
    net::co_spawn(stream_.get_executor(), watch(this->shared_from_this()), net::detached);
  }
  void stop_watch() {
    watching_ = false;
    watch_timer_.cancel();
  }
  net::awaitable<void> watch([[maybe_unused]] std::shared_ptr<ConnectionOf> self) {
    while (watching_ && !gone_) {
      pollfd state{tcp_stream().socket().native_handle(), POLLRDHUP, 0};
      if (state.fd < 0 || (poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)) {
        gone_ = true;
        if (watching_ && on_disconnect) on_disconnect();
        break;
      }
      watch_timer_.expires_after(std::chrono::milliseconds(50));
      co_await watch_timer_.async_wait(kNoThrow);
    }
  }

  void cut_now() {
    error_code ignored;
    tcp_stream().socket().close(ignored);
  }

  net::awaitable<void> shut_down() {
    expires(std::chrono::seconds(2));
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      if (!gone_) co_await stream_.async_shutdown(kNoThrow);
    }
    error_code ignored;
    tcp_stream().socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  Stream stream_;
  std::shared_ptr<Shared> shared_;
  beast::flat_buffer buffer_{128 * 1024};
  net::steady_timer watch_timer_;
  std::string peer_;
  unsigned request_version_ = 11;
  bool keep_alive_ = true, gone_ = false, idle_ = false, watching_ = false;
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpConfig& config, HttpHandler handler, HttpErrorBody error_body)
      : context_(std::max(1, config.io_threads)),
        tls_(ssl::context::tls_server),
        acceptor_(net::make_strand(context_)),
        drain_timer_(acceptor_.get_executor()),
        shared_(std::make_shared<Shared>()) {
    shared_->config = config;
    shared_->handler = std::move(handler);
    shared_->error_body = std::move(error_body);
  }

  Status listen() {
    const HttpConfig& config = shared_->config;
    error_code error;
    if (!config.tls_certificate.empty() || !config.tls_key.empty()) {
      RETURN_IF_ERROR(load_certificate());
    }
    const auto address = net::ip::make_address(config.host == "localhost" ? "127.0.0.1" : config.host, error);
    if (error) return errorf(ErrorCode::kInvalidArgument, "host {}: expected an IP address", config.host);
    const tcp::endpoint endpoint(address, config.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) return errorf(ErrorCode::kIo, "{}:{}: {}", config.host, config.port, error.message());
    return {};
  }

  uint16_t port() const override { return acceptor_.local_endpoint().port(); }
  int n_connections() const override { return shared_->n_connections.load(); }
  int n_exchanges() const override { return shared_->n_exchanges.load(); }
  net::any_io_executor executor() override { return context_.get_executor(); }

  void run() override {
    net::co_spawn(acceptor_.get_executor(), accept_loop(), net::detached);
    std::vector<std::thread> threads;
    for (int i = 1; i < shared_->config.io_threads; ++i) threads.emplace_back([this] { context_.run(); });
    context_.run();
    for (std::thread& thread : threads) thread.join();
  }

  void stop(std::chrono::milliseconds timeout) override {
    if (shared_->stopping.exchange(true)) return;
    net::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    net::co_spawn(acceptor_.get_executor(), drain(timeout), net::detached);
  }

 private:
  Status load_certificate() {
    error_code error;
    tls_.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                     ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    const HttpConfig& config = shared_->config;
    tls_.use_certificate_chain_file(config.tls_certificate, error);
    if (error) return errorf(ErrorCode::kInvalidArgument, "certificate {}: {}", config.tls_certificate, error.message());
    tls_.use_private_key_file(config.tls_key, ssl::context::pem, error);
    if (error) return errorf(ErrorCode::kInvalidArgument, "key {}: {}", config.tls_key, error.message());
    use_tls_ = true;
    return {};
  }

  net::awaitable<void> accept_loop() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(net::make_strand(context_), kNoThrow);
      if (!acceptor_.is_open()) break;
      if (error) {  // out of descriptors, say: wait for some to close
        drain_timer_.expires_after(std::chrono::milliseconds(50));
        co_await drain_timer_.async_wait(kNoThrow);
        continue;
      }
      if (shared_->n_connections.load() >= shared_->config.max_connections) continue;  // closes the socket
      shared_->n_connections.fetch_add(1);
      if (use_tls_) {
        start(std::make_shared<ConnectionOf<TlsStream>>(TlsStream(TcpStream(std::move(socket)), tls_), shared_));
      } else {
        start(std::make_shared<ConnectionOf<TcpStream>>(TcpStream(std::move(socket)), shared_));
      }
    }
  }

  template <class C>
  void start(std::shared_ptr<C> connection) {
    {
      const std::scoped_lock lock(mutex_);
      if (connections_.size() > 64 && connections_.size() > 2 * static_cast<size_t>(n_connections())) {
        connections_.remove_if([](const auto& weak) { return weak.expired(); });
      }
      connections_.push_back(connection);
    }
    net::co_spawn(connection->executor(), connection->serve(), net::detached);
  }

  template <class F>
  void for_each_connection(F&& f) {
    const std::scoped_lock lock(mutex_);
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) f(*connection);
    }
  }

  net::awaitable<void> drain(std::chrono::milliseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    net::steady_timer timer(acceptor_.get_executor());
    while (n_exchanges() > 0 && std::chrono::steady_clock::now() < end) {
      for_each_connection([](Connection& connection) { connection.close_if_idle(); });
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(kNoThrow);
    }
    // The last replies are written; give their connections a moment to close by themselves.
    for (int i = 0; i < 10 && n_connections() > 0; ++i) {
      for_each_connection([](Connection& connection) { connection.close_if_idle(); });
      timer.expires_after(std::chrono::milliseconds(10));
      co_await timer.async_wait(kNoThrow);
    }
    for_each_connection([](Connection& connection) { connection.cut(); });
    for (int i = 0; i < 100 && n_connections() > 0; ++i) {
      timer.expires_after(std::chrono::milliseconds(10));
      co_await timer.async_wait(kNoThrow);
    }
    context_.stop();
  }

  net::io_context context_;
  ssl::context tls_;
  tcp::acceptor acceptor_;
  net::steady_timer drain_timer_;
  std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::list<std::weak_ptr<Connection>> connections_;
  bool use_tls_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpConfig& config, HttpHandler handler,
                                                     HttpErrorBody error_body) {
  auto server = std::make_unique<HttpServerImpl>(config, std::move(handler), std::move(error_body));
  RETURN_IF_ERROR(server->listen());
  return server;
}

}  // namespace penstock

#include "server/http/http_server.h"

#include <openssl/ssl.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "base/regular_file.h"
#include "server/http/http_connection.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;
constexpr Milliseconds kTick{250};
// idle time after which a connection may be closed to make room
constexpr Milliseconds kIdleEnough{1000};

// One io thread and the connections that live on it: no locks, no strands.
class Lane {
 public:
  Lane() : work_(net::make_work_guard(context_)), timer_(context_) {}

  net::io_context& context() { return context_; }
  Attention& attention() { return attention_; }
  void start() {
    thread_ = std::thread([this] {
      // bench/server_load.py tells threads by their names
      pthread_setname_np(pthread_self(), "penstock-io");
      // On bad_alloc the current connection ends and the others continue.
      for (bool ended = false; !ended;) {
        try {
          context_.run();
          ended = true;
        } catch (const std::exception&) {
        }
      }
    });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  ~Lane() {
    context_.stop();
    join();
  }

  // The functions below run on the lane's thread.
  void add(std::shared_ptr<HttpConnection> connection) {
    connections_.push_back(connection);
    net::co_spawn(context_, connection->serve(), net::detached);
    if (!std::exchange(ticking_, true)) tick();
  }
  template <class F>
  void for_each(F&& f) {
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) f(*connection);
    }
  }
  template <class F>
  void post(F&& f) {
    net::post(context_, std::forward<F>(f));
  }

 private:
  // If memory is exhausted, the next connection starts the timer.
  void tick() {
    try {
      wait_for_tick();
    } catch (const std::bad_alloc&) {
      ticking_ = false;
    }
  }
  void wait_for_tick() {
    timer_.expires_after(kTick);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      if (std::exchange(attention_.n_gone, 0) > 0)
        std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
      const auto now = Steady::now();
      if (attention_.next <= now) {
        attention_.next = Steady::time_point::max();
        for_each([&](HttpConnection& connection) { connection.check_time(now); });
      }
      ticking_ = !connections_.empty();
      if (ticking_) tick();
    });
  }

  // outlives the connections, which may live as long as the context
  Attention attention_;
  net::io_context context_{1};
  net::executor_work_guard<net::io_context::executor_type> work_;
  net::steady_timer timer_;
  std::vector<std::weak_ptr<HttpConnection>> connections_;
  std::thread thread_;
  bool ticking_ = false;
};

// Selects HTTP/1.1 for clients that offer HTTP/2.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* in, unsigned in_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  const int chosen = SSL_select_next_proto(const_cast<unsigned char**>(out), out_size, kHttp11,
                                           sizeof(kHttp11) - 1, in, in_size);
  return chosen == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpConfig& config, HttpHandler handler, HttpErrorBody error_body)
      : tls_(net::ssl::context::tls_server) {
    shared_.config = config;
    shared_.handler = std::move(handler);
    shared_.error_body = std::move(error_body);
    for (int i = 0; i < std::clamp(config.io_threads, 1, 256); ++i)
      lanes_.push_back(std::make_unique<Lane>());
    acceptor_.emplace(lanes_[0]->context());
    timer_.emplace(lanes_[0]->context());
  }
  ~HttpServerImpl() override {
    for (const auto& lane : lanes_) lane->context().stop();
    wait();
    timer_.reset();
    acceptor_.reset();
    lanes_.clear();  // destroys suspended exchanges
  }

  Status listen() {
    const HttpConfig& config = shared_.config;
    error_code error;
    if (config.tls_certificate.empty() != config.tls_key.empty()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "TLS: expected a certificate and a key, got one of them");
    }
    if (!config.tls_certificate.empty()) RETURN_IF_ERROR(load_certificate());
    const auto address =
        net::ip::make_address(config.host == "localhost" ? "127.0.0.1" : config.host, error);
    if (error)
      return errorf(ErrorCode::kInvalidArgument, "host {}: expected an IP address", config.host);
    const tcp::endpoint endpoint(address, config.port);
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(4096, error);
    if (error)
      return errorf(ErrorCode::kIo, "{}:{}: {}", config.host, config.port, error.message());
    port_ = acceptor_->local_endpoint().port();
    return {};
  }

  uint16_t port() const override { return port_; }
  const HttpCounters& counters() const override { return shared_.counters; }

  void start() override {
    net::co_spawn(lanes_[0]->context(), accept_loop(), net::detached);
    for (const auto& lane : lanes_) lane->start();
  }
  void wait() override {
    for (const auto& lane : lanes_) lane->join();
  }
  void stop(Milliseconds timeout, std::function<void()> at_timeout) override {
    if (shared_.stopping.exchange(true)) return;
    net::co_spawn(lanes_[0]->context(), drain(timeout, std::move(at_timeout)), net::detached);
  }

 private:
  Status load_certificate() {
    using net::ssl::context;
    constexpr size_t kMostPemBytes = size_t{1} << 20;
    error_code error;
    tls_.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                     context::no_tlsv1 | context::no_tlsv1_1);
    SSL_CTX_set_options(tls_.native_handle(),
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(tls_.native_handle(), SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(tls_.native_handle(), choose_protocol, nullptr);
    const HttpConfig& config = shared_.config;
    ASSIGN_OR_RETURN(const std::string certificate,
                     read_regular_file(config.tls_certificate, kMostPemBytes));
    ASSIGN_OR_RETURN(const std::string key, read_regular_file(config.tls_key, kMostPemBytes));
    tls_.use_certificate_chain(net::buffer(certificate), error);
    if (error)
      return errorf(ErrorCode::kInvalidArgument, "certificate {}: {}", config.tls_certificate,
                    error.message());
    tls_.use_private_key(net::buffer(key), context::pem, error);
    if (error)
      return errorf(ErrorCode::kInvalidArgument, "key {}: {}", config.tls_key, error.message());
    use_tls_ = true;
    return {};
  }

  net::awaitable<void> accept_loop() {
    for (size_t turn = 0; acceptor_->is_open(); ++turn) {
      bool failed = false;
      try {
        failed = !co_await accept_one(*lanes_[turn % lanes_.size()]);
      } catch (const std::exception&) {  // bad_alloc, also inside TLS
        failed = true;
      }
      if (failed && acceptor_->is_open()) co_await wait_for_room();
    }
  }

  // false: no room for the connection.
  net::awaitable<bool> accept_one(Lane& lane) {
    auto [error, socket] = co_await acceptor_->async_accept(lane.context(), kNoThrow);
    if (error || !acceptor_->is_open()) co_return !error;  // for example, out of descriptors
    shared_.counters.accepted.fetch_add(1);
    if (shared_.counters.connections.load() >= shared_.config.max_connections) {
      make_room();
      error_code unknown;
      const tcp::endpoint from = socket.remote_endpoint(unknown);
      if (!make_way(from, unknown)) {
        turn_away(std::move(socket));
        co_return true;
      }
    }
    Counted place(shared_.counters.connections);
    if (&lane == lanes_[0].get()) {
      lane.add(connect(lane, std::move(socket), std::move(place)));
    } else {
      lane.post([this, &lane, socket = std::move(socket), place = std::move(place)]() mutable {
        lane.add(connect(lane, std::move(socket), std::move(place)));
      });
    }
    co_return true;
  }

  net::awaitable<void> wait_for_room() {
    try {
      make_room();
      timer_->expires_after(Milliseconds(50));
      co_await timer_->async_wait(kNoThrow);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(Milliseconds(10));
    }
  }

  std::shared_ptr<HttpConnection> connect(Lane& lane, tcp::socket socket, Counted place) {
    if (!use_tls_) {
      return std::make_shared<HttpConnectionOf<tcp::socket>>(std::move(socket), shared_,
                                                             lane.attention(), std::move(place));
    }
    return std::make_shared<HttpConnectionOf<TlsSocket>>(
        TlsSocket(std::move(socket), tls_), shared_, lane.attention(), std::move(place));
  }

  // Closes idle connections to make room for new ones.
  void make_room() {
    const auto now = Steady::now();
    if (now - made_room_ < kIdleEnough) return;
    made_room_ = now;
    on_every_connection([](HttpConnection& connection) { connection.close_if_idle(kIdleEnough); });
  }

  // Prevents one address from occupying all connections with slow clients: if another address has
  // more connections than the new one, the new connection is accepted and slow connections of the
  // largest address are closed.
  bool make_way(const tcp::endpoint& endpoint, const error_code& error) {
    if (error || shared_.places.is_largest(endpoint.address().to_string())) return false;
    const auto now = Steady::now();
    if (now - made_way_ >= kIdleEnough) {
      made_way_ = now;
      on_every_connection([largest = shared_.places.largest()](HttpConnection& connection) {
        connection.close_if_slow(largest, kIdleEnough);
      });
    }
    const int most = shared_.config.max_connections;
    return shared_.counters.connections.load() <= most + most / 16;
  }

  // Writes the reason once, without waiting.
  void turn_away(tcp::socket socket) {
    shared_.counters.turned_away.fetch_add(1);
    error_code ignored;
    socket.non_blocking(true, ignored);
    if (!use_tls_) {
      const std::string body = shared_.error_body("", 503, "too many connections");
      const std::string answer = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
          "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
          body.size(), body);
      socket.write_some(net::buffer(answer), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    socket.close(ignored);
  }

  template <class F>
  void on_every_connection(F f) {
    for (const auto& lane : lanes_) lane->post([raw = lane.get(), f] { raw->for_each(f); });
  }

  net::awaitable<void> pause(Milliseconds time) {
    net::steady_timer timer(lanes_[0]->context(), time);
    co_await timer.async_wait(kNoThrow);
  }
  net::awaitable<bool> wait_until_zero(const std::atomic<int>& count, Milliseconds timeout) {
    for (const auto end = Steady::now() + timeout; count.load() > 0 && Steady::now() < end;) {
      co_await pause(Milliseconds(10));
    }
    co_return count.load() == 0;
  }

  net::awaitable<void> drain(Milliseconds timeout, std::function<void()> at_timeout) {
    on_every_connection(
        [](HttpConnection& connection) { connection.close_if_idle(Milliseconds(0)); });
    const bool in_time = co_await wait_until_zero(shared_.counters.exchanges, timeout);
    if (!in_time) {
      if (at_timeout) at_timeout();
      co_await wait_until_zero(shared_.counters.exchanges, Milliseconds(400));
    }
    error_code ignored;
    acceptor_->close(ignored);
    on_every_connection(
        [](HttpConnection& connection) { connection.close_if_idle(Milliseconds(0)); });
    // The last replies were written; their connections close on their own.
    if (!co_await wait_until_zero(shared_.counters.connections, Milliseconds(in_time ? 500 : 50))) {
      on_every_connection([](HttpConnection& connection) { connection.cut(); });
      co_await wait_until_zero(shared_.counters.connections, Milliseconds(in_time ? 2000 : 100));
    }
    for (const auto& lane : lanes_) lane->context().stop();
  }

  HttpShared shared_;
  net::ssl::context tls_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::optional<tcp::acceptor> acceptor_;  // on lane 0, like the timer and draining
  std::optional<net::steady_timer> timer_;
  Steady::time_point made_room_{}, made_way_{};
  uint16_t port_ = 0;
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

#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>
#include <thread>

#include "base/base64.h"
#include "server/keys/access.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A client's side of a connection.
class Client {
 public:
  // from: one of 127.0.0.*, the address it comes from
  explicit Client(uint16_t port, uint8_t from = 1) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  void receive_little() {
    const int bytes = 4096;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
  void half_close() { shutdown(fd_, SHUT_WR); }
  // What comes until `n` copies of `marker` are there, or until the end.
  std::string read(const std::string& marker = "", int n = 1) {
    std::string data;
    char piece[4096];
    for (;;) {
      int found = 0;
      for (size_t at = 0; !marker.empty() && (at = data.find(marker, at)) != std::string::npos;
           at += marker.size())
        ++found;
      if (!marker.empty() && found >= n) return data;
      const ssize_t got = recv(fd_, piece, sizeof(piece), 0);
      if (got <= 0) return data;
      data.append(piece, static_cast<size_t>(got));
    }
  }

 private:
  int fd_;
};

struct Seen {
  std::atomic<int> left{0};
};

HttpReply text_reply(std::string text) {
  HttpReply reply;
  reply.body = std::move(text);
  return reply;
}

// /echo: the body; /wait: an answer when the client has left or after ten seconds, without a body meanwhile if the
// request says so; /stream: three chunks.
net::awaitable<void> handle(Exchange& exchange, Seen& seen) {
  const std::string& path = exchange.request().path;
  if (path == "/wait") {
    if (!exchange.request().header("x-drop").empty()) exchange.drop_body();
    net::steady_timer timer(exchange.executor(), std::chrono::seconds(10));
    exchange.on_disconnect = [&] {
      ++seen.left;
      timer.cancel();
    };
    boost::system::error_code error;
    co_await timer.async_wait(net::redirect_error(net::use_awaitable, error));
    co_return co_await exchange.reply(text_reply("waited"));
  }
  if (path == "/large") co_return co_await exchange.reply(text_reply(std::string(32'000'000, 'x')));
  if (path == "/medium") co_return co_await exchange.reply(text_reply(std::string(900'000, 'x')));
  if (path == "/large_stream") {
    co_await exchange.begin_stream(text_reply(""));
    if (co_await exchange.write(std::string(32'000'000, 'x'))) co_await exchange.end_stream();
    co_return;
  }
  if (path == "/stream") {
    co_await exchange.begin_stream(text_reply(""));
    for (const char* piece : {"one ", "two ", "three"}) co_await exchange.write(piece);
    co_return co_await exchange.end_stream();
  }
  if (path == "/cut_stream") {
    co_await exchange.begin_stream(text_reply(""));
    co_await exchange.write("one ");
    co_return;
  }
  co_await exchange.reply(
      text_reply(exchange.request().method + " " + path + " " + exchange.request().body + "."));
}

net::awaitable<void> refuse(Exchange& exchange) {
  HttpReply reply = text_reply("refused.");
  reply.status = 403;
  co_await exchange.reply(std::move(reply));
}

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpConfig config) {
    config.port = 0;
    auto opened = HttpServer::open(
        config,
        [this](Exchange& exchange) -> HttpPlan {
          if (exchange.request().path == "/refused") return {refuse, false};
          const std::string key(exchange.request().header("x-key"));
          exchange.set_client(key);
          const size_t most = exchange.request().path == "/few" ? 1000 : SIZE_MAX;
          return {[this](Exchange& one) { return handle(one, seen_); }, true, most};
        },
        [](std::string_view, int status, std::string_view message) {
          return fmt::format("{{{} {}}}", status, message);
        });
    ASSERT_TRUE(opened) << opened.error().message;
    server_ = std::move(*opened);
    server_->start();
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    server_->stop(Milliseconds(100), {});
    server_->wait();
    EXPECT_EQ(server_->counters().connections.load(), 0);
    EXPECT_EQ(server_->counters().exchanges.load(), 0);
    EXPECT_EQ(server_->counters().body_bytes.load(), 0);
  }
  std::string ask(const std::string& request) {
    Client client(server_->port());
    client.send(request);
    return client.read();
  }
  template <class Condition>
  bool soon(Condition&& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(Milliseconds(5));
    return condition();
  }

  Seen seen_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsConnectionsAndAnswersPipelinesInOrder) {
  start({});
  Client client(server_->port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /a%20b "
      "HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string data = client.read(".", 2 + 2);  // and those of "HTTP/1.1"
  EXPECT_THAT(data, HasSubstr("POST /echo hello."));
  EXPECT_THAT(data.substr(data.find("hello.")), HasSubstr("GET /a b ."));
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read("0\r\n\r\n"),
              HasSubstr("4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"));
  EXPECT_EQ(server_->counters().accepted.load(), 1u);
}

TEST_F(HttpServerTest, OldClientsGetAnUnchunkedStreamAndAClosedConnection) {
  start({});
  const std::string reply = ask("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr("\r\n\r\none two three"));
  EXPECT_THAT(reply, Not(HasSubstr("chunked")));
}

// Whatever came in between: its client is told, and the next request does not answer into it.
TEST_F(HttpServerTest, AStreamWithoutAnEndClosesItsConnection) {
  start({});
  Client client(server_->port());
  const auto begin = std::chrono::steady_clock::now();
  client.send("GET /cut_stream HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string data = client.read();
  EXPECT_THAT(data, HasSubstr("4\r\none \r\n"));
  EXPECT_THAT(data, testing::Not(HasSubstr("0\r\n\r\n")));
  EXPECT_THAT(data, testing::Not(HasSubstr("/next")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(HttpServerTest, RequestIdsAreEchoedWhenTheyAreHarmless) {
  start({});
  EXPECT_THAT(ask("GET / HTTP/1.0\r\nx-request-id: abc-1\r\n\r\n"),
              HasSubstr("x-request-id: abc-1\r\n"));
  EXPECT_THAT(ask("GET / HTTP/1.0\r\nx-request-id: a b\r\n\r\n"), HasSubstr("x-request-id: req-"));
  EXPECT_THAT(ask("GET / HTTP/1.0\r\nx-request-id: " + std::string(200, 'a') + "\r\n\r\n"),
              HasSubstr("x-request-id: req-"));
}

TEST_F(HttpServerTest, SizesAreLimited) {
  HttpConfig config;
  config.max_header_bytes = 1000;
  config.max_body_bytes = 100;
  start(config);
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
  const std::string chunk = "32\r\n" + std::string(50, 'c') + "\r\n";
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk +
                  chunk + chunk),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(
      ask("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
          chunk + chunk + "0\r\n\r\n"),
      StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, BodiesOfAllConnectionsShareABudget) {
  HttpConfig config;
  config.max_total_body_bytes = 100000;
  start(config);
  constexpr size_t kFree = 16384;  // of each body
  const auto send = [](Client& client, const std::string& key, size_t size, size_t sent) {
    client.send(
        fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nx-key: {}\r\nContent-Length: {}\r\n\r\n",
                    key, size) +
        std::string(sent, 'a'));
  };
  const auto holds = [&](size_t bytes) {
    return soon(
        [&] { return server_->counters().body_bytes.load() == static_cast<int64_t>(bytes); });
  };
  Client first(server_->port()), second(server_->port()), third(server_->port()),
      small(server_->port()), greedy(server_->port());
  send(first, "one", 81000, 80000);
  ASSERT_TRUE(holds(80000 - kFree));
  send(greedy, "one", 30000, 30000);  // one key has three quarters at the most
  EXPECT_THAT(greedy.read("bytes"), StartsWith("HTTP/1.1 503 "));
  send(second, "two", 40000, 35000);
  ASSERT_TRUE(holds(80000 + 35000 - 2 * kFree));
  send(third, "three", 50000, 50000);
  EXPECT_THAT(third.read("bytes"), StartsWith("HTTP/1.1 503 "));
  send(small, "three", kFree, kFree);  // what is small comes through whoever holds the rest
  EXPECT_THAT(small.read("a."), StartsWith("HTTP/1.1 200 "));
  first.send(std::string(1000, 'a'));
  EXPECT_THAT(first.read("a."), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(holds(35000 - kFree));
}

// What is answered for long holds no body that is not needed.
TEST_F(HttpServerTest, DroppedBodiesAreNotCounted) {
  HttpConfig config;
  config.max_total_body_bytes = 100000;
  start(config);
  constexpr int64_t kFree = 16384, kBody = 50000;
  const auto holds = [&](int64_t bytes) {
    return soon([&] { return server_->counters().body_bytes.load() == bytes; });
  };
  const auto send = [&](Client& client, const char* more) {
    client.send(
        fmt::format("POST /wait HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n", more, kBody) +
        std::string(kBody, 'a'));
  };
  Client keeps(server_->port());
  send(keeps, "");
  ASSERT_TRUE(holds(kBody - kFree));
  for (int i = 0; i < 3; ++i) {
    Client drops(server_->port());
    send(drops, "x-drop: 1\r\n");
    ASSERT_TRUE(soon([&] { return server_->counters().exchanges.load() == 2; }));
    ASSERT_TRUE(holds(kBody - kFree));
  }
}

TEST_F(HttpServerTest, RoutesMayTakeSmallerBodies) {
  start({});
  EXPECT_THAT(ask("POST /few HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 413 "), HasSubstr("at most 1000 bytes")));
  EXPECT_THAT(ask("POST /few HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                  std::string(1001, 'c') + "\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(
      ask("POST /few HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n" +
          std::string(1000, 'c')),
      StartsWith("HTTP/1.1 200 "));
}

// Clients that do not read: what waits for them is bounded, and others have their small replies.
TEST_F(HttpServerTest, LargeRepliesShareABudget) {
  HttpConfig config;
  config.max_total_reply_bytes = 50'000'000;
  start(config);
  const std::string large = "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  {
    Client first(server_->port());
    first.send(large);
    ASSERT_TRUE(soon([&] { return server_->counters().reply_bytes.load() == 32'000'000 - 16384; }));
    EXPECT_THAT(ask(large), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Retry-After: 1")));
    EXPECT_THAT(ask("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(ask("GET /large_stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                Not(HasSubstr("\r\n0\r\n\r\n")));  // cut
    EXPECT_GT(first.read().size(), 32'000'000u);
  }
  ASSERT_TRUE(soon([&] { return server_->counters().reply_bytes.load() == 0; }));
  EXPECT_GT(ask(large).size(), 32'000'000u);
}

// Small ones too, and one client leaves room for others.
TEST_F(HttpServerTest, ManyRepliesThatNobodyReadsAreBounded) {
  HttpConfig config;
  config.max_total_reply_bytes = 40'000'000;
  start(config);
  const auto request = [](const char* key) {
    return std::string("GET /medium HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-key: ") + key +
           "\r\n\r\n";
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->receive_little();
    clients.back()->send(request("many"));
  }
  ASSERT_TRUE(soon([&] { return server_->counters().reply_bytes.load() > 29'000'000; }));
  EXPECT_THAT(ask(request("many")), StartsWith("HTTP/1.1 503 "));
  EXPECT_LE(server_->counters().reply_bytes.load(), 30'000'000);
  EXPECT_THAT(ask(request("another")), StartsWith("HTTP/1.1 200 "));
  clients.clear();
  ASSERT_TRUE(soon([&] { return server_->counters().reply_bytes.load() == 0; }));
  EXPECT_THAT(ask(request("many")), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, TimesAreLimited) {
  HttpConfig config;
  config.header_timeout = config.body_timeout = config.idle_timeout = Milliseconds(300);
  start(config);
  EXPECT_THAT(ask("GET / HT"), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"),
              StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(ask(""), "");
  EXPECT_EQ(server_->counters().timed_out.load(), 2u);
}

TEST_F(HttpServerTest, MalformedRequestsGetFourHundred) {
  start({});
  for (const char* request :
       {"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/3.7\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "\x16\x03\x01\x02"}) {
    Client client(server_->port());
    client.send(request);
    client.half_close();
    const std::string reply = client.read();
    EXPECT_TRUE(reply.empty() || reply.starts_with("HTTP/1.1 400 ")) << request << reply;
  }
  EXPECT_GE(server_->counters().malformed.load(), 4u);
}

// Two readers of one connection must see the same requests.
TEST_F(HttpServerTest, WhatABodysLengthLeavesOpenIsRefused) {
  start({});
  const auto status_of = [&](const std::string& headers) {
    return ask("POST /echo HTTP/1.1\r\n" + headers + "\r\n2\r\nab\r\n0\r\n\r\n").substr(9, 3);
  };
  const std::string host = "Host: x\r\nConnection: close\r\n";
  EXPECT_EQ(status_of(host + "Transfer-Encoding: chunked\r\n"), "200");
  EXPECT_EQ(status_of(host + "transfer-encoding: CHUNKED\r\n"), "200");
  for (const char* coding : {"gzip, chunked", "chunked, gzip", "gzip", "identity",
                             "chunked, chunked", "identity, chunked", "chunked;q=1", "x"}) {
    const std::string status = status_of(host + "Transfer-Encoding: " + coding + "\r\n");
    EXPECT_TRUE(status == "501" || status == "400") << coding << ": " << status;
  }
  EXPECT_EQ(status_of(host + "Transfer-Encoding: gzip, chunked\r\n"), "501");
  EXPECT_EQ(status_of(host + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), "501");
  for (const char* both : {"Transfer-Encoding: identity\r\nContent-Length: 2\r\n",
                           "Content-Length: 2\r\nTransfer-Encoding: identity\r\n",
                           "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
                           "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n"}) {
    EXPECT_EQ(status_of(host + both), "400") << both;
  }
  for (const char* hosts :
       {"Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n", "", "Host: a, b\r\n", "Host: a b\r\n"})
    EXPECT_EQ(status_of(std::string(hosts) + "Content-Length: 0\r\n"), "400") << hosts;
  EXPECT_EQ(ask("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").substr(9, 3),
            "400");
}

TEST_F(HttpServerTest, RefusalsDoNotWaitForTheBody) {
  HttpConfig config;
  config.max_body_bytes = 1 << 20;
  start(config);
  for (const char* headers :
       {"Content-Length: 100", "Content-Length: 1000000", "Content-Length: 99999999999",
        "Transfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 100"}) {
    Client client(server_->port());
    client.send(std::string("POST /refused HTTP/1.1\r\nHost: x\r\n") + headers + "\r\n\r\n");
    const std::string reply = client.read("refused.");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 403 ")) << headers;
    EXPECT_THAT(reply, Not(HasSubstr("100 Continue")));
  }
  Client client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n");
  EXPECT_THAT(client.read(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, AConnectionGoesOnBehindASmallBodyThatNobodyRead) {
  start({});
  Client client(server_->port());
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
  EXPECT_THAT(client.read("refused."), HasSubstr("403"));
  client.send("helloPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_THAT(client.read("ab."), HasSubstr("POST /echo ab."));
  EXPECT_EQ(server_->counters().accepted.load(), 1u);
  // A large one is taken and thrown away: the client can read its answer, and nothing is kept.
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" +
              std::string(8000000, 'x'));
  EXPECT_THAT(client.read(), HasSubstr("refused."));
  EXPECT_EQ(server_->counters().body_bytes.load(), 0);
}

TEST_F(HttpServerTest, TooManyConnectionsAreTurnedAway) {
  HttpConfig config;
  config.max_connections = 2;
  start(config);
  Client one(server_->port()), two(server_->port());
  ASSERT_TRUE(soon([&] { return server_->counters().connections.load() == 2; }));
  Client three(server_->port());
  EXPECT_THAT(three.read(), StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(server_->counters().turned_away.load(), 1u);
  // Those that ask for nothing make room.
  EXPECT_TRUE(soon([&] {
    return ask("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .starts_with("HTTP/1.1 200 ");
  }));
}

// However slowly it sends and reads, one address does not keep the others out.
TEST_F(HttpServerTest, AnAddressWithManyConnectionsMakesWay) {
  HttpConfig config;
  config.max_connections = 32;
  start(config);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 32; ++i) {
    slow.push_back(std::make_unique<Client>(server_->port(), 2));
    slow.back()->send(i % 2 == 0 ? "POST /echo HTTP/1.1\r\n"
                                 : "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na");
  }
  ASSERT_TRUE(soon([&] { return server_->counters().connections.load() == 32; }));
  EXPECT_THAT(Client(server_->port(), 2).read(), StartsWith("HTTP/1.1 503 "));
  Client other(server_->port());
  other.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(other.read("a ."), StartsWith("HTTP/1.1 200 "));
  // One that is answered stays, whoever has many.
  Client answered(server_->port(), 3);
  answered.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(soon([&] { return server_->counters().exchanges.load() == 1; }));
  std::this_thread::sleep_for(Milliseconds(1100));
  Client third(server_->port(), 4);
  third.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(third.read("b ."), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(soon([&] { return server_->counters().connections.load() <= 4; }));
  EXPECT_TRUE(soon([&] { return server_->counters().exchanges.load() == 1; }));
  EXPECT_EQ(seen_.left.load(), 0);
}

TEST_F(HttpServerTest, LeavingClientsAreNoticedAtOnce) {
  start({});
  for (const char* more :
       {"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"}) {  // also behind a request that waits its turn
    const int before = seen_.left.load();
    {
      Client client(server_->port());
      client.send(std::string("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") + more);
      ASSERT_TRUE(soon([&] { return server_->counters().exchanges.load() == 1; }));
    }
    EXPECT_TRUE(soon([&] { return seen_.left.load() == before + 1; })) << more;
    EXPECT_TRUE(soon([&] { return server_->counters().exchanges.load() == 0; }));
  }
}

TEST_F(HttpServerTest, StopWaitsForExchangesThenAsksThenCuts) {
  start({});
  Client client(server_->port()), idle(server_->port());
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(soon([&] { return server_->counters().exchanges.load() == 1; }));
  std::atomic<bool> asked{false};
  const auto start = std::chrono::steady_clock::now();
  server_->stop(Milliseconds(200), [&] { asked = true; });
  EXPECT_EQ(idle.read(), "");
  Client late(server_->port());
  late.send("GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(late.read(), HasSubstr("Connection: close"));
  server_->wait();
  EXPECT_TRUE(asked.load());
  EXPECT_EQ(seen_.left.load(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, Milliseconds(200));
}

TEST(HttpServerOpen, Errors) {
  HttpConfig config;
  config.host = "not an address";
  EXPECT_EQ(HttpServer::open(config, {}, {}).error().code, ErrorCode::kInvalidArgument);
  config = {};
  config.port = 0;
  const auto first = HttpServer::open(config, {}, {});
  ASSERT_TRUE(first);
  config.port = (*first)->port();
  EXPECT_EQ(HttpServer::open(config, {}, {}).error().code, ErrorCode::kIo);
  config.tls_certificate = "/nonexistent.pem";
  EXPECT_EQ(HttpServer::open(config, {}, {}).error().code, ErrorCode::kInvalidArgument);
}

TEST(PresentedKey, AllWays) {
  const auto key = [](std::map<std::string, std::string> headers) {
    HttpRequest request;
    request.headers = std::move(headers);
    return presented_key(request);
  };
  EXPECT_EQ(key({}), "");
  EXPECT_EQ(key({{"authorization", "Bearer abc"}}), "abc");
  EXPECT_EQ(key({{"authorization", "bEARER  abc "}}), "abc");
  EXPECT_EQ(key({{"authorization", "Bearer"}}), "");
  EXPECT_EQ(key({{"authorization", "Bearerabc"}}), "");
  EXPECT_EQ(key({{"x-api-key", "k"}}), "k");
  EXPECT_EQ(key({{"authorization", "Basic bWU6YTpi"}}), "a:b");
  EXPECT_EQ(key({{"authorization", "Basic !!!"}}), "");
  EXPECT_EQ(key({{"authorization", "Basic " + std::string(10000, 'A')}}), "");
}

// Padding may be missing.
TEST(PresentedKey, OfEveryLength) {
  for (size_t n = 0; n < 200; ++n) {
    const std::string password(n, 'k');
    std::string basic = encode_base64("me:" + password);
    HttpRequest request;
    for (; request.headers["authorization"] = "Basic " + basic, true; basic.pop_back()) {
      EXPECT_EQ(presented_key(request), password) << basic;
      if (!basic.ends_with('=')) break;
    }
  }
}

}  // namespace
}  // namespace penstock

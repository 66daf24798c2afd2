// Redis servers of tests: a real one, and one that says what a test wants it to say.
#pragma once
#include <arpa/inet.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/spawn.h"
#include "engine/store/redis_connection.h"

namespace penstock {

// A socket that listens at a free port of the loopback address.
class Listener {
 public:
  Listener() {
    const int on = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, generic, sizeof(address)) != 0 || listen(socket_, 8) != 0) std::abort();
    socklen_t size = sizeof(address);
    getsockname(socket_, generic, &size);
    port_ = ntohs(address.sin_port);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(socket_); }
  int socket() const { return socket_; }
  RedisAddress address() const { return {.host = "127.0.0.1", .port = port_}; }

 private:
  const int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
};

// The package redis-tools has the server's program under the name of another, which it is too when
// it is called so; the package redis-server would start a service.
class RedisServer {
 public:
  // `how`: beside host and port, how it is reached.
  explicit RedisServer(std::vector<std::string> options = {}, RedisAddress how = {})
      : options_(std::move(options)), address_(std::move(how)) {
    address_.port = 0;
    start();
  }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() { kill(); }
  const RedisAddress& address() const { return address_; }

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  // Starts the server at its port, without what it had. REQUIRES: it is killed.
  void start() {
    if (address_.port == 0) address_ = address_.at(Listener().address().at());
    const std::string port = std::to_string(address_.port);
    std::vector<std::string> words = {"redis-server",
                                      "--port",
                                      address_.encrypted ? "0" : port,
                                      "--tls-port",
                                      address_.encrypted ? port : "0",
                                      "--bind",
                                      "127.0.0.1",
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--logfile",
                                      "/dev/null",
                                      "--loglevel",
                                      "warning"};
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    SpawnFiles files;
    SpawnAttributes attributes;
    if (posix_spawn(&process_, "/usr/bin/redis-check-rdb", files.get(), attributes.get(),
                    argv.data(), environ) != 0)
      process_ = 0;
    const std::string_view ping[] = {"PING"};
    for (int i = 0; i < 1000 && process_ > 0; ++i) {
      const Result<RedisReply> reply = RedisConnection(address_, RedisTimes{}).call(ping, 100);
      if (reply || reply.error().message.starts_with("NOAUTH")) return;
      usleep(10000);
    }
  }

 private:
  const std::vector<std::string> options_;
  RedisAddress address_;
  pid_t process_ = 0;
};

// Calls `serve` with each connection, one after the other, on a thread.
class FakeRedis {
 public:
  explicit FakeRedis(std::function<void(int)> serve)
      : thread_([this, serve = std::move(serve)] {
          while (!ends_) {
            pollfd one{listener_.socket(), POLLIN, 0};
            if (poll(&one, 1, 10) != 1) continue;
            const int connection = accept(listener_.socket(), nullptr, nullptr);
            ++n_connections_;
            serve(connection);
            close(connection);
          }
        }) {}
  ~FakeRedis() {
    ends_ = true;
    thread_.join();
  }
  RedisAddress address() const { return listener_.address(); }
  int n_connections() const { return n_connections_; }

 private:
  const Listener listener_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> n_connections_ = 0;
  std::thread thread_;
};

}  // namespace penstock

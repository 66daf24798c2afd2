// A request that no client waits for, and its answer: a line of a batch, a reply that is made in
// the background.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <string>

#include "server/http/exchange.h"

namespace penstock {

// An exchange with nobody at the other end: the answer is kept.
class UnattendedExchange : public Exchange {
 public:
  UnattendedExchange(net::any_io_executor executor, HttpRequest request)
      : executor_(std::move(executor)) {
    request_ = std::move(request);
  }

  net::any_io_executor executor() override { return executor_; }
  net::awaitable<void> reply(HttpReply reply) override {
    replied_ = true;
    status_ = reply.status;
    body_ = std::move(reply.body);
    co_return;
  }
  // Lines that ask for a stream are refused before, but files and pages come as streams too.
  net::awaitable<bool> begin_stream(HttpReply head) override {
    replied_ = true;
    status_ = head.status;
    co_return !gone_;
  }
  void put(std::string_view chunk) override { body_ += chunk; }
  bool all_sent() const override { return true; }
  net::awaitable<bool> flush() override { co_return !gone_; }
  net::awaitable<void> end_stream() override { co_return; }
  void break_off() override { leave(); }

  // As a client that closes its connection. On the executor.
  void leave() {
    if (gone_) return;
    gone_ = true;
    if (on_disconnect) std::exchange(on_disconnect, nullptr)();
  }
  const std::string& body() const { return body_; }

 private:
  net::any_io_executor executor_;
  std::string body_;
};

}  // namespace penstock

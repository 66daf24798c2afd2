// Requests without a waiting client: a line of a batch, or a background response.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <string>

#include "server/http/exchange.h"

namespace penstock {

// An exchange that keeps its answer.
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
  // Files and pages are streamed too; lines that request a stream are refused earlier.
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
  void cut() override { leave(); }

  // Simulates a disconnect. REQUIRES: called on the executor.
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

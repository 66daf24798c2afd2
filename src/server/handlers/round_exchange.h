// A nested exchange for one round of several that form one answer.
#pragma once
#include <string>
#include <utility>

#include "server/services/request_record.h"

namespace penstock {

// Streams the chunks of one round into the outer exchange; the first round that streams begins the
// outer stream. A whole reply (a refusal) is kept here instead. REQUIRES: the outer exchange
// outlives it; both use one executor and one request record.
class RoundExchange final : public Exchange {
 public:
  // streams: forward chunks to the client. begun: whether the outer stream has begun; updated.
  RoundExchange(Exchange& outer, bool streams, bool& begun)
      : outer_(outer), streams_(streams), begun_(begun) {
    request_ = outer.request();
    gone_ = outer.gone();
    outer_.on_disconnect = [this] { leave(); };
  }
  ~RoundExchange() override { outer_.on_disconnect = nullptr; }

  net::any_io_executor executor() override { return outer_.executor(); }
  net::awaitable<void> reply(HttpReply reply) override {
    replied_ = true;
    status_ = reply.status;
    refusal_ = std::move(reply);
    for (auto& header : reply_headers) refusal_.headers.push_back(std::move(header));
    reply_headers.clear();
    co_return;
  }
  net::awaitable<bool> begin_stream(HttpReply head) override {
    replied_ = true;
    status_ = head.status;
    take_headers();
    if (streams_ && !std::exchange(begun_, true))
      co_return co_await outer_.begin_stream(std::move(head));
    co_return !gone_;
  }
  void put(std::string_view chunk) override {
    if (streams_) outer_.put(chunk);
  }
  bool all_sent() const override { return !streams_ || outer_.all_sent(); }
  net::awaitable<bool> flush() override {
    if (streams_) co_return co_await outer_.flush();
    co_return !gone_;
  }
  net::awaitable<void> end_stream() override { co_return; }
  void break_off() override { leave(); }
  void cut() override { outer_.cut(); }

  // The kept reply, if the status is not 200.
  HttpReply& refusal() { return refusal_; }

 private:
  void take_headers() {
    if (begun_) return;
    for (auto& header : reply_headers) outer_.reply_headers.push_back(std::move(header));
    reply_headers.clear();
  }
  void leave() {
    if (std::exchange(gone_, true)) return;
    if (on_disconnect) std::exchange(on_disconnect, nullptr)();
  }

  Exchange& outer_;
  const bool streams_;
  bool& begun_;
  HttpReply refusal_;
};

}  // namespace penstock

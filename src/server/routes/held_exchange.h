// A nested exchange whose answer is held back until it is known whether the client gets it.
#pragma once
#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "server/services/request_record.h"

namespace penstock {

// Tokens are charged when they are computed, whether or not the answer is released. REQUIRES: the
// outer exchange outlives it; both use one executor.
class HeldExchange final : public Exchange {
 public:
  explicit HeldExchange(Exchange& outer) : outer_(outer) {
    const RequestRecord& asked = record_of(outer);
    request_ = outer.request();
    request_.record = asked.of_same_caller();
    request_.record->spending = asked.spending;
    request_.record->trace = asked.trace;
    if (asked.trace) request_.record->trace->notes.clear();
    outer_.on_disconnect = [this] { leave(); };
    gone_ = outer.gone();
  }
  ~HeldExchange() override {
    outer_.on_disconnect = nullptr;
    RequestRecord& asked = record_of(outer_);
    asked.over_budget |= record_of(*this).over_budget;
    if (!asked.trace) return;
    auto& notes = record_of(*this).trace->notes;
    try {
      asked.trace->notes.reserve(asked.trace->notes.size() + notes.size());
      std::ranges::move(notes, std::back_inserter(asked.trace->notes));
    } catch (const std::bad_alloc&) {  // the trace lacks them
    }
  }
  void set_request(std::string path, std::string body) {
    request_.path = std::move(path);
    request_.body = std::move(body);
  }

  net::any_io_executor executor() override { return outer_.executor(); }
  net::awaitable<void> reply(HttpReply reply) override {
    replied_ = true;
    status_ = reply.status;
    head_ = std::move(reply);
    co_return;
  }
  net::awaitable<bool> begin_stream(HttpReply head) override {
    replied_ = streams_ = true;
    status_ = head.status;
    head_ = std::move(head);
    co_return !gone_;
  }
  void put(std::string_view chunk) override { chunks_ += chunk; }
  bool all_sent() const override { return true; }
  net::awaitable<bool> flush() override { co_return !gone_; }
  net::awaitable<void> end_stream() override {
    ended_ = true;
    co_return;
  }
  void break_off() override { leave(); }
  void cut() override { outer_.cut(); }

  const std::string& body() const { return head_.body; }  // body of a whole reply
  // Sends the held answer to the client.
  net::awaitable<void> release() {
    outer_.on_disconnect = nullptr;
    for (auto& header : reply_headers) outer_.reply_headers.push_back(std::move(header));
    take_use();
    if (!streams_) co_return co_await outer_.reply(std::move(head_));
    if (!co_await outer_.begin_stream(std::move(head_))) co_return;
    if (!co_await outer_.write(chunks_)) co_return;
    if (ended_) co_return co_await outer_.end_stream();
    outer_.break_off();
  }

 private:
  // Adds the tokens to the outer request's use without charging them again.
  void take_use() {
    const RequestRecord::Use& more = record_of(std::as_const(*this)).use;
    RequestRecord::Use& use = record_of(outer_).use;
    use.prompt_tokens += more.prompt_tokens;
    use.completion_tokens += more.completion_tokens;
    use.cached_tokens += more.cached_tokens;
    use.model = more.model;
  }
  void leave() {
    if (std::exchange(gone_, true)) return;
    if (on_disconnect) std::exchange(on_disconnect, nullptr)();
  }

  Exchange& outer_;
  HttpReply head_;
  std::string chunks_;
  bool streams_ = false, ended_ = false;
};

}  // namespace penstock

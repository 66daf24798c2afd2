// A request body that grows with what arrives (never with what the client announces) and counts against a
// budget that all connections share.
#pragma once
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <boost/system/errc.hpp>
#include <string>
#include <utility>

namespace penstock {

// Bytes taken from a shared budget; given back at the end.
class BodyBudget {
 public:
  BodyBudget() = default;
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;
  ~BodyBudget() { release(); }

  void attach(std::atomic<int64_t>& used, int64_t limit) { used_ = &used, limit_ = limit; }
  bool take(int64_t bytes) {
    if (used_ == nullptr) return true;
    if (used_->fetch_add(bytes) + bytes > limit_) {
      used_->fetch_sub(bytes);
      return false;
    }
    taken_ += bytes;
    return true;
  }
  void release() {
    if (used_ != nullptr) used_->fetch_sub(std::exchange(taken_, 0));
  }

 private:
  std::atomic<int64_t>* used_ = nullptr;
  int64_t limit_ = 0, taken_ = 0;
};

// A Beast Body. Its own error is errc::not_enough_memory: the budget is spent.
struct GrowingBody {
  struct value_type {
    std::string text;
    BodyBudget* budget = nullptr;
  };
  class reader {
   public:
    template <bool is_request, class Fields>
    explicit reader(boost::beast::http::header<is_request, Fields>&, value_type& value) : value_(value) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t n = boost::asio::buffer_size(buffers);
      error = {};
      if (value_.budget != nullptr && !value_.budget->take(static_cast<int64_t>(n))) {
        error = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        value_.text.append(static_cast<const char*>(it->data()), it->size());
      }
      return n;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& value_;
  };
};

}  // namespace penstock

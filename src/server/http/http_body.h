// A request body that grows with what arrives (never with what the client announces) and counts
// against a budget that all connections share.
#pragma once
#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <boost/system/errc.hpp>
#include <mutex>
#include <string>
#include <utility>

#include "base/text_hash.h"

namespace penstock {

// How much of a shared budget each holder has. Thread-safe.
class BodyShares {
 public:
  bool take(const std::string& who, int64_t bytes, int64_t most) {
    const std::lock_guard lock(mutex_);
    const auto own = held_.try_emplace(who).first;
    const bool fits = own->second + bytes <= most;
    if (fits) own->second += bytes;
    if (own->second == 0) held_.erase(own);
    return fits;
  }
  void release(const std::string& who, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto own = held_.find(who);
    if (own != held_.end() && (own->second -= bytes) <= 0) held_.erase(own);
  }
  // Whether nobody holds more than `who`.
  bool is_largest(const std::string& who) {
    const std::lock_guard lock(mutex_);
    const auto own = held_.find(who);
    const int64_t held = own == held_.end() ? 0 : own->second;
    return std::ranges::all_of(held_, [&](const auto& one) { return one.second <= held; });
  }
  // Returns one of the largest holders; "": nobody holds anything.
  std::string largest() {
    const std::lock_guard lock(mutex_);
    const auto most =
        std::ranges::max_element(held_, {}, [](const auto& one) { return one.second; });
    return most == held_.end() ? std::string() : most->first;
  }

 private:
  std::mutex mutex_;
  TextMap<int64_t> held_;
};

// Bytes reserved in a shared budget; released by the destructor.
class BodyBudget {
 public:
  BodyBudget() = default;
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;
  ~BodyBudget() { release(); }

  // free: this many bytes are not counted, so that small bodies fit even when others use up the
  // budget.
  void attach(std::atomic<int64_t>& used, int64_t limit, int64_t free = 0) {
    used_ = &used, limit_ = limit, free_ = free;
  }
  // Sets the holder; no holder may have more than three quarters of the budget.
  void share(BodyShares& shares, std::string who) { shares_ = &shares, who_ = std::move(who); }
  bool take(int64_t bytes) {
    if (used_ == nullptr) return true;
    const int64_t n_free = std::min(bytes, free_);
    bytes -= n_free;
    if (shares_ != nullptr && !shares_->take(who_, bytes, limit_ / 4 * 3)) return false;
    if (used_->fetch_add(bytes) + bytes > limit_) {
      used_->fetch_sub(bytes);
      if (shares_ != nullptr) shares_->release(who_, bytes);
      return false;
    }
    free_ -= n_free;
    taken_ += bytes;
    return true;
  }
  void release() { keep(0); }
  // Releases all but `most` bytes.
  void keep(int64_t most) {
    const int64_t bytes = std::max<int64_t>(taken_ - most, 0);
    taken_ -= bytes;
    if (used_ != nullptr) used_->fetch_sub(bytes);
    if (shares_ != nullptr) shares_->release(who_, bytes);
  }

 private:
  std::atomic<int64_t>* used_ = nullptr;
  BodyShares* shares_ = nullptr;
  std::string who_;
  int64_t limit_ = 0, taken_ = 0, free_ = 0;
};

// A Beast Body. Fails with errc::not_enough_memory when the budget or the memory is exhausted.
struct GrowingBody {
  struct value_type {
    std::string text;
    BodyBudget* budget = nullptr;
  };
  class reader {
   public:
    template <bool is_request, class Fields>
    explicit reader(boost::beast::http::header<is_request, Fields>&, value_type& value)
        : value_(value) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& error) {
      error = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t n = boost::asio::buffer_size(buffers);
      error = {};
      if (value_.budget != nullptr && !value_.budget->take(static_cast<int64_t>(n))) {
        error = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      try {
        for (auto it = boost::asio::buffer_sequence_begin(buffers);
             it != boost::asio::buffer_sequence_end(buffers); ++it) {
          value_.text.append(static_cast<const char*>(it->data()), it->size());
        }
      } catch (const std::bad_alloc&) {
        error = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      return n;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& value_;
  };
};

}  // namespace penstock

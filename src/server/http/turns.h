// A fair queue: askers take turns, one element each. Not thread-safe.
#pragma once
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace penstock {

template <class T>
class Turns {
 public:
  bool empty() const { return turns_.empty(); }
  size_t size_of(const std::string& asker) const {
    const auto own = waiting_.find(asker);
    return own == waiting_.end() ? 0 : own->second.size();
  }
  // Strong exception guarantee for std::bad_alloc.
  void add(const std::string& asker, T one) {
    const auto own = waiting_.try_emplace(asker).first;
    const bool is_first = own->second.empty();
    try {
      if (is_first) turns_.push_back(own);
      own->second.push_back(std::move(one));
    } catch (...) {
      if (!is_first) throw;
      if (!turns_.empty() && turns_.back() == own) turns_.pop_back();
      waiting_.erase(own);
      throw;
    }
  }
  // Allocates nothing. REQUIRES: !empty()
  T take() { return take_of(turns_.begin()); }
  // Takes an element of the first asker for whom may(asker) is true; nullopt: none. Allocates
  // nothing.
  template <class May>
  std::optional<T> take_if(May&& may) {
    for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
      if (may((*turn)->first)) return take_of(turn);
    }
    return std::nullopt;
  }
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [asker, own] : waiting_) {
      for (const T& one : own) f(one);
    }
  }

 private:
  using Waiting = std::map<std::string, std::deque<T>>;
  using Askers = std::list<typename Waiting::iterator>;

  T take_of(typename Askers::iterator turn) {
    const auto own = *turn;
    T one = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty()) {
      turns_.erase(turn);
      waiting_.erase(own);
    } else {
      turns_.splice(turns_.end(), turns_, turn);
    }
    return one;
  }

  Waiting waiting_;  // by asker; no queue is empty
  Askers turns_;     // order of turns
};

}  // namespace penstock

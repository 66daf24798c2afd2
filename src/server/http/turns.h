// What waits, in turns between those who asked for it: one thing of each, one asker after the other. Not thread-safe.
#pragma once
#include <deque>
#include <map>
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
  void add(const std::string& asker, T one) {
    std::deque<T>& own = waiting_[asker];
    if (own.empty()) turns_.push_back(asker);
    own.push_back(std::move(one));
  }
  // REQUIRES: !empty()
  T take() {
    const auto own = waiting_.find(turns_.front());
    turns_.pop_front();
    T one = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty())
      waiting_.erase(own);
    else
      turns_.push_back(own->first);
    return one;
  }
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [asker, own] : waiting_) {
      for (const T& one : own) f(one);
    }
  }

 private:
  std::map<std::string, std::deque<T>> waiting_;  // by asker, none empty
  std::deque<std::string> turns_;                 // the askers that wait
};

}  // namespace penstock

// A token bucket with a rate per minute; bursts are at most one minute's worth.
#pragma once
#include <algorithm>
#include <chrono>

namespace penstock {

// Not thread-safe.
class Quota {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // per_minute 0: no limit. A new bucket is full.
  explicit Quota(double per_minute) : per_minute_(per_minute), level_(per_minute) {}

  bool limited() const { return per_minute_ > 0; }
  double per_minute() const { return per_minute_; }
  // Whether at least `n` units are available.
  bool has(double n, Time now) { return !limited() || (refill(now), level_ >= n); }
  // Takes n units; n < 0 gives them back. The level may become negative; refills make up for that
  // first.
  void take(double n, Time now) {
    if (limited()) refill(now), level_ = std::min(per_minute_, level_ - n);
  }
  // Returns the seconds until `n` units are available; 0: they are. REQUIRES: n is at most a
  // minute's worth.
  double wait_seconds(double n, Time now) {
    if (has(n, now)) return 0;
    return (n - level_) * 60 / per_minute_;
  }
  double left(Time now) { return refill(now), level_; }
  // Changes the rate; what is used of a minute stays used. A quota that was no limit is full.
  void set_rate(double per_minute, Time now) {
    refill(now);
    level_ = limited() && per_minute > 0 ? std::min(level_, per_minute) : per_minute;
    per_minute_ = per_minute;
  }

 private:
  void refill(Time now) {
    if (time_ != Time{} && now > time_) {
      const double seconds = std::chrono::duration<double>(now - time_).count();
      level_ = std::min(per_minute_, level_ + seconds * per_minute_ / 60);
    }
    if (now > time_) time_ = now;
  }

  double per_minute_;
  double level_;
  Time time_{};
};

}  // namespace penstock

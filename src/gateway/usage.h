// What API keys have used of which model on which day, and what it cost.
//
// Counted in memory and written to the store once a second, never on a request's way. A killed process loses what it has not
// written: the last second's.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "gateway/store/store.h"
#include "gateway/token_price.h"

namespace penstock {

struct UseCounts {
  int64_t requests = 0;
  int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;  // cached ones are input tokens too
  int64_t microseconds = 0;                                        // from request to end
  int64_t nano_cost = 0;                                           // 1e-9 of the currency's unit

  int64_t tokens() const { return input_tokens + output_tokens; }
  double cost() const { return static_cast<double>(nano_cost) * 1e-9; }
  UseCounts& operator+=(const UseCounts& more);
  UseCounts& operator-=(const UseCounts& less);
};
int64_t nano_cost_of(const TokenPrice& price, const UseCounts& use);

// Days are counted from 1970-01-01, in UTC.
int64_t day_of(int64_t unix_time);
int64_t first_day_of_month(int64_t day);
int64_t first_day_of_next_month(int64_t day);
std::string day_text(int64_t day);                   // "2026-11-25"
Result<int64_t> day_of_text(std::string_view text);  // Error: kInvalidArgument

struct UseRow {
  int64_t day = 0;
  std::string key, model;  // key: id of an API key, "" where there are none
  UseCounts use;
};
struct UseQuery {
  int64_t first_day = 0, last_day = INT64_MAX;
  std::string key;
  bool all_keys = true;
};
// By day, then key, then model.
Result<std::vector<UseRow>> read_use(Database& database, const UseQuery& query);

// Any thread.
class Usage {
 public:
  using Clock = std::function<int64_t()>;  // unix time, seconds
  using Warn = std::function<void(const std::string&)>;

  // store: null, nothing outlives the process. warn: told of a store that cannot be written; what it should have is kept in
  // memory until it can. Errors: of the store.
  static Result<std::unique_ptr<Usage>> open(std::shared_ptr<Store> store, Warn warn, Clock clock = {});
  // Writes what is left.
  ~Usage();

  // One request's.
  void note(const std::string& key, const std::string& model, const UseCounts& use);
  struct Spent {
    UseCounts today, month;
  };
  Spent spent(const std::string& key) const;
  // Room for what a request may use, as long as it is under way: `most`, which `fits` may set, counts for the key as reserved
  // if `fits`, told what was spent and what is reserved, says so. All in one step. False: nothing is reserved.
  using Fits = std::function<bool(const Spent& spent, const UseCounts& reserved)>;
  bool reserve(const std::string& key, const Fits& fits, const UseCounts& most);
  void release(const std::string& key, const UseCounts& held);
  int64_t now() const { return clock_(); }
  // All of it, the last second's too. Waits for the disk.
  Result<std::vector<UseRow>> rows(const UseQuery& query);

 private:
  using Place = std::tuple<int64_t, std::string, std::string>;  // day, key, model
  struct Balance {
    int64_t day = 0;
    Spent spent;
    UseCounts reserved;
  };

  Usage(std::shared_ptr<Store> store, Warn warn, Clock clock)
      : store_(std::move(store)), warn_(std::move(warn)), clock_(std::move(clock)) {}
  Status read_month();
  Status write();
  void write_always(const std::stop_token& stop);
  static void renew(Balance& balance, int64_t day);

  const std::shared_ptr<Store> store_;
  const Warn warn_;
  const Clock clock_;
  std::mutex writing_;
  mutable std::mutex mutex_;
  std::map<Place, UseCounts> unwritten_;  // without a store: all there is
  std::map<std::string, Balance, std::less<>> balances_;
  std::jthread writer_;  // last: it ends before what it uses
};

}  // namespace penstock

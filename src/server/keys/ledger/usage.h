// The use of each model by each API key on each day, and its cost.
//
// Use is counted in memory and written to the store once a second, outside of requests. A crash
// loses the last second's counts.
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
#include "server/keys/ledger/token_price.h"
#include "server/store/store.h"

namespace penstock {

struct UseCounts {
  int64_t requests = 0;
  // input_tokens includes cached_tokens
  int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // duration from the requests' arrival to their end
  int64_t microseconds = 0;
  int64_t nano_cost = 0;  // cost in 1e-9 of the currency's unit

  int64_t tokens() const { return input_tokens + output_tokens; }
  double cost() const { return static_cast<double>(nano_cost) * 1e-9; }
  UseCounts& operator+=(const UseCounts& more);
  UseCounts& operator-=(const UseCounts& less);
};
int64_t nano_cost_of(const TokenPrice& price, const UseCounts& use);

// Days are numbered from 1970-01-01, in UTC.
int64_t day_of(int64_t unix_time);
int64_t first_day_of_month(int64_t day);
int64_t first_day_of_next_month(int64_t day);
std::string day_text(int64_t day);                   // "2026-11-25"
Result<int64_t> day_of_text(std::string_view text);  // Error: kInvalidArgument

struct UseRow {
  int64_t day = 0;
  // key: id of an API key; "": the server has no keys
  std::string key, model;
  UseCounts use;
};
struct UseQuery {
  int64_t first_day = 0, last_day = INT64_MAX;
  std::string key;
  bool all_keys = true;
};
// Returns the rows in order of day, key, model.
Result<std::vector<UseRow>> read_use(Database& database, const UseQuery& query);

// Thread-safe.
class Usage {
 public:
  using Clock = std::function<int64_t()>;  // unix time, seconds
  using Warn = std::function<void(const std::string&)>;

  // store: null: use is kept in memory only. warn: called when the store cannot be written; the
  // counts stay in memory until it can. Errors: those of the store.
  static Result<std::unique_ptr<Usage>> open(std::shared_ptr<Store> store, Warn warn,
                                             Clock clock = {});
  // Writes the remaining counts.
  ~Usage();

  // Adds the use of one request.
  void note(const std::string& key, const std::string& model, const UseCounts& use);
  struct Spent {
    UseCounts today, month;
  };
  Spent spent(const std::string& key) const;
  // Reserves `most`, the maximum use of a request, until release(), if `fits` returns true for the
  // key's spent and reserved use; `fits` may set `most`. Atomic. Returns whether it was reserved.
  using Fits = std::function<bool(const Spent& spent, const UseCounts& reserved)>;
  bool reserve(const std::string& key, const Fits& fits, const UseCounts& most);
  void release(const std::string& key, const UseCounts& held);
  // Makes a part of what is reserved use of a request that goes on: spent for everybody until
  // unsettle(), when the request ends and is noted.
  void settle(const std::string& key, const UseCounts& used);
  void unsettle(const std::string& key, const UseCounts& used);
  int64_t now() const { return clock_(); }
  // Returns all use, including the last second's and what a full disk does not take.
  Result<std::vector<UseRow>> rows(const UseQuery& query);

 private:
  using Place = std::tuple<int64_t, std::string, std::string>;  // day, key, model
  struct Balance {
    int64_t day = 0;
    Spent spent;
    UseCounts reserved, settled;
  };

  Usage(std::shared_ptr<Store> store, Warn warn, Clock clock)
      : store_(std::move(store)), warn_(std::move(warn)), clock_(std::move(clock)) {}
  Status read_month();
  Status write();
  Status write_held();
  void write_always(const std::stop_token& stop);
  static void renew(Balance& balance, int64_t day);

  const std::shared_ptr<Store> store_;
  const Warn warn_;
  const Clock clock_;
  std::mutex writing_;
  mutable std::mutex mutex_;
  // counts to be written; without a store: all counts
  std::map<Place, UseCounts> unwritten_;
  std::map<std::string, Balance, std::less<>> balances_;
  std::jthread writer_;  // last: it ends before what it uses
};

}  // namespace penstock

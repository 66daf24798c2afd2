#include "server/keys/ledger/usage.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>

namespace penstock {
namespace {

namespace chrono = std::chrono;

constexpr auto kWriteInterval = chrono::seconds(1);
constexpr int64_t kSecondsOfDay = 86400;
constexpr int64_t kMostNanoCost = int64_t{1} << 53;  // cost of one request

chrono::year_month_day date_of(int64_t day) { return chrono::sys_days(chrono::days(day)); }
int64_t day_of(chrono::year_month_day date) {
  return chrono::sys_days(date).time_since_epoch().count();
}

constexpr const char* kUseColumns =
    "SELECT day, key, model, requests, input_tokens, cached_tokens, output_tokens, microseconds, "
    "nano_cost FROM usage WHERE day >= ?1 AND day <= ?2";

UseRow use_row_of(const DatabaseRow& row) {
  UseRow one{row.integer(0), row.text(1), row.text(2), {}};
  one.use = {row.integer(3), row.integer(4), row.integer(5),
             row.integer(6), row.integer(7), row.integer(8)};
  return one;
}

}  // namespace

UseCounts& UseCounts::operator+=(const UseCounts& more) {
  requests += more.requests;
  input_tokens += more.input_tokens;
  cached_tokens += more.cached_tokens;
  output_tokens += more.output_tokens;
  microseconds += more.microseconds;
  nano_cost += more.nano_cost;
  return *this;
}

UseCounts& UseCounts::operator-=(const UseCounts& less) {
  requests -= less.requests;
  input_tokens -= less.input_tokens;
  cached_tokens -= less.cached_tokens;
  output_tokens -= less.output_tokens;
  microseconds -= less.microseconds;
  nano_cost -= less.nano_cost;
  return *this;
}

int64_t nano_cost_of(const TokenPrice& price, const UseCounts& use) {
  const double cached = price.cached_input < 0 ? price.input : price.cached_input;
  const double cost = price.input * static_cast<double>(use.input_tokens - use.cached_tokens) +
                      cached * static_cast<double>(use.cached_tokens) +
                      price.output * static_cast<double>(use.output_tokens);
  constexpr double kNanoOfOneToken = 1e9 / 1e6;
  return static_cast<int64_t>(
      std::min(std::round(cost * kNanoOfOneToken), static_cast<double>(kMostNanoCost)));
}

int64_t day_of(int64_t unix_time) { return unix_time / kSecondsOfDay; }

int64_t first_day_of_month(int64_t day) {
  const auto date = date_of(day);
  return day_of(date.year() / date.month() / chrono::day(1));
}

int64_t first_day_of_next_month(int64_t day) {
  const auto date = date_of(day);
  const auto next = date.year() / date.month() + chrono::months(1);
  return day_of(next / chrono::day(1));
}

std::string day_text(int64_t day) {
  const auto date = date_of(day);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

Result<int64_t> day_of_text(std::string_view text) {
  int year = 0;
  unsigned month = 0, day = 0;
  const auto number = [&](size_t begin, size_t n, auto& value) {
    const char* end = text.data() + begin + n;
    return std::from_chars(text.data() + begin, end, value).ptr == end;
  };
  if (text.size() == 10 && text[4] == '-' && text[7] == '-' && number(0, 4, year) &&
      number(5, 2, month) && number(8, 2, day)) {
    const auto date = chrono::year(year) / static_cast<int>(month) / static_cast<int>(day);
    if (date.ok() && year >= 0) return day_of(date);
  }
  return errorf(ErrorCode::kInvalidArgument, "expected a day such as 2026-01-31, got {}",
                text.substr(0, 40));
}

Result<std::vector<UseRow>> read_use(Database& database, const UseQuery& query) {
  std::vector<UseRow> rows;
  const std::string sql = fmt::format("{}{} ORDER BY day, key, model", kUseColumns,
                                      query.all_keys ? "" : " AND key = ?3");
  const auto take = [&](const DatabaseRow& row) { rows.push_back(use_row_of(row)); };
  if (query.all_keys)
    RETURN_IF_ERROR(database.run(sql.c_str(), {query.first_day, query.last_day}, take));
  else
    RETURN_IF_ERROR(database.run(sql.c_str(), {query.first_day, query.last_day, query.key}, take));
  return rows;
}

Result<std::unique_ptr<Usage>> Usage::open(std::shared_ptr<Store> store, Warn warn, Clock clock) {
  if (!clock) clock = [] { return static_cast<int64_t>(std::time(nullptr)); };
  std::unique_ptr<Usage> usage(new Usage(std::move(store), std::move(warn), std::move(clock)));
  if (usage->store_ == nullptr) return usage;
  RETURN_IF_ERROR(usage->read_month());
  usage->writer_ =
      std::jthread([raw = usage.get()](const std::stop_token& stop) { raw->write_always(stop); });
  return usage;
}

Usage::~Usage() {
  if (store_ == nullptr) return;
  writer_.request_stop();
  writer_.join();
  if (const Status written = write(); !written)
    warn_("use is not kept: " + written.error().message);
}

Status Usage::read_month() {
  const int64_t today = day_of(clock_());
  ASSIGN_OR_RETURN(
      const auto rows,
      read_use(store_->database(),
               {.first_day = first_day_of_month(today), .last_day = today, .key = {}}));
  for (const UseRow& row : rows) {
    Balance& balance = balances_[row.key];
    balance.day = today;
    balance.spent.month += row.use;
    if (row.day == today) balance.spent.today += row.use;
  }
  return {};
}

// Resets the balances of past days and months.
void Usage::renew(Balance& balance, int64_t day) {
  if (balance.day == day) return;
  balance.spent.today = {};
  if (first_day_of_month(balance.day) != first_day_of_month(day)) balance.spent.month = {};
  balance.day = day;
}

void Usage::note(const std::string& key, const std::string& model, const UseCounts& use) {
  const int64_t today = day_of(clock_());
  const std::scoped_lock lock(mutex_);
  unwritten_[{today, key, model}] += use;
  Balance& balance = balances_[key];
  renew(balance, today);
  balance.spent.today += use;
  balance.spent.month += use;
}

Usage::Spent Usage::spent(const std::string& key) const {
  const int64_t today = day_of(clock_());
  const std::scoped_lock lock(mutex_);
  const auto found = balances_.find(key);
  if (found == balances_.end()) return {};
  Balance balance = found->second;
  renew(balance, today);
  return balance.spent;
}

bool Usage::reserve(const std::string& key, const Fits& fits, const UseCounts& most) {
  const int64_t today = day_of(clock_());
  const std::scoped_lock lock(mutex_);
  Balance& balance = balances_[key];
  renew(balance, today);
  Spent spent = balance.spent;
  spent.today += balance.settled, spent.month += balance.settled;
  if (!fits(spent, balance.reserved)) return false;
  balance.reserved += most;
  return true;
}

void Usage::release(const std::string& key, const UseCounts& held) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = balances_.find(key); found != balances_.end())
    found->second.reserved -= held;
}

void Usage::settle(const std::string& key, const UseCounts& used) {
  const std::scoped_lock lock(mutex_);
  Balance& balance = balances_[key];
  balance.reserved -= used;
  balance.settled += used;
}

void Usage::unsettle(const std::string& key, const UseCounts& used) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = balances_.find(key); found != balances_.end())
    found->second.settled -= used;
}

// REQUIRES: writing_.
Status Usage::write_held() {
  std::map<Place, UseCounts> news;
  {
    const std::scoped_lock lock(mutex_);
    news.swap(unwritten_);
  }
  if (news.empty()) return {};
  Status written;
  try {
    written = store_->database().transact([&]() -> Status {
      for (const auto& [place, use] : news) {
        const auto& [day, key, model] = place;
        RETURN_IF_ERROR(store_->database().run(
            "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO UPDATE "
            "SET requests = requests + ?4, input_tokens = input_tokens + ?5, cached_tokens = "
            "cached_tokens + ?6, output_tokens = output_tokens + ?7, microseconds = microseconds + "
            "?8, nano_cost = nano_cost + ?9",
            {day, key, model, use.requests, use.input_tokens, use.cached_tokens, use.output_tokens,
             use.microseconds, use.nano_cost}));
      }
      return {};
    });
  } catch (const std::bad_alloc&) {
    written = make_error(ErrorCode::kResourceExhausted, "out of memory");
  }
  if (written) return {};
  const std::scoped_lock lock(mutex_);
  // allocates nothing; rows that have a newer version remain in `news`
  unwritten_.merge(news);
  for (const auto& [place, use] : news) unwritten_.at(place) += use;
  return written;
}

Status Usage::write() {
  const std::scoped_lock one_at_a_time(writing_);
  return write_held();
}

void Usage::write_always(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  bool warned = false;
  while (!stopped.wait_for(lock, stop, kWriteInterval, [&] { return stop.stop_requested(); })) {
    try {
      const Status written = write();
      if (!written && !warned)
        warn_("use is kept in memory only, for now: " + written.error().message);
      warned = !written;
    } catch (const std::bad_alloc&) {  // while formatting the warning
    }
  }
}

Result<std::vector<UseRow>> Usage::rows(const UseQuery& query) {
  std::map<Place, UseCounts> found;
  const std::scoped_lock nobody_writes(writing_);
  if (store_ != nullptr) {
    (void)write_held();  // what a full disk does not take is added below
    ASSIGN_OR_RETURN(const auto written, read_use(store_->database(), query));
    for (const UseRow& row : written) found[{row.day, row.key, row.model}] = row.use;
  }
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [place, use] : unwritten_) {
      const auto& [day, key, model] = place;
      if (day >= query.first_day && day <= query.last_day && (query.all_keys || key == query.key))
        found[place] += use;
    }
  }
  std::vector<UseRow> rows;
  for (const auto& [place, use] : found)
    rows.push_back({std::get<0>(place), std::get<1>(place), std::get<2>(place), use});
  return rows;
}

}  // namespace penstock

// API keys with scopes, quotas (requests and tokens per minute) and budgets.
//
// A key is shown once, when it is made. The key file keeps its salted SHA-256: a key has 256 random
// bits, so that a slow hash would add nothing. Keys look like "pst-<id>-<secret>"; the id finds the
// entry, the secret is compared in constant time. Plain keys (--api-key, an environment variable)
// have no id and are compared with every plain entry.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/keys/ledger/budget.h"
#include "server/keys/ledger/quota.h"

namespace penstock {

// kAdmin implies the others
enum class Scope : uint8_t { kInference = 1, kMetrics = 2, kAdmin = 4 };

// Parses "inference,metrics" to bits of Scope. Errors: kInvalidArgument, with the known names.
Result<uint8_t> parse_scopes(std::string_view text);
std::string scope_names(uint8_t scopes);

// One line of the key file.
struct ApiKeyRecord {
  std::string id, name;
  // hexadecimal; hash = SHA-256(salt bytes + key)
  std::string salt, hash;
  uint8_t scopes = static_cast<uint8_t>(Scope::kInference);
  double requests_per_minute = 0, tokens_per_minute = 0;  // 0 = no limit
  Budget budget;
  int64_t created = 0;  // unix time, seconds
  // plain keys: a name that is the same in every run, as the id is not; not in the file
  std::string tenant;
};

// A new key: the record to store and the key for its user.
struct NewApiKey {
  ApiKeyRecord record;
  std::string key;
};
Result<NewApiKey> make_api_key(std::string name, uint8_t scopes, double requests_per_minute,
                               double tokens_per_minute, const Budget& budget = {});
// Returns the record of a plain key, which has all scopes.
Result<ApiKeyRecord> record_of_plain_key(std::string_view key);

// The file is JSON: {"keys": [{id, name, salt, hash, scopes, …}]}. Errors: reading: kNotFound,
// kCorruptFile; writing: kIo. Writing replaces the file atomically, with mode 0600.
Result<std::vector<ApiKeyRecord>> read_key_file(const std::string& path);
Status write_key_file(const std::string& path, const std::vector<ApiKeyRecord>& keys);

// A known key with the state of its quotas. Thread-safe.
class ApiKey {
 public:
  explicit ApiKey(ApiKeyRecord record);
  const ApiKeyRecord& record() const { return record_; }
  static constexpr const char* kPlainPayer = "plain";
  // Whether tokens must be counted: the key has a token quota or a budget.
  bool counts_tokens() const { return record_.tokens_per_minute > 0 || record_.budget.limited(); }
  // The name under which the key's use is counted: its id, or "plain" for plain keys, whose ids
  // differ between runs.
  const std::string& payer() const { return payer_; }
  // The tenant of cached prompts and replies: they are shared only within it. The same in every
  // run; reveals nothing of the secret.
  const std::string& tenant() const { return record_.tenant.empty() ? record_.id : record_.tenant; }
  bool may(Scope scope) const;
  bool matches(std::string_view key) const;  // compares in constant time

  // Why a request must wait: seconds until it may be retried, and the quota that is exhausted.
  struct Refusal {
    double retry_seconds;
    const char* what;  // "requests" or "tokens"
  };
  // Counts a request, or returns why it must wait.
  std::optional<Refusal> admit(Quota::Time now);
  // Takes n tokens from the quota; n < 0 returns tokens.
  void charge_tokens(double n, Quota::Time now);
  // Reserves n tokens, the most that a request may use, and adds the number taken to `held`; the
  // caller returns what the request does not use. n above the quota per minute needs a full bucket.
  // may_be_fewer: takes fewer tokens, at least 1, when n are not there.
  std::optional<Refusal> hold_tokens(double n, bool may_be_fewer, Quota::Time now, double& held);
  struct Left {
    double requests, tokens;
  };
  Left left(Quota::Time now) const;
  // Takes over the balances of `other`, which is the same key as the file had it: both share them, since
  // requests that run with the other one give back what they do not use.
  void share_balances(const ApiKey& other);

 private:
  struct Balances {
    std::mutex mutex;
    Quota requests, tokens;
  };
  const ApiKeyRecord record_;
  const std::string payer_;
  std::string salt_, hash_;  // bytes
  std::shared_ptr<Balances> balances_;
};

// Times of modification and of change (ns), size and inode: a copy may keep the time of modification.
using KeyFileStamp = std::array<int64_t, 4>;

// The keys of a server. Thread-safe.
class ApiKeys {
 public:
  // Called on the thread that watches the file, with "key added", "key revoked" or "key changed".
  using OnChange = std::function<void(std::string_view act, const ApiKeyRecord& record)>;
  // Opens the keys of `file` and the plain keys; an empty `file` means plain keys only. Errors:
  // those of read_key_file(); kInvalidArgument, when a plain key is empty or too long.
  static Result<std::unique_ptr<ApiKeys>> open(const std::string& file,
                                               const std::vector<std::string>& plain_keys,
                                               OnChange on_change = {});

  // Whether requests need a key: there is a plain key or a key file, even one without keys.
  bool required() const { return required_; }
  // Returns the key, or null when it is unknown. A change of the file takes effect within a second;
  // a file that became unreadable leaves the keys unchanged (warning() reports it once per change).
  std::shared_ptr<ApiKey> find(std::string_view key);
  // Returns the key of the file with this id, or null.
  std::shared_ptr<ApiKey> with_id(std::string_view id) const;
  bool any_budget() const;
  // Ends the thread that watches the file: on_change is not called any more.
  void stop_watching();
  // Returns the last problem with the file and clears it; "": none.
  std::string warning();

 private:
  ApiKeys() = default;
  void watch(const std::stop_token& stop);
  void read_again();
  using KeysById = std::map<std::string, std::shared_ptr<ApiKey>, std::less<>>;
  void take(std::vector<ApiKeyRecord> records);
  void tell_changes(const KeysById& before, const KeysById& after) const;

  std::string file_;
  OnChange on_change_;
  bool required_ = false;
  mutable std::mutex mutex_;
  KeysById by_id_;
  std::vector<std::shared_ptr<ApiKey>> plain_;
  // What told the file's content from others when it was last read. Used by the watcher only.
  KeyFileStamp stamp_{};
  std::string warning_;
  std::jthread watcher_;  // last: it ends before what it uses
};

}  // namespace penstock

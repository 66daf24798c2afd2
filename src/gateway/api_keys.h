// Who may use the server, and how much: API keys with scopes, request rates and token rates.
//
// A key is shown once, when it is made. The file keeps a salted SHA-256 of it: a key has 256 random bits, so
// that a slow hash would add nothing. Keys look like "pst-<id>-<secret>"; the id finds the entry, the secret
// is compared in constant time. Keys that were given as they are (--api-key, an environment variable) have no
// id and are compared with every such entry.
#pragma once
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
#include "gateway/budget.h"
#include "gateway/quota.h"

namespace penstock {

enum class Scope : uint8_t { kInference = 1, kMetrics = 2, kAdmin = 4 };  // admin may do everything

// "inference,metrics" -> bits. Error: kInvalidArgument with the known names.
Result<uint8_t> parse_scopes(std::string_view text);
std::string scope_names(uint8_t scopes);

// One line of the key file.
struct ApiKeyRecord {
  std::string id, name;
  std::string salt, hash;  // hexadecimal; hash = SHA-256(salt bytes + key)
  uint8_t scopes = static_cast<uint8_t>(Scope::kInference);
  double requests_per_minute = 0, tokens_per_minute = 0;  // 0 = no limit
  Budget budget;
  int64_t created = 0;  // unix time, seconds
  std::string tenant;   // of a key that was given as it is, whose id changes; not in the file
};

// A new key: the record to keep and the key to hand out.
struct NewApiKey {
  ApiKeyRecord record;
  std::string key;
};
Result<NewApiKey> make_api_key(std::string name, uint8_t scopes, double requests_per_minute,
                               double tokens_per_minute, const Budget& budget = {});
// The record of a key that was chosen by the user; it may do everything.
Result<ApiKeyRecord> record_of_plain_key(std::string_view key);

// The file is JSON: {"keys": [{id, name, salt, hash, scopes, …}]}. Errors of reading: kNotFound,
// kCorruptFile; of writing: kIo. It is replaced whole, with mode 0600.
Result<std::vector<ApiKeyRecord>> read_key_file(const std::string& path);
Status write_key_file(const std::string& path, const std::vector<ApiKeyRecord>& keys);

// A known key in use, with what is left of its quotas. Any thread.
class ApiKey {
 public:
  explicit ApiKey(ApiKeyRecord record);
  const ApiKeyRecord& record() const { return record_; }
  static constexpr const char* kPlainPayer = "plain";
  // Whether somebody has to be told of tokens: it has a quota or a budget of them.
  bool counts_tokens() const { return record_.tokens_per_minute > 0 || record_.budget.limited(); }
  // Under which name its use is counted: its id; of keys that were given as they are, whose ids change, "plain".
  const std::string& payer() const { return payer_; }
  // Whose cached prompts and replies it shares: nobody else's. The same in every run, and no secret of the key.
  const std::string& tenant() const { return record_.tenant.empty() ? record_.id : record_.tenant; }
  bool may(Scope scope) const;
  bool matches(std::string_view key) const;  // constant time

  // Counts a request; otherwise the seconds until it may come again and which quota is spent.
  struct Refusal {
    double retry_seconds;
    const char* what;  // "requests" or "tokens"
  };
  std::optional<Refusal> admit(Quota::Time now);
  // n below 0 gives tokens back.
  void charge_tokens(double n, Quota::Time now);
  // Takes the n tokens that a request may use at most from the quota, of which it gives back what it does not need; more than
  // a minute's worth when a whole minute's is there. may_be_fewer: what is there will do. `held` grows by what was taken.
  std::optional<Refusal> hold_tokens(double n, bool may_be_fewer, Quota::Time now, double& held);
  struct Left {
    double requests, tokens;
  };
  Left left(Quota::Time now) const;
  // The same key with other limits keeps its balances.
  void take_balances(const ApiKey& other);

 private:
  const ApiKeyRecord record_;
  const std::string payer_;
  std::string salt_, hash_;  // bytes
  mutable std::mutex mutex_;
  Quota requests_, tokens_;
};

// The keys of a server. Any thread.
class ApiKeys {
 public:
  // `file` may be empty, then only the plain keys count. Errors: of the file; an empty plain key.
  // on_change: told by the thread that watches the file of "key added", "key revoked", "key changed".
  using OnChange = std::function<void(std::string_view act, const ApiKeyRecord& record)>;
  static Result<std::unique_ptr<ApiKeys>> open(const std::string& file,
                                               const std::vector<std::string>& plain_keys,
                                               OnChange on_change = {});

  // Whether requests need a key: there is a plain key or a file, even one whose last key was revoked.
  bool required() const { return required_; }
  // Null when the key is unknown. A change of the file is taken up within a second; a file that became
  // unreadable leaves the keys as they were (warning() says so once per change).
  std::shared_ptr<ApiKey> find(std::string_view key);
  // Of the file. Null: there is none of that id.
  std::shared_ptr<ApiKey> with_id(std::string_view id) const;
  bool any_budget() const;
  // No on_change comes after it.
  void stop_watching();
  // The last problem with the file, cleared by the call.
  std::string warning();

 private:
  ApiKeys() = default;
  void watch(const std::stop_token& stop);
  using KeysById = std::map<std::string, std::shared_ptr<ApiKey>, std::less<>>;
  void take(std::vector<ApiKeyRecord> records);
  void tell_changes(const KeysById& before, const KeysById& after) const;

  std::string file_;
  OnChange on_change_;
  bool required_ = false;
  mutable std::mutex mutex_;
  KeysById by_id_;
  std::vector<std::shared_ptr<ApiKey>> plain_;
  std::pair<int64_t, int64_t>
      stamp_{};  // of the file: modification time in nanoseconds, size; of the watcher
  std::string warning_;
  std::jthread watcher_;  // last: it ends before what it uses
};

}  // namespace penstock

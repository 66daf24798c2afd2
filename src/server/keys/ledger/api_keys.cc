#include "server/keys/ledger/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

namespace penstock {
namespace {

constexpr std::string_view kPrefix = "pst-", kPlain = "plain-";
constexpr size_t kIdDigits = 12, kSecretBytes = 32, kSaltBytes = 16;
constexpr size_t kLongestKey = 512;  // bytes; longer keys are never valid

struct ScopeName {
  Scope scope;
  const char* name;
};
constexpr std::array<ScopeName, 3> kScopes = {
    {{Scope::kInference, "inference"}, {Scope::kMetrics, "metrics"}, {Scope::kAdmin, "admin"}}};

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// REQUIRES: valid digits, which read_key_file() checks.
std::string from_hex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(hex_digit(text[i]) * 16 + hex_digit(text[i + 1]));
  }
  return bytes;
}

Result<std::string> random_bytes(size_t n) {
  std::string bytes(n, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n)) != 1) {
    return errorf(ErrorCode::kInternal, "no random numbers from the system");
  }
  return bytes;
}

std::string sha256(std::string_view salt, std::string_view key) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  EVP_DigestUpdate(context, salt.data(), salt.size());
  EVP_DigestUpdate(context, key.data(), key.size());
  EVP_DigestFinal_ex(context, reinterpret_cast<unsigned char*>(digest.data()), &size);
  EVP_MD_CTX_free(context);
  digest.resize(size);
  return digest;
}

// Returns the id in a generated key; "": none.
std::string_view id_of(std::string_view key) {
  if (!key.starts_with(kPrefix) || key.size() <= kPrefix.size() + kIdDigits) return {};
  if (key[kPrefix.size() + kIdDigits] != '-') return {};
  return key.substr(kPrefix.size(), kIdDigits);
}

Status hash_into(std::string_view key, ApiKeyRecord& record) {
  ASSIGN_OR_RETURN(const std::string salt, random_bytes(kSaltBytes));
  record.salt = to_hex(salt);
  record.hash = to_hex(sha256(salt, key));
  record.created = std::time(nullptr);
  return {};
}

}  // namespace

Result<uint8_t> parse_scopes(std::string_view text) {
  uint8_t scopes = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto found =
        std::ranges::find_if(kScopes, [&](const ScopeName& scope) { return word == scope.name; });
    if (found == kScopes.end()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "scope: expected inference, metrics or admin, got {}", word);
    }
    scopes |= static_cast<uint8_t>(found->scope);
  }
  if (scopes == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "scope: expected at least one of inference, metrics, admin");
  return scopes;
}

std::string scope_names(uint8_t scopes) {
  std::string text;
  for (const ScopeName& scope : kScopes) {
    if ((scopes & static_cast<uint8_t>(scope.scope)) != 0)
      text += (text.empty() ? "" : ",") + std::string(scope.name);
  }
  return text;
}

Result<NewApiKey> make_api_key(std::string name, uint8_t scopes, double requests_per_minute,
                               double tokens_per_minute, const Budget& budget) {
  std::vector<double> limits = {requests_per_minute, tokens_per_minute};
  Budget::visit(budget, [&](std::string_view, double limit) { limits.push_back(limit); });
  for (const double limit : limits) {
    if (!std::isfinite(limit) || limit < 0) {
      return errorf(ErrorCode::kInvalidArgument,
                    "quota: expected a number that is not negative, got {}", limit);
    }
  }
  ASSIGN_OR_RETURN(const std::string id, random_bytes(kIdDigits / 2));
  ASSIGN_OR_RETURN(const std::string secret, random_bytes(kSecretBytes));
  NewApiKey made;
  made.record.id = to_hex(id);
  made.record.name = std::move(name);
  made.record.scopes = scopes;
  made.record.requests_per_minute = requests_per_minute;
  made.record.tokens_per_minute = tokens_per_minute;
  made.record.budget = budget;
  made.key = fmt::format("{}{}-{}", kPrefix, made.record.id, to_hex(secret));
  RETURN_IF_ERROR(hash_into(made.key, made.record));
  return made;
}

Result<ApiKeyRecord> record_of_plain_key(std::string_view key) {
  if (key.empty() || key.size() > kLongestKey) {
    return errorf(ErrorCode::kInvalidArgument, "API key: expected 1 to {} characters, got {}",
                  kLongestKey, key.size());
  }
  ApiKeyRecord record;
  record.scopes = static_cast<uint8_t>(Scope::kAdmin);
  record.name = "given at the start";
  RETURN_IF_ERROR(hash_into(key, record));
  record.id = std::string(kPlain) + record.hash.substr(0, 6);
  record.tenant = std::string(kPlain) + to_hex(sha256("tenant", key)).substr(0, 32);
  return record;
}

ApiKey::ApiKey(ApiKeyRecord record)
    : record_(std::move(record)),
      payer_(record_.id.starts_with(kPlain) ? kPlainPayer : record_.id),
      salt_(from_hex(record_.salt)),
      hash_(from_hex(record_.hash)),
      balances_(
          new Balances{{}, Quota(record_.requests_per_minute), Quota(record_.tokens_per_minute)}) {}

bool ApiKey::may(Scope scope) const {
  return (record_.scopes & (static_cast<uint8_t>(scope) | static_cast<uint8_t>(Scope::kAdmin))) !=
         0;
}

bool ApiKey::matches(std::string_view key) const {
  const std::string hash = sha256(salt_, key);
  return hash.size() == hash_.size() && CRYPTO_memcmp(hash.data(), hash_.data(), hash.size()) == 0;
}

std::optional<ApiKey::Refusal> ApiKey::admit(Quota::Time now) {
  const std::scoped_lock lock(balances_->mutex);
  // A rate below one per minute still admits a request when the bucket is full.
  const double one = std::min(1.0, balances_->requests.per_minute());
  if (const double wait = balances_->requests.wait_seconds(one, now); wait > 0)
    return Refusal{wait, "requests"};
  const double some = std::min(1.0, balances_->tokens.per_minute());
  if (const double wait = balances_->tokens.wait_seconds(some, now); wait > 0)
    return Refusal{wait, "tokens"};
  balances_->requests.take(1, now);
  return std::nullopt;
}

void ApiKey::charge_tokens(double n, Quota::Time now) {
  const std::scoped_lock lock(balances_->mutex);
  balances_->tokens.take(n, now);
}

std::optional<ApiKey::Refusal> ApiKey::hold_tokens(double n, bool may_be_fewer, Quota::Time now,
                                                   double& held) {
  const std::scoped_lock lock(balances_->mutex);
  Quota& tokens = balances_->tokens;
  if (!tokens.limited()) return std::nullopt;
  const double least = std::min(may_be_fewer ? 1 : n, tokens.per_minute());
  if (const double wait = tokens.wait_seconds(least, now); wait > 0) return Refusal{wait, "tokens"};
  const double taken = may_be_fewer ? std::min(n, tokens.left(now)) : n;
  tokens.take(taken, now);
  held += taken;
  return std::nullopt;
}

ApiKey::Left ApiKey::left(Quota::Time now) const {
  const std::scoped_lock lock(balances_->mutex);
  Quota requests = balances_->requests, tokens = balances_->tokens;
  return {std::max(0.0, requests.left(now)), std::max(0.0, tokens.left(now))};
}

void ApiKey::share_balances(const ApiKey& other) {
  balances_ = other.balances_;
  const std::scoped_lock lock(balances_->mutex);
  const Quota::Time now = std::chrono::steady_clock::now();
  balances_->requests.set_rate(record_.requests_per_minute, now);
  balances_->tokens.set_rate(record_.tokens_per_minute, now);
}

std::shared_ptr<ApiKey> ApiKeys::find(std::string_view key) {
  if (key.empty() || key.size() > kLongestKey) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (const auto entry = by_id_.find(id_of(key)); entry != by_id_.end()) {
    return entry->second->matches(key) ? entry->second : nullptr;
  }
  std::shared_ptr<ApiKey> found;
  for (const auto& candidate : plain_) {
    // no early exit: constant time
    if (candidate->matches(key)) found = candidate;
  }
  return found;
}

std::shared_ptr<ApiKey> ApiKeys::with_id(std::string_view id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

bool ApiKeys::any_budget() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(by_id_,
                             [](const auto& one) { return one.second->record().budget.limited(); });
}

void ApiKeys::stop_watching() { watcher_ = {}; }

std::string ApiKeys::warning() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(warning_, {});
}

}  // namespace penstock

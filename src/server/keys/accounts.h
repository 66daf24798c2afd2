// Authentication, ownership of stored objects, and accounting of use.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/traffic.h"
#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/usage.h"
#include "server/routing/endpoint.h"
#include "server/services/data_folder.h"
#include "server/services/served_models.h"

namespace penstock {

class RequestLog;
class Spending;
struct ServerConfig;

// Thread-safe after open().
class Accounts {
 public:
  // REQUIRES: all arguments outlive this object.
  Accounts(const ServerConfig& config, const DataFolder& data, const ServedModels& models,
           RequestLog& log, Traffic& traffic)
      : config_(config), data_(data), models_(models), log_(log), traffic_(traffic) {}

  // Opens the usage counters and, if the server listens, the keys. on_change is called on the
  // thread that watches the key file. Errors: those of both.
  Status open(std::function<void(std::string_view act, const ApiKeyRecord& record)> on_change);
  void stop_watching();

  bool needs_key() const { return keys_->required(); }
  Usage& usage() const { return *usage_; }
  // Returns a refusal if the key is missing, invalid, lacks the access or is over its quota. key:
  // set to the request's key if it has one.
  std::optional<HttpReply> check_key(Exchange& exchange, Access access,
                                     std::shared_ptr<ApiKey>& key);
  // Counts what an exchange, which has ended, has used.
  void note_use(const Exchange& exchange, std::chrono::steady_clock::time_point start);
  // Returns the exhausted budget of the API key with this id; nullopt: none.
  std::optional<BudgetState> spent_budget_of(const std::string& key) const;
  std::vector<BudgetState> budgets_of(const std::string& key) const;
  // Returns the spending of a batch line paid by the API key with this id; null: use is not
  // counted.
  std::shared_ptr<Spending> spending_of(const std::string& payer) const;
  // Whether the API key that created an object has been revoked. payer, owner: as recorded at
  // creation.
  bool is_revoked(const std::string& payer, const std::string& owner) const;
  // Returns the owner whose stored objects the request may access. REQUIRES: data.stores().
  std::string owner_of(const HttpRequest& request) const;

 private:
  const ServerConfig& config_;
  const DataFolder& data_;
  const ServedModels& models_;
  RequestLog& log_;
  Traffic& traffic_;
  std::unique_ptr<Usage> usage_;
  std::unique_ptr<ApiKeys> keys_;
};

}  // namespace penstock

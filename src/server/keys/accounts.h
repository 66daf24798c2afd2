// Who asks, whose things a request sees, and who pays.
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
#include "server/routing/route.h"
#include "server/services/data_folder.h"
#include "server/services/served_models.h"

namespace penstock {

class RequestLog;
class Spending;
struct ServerConfig;

// Any thread, once it is open.
class Accounts {
 public:
  // All outlive it.
  Accounts(const ServerConfig& config, const DataFolder& data, const ServedModels& models,
           RequestLog& log, Traffic& traffic)
      : config_(config), data_(data), models_(models), log_(log), traffic_(traffic) {}

  // Opens what counts the use of keys, and reads the keys where the server listens. on_change is
  // called on the thread that watches the file of keys. Errors: of both.
  Status open(std::function<void(std::string_view act, const ApiKeyRecord& record)> on_change);
  void stop_watching();

  bool needs_key() const { return keys_->required(); }
  Usage& usage() const { return *usage_; }
  // The reply that refuses a request for its key, or for what the key has left. `key` becomes the
  // key, where it has one.
  std::optional<HttpReply> check_key(Exchange& exchange, Access access,
                                     std::shared_ptr<ApiKey>& key);
  // Counts what an exchange, which has ended, has used.
  void note_use(const Exchange& exchange, std::chrono::steady_clock::time_point start);
  // Of the API key of that id: the budget that keeps it from being used, if there is one.
  std::optional<BudgetState> spent_budget_of(const std::string& key) const;
  std::vector<BudgetState> budgets_of(const std::string& key) const;
  // Of a batch's line that the API key of that id pays for. Null: nobody counts.
  std::shared_ptr<Spending> spending_of(const std::string& payer) const;
  // Whether the API key that something was begun with may begin nothing any more. payer, owner: as
  // it was noted then.
  bool is_revoked(const std::string& payer, const std::string& owner) const;
  // Whose things a request may see. REQUIRES: data.stores()
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

#include "server/keys/accounts.h"

#include <algorithm>

#include "server/keys/access.h"
#include "server/keys/key_spending.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/request_log.h"
#include "server/services/request_record.h"

namespace penstock {

Status Accounts::open(
    std::function<void(std::string_view act, const ApiKeyRecord& record)> on_change) {
  const auto warn = [this](const std::string& text) { log_.error(text); };
  ASSIGN_OR_RETURN(usage_,
                   Usage::open(data_.get() == nullptr ? nullptr : data_.get()->store, warn));
  if (!config_.listens) {
    ASSIGN_OR_RETURN(keys_, ApiKeys::open("", {}));
    return {};
  }
  ASSIGN_OR_RETURN(keys_,
                   ApiKeys::open(config_.api_key_file, config_.api_keys, std::move(on_change)));
  if (data_.get() == nullptr && keys_->any_budget())
    log_.warn(
        "budgets of API keys count from the start of the server only: there is no --data-dir");
  for (const ModelSettings& model : config_.models) {
    if (!model.keys.empty() && !needs_key()) {
      return errorf(
          ErrorCode::kInvalidArgument,
          "keys: {} is for some API keys only, and the server asks for none (--api-key-file)",
          model.names.front());
    }
  }
  return {};
}

void Accounts::stop_watching() {
  if (keys_ != nullptr) keys_->stop_watching();
}

void Accounts::note_use(const Exchange& exchange, std::chrono::steady_clock::time_point start) {
  const RequestRecord& record = record_of(exchange);
  if (record.use.model.empty()) return;
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  UseCounts use{1,
                record.use.prompt_tokens,
                record.use.cached_tokens,
                record.use.completion_tokens,
                static_cast<int64_t>(elapsed.count()),
                0};
  if (const auto model = models_.find(record.use.model))
    use.nano_cost = nano_cost_of((*model)->settings().price, use);
  usage_->note(record.payer, record.use.model, use);
}

std::vector<BudgetState> Accounts::budgets_of(const std::string& key) const {
  const auto known = keys_->with_id(key);
  if (known == nullptr) return {};
  return budget_states(known->record().budget, usage_->spent(key), usage_->now());
}

std::optional<BudgetState> Accounts::spent_budget_of(const std::string& key) const {
  const auto known = keys_->with_id(key);
  if (known == nullptr || !known->record().budget.limited()) return std::nullopt;
  return spent_budget(known->record().budget, usage_->spent(key), usage_->now());
}

std::shared_ptr<Spending> Accounts::spending_of(const std::string& payer) const {
  auto key = keys_->with_id(payer);
  if (key == nullptr || !key->record().budget.limited()) return nullptr;
  return penstock::spending_of(std::move(key), *usage_, false);
}

bool Accounts::is_revoked(const std::string& payer, const std::string& owner) const {
  if (payer.empty() || !needs_key()) return false;
  if (payer == ApiKey::kPlainPayer) {
    return std::ranges::none_of(config_.api_keys, [&](const std::string& key) {
      return data_.get()->store->owner_of(key) == owner;
    });
  }
  const auto key = keys_->with_id(payer);
  return key == nullptr || !key->may(Scope::kInference);
}

std::string Accounts::owner_of(const HttpRequest& request) const {
  return needs_key() ? data_.get()->store->owner_of(presented_key(request)) : std::string();
}

std::optional<HttpReply> Accounts::check_key(Exchange& exchange, Access access,
                                             std::shared_ptr<ApiKey>& key) {
  if (!keys_->required()) return std::nullopt;
  const HttpRequest& request = exchange.request();
  key = keys_->find(presented_key(request));
  if (const std::string warning = keys_->warning(); !warning.empty()) log_.warn(warning);
  if (key == nullptr) {
    traffic_.note_unauthorized();
    return error_reply(request, unauthorized(request));
  }
  const bool may = access == Access::kMetrics
                       ? key->may(Scope::kMetrics) || key->may(Scope::kInference)
                       : key->may(access == Access::kAdmin ? Scope::kAdmin : Scope::kInference);
  if (!may) {
    return error_reply(request, 403,
                       fmt::format("this API key has no {} scope, only {}",
                                   access == Access::kAdmin ? "admin" : "inference",
                                   scope_names(key->record().scopes)));
  }
  const bool sees_all =
      key->may(Scope::kAdmin) || (access == Access::kMetrics && key->may(Scope::kMetrics));
  RequestRecord& record = record_of(exchange);
  if (!sees_all) record.key = key->record().id;
  record.payer = key->payer();
  record.tenant = key->tenant();
  exchange.set_client(key->payer());
  if (access != Access::kKey || request.method != "POST") return std::nullopt;
  if (const auto spent = spent_budget_of(key->payer())) {
    traffic_.note_quota_refusal();
    return error_reply(request, over_budget(*spent, usage_->now()));
  }
  const auto now = std::chrono::steady_clock::now();
  const auto refused = key->admit(now);
  add_quota_headers(*key, exchange);
  if (refused) {
    traffic_.note_quota_refusal();
    return error_reply(request, over_quota(*key, *refused));
  }
  if (key->counts_tokens()) record.spending = penstock::spending_of(key, *usage_, true);
  return std::nullopt;
}

}  // namespace penstock

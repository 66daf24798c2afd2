#include "server/routes/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "server/api/api_request.h"
#include "server/api/pooling.h"
#include "server/handlers/respond.h"
#include "server/http/apart_threads.h"
#include "server/keys/accounts.h"
#include "server/routes/held_exchange.h"
#include "server/routes/route_request.h"
#include "server/routing/endpoint.h"
#include "server/services/data_folder.h"
#include "server/services/model_loads.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

double cost_of(const TokenPrice& price, int n_prompt, int n_completion) {
  return (price.input * n_prompt + price.output * n_completion) * 1e-6;
}

}  // namespace

Result<std::unique_ptr<Router>> Router::open(Services& services,
                                             const std::vector<RouteConfig>& configs) {
  std::unique_ptr<Router> router(new Router(services));
  for (const RouteConfig& config : configs) {
    auto table = std::make_unique<Table>();
    table->config = config;
    if (!config.score_file.empty()) {
      ASSIGN_OR_RETURN(table->score, RouteScore::load(config.score_file));
    }
    RETURN_IF_ERROR(router->check(*table));
    router->counts_[config.name];
    router->tables_.push_back(std::move(table));
  }
  return router;
}

Status Router::check(const Table& table) const {
  const RouteConfig& config = table.config;
  const auto problem = [&](const std::string& what) {
    return errorf(ErrorCode::kInvalidArgument, "route {}: {}", config.name, what);
  };
  if (services_.models.named(config.name) || counts_.contains(config.name))
    return problem("the name is taken");
  std::vector<std::string> names = {config.small, config.large, config.otherwise};
  for (const RouteRule& rule : config.rules) names.push_back(rule.model);
  if (!config.embedder.empty()) names.push_back(config.embedder);
  for (const std::string& name : names) {
    if (!services_.models.named(name)) return problem(fmt::format("there is no model {}", name));
  }
  return {};
}

bool Router::serves(const std::string& model, const std::string& key) const {
  return services_.models.find(model, key).has_value();
}

bool Router::may_use(const RouteConfig& config, const std::string& key) const {
  return serves(config.small, key) || serves(config.large, key);
}

bool Router::serves_at(const Endpoint& endpoint) const {
  return endpoint.streams && !tables_.empty();
}

const RouteConfig* Router::asked_for(const HttpRequest& request) const {
  // Parses the body only if it contains one of the names.
  for (const auto& table : tables_) {
    if (request.body.find('"' + table->config.name + '"') == std::string::npos) continue;
    const std::string name = model_named_in(services_, request);
    for (const auto& one : tables_) {
      if (one->config.name == name)
        return may_use(one->config, record_of(request).key) ? &one->config : nullptr;
    }
    return nullptr;
  }
  return nullptr;
}

std::vector<std::string> Router::names(const std::string& key) const {
  std::vector<std::string> names;
  for (const auto& table : tables_) {
    if (may_use(table->config, key)) names.push_back(table->config.name);
  }
  return names;
}

const Router::Table& Router::table_of(const RouteConfig& config) const {
  return **std::ranges::find_if(tables_, [&](const auto& one) { return &one->config == &config; });
}

net::awaitable<RouteDecision> Router::decide(const Table& table, const RouteFeatures& features,
                                             Exchange& exchange) {
  if (auto decision = decide_by_rules(table.config, features)) co_return *std::move(decision);
  if (!table.score || features.question.empty()) co_return decide_otherwise(table.config);
  const auto vector = co_await embed_for_server(services_, exchange, table.config.embedder,
                                                features.question, true);
  if (!vector || vector->size() != table.score->dimensions()) {
    RouteDecision decision = decide_otherwise(table.config);
    decision.reason = vector ? fmt::format("otherwise: the score is of vectors of {}, got {}",
                                           table.score->dimensions(), vector->size())
                             : "otherwise: no vector";
    co_return decision;
  }
  co_return decide_by_score(table.config, (*table.score)(*vector),
                            table.config.threshold.value_or(table.score->threshold));
}

net::awaitable<std::optional<bool>> Router::sees(const std::string& name, Exchange& exchange) {
  const auto model = services_.models.named(name);
  if (!model) co_return std::nullopt;
  if (model->sight_is_known()) co_return model->will_see();
  std::optional<bool> sees;
  co_await services_.run_chore(exchange, [&] { sees = model->will_see(); });
  co_return sees;
}

net::awaitable<RouteDecision> Router::seeing(const RouteConfig& config, RouteDecision decision,
                                             Exchange& exchange) {
  if (co_await sees(decision.model, exchange) != false) co_return decision;
  const std::array<const std::string*, 2> others = {&config.small, &config.large};
  for (const std::string* other : others) {
    if (*other == decision.model || co_await sees(*other, exchange) != true) continue;
    decision.model = *other;
    decision.reason += "; the model chosen has no eyes";
    break;
  }
  co_return decision;
}

net::awaitable<void> Router::answer(const RouteConfig& config, const Endpoint& endpoint,
                                    Exchange& exchange) {
  const Table& table = table_of(config);
  RouteFeatures features;
  co_await services_.run_apart(exchange,
                               [&] { features = features_of(services_, exchange.request()); });
  RouteDecision decision = co_await decide(table, features, exchange);
  if (exchange.gone()) co_return;
  // A key that may not use the chosen model gets the other one.
  const std::string& key = record_of(exchange).key;
  const bool has_both = serves(config.small, key) && serves(config.large, key);
  if (!serves(decision.model, key)) {
    decision.model = decision.model == config.small ? config.large : config.small;
    decision.reason += "; the key may not use the other";
  }
  if (features.pictures && has_both)
    decision = co_await seeing(config, std::move(decision), exchange);
  if (exchange.gone()) co_return;
  {
    const std::lock_guard lock(mutex_);
    ++counts_[config.name].decisions[{decision.model, decision.kind}];
  }
  std::string header =
      fmt::format("{}; model={}; reason=\"{}\"", config.name, decision.model, decision.reason);
  if (config.dry_run && serves(config.large, key)) {
    header += fmt::format("; dry-run; answered-by={}", config.large);
    decision.model = config.large;
  }
  // Stored responses cannot be withdrawn, and background responses are answered before they exist.
  const bool is_kept =
      std::string_view(endpoint.path) == "/v1/responses" && services_.data.get() != nullptr;
  bool cascades = has_both && config.cascade && decision.may_cascade && !config.dry_run &&
                  !is_kept && decision.model == config.small;
  if (cascades && features.pictures) cascades = co_await sees(config.large, exchange) == true;
  if (cascades) {
    const bool answered = co_await try_small(table, endpoint, exchange, features.question, header);
    if (answered) co_return;
    decision.model = config.large;
  }
  if (exchange.gone()) co_return;
  exchange.reply_headers.emplace_back("x-penstock-route", header);
  RequestRecord& record = record_of(exchange);
  record.model = decision.model;
  const int n_prompt = record.use.prompt_tokens, n_completion = record.use.completion_tokens;
  co_await respond(services_, endpoint, exchange);
  note_cost(config, decision.model, record.use.prompt_tokens - n_prompt,
            record.use.completion_tokens - n_completion, false);
}

net::awaitable<bool> Router::try_small(const Table& table, const Endpoint& endpoint,
                                       Exchange& exchange, const std::string& question,
                                       std::string& header) {
  const RouteConfig& config = table.config;
  const auto start = std::chrono::steady_clock::now();
  HeldExchange held(exchange);
  RequestRecord& record = record_of(held);
  record.model = config.small;
  record.confidence.emplace();
  co_await respond(services_, endpoint, held);
  if (held.gone()) co_return true;
  // A client error is the same for every model.
  const bool mistake = held.status() >= 400 && held.status() < 500 && held.status() != 429;
  std::string why;
  if (!mistake && held.status() != 200) why = fmt::format("status {}", held.status());
  if (held.status() == 200) why = co_await doubt(table, exchange, held, question);
  if (held.gone()) co_return true;
  note_cost(config, config.small, record.use.prompt_tokens, record.use.completion_tokens,
            !why.empty());
  {
    const std::lock_guard lock(mutex_);
    Counts& counts = counts_[config.name];
    ++(why.empty() ? counts.kept : counts.abandoned);
  }
  if (!why.empty()) services_.accounts.note_use(held, start);
  header += why.empty() ? "; cascade=kept"
                        : fmt::format("; cascade=abandoned; answered-by={}; doubt=\"{}\"",
                                      config.large, why);
  if (!why.empty()) co_return false;
  exchange.reply_headers.emplace_back("x-penstock-route", header);
  co_await held.release();
  co_return true;
}

// Returns why the answer is not acceptable; "": it is.
net::awaitable<std::string> Router::doubt(const Table& table, Exchange& exchange,
                                          const HeldExchange& held, const std::string& question) {
  const RouteCascade& cascade = *table.config.cascade;
  const RequestRecord::Confidence& confidence = *record_of(held).confidence;
  const double mean = confidence.n_tokens > 0 ? confidence.sum_logprob / confidence.n_tokens : 0;
  if (cascade.min_mean_logprob && confidence.n_tokens > 0 && mean < *cascade.min_mean_logprob)
    co_return fmt::format("mean log-probability {:.3f}", mean);
  if (cascade.check.empty()) co_return std::string();
  const auto model = services_.models.find(table.config.small);
  const ModelLease lease = model ? (*model)->lease() : nullptr;
  if (lease == nullptr) co_return "the check cannot be asked";
  CheckRequest request;
  co_await services_.run_apart(exchange, question.size() + confidence.text.size(), [&] {
    request = check_request(table.config.small, !lease->chat().chat_template().empty(),
                            check_prompt(cascade.check, question, confidence.text));
  });
  const Endpoint* const endpoint = find_post_endpoint(request.path);
  const auto start = std::chrono::steady_clock::now();
  HeldExchange asked(exchange);
  asked.set_request(request.path, request.body);
  RequestRecord& record = record_of(asked);
  record.model = table.config.small;
  co_await respond(services_, *endpoint, asked);
  note_cost(table.config, table.config.small, record.use.prompt_tokens,
            record.use.completion_tokens, true);
  services_.accounts.note_use(asked, start);
  if (asked.status() != 200)
    co_return fmt::format("the check cannot be asked: status {}", asked.status());
  const double yes = probability_of(cascade.yes, asked.body());
  co_return yes >= cascade.min_yes ? std::string() : fmt::format("own check {:.3f}", yes);
}

// wasted: the answer was discarded.
void Router::note_cost(const RouteConfig& config, const std::string& model, int n_prompt,
                       int n_completion, bool wasted) {
  const auto used = services_.models.named(model), large = services_.models.named(config.large);
  if (!used || !large) return;
  const double cost = cost_of(used->settings().price, n_prompt, n_completion);
  const std::lock_guard lock(mutex_);
  Counts& counts = counts_[config.name];
  counts.cost += cost;
  counts.saved += (wasted ? 0 : cost_of(large->settings().price, n_prompt, n_completion)) - cost;
}

std::map<std::string, Router::Counts> Router::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace penstock

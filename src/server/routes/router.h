// Routers: virtual models ("auto") that choose a served model for each request by a route table
// (routes/table).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/routes/table/route_score.h"
#include "server/routes/table/route_table.h"

namespace penstock {

class HeldExchange;
struct Services;
struct Endpoint;

// Thread-safe after open().
class Router {
 public:
  // Errors: kInvalidArgument (a name that is taken, or an unknown model), those of
  // RouteScore::load().
  static Result<std::unique_ptr<Router>> open(Services& services,
                                              const std::vector<RouteConfig>& configs);

  // Whether requests to the endpoint may name a route table.
  bool serves_at(const Endpoint& endpoint) const;
  // Returns the route table that the request names; null: none, or none that its key may use. Reads
  // the whole body.
  const RouteConfig* asked_for(const HttpRequest& request) const;
  // Returns the route tables with a model that the API key with this id may use.
  std::vector<std::string> names(const std::string& key) const;
  // Chooses a model and runs the handler with it.
  net::awaitable<void> answer(const RouteConfig& config, const Endpoint& endpoint,
                              Exchange& exchange);

  struct Counts {
    // by model and kind of reason
    std::map<std::pair<std::string, std::string>, int64_t> decisions;
    // cascades: answers of the small model that were used, and discarded
    int64_t kept = 0, abandoned = 0;
    // by the models' prices; saved: compared with the large model for every request
    double cost = 0, saved = 0;
  };
  std::map<std::string, Counts> counts() const;  // by name of the route table

 private:
  struct Table {
    RouteConfig config;
    std::optional<RouteScore> score;
  };
  explicit Router(Services& services) : services_(services) {}
  Status check(const Table& table) const;
  bool serves(const std::string& model, const std::string& key) const;
  bool may_use(const RouteConfig& config, const std::string& key) const;
  const Table& table_of(const RouteConfig& config) const;
  net::awaitable<RouteDecision> decide(const Table& table, const RouteFeatures& features,
                                       Exchange& exchange);
  // Whether a model sees, as ServedModel::will_see().
  net::awaitable<std::optional<bool>> sees(const std::string& model, Exchange& exchange);
  // Replaces the chosen model by the small or the large one, if that one sees and it does not.
  net::awaitable<RouteDecision> seeing(const RouteConfig& config, RouteDecision decision,
                                       Exchange& exchange);
  // Lets the small model answer; returns true if the answer was acceptable and has been sent.
  // question: for the cascade's check.
  net::awaitable<bool> try_small(const Table& table, const Endpoint& endpoint, Exchange& exchange,
                                 const std::string& question, std::string& header);
  net::awaitable<std::string> doubt(const Table& table, Exchange& exchange,
                                    const HeldExchange& held, const std::string& question);
  void note_cost(const RouteConfig& config, const std::string& model, int n_prompt,
                 int n_completion, bool wasted);

  Services& services_;
  std::vector<std::unique_ptr<const Table>> tables_;
  mutable std::mutex mutex_;
  std::map<std::string, Counts> counts_;
};

}  // namespace penstock

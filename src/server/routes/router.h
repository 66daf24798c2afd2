// Models that requests leave to the server: "auto" and the like, each with a table of routes/table.
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
struct Route;

// Any thread, once it is open.
class Router {
 public:
  // Errors: kInvalidArgument, a name that is taken or that no model has; those of RouteScore::load.
  static Result<std::unique_ptr<Router>> open(Services& services,
                                              const std::vector<RouteConfig>& configs);

  // Null: the request names none of those that its key may use.
  const RouteConfig* asked_for(const Route& route, const HttpRequest& request) const;
  // Of those that have a model which the API key of that id may use.
  std::vector<std::string> names(const std::string& key) const;
  // Chooses a model and lets it answer.
  net::awaitable<void> answer(const RouteConfig& config, const Route& route, Exchange& exchange);

  struct Counts {
    // by model and kind of reason
    std::map<std::pair<std::string, std::string>, int64_t> decisions;
    int64_t kept = 0, abandoned = 0;  // answers of the small model in a cascade
    // by the models' prices; saved: against the large one for every request
    double cost = 0, saved = 0;
  };
  std::map<std::string, Counts> counts() const;  // by name

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
  // Whether the small model's answer was good enough, and the client has it. question: for its own
  // check.
  net::awaitable<bool> try_small(const Table& table, const Route& route, Exchange& exchange,
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

// The rules and scores that choose a model for requests which leave the choice to the server.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/routes/table/route_features.h"

namespace penstock {

// A rule holds when all of its conditions hold.
struct RouteRule {
  std::optional<int64_t> min_characters, max_characters;
  std::optional<bool> code, mathematics, tools, json, pictures;
  std::vector<std::string> languages, keys;  // any one of them must match
  // name and value; all of them must match
  std::vector<std::pair<std::string, std::string>> headers;
  // maximum duration that the request allows
  std::optional<double> max_seconds;
  // model that answers when the rule holds
  std::string model;

  bool holds(const RouteFeatures& features) const;
  // Returns the names of its conditions: "code, language".
  std::string names() const;
};

struct RouteCascade {
  // Minimum mean log-probability of the tokens in an acceptable answer of the small model; nullopt:
  // not checked.
  std::optional<double> min_mean_logprob;
  // A prompt that asks the small model to judge its answer, with the placeholders {question} and
  // {answer}; "": none. The answer is acceptable when the judgement begins with `yes` with
  // probability min_yes or more.
  std::string check;
  std::string yes = "yes";
  double min_yes = 0.5;
};

struct RouteConfig {
  // model name of the requests that are routed: "auto"
  std::string name;
  std::string small, large;  // names of served models
  // small or large, when neither a rule nor the score decides
  std::string otherwise;
  std::vector<RouteRule> rules;  // the first rule that holds decides
  // file that `penstock route train` wrote; "": no score
  std::string score_file;
  // served model that embeds questions for the score
  std::string embedder;
  std::optional<double> threshold;  // replaces the threshold of score_file
  // Applies to requests that go to the small model by score or because no rule holds.
  std::optional<RouteCascade> cascade;
  // decide and report, but let the large model answer
  bool dry_run = false;
};

struct RouteDecision {
  std::string model;
  // human-readable: "rule 2: code", "score 0.81", "otherwise"
  std::string reason;
  // label in metrics: "rule", "score", "otherwise"
  const char* kind = "";
  bool may_cascade = false;
};

// Decides by the rules; nullopt: no rule holds.
std::optional<RouteDecision> decide_by_rules(const RouteConfig& config,
                                             const RouteFeatures& features);
RouteDecision decide_by_score(const RouteConfig& config, double score, double threshold);
RouteDecision decide_otherwise(const RouteConfig& config);

}  // namespace penstock

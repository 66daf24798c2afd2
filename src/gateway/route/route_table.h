// Which of several models answers a request that leaves it to the server.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/route/route_features.h"

namespace penstock {

// All that it has must hold.
struct RouteRule {
  std::optional<int64_t> min_characters, max_characters;
  std::optional<bool> code, mathematics, tools, json;
  std::vector<std::string> languages, keys;                  // one of them
  std::vector<std::pair<std::string, std::string>> headers;  // name and value, all of them
  std::optional<double> max_seconds;                         // a request that may take no longer
  std::string model;                                         // that answers then

  bool holds(const RouteFeatures& features) const;
  // What it looks at: "code, language".
  std::string names() const;
};

struct RouteCascade {
  // From which mean log-probability of its tokens the small model's answer is good enough; none: it is not looked at.
  std::optional<double> min_mean_logprob;
  // A question to the small model about its answer, with {question} and {answer} in it; "": none. Good enough is an answer
  // that begins with `yes` with at least this probability.
  std::string check;
  std::string yes = "yes";
  double min_yes = 0.5;
};

struct RouteConfig {
  std::string name;                 // that requests give as their model: "auto"
  std::string small, large;         // names of served models
  std::string otherwise;            // where neither rule nor score decides: one of both
  std::vector<RouteRule> rules;     // the first that holds decides
  std::string score_file;           // what `penstock route train` wrote; "": none
  std::string embedder;             // served model that makes its vectors
  std::optional<double> threshold;  // instead of the file's
  std::optional<RouteCascade>
      cascade;           // of requests that go to the small model by score or for want of a rule
  bool dry_run = false;  // decides, tells, and lets the large model answer
};

struct RouteDecision {
  std::string model;
  std::string reason;     // for people: "rule 2: code", "score 0.81", "otherwise"
  const char* kind = "";  // for metrics: "rule", "score", "otherwise"
  bool may_cascade = false;
};

// By the rules alone; nothing: none holds.
std::optional<RouteDecision> decide_by_rules(const RouteConfig& config, const RouteFeatures& features);
RouteDecision decide_by_score(const RouteConfig& config, double score, double threshold);
RouteDecision decide_otherwise(const RouteConfig& config);

}  // namespace penstock

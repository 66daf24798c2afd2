#include "server/routes/table/route_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

bool RouteRule::holds(const RouteFeatures& features) const {
  const auto is = [](const std::optional<bool>& wanted, bool got) {
    return !wanted || *wanted == got;
  };
  const auto one_of = [](const std::vector<std::string>& wanted, const std::string& got) {
    return wanted.empty() || std::ranges::find(wanted, got) != wanted.end();
  };
  if (min_characters && features.characters < *min_characters) return false;
  if (max_characters && features.characters > *max_characters) return false;
  if (!is(code, features.code) || !is(mathematics, features.mathematics)) return false;
  if (!is(tools, features.tools) || !is(json, features.json)) return false;
  if (!is(pictures, features.pictures)) return false;
  if (!one_of(languages, features.language) || !one_of(keys, features.key)) return false;
  if (max_seconds && (features.seconds <= 0 || features.seconds > *max_seconds)) return false;
  return std::ranges::all_of(headers, [&](const auto& header) {
    return features.header && features.header(header.first) == header.second;
  });
}

std::string RouteRule::names() const {
  std::string text;
  const auto add = [&](const char* name, bool has) {
    if (has) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add("length", min_characters || max_characters);
  add("code", code.has_value());
  add("mathematics", mathematics.has_value());
  add("language", !languages.empty());
  add("tools", tools.has_value());
  add("json", json.has_value());
  add("pictures", pictures.has_value());
  add("key", !keys.empty());
  add("header", !headers.empty());
  add("time", max_seconds.has_value());
  return text.empty() ? "always" : text;
}

std::optional<RouteDecision> decide_by_rules(const RouteConfig& config,
                                             const RouteFeatures& features) {
  for (size_t i = 0; i < config.rules.size(); ++i) {
    const RouteRule& rule = config.rules[i];
    if (rule.holds(features))
      return RouteDecision{rule.model, fmt::format("rule {}: {}", i + 1, rule.names()), "rule"};
  }
  return std::nullopt;
}

RouteDecision decide_by_score(const RouteConfig& config, double score, double threshold) {
  const bool large = score >= threshold;
  return {large ? config.large : config.small,
          fmt::format("score {:.3f}, threshold {:.3f}", score, threshold), "score", !large};
}

RouteDecision decide_otherwise(const RouteConfig& config) {
  return {config.otherwise, "otherwise", "otherwise", config.otherwise == config.small};
}

}  // namespace penstock

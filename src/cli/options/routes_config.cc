#include "cli/options/routes_config.h"

#include "base/ascii.h"
#include "cli/options/config_section.h"

namespace penstock {
namespace {

template <class T>
void read_optional(Section& section, const char* name, std::optional<T>& value) {
  T read{};
  const SectionJson* const given = section.find(name);
  section.read(name, read);
  if (given != nullptr) value = read;
}

// Reads a field that is a string or a list of strings.
void read_some(Section& section, const char* name, std::vector<std::string>& values) {
  const SectionJson* const given = section.find(name);
  if (given == nullptr) return;
  if (given->is_string()) {
    values = {given->get<std::string>()};
  } else {
    section.read(name, values);
    if (given->is_array() && given->empty()) section.fail(name, "at least one text", *given);
  }
}

std::string model_of(const RouteConfig& config, const std::string& use) {
  return use == "small" ? config.small : use == "large" ? config.large : use;
}

Status read_conditions(const SectionJson& fields, const std::string& place, RouteRule& rule) {
  Section section(fields, place);
  read_optional(section, "min_characters", rule.min_characters);
  read_optional(section, "max_characters", rule.max_characters);
  read_optional(section, "code", rule.code);
  read_optional(section, "mathematics", rule.mathematics);
  read_optional(section, "tools", rule.tools);
  read_optional(section, "json", rule.json);
  read_optional(section, "pictures", rule.pictures);
  read_optional(section, "max_seconds", rule.max_seconds);
  read_some(section, "language", rule.languages);
  read_some(section, "key", rule.keys);
  if (const SectionJson* headers = section.find("header")) {
    if (!headers->is_object()) section.fail("header", "an object: value by name", *headers);
    for (const auto& [name, value] : headers->items()) {
      if (!value.is_string()) {
        section.fail("header", "an object: value by name", *headers);
        break;
      }
      rule.headers.emplace_back(ascii_lower(name), value.get<std::string>());
    }
  }
  RETURN_IF_ERROR(section.check());
  if (fields.empty()) return errorf(ErrorCode::kInvalidArgument, "{}: expected a condition", place);
  return {};
}

Status read_rules(const SectionJson& list, const std::string& place, RouteConfig& config) {
  if (!list.is_array()) return errorf(ErrorCode::kInvalidArgument, "{}: expected a list", place);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", place, i);
    Section section(list[i], here);
    RouteRule rule;
    std::string use;
    const SectionJson* const conditions = section.find("if");
    section.read("use", use);
    RETURN_IF_ERROR(section.check());
    if (conditions == nullptr || use.empty())
      return errorf(ErrorCode::kInvalidArgument, "{}: expected if and use", here);
    RETURN_IF_ERROR(read_conditions(*conditions, here + ".if", rule));
    rule.model = model_of(config, use);
    config.rules.push_back(std::move(rule));
  }
  return {};
}

Status read_score(const SectionJson& fields, const std::string& place, RouteConfig& config) {
  Section section(fields, place);
  section.read("file", config.score_file);
  section.read("model", config.embedder);
  read_optional(section, "threshold", config.threshold);
  RETURN_IF_ERROR(section.check());
  if (config.score_file.empty() || config.embedder.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected file, and model, which makes the vectors", place);
  return {};
}

Status read_check(const SectionJson& fields, const std::string& place, RouteCascade& cascade) {
  Section section(fields, place);
  section.read("prompt", cascade.check);
  section.read("yes", cascade.yes);
  section.read("at_least", cascade.min_yes);
  if (cascade.yes.empty()) section.fail("yes", "a word", "");
  if (!(cascade.min_yes >= 0 && cascade.min_yes <= 1))
    section.fail("at_least", "0 to 1", cascade.min_yes);
  RETURN_IF_ERROR(section.check());
  if (cascade.check.find("{answer}") == std::string::npos)
    return errorf(ErrorCode::kInvalidArgument, "{}.prompt: expected a text with {{answer}} in it",
                  place);
  return {};
}

Status read_cascade(const SectionJson& fields, const std::string& place, RouteConfig& config) {
  Section section(fields, place);
  RouteCascade cascade;
  read_optional(section, "min_mean_logprob", cascade.min_mean_logprob);
  const SectionJson* const check = section.find("check");
  RETURN_IF_ERROR(section.check());
  if (check != nullptr) RETURN_IF_ERROR(read_check(*check, place + ".check", cascade));
  if (!cascade.min_mean_logprob && check == nullptr)
    return errorf(ErrorCode::kInvalidArgument, "{}: expected min_mean_logprob, check or both",
                  place);
  config.cascade = std::move(cascade);
  return {};
}

Result<RouteConfig> read_route(const SectionJson& fields, const std::string& place) {
  Section section(fields, place);
  RouteConfig config;
  std::string otherwise = "small";
  section.read("name", config.name);
  section.read("small", config.small);
  section.read("large", config.large);
  section.read("otherwise", otherwise);
  section.read("dry_run", config.dry_run);
  const SectionJson *const rules = section.find("rules"), *const score = section.find("score"),
                           *const cascade = section.find("cascade");
  if (otherwise != "small" && otherwise != "large")
    section.fail("otherwise", "\"small\" or \"large\"", otherwise);
  RETURN_IF_ERROR(section.check());
  for (const auto& [name, value] :
       {std::pair("name", &config.name), std::pair("small", &config.small),
        std::pair("large", &config.large)}) {
    // Names are sent in headers and in quoted strings.
    const bool plain = std::ranges::all_of(
        *value, [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != ';'; });
    if (value->empty() || !plain)
      return errorf(ErrorCode::kInvalidArgument,
                    "{}.{}: expected a name of plain characters, got \"{}\"", place, name, *value);
  }
  config.otherwise = model_of(config, otherwise);
  if (rules != nullptr) RETURN_IF_ERROR(read_rules(*rules, place + ".rules", config));
  if (score != nullptr) RETURN_IF_ERROR(read_score(*score, place + ".score", config));
  if (cascade != nullptr) RETURN_IF_ERROR(read_cascade(*cascade, place + ".cascade", config));
  return config;
}

}  // namespace

Result<std::vector<RouteConfig>> read_routes(const SectionJson& list, const std::string& place) {
  if (!list.is_array()) return errorf(ErrorCode::kInvalidArgument, "{}: expected a list", place);
  std::vector<RouteConfig> routes;
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(auto route, read_route(list[i], fmt::format("{}[{}]", place, i)));
    routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace penstock

#include "server/keys/access.h"

#include <algorithm>
#include <cmath>

#include "base/ascii.h"
#include "base/base64.h"

namespace penstock {
namespace {

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.size() > word.size() && text[word.size()] == ' ' &&
         std::equal(word.begin(), word.end(), text.begin(),
                    [](char a, char b) { return a == ascii_lower(b); });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string password_of(std::string_view basic) {
  constexpr size_t kLongest = 4096;
  if (basic.size() > kLongest) return {};
  const auto text = decode_base64(basic, Base64::kPlain);
  const size_t colon = text ? text->find(':') : std::string::npos;
  return colon == std::string::npos ? std::string() : text->substr(colon + 1);
}

}  // namespace

std::string presented_key(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  if (starts_with_word(authorization, "bearer")) return std::string(trim(authorization.substr(7)));
  if (const std::string_view key = request.header("x-api-key"); !key.empty())
    return std::string(key);
  if (starts_with_word(authorization, "basic")) return password_of(trim(authorization.substr(6)));
  return {};
}

HttpRefusal unauthorized(const HttpRequest& request) {
  HttpRefusal refusal{401,
                      presented_key(request).empty() ? "an API key is needed" : "unknown API key"};
  if (request.header("accept").find("text/html") != std::string_view::npos) {
    refusal.headers.emplace_back("WWW-Authenticate",
                                 "Basic realm=\"Penstock: any name, the API key as password\"");
  }
  return refusal;
}

HttpRefusal over_quota(const ApiKey& key, const ApiKey::Refusal& refusal) {
  const bool tokens = std::string_view(refusal.what) == "tokens";
  const double limit = tokens ? key.record().tokens_per_minute : key.record().requests_per_minute;
  const double seconds = std::clamp(std::ceil(refusal.retry_seconds), 1.0, 86400.0);
  return {429,
          fmt::format("this API key's quota is {} {} per minute; try again in {} s", limit,
                      refusal.what, seconds),
          {{"Retry-After", fmt::format("{:.0f}", seconds)}}};
}

std::string text_of_budget(const BudgetState& budget) {
  std::string what = budget.name;
  std::ranges::replace(what, '_', ' ');
  return fmt::format(
      "this API key's budget is {} {}, and {} are used; it is renewed at {}T00:00:00Z",
      budget.limit, what, budget.used, day_text(day_of(budget.resets_at)));
}

HttpRefusal over_budget(const BudgetState& budget, int64_t now) {
  return {429,
          text_of_budget(budget),
          {{"Retry-After", std::to_string(std::max<int64_t>(budget.resets_at - now, 1))}}};
}

HttpRefusal no_room_in_budget(const BudgetState& budget, int64_t now) {
  const bool for_good = budget.used + budget.wanted > budget.limit;
  return {429,
          fmt::format("{}, {} are reserved by requests under way and this request may use {}: {}",
                      text_of_budget(budget), budget.reserved, budget.wanted,
                      for_good ? "it needs a smaller prompt or max_tokens"
                               : "try again when they have ended"),
          {{"Retry-After",
            std::to_string(for_good ? std::max<int64_t>(budget.resets_at - now, 1) : 1)}}};
}

void add_quota_headers(const ApiKey& key, Exchange& exchange) {
  const auto left = key.left(std::chrono::steady_clock::now());
  const auto add = [&](const char* what, double limit, double remaining) {
    if (limit <= 0) return;
    exchange.reply_headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what),
                                        fmt::format("{:.0f}", limit));
    exchange.reply_headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what),
                                        fmt::format("{:.0f}", std::floor(remaining)));
  };
  add("requests", key.record().requests_per_minute, left.requests);
  add("tokens", key.record().tokens_per_minute, left.tokens);
}

}  // namespace penstock

// Keys, quotas and origins as HTTP shows them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "gateway/api_keys.h"
#include "server/exchange.h"

namespace penstock {

// The key of a request: "Authorization: Bearer KEY", "x-api-key: KEY", or the password of Basic
// authentication (what a browser asks its user for). Empty: none.
std::string presented_key(const HttpRequest& request);

// 401; a browser that loads a page is told to ask its user.
HttpReply unauthorized_reply(const HttpRequest& request);
// 429 with Retry-After.
HttpReply quota_reply(const HttpRequest& request, const ApiKey& key, const ApiKey::Refusal& refusal);
// x-ratelimit-limit-… and x-ratelimit-remaining-… of the quotas that the key has.
void add_quota_headers(const ApiKey& key, Exchange& exchange);

// "https://example.org", "http://localhost:3000" or "*". Error: kInvalidArgument.
Status check_cors_origin(std::string_view origin);
// Adds the headers of an allowed origin; the reply of a preflight request, or nothing for others.
std::optional<HttpReply> allow_origin(Exchange& exchange, const std::string& origin);

}  // namespace penstock

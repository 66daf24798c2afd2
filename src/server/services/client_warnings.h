// What a client shall know of a request that is answered all the same: fields that were left out,
// tools that are not run here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace penstock {

struct Services;

inline constexpr const char* kWarningHeader = "X-Penstock-Warning";

// Notes a warning: "colour: this server knows no such field, it is left out"; "" is none. Without
// an effect where nobody made the request's record. Not thread-safe for one request.
void warn_client(const HttpRequest& request, std::string_view warning);
void warn_client(const HttpRequest& request, const std::vector<std::string>& warnings);

// Puts the warnings so far into the reply's header: printable ASCII, at most 1,000 bytes, "; "
// between two. A request that no client waits for has them in the log.
void tell_warnings(Services& services, Exchange& exchange);

}  // namespace penstock

// Warnings for clients about requests that are answered nevertheless: ignored fields, tools that
// cannot run here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace penstock {

struct Services;

inline constexpr const char* kWarningHeader = "X-Penstock-Warning";

// Adds a warning: "colour: this server knows no such field, it is left out"; "": no effect. No
// effect without a request record. Not thread-safe for one request.
void warn_client(const HttpRequest& request, std::string_view warning);
void warn_client(const HttpRequest& request, const std::vector<std::string>& warnings);

// Sets the reply header from the warnings so far: printable ASCII, at most 1,000 bytes, separated
// by "; ". For requests without a waiting client the warnings go to the log.
void tell_warnings(Services& services, Exchange& exchange);

}  // namespace penstock

// Bounds of bodies whose text is counted or shown but not computed (most_text()). What is pictures
// and sounds in their messages does not count: they cost what they cost in a chat.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

struct Services;

// Runs work of about n_bytes apart (Services::run_apart()) on a body that was not read yet. Returns
// false where it has more text beside base64 than it may: the work is then left out, and the client
// has a 413 in the shape of the requested API. Looks at every byte of a large body.
net::awaitable<bool> run_on_text(Services& services, Exchange& exchange, size_t n_bytes,
                                 std::function<void()> work);
// Error where a body that was read has more text: base64 counts as text where it is no picture or
// sound. Errors: kInvalidArgument.
Status check_read_text(const Services& services, const HttpRequest& request,
                       const nlohmann::ordered_json& body);

// Returns the bytes of base64 that stand where files do: behind "base64," and in members named
// "data".
size_t base64_bytes_in(std::string_view body);

}  // namespace penstock

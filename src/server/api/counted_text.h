// Bounds of bodies whose text is counted or shown but not computed (most_text()). What is pictures
// and sounds in their messages does not count: they cost what they cost in a chat.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

struct Services;

// Returns a 413 reply, in the shape of the requested API, if a body that was not read yet has more
// text beside base64 than it may. Looks at every byte of a large body.
std::optional<HttpReply> check_text_beside_files(const Services& services,
                                                 const HttpRequest& request);
// The same of a body that was read: base64 counts as text where it is no picture or sound. Error:
// kInvalidArgument.
Status check_read_text(const Services& services, const HttpRequest& request,
                       const nlohmann::ordered_json& body);

// Returns the bytes of base64 that stand where files do: behind "base64," and in members named
// "data".
size_t base64_bytes_in(std::string_view body);

}  // namespace penstock

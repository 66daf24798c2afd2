// gzip compression of replies.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

// Whether an Accept-Encoding header names gzip or * with a weight above 0, gzip's own weight first.
bool accepts_gzip(std::string_view accept_encoding);

// Returns the text as one member of a gzip file (RFC 1952) without a name or a time.
std::string gzip(std::string_view text);

}  // namespace penstock

// Removes server paths from error messages for clients.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

// Strips the folders of paths: "/srv/models/a.gguf: …" becomes "a.gguf: …". The log has the full
// message.
std::string without_folders(std::string_view message);

}  // namespace penstock

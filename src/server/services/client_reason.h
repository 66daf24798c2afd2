// Errors about the server's files, as clients read them.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

// The message without the folders of the paths in it: "/srv/models/a.gguf: …" is "a.gguf: …". The
// log has it whole.
std::string without_folders(std::string_view message);

}  // namespace penstock

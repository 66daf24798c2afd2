// Models by name for commands: found, or downloaded before the user's eyes.
#pragma once
#include <string>

#include "base/result.h"
#include "hub/hub.h"

namespace penstock {

// resolve_model and pull_model with a progress bar on a terminal, and a line on stderr at the start elsewhere. Ctrl-C stops
// the download and keeps what came; before and after it does what it did.
Result<FoundModel> find_or_download(const std::string& name);
Result<FoundModel> download_newest(const std::string& name);

}  // namespace penstock

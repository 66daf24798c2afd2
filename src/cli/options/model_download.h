// Finds or downloads models by name for commands, with visible progress.
#pragma once
#include <string>

#include "base/result.h"
#include "hub/hub.h"

namespace penstock {

// Call resolve_model() and pull_model() with a progress bar on a terminal, otherwise with one line
// on stderr at the start. During the download Ctrl-C stops it and keeps the received bytes;
// afterwards the previous handler applies again.
Result<FoundModel> find_or_download(const std::string& name);
Result<FoundModel> download_newest(const std::string& name);

}  // namespace penstock

// The folders in which models are searched and the settings of downloads. The environment variables
// are those of the tools to which the folders belong.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT; no slash at the end
  std::string token;                                // HF_TOKEN, else the token file; "" is none
  // HF_HUB_CACHE, else HF_HOME/hub: downloads go here
  std::filesystem::path cache;
  // Further caches of the same layout, which are only read: LLAMA_CACHE.
  std::vector<std::filesystem::path> more_caches;
  std::vector<std::filesystem::path> lm_studio;  // folders of publisher/model/file
  // folders with manifests and blobs: OLLAMA_MODELS
  std::vector<std::filesystem::path> ollama;
  // file of trusted certificates; "" is the system's
  std::string certificates;
  bool offline = false;  // HF_HUB_OFFLINE: no network access
  bool symlinks = true;  // false: HF_HUB_DISABLE_SYMLINKS
  // HF_HUB_ETAG_TIMEOUT: timeout of metadata requests
  std::chrono::seconds metadata_timeout{10};
  // HF_HUB_DOWNLOAD_TIMEOUT: timeout without a received byte
  std::chrono::seconds transfer_timeout{10};
};

// Returns the settings of the environment. Errors: kInvalidArgument, with the variable, the
// expected and the given value.
Result<HubSettings> hub_settings();

}  // namespace penstock

// Where models are looked for and how they are fetched. The environment variables are those of the tools whose folders
// these are, so that whoever has set these up need not do it again.
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
  std::filesystem::path cache;                      // HF_HUB_CACHE, else HF_HOME/hub: downloads go here
  std::vector<std::filesystem::path> more_caches;   // of the same layout, only searched: LLAMA_CACHE
  std::vector<std::filesystem::path> lm_studio;     // folders of publisher/model/file
  std::vector<std::filesystem::path> ollama;        // folders with manifests and blobs: OLLAMA_MODELS
  std::string certificates;                         // file of trusted certificates; "" is the system's
  bool offline = false;                             // HF_HUB_OFFLINE: nothing is asked of the network
  bool symlinks = true;                             // HF_HUB_DISABLE_SYMLINKS
  std::chrono::seconds metadata_timeout{10};        // HF_HUB_ETAG_TIMEOUT: for an answer about a file
  std::chrono::seconds transfer_timeout{10};        // HF_HUB_DOWNLOAD_TIMEOUT: without a byte of a file
};

// What the environment says. Errors: kInvalidArgument names the variable, what it should be and what it is.
Result<HubSettings> hub_settings();

}  // namespace penstock

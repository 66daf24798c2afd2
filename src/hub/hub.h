// Models by name: found in the folders that this and other tools filled, else downloaded.
//
// The narrow way in: everything else in this room serves these functions. They may be called from any thread; two processes
// may fetch the same model at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/settings.h"

namespace penstock {

struct FoundModel {
  std::filesystem::path path;  // a GGUF file (the first of its shards), or a folder with a checkpoint
  std::string name;            // as it would be typed: "org/name:model-Q4_K_M.gguf"
  std::string source;          // "Hugging Face cache", "LM Studio", "Ollama"
  int64_t bytes = 0;           // of all its files
  std::string
      missing;  // what it may lack, in words: a vocabulary, or files that its repository has; "" is nothing
};

// What a download is doing.
struct PullProgress {
  std::string name;             // what is fetched: "org/name"
  int64_t done = 0, total = 0;  // bytes; total 0: not known yet
  int n_files = 0;
  std::string note;  // what is waited for, if anything
};
// Called about ten times a second, on the calling thread. False stops: kCancelled; what was received is kept and taken up again.
using PullObserver = std::function<bool(const PullProgress&)>;

// Looks on disk, and downloads what is not there. What may be incomplete (FoundModel::missing) is completed if a server can be
// reached. Errors: those of the two functions below.
Result<FoundModel> resolve_model(const HubSettings& settings, std::string_view name,
                                 const PullObserver& observer);

// Asks the hub for the newest commit of the name's revision and receives what is not in the cache. Offline: what is there.
// Errors: kInvalidArgument, kNotFound, kIo, kCorruptFile (wrong content, or an answer that makes no sense), kResourceExhausted,
// kCancelled, kDeadlineExceeded.
Result<FoundModel> pull_model(const HubSettings& settings, std::string_view name,
                              const PullObserver& observer);

// Looks on disk only. Errors: kNotFound with the places searched and what was wrong there; kInvalidArgument for a name that
// is none.
Result<FoundModel> find_on_disk(const HubSettings& settings, std::string_view name);

// Takes a model out of the Hugging Face cache: org/name is everything of it, unfinished downloads too; with a revision that
// snapshot; with a file, folder or quantization that, of the revision or of all. What other revisions or repositories share
// stays. Errors: kNotFound; kUnsupported when another tool's folder has it; kIo when a process is downloading it.
struct RemovedModel {
  int64_t bytes = 0;  // freed on disk
};
Result<RemovedModel> remove_model(const HubSettings& settings, std::string_view name);

// Every model on disk that can be typed as a name.
std::vector<FoundModel> models_on_disk(const HubSettings& settings);

}  // namespace penstock
